"""KubeletAttestationPolicies on the management cluster of a fleet."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.harness.client import Object
from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.management import POLICIES
from tests.harness.process import wait_until

Spec = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """One policy that the API server stores."""

    fleet: Fleet
    name: str

    @property
    def _path(self) -> str:
        return f"{POLICIES}/{self.name}"

    def replace(self, spec: Spec) -> None:
        """Write another `spec`."""
        current = self.fleet.management.admin.get(self._path)
        self.fleet.management.admin.replace(self._path, {**current, "spec": dict(spec)})

    @property
    def status(self) -> Object:
        """Return the status for the present generation; empty until the signer has written it."""
        stored = self.fleet.management.admin.get(self._path)
        status: Object = stored.get("status") or {}
        if status.get("observedGeneration") != stored["metadata"]["generation"]:
            return {}
        return status

    def condition(self, kind: str) -> tuple[str, str, str]:
        """Return status, reason and message of a condition; empty texts without one."""
        for condition in self.status.get("conditions", ()):
            if condition["type"] == kind:
                return condition["status"], condition["reason"], condition["message"]
        return "", "", ""

    def wait_for(self, kind: str, status: str, reason: str, seconds: float = 120) -> str:
        """Wait until a condition of the present generation is as given; return its message."""
        wait_until(
            lambda: self.condition(kind)[:2] == (status, reason),
            what=f"{self.name} is {kind}={status} {reason}",
            seconds=seconds,
        )
        return self.condition(kind)[2]

    def wait_for_state(self, tenant: WorkloadTenant, state: str) -> None:
        """Wait until a Cluster is in that state in the status: a watch may just have ended."""
        wait_until(
            lambda: self.states.get((tenant.namespace, tenant.name)) == state,
            what=f"{tenant.namespace}/{tenant.name} is {state} in {self.name}",
            seconds=120,
        )

    @property
    def states(self) -> Mapping[tuple[str, str], str]:
        """Return the states of all Clusters in the status."""
        clusters = self.status.get("clusters", ())
        return {(c["namespace"], c["name"]): c["state"] for c in clusters}


@contextmanager
def stored_policy(fleet: Fleet, name: str, spec: Spec) -> Iterator[StoredPolicy]:
    """Create a policy, and delete it at the end."""
    fleet.management.create_policy(name, spec)
    try:
        yield StoredPolicy(fleet, name)
    finally:
        fleet.management.admin.delete(f"{POLICIES}/{name}")
