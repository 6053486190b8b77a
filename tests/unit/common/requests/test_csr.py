"""`spec.request`: its PEM blocks (P1, P2), and the requests that the node builds."""

import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from common.errors import (
    NodeNameInvalid,
    PemNotCanonical,
    ProviderIDMalformed,
    TooLarge,
)
from common.evidence import MAX_SIZE_WITH_EVENT_LOG
from common.formats.pem import encode_block
from common.requests import csr
from common.requests.csr import (
    PrivateKey,
    build_pkcs10,
    decode_plain_request,
    decode_request,
    encode_request,
)
from common.requests.pkcs10 import MAX_PKCS10, parse_pkcs10
from tests import vectors
from tests.builders.requests import LONGEST, RSA_KEY

REQUEST = vectors.cases("requests")[-2]
PKCS10 = bytes.fromhex(REQUEST["der"])
DATA = bytes(range(256))
GOOD = encode_request(PKCS10, DATA)
FIRST, PROVIDER, LAST = (
    encode_block("CERTIFICATE REQUEST", PKCS10),
    encode_block("KUBELET AUTHENTICATOR ATTESTATION PROVIDER", b"tpm"),
    encode_block("KUBELET AUTHENTICATOR ATTESTATION DATA", DATA),
)
P256 = ec.derive_private_key(0xABCDEF, ec.SECP256R1())
P384 = ec.derive_private_key(0xABCDEF, ec.SECP384R1())


def test_block_is_equal_to_that_of_openssl() -> None:
    assert FIRST.decode() == REQUEST["pem"]


def test_request_has_exactly_three_blocks() -> None:
    assert GOOD == FIRST + PROVIDER + LAST
    assert decode_request(GOOD) == (PKCS10, DATA)
    assert b"ATTESTATION PROVIDER-----\ndHBt\n-----END" in GOOD


def test_plain_request_has_exactly_one_block() -> None:
    assert decode_plain_request(FIRST) == PKCS10


def test_p2_block_without_end_line_is_refused() -> None:
    begun = FIRST[: FIRST.index(b"-----END")]
    with pytest.raises(PemNotCanonical, match="has no end line"):
        decode_plain_request(begun + b"\n")


@pytest.mark.parametrize("read", [decode_request, decode_plain_request])
def test_p1_size_is_checked_before_the_text_is_parsed(read: object) -> None:
    assert callable(read)
    with pytest.raises(TooLarge):
        read(b"-" * (csr.MAX_REQUEST + 1))


@pytest.mark.parametrize("read", [decode_request, decode_plain_request])
def test_p1_largest_text_is_parsed(read: object) -> None:
    assert callable(read)
    with pytest.raises(PemNotCanonical):
        read(b"-" * csr.MAX_REQUEST)


def test_p1_the_largest_blocks_fit() -> None:
    largest = encode_request(bytes(MAX_PKCS10), bytes(MAX_SIZE_WITH_EVENT_LOG))
    assert len(largest) <= csr.MAX_REQUEST == 1572864
    assert decode_request(largest) == (bytes(MAX_PKCS10), bytes(MAX_SIZE_WITH_EVENT_LOG))


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_encoded_request_decodes_to_its_parts(pkcs10: bytes, data: bytes) -> None:
    assert decode_request(encode_request(pkcs10, data)) == (pkcs10, data)


# Requests that the node builds


@pytest.mark.parametrize("key", [P256, P384, RSA_KEY], ids=["P-256", "P-384", "RSA"])
def test_built_request_is_parsed(key: PrivateKey) -> None:
    request = parse_pkcs10(build_pkcs10(key, node_name="worker-1", provider_id="test:///i-1"))
    assert (request.node_name, request.provider_id) == ("worker-1", "test:///i-1")
    assert request.subject_alt_names is None
    assert request.public_key == key.public_key()


@pytest.mark.parametrize("name", ["worker-1", LONGEST.decode()], ids=["short", "longest"])
def test_built_request_is_accepted_by_openssl(name: str, tmp_path: Path) -> None:
    path = tmp_path / "request.der"
    path.write_bytes(build_pkcs10(P256, node_name=name, provider_id="test:///i-1"))
    command = ("openssl", "req", "-inform", "DER", "-in", path, "-noout", "-verify", "-text")
    # The default format of names differs between releases of OpenSSL.
    done = subprocess.run(
        [*command, "-nameopt", "RFC2253"], check=True, capture_output=True, text=True
    )
    assert "verify OK" in done.stdout + done.stderr
    assert f"CN=system:node:{name},O=system:nodes" in done.stdout
    assert "1.3.6.1.4.1.11129.2.1.21: \n" in done.stdout


def test_serving_names_keep_their_types() -> None:
    der = build_pkcs10(
        P256,
        node_name="worker-1",
        provider_id="test:///i-1",
        dns_names=["worker-1"],
        ip_addresses=[ip_address("192.0.2.1"), ip_address("::1")],
    )
    expected = ("worker-1", ip_address("192.0.2.1"), ip_address("::1"))
    assert parse_pkcs10(der).subject_alt_names == expected
    assert not any(extension.critical for extension in x509.load_der_x509_csr(der).extensions)


@pytest.mark.parametrize("name", ["", "Worker", "a" * 254])
def test_request_with_an_invalid_node_name_is_not_built(name: str) -> None:
    with pytest.raises(NodeNameInvalid):
        build_pkcs10(P256, node_name=name, provider_id="test:///i-1")


def test_request_with_an_invalid_provider_id_is_not_built() -> None:
    with pytest.raises(ProviderIDMalformed):
        build_pkcs10(P256, node_name="worker-1", provider_id="")


def test_longest_names_are_built_and_parsed() -> None:
    request = build_pkcs10(P256, node_name=LONGEST.decode(), provider_id="test:///i-1")
    loaded = x509.load_der_x509_csr(request)
    assert loaded.subject == csr.node_subject(LONGEST.decode())
    assert loaded.signature_hash_algorithm == hashes.SHA256()
    assert loaded.public_bytes(Encoding.DER) == request


def test_common_name_over_64_characters_causes_no_warning() -> None:
    """Each test has filters of its own, so another process shows those of the module."""
    code = f"from common.requests.csr import node_subject; node_subject({LONGEST.decode()!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stderr == b""


def test_hash_of_the_signature_is_as_strong_as_the_curve() -> None:
    der = build_pkcs10(P384, node_name="worker-1", provider_id="test:///i-1")
    algorithm = x509.load_der_x509_csr(der).signature_hash_algorithm
    assert isinstance(algorithm, hashes.SHA384)
