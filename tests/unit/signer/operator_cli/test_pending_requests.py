"""Which requests `pending` shows."""

import argparse
import io
from datetime import timedelta

import pytest

from signer.model import ClusterKey
from signer.operator_cli.commands import pending
from signer.operator_cli.management import ManagementApi
from signer.operator_cli.output import time_text
from signer.operator_cli.pending_requests import PendingRequest, unanswered
from signer.operator_cli.session import Session
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
    ("waiting", "is_shown"),
    [
        (request("Challenged"), False),
        (request("Challenged", MINUTE), True),
        (request("Challenged", provider_id="test://2"), True),
        (request("EndorsementKeyNotRegistered"), True),
    ],
    ids=["answered", "newer than the last attestation", "another machine", "waits"],
)
def test_answered_offer_is_not_shown(waiting: PendingRequest, is_shown: bool) -> None:  # noqa: FBT001 - a parameter of the case
    shown = unanswered([waiting], CLUSTER, snapshot())
    assert shown == [waiting] * is_shown
    other = ClusterKey(namespace="team-b", name="c1")
    assert unanswered([waiting], other, snapshot()) == [waiting]


@pytest.mark.parametrize(
    ("machine", "lines"),
    [
        (None, ["  provider id: metal3://host-7"]),
        ("machine-1", []),
    ],
)
def test_provider_id_that_no_machine_has_is_shown(machine: str | None, lines: list[str]) -> None:
    """Operators compare it with those of the Machines; only the wide table had it."""
    document = {
        "namespace": "team-a",
        "cluster": "c1",
        "request": "csr-1",
        "kind": "offer",
        "node": "node-1",
        "machine": machine,
        "providerID": "metal3://host-7",
        "endorsementKey": None,
        "reason": "MachineNotFound",
        "message": "no Machine of this Cluster has the provider ID",
        "requester": "system:bootstrap:abcdef",
        "created": time_text(NOW),
    }
    output = io.StringIO()
    arguments = argparse.Namespace(output="table")
    session = Session(arguments, unconnected, NOW, io.StringIO(), output, io.StringIO())
    pending._show_tables(session, [document], [])
    assert output.getvalue().splitlines()[2:] == lines


def unconnected() -> ManagementApi:
    """Fail: the tables are of what was read before."""
    raise AssertionError
