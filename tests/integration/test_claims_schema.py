"""The shipped custom resource definitions on a real API server."""

import re
from collections.abc import Callable
from hashlib import sha256
from http import HTTPStatus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from signer.kinds.attested_node import attested_node_name, read_attested_node
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import read_endorsement_key
from signer.kinds.key_request import read_key_request
from tests.builders.crd_schema import schema_of, values
from tests.harness.client import ApiError, Object
from tests.harness.fleet import Fleet

ATTESTATION = "/apis/attestation.cluster.x-k8s.io/v1alpha1"
DIGEST = "0123456789abcdef" * 4
NODE = "node-1.example.com"
NAME = attested_node_name(ClusterKey(namespace="team-a", name="workload"), NODE)
"""The signer would report another name as unreadable in all later tests."""


def endorsement_key(name: str) -> Object:
    """Return an EndorsementKey with a holder."""
    return {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "EndorsementKey",
        "metadata": {"name": name},
        "spec": {
            "heldBy": {
                "clusterNamespace": "team-a",
                "clusterName": "workload",
                "nodeName": NODE,
                "providerID": "test://team-a/node-1",
                "basis": "Registered",
                "since": "2026-01-02T03:04:05Z",
            }
        },
    }


def attested_node(name: str) -> Object:
    """Return the AttestedNode of the same claim."""
    return {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "AttestedNode",
        "metadata": {"name": name},
        "spec": {
            "clusterName": "workload",
            "nodeName": NODE,
            "providerID": "test://team-a/node-1",
            "endorsementKey": DIGEST,
            # Far in the future: a signer that runs removes claims that expired long ago
            "notAfter": "2126-01-09T03:04:05Z",
            "lastAttested": "2026-01-02T03:04:05Z",
            "boot": {
                "resetCount": 4294967295,
                "restartCount": 0,
                "firmwareVersion": "0x0001000200000000",
            },
        },
    }


def test_claims_are_stored_whole_and_shown(fleet: Fleet) -> None:
    admin = fleet.management.admin
    key, node = endorsement_key(DIGEST), attested_node(NAME)
    stored = admin.create(f"{ATTESTATION}/endorsementkeys", key)
    assert stored["spec"] == key["spec"]
    stored = admin.create(f"{ATTESTATION}/namespaces/team-a/attestednodes", node)
    assert stored["spec"] == node["spec"]
    shown = fleet.management.kubectl("get", "ek,atn", "--all-namespaces")
    for word in (
        "HELD BY",
        "REGISTERED FOR",
        "BANNED",
        "ATTESTED AGO",
        "CERTIFICATE UNTIL",
        NAME,
    ):
        assert word in shown
    assert shown.count(DIGEST) == 1  # The name of the EndorsementKey; it has no column.
    wide = fleet.management.kubectl("get", "atn", "--all-namespaces", "-o", "wide")
    assert "ENDORSEMENT KEY" in wide


@pytest.mark.parametrize("name", ["tpm-1", DIGEST[:-1], DIGEST[:-1] + "g"])
def test_endorsement_key_name_must_be_a_digest(fleet: Fleet, name: str) -> None:
    with pytest.raises(ApiError, match="SHA-256"):
        fleet.management.admin.create(f"{ATTESTATION}/endorsementkeys", endorsement_key(name))


@pytest.mark.parametrize("name", ["node-1.example.com", "node-2.example.com.workload", DIGEST])
def test_attested_node_name_must_be_that_of_node_and_cluster(fleet: Fleet, name: str) -> None:
    """Otherwise two objects could claim one node name."""
    with pytest.raises(ApiError, match=r"<node>\.<cluster>"):
        fleet.management.admin.create(
            f"{ATTESTATION}/namespaces/team-a/attestednodes", attested_node(name)
        )


@pytest.mark.parametrize(("cluster", "node"), [("work.load", NODE), ("workload", "n" * 245)])
def test_attested_node_name_is_a_digest_where_names_are_ambiguous_or_too_long(
    fleet: Fleet, cluster: str, node: str
) -> None:
    name = attested_node_name(ClusterKey(namespace="team-a", name=cluster), node)
    body = attested_node(name)
    body["spec"] |= {"clusterName": cluster, "nodeName": node}
    path = f"{ATTESTATION}/namespaces/team-a/attestednodes"
    assert fleet.management.admin.create(path, body)["metadata"]["name"] == name
    assert len(name) == 64
    body["metadata"] = {"name": f"{node}.{cluster}"[:253]}
    with pytest.raises(ApiError, match="SHA-256"):
        fleet.management.admin.create(path, body)


def test_name_of_a_refused_request_has_the_form_of_kubernetes(fleet: Fleet) -> None:
    """`problems` prints it as a word of the next command."""
    body = attested_node(NAME)
    refusal = {"reason": "Refused", "message": "", "time": "2026-01-02T03:04:05Z"}
    body["spec"]["lastRefusal"] = {**refusal, "request": "x --cluster a/b; touch pwned"}
    with pytest.raises(ApiError, match=r"lastRefusal\.request"):
        fleet.management.admin.create(f"{ATTESTATION}/namespaces/team-a/attestednodes", body)


READERS: dict[str, Callable[[Object], object]] = {
    "attestednodes": read_attested_node,
    "endorsementkeys": read_endorsement_key,
    "endorsementkeyrequests": read_key_request,
}


def without_patterns_of_times(schema: Object) -> Object:
    """Return a schema that leaves times to `format: date-time`."""
    inner = {k: without_patterns_of_times(v) for k, v in schema.get("properties", {}).items()}
    relaxed = {**schema, "properties": inner}
    if "items" in schema:
        relaxed["items"] = without_patterns_of_times(schema["items"])
    if schema.get("format") == "date-time":
        relaxed.pop("pattern", None)
    return relaxed


@pytest.mark.parametrize("plural", READERS)
@settings(max_examples=40)
@given(data=st.data())
def test_signer_reads_what_the_api_server_stores(
    fleet: Fleet, plural: str, data: st.DataObject
) -> None:
    """`notAfter: 0000-01-01T00:00:00Z` was stored, and kept the next owner of a TPM out."""
    spec = data.draw(values(without_patterns_of_times(schema_of(plural))))
    kind = {"attestednodes": "AttestedNode", "endorsementkeys": "EndorsementKey"}
    body = {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": kind.get(plural, "EndorsementKeyRequest"),
        "metadata": {"name": "ef" * 32},
        "spec": spec,
    }
    scope = "" if plural == "endorsementkeys" else "/namespaces/team-a"
    if plural == "attestednodes":
        cluster = ClusterKey(namespace="team-a", name=spec["clusterName"])
        body["metadata"]["name"] = attested_node_name(cluster, spec["nodeName"])
    try:
        stored = fleet.management.admin.create(f"{ATTESTATION}{scope}/{plural}?dryRun=All", body)
    except ApiError as error:
        if error.code != HTTPStatus.UNPROCESSABLE_ENTITY:
            raise
    else:
        stored["metadata"].setdefault("resourceVersion", "1")
        READERS[plural](stored)


ODD_TIMES = ("0000-01-01T00:00:00Z", "2026-01-02T03:04:05ZT", "2026-01-02T03:04:05+99:99")


@pytest.mark.parametrize("field", ["notAfter", "lastAttested"])
@pytest.mark.parametrize("text", ODD_TIMES)
def test_time_that_the_signer_cannot_read_is_refused(fleet: Fleet, field: str, text: str) -> None:
    body = attested_node(NAME)
    body["spec"][field] = text
    with pytest.raises(ApiError, match=rf"422.*spec\.{field}: Invalid value") as caught:
        fleet.management.admin.create(f"{ATTESTATION}/namespaces/team-a/attestednodes", body)
    assert "should match" in str(caught.value)


def test_registration_must_name_a_machine(fleet: Fleet) -> None:
    """A registration with only a Cluster would be stored and match no Machine."""
    admin, key = fleet.management.admin, endorsement_key("ab" * 32)
    home = {"clusterNamespace": "team-a", "clusterName": "workload"}
    problems = [
        {"providerID": "test://team-a/node-1"},
        {"machineName": "machine-1"},
        {"nodeName": NODE},
    ]
    key["spec"]["registeredFor"] = [{**home, **one} for one in problems]
    stored = admin.create(f"{ATTESTATION}/endorsementkeys", key)
    assert stored["spec"] == key["spec"]
    for wrong in ([home], [{**home, **problems[0]}, home]):
        with pytest.raises(ApiError, match="at least one of providerID, machineName, nodeName"):
            admin.patch(
                f"{ATTESTATION}/endorsementkeys/{'ab' * 32}", {"spec": {"registeredFor": wrong}}
            )


KEY_COLUMNS = ["NAME", "HELD BY", "CLUSTER", "REGISTERED FOR", "BANNED", "AGE"]
NODE_COLUMNS = ["NAMESPACE", "NAME", "NODE", "CLUSTER", "MACHINE", "ATTESTED AGO"]
NODE_COLUMNS += ["CERTIFICATE UNTIL", "REFUSED"]


@pytest.mark.parametrize(
    ("resource", "wide", "expected"),
    [
        ("endorsementkeys", [], KEY_COLUMNS),
        (
            "endorsementkeys",
            ["-o", "wide"],
            [*KEY_COLUMNS, "NAMESPACE", "BASIS", "REGISTERED MACHINE", "REGISTERED PROVIDER ID"],
        ),
        ("attestednodes", [], NODE_COLUMNS),
        (
            "attestednodes",
            ["-o", "wide"],
            [*NODE_COLUMNS, "BASIS", "ENDORSEMENT KEY", "PROVIDER ID"],
        ),
    ],
)
def test_kubectl_get_has_these_columns(
    fleet: Fleet, resource: str, wide: list[str], expected: list[str]
) -> None:
    """Digests are shown only with -o wide, except the name of an EndorsementKey."""
    admin = fleet.management.admin
    digest = sha256(f"{resource}{wide}".encode()).hexdigest()
    admin.create(f"{ATTESTATION}/endorsementkeys", endorsement_key(digest))
    node = f"columns-{digest[:8]}"
    body = attested_node(attested_node_name(ClusterKey(namespace="team-a", name="workload"), node))
    body["spec"]["nodeName"] = node
    admin.create(f"{ATTESTATION}/namespaces/team-a/attestednodes", body)
    lines = fleet.management.kubectl("get", resource, "-A", *wide).splitlines()
    assert re.split(r"\s{2,}", lines[0].strip()) == expected
