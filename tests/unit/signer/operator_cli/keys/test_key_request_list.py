"""Which key `approve` registers, and which it refuses to."""

from datetime import UTC, datetime

import pytest

from signer.inventory.cluster_api.machine_object import read_machine
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import EndorsementKeyObject, KeyHolder, Registration
from signer.kinds.key_request import EndorsementKeyRequest, OfferedCertificate, OfferedKey
from signer.operator_cli.commands.key_changes import approve
from signer.operator_cli.errors import CommandError, InputInvalid, Rejected
from signer.operator_cli.keys.key_request_list import choose_key, key_documents
from signer.operator_cli.session import Session
from tests.builders.endorsement_keys import endorsement_key, key_holder, registration
from tests.builders.operator_snapshot import snapshot
from tests.fakes.management_api import Console, FakeManagement

CLUSTER = ClusterKey(namespace="team-a", name="c1")
ONE, TWO = "ab" * 32, "cd" * 32


def offered(name: str) -> OfferedKey:
    return OfferedKey(
        sha256=name,
        node_name="node-1",
        requester="system:bootstrap:abcdef",
        first_seen=datetime(2026, 11, 22, tzinfo=UTC),
        certificate=OfferedCertificate(status="Trusted"),
    )


def request(name: str, *keys: str, namespace: str = "team-a") -> EndorsementKeyRequest:
    return EndorsementKeyRequest(
        namespace=namespace,
        cluster_name=CLUSTER.name,
        name=name,
        uid="u",
        resource_version="1",
        machine_uid="u",
        provider_id="test://1",
        keys=tuple(map(offered, keys)),
    )


PLAIN = request("machine-1", ONE)
CONFLICT = request("machine-2", ONE, TWO)
NAMESAKE = request("machine-1", TWO, namespace="team-b")


def test_document_says_for_which_machine_a_key_is_certified() -> None:
    certificate = OfferedCertificate(status="Trusted", certified_for="gce://p/z/i")
    keys = (offered(ONE).replace(certificate=certificate), offered(TWO))
    documents = key_documents(PLAIN.replace(keys=keys))
    assert [document["certifiedFor"] for document in documents] == ["gce://p/z/i", None]


@pytest.mark.parametrize(
    ("target", "key", "expected"),
    [
        ("machine-1", None, (PLAIN, ONE)),
        ("team-a/machine-1", f"sha256:{ONE}", (PLAIN, ONE)),
        ("machine-2", TWO, (CONFLICT, TWO)),
        (f"sha256:{TWO.upper()}", None, (CONFLICT, TWO)),
    ],
)
def test_key_is_chosen_by_machine_or_digest(
    target: str, key: str | None, expected: tuple[EndorsementKeyRequest, str]
) -> None:
    chosen, offer = choose_key([PLAIN, CONFLICT], target, key)
    assert (chosen, offer.sha256) == expected


@pytest.mark.parametrize(
    ("target", "key", "error", "message"),
    [
        ("machine-2", None, Rejected, f"2 different keys were offered .*: {ONE}, {TWO}$"),
        (ONE, None, Rejected, "fits several Machines: team-a/machine-1, team-a/machine-2$"),
        ("machine-2", "ef" * 32, Rejected, "was not recorded for Machine team-a/machine-2"),
        ("ef" * 32, None, Rejected, "no request has the key"),
        ("machine-9", None, Rejected, "no unknown TPM was recorded for Machine machine-9"),
        ("machine-9", ONE, Rejected, "no unknown TPM was recorded for Machine machine-9"),
        # A thief of a token can make a key that begins as the genuine one.
        ("machine-2", TWO[:12], InputInvalid, "all 64 digits"),
        (TWO[:12], None, Rejected, "no unknown TPM was recorded"),
    ],
)
def test_unclear_choice_is_refused(
    target: str, key: str | None, error: type[CommandError], message: str
) -> None:
    with pytest.raises(error, match=message):
        choose_key([PLAIN, CONFLICT], target, key)


def test_machines_of_the_same_name_differ_by_their_namespace() -> None:
    with pytest.raises(Rejected, match="fits several Machines"):
        choose_key([PLAIN, NAMESAKE], "machine-1", None)
    assert choose_key([PLAIN, NAMESAKE], "team-b/machine-1", None)[0] == NAMESAKE


def stored(**changes: object) -> EndorsementKeyObject:
    return endorsement_key(ONE, **changes)


def holder(**changes: str) -> KeyHolder:
    return key_holder(CLUSTER, **{"provider_id": "test://1", **changes})


def registered(**changes: str) -> Registration:
    names = {"provider_id": "test://1", "machine_name": "machine-1"}
    return registration(CLUSTER, **{**names, **changes})


@pytest.mark.parametrize(
    "key", [None, stored(), stored(held_by=holder()), stored(registered_for=(registered(),))]
)
def test_key_that_no_other_machine_has_is_free(key: EndorsementKeyObject | None) -> None:
    approve._require_free(key, approve._registration(PLAIN, PLAIN.keys[0]))


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (stored(held_by=holder(provider_id="test://2")), "node node-1 of Cluster team-a/c1 holds"),
        (
            stored(registered_for=(registered(), registered(machine_name="machine-2"))),
            "is registered for machine-2 of Cluster team-a/c1",
        ),
        (
            stored(registered_for=(registered(provider_id="test://2"),)),
            "is registered for machine-1 of Cluster team-a/c1",
        ),
    ],
)
def test_key_of_another_machine_is_not_approved(key: EndorsementKeyObject, message: str) -> None:
    """An offer can name the key of any TPM."""
    with pytest.raises(Rejected, match=message):
        approve._require_free(key, approve._registration(PLAIN, PLAIN.keys[0]))


def test_key_that_another_machine_gets_while_the_operator_compares_is_not_approved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The TPM was then registered for both machines."""
    management = FakeManagement()

    def compare(*_: object, **__: object) -> None:
        other = {"clusterNamespace": "team-b", "clusterName": "c1", "machineName": "machine-7"}
        management.put_key(ONE, registeredFor=[other])

    monkeypatch.setattr(approve, "read_key_requests", lambda _: [PLAIN])
    monkeypatch.setattr(approve, "take_snapshot", lambda *_: snapshot())
    monkeypatch.setattr(Session, "confirm", compare)
    with pytest.raises(Rejected, match="is registered for machine-7 of Cluster team-b/c1"):
        approve.run(Console(management, {"target": "machine-1", "key": None}).session())
    assert len(management.key(ONE)["registeredFor"]) == 1


@pytest.mark.parametrize(("field", "value"), [("uid", "other"), ("name", "m"), ("provider", "x")])
def test_machine_that_was_replaced_since_is_not_approved(field: str, value: str) -> None:
    fields = {"uid": "u", "name": "machine-1", "provider": "test://1"}

    def check(fields: dict[str, str]) -> None:
        metadata = {"name": fields["name"], "namespace": "team-a", "uid": fields["uid"]}
        spec = {"clusterName": "c1", "providerID": fields["provider"]}
        machine = read_machine({"metadata": metadata, "spec": spec})
        approve._require_machine(PLAIN, snapshot(machines=[machine]))

    check(fields)
    with pytest.raises(Rejected, match="is gone, or another one"):
        check({**fields, field: value})
