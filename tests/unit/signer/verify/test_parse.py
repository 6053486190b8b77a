"""P1 to P6, as far as the signer decides them; the rest is held in the tests of common."""

from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from common.csr import build_pkcs10, encode_request, node_subject
from common.errors import (
    AttestationDataMalformed,
    AttestationError,
    ExtensionNotAllowed,
    PemBlocksUnexpected,
    PemNotCanonical,
    TooLarge,
    UnsupportedVersion,
)
from common.evidence import encode_attestation_data
from common.pem import encode_block
from signer.errors import ProviderIDMissing, RequestKeyWeak
from signer.verify.parse import ParsedAnswer, ParsedKubeletServing, ParsedOffer, parse_request
from signer.verify.recognize import CsrKind
from tests.builders.scenario import NODE, PROVIDER_ID, Scenario


def builtin_request(scenario: Scenario) -> bytes:
    """Make the one block that a kubelet sends to the built-in signer."""
    return encode_block("CERTIFICATE REQUEST", scenario.pkcs10())


def request_without_provider_id() -> bytes:
    """Make a request with a subject and nothing else."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(node_subject(NODE))
    key = ec.generate_private_key(ec.SECP256R1())
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def test_offer_and_answer_are_told_apart_by_their_kind() -> None:
    """The same request, with either attestation data."""
    scenario = Scenario()
    offer, answer = (
        parse_request(csr, CsrKind.CLIENT) for csr in (scenario.offer_csr(), scenario.answer_csr())
    )
    assert isinstance(offer, ParsedOffer)
    assert isinstance(answer, ParsedAnswer)
    assert offer.request.sha256 == answer.request.sha256
    assert offer.request.node_name == NODE
    assert offer.provider_id == answer.provider_id == PROVIDER_ID


def test_a_builtin_serving_request_is_one_block() -> None:
    """Without attestation data, and with its names."""
    scenario = Scenario(kind=CsrKind.BUILTIN_SERVING, sans=["192.0.2.11", NODE])
    parsed = parse_request(scenario.csr(builtin_request(scenario)), CsrKind.BUILTIN_SERVING)
    assert isinstance(parsed, ParsedKubeletServing)
    assert parsed.request.node_name == NODE


def test_p1_a_request_over_the_limit_is_denied() -> None:
    """Before anything in it is read."""
    scenario = Scenario()
    csr = scenario.csr(b"-" * (1536 * 1024 + 1))
    with pytest.raises(TooLarge):
        parse_request(csr, CsrKind.CLIENT)


P2_MUTATIONS: dict[str, tuple[CsrKind, Callable[[bytes], bytes], type[AttestationError]]] = {
    "text behind the blocks": (CsrKind.CLIENT, lambda text: text + b"\n", PemNotCanonical),
    "blocks twice": (CsrKind.CLIENT, lambda text: text + text, PemBlocksUnexpected),
    "no blocks": (CsrKind.CLIENT, lambda _: b"", PemBlocksUnexpected),
    "attested blocks for the built-in signer": (
        CsrKind.BUILTIN_SERVING,
        lambda text: text,
        PemBlocksUnexpected,
    ),
}


@pytest.mark.parametrize(("kind", "mutate", "error"), P2_MUTATIONS.values(), ids=P2_MUTATIONS)
def test_p2_other_blocks_are_denied(
    kind: CsrKind, mutate: Callable[[bytes], bytes], error: type[AttestationError]
) -> None:
    """Exactly the blocks of the kind, in their one form."""
    scenario = Scenario()
    csr = scenario.csr(mutate(scenario.offer_csr().request))
    with pytest.raises(error):
        parse_request(csr, kind)


def test_p2_a_client_request_without_attestation_is_denied() -> None:
    """There is no downgrade to the one block."""
    scenario = Scenario()
    with pytest.raises(PemBlocksUnexpected):
        parse_request(scenario.csr(builtin_request(scenario)), CsrKind.CLIENT)


def test_p3_a_weak_key_is_denied() -> None:
    """The private key 1 signs as well as any other, and everybody has it."""
    scenario = Scenario(kubelet_key=ec.derive_private_key(1, ec.SECP256R1()))
    with pytest.raises(RequestKeyWeak):
        parse_request(scenario.offer_csr(), CsrKind.CLIENT)


def test_p5_a_client_request_has_no_alternative_names() -> None:
    """They are for serving."""
    scenario = Scenario(sans=["192.0.2.11"])
    with pytest.raises(ExtensionNotAllowed):
        parse_request(scenario.offer_csr(), CsrKind.CLIENT)
    assert isinstance(parse_request(scenario.offer_csr(), CsrKind.SERVING), ParsedOffer)


@pytest.mark.parametrize("kind", [CsrKind.CLIENT, CsrKind.SERVING])
def test_p5_without_provider_id_there_is_no_machine(kind: CsrKind) -> None:
    """It is needed in both kinds that are attested."""
    scenario = Scenario(kind=kind)
    text = encode_request(request_without_provider_id(), encode_attestation_data(scenario.offer()))
    with pytest.raises(ProviderIDMissing):
        parse_request(scenario.csr(text), kind)


def test_p5_a_builtin_serving_request_needs_no_provider_id() -> None:
    """Kubelets send none."""
    text = encode_block("CERTIFICATE REQUEST", request_without_provider_id())
    assert isinstance(
        parse_request(Scenario().csr(text), CsrKind.BUILTIN_SERVING), ParsedKubeletServing
    )


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"{}", AttestationDataMalformed),
        (b'{"version":"v2","future":true}', UnsupportedVersion),
        (b'{"version":"v0"}', UnsupportedVersion),
    ],
)
def test_p6_other_attestation_data_is_denied(data: bytes, error: type[AttestationError]) -> None:
    """A version that is not spoken is told apart from nonsense."""
    key = ec.generate_private_key(ec.SECP256R1())
    der = build_pkcs10(key, node_name=NODE, provider_id=PROVIDER_ID)
    with pytest.raises(error):
        parse_request(Scenario().csr(encode_request(der, data)), CsrKind.CLIENT)
