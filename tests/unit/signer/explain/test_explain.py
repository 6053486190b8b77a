"""`explain`: the report on a stored request, and that it has the verdict of the signer."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.formats.pem import encode_block
from common.names import PEM_REQUEST
from common.requests.binding import sha256
from signer.explain.command import explain
from signer.explain.manifests import FilesInvalid
from signer.explain.report import EXIT_ALLOWED, EXIT_UNDECIDED
from signer.kinds.attested_node import Refusal
from signer.kinds.csr import Csr
from signer.kinds.node import Node
from signer.policy.policy import PcrRules, Policy, PolicyMode
from signer.seams import ChallengeKeys
from signer.verify.checks import (
    ANSWER_ORDER,
    BUILTIN_ORDER,
    CLAIMS,
    OFFER_ORDER,
    SERVING_ONLY_ORDER,
    SERVING_ORDER,
)
from signer.verify.requests.recognize import CsrKind
from tests.attacks.requests import extended
from tests.attacks.runner import reconcile_once
from tests.builders import stored
from tests.builders.forgery import OID_KEY_USAGE, extension
from tests.builders.policy_specs import PLATFORM
from tests.builders.scenario import ABROAD, NODE, NOW, Scenario, key_name, machine
from tests.builders.signer_command import run

STRANGER = sha256(b"another signer's")
Files = dict[str, Any]
"""The arguments of `explain` that come from the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A directory with the files of one scenario."""

    path: Path
    scenario: Scenario

    def files(self, csrs: Sequence[Csr], **changes: Any) -> Files:  # noqa: ANN401 - of any type
        """Write all files."""
        spec = changes.pop("spec", {})
        bodies = [*stored.objects_of(self.scenario), stored.policy_body(spec)]
        secret = self.path / "secret.json"
        secret.write_text(json.dumps(stored.secret_body(self.scenario.challenge_keys)))
        objects = stored.write_list(self.path / "objects.json", bodies)
        return {
            "requests": stored.write_list(self.path / "csrs.json", map(stored.csr_body, csrs)),
            "objects": [objects],
            "challenge_key_secret": secret,
            "cluster": None,
            **changes,
        }

    def report(self, *csrs: Csr, **changes: Any) -> tuple[str, int]:  # noqa: ANN401 - as above
        """Return text and exit status, with placeholders for names that differ in each run."""
        text, status = explain(**self.files(csrs, **changes), now=NOW, json=False)
        world = self.scenario
        text = text.replace(key_name(world.ek), "<EK>").replace(
            world.ak.public.name().hex(), "<AK>"
        )
        return text, status


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    """Return the files of a scenario in which every check passes."""
    return Directory(path=tmp_path, scenario=Scenario())


HEAD = """\
objects: no AttestedNode, 1 Cluster, no ClusterRoleBinding, no EndorsementKey,\
 1 KubeletAttestationPolicy, 1 Machine, no Node, no Service

"""
ENTRY = """\
  R1  ok            signer name; no decision yet: cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm
  R0  ok            Cluster: opted in, no automatic approval
  P1  ok            size limits
  P2  ok            PEM blocks
  P3  ok            request: signature and key: secp256r1
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
  M5  ok            node requests its own name
  M1  ok            Machine with the provider ID: machine-1
  M2  ok            Machine and Cluster ready for a first join
  M3  ok            node name: node-1.example
  M4  ok            Node with the node name
  M6  ok            nodeRef and Nodes with the provider ID: none
  M7  ok            first join of a new Machine
"""
TEMPLATE = """\
  E1  ok            endorsement key: template and strength: secp256r1, EndorsementKey <EK>
"""
TRUST = """\
  A2  ok            certificate of the attestation key
  E2  ok            endorsement key: trust: Registered, EndorsementKey <EK>
  E3  ok            endorsement key: not banned, not in use
"""
QUOTE = """\
  Q1  ok            quote: form and signature: 5 resets, 6 restarts, firmware 0x7
  Q2  ok            quote: binding to the challenge
  Q3  ok            PCRs: selection and digest: sha256:0,1,2,3,4,5,6,7
"""
CLAIMED = """\
  K1  ok            claim of the endorsement key
  K4  ok            certificate with which the node filed the request
  K2  ok            claim of the node name: node-1.example
  K3  ok            second write of the endorsement key
"""
OFFERED = "  P6  ok            attestation data: offer\n"
ANSWERED = "  P6  ok            attestation data: answer\n"
CHALLENGE = (
    "  C1  ok            challenge: age and key:"
    " issued 2026-11-21T09:30:00Z under key 173c4a476342dafd\n"
)
OF = "of node-1.example to cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm\n"


def test_a_good_offer_is_explained_check_by_check(directory: Directory) -> None:
    text, status = directory.report(directory.scenario.offer_csr())
    steps = ENTRY + OFFERED + REQUESTER + KEYS + MACHINE + TEMPLATE + TRUST
    assert text == f"{HEAD}kubelet-tpm-a: offer {OF}{steps}  would be challenged\n"
    assert status == 0


def test_a_good_answer_is_explained_check_by_check(directory: Directory) -> None:
    text, status = directory.report(directory.scenario.answer_csr())
    measured = "  Q4  ok            PCRs: policy and event log\n"
    steps = ENTRY + ANSWERED + REQUESTER + CHALLENGE + KEYS + TEMPLATE + QUOTE + measured
    steps += MACHINE + TRUST + CLAIMED
    assert text == f"{HEAD}kubelet-tpm-b: answer {OF}{steps}  would be certified\n"
    assert status == 0


def test_a_refusal_has_the_checks_before_it_and_its_reason(directory: Directory) -> None:
    directory.scenario.change_machine(addresses=machine().addresses[1:])
    directory.scenario.change_policy("node_names", machine_name=True)
    spec = {"nodeNames": {"machineName": True}}
    text, status = directory.report(directory.scenario.offer_csr(), spec=spec)
    steps = ENTRY + OFFERED + REQUESTER + KEYS + "".join(MACHINE.splitlines(keepends=True)[:3])
    steps += """\
  M3  denied        node name: NodeNameMismatch: the node name is not this Machine's
  M4  not reached   Node with the node name
  M6  not reached   nodeRef and Nodes with the provider ID
  M7  not reached   first join of a new Machine
  E1  not reached   endorsement key: template and strength
  A2  not reached   certificate of the attestation key
  E2  not reached   endorsement key: trust
  E3  not reached   endorsement key: not banned, not in use
"""
    ending = "  would be denied: NodeNameMismatch\n"
    assert text == f"{HEAD}kubelet-tpm-a: offer {OF}{steps}{ending}"
    assert status == 1


def test_the_claim_says_why_the_signer_refused_this_request(directory: Directory) -> None:
    """Later, the challenge is too old for a replay."""
    scenario = directory.scenario
    scenario.put_claim()
    csr = scenario.answer_csr()
    refusal = Refusal(
        reason="ClusterPaused",
        message="the Cluster is paused; also EndorsementKeyBanned: it is banned",
        time=NOW,
        request=csr.name,
    )
    scenario.change_claim(last_refusal=refusal)
    text, _ = directory.report(csr)
    assert f"\n  recorded: ClusterPaused: {refusal.message}\n" in text
    text, _ = directory.report(replace(csr, name="kubelet-tpm-later"))
    assert "recorded" not in text


def test_a_refused_answer_has_each_reason(directory: Directory) -> None:
    """Of a waiting answer that an operator looks at: the first reason decides."""
    directory.scenario.change_cluster(paused=True)
    directory.scenario.change_policy("node_names", machine_name=True)
    directory.scenario.change_machine(addresses=(), registered_keys=())
    spec = {"nodeNames": {"machineName": True}}
    text, status = directory.report(directory.scenario.answer_csr(), spec=spec)
    assert text.endswith("""\
  M2  waits         Machine and Cluster ready for a first join: ClusterPaused: the Cluster is paused
  M3  denied        node name: NodeNameMismatch: the node name is not this Machine's
  M4  ok            Node with the node name
  M6  ok            nodeRef and Nodes with the provider ID: none
  M7  ok            first join of a new Machine
  A2  ok            certificate of the attestation key
  E2  waits         endorsement key: trust: EndorsementKeyNotRegistered: no endorsement key is\
 registered for this Machine
  E3  not reached   endorsement key: not banned, not in use
  K1  not reached   claim of the endorsement key
  K4  not reached   certificate with which the node filed the request
  K2  not reached   claim of the node name
  K3  not reached   second write of the endorsement key
  would wait: ClusterPaused
""")
    assert status == 3


@pytest.mark.parametrize(
    ("mode", "line", "detail", "status"),
    [
        ("Warn", "ok            PCRs: policy and event log: alarm: the policy does not ", "", 0),
        (
            "Enforce",
            "denied        PCRs: policy and event log: PcrPolicyMismatch: ",
            "for the operator: ",
            1,
        ),
    ],
)
def test_report_shows_which_pcr_differs_and_from_which_value(
    directory: Directory, mode: str, line: str, detail: str, status: int
) -> None:
    """Also for a value that the policy only warns about."""
    allowed = {"sha256": {"7": ["ab" * 32]}}
    spec = {"pcrs": {"selection": {"sha256": [7]}, "mode": mode, "allowed": allowed}}
    world = Scenario(policy=Policy(name="test", pcrs=PcrRules(selection={"sha256": (7,)})))
    text, found = replace(directory, scenario=world).report(world.answer_csr(), spec=spec)
    quoted = world.pcrs["sha256"][7].hex()
    assert "  Q3  ok            PCRs: selection and digest: sha256:7\n" in text
    assert f"  Q4  {line}" in text
    assert f"{detail}sha256:7 is {quoted}, allowed {'ab' * 32}\n" in text
    assert found == status


def test_access_review_is_not_decided_offline(directory: Directory) -> None:
    spec = {"accessReview": "Require"}
    text, status = directory.report(directory.scenario.answer_csr(), spec=spec)
    assert "  R4  cannot decide RBAC allows the requester its certificate\n" in text
    ending = "  cannot be decided: the policy requires an access review, which the workload "
    assert text.endswith(f"{ending}cluster decides\n")
    assert status == 3


def test_key_that_only_a_platform_may_know_is_not_decided_offline(directory: Directory) -> None:
    """A replay queries no platform. A registered key needs none."""
    spec = {"endorsementKey": {"platform": PLATFORM}}
    csr = directory.scenario.offer_csr()
    assert directory.report(csr, spec=spec)[1] == EXIT_ALLOWED
    directory.scenario.change_machine(registered_keys=())
    text, status = directory.report(csr, spec=spec)
    assert status == EXIT_UNDECIDED
    assert "PlatformAnswerPending" in text


def test_without_the_challenge_keys_no_answer_is_decided(directory: Directory) -> None:
    """The offer that it repeats is verified; the rest is undecided."""
    text, status = directory.report(directory.scenario.answer_csr(), challenge_key_secret=None)
    assert MACHINE + TEMPLATE + TRUST in text
    undecided = re.findall(r"^  (\w\d)  cannot decide", text, re.MULTILINE)
    assert undecided == ["C1", "Q1", "Q2", "Q3", "Q4", "K1", "K4", "K2", "K3"]
    assert text.endswith("  cannot be decided: the challenge keys are needed, see --help\n")
    assert status == 3


def test_without_the_challenge_keys_a_bad_answer_is_not_denied_either(directory: Directory) -> None:
    directory.scenario.change_machine(deleting=True)
    text, status = directory.report(directory.scenario.answer_csr(), challenge_key_secret=None)
    assert "  M2  denied        Machine and Cluster ready for a first join: Machine" in text
    assert text.endswith("  cannot be decided: MachineDeleting\n")
    assert status == 3


def _no_machine(world: Scenario) -> Csr:
    world.store.machines[world.cluster.key] = []
    return world.offer_csr()


def _not_opted_in(world: Scenario) -> Csr:
    world.change_cluster(client_signers=frozenset())
    return world.offer_csr()


def _no_pem(world: Scenario) -> Csr:
    csr = world.offer_csr()
    return replace(csr, request=b"\n" + csr.request)


def _expired(world: Scenario) -> Csr:
    world.now = NOW - timedelta(minutes=16)
    csr = world.answer_csr()
    world.now = NOW
    return csr


def _other_node(world: Scenario) -> Csr:
    world.inventory.nodes = [Node(name=NODE, provider_id="metal://other")]
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


VERDICTS: dict[str, tuple[Callable[[Scenario], Csr], str, str, int]] = {
    "no Machine": (_no_machine, "M1", "would wait: MachineNotFound", 3),
    "not opted in": (_not_opted_in, "R0", "would be ignored: NotOptedIn", 3),
    "another signer": (_other_signer, "R1", "would be ignored: NotOurSigner", 3),
    "wrong usages": (
        lambda world: world.offer_csr(usages=("client auth",)),
        "R2",
        "would be denied: UsagesNotAllowed",
        1,
    ),
    "no PEM": (_no_pem, "P2", "would be denied: PemNotCanonical", 1),
    "expired": (_expired, "C1", "would be denied: AnswerExpired", 1),
    "copied": (
        lambda world: world.answer_csr(name="kubelet-tpm-c"),
        "Q2",
        "would be denied: AnswerNotBound",
        1,
    ),
    "another Machine's Node": (_other_node, "M4", "would wait: NodeOfAnotherMachine", 3),
    "banned": (_banned, "E3", "would be denied: EndorsementKeyBanned", 1),
    "held": (_held, "K1", "would wait: EndorsementKeyRegistrationConflict", 3),
}
"""A request, the check that ends it, the last line of its report, and the exit status."""


@pytest.mark.parametrize(("make", "check", "ending", "status"), VERDICTS.values(), ids=VERDICTS)
def test_the_verdict_is_the_one_of_the_reconciler(
    directory: Directory, make: Callable[[Scenario], Csr], check: str, ending: str, status: int
) -> None:
    """The reason and the check are equal, too."""
    world = directory.scenario
    csr = make(world)
    text, found = directory.report(csr)
    traces = reconcile_once(world, csr)
    assert text.splitlines()[-1] == f"  {ending}"
    assert ending.endswith(f": {traces.reason}")
    assert traces.check == check
    last = [line for line in text.splitlines() if f"{traces.reason}: " in line]
    assert [line.split()[0] for line in last] == [check]
    assert found == status


def test_a_challenge_of_another_signer_is_not_denied(directory: Directory) -> None:
    csr = directory.scenario.answer_csr()
    directory.scenario.challenge_keys = ChallengeKeys(current=STRANGER, previous=None)
    text, status = directory.report(csr)
    assert "  C1  cannot decide challenge: age and key: ChallengeKeyUnknown" in text
    assert (text.splitlines()[-1], status) == ("  cannot be decided: ChallengeKeyUnknown", 3)


def test_a_claim_of_a_cluster_that_is_in_no_file_is_not_decided(directory: Directory) -> None:
    """The Cluster may exist."""
    csr = directory.scenario.answer_csr()
    directory.scenario.put_claim(cluster=ABROAD)
    text, status = directory.report(csr)
    assert (
        "  K1  cannot decide claim of the endorsement key: ApiServerUnavailable: another Cluster"
        in text
    )
    assert status == 3


def test_a_cluster_that_is_in_no_file_is_not_decided(directory: Directory) -> None:
    text, status = directory.report(directory.scenario.offer_csr(), cluster=ABROAD)
    assert text.splitlines()[3].startswith("  R0  cannot decide Cluster: opted in, ")
    assert (text.splitlines()[-1], status) == ("  cannot be decided: ApiServerUnavailable", 3)


def test_a_cluster_without_a_policy_waits(directory: Directory) -> None:
    """No check before it is reported as passed."""
    spec = {"clusterRef": {"namespace": ABROAD.namespace, "name": ABROAD.name}}
    text, status = directory.report(directory.scenario.offer_csr(), spec=spec)
    assert text.splitlines()[3].startswith("  R0  waits         Cluster: opted in, ")
    assert (text.splitlines()[-1], status) == ("  would wait: PolicyMissing", 3)


def test_a_missing_file_of_authorities_is_reported(directory: Directory) -> None:
    rules = {"trust": "Certified", "certificateAuthorities": ["/nowhere.pem"]}
    files = directory.files([directory.scenario.offer_csr()], spec={"endorsementKey": rules})
    assert problem(files) == (
        "policy default: /nowhere.pem: No such file or directory: the files of the signer must be"
        " at the same paths here"
    )


def test_names_of_the_control_plane_are_reported_before_those_of_others(
    directory: Directory,
) -> None:
    """S2 is then not reported as passed."""
    directory.scenario.for_serving("api.example")
    text, status = directory.report(directory.scenario.answer_csr())
    assert "  S1  ok            serving names: form\n" in text
    assert (
        "  S3  denied        serving names: no address of others: AddressOfControlPlane: " in text
    )
    assert "  S2  not reached   serving names: addresses of the Machine\n" in text
    assert status == 1


def test_the_machine_check_of_a_node_without_a_claim_is_not_reached(directory: Directory) -> None:
    world = directory.scenario
    world.for_serving(NODE)
    world.kind = CsrKind.BUILTIN_SERVING
    text, status = directory.report(world.csr(encode_block(PEM_REQUEST, world.pkcs10())))
    assert "  M3  waits         node name: NodeNameUnknown: no attested Machine" in text
    assert "  M1  not reached   Machine with the provider ID\n" in text
    assert status == 3


def test_a_decided_request_is_replayed_as_if_it_were_pending(directory: Directory) -> None:
    csr = replace(
        directory.scenario.offer_csr(),
        conditions={"Denied": stored.denied("MachineDeleting", "no")},
    )
    text, status = directory.report(csr)
    assert "  decided already: Denied, MachineDeleting: no\n" in text
    assert status == 0


def checks(directory: Directory, csr: Csr, **changes: Any) -> list[str]:  # noqa: ANN401 - as above
    """Return the checks in the report."""
    report, status = explain(**directory.files([csr], **changes), now=NOW, json=True)
    assert status == 0
    return [step["check"] for step in json.loads(report)["requests"][0]["checks"]]


def test_the_report_has_every_check_in_its_order(directory: Directory) -> None:
    """The order is the one in which the signer checks."""
    world = directory.scenario
    assert checks(directory, world.offer_csr()) == [*chain(*OFFER_ORDER)]
    assert checks(directory, world.answer_csr()) == [*chain(*ANSWER_ORDER, CLAIMS)]
    world.put_claim()
    world.for_serving("node-1.example", "192.0.2.11")
    world.request_der = b""
    assert checks(directory, world.answer_csr()) == [*chain(*SERVING_ORDER, CLAIMS)]


def test_requests_under_serving_only_are_explained(directory: Directory) -> None:
    world = directory.scenario
    world.policy = Policy(name="test", mode=PolicyMode.SERVING_ONLY)
    world.change_machine(node_ref=NODE)
    world.for_serving(NODE, "192.0.2.11")
    world.kind = CsrKind.BUILTIN_SERVING
    csr = world.csr(encode_block(PEM_REQUEST, world.pkcs10()))
    spec = {"mode": "ServingOnly"}
    assert checks(directory, csr, spec=spec) == [*chain(*SERVING_ONLY_ORDER)]
    text, _ = directory.report(csr, spec=spec)
    assert text.endswith("  would be approved\n")


def test_requests_to_the_builtin_signer_are_explained(directory: Directory) -> None:
    world = directory.scenario
    world.put_claim()
    world.for_serving(NODE, "192.0.2.11")
    world.kind = CsrKind.BUILTIN_SERVING
    csr = world.csr(encode_block(PEM_REQUEST, world.pkcs10()))
    assert checks(directory, csr) == [*chain(*BUILTIN_ORDER)]
    text, _ = directory.report(csr)
    assert text.endswith("  would be approved\n")
    assert "serving names: form: node-1.example, 192.0.2.11\n" in text


def test_extension_of_a_request_to_the_builtin_signer_is_denied_after_the_other_forms(
    directory: Directory,
) -> None:
    """P1 to P4, which had passed, were shown as not reached."""
    world = directory.scenario
    world.for_serving(NODE)
    world.kind = CsrKind.BUILTIN_SERVING
    extended(extension(OID_KEY_USAGE, bytes.fromhex("03020204")))(world)
    text, _ = directory.report(world.csr(encode_block(PEM_REQUEST, world.pkcs10())))
    assert re.findall(r"^  (P\d) +(\w+)", text, re.MULTILINE) == [
        *((f"P{number}", "ok") for number in range(1, 5)),
        ("P5", "denied"),
    ]


def test_the_json_report_has_the_same_verdict(directory: Directory) -> None:
    directory.scenario.change_machine(deleting=True)
    report, status = explain(
        **directory.files([directory.scenario.offer_csr()]), now=NOW, json=True
    )
    document = json.loads(report)
    assert document["status"] == status == 1
    assert document["objects"]["Machine"] == 1
    assert document["objects"]["Node"] == 0
    [request] = document["requests"]
    summary = {key: request[key] for key in ("name", "kind", "nodeName", "verdict", "reason")}
    assert summary == {
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
def test_the_exit_status_is_that_of_the_worst_request(
    directory: Directory, which: str, status: int
) -> None:
    """Requests to other signers count only if there are no others."""
    world = directory.scenario
    csrs = {
        "good": world.offer_csr(),
        "bad": world.offer_csr(usages=()),
        "waits": Scenario(provider_id="metal://none").offer_csr(),
        "other": _other_signer(world),
    }
    assert directory.report(*(csrs[name] for name in which.split()))[1] == status


def test_yaml_gives_the_same_report_as_json(directory: Directory) -> None:
    world = directory.scenario
    files = directory.files([world.offer_csr()])
    in_json = explain(**files, now=NOW, json=False)
    for path in (files["requests"], *files["objects"]):
        bodies = json.loads(path.read_text())["items"]
        path.write_text(yaml.safe_dump_all(bodies))
    assert explain(**files, now=NOW, json=False) == in_json


def test_items_of_a_typed_list_get_its_kind(directory: Directory) -> None:
    """`kubectl get --raw` returns such lists."""
    files = directory.files([directory.scenario.offer_csr()])
    body = stored.csr_body(directory.scenario.offer_csr())
    del body["apiVersion"], body["kind"]
    listed = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequestList",
        "items": [body],
    }
    files["requests"].write_text(json.dumps(listed))
    assert explain(**files, now=NOW, json=False)[1] == 0


def problem(files: Files) -> str:
    with pytest.raises(FilesInvalid) as caught:
        explain(**files, now=NOW, json=False)
    return "; ".join(caught.value.problems)


WRONG: dict[str, tuple[str, str]] = {
    "no CSR": ('{"kind": "List", "items": []}', "must hold a CertificateSigningRequest"),
    "half a CSR": (
        '{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}',
        "missing required field `metadata`",
    ),
    "no object": ("[1]", "must hold Kubernetes objects only"),
    "no objects": ('{"kind": "List", "items": [1]}', "items of a List must be objects"),
    "no JSON": ("{", "Expecting property name"),
    "no YAML": ("a: [", "while parsing"),
    "nested without end": ('{"a":' * 100_000, "nested too deeply"),
}


@pytest.mark.parametrize(("content", "message"), WRONG.values(), ids=list(WRONG))
def test_a_file_without_requests_is_reported(
    directory: Directory, content: str, message: str
) -> None:
    files = directory.files([directory.scenario.offer_csr()])
    files["requests"].write_text(content)
    assert message in problem(files)
    assert str(files["requests"]) in problem(files)


def test_all_unreadable_objects_are_reported(directory: Directory) -> None:
    files = directory.files([directory.scenario.offer_csr()])
    cluster, good, _ = json.loads(files["objects"][0].read_text())["items"]
    nameless = {**good, "metadata": {"namespace": "a"}}
    stray = {**good, "spec": {}}
    stored.write_list(files["objects"][0], [cluster, nameless, stray])
    reported = problem(files)
    assert "Machine: metadata.name is missing" in reported
    assert "Machine machine-1: Object missing required field `clusterName`" in reported


@pytest.mark.parametrize("count", [0, 2])
def test_the_cluster_must_be_named_unless_there_is_one(directory: Directory, count: int) -> None:
    files = directory.files([directory.scenario.offer_csr()])
    cluster = json.loads(files["objects"][0].read_text())["items"][0]
    clusters = [
        {**cluster, "metadata": {**cluster["metadata"], "name": f"c-{n}"}} for n in range(count)
    ]
    stored.write_list(files["objects"][0], clusters)
    assert problem(files) == f"the objects hold {count} Clusters: name one with --cluster"


@pytest.mark.parametrize(
    ("bodies", "message"),
    [([], "must hold exactly one Secret"), ([{"current": "QQ=="}], "is damaged")],
    ids=["none", "damaged"],
)
def test_an_invalid_challenge_key_secret_is_reported(
    directory: Directory, bodies: list[dict[str, str]], message: str
) -> None:
    files = directory.files([directory.scenario.answer_csr()])
    secrets = [
        stored.secret_body(directory.scenario.challenge_keys) | {"data": data} for data in bodies
    ]
    stored.write_list(files["challenge_key_secret"], secrets)
    assert message in problem(files)


def arguments(files: Files, *more: str) -> list[str]:
    """Return the command line."""
    return [
        "explain",
        str(files["requests"]),
        "--challenge-key-secret",
        str(files["challenge_key_secret"]),
        "--objects",
        *map(str, files["objects"]),
        *more,
    ]


NOW_FLAG = ("--now", "2026-11-21T09:30:00Z")


@pytest.mark.parametrize(
    ("more", "status", "output", "complaint"),
    [
        (NOW_FLAG, 0, "would be certified", ""),
        ((*NOW_FLAG, "--output", "json"), 0, '"status": 0', ""),
        (("--now", "2026-11-21T10:00:00Z"), 1, "would be denied: AnswerExpired", ""),
        ((*NOW_FLAG, "--cluster", "tenants/green"), 3, "cannot be decided", ""),
        (("--now", "2026-11-21"), 2, "", "must be a time such as"),
        (("--cluster", "blue"), 2, "", "must be NAMESPACE/NAME"),
        (("--challenge-key-secret", "/nowhere"), 2, "", "/nowhere: No such file or directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_the_exit_status_is_the_verdict(  # noqa: PLR0913, PLR0917 - a command and its three results
    directory: Directory,
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[str, ...],
    status: int,
    output: str,
    complaint: str,
) -> None:
    files = directory.files([directory.scenario.answer_csr()])
    result = run(monkeypatch, *arguments(files, *more))
    assert result.status == status
    assert output in result.stdout
    assert complaint in result.stderr


def test_a_bug_ends_with_undecided(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python ends with 1 after an uncaught exception, and 1 means denied."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("signer.explain.replay.recognize_csr", broken)
    result = run(monkeypatch, *arguments(directory.files([directory.scenario.offer_csr()])))
    assert (result.status, result.stdout) == (3, "")
    assert "ZeroDivisionError" in result.stderr
