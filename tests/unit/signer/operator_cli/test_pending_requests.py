"""Which requests `pending` shows."""

from datetime import timedelta

import pytest

from signer.model import ClusterKey
from signer.operator_cli.pending_requests import PendingRequest, unanswered
from tests.unit.signer.operator_cli.test_node_state import CLUSTER, NODE, NOW, snapshot

MINUTE = timedelta(minutes=1)


def request(reason: str, created: timedelta = -MINUTE, provider_id: str = "") -> PendingRequest:
    return PendingRequest(
        name="csr",
        kind="offer",
        requester="system:bootstrap:abcdef",
        created=NOW + created,
        reason=reason,
        message="",
        provider_id=provider_id or NODE.provider_id,
    )


@pytest.mark.parametrize(
    ("pending", "is_shown"),
    [
        (request("Challenged"), False),
        (request("Challenged", MINUTE), True),
        (request("Challenged", provider_id="test://2"), True),
        (request("EndorsementKeyNotRegistered"), True),
    ],
    ids=["answered", "newer than the last attestation", "another machine", "waits"],
)
def test_answered_offer_is_not_shown(pending: PendingRequest, is_shown: bool) -> None:  # noqa: FBT001 - a parameter of the case
    shown = unanswered([pending], CLUSTER, snapshot())
    assert shown == [pending] * is_shown
    other = ClusterKey(namespace="team-b", name="c1")
    assert unanswered([pending], other, snapshot()) == [pending]
