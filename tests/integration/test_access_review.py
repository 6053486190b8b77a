"""R4 on real parts: who may have a certificate, by RBAC of the workload cluster."""

from collections.abc import Iterator, Sequence

import pytest
import yaml

from common.names import BUILTIN_SERVING_SIGNER, CLIENT_SIGNER, NODES_GROUP
from tests.harness.documentation import blocks
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.process import wait_until
from tests.harness.signer import Signer, of_cluster
from tests.harness.workload import BOOTSTRAPPERS, WorkloadCluster
from tests.integration import csrs
from tests.integration.credentials import client_of
from tests.integration.scripted_node import Script
from tests.integration.serving_requests import ask

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
JOINS, RENEWALS = "attested-node-joins", "attested-node-renewals"


@pytest.fixture(scope="module", autouse=True)
def reviewing(signer: Signer, fleet: Fleet) -> Iterator[None]:
    """Require a review in the first cluster."""
    with signer.with_policies(of_cluster(fleet.first, accessReview="Require")):
        yield


@pytest.fixture
def roles(fleet: Fleet) -> Iterator[Sequence[str]]:
    """Apply the roles and bindings of the documentation; return their text, one object each."""
    marker = f"run by: tests/integration/{__name__.rpartition('.')[2]}.py::"
    [block] = [b for b in blocks() if b.marker.startswith(marker)]
    workload = fleet.first.workload
    workload.kubectl("apply", "-f", "-", stdin=block.text)
    right = (NODES_GROUP, "selfnodeserver", BUILTIN_SERVING_SIGNER)
    wait_until(lambda: may_join(workload) and may(workload, *right), what="the bindings count")
    yield block.text.split("---\n")
    workload.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=block.text)


def may_join(workload: WorkloadCluster, signer_name: str = CLIENT_SIGNER) -> bool:
    """Return whether bootstrap tokens may join; kube-controller-manager asks without a name."""
    return may(workload, BOOTSTRAPPERS, "nodeclient", signer_name)


def may(workload: WorkloadCluster, group: str, subresource: str, signer_name: str) -> bool:
    """Ask as the signer asks."""
    attributes = {
        "group": "certificates.k8s.io",
        "resource": "certificatesigningrequests",
        "subresource": subresource,
        "name": signer_name,
        "verb": "create",
    }
    spec = {"user": "u", "groups": [group], "resourceAttributes": attributes}
    review = workload.admin.create(REVIEWS, {"spec": spec})
    return bool(review["status"]["allowed"])


def test_deleted_bindings_stop_joins_and_renewals(
    machines: Machines, fleet: Fleet, roles: Sequence[str]
) -> None:
    workload = fleet.first.workload
    node = machines.registered()
    client = client_of(node)
    assert not may_join(workload, ""), "kube-controller-manager would approve without attestation"
    workload.admin.delete(f"{BINDINGS}/{JOINS}")
    wait_until(lambda: not may_join(workload), what="the binding is gone")
    waiting = Script(machines.registered())
    name = csrs.new_name()
    waiting.put(name, waiting.encoded(name))
    csrs.waiting_for(workload.admin, name, "AccessNotAllowed")
    renewal = Script(node, client=client)
    assert renewal.attest() == {"Approved": "Attested"}
    [binding] = [
        t for t in roles if yaml.safe_load(t)["metadata"]["name"] == JOINS and "Binding" in t
    ]
    workload.kubectl("apply", "-f", "-", stdin=binding)
    assert csrs.decided(workload.admin, name) == {"Approved": "Attested"}


@pytest.mark.usefixtures("roles")
def test_node_without_the_right_waits_for_its_serving_certificate(
    machines: Machines, fleet: Fleet
) -> None:
    workload = fleet.first.workload
    node = machines.registered()
    client = client_of(node)
    allowed = ask(client, node.name, [node.name])
    assert csrs.decided(client, allowed) == {"Approved": "Attested"}
    workload.admin.delete(f"{BINDINGS}/{RENEWALS}")
    right = (NODES_GROUP, "selfnodeserver", BUILTIN_SERVING_SIGNER)
    wait_until(lambda: not may(workload, *right), what="the binding is gone")
    other = ask(client, node.name, [node.name])
    csrs.waiting_for(client, other, "AccessNotAllowed")
