"""Signers whose requests go through relays, which cause faults: the product needs no test hook."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.harness.api_relay import ApiRelay, Fault, relay
from tests.harness.client import Client
from tests.harness.fleet import Fleet
from tests.harness.management import NAMESPACE
from tests.harness.node import Node
from tests.harness.signer import Signer
from tests.harness.workload import SIGNER
from tests.integration import csrs

PATIENCE = {"timeoutSeconds": 90}
"""Settings for a call during which a second signer is started, or connections were lost."""

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """The relays to both API servers."""

    fleet: Fleet
    management: ApiRelay
    workload: ApiRelay

    def signer(self, directory: Path) -> Signer:
        """Make a signer whose requests go through the relays."""
        text = self.fleet.management.signer_kubeconfig()
        through = text.replace(self.fleet.management.url, self.management.url)
        return Signer(self.fleet, directory, kubeconfig=through)

    def reset(self) -> None:
        """Delete the challenge keys and all CSRs, so that the next join causes every write."""
        namespace = f"/api/v1/namespaces/{NAMESPACE}/secrets"
        empty(self.fleet.management.admin, namespace, "node-attestation-challenge-keys")
        empty(self.fleet.first.workload.admin, csrs.CSRS)

    def arm(self, fault: Fault | None) -> None:
        """Set the fault for the next writes to either API server; `None` for no fault."""
        self.management.fault = self.workload.fault = fault


@contextmanager
def relays(fleet: Fleet, directory: Path) -> Iterator[Relayed]:
    """Run relays to the management cluster and to the first workload cluster."""
    tenant = fleet.first
    identity = tenant.workload.authority.client(SIGNER, SIGNER)
    path = f"/api/v1/namespaces/{tenant.namespace}/secrets/{tenant.name}-kubeconfig"
    direct = fleet.management.admin.get(path)["data"]
    text = base64.b64decode(direct["value"]).decode()
    with (
        relay(fleet.management, directory / "management") as management,
        relay(tenant.workload, directory / "workload", identity) as workload,
    ):
        through = text.replace(tenant.workload.url, workload.url)
        value = base64.b64encode(through.encode()).decode()
        fleet.management.admin.patch(path, {"data": {"value": value}})
        yield Relayed(fleet=fleet, management=management, workload=workload)
    fleet.management.admin.patch(path, {"data": direct})


def empty(admin: Client, collection: str, *names: str) -> None:
    """Delete the objects with these names from a collection; without names, all of them."""
    for item in admin.list(collection):
        name = item["metadata"]["name"]
        if not names or name in names:
            admin.delete(f"{collection}/{name}")


def require_claim(node: Node, fleet: Fleet) -> dict[str, object]:
    """Require that the node has exactly one complete claim; return the holder of its key."""
    claimed = csrs.claim(node, fleet.management.admin)
    assert claimed["endorsementKey"] in next(iter(node.registration().values()))
    path = (
        f"/apis/attestation.cluster.x-k8s.io/v1alpha1/endorsementkeys/{claimed['endorsementKey']}"
    )
    holder: dict[str, object] = fleet.management.admin.get(path)["spec"]["heldBy"]
    assert (holder["nodeName"], holder["providerID"]) == (node.name, node.provider_id)
    return holder
