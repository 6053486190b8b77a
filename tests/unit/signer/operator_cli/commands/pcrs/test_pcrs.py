"""`pcrs`: which nodes count for a review, and that a policy is written only as it was shown."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from signer.inventory.cluster_api.cluster import read_cluster
from signer.kinds.attested_node import AttestedNodeObject, MeasuredValues, Refusal
from signer.kinds.cluster import ClusterKey
from signer.kinds.policy import POLICIES
from signer.operator_cli.commands import policy_check
from signer.operator_cli.commands.pcrs import pcrs_accept, pcrs_review, pcrs_withdraw
from signer.operator_cli.errors import InputInvalid, Rejected
from signer.operator_cli.management.snapshot import Snapshot
from signer.operator_cli.session import Session
from tests.builders.attested_nodes import attested_node
from tests.builders.endorsement_keys import endorsement_key, key_holder
from tests.builders.operator_clusters import CLUSTER
from tests.builders.operator_snapshot import MACHINE, NODE, NOW, snapshot
from tests.fakes.cluster import FakeCluster
from tests.fakes.management_api import Console

OLD, NEW = "aa" * 32, "bb" * 32


def measured(value: str) -> MeasuredValues:
    return MeasuredValues(pcrs={"sha256": {"4": value}})


ARGUMENTS = {
    "output": "json",
    "until": None,
    "policy": None,
    "dry_run": "none",
}
REFUSED = NODE.replace(
    measured=measured(OLD),
    last_refusal=Refusal(
        reason="PcrPolicyMismatch", message="m", time=NOW, request="r", measured=measured(NEW)
    ),
)
UPDATED = NODE.replace(measured=measured(NEW))


def read(**changes: Any) -> Snapshot:  # noqa: ANN401 - fields of a snapshot
    """Return what a command reads of a management cluster with one refused node."""
    return replace(snapshot(), **{"clusters": [CLUSTER], "nodes": [REFUSED], **changes})


def console(monkeypatch: pytest.MonkeyPatch, found: Snapshot, *values: str, **more: Any) -> Console:  # noqa: ANN401
    """Return a console on a cluster whose policy allows these values of PCR 4."""
    monkeypatch.setattr(Session, "snapshot", lambda _: found)
    management, allowed = FakeCluster(), {"sha256": {"4": list(values)}}
    pcrs = {"mode": "Warn", "selection": {"sha256": [4]}, "allowed": allowed}
    metadata = {"name": "p", "uid": "u", "generation": 1}
    body = {"metadata": metadata, "spec": {"pcrs": pcrs}}
    management.put(POLICIES.collection_path(), body)
    return Console(management, {**ARGUMENTS, **more})


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
    shown = console(monkeypatch, read(), OLD, targets=[group[:digits]])
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
    gone = NODE.replace(provider_id="test://gone", measured=measured(OLD))
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
    shown = console(monkeypatch, read(), OLD, targets=[group[:12]])
    with pytest.raises(Rejected, match="not confirmed") as refused:
        pcrs_accept.run(shown.session())
    assert refused.value.hint == f"add --yes, and name {group}, to confirm"
    assert allowed(shown) == [OLD]
    assert f"  added: sha256:4 {NEW}\n" in shown.complaint
    assert "may have them: every other Cluster.\n" in shown.complaint
    shown.answer = "y\n"
    assert pcrs_accept.run(shown.session()) == 0
    assert allowed(shown) == [OLD, NEW]


def test_values_of_a_variant_are_shown_with_its_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = [replace(MACHINE, labels={"vendor": "one", "pool": "edge"})]
    shown = console(monkeypatch, read(machines=machines), NEW)
    variant = {"machineSelector": {"matchLabels": {"vendor": "one", "pool": "edge"}}}
    stored(shown)["variants"] = [{**variant, "allowed": {"sha256": {"4": [OLD]}}}]
    [row] = rows(shown)
    assert row["machineLabels"] == {"vendor": "one", "pool": "edge"}
    again = Console(shown.management, {**shown.arguments, "targets": [row["group"]], "yes": True})
    assert pcrs_accept.run(again.session()) == 0
    assert "every other Cluster, Machines with pool=edge, vendor=one.\n" in again.complaint
    assert stored(shown)["variants"][0]["allowed"] == {"sha256": {"4": [OLD, NEW]}}


def test_group_is_accepted_until_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    group, end = group_of(monkeypatch, read(), OLD), NOW + timedelta(days=1)
    shown = console(monkeypatch, read(), OLD, targets=[group], yes=True, until=end)
    assert pcrs_accept.run(shown.session()) == 0
    assert "may have them until 2026-11-23T00:00:00Z: " in shown.complaint
    assert stored(shown)["until"] == [{"value": NEW, "time": "2026-11-23T00:00:00Z"}]
    shown = Console(shown.management, {**shown.arguments, "until": None}, now=end)
    assert pcrs_accept.run(shown.session()) == 0
    assert "until" not in stored(shown)


def test_end_must_not_have_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(monkeypatch, read(), OLD)
    shown = console(monkeypatch, read(), OLD, targets=[group], yes=True, until=NOW)
    with pytest.raises(InputInvalid, match="must be today or later"):
        pcrs_accept.run(shown.session())


def test_end_must_not_end_what_is_allowed_already(monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(monkeypatch, read(), OLD)
    end = NOW + timedelta(days=1)
    shown = console(monkeypatch, read(), OLD, targets=[group], yes=True, until=end)
    variant = {"machineSelector": {"matchLabels": {"a": "b"}}}
    stored(shown)["variants"] = [{**variant, "allowed": {"sha256": {"4": [NEW]}}}]
    with pytest.raises(Rejected, match="where it would end, too"):
        pcrs_accept.run(shown.session())
    assert allowed(shown) == [OLD]


def test_value_is_withdrawn_after_a_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(nodes=[UPDATED])
    group = group_of(monkeypatch, found, OLD, NEW)
    shown = console(monkeypatch, found, OLD, NEW, targets=[group], yes=True)
    assert pcrs_withdraw.run(shown.session()) == 0
    assert allowed(shown) == [NEW]


def test_yes_needs_the_whole_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(monkeypatch, read(), OLD)
    shown = console(monkeypatch, read(), OLD, targets=[group[:63]], yes=True)
    with pytest.raises(InputInvalid, match="all 64 digits"):
        pcrs_accept.run(shown.session())
    assert allowed(shown) == [OLD]


def test_group_that_the_nodes_no_longer_have_is_not_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = group_of(monkeypatch, read(), OLD)
    shown = console(monkeypatch, read(nodes=[UPDATED]), NEW, targets=[group], yes=True)
    with pytest.raises(Rejected, match="is no group to accept"):
        pcrs_accept.run(shown.session())


def test_policy_that_has_changed_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(monkeypatch, read(), OLD)
    shown = console(monkeypatch, read(), OLD, targets=[group], yes=True)
    real = Session.confirm

    def change_meanwhile(session: Session, text: str, *, hint: str) -> None:
        real(session, text, hint=hint)
        body = shown.management.objects[POLICIES.object_path("p")]
        shown.management.put(POLICIES.collection_path(), body)

    monkeypatch.setattr(Session, "confirm", change_meanwhile)
    with pytest.raises(Rejected, match="has changed meanwhile"):
        pcrs_accept.run(shown.session())
    assert allowed(shown) == [OLD]


def recording(monkeypatch: pytest.MonkeyPatch, found: Snapshot, **more: Any) -> Console:  # noqa: ANN401
    """Return a console on a cluster whose policy only records PCR 4."""
    shown = console(monkeypatch, found, OLD, **more)
    pcrs = {"mode": "Record", "selection": {"sha256": [4]}}
    shown.management.objects[POLICIES.object_path("p")]["spec"]["pcrs"] = pcrs
    return shown


NAME = f"{NODE.cluster}/{NODE.node_name}"
KEY_2 = "cd" * 32


def with_second(*nodes: AttestedNodeObject, cluster: str = "c1", value: str = NEW) -> Snapshot:
    """Return what a command reads, with a second node, which attested with this value."""
    key = ClusterKey(namespace="team-a", name=cluster)
    where = {"node_name": "node-2", "provider_id": "test://2"}
    claim = attested_node(key, key=KEY_2, last_attested=NOW, **where, measured=measured(value))
    machine = replace(MACHINE, name="m2", cluster=key, provider_id="test://2")
    second = endorsement_key(KEY_2, held_by=key_holder(key, **where))
    body = {"metadata": {"name": cluster, "namespace": "team-a", "uid": "v"}, "spec": {}}
    return read(
        nodes=[*nodes, claim],
        machines=[MACHINE, machine],
        keys={**snapshot().keys, KEY_2: second},
        clusters=[CLUSTER, read_cluster(json.dumps(body).encode())],
    )


def test_recorded_boot_of_a_good_node_becomes_the_first_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = read(nodes=[UPDATED])
    shown = recording(monkeypatch, found)
    [row] = rows(shown)
    assert (row["state"], row["nodes"]) == ("Recorded", 1)
    assert pcrs_review.run(shown.session()) == 0, "no node is refused"
    named = Console(shown.management, {**ARGUMENTS, "targets": [NAME]}, answer="y\n")
    assert pcrs_accept.run(named.session()) == 0
    assert stored(shown) == {
        "mode": "Warn",
        "selection": {"sha256": [4]},
        "allowed": {"sha256": {"4": [NEW]}},
    }
    assert "  pcrs.mode: Record to Warn\n" in named.complaint
    assert named.output == "KubeletAttestationPolicy p: changed\n", "no node has to try again"


@pytest.mark.parametrize(
    ("mode", "consequence"),
    [
        ("Warn", "they get their next certificate with an alarm"),
        ("Enforce", "they get no certificate any more"),
    ],
)
def test_consequence_for_other_nodes_is_shown_before_the_change(
    monkeypatch: pytest.MonkeyPatch, mode: str, consequence: str
) -> None:
    """A policy for many nodes got the values of one, and refused all others."""
    found = with_second(REFUSED, value="cc" * 32)
    shown = console(monkeypatch, found, OLD, targets=[NAME])
    stored(shown)["mode"] = mode
    with pytest.raises(Rejected, match="not confirmed"):
        pcrs_accept.run(shown.session())
    assert f"Of its 2 nodes, 1 have other values: {consequence}.\n" in shown.complaint


def test_names_of_nodes_are_no_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node may have other values than those that the operator saw."""
    shown = console(monkeypatch, read(), OLD, targets=[NAME], yes=True)
    with pytest.raises(InputInvalid, match="each group with all 64 digits") as refused:
        pcrs_accept.run(shown.session())
    group = group_of(monkeypatch, read(), OLD)
    assert refused.value.hint == f"compare the values first; then name {group}"
    assert allowed(shown) == [OLD]


def test_several_groups_are_one_change(monkeypatch: pytest.MonkeyPatch) -> None:
    found = with_second(REFUSED, value="cc" * 32)
    groups = [row["group"] for row in rows(console(monkeypatch, found, OLD))]
    shown = console(monkeypatch, found, OLD, targets=groups, yes=True)
    assert pcrs_accept.run(shown.session()) == 0
    assert allowed(shown) == [OLD, NEW, "cc" * 32]


def new_policy(shown: Console) -> dict[str, Any]:
    body: dict[str, Any] = shown.management.objects[POLICIES.object_path("new")]
    return body


def test_new_policy_is_that_of_the_nodes_for_their_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = read(nodes=[UPDATED])
    shown = recording(monkeypatch, found, targets=[NAME], policy="new")
    shown.answer = "y\n"
    old = shown.management.objects[POLICIES.object_path("p")]["spec"]
    old["certificate"] = {"lifetime": "24h"}
    assert pcrs_accept.run(shown.session()) == 0
    assert new_policy(shown)["spec"] == {
        "clusterRef": {"namespace": "team-a", "name": "c1"},
        "certificate": {"lifetime": "24h"},
        "pcrs": {
            "mode": "Warn",
            "selection": {"sha256": [4]},
            "allowed": {"sha256": {"4": [NEW]}},
        },
    }
    assert old["pcrs"]["mode"] == "Record", "other Clusters keep their policy"
    assert "new is a new policy, for one Cluster. The rest is as in p.\n" in shown.complaint
    assert shown.output == "KubeletAttestationPolicy new: created\n"


def test_new_policy_is_refused_where_another_one_names_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two policies for one Cluster: no node of it would get a certificate."""
    shown = console(monkeypatch, read(), OLD, targets=[NAME], policy="new")
    spec = shown.management.objects[POLICIES.object_path("p")]["spec"]
    spec["clusterRef"] = {"namespace": "team-a", "name": "c1"}
    with pytest.raises(Rejected, match="p names its Clusters"):
        pcrs_accept.run(shown.session())


def test_new_policy_is_for_one_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [NAME, "team-a/c2/node-2"]
    shown = console(
        monkeypatch, with_second(REFUSED, cluster="c2"), OLD, targets=names, policy="new"
    )
    with pytest.raises(Rejected, match="these nodes are of team-a/c1, team-a/c2"):
        pcrs_accept.run(shown.session())


def put(shown: Console, name: str, **spec: Any) -> None:  # noqa: ANN401 - keys of a spec
    body = {"metadata": {"name": name, "uid": "u", "generation": 1}, "spec": spec}
    shown.management.put(POLICIES.collection_path(), body)


def test_policy_of_other_clusters_gets_what_a_node_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The firmware was tested in another Cluster before."""
    shown = console(monkeypatch, read(nodes=[UPDATED]), NEW, targets=[NAME], policy="far")
    shown.answer = "y\n"
    rules = {"mode": "Enforce", "selection": {"sha256": [4]}, "allowed": {"sha256": {"4": [OLD]}}}
    put(shown, "far", clusterSelector={"namespaces": ["team-b"]}, pcrs=rules)
    assert pcrs_accept.run(shown.session()) == 0
    far = shown.management.objects[POLICIES.object_path("far")]["spec"]["pcrs"]
    assert far["allowed"] == {"sha256": {"4": [OLD, NEW]}}
    assert "a node of these may have them: Clusters of team-b.\n" in shown.complaint
    scripted = Console(shown.management, {**shown.arguments, "yes": True})
    far["allowed"]["sha256"]["4"] = [OLD]
    with pytest.raises(InputInvalid, match="only for the policy of the nodes"):
        pcrs_accept.run(scripted.session())


@pytest.mark.parametrize("dry_run", ["none", "client"])
def test_invalid_policy_is_not_taken_for_a_new_one(
    monkeypatch: pytest.MonkeyPatch, dry_run: str
) -> None:
    """A new policy was printed, and who applied it lost the selector and the rules of the old."""
    more = {"targets": [NAME], "policy": "far", "dry_run": dry_run}
    shown = console(monkeypatch, read(nodes=[UPDATED]), OLD, **more)
    rules = {"trust": "Certified"}
    put(shown, "far", clusterSelector={"namespaces": ["team-b"]}, endorsementKey=rules)
    with pytest.raises(Rejected, match="far must be valid, or must not exist") as refused:
        pcrs_accept.run(shown.session())
    assert refused.value.hint == "run the command `policy check` for its problems"
    assert shown.complaint == shown.output == "", "nothing is asked or printed"


def test_policy_with_a_pcr_that_the_node_did_not_quote_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = console(monkeypatch, read(nodes=[UPDATED]), OLD, targets=[NAME])
    lists = {"4": [OLD], "7": [OLD]}
    stored(shown).update(selection={"sha256": [4, 7]}, allowed={"sha256": lists})
    with pytest.raises(Rejected, match=f"{NAME} must have quoted sha256:7, which"):
        pcrs_accept.run(shown.session())


@pytest.mark.parametrize(
    ("target", "values", "problem"),
    [
        ("team-a/c1/none", [OLD], "team-a/c1/none must be a node with a valid policy"),
        (NAME, [OLD, NEW], "p allows already what these nodes measured"),
    ],
)
def test_node_without_a_value_to_accept_is_named(
    monkeypatch: pytest.MonkeyPatch, target: str, values: list[str], problem: str
) -> None:
    with pytest.raises(Rejected, match=problem):
        pcrs_accept.run(console(monkeypatch, read(), *values, targets=[target]).session())


def test_changed_policy_is_printed_and_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Git, a resourceVersion would make each later apply a conflict.

    Labels and annotations stay; what the server and kubectl wrote goes.
    """
    shown = console(monkeypatch, read(), OLD, targets=[NAME], dry_run="client")
    body = shown.management.objects[POLICIES.object_path("p")]
    body["metadata"] |= {
        "labels": {"team": "one"},
        "annotations": {
            "example.com/owner": "one",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        },
        "managedFields": [{"manager": "kubectl"}],
    }
    assert pcrs_accept.run(shown.session()) == 0
    printed = yaml.safe_load(shown.output)
    assert printed == {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "KubeletAttestationPolicy",
        "metadata": {
            "name": "p",
            "labels": {"team": "one"},
            "annotations": {"example.com/owner": "one"},
        },
        "spec": {"pcrs": {**stored(shown), "allowed": {"sha256": {"4": [OLD, NEW]}}}},
    }
    assert allowed(shown) == [OLD]


def test_printed_policy_passes_its_check_in_ci(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`policy check FILE` refused labels and annotations as unknown keys."""
    shown = console(monkeypatch, read(), OLD, targets=[NAME], dry_run="client")
    body = shown.management.objects[POLICIES.object_path("p")]
    body["metadata"] |= {"labels": {"team": "one"}, "annotations": {"example.com/owner": "one"}}
    assert pcrs_accept.run(shown.session()) == 0
    file = tmp_path / "policy.yaml"
    file.write_text(shown.output, encoding="utf-8")
    checked = Console(FakeCluster(), {"file": file, "offline": True, "output": "json"})
    assert policy_check.run(checked.session()) == 0
    assert [item["policy"] for item in json.loads(checked.output)["items"]] == ["p"]


def test_pcr_into_which_nothing_was_measured_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(nodes=[NODE.replace(measured=measured("00" * 32))])
    shown = console(monkeypatch, found, OLD, targets=[NAME])
    with pytest.raises(Rejected, match="not confirmed"):
        pcrs_accept.run(shown.session())
    assert "warning: a node measured nothing into sha256:4: leave such PCRs" in shown.complaint
