"""`learn`: a draft that accepts the node that it was learned from, and no other boot."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from signer.errors import EventLogPolicyMismatch, PcrPolicyMismatch
from signer.kinds.cluster import ClusterKey
from signer.policy.changes.learn import LearnError, draft_policy
from signer.policy.load import load_policies
from signer.policy.policy import ClusterSelector, PcrMode, Policy
from signer.verify.attestation.measured_boot import verify_event_log
from signer.verify.attestation.quoted_pcrs import verify_pcr_policy
from tests.builders.event_logs import Measured, application, extended, firmware, log_of
from tests.builders.signer_command import run

BLUE = ClusterKey(namespace="tenants", name="blue")
RED = ClusterKey(namespace="tenants", name="red")
Values = dict[str, dict[int, bytes]]
SELECTION = {"sha256": range(8)}


def values(seed: int = 0, *, bank: str = "sha256", size: int = 32) -> Values:
    return {bank: {index: bytes([seed * 16 + index]) * size for index in (0, 7)}}


def issued(node: str, held: Values, *, of: ClusterKey = BLUE, **more: object) -> str:
    """Return a line of the audit log."""
    line = {
        "time": "2026-11-21T09:30:00.000+00:00",
        "level": "info",
        "event": "verdict",
        "outcome": "issued",
        "cluster": f"{of.namespace}/{of.name}",
        "node": node,
        "pcrs": {
            bank: {str(index): value.hex() for index, value in by_index.items()}
            for bank, by_index in held.items()
        },
        **more,
    }
    return json.dumps(line) + "\n"


def learned(*lines: str, nodes: tuple[str, ...] = ("node-1",)) -> Policy:
    """Draft a policy and load it."""
    text = draft_policy(lines, nodes=nodes, cluster=None)
    [policy] = load_policies(text).accepted
    assert policy.pcrs.mode is PcrMode.ENFORCE
    return policy


def accepts(policy: Policy, pcrs: Values) -> bool:
    try:
        verify_pcr_policy(pcrs, policy.pcrs.allowed, policy.pcrs, None)
    except PcrPolicyMismatch:
        return False
    return True


def test_the_draft_accepts_the_values_of_the_node_and_no_other() -> None:
    policy = learned(issued("node-1", values(1)))
    assert policy.clusters == ClusterSelector(cluster=BLUE)
    assert policy.pcrs.selection == {"sha256": (0, 7)}
    assert accepts(policy, values(1))
    assert not accepts(policy, values(2))


def test_the_draft_accepts_the_values_of_each_node() -> None:
    lines = [issued("node-1", values(1)), issued("node-2", values(2)), issued("other", values(3))]
    policy = learned(*lines, nodes=("node-1", "node-2"))
    assert accepts(policy, values(1))
    assert accepts(policy, values(2))
    assert not accepts(policy, values(3))


def test_last_certificate_counts_in_whatever_order_the_logs_of_replicas_are() -> None:
    """`kubectl logs` prints the log of one pod after that of another."""
    earlier, later = "2026-11-21T09:30:00.000+00:00", "2026-11-21T09:30:00.001+00:00"
    policy = learned(
        issued("node-1", values(1), time=later), issued("node-1", values(2), time=earlier)
    )
    assert accepts(policy, values(1))
    assert not accepts(policy, values(2))


def test_only_the_last_certificate_of_a_node_counts() -> None:
    """An update changes the values of a node."""
    policy = learned(issued("node-1", values(1)), issued("node-1", values(2)))
    assert accepts(policy, values(2))
    assert not accepts(policy, values(1))


def test_every_bank_is_learned() -> None:
    both = values(1) | values(2, bank="sha384", size=48)
    policy = learned(issued("node-1", both))
    assert accepts(policy, both)
    assert not accepts(policy, values(1) | values(1, bank="sha384", size=48))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no JSON\n",
        "[]\n",
        "7\n",
        "{}\n",
        issued("node-1", values(2), outcome="denied"),
        issued("node-1", values(2), event="other"),
        issued("node-1", values(2), pcrs=None),
        issued("node-1", values(2), pcrs={"sha256": {"x": "00"}}),
        issued("node-1", values(2), pcrs={"sha256": []}),
        issued("node-1", values(2), pcrs={"sha256": {"0": ["00"]}}),
        issued("node-1", values(2), measuredBoot={"secureBoot": True}),
        issued("node-1", values(2), cluster=7),
        "[" * 100_000 + "\n",
        issued("node-1", values(2))[:-20],
    ],
)
def test_lines_without_an_issued_certificate_are_skipped(line: str) -> None:
    """Above all those of refused requests."""
    policy = learned(issued("node-1", values(1)), line)
    assert accepts(policy, values(1))
    assert not accepts(policy, values(2))


def problems(*lines: str, nodes: tuple[str, ...] = ("node-1",)) -> tuple[str, ...]:
    with pytest.raises(LearnError) as caught:
        draft_policy(lines, nodes=nodes, cluster=None)
    return caught.value.problems


def test_nodes_without_a_certificate_in_the_log_are_reported() -> None:
    reported = problems(issued("node-1", values()), nodes=("node-1", "node-2", "node-3"))
    assert reported == (
        "the log has no certificate of node node-2",
        "the log has no certificate of node node-3",
    )
    assert problems() == ("the log has no certificate of node node-1",)


def test_nodes_of_two_clusters_are_not_mixed() -> None:
    """Equal names in two Clusters are two nodes."""
    lines = [issued("node-1", values(1)), issued("node-1", values(2), of=RED)]
    (problem,) = problems(*lines)
    assert problem == (
        "several Clusters have nodes with these names: tenants/blue, tenants/red; name one with"
        " --cluster"
    )
    [policy] = load_policies(draft_policy(lines, nodes=["node-1"], cluster=RED)).accepted
    assert policy.clusters == ClusterSelector(cluster=RED)
    assert accepts(policy, values(2))
    assert not accepts(policy, values(1))


def test_nodes_with_other_pcrs_are_not_mixed() -> None:
    lines = [issued("node-1", values()), issued("node-2", {"sha256": {0: bytes(32)}})]
    (problem,) = problems(*lines, nodes=("node-1", "node-2"))
    assert problem == "node-2 quoted other PCRs than the first node"


def test_values_that_no_policy_can_have_are_reported() -> None:
    """Another program wrote the log, or someone changed it."""
    assert problems(issued("node-1", {"sha1": {0: bytes(20)}}))
    assert problems(issued("node-1", {"sha256": {0: bytes(20)}}))


def test_a_draft_warns_of_pcrs_that_nothing_was_measured_into() -> None:
    held = {"sha256": {0: bytes(32), 4: b"\1" * 32, 7: b"\xff" * 32}}
    text = draft_policy([issued("node-1", held)], nodes=["node-1"], cluster=None)
    assert text.startswith("# Warning: a node measured nothing into sha256:0, sha256:7: leave")
    assert "Warning" not in draft_policy(
        [issued("node-1", values(1))], nodes=["node-1"], cluster=None
    )


def test_node_names_in_the_comment_of_a_draft_are_escaped() -> None:
    name = "node\n  trust: FirstUse"
    text = draft_policy([issued(name, values())], nodes=[name], cluster=None)
    assert '"node\\n  trust: FirstUse", attested "2026-11-21T09:30:00.000+00:00"' in text
    assert load_policies(text).accepted


@dataclass(frozen=True, slots=True)
class Boot:
    """A measured boot: its event log and its PCRs."""

    events: tuple[Measured, ...]

    @property
    def pcrs(self) -> Values:
        return extended(self.events, SELECTION)

    def verify(self, policy: Policy) -> None:
        assert policy.event_log is not None
        verify_event_log(log_of(self.events), self.pcrs, policy.event_log)


def logged(boot: Boot) -> dict[str, Any]:
    """Return `measuredBoot` as the audit log has it."""
    by_place = {2: "platformKeys", 4: "signatureDatabases"}
    fields: dict[str, Any] = {
        key: [boot.events[place].digest("sha256").hex()] for place, key in by_place.items()
    }
    loaders = [event for event in boot.events if event.data.startswith(b"path of")]
    fields["bootLoaders"] = [event.digest("sha256").hex() for event in loaders]
    return {"secureBoot": boot.events[1].data.endswith(b"\1")} | fields


GOOD = Boot(tuple(firmware()))


def test_a_measured_boot_is_learned() -> None:
    policy = learned(issued("node-1", GOOD.pcrs, measuredBoot=logged(GOOD)))
    assert policy.event_log is not None
    assert policy.event_log.secure_boot
    GOOD.verify(policy)
    other = Boot((*firmware(), application(b"another kernel")))
    with pytest.raises(EventLogPolicyMismatch):
        other.verify(policy)


def test_a_rule_that_one_node_breaks_is_left_out() -> None:
    """Here: Secure Boot is off on one of the nodes."""
    off = Boot(tuple(firmware(secure_boot=False)))
    policy = learned(
        issued("node-1", GOOD.pcrs, measuredBoot=logged(GOOD)),
        issued("node-2", off.pcrs, measuredBoot=logged(off)),
        nodes=("node-1", "node-2"),
    )
    assert policy.event_log is not None
    assert not policy.event_log.secure_boot
    for boot in (GOOD, off):
        boot.verify(policy)


def test_nodes_with_and_without_a_log_are_not_mixed() -> None:
    (problem,) = problems(
        issued("node-1", GOOD.pcrs, measuredBoot=logged(GOOD)),
        issued("node-2", GOOD.pcrs),
        nodes=("node-1", "node-2"),
    )
    assert problem == "some of these nodes sent an event log and some did not"


def test_an_empty_measured_boot_makes_no_rule() -> None:
    empty: dict[str, Any] = {
        "secureBoot": None,
        "platformKeys": [],
        "signatureDatabases": [],
        "bootLoaders": [],
    }
    assert learned(issued("node-1", values(), measuredBoot=empty)).event_log is None


def test_learning_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(issued("node-1", values(1)))
    result = run(monkeypatch, "learn", "--log", str(log), "--node", "node-1")
    assert (result.status, result.stderr) == (0, "")
    [policy] = load_policies(result.stdout).accepted
    assert accepts(policy, values(1))


def test_learning_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other containers write bytes that are not UTF-8 to a piped log."""
    log = b"\xff\n" + issued("node-1", values(1), of=RED).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(log), encoding="utf-8"))
    result = run(monkeypatch, "learn", "--log", "-", "--node", "node-1", "--cluster", "tenants/red")
    assert result.status == 0
    assert "name: red" in result.stdout


def test_a_log_without_certificates_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "log").touch()
    result = run(monkeypatch, "learn", "--log", str(tmp_path / "log"), "--node", "node-1")
    assert (result.status, result.stdout) == (1, "")
    message = "node-attestation-signer: the log has no certificate of node node-1\n"
    assert result.stderr == message


def test_a_missing_log_ends_with_2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = run(monkeypatch, "learn", "--log", str(tmp_path / "log"), "--node", "node-1")
    assert result.status == 2
    assert result.stderr.endswith("/log: No such file or directory\n")
