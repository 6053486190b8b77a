"""The installed signer as a process, with the permissions that the packaging gives it."""

import json
import subprocess
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, Self

import requests
from prometheus_client.parser import text_string_to_metric_families

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


_SHUTDOWN_SECONDS = 45
"""terminationGracePeriodSeconds of the chart."""
RUNNING: Final[set["Signer"]] = set()
"""Every signer of this process that was started and not stopped."""
_ROLE = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/node-attestation-signer"
OPT_IN = {"attestation.cluster.x-k8s.io/client-signer": CLIENT_SIGNER}


class Signer:
    """One replica, as a context manager; its log can be read while it runs."""

    def __init__(
        self,
        fleet: HasManagement,
        directory: Path,
        *,
        policy: Mapping[str, Any] | None = None,
        kubeconfig: str | None = None,
        namespace: str = "",
    ) -> None:
        """Write the configuration; a `policy` is the `spec` of the one policy for all clusters.

        Without it, the policies stay as they are. The signer watches the objects of `namespace`, or
        of all namespaces if it is empty.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.address = f"{HOST}:{process.free_port()}"
        self.log = directory / "signer.log"
        self._kubeconfig = directory / "management.kubeconfig"
        self._kubeconfig.write_text(kubeconfig or fleet.management.signer_kubeconfig())
        self._fleet = fleet
        self._policy = policy
        self._more_flags: list[str] = []
        self._metrics_flags: list[str] = ["--metrics-address", self.address]
        self._namespace = namespace
        self.environment: Mapping[str, str] | None = None
        """Variables of the process; by default those of the tests."""
        self.stderr = subprocess.STDOUT
        """File descriptor to which it logs, in place of the log file."""
        self.program = SIGNER
        self._process: Any = None

    def create_default_policy(self) -> Self:
        """Create the first policy, as in an installation from the manifests."""
        self._more_flags.append("--create-default-policy")
        return self

    def share_with_no_other(self) -> Self:
        """Serve every Cluster: replicas with other infrastructure groups do not share them."""
        for group in ("infrastructure.cluster.x-k8s.io", "unshared.example"):
            self._more_flags += ["--infrastructure-group", group]
        return self

    def use_secure_metrics(self) -> Self:
        """Serve metrics and probes with TLS."""
        self._metrics_flags.append("--metrics-secure")
        return self

    def start(self) -> None:
        """Start the process; `wait_until_ready` waits until it watches the clusters."""
        self._process = process.start(
            [
                self.program, "run", "--kubeconfig", self._kubeconfig,
                *self._more_flags, "--own-namespace", NAMESPACE,
                "--namespace", self._namespace,
                *self._metrics_flags,
            ],
            log=self.log,
            env=self.environment,
            stderr=self.stderr,
        )  # fmt: skip
        RUNNING.add(self)

    def wait_until_ready(self) -> None:
        """Wait until it has listed the objects of the management cluster."""
        process.wait_until_ready(
            self._process, lambda: self.ask("/readyz").ok, what="the signer is ready", log=self.log
        )

    @contextmanager
    def with_policies(self, *specs: Mapping[str, Any]) -> Iterator[Self]:
        """Use other policies, a `spec` each; restarts the signer before and after."""
        management = self._fleet.management
        self.stop()
        previous = management.set_policies(*specs)
        try:
            self.start()
            self.wait_until_ready()
            yield self
        finally:
            self.stop()
            management.set_policies(*previous)
            self.start()

    def write_kubeconfig(self, text: str) -> None:
        """Replace the kubeconfig file of a running signer."""
        self._kubeconfig.write_text(text)

    def ask(self, path: str, *, token: str = "") -> requests.Response:
        """Get a path of its metrics address; status 503 if nothing listens there."""
        scheme = "https" if "--metrics-secure" in self._metrics_flags else "http"
        with requests.Session() as session, warnings.catch_warnings(action="ignore"):
            session.trust_env = False
            session.verify = False
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            try:
                return session.get(f"{scheme}://{self.address}{path}", headers=headers, timeout=60)
            except requests.ConnectionError:
                response = requests.Response()
                response.status_code = 503
                return response

    def metric(self, name: str, **labels: str) -> float | None:
        """Return the value of a metric with these labels; `None` if there is none."""
        for family in text_string_to_metric_families(self.ask("/metrics").text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        return None

    def states(self) -> dict[tuple[str, str], str]:
        """Return the state of each Cluster that this replica serves; nothing before it listens."""
        response = self.ask("/debug/clusters")
        reports = response.json() if response.ok else []
        return {(r["namespace"], r["name"]): r["state"] for r in reports if "state" in r}

    def stop(self) -> int:
        """Send SIGTERM and return the exit status, also while others take over from it.

        Raises `ProcessFailed`: it had ended by itself.
        """
        RUNNING.discard(self)
        process.require_running(self._process, self.log)
        process.stop(self._process, seconds=_SHUTDOWN_SECONDS)
        status: int = self._process.returncode
        return status

    def kill(self) -> None:
        """Send SIGKILL."""
        RUNNING.discard(self)
        process.kill(self._process)

    def __enter__(self) -> Self:
        if self._policy is not None:
            self._fleet.management.set_policies(self._policy)
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
        """All complete lines of the log, as JSON objects."""
        # The last line may be half written.
        complete, _, _ = self.log.read_text(encoding="utf-8").rpartition("\n")
        return [json.loads(line) for line in complete.splitlines()]

    def verdicts(self, csr: str) -> list[dict[str, Any]]:
        """Return the log lines with the verdicts on one CSR."""
        return [line for line in self.lines if line.get("csr") == csr and "outcome" in line]


def of_cluster(tenant: WorkloadTenant, **spec: object) -> Mapping[str, Any]:
    """Return the `spec` of a policy for one cluster."""
    return {"clusterRef": {"namespace": tenant.namespace, "name": tenant.name}, **spec}


def opt_in(fleet: Fleet, tenant: WorkloadTenant) -> None:
    """Annotate a Cluster with the client signer."""
    fleet.management.admin.patch(
        f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{tenant.namespace}/clusters/{tenant.name}",
        {"metadata": {"annotations": OPT_IN}},
    )


@contextmanager
def without_leases(fleet: HasManagement) -> Iterator[None]:
    """Take from all signers the permission for Leases: each of them serves every Cluster."""
    admin = fleet.management.admin
    rules = admin.get(_ROLE)["rules"]
    admin.patch(_ROLE, {"rules": [rule for rule in rules if rule["resources"] != ["leases"]]})
    try:
        yield
    finally:
        admin.patch(_ROLE, {"rules": rules})


def wait_until_unshared(*signers: Signer) -> None:
    """Wait until each of these signers serves every Cluster."""
    for signer in signers:
        process.wait_until(
            lambda signer=signer: signer.metric("node_attestation_replicas") == 0,  # type: ignore[misc]
            what="the signer serves every Cluster",
        )


@contextmanager
def serving_all(
    fleet: Fleet, directory: Path, policy: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[Signer]:
    """Opt both Clusters in, and run one signer for them."""
    for tenant in fleet.tenants:
        opt_in(fleet, tenant)
    with Signer(fleet, directory, policy=policy) as signer:
        yield signer
