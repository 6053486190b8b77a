"""The insecure signer as a process, and Clusters that name it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.harness import process
from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.signer import OPT_IN, of_cluster

SIGNER_NAME = "cluster.x-k8s.io/kube-apiserver-client-kubelet-insecure"


@dataclass(slots=True)
class InsecureSigner:
    """One replica, as a context manager; its log can be read while it runs."""

    directory: Path
    kubeconfig: str
    clusters: tuple[WorkloadTenant, ...]
    process: Any = field(init=False, default=None)

    @property
    def log(self) -> Path:
        """Its log."""
        return self.directory / "signer.log"

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "management.kubeconfig"
        config.write_text(self.kubeconfig, encoding="utf-8")
        flags = [f"--cluster={each.namespace}/{each.name}" for each in self.clusters]
        program: list[str | Path] = [sys.executable, "-m", "signer.insecure"]
        self.process = process.start([*program, "--kubeconfig", config, *flags], log=self.log)
        return self

    def __exit__(self, *_: object) -> None:
        process.stop(self.process)

    def kill(self) -> None:
        """Send SIGKILL."""
        process.kill(self.process)

    def has_logged(self, *texts: str) -> bool:
        """Return whether one line of the log has all the texts."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return any(all(text in line for text in texts) for line in lines)


@contextmanager
def opted_in(fleet: Fleet, tenant: WorkloadTenant) -> Iterator[None]:
    """Let a Cluster name the insecure signer, and afterwards the attested one.

    Meanwhile, policies select the first Cluster only: the insecure signer serves none of theirs.
    """
    path = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{tenant.namespace}/clusters/{tenant.name}"
    management = fleet.management
    admin = management.admin
    previous = management.set_policies(of_cluster(fleet.first))
    admin.patch(path, {"metadata": {"annotations": dict.fromkeys(OPT_IN, SIGNER_NAME)}})
    try:
        yield
    finally:
        admin.patch(path, {"metadata": {"annotations": dict(OPT_IN)}})
        management.set_policies(*previous)
