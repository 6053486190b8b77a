"""Which nodes are refused on real parts, and for what reason, while the honest node joins."""

from dataclasses import replace

import pytest

from common import evidence
from common.csr import encode_request
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.integration import csrs
from tests.integration.scripted_node import Script
from tests.integration.timeouts import enough

pytestmark = pytest.mark.usefixtures("signer")


def require_kept_waiting(node: Node, reason: str) -> None:
    """Call until the node reports the reason: one call may end before the signer answers."""
    enough(node.call, lambda end: reason in end.complaint)


def test_scripted_answer_is_certified(machines: Machines) -> None:
    """The good case for all tests below."""
    script, answer_name = Script(machines.registered()), csrs.new_name()
    assert script.file(answer_name, script.answer(answer_name)) == {"Approved": "Attested"}


def test_wrong_endorsement_key(machines: Machines) -> None:
    """E2: the Machine has another TPM on record."""
    victim = machines.registered()
    intruder = machines.power_on(name=victim.name)
    call = intruder.call()
    assert call.status == 1
    assert "EndorsementKeyMismatch" in call.complaint
    assert victim.call().status == 0


def test_wrong_attestation_key(machines: Machines) -> None:
    """Q2: the secret was wrapped for the attestation key in the TPM of the endorsement key."""
    script, answer_name = Script(machines.registered()), csrs.new_name()
    other = machines.power_on().tpm
    answer = script.answer(answer_name, quoting=other)
    assert script.file(answer_name, answer) == {"Denied": "AnswerNotBound"}
    answer_name = csrs.new_name()
    assert script.file(answer_name, script.answer(answer_name)) == {"Approved": "Attested"}


def test_attestation_key_of_the_offer_with_a_quote_of_another(machines: Machines) -> None:
    """Q1: the quote is verified under the key whose Name activation proved (CVE-2021-3406)."""
    script, answer_name = Script(machines.registered()), csrs.new_name()
    answer = script.answer(answer_name, quoting=machines.power_on().tpm)
    answer = replace(answer, ak_public=script.offered.ak_public)
    assert script.file(answer_name, answer) == {"Denied": "QuoteSignatureInvalid"}


def test_answer_copied_under_another_name(machines: Machines, fleet: Fleet) -> None:
    """Q2: another client gains nothing if it reads an answer and files it again."""
    node = machines.registered()
    assert node.call().status == 0
    [answer] = csrs.answers(node)
    thief = fleet.first.workload.with_token(fleet.first.workload.bootstrap_token())
    copy = csrs.file(thief, csrs.request(answer))
    assert csrs.decided(thief, copy) == {"Denied": "AnswerNotBound"}


def test_answer_copied_by_the_same_requester(machines: Machines) -> None:
    """Q2: the name of the object is bound, not only the requester."""
    script, answer_name = Script(machines.registered()), csrs.new_name()
    answer = script.answer(answer_name)
    assert script.file(csrs.new_name(), answer) == {"Denied": "AnswerNotBound"}
    assert script.file(answer_name, answer) == {"Approved": "Attested"}


def test_answer_copied_to_the_other_cluster(machines: Machines, fleet: Fleet) -> None:
    """Q2: the Cluster's UID is in the secret; equal names in the other cluster do not help."""
    node = machines.registered(fleet.first)
    machines.register(replace(node, tenant=fleet.second, provider_id=node.provider_id))
    script, answer_name = Script(node), csrs.new_name()
    answer = script.answer(answer_name)
    other = fleet.second.workload
    thief = other.with_token(other.bootstrap_token())
    request = encode_request(script.pkcs10, evidence.encode_attestation_data(answer))
    copy = csrs.file(thief, request, name=answer_name)
    assert csrs.decided(thief, copy) == {"Denied": "AnswerNotBound"}


def test_other_usages_and_lifetime(machines: Machines) -> None:
    """Q2: the other fields of the CSR's spec are bound as well."""
    script, answer_name = Script(machines.registered()), csrs.new_name()
    request = encode_request(
        script.pkcs10, evidence.encode_attestation_data(script.answer(answer_name))
    )
    csrs.file(script.client, request, name=answer_name, expirationSeconds=600)
    assert csrs.decided(script.client, answer_name) == {"Denied": "AnswerNotBound"}


def test_request_for_another_nodes_name_is_denied(machines: Machines) -> None:
    """M3: a machine with its own TPM on record requests the name of another machine."""
    victim, intruder = machines.registered(), machines.registered()
    intruder.name = victim.name
    call = intruder.call()
    assert call.status == 1
    assert "NodeNameMismatch" in call.complaint


def test_node_that_renews_under_another_name(machines: Machines, fleet: Fleet) -> None:
    """M5: a node's certificate is valid only for the node's own name."""
    victim, intruder = machines.registered(), machines.registered()
    credential = intruder.call().credential
    directory = intruder.directory
    (directory / "node.crt").write_text(credential["clientCertificateData"])
    (directory / "node.key").write_text(credential["clientKeyData"])
    workload = fleet.first.workload
    client = replace(
        workload.admin, certificate=(directory / "node.crt", directory / "node.key"), token=None
    )
    script = Script(victim)
    request = encode_request(script.pkcs10, evidence.encode_attestation_data(script.offered))
    assert csrs.decided(client, csrs.file(client, request)) == {"Denied": "RequesterNameMismatch"}


def test_one_tpm_for_two_machines(machines: Machines) -> None:
    """K1: two records give one key to two nodes. The second node waits for an operator."""
    node = machines.registered()
    assert node.call().status == 0
    twin = machines.power_on(tpm=node.tpm)
    machines.register(twin, Machine(twin.name))
    require_kept_waiting(twin, "EndorsementKeyRecordConflict")


def test_machine_without_a_record_waits(machines: Machines, fleet: Fleet) -> None:
    """E2, Registered: a missing record means neither yes nor no."""
    node = machines.power_on()
    fleet.add_machine(node.tenant, Machine(node.name))
    require_kept_waiting(node, "EndorsementKeyNotRegistered")
    [offer] = csrs.offers(node)
    assert csrs.conditions(fleet.first.workload.admin, offer["metadata"]["name"]) == {}


def test_failed_answer_does_not_use_up_the_challenge(machines: Machines) -> None:
    """A wrong answer does not use up the challenge (Keylime CVE-2026-1709)."""
    script = Script(machines.registered())
    wrong, right = csrs.new_name(), csrs.new_name()
    answer = script.answer(wrong)
    tampered = replace(answer, quote=answer.quote[:-1] + bytes([answer.quote[-1] ^ 1]))
    assert script.file(wrong, tampered) == {"Denied": "QuoteSignatureInvalid"}
    assert script.file(right, script.answer(right)) == {"Approved": "Attested"}
