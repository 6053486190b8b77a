"""The installed signer as a process, with the identities that the packaging gives it."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

import requests
import yaml

from common.names import CLIENT_SIGNER
from tests.harness import process
from tests.harness.controlplane import HOST
from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.management import NAMESPACE, ManagementCluster
from tests.harness.programs import SIGNER


class HasManagement(Protocol):
    """The part of a fleet that a signer needs."""

    @property
    def management(self) -> ManagementCluster:
        """Return the management cluster."""


OPT_IN = {"attestation.cluster.x-k8s.io/client-signer": CLIENT_SIGNER}


class Signer:
    """One replica. A context manager; its log lines are there to be read while it runs."""

    def __init__(
        self,
        fleet: HasManagement,
        folder: Path,
        *,
        policy: Mapping[str, Any] | None = None,
        kubeconfig: str | None = None,
    ) -> None:
        """Write its configuration; `policy` is the `spec` of the one policy for all clusters."""
        folder.mkdir(parents=True, exist_ok=True)
        self._address = f"{HOST}:{process.free_port()}"
        self.log = folder / "signer.log"
        self._kubeconfig = folder / "management.kubeconfig"
        self._kubeconfig.write_text(kubeconfig or fleet.management.signer_kubeconfig())
        self._policy = folder / "policy.yaml"
        self._policy.write_text(_policies(policy or {}))
        self._process: Any = None

    def start(self) -> None:
        """Start it; `wait_until_ready` tells when it watches."""
        self._process = process.start(
            [
                SIGNER, "run", "--kubeconfig", self._kubeconfig,
                "--policy", self._policy, "--namespace", NAMESPACE,
                "--metrics-address", self._address,
            ],
            log=self.log,
        )  # fmt: skip

    def wait_until_ready(self) -> None:
        """Wait until it knows the management cluster."""
        process.wait_until_ready(
            self._process, lambda: self.ask("/readyz").ok, what="the signer is ready", log=self.log
        )

    @contextmanager
    def under(self, *specs: Mapping[str, Any]) -> Iterator[Self]:
        """Let other policies count, a `spec` each; it is started again before and after."""
        own = self._policy.read_text(encoding="utf-8")
        self.stop()
        try:
            self._policy.write_text(_policies(*specs), encoding="utf-8")
            self.start()
            self.wait_until_ready()
            yield self
        finally:
            self.stop()
            self._policy.write_text(own, encoding="utf-8")
            self.start()

    def ask(self, path: str) -> requests.Response:
        """Ask what others observe of it."""
        with requests.Session() as session:
            session.trust_env = False
            try:
                return session.get(f"http://{self._address}{path}", timeout=60)
            except requests.ConnectionError:
                nobody = requests.Response()
                nobody.status_code = 503
                return nobody

    def learn(self, tenant: WorkloadTenant, *nodes: str) -> Mapping[str, Any]:
        """Have a policy drafted from its log, as an operator does; return the `spec`."""
        named = [argument for node in nodes for argument in ("--node", node)]
        of = ["--cluster", f"{tenant.namespace}/{tenant.name}"]
        done = subprocess.run(
            [SIGNER, "learn", "--log", str(self.log), *named, *of],
            check=True,
            capture_output=True,
            text=True,
        )
        spec: Mapping[str, Any] = yaml.safe_load(done.stdout)["spec"]
        return spec

    def stop(self) -> None:
        """Ask it to end, and wait."""
        process.stop(self._process)

    def kill(self) -> None:
        """End it at once, wherever it is."""
        process.kill(self._process)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Return its process ID."""
        pid: int = self._process.pid
        return pid

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Everything that it has logged, as JSON objects."""
        # What is written just now may be half a line.
        whole, _, _ = self.log.read_text(encoding="utf-8").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def verdicts(self, csr: str) -> list[dict[str, Any]]:
        """Return the verdicts on one CSR."""
        return [line for line in self.lines if line.get("csr") == csr]


def of_cluster(tenant: WorkloadTenant, **spec: object) -> Mapping[str, Any]:
    """Return the `spec` of a policy for one cluster."""
    return {"clusterRef": {"namespace": tenant.namespace, "name": tenant.name}, **spec}


def _policies(*specs: Mapping[str, Any]) -> str:
    """Write a policy file, with a document for each `spec`."""
    documents = [
        {
            "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
            "kind": "KubeletAttestationPolicy",
            "metadata": {"name": f"policy-{number}"},
            "spec": dict(spec),
        }
        for number, spec in enumerate(specs)
    ]
    return yaml.safe_dump_all(documents)


def opt_in(fleet: Fleet, tenant: WorkloadTenant) -> None:
    """Opt a Cluster in to the client signer."""
    fleet.management.admin.patch(
        f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{tenant.namespace}/clusters/{tenant.name}",
        {"metadata": {"annotations": OPT_IN}},
    )


@contextmanager
def serving_all(
    fleet: Fleet, folder: Path, policy: Mapping[str, Any] | None = None
) -> Iterator[Signer]:
    """Opt both clusters in and run one signer for them."""
    for tenant in fleet.tenants:
        opt_in(fleet, tenant)
    with Signer(fleet, folder, policy=policy) as signer:
        yield signer
