"""The quote (Q1, Q2): this TPM says it, now, for this object.

Only bytes that the attestation key signed are read. `extraData` ties them to the challenge and
with it to requester, request, endorsement key and attestation key; nothing else is a nonce here.
Source: docs/protocol.md sections 3 and 5; TPM 2.0 Part 1, annex B and C (signatures).
"""

import hmac

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from common.tpm.constants import TPM_ALG_RSAPSS, TPM_ALG_SHA256, TPM_ALG_SHA384
from common.tpm.structures import (
    Attest,
    AttestNotGenerated,
    AttestNotQuote,
    Scheme,
    Signature,
    StructureMalformed,
)
from signer.errors import AnswerNotBound, QuoteMalformed, QuoteSignatureInvalid, SignatureMalformed
from signer.verify.attestation_key import AttestationKey

_DIGESTS: dict[int, hashes.SHA256 | hashes.SHA384] = {
    TPM_ALG_SHA256: hashes.SHA256(),
    TPM_ALG_SHA384: hashes.SHA384(),
}


def verify_quote(quote: bytes, signature: bytes, key: AttestationKey, extra_data: bytes) -> Attest:
    """Check signature, form and binding of a quote; return what was signed.

    Raises:
        SignatureMalformed, QuoteSignatureInvalid, QuoteMalformed: Q1.
        AnswerNotBound: Q2.

    """
    _verify_signature(quote, signature, key)
    attest = _parse(quote)
    if not hmac.compare_digest(attest.extra_data, extra_data):
        raise AnswerNotBound("the quote does not belong to this challenge, requester and object")
    return attest


def _parse(quote: bytes) -> Attest:
    try:
        return Attest.parse(quote)
    except AttestNotGenerated:
        raise QuoteMalformed("the signed bytes were not made by a TPM") from None
    except AttestNotQuote:
        raise QuoteMalformed("the signed bytes are an attestation, but not a quote") from None
    except StructureMalformed as error:
        raise QuoteMalformed(f"quote: {error}") from None


def _verify_signature(quote: bytes, encoded: bytes, key: AttestationKey) -> None:
    try:
        signature = Signature.parse(encoded)
    except StructureMalformed as error:
        raise SignatureMalformed(f"signature: {error}") from None
    if (signature.scheme, signature.hash) != (key.scheme.algorithm, key.scheme.hash):
        raise SignatureMalformed("the signature is not of the attestation key's scheme and hash")
    digest = _DIGESTS[key.scheme.hash]
    try:
        if isinstance(key.public_key, rsa.RSAPublicKey):
            key.public_key.verify(signature.x509(), quote, _padding(key.scheme, digest), digest)
        else:
            key.public_key.verify(signature.x509(), quote, ec.ECDSA(digest))
    except InvalidSignature:
        raise QuoteSignatureInvalid("the quote is not signed by the attestation key") from None


def _padding(
    scheme: Scheme, digest: hashes.SHA256 | hashes.SHA384
) -> padding.PKCS1v15 | padding.PSS:
    """RSAPSS salts are as long as the digest or as fits, by the TPM's revision: both are taken."""
    if scheme.algorithm == TPM_ALG_RSAPSS:
        return padding.PSS(mgf=padding.MGF1(digest), salt_length=padding.PSS.AUTO)
    return padding.PKCS1v15()
