"""EndorsementKey and AttestedNode: encoded objects can be read, and others are refused."""

import hashlib
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from signer.inventory.custom_resources.claim_store import KubeClaimStore
from signer.kinds.attested_node import encode_attested_node, read_attested_node
from signer.kinds.endorsement_key import (
    KeyHolder,
    Release,
    TrustBasis,
    encode_endorsement_key,
    read_endorsement_key,
    replacement_metadata,
)
from tests.builders.endorsement_keys import registration
from tests.builders.kube_objects import DIGEST, HOME, PROVIDER_ID, endorsement_key
from tests.builders.stored_claims import NODE, NOW, stored
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

HOLDER = KeyHolder.of(
    HOME, node_name="node-1", provider_id=PROVIDER_ID, basis=TrustBasis.CERTIFICATE
)


def test_attested_node_round_trips() -> None:
    assert read_attested_node(stored(NODE)) == NODE
    bare = NODE.replace(
        boot=None,
        machine_name="",
        machine_uid="",
        credential_ids=(),
        policy="",
        basis=None,
        boot_state=None,
        renewal_deadline=None,
        last_refusal=None,
    )
    assert read_attested_node(stored(bare)) == bare
    absent = {"boot", "machineName", "machineUID", "policy", "basis", "bootState"}
    absent |= {"renewalDeadline", "lastRefusal"}
    assert not absent & stored(bare)["spec"].keys()


def test_new_attested_node_has_no_version_and_the_move_label() -> None:
    body = encode_attested_node(NODE, "")
    assert not {"resourceVersion", "annotations"} & body["metadata"].keys()
    assert body["metadata"]["labels"] == {
        "clusterctl.cluster.x-k8s.io/move": "",
        "cluster.x-k8s.io/cluster-name": "blue",
    }
    assert "ownerReferences" not in body["metadata"]


def test_each_write_names_the_version_that_it_replaces() -> None:
    """Otherwise an API server would not count a write that changes nothing."""
    expected = {
        "resourceVersion": "7",
        "annotations": {"attestation.cluster.x-k8s.io/written-under": "7"},
    }
    assert replacement_metadata("7") == expected
    assert stored(NODE)["metadata"].items() >= expected.items()


def test_attested_node_under_another_name_is_unreadable() -> None:
    """Two objects could claim one node name."""
    body = stored(NODE)
    body["metadata"]["name"] = hashlib.sha256(b"node-1").hexdigest()
    with pytest.raises(ValueError, match="that of its node and Cluster: delete the object"):
        read_attested_node(body)


def test_times_are_encoded_in_utc() -> None:
    abroad = timezone(timedelta(hours=2))
    node = NODE.replace(last_attested=NOW.astimezone(abroad))
    assert stored(node)["spec"]["lastAttested"] == "2026-11-21T09:30:00Z"


BOOT = {"resetCount": 1, "restartCount": 1, "firmwareVersion": "0x0000000000000001"}
TWO_LINES = "1.5. Nodes that quoted these values (99)\n"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"notAfter": "2026-11-28T09:30:00"}, "timezone.*notAfter"),
        ({"bootState": "Unheard"}, "Unheard.*bootState"),
        ({"basis": "Unheard"}, "Unheard.*basis"),
        ({"clusterName": "b" * 64}, "length <= 63.*clusterName"),
        ({"boot": {**BOOT, "firmwareVersion": "x"}}, "firmwareVersion"),
        ({"boot": {"resetCount": 1, "restartCount": 1}}, "firmwareVersion.*boot"),
        # A tenant's version added lines to what `pcrs accept` shows before it asks.
        ({"measured": {"firmware": TWO_LINES}}, "measured.firmware"),
        # `pcrs accept` ended with a traceback at the first claim with an odd number of digits.
        ({"measured": {"pcrs": {"sha256": {"4": "a"}}}}, r"matching regex.*measured\.pcrs"),
    ],
    ids=str,
)
def test_claim_that_breaks_a_limit_is_unreadable(fields: dict[str, Any], problem: str) -> None:
    body = stored(NODE)
    body["spec"] |= fields
    with pytest.raises(ValueError, match=problem):
        read_attested_node(body)


def test_endorsement_key_round_trips() -> None:
    body = encode_endorsement_key(DIGEST, "-----BEGIN PUBLIC KEY-----\n", HOLDER, NOW)
    assert body["metadata"]["labels"] == {"clusterctl.cluster.x-k8s.io/move": ""}
    assert body["spec"]["publicKey"] == "-----BEGIN PUBLIC KEY-----\n"
    assert body["spec"]["heldBy"]["since"] == "2026-11-21T09:30:00Z"
    body["metadata"]["resourceVersion"] = "1"
    read = read_endorsement_key(body)
    assert read.held_by == HOLDER.replace(since=NOW, last_claimed=NOW)


def test_registration_and_ban_are_read() -> None:
    cluster = {"clusterNamespace": "team-a", "clusterName": "blue"}
    read = read_endorsement_key(
        endorsement_key(
            registeredFor=[{**cluster, "providerID": PROVIDER_ID}, cluster],
            releasedFrom=[cluster, {**cluster, "providerID": PROVIDER_ID}],
            banned={"reason": "lost", "since": "2026-11-21T09:30:00Z"},
        )
    )
    assert read.banned_since == NOW
    assert read.released_from == (
        Release.of(HOME, provider_id=None),
        Release.of(HOME, provider_id=PROVIDER_ID),
    )
    assert read.registered_for == (
        registration(HOME, provider_id=PROVIDER_ID),
        registration(HOME),
    )


LATER = NOW + timedelta(days=3)
STRONGER = HOLDER.replace(basis=TrustBasis.REGISTERED)
OTHER_NODE = HOLDER.replace(node_name="node-2")


@pytest.mark.parametrize(
    ("holder", "since"),
    [(HOLDER, NOW), (STRONGER, NOW), (OTHER_NODE, LATER)],
    ids=["same claim", "better basis", "another node"],
)
def test_renewal_does_not_move_the_time_of_the_first_claim(
    holder: KeyHolder, since: datetime
) -> None:
    """`heldBy.since` was the time of the last renewal, so it showed nothing of the first one."""
    claims = KubeClaimStore(FakeClient(FakeCluster()))
    first = claims.create_endorsement_key(DIGEST, "-----BEGIN PUBLIC KEY-----\n", HOLDER, NOW)
    key = claims.set_key_holder(first, holder, LATER)
    assert key.held_by == holder.replace(since=since, last_claimed=LATER)
