"""The quote (Q1, Q2): the attestation key signed it, for this challenge and this CSR.

The signature is verified before the quote is parsed. `extraData` binds the quote to the challenge,
and so to requester, request, endorsement key and attestation key; no other field is a nonce.
Source: docs/protocol.md sections 3 and 5; TPM 2.0 Part 1, section 16 and annexes B and C.
"""

import hmac
from contextlib import suppress

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from common.tpm.attest import Attest, AttestNotGenerated, AttestNotQuote
from common.tpm.constants import TPM_ALG_RSAPSS, TPM_ALG_SHA256, TPM_ALG_SHA384
from common.tpm.reader import StructureMalformed
from common.tpm.signature import Signature
from signer.errors import AnswerNotBound, QuoteMalformed, QuoteSignatureInvalid, SignatureMalformed
from signer.verify.attestation.attestation_key import AttestationKey

_Digest = hashes.SHA256 | hashes.SHA384
_DIGESTS: dict[int, _Digest] = {
    TPM_ALG_SHA256: hashes.SHA256(),
    TPM_ALG_SHA384: hashes.SHA384(),
}


def verify_quote(quote: bytes, signature: bytes, key: AttestationKey, extra_data: bytes) -> Attest:
    """Verify signature, form and `extraData` of a quote; return its content.

    `quote` is a TPMS_ATTEST, `signature` a TPMT_SIGNATURE, `extra_data` the expected value.

    Raises:
        SignatureMalformed, QuoteSignatureInvalid, QuoteMalformed: Q1.
        AnswerNotBound: Q2.

    """
    _verify_signature(quote, signature, key)
    attest = _parse(quote)
    if not hmac.compare_digest(attest.extra_data, extra_data):
        raise AnswerNotBound("the quote does not belong to this challenge, requester and object")
    _require_qualified_name(attest.qualified_signer, key)
    return attest


def verify_statement(attest: bytes, signature: bytes, key: AttestationKey) -> None:
    """Verify the signature of any statement.

    Raises `SignatureMalformed`, `QuoteSignatureInvalid`.
    """
    _verify_signature(attest, signature, key)


def _parse(quote: bytes) -> Attest:
    try:
        return Attest.parse(quote)
    except AttestNotGenerated:
        raise QuoteMalformed("the signed bytes were not made by a TPM") from None
    except AttestNotQuote:
        raise QuoteMalformed("the signed bytes are an attestation, but not a quote") from None
    except StructureMalformed as error:
        raise QuoteMalformed(f"quote: {error}") from None


def _require_qualified_name(qualified_signer: bytes, key: AttestationKey) -> None:
    """Require the form of a Qualified Name (Part 1, section 16): nameAlg of the key, and a digest.

    The digest is over the Names of the key's parents, which the signer does not know.
    """
    name_alg, size = key.tpm_name[:2], len(key.tpm_name)
    if qualified_signer[:2] != name_alg or len(qualified_signer) != size:
        raise QuoteMalformed("qualifiedSigner must be a Name of the attestation key's nameAlg")


def _verify_signature(quote: bytes, encoded: bytes, key: AttestationKey) -> None:
    try:
        signature = Signature.parse(encoded)
    except StructureMalformed as error:
        raise SignatureMalformed(f"signature: {error}") from None
    if (signature.scheme, signature.hash) != (key.scheme.algorithm, key.scheme.hash):
        raise SignatureMalformed("the signature is not of the attestation key's scheme and hash")
    digest = _DIGESTS[key.scheme.hash]
    try:
        if not isinstance(key.public_key, rsa.RSAPublicKey):
            key.public_key.verify(signature.x509(), quote, ec.ECDSA(digest))
        elif key.scheme.algorithm == TPM_ALG_RSAPSS:
            _verify_pss(key.public_key, signature.x509(), quote, digest)
        else:
            key.public_key.verify(signature.x509(), quote, padding.PKCS1v15(), digest)
    except InvalidSignature:
        raise QuoteSignatureInvalid("the quote is not signed by the attestation key") from None


def _verify_pss(key: rsa.RSAPublicKey, signature: bytes, quote: bytes, digest: _Digest) -> None:
    """Verify RSAPSS with the two salt lengths of TPMs (Part 1, annex B.7).

    The salt is as long as the digest where FIPS 186-4 limits it, else as long as the key allows.
    """
    # RFC 8017, section 9.1.1. `PSS.MAX_LENGTH` accepts every length when it verifies.
    longest = (key.key_size + 6) // 8 - digest.digest_size - 2
    for salt_length in (digest.digest_size, longest):
        with suppress(InvalidSignature):
            pss = padding.PSS(mgf=padding.MGF1(digest), salt_length=salt_length)
            key.verify(signature, quote, pss, digest)
            return
    raise InvalidSignature
