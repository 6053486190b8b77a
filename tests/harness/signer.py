"""The installed signer as a process, with the identities that the packaging gives it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import yaml

from common.names import CLIENT_SIGNER
from tests.harness import process
from tests.harness.fleet import Fleet, Tenant
from tests.harness.management import NAMESPACE
from tests.harness.programs import SIGNER

OPT_IN = {"attestation.cluster.x-k8s.io/client-signer": CLIENT_SIGNER}


class Signer:
    """One replica. A context manager; its log lines are there to be read while it runs."""

    def __init__(
        self,
        fleet: Fleet,
        folder: Path,
        *,
        policy: Mapping[str, Any] | None = None,
        kubeconfig: str | None = None,
    ) -> None:
        """Write its configuration; `policy` is the `spec` of the one policy for all clusters."""
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "signer.log"
        self._kubeconfig = folder / "management.kubeconfig"
        self._kubeconfig.write_text(kubeconfig or fleet.management.signer_kubeconfig())
        self._policy = folder / "policy.yaml"
        self._policy.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
                    "kind": "KubeletAttestationPolicy",
                    "metadata": {"name": "default"},
                    "spec": dict(policy or {}),
                }
            )
        )
        self._process: Any = None

    def start(self) -> None:
        """Start it, and return when it watches."""
        self._process = process.start(
            [
                SIGNER, "run", "--kubeconfig", self._kubeconfig,
                "--policy", self._policy, "--namespace", NAMESPACE,
            ],
            log=self.log,
        )  # fmt: skip

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
    def lines(self) -> list[dict[str, Any]]:
        """Everything that it has logged, as JSON objects."""
        # What is written just now may be half a line.
        whole, _, _ = self.log.read_text(encoding="utf-8").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def verdicts(self, csr: str) -> list[dict[str, Any]]:
        """Return the verdicts on one CSR."""
        return [line for line in self.lines if line.get("csr") == csr]


def opt_in(fleet: Fleet, tenant: Tenant) -> None:
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
