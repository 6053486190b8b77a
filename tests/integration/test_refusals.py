"""Which nodes are refused on real parts, and for what reason, while the honest node joins."""

from dataclasses import replace

import pytest

from common import evidence
from common.challenge import Challenge, decode_challenge
from common.names import CHALLENGE_ANNOTATION
from common.requests.csr import encode_request
from tests.harness.client import Client, Object
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.process import wait_until
from tests.harness.signer import Signer
from tests.harness.workload import CERTIFICATES
from tests.integration import csrs
from tests.integration.credentials import client_of
from tests.integration.scripted_node import Script
from tests.integration.timeouts import enough

pytestmark = pytest.mark.usefixtures("signer")


def require_kept_waiting(node: Node, reason: str) -> None:
    """Call until the node reports the reason: one call may end before the signer answers."""
    enough(node.call, lambda end: reason in end.complaint)


class DeceivedNode(Script):
    """A node whose watch shows its offer with the challenge that an attacker wrote there."""

    shown: Object

    def challenge(self) -> Challenge:
        """Return the challenge that the node sees."""
        return decode_challenge(self.shown["metadata"]["annotations"][CHALLENGE_ANNOTATION])


@pytest.fixture(scope="module")
def controller(fleet: Fleet) -> Client:
    """Return a client that may write the status of CSRs and delete them, and no more."""
    workload, name = fleet.first.workload, "csr-controller"
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rights = {"certificatesigningrequests": "delete", "certificatesigningrequests/status": "patch"}
    rules = [
        {"apiGroups": [CERTIFICATES], "resources": [resource], "verbs": [verb]}
        for resource, verb in rights.items()
    ]
    workload.admin.create(f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [user]}
    workload.admin.create(f"{rbac}/clusterrolebindings", binding)
    client = workload.client(name)
    wait_until(
        lambda: client.may("delete", "certificatesigningrequests", group=CERTIFICATES),
        what="the API server applies the role of the controller",
    )
    return client


def test_scripted_answer_is_certified(machines: Machines) -> None:
    """The good case for all tests below."""
    script, answer_name = Script(machines.registered()), csrs.new_name()
    assert script.file(answer_name, script.answer(answer_name)) == {"Approved": "Attested"}


def test_wrong_attestation_key(machines: Machines) -> None:
    """Q2: the secret was wrapped for the attestation key in the TPM of the endorsement key."""
    script, answer_name = Script(machines.registered()), csrs.new_name()
    other = machines.power_on().tpm
    answer = script.answer(answer_name, quoting=other)
    assert script.file(answer_name, answer) == {"Denied": "AnswerNotBound"}
    answer_name = csrs.new_name()
    assert script.file(answer_name, script.answer(answer_name)) == {"Approved": "Attested"}


def test_answer_copied_under_another_name(machines: Machines, fleet: Fleet) -> None:
    """Q2: another client gains nothing if it reads an answer and files it again."""
    node = machines.registered()
    assert node.call().status == 0
    [answer] = csrs.answers(node)
    thief = fleet.first.workload.with_token(fleet.first.workload.bootstrap_token())
    copy = csrs.file(thief, csrs.request(answer))
    assert csrs.decided(thief, copy) == {"Denied": "AnswerNotBound"}


def test_quote_for_the_challenge_of_an_attackers_offer(
    machines: Machines, controller: Client
) -> None:
    """Q2: the attacker exchanged the challenge, and takes over the quote for its own request.

    Its offer has its own key, and the public keys of the node's TPM. It may write and delete CSRs,
    as some controllers may, but it may neither approve nor sign them.
    """
    node = machines.registered()
    victim, attacker = DeceivedNode(node), Script(node)
    stolen = attacker.annotation(CHALLENGE_ANNOTATION)
    exchanged = {"metadata": {"annotations": {CHALLENGE_ANNOTATION: stolen}}}
    victim.annotation(CHALLENGE_ANNOTATION)
    victim.shown = controller.patch(f"{csrs.CSRS}/{victim.offer}/status", exchanged)

    name = csrs.new_name()
    answer = victim.answer(name)
    assert victim.file(name, answer) == {"Denied": "AnswerNotBound"}
    controller.delete(f"{csrs.CSRS}/{name}")
    uid = attacker.client.get(f"{csrs.CSRS}/{attacker.offer}")["metadata"]["uid"]
    taken_over = replace(answer, challenge=replace(answer.challenge, uid=uid))
    assert attacker.file(name, taken_over) == {"Denied": "AnswerNotBound"}
    assert Script(node).attest() == {"Approved": "Attested"}


def test_challenge_that_is_overwritten_all_the_time_is_corrected_after_pauses(
    machines: Machines, controller: Client, signer: Signer
) -> None:
    """The node gets its challenge when the attacker has stopped."""
    script = Script(machines.registered())
    script.challenge()
    for number in range(300):
        forged = {"metadata": {"annotations": {CHALLENGE_ANNOTATION: f"forged {number}"}}}
        controller.patch(f"{csrs.CSRS}/{script.offer}/status", forged)
    verdicts = [line["outcome"] for line in signer.verdicts(script.offer)]
    assert 1 <= len(verdicts) < 10
    wait_until(
        lambda: not script.annotation(CHALLENGE_ANNOTATION).startswith("forged"),
        what=f"{script.offer} has a challenge again",
        seconds=90,  # the longest pause is a minute
    )
    assert script.attest() == {"Approved": "Attested"}


def test_node_that_renews_under_another_name(machines: Machines) -> None:
    """M5: a node's certificate is valid only for the node's own name."""
    victim, intruder = machines.registered(), machines.registered()
    client = client_of(intruder)
    script = Script(victim)
    request = encode_request(script.pkcs10, evidence.encode_attestation_data(script.offered))
    assert csrs.decided(client, csrs.file(client, request)) == {"Denied": "RequesterNameMismatch"}


def test_machine_without_a_record_waits(machines: Machines, fleet: Fleet) -> None:
    """E2, Registered: a missing record means neither yes nor no."""
    node = machines.power_on()
    fleet.add_machine(node.tenant, Machine(node.name))
    require_kept_waiting(node, "EndorsementKeyNotRegistered")
    [offer] = csrs.offers(node)
    assert csrs.conditions(fleet.first.workload.admin, offer["metadata"]["name"]) == {}
