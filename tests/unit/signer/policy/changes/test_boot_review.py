"""Groups of nodes that a policy refuses, and values of a policy that no node has."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from signer.kinds.attested_node import MeasuredValues
from signer.kinds.cluster import ClusterKey
from signer.policy.changes.boot_review import (
    Group,
    NodeBoot,
    add_values,
    allows_elsewhere,
    describe_change,
    find_recorded,
    find_refused,
    find_unused,
    group_of,
    missing_pcrs,
    remove_values,
)
from signer.policy.changes.edits import ReviewedPolicy, Value
from tests.builders.policy_specs import VENDOR_KEY

OLD, NEW, OTHER = "aa" * 32, "bb" * 32, "cc" * 32
NOW = datetime(2026, 11, 23, tzinfo=UTC)
CLUSTER = ClusterKey(namespace="team-a", name="c1")


def reviewed(**changes: Any) -> ReviewedPolicy:  # noqa: ANN401 - keys of a spec
    """Return a policy that allows the old values of PCR 0 and 4."""
    allowed = {"sha256": {"0": [OLD.upper()], "4": [OLD]}}
    pcrs = {"mode": "Enforce", "selection": {"sha256": [0, 4]}, "allowed": allowed}
    spec = {"pcrs": pcrs, **changes}
    return ReviewedPolicy.of("production", spec)


def measured(pcr_0: str = OLD, pcr_4: str = OLD, **fields: Any) -> MeasuredValues:  # noqa: ANN401
    return MeasuredValues(pcrs={"sha256": {"0": pcr_0, "4": pcr_4}}, **fields)


def node(
    refused: MeasuredValues | None = None,
    *,
    attested: MeasuredValues | None = None,
    labels: dict[str, str] | None = None,
) -> NodeBoot:
    return NodeBoot(
        cluster=CLUSTER,
        name="node-1",
        machine_labels=labels or {},
        attested=attested or measured(),
        refused=refused,
    )


def refused_in(policy: ReviewedPolicy, nodes: list[NodeBoot]) -> list[Group]:
    return find_refused(policy, nodes, NOW)


def test_nodes_with_the_same_refused_values_are_one_group() -> None:
    updated = measured(NEW)
    nodes = [node(), node(updated), node(measured(NEW, OTHER)), node(updated)]
    large, small = refused_in(reviewed(), nodes)
    assert large.values == (Value(("sha256", "0"), NEW),)
    assert len(large.nodes) == 2
    assert small.values == (Value(("sha256", "0"), NEW), Value(("sha256", "4"), OTHER))
    assert large.digest != small.digest
    [alone] = refused_in(reviewed(), [node(updated)])
    assert alone.digest == large.digest, "it does not depend on the nodes"


def test_warned_node_is_in_the_group_of_the_refused_ones() -> None:
    nodes = [node(measured(NEW)), node(attested=measured(NEW))]
    [group] = refused_in(reviewed(), nodes)
    assert len(group.nodes) == 2


def test_values_that_count_for_nothing_are_no_group() -> None:
    """The policy may have changed since the node was refused."""
    others = MeasuredValues(pcrs={"sha384": {"0": "bb" * 48}, "sha256": {"7": NEW}})
    assert refused_in(reviewed(), [node(others), node(measured())]) == []
    assert refused_in(recording(), [node(measured(NEW))]) == []


def recording(**changes: Any) -> ReviewedPolicy:  # noqa: ANN401 - keys of a spec
    pcrs = {"mode": "Record", "selection": {"sha256": [0, 4]}}
    return reviewed(**{"pcrs": pcrs, **changes})


def test_first_values_of_a_policy_that_records_are_those_of_attested_boots() -> None:
    """What the event log refused is no such boot."""
    nodes = [node(attested=measured(NEW)), node(), node(measured(OTHER)), node(measured(OTHER))]
    before = recording()
    large, small = find_recorded(before, nodes)
    assert (len(large.nodes), len(small.nodes)) == (3, 1)
    assert small.values == (Value(("sha256", "0"), NEW), Value(("sha256", "4"), OLD))
    spec = add_values(add_values(before.spec, small), large)
    assert spec["pcrs"] == {
        "mode": "Warn",
        "selection": {"sha256": [0, 4]},
        "allowed": {"sha256": {"0": [OLD, NEW], "4": [OLD]}},
    }
    after = ReviewedPolicy.of("production", spec)
    assert find_recorded(after, nodes) == []
    assert refused_in(after, nodes[:2]) == []


def test_default_selection_is_recorded_without_the_pcr_that_names_the_machine() -> None:
    values = {str(index): OLD for index in (0, 1, 2, 3, 4, 5, 7)}
    named = {"certificateAuthorities": ["/roots"]}
    boot = node(attested=MeasuredValues(pcrs={"sha256": values}))
    [found] = find_recorded(recording(pcrs={}, attestationKey=named), [boot])
    assert [value.where[1] for value in found.values] == list(values)
    assert find_recorded(recording(pcrs={}), [boot]) == [], "PCR 6 is not known"


def test_lists_of_the_event_log_begin_only_where_the_policy_has_rules_on_it() -> None:
    boot = node(attested=measured(boot_loaders=(NEW, OLD), platform_keys=(OTHER,)))
    [plain] = find_recorded(recording(), [boot])
    assert [value.where for value in plain.values] == [("sha256", "0"), ("sha256", "4")]
    before = recording(eventLog={"bootLoaders": [OLD]})
    [found] = find_recorded(before, [boot])
    assert add_values(before.spec, found)["eventLog"] == {
        "bootLoaders": [OLD, NEW],
        "platformKeys": [OTHER],
    }


def test_each_selected_bank_gets_its_first_lists() -> None:
    before = recording(pcrs={"selection": {"sha256": [4], "sha384": [4, 7]}})
    sha384 = {"4": "dd" * 48, "7": "ee" * 48}
    boot = node(attested=MeasuredValues(pcrs={"sha256": {"4": OLD}, "sha384": sha384}))
    [found] = find_recorded(before, [boot])
    after = ReviewedPolicy.of("production", add_values(before.spec, found))
    assert after.lists(None) == {
        ("sha256", "4"): {OLD},
        ("sha384", "4"): {sha384["4"]},
        ("sha384", "7"): {sha384["7"]},
    }


def test_boot_without_a_selected_pcr_is_not_known() -> None:
    before = recording(pcrs={"mode": "Record", "selection": {"sha256": [0, 4, 7], "sha384": [0]}})
    assert find_recorded(before, [node()]) == []
    assert missing_pcrs(before, measured()) == ["sha256:7", "sha384:0"]
    assert missing_pcrs(reviewed(), None) == ["sha256:0", "sha256:4"]


def test_pcr_that_the_vendor_signs_is_not_missing() -> None:
    rule = {"keys": [VENDOR_KEY], "pcrs": {"sha256": [11]}}
    policy = reviewed(pcrs={**reviewed().spec["pcrs"], "signedBy": [rule]})
    assert missing_pcrs(policy, measured()) == []


def test_number_of_a_pcr_that_is_none_stops_no_review() -> None:
    """The schema of AttestedNodes accepts it, and who wrote one stopped the review of all nodes."""
    odd = MeasuredValues(pcrs={"sha256": {"x": NEW, "10": NEW, "4": NEW}})
    [group] = refused_in(reviewed(), [node(odd)])
    assert group.values == (Value(("sha256", "4"), NEW),)


def test_accepted_group_is_allowed_and_the_policy_that_was_read_is_unchanged() -> None:
    before = reviewed()
    [group] = refused_in(before, [node(measured(NEW))])
    spec = add_values(before.spec, group)
    assert spec["pcrs"]["allowed"]["sha256"] == {"0": [OLD, NEW], "4": [OLD]}
    assert spec["pcrs"]["mode"] == "Enforce"
    assert before.spec == reviewed().spec
    assert refused_in(reviewed(**spec), [node(measured(NEW))]) == []


def test_values_of_a_variant_are_added_to_that_variant() -> None:
    variants = [
        {
            "machineSelector": {"matchLabels": {"vendor": vendor}},
            "allowed": {"sha256": {"0": [OLD], "4": [OLD]}},
        }
        for vendor in ("one", "two")
    ]
    policy = reviewed(pcrs={**reviewed().spec["pcrs"], "variants": variants})
    nodes = [node(measured(NEW), labels={"vendor": "two"}), node(measured(NEW))]
    in_policy, in_variant = sorted(refused_in(policy, nodes), key=lambda g: g.variant or -1)
    assert (in_policy.variant, in_variant.variant) == (None, 1)
    assert in_policy.digest != in_variant.digest
    pcrs = add_values(policy.spec, in_variant)["pcrs"]
    assert pcrs["variants"][1]["allowed"]["sha256"]["0"] == [OLD, NEW]
    assert pcrs["variants"][0] == variants[0]
    assert pcrs["allowed"] == policy.spec["pcrs"]["allowed"]


def test_lists_of_the_event_log_are_reviewed_where_the_policy_has_them() -> None:
    policy = reviewed(eventLog={"bootLoaders": [OLD]})
    update = measured(OLD, NEW, boot_loaders=(OLD, OTHER), platform_keys=(NEW,))
    [group] = refused_in(policy, [node(update)])
    assert group.values == (Value(("sha256", "4"), NEW), Value(("bootLoaders",), OTHER))
    assert add_values(policy.spec, group)["eventLog"] == {"bootLoaders": [OLD, OTHER]}


def both() -> ReviewedPolicy:
    return reviewed(**add_values(reviewed().spec, group(("sha256", "0"), NEW)))


def group(where: tuple[str, ...], digest: str, *nodes: NodeBoot) -> Group:
    return group_of(reviewed(), None, (Value(where, digest),), nodes)


def test_value_is_unused_when_no_node_has_it_any_more() -> None:
    updated = node(attested=measured(NEW))
    [unused] = find_unused(both(), [updated, updated])
    assert unused == group(("sha256", "0"), OLD)
    spec = remove_values(both().spec, unused)
    assert spec["pcrs"]["allowed"]["sha256"] == {"0": [NEW], "4": [OLD]}


@pytest.mark.parametrize(
    "other",
    [
        node(),
        node(measured(NEW), attested=measured()),
        node(measured(OLD, NEW), attested=measured(NEW)),
        replace(node(), attested=None),
        node(attested=MeasuredValues(pcrs={"sha256": {"4": OLD}})),
    ],
    ids=["attested", "attested before", "refused", "unknown", "another selection"],
)
def test_value_that_a_node_has_or_may_have_is_not_unused(other: NodeBoot) -> None:
    assert find_unused(both(), [node(attested=measured(NEW)), other]) == []


def test_last_value_of_a_list_is_not_unused() -> None:
    assert find_unused(reviewed(), [node(attested=measured(NEW))]) == []
    assert find_unused(both(), [node(attested=measured(OTHER))]) == []
    assert find_unused(both(), []) == [], "nothing is known without nodes"


FORGED = '2.1". Nodes that quoted (9): prod/a'
"""The words that follow in the question of `pcrs accept`."""


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ({"firmware": "1.4"}, {"firmware": "1.5"}, 'PCR 0, firmware "1.4" to "1.5"'),
        ({}, {"firmware": "1.5"}, 'PCR 0, firmware "1.5"'),
        ({}, {"firmware": FORGED}, r'PCR 0, firmware "2.1\". Nodes that quoted (9): prod/a"'),
        ({}, {}, "PCR 0 (firmware)"),
        (
            {"secure_boot": True, "boot_loaders": (OLD,)},
            {"secure_boot": False, "boot_loaders": (NEW,)},
            "PCR 0, Secure Boot on to off, another boot loader",
        ),
        ({"platform_keys": (OLD,)}, {"platform_keys": (OLD,)}, "PCR 0 (firmware)"),
    ],
)
def test_change_is_what_the_event_logs_show(
    before: dict[str, Any], after: dict[str, Any], change: str
) -> None:
    updated = node(measured(NEW, **after), attested=measured(**before))
    assert describe_change(group(("sha256", "0"), NEW, updated)) == change


def accepted_until(end: datetime) -> ReviewedPolicy:
    update = group(("sha256", "0"), NEW)
    return reviewed(**add_values(reviewed().spec, update, end))


def test_value_with_an_end_is_refused_again_after_it() -> None:
    policy, nodes = accepted_until(NOW + timedelta(seconds=1)), [node(measured(NEW))]
    assert policy.spec["pcrs"]["until"] == [{"value": NEW, "time": "2026-11-23T00:00:01Z"}]
    assert find_refused(policy, nodes, NOW) == []
    [again] = find_refused(policy, nodes, NOW + timedelta(seconds=1))
    assert again.values == (Value(("sha256", "0"), NEW),)
    assert not allows_elsewhere(policy, again, NOW + timedelta(seconds=1))
    assert "until" not in add_values(policy.spec, again)["pcrs"]


def test_end_of_a_value_is_removed_with_its_last_entry() -> None:
    policy = accepted_until(NOW)
    [unused] = find_unused(policy, [node(attested=measured())])
    assert unused.values == (Value(("sha256", "0"), NEW),)
    assert remove_values(policy.spec, unused) == {
        "pcrs": {**reviewed().spec["pcrs"], "allowed": {"sha256": {"0": [OLD], "4": [OLD]}}}
    }


def test_value_that_another_list_has_would_end_there_too() -> None:
    policy = both()
    assert allows_elsewhere(policy, group(("sha256", "4"), NEW), NOW)
    assert not allows_elsewhere(policy, group(("sha256", "4"), OTHER), NOW)
