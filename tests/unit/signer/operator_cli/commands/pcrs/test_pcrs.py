"""`pcrs`: which nodes count for a review, and that a policy is written only as it was shown."""

import io
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from signer.kinds.attested_node import MeasuredValues, Refusal
from signer.kinds.policy import POLICIES
from signer.operator_cli.commands.pcrs import learn, pcrs_accept, pcrs_review, pcrs_withdraw
from signer.operator_cli.errors import InputInvalid, Rejected
from signer.operator_cli.management.snapshot import Snapshot
from signer.operator_cli.session import Session
from tests.builders.operator_clusters import CLUSTER
from tests.builders.operator_snapshot import MACHINE, NODE, NOW, snapshot
from tests.fakes.cluster import FakeCluster
from tests.fakes.management_api import Console

OLD, NEW = "aa" * 32, "bb" * 32


def measured(value: str) -> MeasuredValues:
    return MeasuredValues(pcrs={"sha256": {"4": value}})


REFUSED = replace(
    NODE,
    measured=measured(OLD),
    last_refusal=Refusal(
        reason="PcrPolicyMismatch", message="m", time=NOW, request="r", measured=measured(NEW)
    ),
)
UPDATED = replace(NODE, measured=measured(NEW))


def read(**changes: Any) -> Snapshot:  # noqa: ANN401 - fields of a snapshot
    """Return what a command reads of a management cluster with one refused node."""
    return replace(snapshot(), **{"clusters": [CLUSTER], "nodes": [REFUSED], **changes})


def console(monkeypatch: pytest.MonkeyPatch, found: Snapshot, *values: str, **more: Any) -> Console:  # noqa: ANN401
    """Return a console on a cluster whose policy allows these values of PCR 4."""
    monkeypatch.setattr(Session, "snapshot", lambda _: found)
    management, allowed = FakeCluster(), {"sha256": {"4": list(values)}}
    pcrs = {"mode": "Warn", "selection": {"sha256": [4]}, "allowed": allowed}
    metadata = {"name": "p", "uid": "u", "generation": 1}
    body = {"metadata": metadata, "spec": {"pcrs": pcrs}, "status": {"selectedClusters": 1}}
    management.put(POLICIES.collection_path(), body)
    return Console(
        management, {"output": "json", "signer_namespace": "system", "until": None, **more}
    )


def rows(shown: Console) -> list[dict[str, Any]]:
    status = pcrs_review.run(shown.session())
    items: list[dict[str, Any]] = json.loads(shown.output)["items"]
    assert status == any(item["state"] == "NotAllowed" for item in items)
    return items


def test_refused_node_is_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    [row] = rows(console(monkeypatch, read(), OLD))
    assert (row["state"], row["nodes"], row["clusters"]) == ("NotAllowed", 1, ["team-a/c1"])
    assert row["values"] == [f"sha256:4 {NEW}"]
    assert row["nextStep"] == f"kubectl attestation pcrs accept {row['group']}"


def test_refused_node_whose_values_are_allowed_by_now_is_told_to_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`problems` named this command, which found nothing."""
    shown = console(monkeypatch, read(), OLD, NEW)
    assert rows(shown) == []
    assert shown.complaint.startswith(
        "warning: nodes that were refused for values that are allowed now: 1. Each node renews at"
    )
    assert "kubelet-authenticator-tpm renew" in shown.complaint


@pytest.mark.parametrize("digits", [0, 5])
def test_few_digits_name_no_group(monkeypatch: pytest.MonkeyPatch, digits: int) -> None:
    group = group_of(monkeypatch, read(), OLD)
    shown = console(monkeypatch, read(), OLD, group=group[:digits])
    with pytest.raises(Rejected, match="is no group to accept"):
        pcrs_accept.run(shown.session())


@pytest.mark.parametrize(
    "changes",
    [{"keys": {}}, {"machines": []}, {"clusters": []}],
    ids=["claim without a key", "no Machine", "no Cluster"],
)
def test_node_that_holds_no_claim_is_no_group(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    """A tenant may write AttestedNodes where no admission policy prevents it."""
    assert rows(console(monkeypatch, read(**changes), OLD)) == []


def test_value_of_no_node_is_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    [row] = rows(console(monkeypatch, read(nodes=[UPDATED]), OLD, NEW))
    assert (row["state"], row["values"]) == ("Unused", [f"sha256:4 {OLD}"])


def test_nothing_is_unused_while_an_object_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(nodes=[UPDATED], unreadable=["AttestedNode team-a/other: invalid"])
    assert rows(console(monkeypatch, found, OLD, NEW)) == []


def test_nodes_without_a_machine_keep_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = replace(NODE, provider_id="test://gone", measured=measured(OLD))
    [row] = rows(console(monkeypatch, read(nodes=[UPDATED, gone]), OLD, NEW))
    assert row["state"] == "Unused"


def stored(shown: Console) -> dict[str, Any]:
    pcrs: dict[str, Any] = shown.management.objects[POLICIES.object_path("p")]["spec"]["pcrs"]
    return pcrs


def allowed(shown: Console) -> list[str]:
    values: list[str] = stored(shown)["allowed"]["sha256"]["4"]
    return values


def group_of(monkeypatch: pytest.MonkeyPatch, found: Snapshot, *values: str) -> str:
    [row] = rows(console(monkeypatch, found, *values))
    return str(row["group"])


def test_group_is_accepted_after_a_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(monkeypatch, read(), OLD)
    shown = console(monkeypatch, read(), OLD, group=group[:12])
    with pytest.raises(Rejected, match="not confirmed") as refused:
        pcrs_accept.run(shown.session())
    assert refused.value.hint == f"add --yes and the whole group {group} to confirm"
    assert allowed(shown) == [OLD]
    assert f"  sha256:4 {NEW}\n" in shown.complaint
    assert "may have them: every other Cluster.\n" in shown.complaint
    shown.answer = "y\n"
    assert pcrs_accept.run(shown.session()) == 0
    assert allowed(shown) == [OLD, NEW]


def test_values_of_a_variant_are_shown_with_its_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = [replace(MACHINE, labels={"vendor": "one", "pool": "edge"})]
    shown = console(monkeypatch, read(machines=machines), NEW, group="")
    variant = {"machineSelector": {"matchLabels": {"vendor": "one", "pool": "edge"}}}
    stored(shown)["variants"] = [{**variant, "allowed": {"sha256": {"4": [OLD]}}}]
    [row] = rows(shown)
    assert row["machineLabels"] == {"vendor": "one", "pool": "edge"}
    again = Console(shown.management, {**shown.arguments, "group": row["group"], "yes": True})
    assert pcrs_accept.run(again.session()) == 0
    assert "every other Cluster, Machines with pool=edge, vendor=one.\n" in again.complaint
    assert stored(shown)["variants"][0]["allowed"] == {"sha256": {"4": [OLD, NEW]}}


def test_group_is_accepted_until_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    group, end = group_of(monkeypatch, read(), OLD), NOW + timedelta(days=1)
    shown = console(monkeypatch, read(), OLD, group=group, yes=True, until=end)
    assert pcrs_accept.run(shown.session()) == 0
    assert "may have them until 2026-11-23T00:00:00Z: " in shown.complaint
    assert stored(shown)["until"] == [{"value": NEW, "time": "2026-11-23T00:00:00Z"}]
    shown = Console(shown.management, {**shown.arguments, "until": None}, now=end)
    assert pcrs_accept.run(shown.session()) == 0
    assert "until" not in stored(shown)


def test_end_must_not_have_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(monkeypatch, read(), OLD)
    shown = console(monkeypatch, read(), OLD, group=group, yes=True, until=NOW)
    with pytest.raises(InputInvalid, match="must be today or later"):
        pcrs_accept.run(shown.session())


def test_end_must_not_end_what_is_allowed_already(monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(monkeypatch, read(), OLD)
    end = NOW + timedelta(days=1)
    shown = console(monkeypatch, read(), OLD, group=group, yes=True, until=end)
    variant = {"machineSelector": {"matchLabels": {"a": "b"}}}
    stored(shown)["variants"] = [{**variant, "allowed": {"sha256": {"4": [NEW]}}}]
    with pytest.raises(Rejected, match="where it would end, too"):
        pcrs_accept.run(shown.session())
    assert allowed(shown) == [OLD]


def test_value_is_withdrawn_after_a_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(nodes=[UPDATED])
    group = group_of(monkeypatch, found, OLD, NEW)
    shown = console(monkeypatch, found, OLD, NEW, group=group, yes=True)
    assert pcrs_withdraw.run(shown.session()) == 0
    assert allowed(shown) == [NEW]


def test_yes_needs_the_whole_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(monkeypatch, read(), OLD)
    shown = console(monkeypatch, read(), OLD, group=group[:63], yes=True)
    with pytest.raises(InputInvalid, match="all 64 digits"):
        pcrs_accept.run(shown.session())
    assert allowed(shown) == [OLD]


def test_group_that_the_nodes_no_longer_have_is_not_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = group_of(monkeypatch, read(), OLD)
    shown = console(monkeypatch, read(nodes=[UPDATED]), NEW, group=group, yes=True)
    with pytest.raises(Rejected, match="is no group to accept"):
        pcrs_accept.run(shown.session())


def test_policy_that_has_changed_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(monkeypatch, read(), OLD)
    shown = console(monkeypatch, read(), OLD, group=group, yes=True)
    real = Session.confirm

    def change_meanwhile(session: Session, text: str, *, flags: str) -> None:
        real(session, text, flags=flags)
        body = shown.management.objects[POLICIES.object_path("p")]
        shown.management.put(POLICIES.collection_path(), body)

    monkeypatch.setattr(Session, "confirm", change_meanwhile)
    with pytest.raises(Rejected, match="has changed meanwhile"):
        pcrs_accept.run(shown.session())
    assert allowed(shown) == [OLD]


def test_learn_reads_a_log_with_bytes_that_are_not_utf8() -> None:
    """A line of another container ended the command with a traceback."""
    arguments = {"log": "-", "node": ["n"], "cluster": None, "add_to": None}
    session = Console(FakeCluster(), arguments).session()
    session.stdin = io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8")
    with pytest.raises(Rejected, match="the log has no certificate of node n"):
        learn.run(session)
