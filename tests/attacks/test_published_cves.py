"""Published incidents of other systems, and findings of reviews.

Each test has the name of an incident or a finding, and docs/threat-model.md lists all of them. If
no request can reach the affected part, the table names a test of that part. The families of attacks
in this directory have more variants of each.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from common.binding import SECRET_SIZE, ChallengeInputs, answer_extra_data, challenge_secret
from common.csr import build_pkcs10, encode_request
from common.errors import AttestationError
from common.evidence import encode_attestation_data
from common.names import CLIENT_USAGES, ENDORSEMENT_KEY_ANNOTATION, PEM_REQUEST
from common.pem import encode_block
from signer.controller.rate_limit import BURST, ChallengeRateLimiter
from signer.errors import TooManyChallenges
from signer.model import Address, Node
from signer.policy import PolicyFileInvalid, PolicySet, TrustMode, load_policies
from signer.verify.x509.trust_anchors import load_trust_anchors
from tests.attacks.keys import ANSWER
from tests.attacks.requests import PROVIDER_EXTENSION, forgery
from tests.attacks.runner import Outcome, reconcile_once
from tests.attacks.scenarios import first_use
from tests.attacks.test_endorsement_certificates import certified
from tests.attacks.test_measured_boot import measured
from tests.attacks.test_quote import nv
from tests.builders.certificates import authority, leaf
from tests.builders.event_logs import EV_EFI_ACTION, extended, firmware, log_of
from tests.builders.forgery import (
    OID_PROVIDER_ID,
    ORGANIZATION,
    SEQUENCE,
    UTF8,
    alt_names,
    common_name,
    extension,
    extension_request,
    rdn,
    subject,
    tlv,
)
from tests.builders.kube_objects import INSECURE_CLIENT_SIGNER
from tests.builders.scenario import (
    HOME,
    NODE,
    NOW,
    PROVIDER_ID,
    Scenario,
    default_keys,
    key_name,
    machine,
    record_of,
)
from tests.builders.software_tpm import (
    attest,
    attestation_key,
    endorsement_key,
    pcr_values,
)
from tests.fakes.claims import FakeClaimStore

EIGHT = {"sha256": tuple(range(8))}


def answered(scenario: Scenario, **changes: object) -> Outcome:
    """File an answer with these changes."""
    return reconcile_once(scenario, scenario.answer_csr(replace(scenario.answer(), **changes)))  # type: ignore[arg-type]


def serving(*names: bytes) -> Scenario:
    """Request a serving certificate with these names."""
    scenario = Scenario()
    scenario.for_serving(NODE)
    extensions = extension_request(PROVIDER_EXTENSION, alt_names(*names))
    scenario.request_der = forgery(scenario, attributes=(extensions,)).der()
    return scenario


def dns(name: str) -> bytes:
    """Write a DNS name."""
    return tlv(0x82, name.encode())


# Attestation verifiers


def test_keylime_cve_2021_3406_key_other_than_the_name_that_was_proved() -> None:
    """The verification key comes only from the bytes whose Name activation proved."""
    scenario, own = Scenario(), attestation_key()
    quote = scenario.answer().quote
    assert answered(scenario, signature=own.sign(quote)).reason == "QuoteSignatureInvalid"
    swapped = answered(scenario, ak_public=own.tpm2b, signature=own.sign(quote))
    assert swapped.reason == "AnswerNotBound"
    document = json.loads(encode_attestation_data(scenario.answer()))
    document["ak"]["pem"] = "-----BEGIN PUBLIC KEY-----"
    data = json.dumps(document).encode()
    csr = scenario.answer_csr(request=encode_request(scenario.pkcs10(), data))
    assert reconcile_once(scenario, csr).reason == "AttestationDataMalformed"


def test_tpm2_tools_cve_2024_29038_quote_that_no_tpm_generated() -> None:
    """Bytes without the magic of a TPM were signed as data."""
    scenario = Scenario()
    forged = b"\0TCG" + scenario.attest().encode()[4:]
    assert (
        reconcile_once(scenario, scenario.answer_csr(scenario.answer(forged))).reason
        == "QuoteMalformed"
    )


def test_tpm2_tools_cve_2024_29039_selection_other_than_that_of_the_policy() -> None:
    """A true quote of PCRs that never change proves nothing."""
    scenario = Scenario()
    debug = pcr_values({"sha256": (16,)})
    quote = attest(debug, scenario.extra_data(ANSWER))
    csr = scenario.answer_csr(scenario.answer(quote, pcrs=debug))
    assert reconcile_once(scenario, csr).reason == "PcrSelectionMismatch"


def test_tpm2_tss_cve_2024_29040_statement_that_is_no_quote() -> None:
    """NV memory that holds the body of a quote, certified by the right key with the right nonce."""
    scenario = Scenario()
    quote = scenario.attest().encode()
    statement = quote[:4] + b"\x80\x14" + quote[6:101] + nv(scenario)
    assert (
        reconcile_once(scenario, scenario.answer_csr(scenario.answer(statement))).reason
        == "QuoteMalformed"
    )


def test_go_attestation_cve_2022_0317_values_that_were_not_quoted() -> None:
    """The answer has the allowed values and a quote of other PCRs."""
    scenario = Scenario()
    quote = attest(pcr_values({"sha256": (0, 1)}), scenario.extra_data(ANSWER))
    csr = scenario.answer_csr(scenario.answer(quote, pcrs=pcr_values(EIGHT)))
    assert reconcile_once(scenario, csr).reason == "PcrSelectionMismatch"


def test_keylime_cve_2026_6420_nonce_that_is_always_the_same() -> None:
    """Each input changes the secret, each object has its own nonce, and all have 32 bytes."""
    inputs = ChallengeInputs(
        cluster_uid="a",
        signer_name="b",
        username="c",
        offer_uid="d",
        issued_at="e",
        pkcs10_sha256=b"f",
        ek_spki_sha256=b"g",
        ak_name=b"h",
    )
    others = [inputs._replace(**{f: value * 2}) for f, value in inputs._asdict().items()]
    secrets = {challenge_secret(m, i) for m in (b"1", b"2") for i in (inputs, *others)}
    assert len(secrets) == 2 * (1 + len(others))
    nonces = {
        answer_extra_data(secret, name=name, expiration_seconds=seconds, usages=CLIENT_USAGES)
        for secret in secrets
        for name in ("x", "y")
        for seconds in (None, 0, 600)
    }
    assert len(nonces) == 6 * len(secrets)
    assert {len(value) for value in secrets | nonces} == {SECRET_SIZE}


def test_kairos_4828_recorded_quote_without_a_nonce() -> None:
    """A quote of an earlier boot passes nowhere, however good its values are."""
    scenario = Scenario()
    recorded = scenario.attest(extra_data=b"")
    assert (
        reconcile_once(scenario, scenario.answer_csr(scenario.answer(recorded))).reason
        == "AnswerNotBound"
    )


@pytest.mark.parametrize("change", [{"extra_data": bytes(32)}, {"pcr_digest": bytes(32)}])
def test_keylime_cve_2023_38201_failure_that_discloses_the_expected_value(
    change: dict[str, bytes],
) -> None:
    """Neither on the CSR nor in the operator's log."""
    scenario = Scenario()
    traces = reconcile_once(
        scenario, scenario.answer_csr(scenario.answer(scenario.attest(**change)))
    )
    assert traces.outcome == "denied"
    for expected in (
        scenario.extra_data(ANSWER),
        scenario.attest().pcr_digest,
        scenario.challenge_keys.current,
    ):
        for text in (traces.public, traces.logged):
            assert expected.hex() not in text
            assert base64.b64encode(expected).decode() not in text


def test_keylime_cve_2025_13609_identity_registered_again_from_another_tpm() -> None:
    """Only an operator can give a claimed node name to another TPM."""
    scenario = first_use()
    assert reconcile_once(scenario, scenario.answer_csr()).outcome == "issued"
    other = Scenario(ek=endorsement_key())
    assert reconcile_once(scenario, other.answer_csr()).reason == "NodeNameInUse"
    (node,) = scenario.store.nodes.values()
    assert node.endorsement_key == key_name(scenario.ek)


def test_keylime_cve_2025_13609_check_and_commit_are_one() -> None:
    """Another replica claims the node name between the check and the write, and the write fails."""
    scenario = first_use()

    def other_replica() -> None:
        reconcile_once(scenario, Scenario(ek=other).answer_csr())

    other = endorsement_key()
    claims = FakeClaimStore(store=scenario.store, interrupt=other_replica, interrupt_before=2)
    assert reconcile_once(scenario, scenario.answer_csr(), claims=claims).reason == "NodeNameInUse"
    (node,) = scenario.store.nodes.values()
    assert node.endorsement_key == key_name(other)


def test_spire_1_14_6_one_token_spent_twice() -> None:
    """Two answers to one challenge are for the same keys, so there is one claim."""
    scenario = Scenario()
    copied = scenario.answer_csr(name="kubelet-tpm-c")
    assert reconcile_once(scenario, scenario.answer_csr()).outcome == "issued"
    assert reconcile_once(scenario, copied).reason == "AnswerNotBound"
    attested = scenario.attest(extra_data=scenario.extra_data("kubelet-tpm-c"))
    again = scenario.answer_csr(scenario.answer(attested), name="kubelet-tpm-c")
    assert reconcile_once(scenario, again).outcome == "issued"
    assert len(scenario.store.keys) == len(scenario.store.nodes) == 1


def test_spire_1_14_6_signature_over_one_document_and_reading_of_another() -> None:
    """The request that is certified is the one that the quote is bound to, byte for byte."""
    scenario = Scenario()
    answer = encode_attestation_data(scenario.answer())
    other = build_pkcs10(scenario.kubelet_key, node_name=NODE, provider_id=PROVIDER_ID)
    assert other != scenario.pkcs10()
    swapped = scenario.answer_csr(request=encode_request(other, answer))
    assert reconcile_once(scenario, swapped).reason == "AnswerNotBound"
    twice = encode_block(PEM_REQUEST, other) + encode_request(scenario.pkcs10(), answer)
    assert (
        reconcile_once(scenario, scenario.answer_csr(request=twice)).reason == "PemBlocksUnexpected"
    )


@pytest.mark.parametrize(
    ("name", "provider_id", "reason"),
    [
        ("node-1/../node-2", PROVIDER_ID, "NodeNameInvalid"),
        ("node-1.example\0", PROVIDER_ID, "NodeNameInvalid"),
        (NODE, "metal://rack-1/slot-1\n", "ProviderIDMalformed"),
        (NODE, "metal://rack-1/../slot-1", "MachineNotFound"),
    ],
)
def test_spire_0_12_1_identifiers_of_odd_shapes(name: str, provider_id: str, reason: str) -> None:
    """Strict grammars, and comparison to the byte beyond them."""
    scenario = Scenario()
    value = extension(OID_PROVIDER_ID, tlv(UTF8, provider_id.encode()))
    scenario.request_der = forgery(
        scenario,
        subject=subject(rdn(ORGANIZATION), rdn(common_name(name.encode()))),
        attributes=(extension_request(value),),
    ).der()
    assert reconcile_once(scenario, scenario.answer_csr()).reason == reason


def test_keylime_cve_2026_1709_state_destroyed_by_an_unauthenticated_failure() -> None:
    """Invalid answers of others do not affect the valid answer of the node."""
    scenario = Scenario()
    valid = scenario.answer_csr()
    stranger = Scenario(ek=endorsement_key(), ak=attestation_key())
    for hostile in (
        stranger.answer_csr(),
        scenario.answer_csr(request=b""),
        scenario.answer_csr(replace(scenario.answer(), signature=b"")),
        scenario.answer_csr(replace(scenario.answer(), quote=stranger.answer().quote)),
    ):
        assert reconcile_once(scenario, hostile).outcome == "denied"
    assert reconcile_once(scenario, valid).outcome == "issued"


def test_go_attestation_event_log_disclosure_type_that_no_digest_covers() -> None:
    """Secure Boot is off, and the log gives its measurement the type of an action."""
    events = firmware(secure_boot=False)
    scenario = measured()
    scenario.pcrs = extended(events, EIGHT)
    relabelled = replace(events[1], type=EV_EFI_ACTION)
    for logged in ([events[0], relabelled, *events[2:]], events):
        scenario.event_log = log_of(logged)
        assert reconcile_once(scenario, scenario.answer_csr()).reason == "EventLogPolicyMismatch"


DEEP = b"[" * 50_000
NESTED = tlv(SEQUENCE, b"\5\0")
for _ in range(200):
    NESTED = tlv(SEQUENCE, NESTED)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ek_public": b"\xff\xff"}, "EndorsementKeyMalformed"),
        ({"ak_public": b"\xff\xff\0\x23"}, "AttestationKeyMalformed"),
        ({"quote": b"\xffTCG\x80\x18\xff\xff"}, "QuoteSignatureInvalid"),
        ({"signature": b"\0\x18\0\x0b\xff\xff"}, "SignatureMalformed"),
    ],
)
def test_go_attestation_506_432_143_lengths_that_overflow(
    change: dict[str, bytes], reason: str
) -> None:
    """A size over the end of the data has a reason, in every TPM structure."""
    assert answered(Scenario(), **change).reason == reason


def test_go_attestation_506_432_143_recursion_without_end() -> None:
    """The depth of DER and JSON is limited, and the number of events in logs."""
    scenario = Scenario()
    csr = scenario.answer_csr(request=encode_request(scenario.pkcs10(), DEEP))
    assert reconcile_once(scenario, csr).reason == "AttestationDataMalformed"
    csr = scenario.answer_csr(
        request=encode_request(NESTED, encode_attestation_data(scenario.answer()))
    )
    assert reconcile_once(scenario, csr).reason == "RequestMalformed"
    logged = measured()
    log = log_of(firmware())
    logged.event_log = log[:28] + b"\xff\xff\xff\xff" + log[32:]
    assert reconcile_once(logged, logged.answer_csr()).reason == "EventLogMalformed"


def test_go_attestation_287_certificate_of_another_endorsement_key() -> None:
    """Real laptops have such certificates. The message contains the remedy."""
    scenario = certified()
    other = leaf(authority("Vendor"), endorsement_key().private.public_key())
    scenario.certificates = (other,)
    traces = reconcile_once(scenario, scenario.answer_csr())
    assert traces.reason == "EndorsementCertificateMismatch"
    assert "register the key" in traces.public


def test_constellation_azure_root_that_expired() -> None:
    """An expired root certifies no key, and the reason says so."""
    scenario = certified()
    scenario.now = NOW + timedelta(days=20 * 365)
    traces = reconcile_once(scenario, scenario.offer_csr())
    assert traces.reason == "EndorsementCertificateOutOfDate"
    expired = authority("Expired", begins=NOW - timedelta(days=9), ends=NOW - timedelta(days=1))
    anchors = load_trust_anchors({"expired.der": expired.der}, {})
    scenario = certified()
    scenario.anchors = anchors
    scenario.certificates = (leaf(expired, default_keys()[0].private.public_key()),)
    assert (
        reconcile_once(scenario, scenario.offer_csr()).reason == "EndorsementCertificateOutOfDate"
    )


# What reviews of this design found


@pytest.mark.parametrize("trust", [TrustMode.FIRST_USE, TrustMode.REGISTERED])
def test_review_an_offer_alone_pins_no_endorsement_key(trust: TrustMode) -> None:
    """An offer proves nothing, so the signer makes no claim."""
    scenario = first_use()
    scenario.policy = replace(scenario.policy, trust=trust)
    if trust is TrustMode.REGISTERED:
        scenario.change_machine(registered_keys=(record_of(scenario.ek),))
    assert reconcile_once(scenario, scenario.offer_csr()).outcome == "challenged"
    assert not scenario.store.keys
    assert not scenario.store.nodes


def test_review_junk_answers_burn_no_challenge() -> None:
    """Everyone can answer a public challenge, so wrong answers do not use it up."""
    scenario = Scenario()
    for number in range(10):
        junk = scenario.answer_csr(scenario.answer(signature=bytes(72)), name=f"junk-{number}")
        assert reconcile_once(scenario, junk).outcome == "denied"
    assert reconcile_once(scenario, scenario.answer_csr()).outcome == "issued"


def test_review_uniqueness_is_the_object_that_is_created() -> None:
    """The first create wins. The other replica gets a conflict and reads the claim again."""
    scenario = first_use()
    abroad = first_use()
    abroad.change_cluster(key=replace(HOME, name="green"), uid="0" * 8 + scenario.cluster.uid[8:])
    abroad.store = abroad.inventory.store = scenario.store
    scenario.store.machines[abroad.cluster.key] = [machine()]

    def other_cluster() -> None:
        assert reconcile_once(abroad, abroad.answer_csr()).outcome == "issued"

    claims = FakeClaimStore(store=scenario.store, interrupt=other_cluster, interrupt_before=1)
    assert (
        reconcile_once(scenario, scenario.answer_csr(), claims=claims).reason
        == "EndorsementKeyInUse"
    )
    held = scenario.store.keys[key_name(scenario.ek)].held_by
    assert held is not None
    assert held.cluster == abroad.cluster.key


# CSR approvers


def test_kubeletmein_stolen_bootstrap_credential() -> None:
    """A pod reads the bootstrap token and requests certificates as kubeadm does."""
    scenario = Scenario()
    bare = encode_block(PEM_REQUEST, scenario.pkcs10())
    assert (
        reconcile_once(scenario, scenario.answer_csr(request=bare)).reason == "PemBlocksUnexpected"
    )
    software = Scenario(ek=endorsement_key(), ak=attestation_key())
    assert reconcile_once(scenario, software.offer_csr()).reason == "EndorsementKeyMismatch"
    assert reconcile_once(scenario, software.answer_csr()).reason == "EndorsementKeyMismatch"


def test_cloud_provider_gcp_185_serving_names_of_any_domain() -> None:
    """The address belongs to the node, and the DNS name does not."""
    own = tlv(0x87, b"\xc0\0\2\x0b")
    for name, reason in (
        ("www.example.com", "AddressNotOfMachine"),
        ("api.example", "AddressOfControlPlane"),
    ):
        scenario = serving(own, dns(name))
        assert reconcile_once(scenario, scenario.answer_csr()).reason == reason


@pytest.mark.parametrize("value", [tlv(0x86, b"https://node-1.example"), tlv(0x81, b"a@b")])
def test_cloud_provider_gcp_185_serving_names_of_other_types(value: bytes) -> None:
    """Unsupported types of names are refused."""
    scenario = serving(dns(NODE), value)
    assert reconcile_once(scenario, scenario.answer_csr()).reason == "SubjectAltNameNotAllowed"


def test_kubelet_serving_cert_approver_337_348_names_tied_to_no_node() -> None:
    """A well-formed name must also belong to the Machine."""
    scenario = serving(dns("node-2.example"))
    assert reconcile_once(scenario, scenario.answer_csr()).reason == "AddressNotOfMachine"


@pytest.mark.parametrize("name", ["API.example", "api.example.", "Api.Example."])
def test_talos_360_deny_list_compared_with_case(name: str) -> None:
    """The signer normalizes both sides, also if the guest reports the name."""
    scenario = serving(dns(name))
    given = Address(type="Hostname", address=name)
    scenario.change_machine(addresses=(*scenario.machine.addresses, given))
    assert reconcile_once(scenario, scenario.answer_csr()).reason == "AddressOfControlPlane"


@pytest.mark.parametrize("suffix", ["bootstrap", "certificate-rotation"])
def test_machine_config_operator_741_forgotten_auto_approve_binding(suffix: str) -> None:
    """While Kubernetes auto-approves CSRs, the signer approves none and raises an alarm."""
    scenario = Scenario()
    scenario.change_cluster(auto_approve_bindings=frozenset({f"kubeadm:node-autoapprove-{suffix}"}))
    for csr in (scenario.offer_csr(), scenario.answer_csr()):
        traces = reconcile_once(scenario, csr)
        assert (traces.outcome, traces.reason) == ("waiting", "AutoApproveBindingPresent")
        assert "'alarm': True" in traces.logged


def test_kops_18583_identity_from_what_the_requester_can_write() -> None:
    """Annotations of the CSR and provider IDs of Nodes register no key."""
    scenario = Scenario(ek=endorsement_key())
    scenario.change_machine(registered_keys=())
    own = {ENDORSEMENT_KEY_ANNOTATION: f"sha256:{key_name(scenario.ek)}"}
    scenario.inventory.nodes = [Node(name=NODE, provider_id=PROVIDER_ID)]
    for csr in (scenario.offer_csr(annotations=own), scenario.answer_csr(annotations=own)):
        assert reconcile_once(scenario, csr).reason == "EndorsementKeyNotRegistered"


def test_cluster_machine_approver_310_pile_that_stops_everybody() -> None:
    """The limit applies to the requester that exceeds it, and to no other."""
    rate = ChallengeRateLimiter(lambda: 0.0)
    flooder, other = (HOME, "system:bootstrap:aaaaaa"), (HOME, "system:bootstrap:bbbbbb")
    for _ in range(int(BURST)):
        rate.acquire(flooder)
    with pytest.raises(TooManyChallenges):
        rate.acquire(flooder)
    rate.acquire(other)


Trouble = Callable[[Scenario], FakeClaimStore]


def caches_are_empty(scenario: Scenario) -> FakeClaimStore:
    """Use caches that have not synced."""
    scenario.inventory.filled = False
    return FakeClaimStore(store=scenario.store)


def claims_are_away(scenario: Scenario) -> FakeClaimStore:
    """Make the management cluster unavailable."""
    return FakeClaimStore(store=scenario.store, unavailable=True)


@pytest.mark.parametrize("trouble", [caches_are_empty, claims_are_away])
def test_kubelet_csr_approver_253_hiccup_that_denies_for_good(trouble: Trouble) -> None:
    """If the signer cannot decide, it writes no condition and tries again."""
    scenario = Scenario()
    claims = trouble(scenario)
    traces = reconcile_once(scenario, scenario.answer_csr(), claims=claims)
    assert traces.outcome == "retried"
    assert not traces.csr.conditions
    scenario.inventory.filled = True
    assert reconcile_once(scenario, scenario.answer_csr()).outcome == "issued"


@pytest.mark.parametrize("trust", list(TrustMode))
def test_cloud_provider_gcp_20_old_flow_when_attestation_fails(trust: TrustMode) -> None:
    """Every mode requires attestation, in a supported version."""
    scenario = Scenario()
    scenario.policy = replace(scenario.policy, trust=trust)
    bare = scenario.answer_csr(request=encode_block(PEM_REQUEST, scenario.pkcs10()))
    assert reconcile_once(scenario, bare).reason == "PemBlocksUnexpected"
    other = scenario.answer_csr(request=encode_request(scenario.pkcs10(), b'{"version":"v0"}'))
    assert reconcile_once(scenario, other).reason == "UnsupportedVersion"
    insecure = scenario.answer_csr(signer_name=INSECURE_CLIENT_SIGNER)
    assert reconcile_once(scenario, insecure).reason == "NotOurSigner"


@pytest.mark.parametrize("text", ["", "[]", "{}", "policies:", "null", "trust: FirstUse"])
def test_approvers_broken_configuration_that_approves(text: str) -> None:
    """An empty or unknown policy file is refused, and there is no default policy."""
    with pytest.raises(PolicyFileInvalid):
        load_policies(text)
    with pytest.raises(AttestationError, match="no policy"):
        PolicySet(accepted=()).for_cluster(HOME, {})
    with pytest.raises(ValueError, match="no root"):
        load_trust_anchors({}, {})


def test_nodes_that_write_a_strangers_provider_id() -> None:
    """A node can cause a wrong `nodeRef`, which neither gives nor removes a node name."""
    scenario = Scenario()
    scenario.change_machine(node_ref="node-2.example")
    scenario.inventory.nodes = [Node(name="node-2.example", provider_id=PROVIDER_ID)]
    impostor = Scenario(ek=endorsement_key(), node_name="node-2.example")
    impostor.as_node()
    assert reconcile_once(scenario, impostor.answer_csr()).reason == "NodeNameMismatch"
    traces = reconcile_once(scenario, scenario.answer_csr())
    assert traces.outcome == "issued"


@pytest.mark.parametrize(
    "name", ["kubernetes", "api.example", "API.EXAMPLE", "192.0.2.1", "10.96.0.1"]
)
def test_serving_certificate_with_the_api_servers_names(name: str) -> None:
    """Guests report the addresses of a Machine, so they can contain these names."""
    address = name[0].isdigit()
    value = tlv(0x87, bytes(map(int, name.split(".")))) if address else dns(name)
    scenario = serving(dns(NODE), value)
    given = Address(type="InternalIP" if address else "InternalDNS", address=name)
    scenario.change_machine(addresses=(*scenario.machine.addresses, given))
    assert reconcile_once(scenario, scenario.answer_csr()).reason == "AddressOfControlPlane"
