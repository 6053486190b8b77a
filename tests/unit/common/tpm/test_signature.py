"""TPMT_SIGNATURE: signatures that swtpm made are parsed, and `cryptography` verifies them."""

from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from hypothesis import given
from hypothesis import strategies as st

from common.public_keys import public_key_from_area
from common.tpm.constants import (
    DIGEST_SIZES,
    TPM_ALG_ECDSA,
    TPM_ALG_RSAPSS,
    TPM_ALG_RSASSA,
    TPM_ALG_SHA256,
)
from common.tpm.public import PublicArea
from common.tpm.reader import StructureMalformed
from common.tpm.signature import EcdsaValue, Signature
from tests import vectors

CASES = vectors.cases("quotes")
ECDSA = bytes.fromhex(CASES[0]["signature"])
RSASSA = bytes.fromhex(CASES[1]["signature"])


def verify(case: dict[str, Any], attest: bytes) -> None:
    """Verify as a signer would, with `cryptography`."""
    signature = Signature.parse(bytes.fromhex(case["signature"]))
    key = public_key_from_area(PublicArea.from_tpm2b(bytes.fromhex(case["public"])))
    sha256 = hashes.SHA256()
    if isinstance(key, ec.EllipticCurvePublicKey):
        assert signature.scheme == TPM_ALG_ECDSA
        key.verify(signature.x509(), attest, ec.ECDSA(sha256))
        return
    assert isinstance(key, rsa.RSAPublicKey)
    paddings = {
        TPM_ALG_RSASSA: padding.PKCS1v15(),
        TPM_ALG_RSAPSS: padding.PSS(padding.MGF1(sha256), padding.PSS.AUTO),
    }
    key.verify(signature.x509(), attest, paddings[signature.scheme], sha256)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_signature_of_a_tpm_verifies(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["signature"])
    assert Signature.parse(data).hash == TPM_ALG_SHA256
    assert Signature.parse(data).encode() == data
    verify(case, bytes.fromhex(case["attest"]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_signature_over_other_bytes_does_not_verify(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidSignature):
        verify(case, bytes.fromhex(case["attest"]) + b"\0")


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", "data ends early"),
        (b"\x00\x10" + RSASSA[2:], "signature scheme is unknown"),
        (b"\x00\x1a" + ECDSA[2:], "signature scheme is unknown"),
        (b"\x00\x05" + RSASSA[2:], "signature scheme is unknown"),
        (RSASSA[:2] + b"\x00\x10" + RSASSA[4:], "hash algorithm is unknown"),
        (RSASSA[:4] + b"\x02\x01" + RSASSA[6:], "buffer exceeds its size limit"),
        (ECDSA[:4] + b"\x00\x43" + ECDSA[6:], "buffer exceeds its size limit"),
        (RSASSA + b"\0", "trailing bytes"),
        (ECDSA[:-1], "data ends early"),
        # An RSA signature with the scheme ECDSA.
        (b"\x00\x18" + RSASSA[2:], "buffer exceeds its size limit"),
    ],
)
def test_one_wrong_field_is_refused_by_its_rule(data: bytes, rule: str) -> None:
    with pytest.raises(StructureMalformed) as caught:
        Signature.parse(data)
    assert caught.value.rule == rule


HASHES = st.sampled_from(sorted(DIGEST_SIZES))
INTEGER = st.binary(max_size=66)
SIGNATURES = st.builds(
    Signature,
    scheme=st.sampled_from([TPM_ALG_RSASSA, TPM_ALG_RSAPSS]),
    hash=HASHES,
    value=st.binary(max_size=512),
) | st.builds(
    Signature,
    scheme=st.just(TPM_ALG_ECDSA),
    hash=HASHES,
    value=st.builds(EcdsaValue, r=INTEGER, s=INTEGER),
)


@given(SIGNATURES)
def test_encoded_value_parses_to_itself(signature: Signature) -> None:
    assert Signature.parse(signature.encode()) == signature
