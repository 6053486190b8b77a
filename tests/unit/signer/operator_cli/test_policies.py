"""Which policies the signer has: those of objects, or those of a file that only it has."""

from math import inf
from typing import Any

import pytest

from signer.inventory.replica_records.replica_leases import PolicySource
from signer.kinds.policy import POLICIES
from signer.kinds.resources import LEASES
from signer.operator_cli.errors import Rejected, ServerUnavailable
from signer.operator_cli.management import signer_state
from signer.operator_cli.policies import require_policy_objects, warn_if_unread
from tests.builders.replica_leases import lease_body, replica_lease
from tests.fakes.cluster import FakeCluster
from tests.fakes.management_api import Console

NAMESPACE = "node-attestation-system"
STATUS = {"conditions": [{"type": "Ready", "status": "False"}]}
UNREAD = "the signer has its policies in a file"


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signer_state, "_WATCH_SECONDS", 0.0)


def console(*policies: dict[str, Any], sources: tuple[PolicySource, ...] = ()) -> Console:
    """Return the console of a management cluster with policies and replicas that run."""
    management = FakeCluster()
    for number, policy in enumerate(policies):
        metadata = {"name": f"p{number}", "generation": 1}
        management.put(POLICIES.collection_path(), {"metadata": metadata, **policy})
    leases = (replica_lease(source.value.lower(), source=source) for source in sources)
    management.put(LEASES.collection_path(NAMESPACE), *map(lease_body, leases))
    return Console(management, {"signer_namespace": NAMESPACE})


@pytest.mark.parametrize(
    ("policies", "warned"),
    [
        ([{"spec": {}}], True),
        ([{"spec": {}, "status": {}}], True),
        ([{"spec": {}}, {"spec": {}, "status": STATUS}], False),
    ],
    ids=["no status", "empty status", "status of one"],
)
def test_without_a_replica_the_status_of_objects_decides(
    policies: list[dict[str, Any]],
    warned: bool,  # noqa: FBT001 - a parameter of the case
) -> None:
    """`explain` and `policy check` said that no policy is there; the signer had a file."""
    shell = console(*policies)
    warn_if_unread(shell.session())
    assert (UNREAD in shell.complaint) is warned


def test_without_replicas_and_objects_no_answer_is_given() -> None:
    """`explain` said PolicyMissing for a request that was denied with EndorsementKeyBanned."""
    with pytest.raises(Rejected, match="not known which policies the signer has") as raised:
        warn_if_unread(console().session())
    assert "give the policy file of the signer to this command" in raised.value.hint


def test_leases_that_cannot_be_read_are_not_replicas_that_do_not_run() -> None:
    shell = console()
    shell.management.intercept((403, {"message": "may not"}), "GET", "/leases", times=inf)
    with pytest.raises(ServerUnavailable, match=r"which policies the signer has: .*may not"):
        warn_if_unread(shell.session())


@pytest.mark.parametrize("source", [PolicySource.FILE, PolicySource.INVALID_FILE])
def test_request_is_not_explained_with_objects_that_no_replica_reads(source: PolicySource) -> None:
    """The status may be that of a time when the policies were objects."""
    with pytest.raises(Rejected, match=UNREAD) as raised:
        require_policy_objects(console({"spec": {}, "status": STATUS}, sources=(source,)).session())
    assert "give the policy file of the signer to this command" in raised.value.hint


@pytest.mark.parametrize(
    "sources",
    [(PolicySource.OBJECTS,), (PolicySource.OBJECTS, PolicySource.FILE)],
    ids=["objects", "a change from a file to objects"],
)
def test_objects_that_a_replica_reads_are_used_even_if_there_is_none(
    sources: tuple[PolicySource, ...],
) -> None:
    """Without any object, PolicyMissing is the right answer."""
    shell = console(sources=sources)
    require_policy_objects(shell.session())
    assert shell.complaint == ""
