"""What `kubectl get` shows of claims, and which fields select them."""

import secrets
from collections.abc import Mapping

import pytest

from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.integration import csrs

KEYS = csrs.ENDORSEMENT_KEYS
MAX_WIDTH = 150
"""Columns of a terminal that a table of keys fits in; the name alone has 64."""


def row(fleet: Fleet, *arguments: str) -> Mapping[str, str]:
    """Return the only row of a table, by header."""
    header, line = fleet.management.kubectl("get", *arguments).splitlines()
    starts = [
        i for i, c in enumerate(header) if c != " " and header[max(0, i - 2) : i].strip() == ""
    ]
    bounds = zip(starts, [*starts[1:], None], strict=True)
    assert len(line) <= MAX_WIDTH
    return {header[a:b].strip(): line[a:b].strip() for a, b in bounds}


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"machineName": "machine-1"}, "machine-1"),
        ({"providerID": "metal3://host-1"}, "metal3://host-1"),
        ({"providerID": "metal3://host-1", "nodeName": "node-1"}, "node-1"),
    ],
    ids=["machine", "provider ID", "node first"],
)
def test_registered_key_that_has_not_joined_shows_its_machine(
    fleet: Fleet, fields: Mapping[str, str], shown: str
) -> None:
    name = secrets.token_hex(32)
    cluster = {"clusterNamespace": "team-a", "clusterName": "workload"}
    fleet.management.admin.create(
        KEYS, {"metadata": {"name": name}, **body({"registeredFor": [{**cluster, **fields}]})}
    )
    cells = row(fleet, "endorsementkeys", name)
    assert (cells["REGISTERED FOR"], cells["HELD BY"]) == (shown, "")


def body(spec: Mapping[str, object]) -> Mapping[str, object]:
    """Return an EndorsementKey without metadata."""
    kind = {"apiVersion": "attestation.cluster.x-k8s.io/v1alpha1", "kind": "EndorsementKey"}
    return {**kind, "spec": spec}


@pytest.mark.usefixtures("signer")
def test_claims_are_selected_by_the_fields_of_their_node(machines: Machines, fleet: Fleet) -> None:
    node = machines.registered()
    assert node.call().status == 0
    cells = row(fleet, "attestednodes", "-A", f"--field-selector=spec.nodeName={node.name}")
    assert cells["MACHINE"] == node.name
    assert cells["CLUSTER"] == node.tenant.name
    key = csrs.claim(node, fleet.management.admin)["endorsementKey"]
    selector = f"--field-selector=spec.heldBy.nodeName={node.name}"
    assert row(fleet, "endorsementkeys", selector)["NAME"] == key
    # K1 asks for this while caches lack objects.
    cells = row(fleet, "attestednodes", "-A", f"--field-selector=spec.endorsementKey={key}")
    assert cells["MACHINE"] == node.name


@pytest.mark.usefixtures("signer")
def test_renewal_leaves_the_time_of_the_first_claim(machines: Machines, fleet: Fleet) -> None:
    node = machines.registered()
    assert node.call().status == 0
    name = csrs.claim(node, fleet.management.admin)["endorsementKey"]
    early = {"since": "2026-01-01T00:00:00Z", "lastClaimed": "2026-01-01T00:00:00Z"}
    fleet.management.admin.patch(f"{KEYS}/{name}", {"spec": {"heldBy": early}})
    assert node.call("renew", "--kubeconfig", str(node.kubeconfig())).status == 0
    held = csrs.held(node, fleet.management.admin)
    assert held["since"] == early["since"]
    assert held["lastClaimed"] > early["lastClaimed"]
