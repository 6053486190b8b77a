"""Parsing (P1 to P6): which kind of request the signer reads, and which parts each kind needs."""

from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from common.formats.pem import encode_block
from common.requests.csr import node_subject
from signer.verify.requests.parse import (
    ParsedAnswer,
    ParsedKubeletServing,
    ParsedOffer,
    is_probable_answer,
    parse_request,
)
from signer.verify.requests.recognize import CsrKind
from tests.builders.scenario import NODE, PROVIDER_ID, Scenario


def builtin_request(scenario: Scenario) -> bytes:
    """Make the one block that a kubelet sends to the built-in signer."""
    return encode_block("CERTIFICATE REQUEST", scenario.pkcs10())


def test_offer_and_answer_differ_by_their_kind() -> None:
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


def test_request_of_an_offer_is_not_parsed_again_with_its_answer() -> None:
    scenario = Scenario()
    offer, answer = (
        parse_request(csr, CsrKind.CLIENT) for csr in (scenario.offer_csr(), scenario.answer_csr())
    )
    assert offer.request is answer.request


def test_an_answer_seems_to_be_one_before_it_is_parsed() -> None:
    scenario = Scenario()
    assert is_probable_answer(scenario.answer_csr().request)
    assert not is_probable_answer(scenario.offer_csr().request)
    assert not is_probable_answer(builtin_request(scenario))


@pytest.mark.parametrize("data", [b"", b"=", b"AAAAA", b"\xff" * 100, b"-----"])
def test_bytes_that_are_no_attestation_data_do_not_seem_to_be_an_answer(data: bytes) -> None:
    request = Scenario().answer_csr().request
    begin = request.index(b"ATTESTATION DATA-----\n") + len(b"ATTESTATION DATA-----\n")
    assert not is_probable_answer(request[:begin] + data)


def test_annotations_may_have_32_kib() -> None:
    csr = replace(Scenario().offer_csr(), annotations_size=32 * 1024)
    assert isinstance(parse_request(csr, CsrKind.CLIENT), ParsedOffer)


def test_a_builtin_serving_request_is_one_block() -> None:
    """Without attestation data, and with its names."""
    scenario = Scenario(kind=CsrKind.BUILTIN_SERVING, sans=["192.0.2.11", NODE])
    parsed = parse_request(scenario.csr(builtin_request(scenario)), CsrKind.BUILTIN_SERVING)
    assert isinstance(parsed, ParsedKubeletServing)
    assert parsed.request.node_name == NODE


def test_p5_serving_request_may_have_alternative_names() -> None:
    scenario = Scenario(sans=["192.0.2.11"])
    assert isinstance(parse_request(scenario.offer_csr(), CsrKind.SERVING), ParsedOffer)


def test_p5_a_builtin_serving_request_needs_no_provider_id() -> None:
    """Kubelets send none."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(node_subject(NODE))
    request = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    text = encode_block("CERTIFICATE REQUEST", request.public_bytes(Encoding.DER))
    assert isinstance(
        parse_request(Scenario().csr(text), CsrKind.BUILTIN_SERVING), ParsedKubeletServing
    )
