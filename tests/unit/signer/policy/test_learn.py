"""Learning mode: a draft that takes the good node back, and nobody else."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from signer.errors import EventLogPolicyMismatch, PcrPolicyMismatch
from signer.model import ClusterKey
from signer.policy import PcrMode, Policy, load_policies
from signer.policy.learn import LearnError, draft_policy
from signer.verify.measured_boot import verify_event_log
from signer.verify.pcrs import verify_pcr_policy
from tests.builders.event_logs import Measured, application, extended, firmware, log_of
from tests.unit.signer.test_config import run

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
    """Draft, and load what was drafted."""
    text = draft_policy(lines, nodes=nodes, cluster=None)
    [policy] = load_policies(text).all()
    assert policy.pcr_mode is PcrMode.ENFORCE
    return policy


def takes(policy: Policy, pcrs: Values) -> bool:
    try:
        verify_pcr_policy(pcrs, policy.pcr_allowed, policy)
    except PcrPolicyMismatch:
        return False
    return True


def test_the_node_that_was_learned_is_taken_and_no_other() -> None:
    policy = learned(issued("node-1", values(1)))
    assert policy.cluster == BLUE
    assert policy.pcr_selection == {"sha256": (0, 7)}
    assert takes(policy, values(1))
    assert not takes(policy, values(2))


def test_several_nodes_are_merged_value_by_value() -> None:
    lines = [issued("node-1", values(1)), issued("node-2", values(2)), issued("other", values(3))]
    policy = learned(*lines, nodes=("node-1", "node-2"))
    assert takes(policy, values(1))
    assert takes(policy, values(2))
    assert not takes(policy, values(3))


def test_the_last_certificate_counts() -> None:
    """What a node showed before an update is no more what it shows now."""
    policy = learned(issued("node-1", values(1)), issued("node-1", values(2)))
    assert takes(policy, values(2))
    assert not takes(policy, values(1))


def test_every_bank_is_learned() -> None:
    both = values(1) | values(2, bank="sha384", size=48)
    policy = learned(issued("node-1", both))
    assert takes(policy, both)
    assert not takes(policy, values(1) | values(1, bank="sha384", size=48))


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
def test_nothing_is_learned_from_other_lines(line: str) -> None:
    """Above all not from nodes that were refused."""
    policy = learned(issued("node-1", values(1)), line)
    assert takes(policy, values(1))
    assert not takes(policy, values(2))


def problems(*lines: str, nodes: tuple[str, ...] = ("node-1",)) -> tuple[str, ...]:
    with pytest.raises(LearnError) as caught:
        draft_policy(lines, nodes=nodes, cluster=None)
    return caught.value.problems


def test_nodes_that_the_log_does_not_tell_of_are_told() -> None:
    told = problems(issued("node-1", values()), nodes=("node-1", "node-2", "node-3"))
    assert told == (
        "the log tells of no certificate for node node-2",
        "the log tells of no certificate for node node-3",
    )
    assert problems() == ("the log tells of no certificate for node node-1",)


def test_nodes_of_two_clusters_are_not_mixed() -> None:
    """Equal names in two clusters are two nodes."""
    lines = [issued("node-1", values(1)), issued("node-1", values(2), of=RED)]
    (told,) = problems(*lines)
    assert told == "nodes of these names are in several clusters: tenants/blue, tenants/red"
    [policy] = load_policies(draft_policy(lines, nodes=["node-1"], cluster=RED)).all()
    assert policy.cluster == RED
    assert takes(policy, values(2))
    assert not takes(policy, values(1))


def test_nodes_with_other_pcrs_are_not_mixed() -> None:
    lines = [issued("node-1", values()), issued("node-2", {"sha256": {0: bytes(32)}})]
    (told,) = problems(*lines, nodes=("node-1", "node-2"))
    assert told == "other PCRs were quoted of node-2 than of the first"


def test_values_that_no_policy_takes_are_told() -> None:
    """A log of something else, or one that was tampered with."""
    assert problems(issued("node-1", {"sha1": {0: bytes(20)}}))
    assert problems(issued("node-1", {"sha256": {0: bytes(20)}}))


def test_a_drafts_origin_is_in_it_and_cannot_get_out_of_its_comment() -> None:
    name = "node\n  trust: FirstUse"
    text = draft_policy([issued(name, values())], nodes=[name], cluster=None)
    assert '"node\\n  trust: FirstUse", attested "2026-11-21T09:30:00.000+00:00"' in text
    assert load_policies(text).all()


@dataclass(frozen=True, slots=True)
class Boot:
    """A measured boot, as it is quoted and logged."""

    events: tuple[Measured, ...]

    @property
    def pcrs(self) -> Values:
        return extended(self.events, SELECTION)

    def judge(self, policy: Policy) -> None:
        assert policy.event_log is not None
        verify_event_log(log_of(self.events), self.pcrs, policy.event_log)


def told_of(boot: Boot) -> dict[str, Any]:
    """Return `measuredBoot` as the audit log has it."""
    by_place = {2: "platformKeys", 4: "signatureDatabases"}
    told: dict[str, Any] = {
        key: [boot.events[place].digest("sha256").hex()] for place, key in by_place.items()
    }
    loaders = [event for event in boot.events if event.data.startswith(b"path of")]
    told["bootLoaders"] = [event.digest("sha256").hex() for event in loaders]
    return {"secureBoot": boot.events[1].data.endswith(b"\1")} | told


GOOD = Boot(tuple(firmware()))


def test_a_measured_boot_is_learned() -> None:
    policy = learned(issued("node-1", GOOD.pcrs, measuredBoot=told_of(GOOD)))
    assert policy.event_log is not None
    assert policy.event_log.secure_boot
    GOOD.judge(policy)
    other = Boot((*firmware(), application(b"another kernel")))
    with pytest.raises(EventLogPolicyMismatch):
        other.judge(policy)


def test_what_not_every_node_showed_is_no_rule() -> None:
    """Secure Boot is off on one of them, so a rule would refuse a node that was said to be good."""
    off = Boot(tuple(firmware(secure_boot=False)))
    policy = learned(
        issued("node-1", GOOD.pcrs, measuredBoot=told_of(GOOD)),
        issued("node-2", off.pcrs, measuredBoot=told_of(off)),
        nodes=("node-1", "node-2"),
    )
    assert policy.event_log is not None
    assert not policy.event_log.secure_boot
    for boot in (GOOD, off):
        boot.judge(policy)


def test_nodes_with_and_without_a_log_are_not_mixed() -> None:
    (told,) = problems(
        issued("node-1", GOOD.pcrs, measuredBoot=told_of(GOOD)),
        issued("node-2", GOOD.pcrs),
        nodes=("node-1", "node-2"),
    )
    assert told == "some of these nodes sent an event log, and some did not"


def test_a_boot_that_showed_nothing_makes_no_rule() -> None:
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
    ended = run(monkeypatch, "learn", "--log", str(log), "--node", "node-1")
    assert (ended.status, ended.complaint) == (0, "")
    [policy] = load_policies(ended.output).all()
    assert takes(policy, values(1))


def test_learning_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(issued("node-1", values(1), of=RED)))
    ended = run(monkeypatch, "learn", "--log", "-", "--node", "node-1", "--cluster", "tenants/red")
    assert ended.status == 0
    assert "name: red" in ended.output


def test_bytes_that_are_no_text_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers write what they like, and a log that is piped in has all of it."""
    log = b"\xff\n" + issued("node-1", values(1)).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(log), encoding="utf-8"))
    assert run(monkeypatch, "learn", "--log", "-", "--node", "node-1").status == 0


def test_nothing_learned_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    ended = run(monkeypatch, "learn", "--log", str(tmp_path / "log"), "--node", "node-1")
    assert (ended.status, ended.output) == (1, "")
    told = "node-attestation-signer: the log tells of no certificate for node node-1\n"
    assert ended.complaint == told


def test_a_log_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ended = run(monkeypatch, "learn", "--log", str(tmp_path / "log"), "--node", "node-1")
    assert ended.status == 2
    assert ended.complaint.endswith("/log: No such file or directory\n")


@pytest.mark.parametrize("cluster", ["", "blue", "/blue", "tenants/"])
def test_a_cluster_needs_its_namespace(monkeypatch: pytest.MonkeyPatch, cluster: str) -> None:
    ended = run(monkeypatch, "learn", "--log", "-", "--node", "node-1", "--cluster", cluster)
    assert ended.status == 2
