"""`verify`: what is told of a stored request, and that it is the signer's own verdict."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

import signer.verify
from common.binding import sha256
from common.names import PEM_REQUEST
from common.pem import encode_block
from signer.explain.command import Files, explain
from signer.explain.descriptions import CHECK_TITLES
from signer.explain.manifests import FilesInvalid
from signer.explain.replay import ANSWER, BUILTIN, CLAIM, OFFER, SERVING
from signer.model import ChallengeKeys, Csr, Node
from signer.policy import PcrMode, Policy
from signer.verify.recognize import CsrKind
from tests.attacks.runner import reconcile_once
from tests.builders import stored
from tests.builders.scenario import ABROAD, NODE, NOW, Scenario, key_name, machine
from tests.unit.signer.test_config import run

STRANGER = sha256(b"another signer's")
POLICY = {
    "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
    "kind": "KubeletAttestationPolicy",
    "metadata": {"name": "default"},
    "spec": {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """The files of one scenario."""

    path: Path
    scenario: Scenario

    def files(self, csrs: Sequence[Csr], **changes: Any) -> Files:  # noqa: ANN401 - fields of Files
        """Write everything, and name it."""
        policy = self.path / "policy.yaml"
        policy.write_text(yaml.safe_dump(POLICY | {"spec": changes.pop("spec", {})}))
        master = self.path / "master.json"
        master.write_text(json.dumps(stored.secret_body(self.scenario.masters)))
        files = Files(
            requests=stored.write_list(self.path / "csrs.json", map(stored.csr_body, csrs)),
            policy=policy,
            records=[
                stored.write_list(self.path / "records.json", stored.records_of(self.scenario))
            ],
            challenge_key_secret=master,
            cluster=None,
        )
        return replace(files, **changes)

    def told(self, *csrs: Csr, **changes: Any) -> tuple[str, int]:  # noqa: ANN401 - as above
        """Explain in words; names that are new in each run are written as what they name."""
        text, status = explain(self.files(csrs, **changes), now=NOW, json=False)
        world = self.scenario
        text = text.replace(key_name(world.ek), "<EK>").replace(
            world.ak.public.name().hex(), "<AK>"
        )
        return text, status


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Return the files of a scenario in which everything is in order."""
    return Folder(path=tmp_path, scenario=Scenario())


HEAD = """\
records: no AttestedNode, 1 Cluster, no ClusterRoleBinding, no EndorsementKey, 1 Machine, no Node,\
 no Service

"""
ENTRY = """\
  R1  ok            the signer name is ours: cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm
  R0  ok            the Cluster has opted in, and nothing leads around the signer
  P1  ok            size limits
  P2  ok            PEM blocks
  P3  ok            request: own signature, key: secp256r1
  P4  ok            subject: node-1.example
  P5  ok            extensions: provider ID metal://rack-1/slot-1
"""
REQUESTER = """\
  R2  ok            usages
  R3  ok            requester: a bootstrapper, system:bootstrap:abcdef
"""
KEYS = """\
  A1  ok            attestation key: secp256r1 sha256, Name <AK>
"""
MACHINE = """\
  M5  ok            a node asks for itself
  M1  ok            Machine of the provider ID: machine-1
  M2  ok            Machine and Cluster are ready for a first join
  M3  ok            node name: node-1.example
  M4  ok            Node of that name
  M6  ok            signs against the Machine: none
"""
TEMPLATE = """\
  E1  ok            endorsement key: template and strength: secp256r1, EndorsementKey <EK>
"""
TRUST = """\
  E2  ok            endorsement key: trust: Record
  E3  ok            endorsement key: not banned, not held
"""
QUOTE = """\
  Q1  ok            quote: form and signature: 5 resets, 6 restarts, firmware 0x7
  Q2  ok            quote: binding
  Q3  ok            PCRs: selection and digest: sha256:0,1,2,3,4,5,6,7
"""
CLAIMED = """\
  K1  ok            claim of the key
  K2  ok            claim of the name: node-1.example
  K3  ok            the key once more
"""
OFFERED = "  P6  ok            attestation data: offer\n"
ANSWERED = "  P6  ok            attestation data: answer\n"
CHALLENGE = (
    "  C1  ok            age and master of the challenge:"
    " issued 2026-11-21T09:30:00Z under key 173c4a476342dafd\n"
)
OF = "of node-1.example to cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm\n"


def test_a_good_offer_is_told_step_by_step(folder: Folder) -> None:
    text, status = folder.told(folder.scenario.offer_csr())
    steps = ENTRY + OFFERED + REQUESTER + KEYS + MACHINE + TEMPLATE + TRUST
    assert text == f"{HEAD}kubelet-tpm-a: offer {OF}{steps}  would be challenged\n"
    assert status == 0


def test_a_good_answer_is_told_step_by_step(folder: Folder) -> None:
    text, status = folder.told(folder.scenario.answer_csr())
    measured = "  Q4  ok            PCRs: policy; measured boot\n"
    steps = ENTRY + ANSWERED + REQUESTER + CHALLENGE + KEYS + TEMPLATE + QUOTE + measured
    steps += MACHINE + TRUST + CLAIMED
    assert text == f"{HEAD}kubelet-tpm-b: answer {OF}{steps}  would be certified\n"
    assert status == 0


def test_a_refusal_tells_what_was_proved_before_and_why_it_ends(folder: Folder) -> None:
    folder.scenario.change_machine(addresses=machine().addresses[1:])
    folder.scenario.policy = replace(folder.scenario.policy, machine_name_is_node_name=True)
    spec = {"nodeNames": {"machineName": True}}
    text, status = folder.told(folder.scenario.offer_csr(), spec=spec)
    steps = ENTRY + OFFERED + REQUESTER + KEYS + "".join(MACHINE.splitlines(keepends=True)[:3])
    steps = steps.replace("ID: machine-1", "ID").replace("itself: ", "itself")
    steps += """\
  M3  denied        node name: NodeNameMismatch: the node name is not this Machine's
  M4  not reached   Node of that name
  M6  not reached   signs against the Machine
  E1  not reached   endorsement key: template and strength
  E2  not reached   endorsement key: trust
  E3  not reached   endorsement key: not banned, not held
"""
    ending = "  would be denied: NodeNameMismatch\n"
    assert text == f"{HEAD}kubelet-tpm-a: offer {OF}{steps}{ending}"
    assert status == 1


def test_the_operator_is_told_what_the_node_is_not(folder: Folder) -> None:
    """Which PCR differs, and from what."""
    allowed = {"sha256": {"7": ["ab" * 32]}}
    spec = {"pcrs": {"selection": {"sha256": [7]}, "mode": "Enforce", "allowed": allowed}}
    world = Scenario(
        policy=Policy(
            name="test",
            pcr_selection={"sha256": (7,)},
            pcr_mode=PcrMode.ENFORCE,
            pcr_allowed={"sha256": {7: frozenset({bytes.fromhex("ab" * 32)})}},
        )
    )
    text, status = replace(folder, scenario=world).told(world.answer_csr(), spec=spec)
    quoted = world.pcrs["sha256"][7].hex()
    assert "  Q3  ok            PCRs: selection and digest: sha256:7\n" in text
    assert "Q4  denied        PCRs: policy; measured boot: PcrPolicyMismatch: a PCR holds" in text
    assert f"for the operator: sha256:7 is {quoted}, allowed {'ab' * 32}\n" in text
    assert status == 1


def test_without_the_master_key_no_answer_is_decided(folder: Folder) -> None:
    """What it repeats of its offer is judged; the rest is neither yes nor no."""
    text, status = folder.told(folder.scenario.answer_csr(), challenge_key_secret=None)
    assert MACHINE + TEMPLATE + TRUST in text
    undecided = re.findall(r"^  (\w\d)  cannot decide", text, re.MULTILINE)
    assert undecided == ["C1", "Q1", "Q2", "Q3", "Q4", "K1", "K2", "K3"]
    assert text.endswith("  cannot be decided: it takes the master key (--master)\n")
    assert status == 3


def test_without_the_master_key_a_bad_answer_is_not_denied_either(folder: Folder) -> None:
    folder.scenario.change_machine(deleting=True)
    text, status = folder.told(folder.scenario.answer_csr(), challenge_key_secret=None)
    assert "  M2  denied        Machine and Cluster are ready for a first join: Machine" in text
    assert text.endswith("  cannot be decided: MachineDeleting\n")
    assert status == 3


@dataclass(frozen=True, slots=True)
class Told:
    """A request, what the signer makes of it, and what is said last."""

    request: Callable[[Scenario], Csr]
    check: str
    ending: str
    status: int


def _no_machine(world: Scenario) -> Csr:
    world.store.machines[world.cluster.key] = []
    return world.offer_csr()


def _not_opted_in(world: Scenario) -> Csr:
    world.change_cluster(client_signers=frozenset())
    return world.offer_csr()


def _wrong_usages(world: Scenario) -> Csr:
    return world.offer_csr(usages=("client auth",))


def _no_pem(world: Scenario) -> Csr:
    csr = world.offer_csr()
    return replace(csr, request=b"\n" + csr.request)


def _expired(world: Scenario) -> Csr:
    world.now = NOW - timedelta(minutes=16)
    csr = world.answer_csr()
    world.now = NOW
    return csr


def _copied(world: Scenario) -> Csr:
    return world.answer_csr(name="kubelet-tpm-c")


def _other_node(world: Scenario) -> Csr:
    world.records.nodes = [Node(name=NODE, provider_id="metal://other")]
    return world.answer_csr()


def _banned(world: Scenario) -> Csr:
    world.put_claim(banned=True)
    return world.answer_csr()


def _held(world: Scenario) -> Csr:
    """Another Machine of the same Cluster holds the key."""
    machines = world.store.machines[world.cluster.key]
    machines.append(machine(name="machine-2", uid="m2", provider_id="metal://2"))
    world.put_claim(node_name="node-2", provider_id="metal://2")
    return world.answer_csr()


def _other_signer(world: Scenario) -> Csr:
    return world.offer_csr(signer_name="kubernetes.io/kube-apiserver-client")


VERDICTS = {
    "no Machine": Told(_no_machine, "M1", "would wait: MachineNotFound", 3),
    "not opted in": Told(_not_opted_in, "R0", "would be left alone: NotOptedIn", 3),
    "another signer": Told(_other_signer, "R1", "would be left alone: NotOurSigner", 3),
    "wrong usages": Told(_wrong_usages, "R2", "would be denied: UsagesNotAllowed", 1),
    "no PEM": Told(_no_pem, "P2", "would be denied: PemNotCanonical", 1),
    "expired": Told(_expired, "C1", "would be denied: AnswerExpired", 1),
    "copied": Told(_copied, "Q2", "would be denied: AnswerNotBound", 1),
    "another Machine's Node": Told(_other_node, "M4", "would wait: NodeOfAnotherMachine", 3),
    "banned": Told(_banned, "E3", "would be denied: EndorsementKeyBanned", 1),
    "held": Told(_held, "K1", "would wait: EndorsementKeyRecordConflict", 3),
}


@pytest.mark.parametrize("case", VERDICTS.values(), ids=list(VERDICTS))
def test_the_verdict_is_the_signers_own(folder: Folder, case: Told) -> None:
    """The same reason at the same check as when the signer looks at it."""
    world = folder.scenario
    csr = case.request(world)
    text, status = folder.told(csr)
    traces = reconcile_once(world, csr)
    assert text.splitlines()[-1] == f"  {case.ending}"
    assert case.ending.endswith(f": {traces.reason}")
    assert traces.check == case.check
    last = [line for line in text.splitlines() if f"{traces.reason}: " in line]
    assert [line.split()[0] for line in last] == [case.check]
    assert status == case.status


def test_a_key_of_another_signer_is_no_denial(folder: Folder) -> None:
    csr = folder.scenario.answer_csr()
    folder.scenario.masters = ChallengeKeys(current=STRANGER, previous=None)
    text, status = folder.told(csr)
    assert "  C1  cannot decide age and master of the challenge: ChallengeKeyUnknown" in text
    assert (text.splitlines()[-1], status) == ("  cannot be decided: ChallengeKeyUnknown", 3)


def test_a_claim_of_a_cluster_that_is_in_no_file_is_not_decided(folder: Folder) -> None:
    """Gone for the files is not gone."""
    csr = folder.scenario.answer_csr()
    folder.scenario.put_claim(cluster=ABROAD)
    text, status = folder.told(csr)
    assert "  K1  cannot decide claim of the key: ApiServerUnavailable: another Cluster" in text
    assert status == 3


def test_a_cluster_that_is_in_no_file_is_not_decided(folder: Folder) -> None:
    text, status = folder.told(folder.scenario.offer_csr(), cluster=ABROAD)
    assert text.splitlines()[3].startswith("  R0  cannot decide the Cluster has opted in, ")
    assert (text.splitlines()[-1], status) == ("  cannot be decided: ApiServerUnavailable", 3)


def test_a_cluster_without_a_policy_waits(folder: Folder) -> None:
    """Nothing is claimed to have passed before."""
    spec = {"clusterRef": {"namespace": ABROAD.namespace, "name": ABROAD.name}}
    text, status = folder.told(folder.scenario.offer_csr(), spec=spec)
    assert text.splitlines()[3].startswith("  R0  waits         the Cluster has opted in, ")
    assert (text.splitlines()[-1], status) == ("  would wait: PolicyMissing", 3)


def test_names_of_the_control_plane_are_told_before_any_others(folder: Folder) -> None:
    """Whether a name is the Machine's is then not known yet, and not claimed."""
    folder.scenario.for_serving("api.example")
    text, status = folder.told(folder.scenario.answer_csr())
    assert "  S1  ok            serving: form of the names\n" in text
    assert "  S3  denied        serving: names of others: AddressOfControlPlane: " in text
    assert "  S2  not reached   serving: names of the Machine\n" in text
    assert status == 1


def test_a_node_without_a_claim_is_not_said_to_have_a_machine(folder: Folder) -> None:
    world = folder.scenario
    world.for_serving(NODE)
    world.kind = CsrKind.BUILTIN_SERVING
    text, status = folder.told(world.csr(encode_block(PEM_REQUEST, world.pkcs10())))
    assert "  M3  waits         node name: NodeNameUnknown: no attested Machine" in text
    assert "  M1  not reached   Machine of the provider ID\n" in text
    assert status == 3


def test_a_request_that_was_decided_is_judged_as_if_it_were_not(folder: Folder) -> None:
    csr = replace(
        folder.scenario.offer_csr(),
        conditions={"Denied": stored.denied("MachineDeleting", "no")},
    )
    text, status = folder.told(csr)
    assert "  decided already: Denied, MachineDeleting: no\n" in text
    assert status == 0


def checks(folder: Folder, csr: Csr, **changes: Any) -> list[str]:  # noqa: ANN401 - of Files
    """Return the checks that are told."""
    report, status = explain(folder.files([csr], **changes), now=NOW, json=True)
    assert status == 0
    return [step["check"] for step in json.loads(report)["requests"][0]["checks"]]


def test_every_step_of_an_order_is_told(folder: Folder) -> None:
    """What is listed as the order is the order in which the signer checks."""
    world = folder.scenario
    assert checks(folder, world.offer_csr()) == " ".join(OFFER).split()
    assert checks(folder, world.answer_csr()) == " ".join((*ANSWER, *CLAIM)).split()
    world.put_claim()
    world.for_serving("node-1.example", "192.0.2.11")
    world.request_der = b""
    assert checks(folder, world.answer_csr()) == " ".join((*SERVING, *CLAIM)).split()


def test_requests_to_the_builtin_signer_are_explained(folder: Folder) -> None:
    world = folder.scenario
    world.put_claim()
    world.for_serving(NODE, "192.0.2.11")
    world.kind = CsrKind.BUILTIN_SERVING
    csr = world.csr(encode_block(PEM_REQUEST, world.pkcs10()))
    assert checks(folder, csr) == " ".join(BUILTIN).split()
    text, _ = folder.told(csr)
    assert text.endswith("  would be approved\n")
    assert "serving: form of the names: node-1.example, 192.0.2.11\n" in text


def test_titles_are_those_of_the_table() -> None:
    rows = re.findall(r"^\| ([A-Z]\d) \| ([^|]+) \|", signer.verify.__doc__ or "", re.MULTILINE)
    assert set(CHECK_TITLES) <= {number for number, _ in rows}
    for number, what in rows:
        if number != "I1":
            assert CHECK_TITLES[number] == what.split(", and nothing is decided")[0]


def test_programs_are_told_the_same(folder: Folder) -> None:
    folder.scenario.change_machine(deleting=True)
    report, status = explain(folder.files([folder.scenario.offer_csr()]), now=NOW, json=True)
    document = json.loads(report)
    assert document["status"] == status == 1
    assert document["records"]["Machine"] == 1
    assert document["records"]["Node"] == 0
    [request] = document["requests"]
    told = {key: request[key] for key in ("name", "kind", "nodeName", "verdict", "reason")}
    assert told == {
        "name": "kubelet-tpm-a",
        "kind": "offer",
        "nodeName": NODE,
        "verdict": "would be denied",
        "reason": "MachineDeleting",
    }
    by_check = {step["check"]: step for step in request["checks"]}
    assert by_check["P4"]["proved"] == NODE
    assert by_check["M2"]["reason"] == "MachineDeleting"
    assert by_check["E3"]["outcome"] == "not reached"


@pytest.mark.parametrize(
    ("which", "status"),
    [("good", 0), ("good bad", 1), ("good waits", 3), ("bad waits", 1), ("good other", 0)],
)
def test_of_several_requests_the_worst_counts(folder: Folder, which: str, status: int) -> None:
    """Those of other signers count only where there is nothing else."""
    world = folder.scenario
    csrs = {
        "good": world.offer_csr(),
        "bad": world.offer_csr(usages=()),
        "waits": Scenario(provider_id="metal://none").offer_csr(),
        "other": _other_signer(world),
    }
    assert folder.told(*(csrs[name] for name in which.split()))[1] == status


def test_yaml_is_read_as_json_is(folder: Folder) -> None:
    world = folder.scenario
    files = folder.files([world.offer_csr()])
    in_json = explain(files, now=NOW, json=False)
    for path in (files.requests, *files.records):
        bodies = json.loads(path.read_text())["items"]
        path.write_text(yaml.safe_dump_all(bodies))
    assert explain(files, now=NOW, json=False) == in_json


def test_lists_of_one_kind_are_read(folder: Folder) -> None:
    """As `kubectl get --raw` shows them: the items leave their kind to the list."""
    files = folder.files([folder.scenario.offer_csr()])
    body = stored.csr_body(folder.scenario.offer_csr())
    del body["apiVersion"], body["kind"]
    listed = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequestList",
        "items": [body],
    }
    files.requests.write_text(json.dumps(listed))
    assert explain(files, now=NOW, json=False)[1] == 0


def problem(files: Files) -> str:
    with pytest.raises(FilesInvalid) as caught:
        explain(files, now=NOW, json=False)
    return "; ".join(caught.value.problems)


WRONG: dict[str, tuple[str, str]] = {
    "no CSR": ('{"kind": "List", "items": []}', "holds no CertificateSigningRequest"),
    "half a CSR": (
        '{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}',
        "missing required field `metadata`",
    ),
    "no object": ("[1]", "something else than Kubernetes objects"),
    "no objects": ('{"kind": "List", "items": [1]}', "something else than objects"),
    "no JSON": ("{", "Expecting property name"),
    "no YAML": ("a: [", "while parsing"),
    "nested without end": ('{"a":' * 100_000, "nested too deeply"),
}


@pytest.mark.parametrize(("content", "told"), WRONG.values(), ids=list(WRONG))
def test_a_file_of_no_requests_is_told(folder: Folder, content: str, told: str) -> None:
    files = folder.files([folder.scenario.offer_csr()])
    files.requests.write_text(content)
    assert told in problem(files)
    assert str(files.requests) in problem(files)


def test_a_file_that_is_not_there_is_told(folder: Folder) -> None:
    files = folder.files([folder.scenario.offer_csr()], records=[Path("/nowhere/records.yaml")])
    assert problem(files) == "/nowhere/records.yaml: No such file or directory"


def test_records_that_cannot_be_read_are_all_told(folder: Folder) -> None:
    files = folder.files([folder.scenario.offer_csr()])
    cluster, good = json.loads(files.records[0].read_text())["items"]
    nameless = {**good, "metadata": {"namespace": "a"}}
    stray = {**good, "spec": {}}
    stored.write_list(files.records[0], [cluster, nameless, stray])
    told = problem(files)
    assert "Machine: metadata.name is missing" in told
    assert "Machine machine-1: Object missing required field `clusterName`" in told


@pytest.mark.parametrize("count", [0, 2])
def test_the_cluster_has_to_be_one(folder: Folder, count: int) -> None:
    files = folder.files([folder.scenario.offer_csr()])
    cluster = json.loads(files.records[0].read_text())["items"][0]
    clusters = [
        {**cluster, "metadata": {**cluster["metadata"], "name": f"c-{n}"}} for n in range(count)
    ]
    stored.write_list(files.records[0], clusters)
    assert problem(files) == f"the records hold {count} Clusters: say which with --cluster"


@pytest.mark.parametrize(
    ("bodies", "told"),
    [([], "not exactly one Secret"), ([{"current": "QQ=="}], "cannot be read")],
    ids=["none", "damaged"],
)
def test_a_master_that_is_none_is_told(
    folder: Folder, bodies: list[dict[str, str]], told: str
) -> None:
    files = folder.files([folder.scenario.answer_csr()])
    assert files.challenge_key_secret is not None
    secrets = [stored.secret_body(folder.scenario.masters) | {"data": data} for data in bodies]
    stored.write_list(files.challenge_key_secret, secrets)
    assert told in problem(files)


def arguments(files: Files, *more: str) -> list[str]:
    """Write the command line."""
    named = ["--policy", str(files.policy), "--master", str(files.challenge_key_secret)]
    return ["verify", str(files.requests), *named, "--records", *map(str, files.records), *more]


NOW_FLAG = ("--now", "2026-11-21T09:30:00Z")


@pytest.mark.parametrize(
    ("more", "status", "output", "complaint"),
    [
        (NOW_FLAG, 0, "would be certified", ""),
        ((*NOW_FLAG, "--output", "json"), 0, '"status": 0', ""),
        (("--now", "2026-11-21T10:00:00Z"), 1, "would be denied: AnswerExpired", ""),
        ((*NOW_FLAG, "--cluster", "tenants/green"), 3, "cannot be decided", ""),
        (("--now", "2026-11-21"), 2, "", "not a time like"),
        (("--cluster", "blue"), 2, "", "not NAMESPACE/NAME"),
        (("--policy", "/nowhere"), 2, "", "/nowhere: No such file or directory"),
        (("--master", "/nowhere"), 2, "", "/nowhere: No such file or directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_the_exit_status_tells_the_verdict(  # noqa: PLR0913, PLR0917 - a command, and its three ends
    folder: Folder,
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[str, ...],
    status: int,
    output: str,
    complaint: str,
) -> None:
    files = folder.files([folder.scenario.answer_csr()])
    ended = run(monkeypatch, *arguments(files, *more))
    assert ended.status == status
    assert output in ended.output
    assert complaint in ended.complaint


def test_a_bug_is_no_verdict(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python ends with 1 for what nobody catches, and 1 means that the request is denied."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("signer.explain.replay.recognize_csr", broken)
    ended = run(monkeypatch, *arguments(folder.files([folder.scenario.offer_csr()])))
    assert (ended.status, ended.output) == (3, "")
    assert "ZeroDivisionError" in ended.complaint
