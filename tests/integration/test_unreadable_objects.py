"""On real API servers, an object that cannot be read stops nobody but its own namespace or name.

Each object gets the owner of a field that is nested so deeply that the decoder refuses it, by one
PATCH of 13 KB. That stopped the joins of all tenants, and no log named the object.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness import objects
from tests.harness.client import ApiError, Client
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.objects import BOOTSTRAP, CORE, INFRASTRUCTURE
from tests.harness.process import wait_until
from tests.harness.signer import Signer
from tests.integration.claim_bodies import REQUESTS, claim_body, request_body
from tests.integration.csrs import ATTESTED_NODES, CSRS, ENDORSEMENT_KEYS
from tests.integration.operator_calls import Operator, cluster_of
from tests.integration.plain_requests import csr

pytestmark = pytest.mark.usefixtures("signer")

LEVELS = 1_500
"""More than Python 3.11 decodes (1,000), and fewer than kube-apiserver stores (10,000)."""
NAME = "deep"
METRIC = "node_attestation_unreadable_objects"
RBAC = "rbac.authorization.k8s.io"


def deep_fields(version: str) -> bytes:
    """Return a patch with a deeply nested owner of a field."""
    nested = b'{"f:a":' * LEVELS + b"{}" + b"}" * LEVELS
    return (
        b'{"metadata":{"managedFields":[{"manager":"m","operation":"Update","fieldsType":"FieldsV1"'
        b',"apiVersion":"' + version.encode() + b'","fieldsV1":' + nested + b"}]}}"
    )


@dataclass(frozen=True)
class Case:
    """One kind: its plural in the signer's words, where it is, and a new object."""

    plural: str
    version: str
    path: Callable[[Fleet], str]
    body: Callable[[Fleet], dict[str, Any]]
    in_workload: bool = False
    stops_all: bool = False


def of_capi(group: str, plural: str) -> Callable[[Fleet], str]:
    version = "v1" if group == INFRASTRUCTURE else "v1beta2"
    return lambda fleet: f"/apis/{group}/{version}/namespaces/{fleet.second.namespace}/{plural}"


def named(**fields: Any) -> Callable[[Fleet], dict[str, Any]]:  # noqa: ANN401 - any JSON
    return lambda _: {"metadata": {"name": NAME}, **fields}


def machine_pool(fleet: Fleet) -> dict[str, Any]:
    template = objects.machine(fleet.second.name, objects.Machine(NAME), provider_id="test://p")
    spec = {**template["spec"]}
    del spec["providerID"]
    return {
        "apiVersion": f"{CORE}/v1beta2",
        "kind": "MachinePool",
        "metadata": {"name": NAME},
        "spec": {"clusterName": fleet.second.name, "template": {"spec": spec}},
    }


def attested_node(fleet: Fleet) -> dict[str, Any]:
    return claim_body(fleet.second, NAME, "ab" * 32)


CASES = [
    Case(
        "Clusters",
        f"{CORE}/v1beta2",
        of_capi(CORE, "clusters"),
        lambda _: objects.cluster(NAME, endpoint="https://192.0.2.1:6443", annotations={}),
    ),
    Case(
        "Machines",
        f"{CORE}/v1beta2",
        of_capi(CORE, "machines"),
        lambda fleet: objects.machine(
            fleet.second.name, objects.Machine(NAME), provider_id="test://deep"
        ),
    ),
    Case("MachinePools", f"{CORE}/v1beta2", of_capi(CORE, "machinepools"), machine_pool),
    Case(
        "KubeadmConfigs",
        f"{BOOTSTRAP}/v1beta2",
        of_capi(BOOTSTRAP, "kubeadmconfigs"),
        lambda _: objects.kubeadm_config(NAME, token="abcdef.0123456789abcdef"),
    ),
    Case(
        "TestMachines",
        f"{INFRASTRUCTURE}/v1",
        of_capi(INFRASTRUCTURE, "testmachines"),
        lambda fleet: objects.infrastructure_machine(
            fleet.second.name, objects.Machine(NAME), provider_id="test://deep"
        ),
    ),
    Case(
        "AttestedNodes",
        "attestation.cluster.x-k8s.io/v1alpha1",
        lambda fleet: ATTESTED_NODES.format(fleet.second.namespace),
        attested_node,
    ),
    Case(
        "EndorsementKeyRequests",
        "attestation.cluster.x-k8s.io/v1alpha1",
        lambda fleet: REQUESTS.format(fleet.second.namespace),
        lambda _: request_body(NAME),
    ),
    Case(
        "EndorsementKeys",
        "attestation.cluster.x-k8s.io/v1alpha1",
        lambda _: ENDORSEMENT_KEYS,
        lambda _: {
            "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
            "kind": "EndorsementKey",
            "metadata": {"name": "cd" * 32},
            "spec": {},
        },
        stops_all=True,
    ),
    Case("Nodes", "v1", lambda _: "/api/v1/nodes", named(), in_workload=True),
    Case(
        "CertificateSigningRequests",
        "certificates.k8s.io/v1",
        lambda _: CSRS,
        lambda _: csr(NAME),
        in_workload=True,
    ),
    Case(
        "ClusterRoleBindings",
        f"{RBAC}/v1",
        lambda _: f"/apis/{RBAC}/v1/clusterrolebindings",
        named(roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"}),
        in_workload=True,
    ),
]


@contextmanager
def deepened(case: Case, fleet: Fleet, signer: Signer) -> Iterator[str]:
    """Store the object in the second tenant's place until the end; yield its name."""
    server = fleet.second.workload if case.in_workload else fleet.management
    path = case.path(fleet)
    name = create_deep(server.admin, path, case, fleet)
    try:
        wait_until(lambda: count(case, fleet, signer) == 1, what="the signer counts the object")
        yield name
    finally:
        server.admin.delete(f"{path}/{name}")
    wait_until(lambda: not count(case, fleet, signer), what="the signer forgets the object")


def create_deep(admin: Client, path: str, case: Case, fleet: Fleet) -> str:
    """Create the object and nest it deeply, again if the signer deleted it in between."""
    while True:
        name: str = admin.create(path, case.body(fleet))["metadata"]["name"]
        try:
            admin.patch_text(f"{path}/{name}", deep_fields(case.version))
        except ApiError as error:
            if error.code != 404:
                raise
        else:
            return name


def count(case: Case, fleet: Fleet, signer: Signer) -> float | None:
    """Return how many objects the metric has for the second tenant, or for nobody's namespace."""
    labels = {"objects": case.plural}
    if not case.stops_all:
        labels["namespace"] = fleet.second.namespace
    if case.in_workload:
        labels["cluster"] = cluster_of(fleet.second)
    return signer.metric(METRIC, **labels)


def alarms(signer: Signer, name: str) -> list[dict[str, Any]]:
    """Return the alarms about an object."""
    return [
        line
        for line in signer.lines
        if line.get("event") == "unreadable object"
        and line.get("alarm")
        and str(line.get("object", "")).endswith(name)
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.plural)
def test_unreadable_object_stops_its_own_tenant_at_most(
    case: Case, machines: Machines, fleet: Fleet, signer: Signer
) -> None:
    """Also after a restart of the signer: it was not ready until somebody found the object."""
    node, other = machines.registered(fleet.first), machines.registered(fleet.first)
    with deepened(case, fleet, signer) as name:
        assert alarms(signer, name)
        if not case.stops_all:
            assert node.call().status == 0
        signer.stop()
        signer.start()
        signer.wait_until_ready()
        wait_until(lambda: count(case, fleet, signer) == 1, what="it counts the object again")
        if not case.stops_all:
            assert other.call().status == 0
        if not case.in_workload:
            require_shown(case, fleet, name)
    assert node.call().status == 0


def require_shown(case: Case, fleet: Fleet, name: str) -> None:
    """Require an Event on the object, and a row of `problems`."""
    operator = Operator(fleet, fleet.management.admin_config)

    def has_event() -> bool:
        events = fleet.management.admin.list("/api/v1/events")
        return any(
            e["reason"] == "ObjectUnreadable" and e["involvedObject"]["name"] == name
            for e in events
        )

    wait_until(has_event, what="an Event is on the object")
    call = operator.call("problems", "-o", "json")
    assert call.status == 1, call
    rows = [row for row in call.items if row["reason"] == "ObjectUnreadable"]
    if case.plural in {"Clusters", "Machines", "MachinePools", "AttestedNodes", "EndorsementKeys"}:
        assert [row["object"].split()[-1] for row in rows] == [name]
        assert rows[0]["namespace"] == (None if case.stops_all else fleet.second.namespace)
