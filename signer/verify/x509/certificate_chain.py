"""A certificate chain from an endorsement certificate to a configured root, built by OpenSSL.

OpenSSL checks signatures, dates, CA flags, path lengths, name constraints and critical extensions.
It cannot decode a leaf whose RSA key is named id-RSAES-OAEP, as Infineon and Nuvoton name theirs.
For such a leaf this module checks the last link, and OpenSSL checks the chain of the leaf's issuer.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from OpenSSL import crypto

from common.errors import AttestationError
from signer.errors import (
    EndorsementCertificateNotAllowed,
    EndorsementCertificateOutOfDate,
    EndorsementCertificateUntrusted,
)
from signer.verify.x509.distinguished_name import describe_name
from signer.verify.x509.fields import CertificateFields, authority_key_identifier, read_fields
from signer.verify.x509.lenient_der import CertificateMalformed
from signer.verify.x509.trust_anchors import TrustAnchors

REMEDY: Final = "; an operator can register the key instead"

SIGNATURE_ALGORITHMS: Final = {
    "1.2.840.113549.1.1.11": hashes.SHA256(),
    "1.2.840.113549.1.1.12": hashes.SHA384(),
    "1.2.840.113549.1.1.13": hashes.SHA512(),
    "1.2.840.10045.4.3.2": hashes.SHA256(),
    "1.2.840.10045.4.3.3": hashes.SHA384(),
    "1.2.840.10045.4.3.4": hashes.SHA512(),
}
"""RSA (PKCS #1 v1.5) and ECDSA with SHA-256, SHA-384 and SHA-512. MD5 and SHA-1 are broken."""

_OUT_OF_DATE: Final = frozenset({9, 10})
"""Error codes of X509_verify_cert: not yet valid, expired."""
_NO_ISSUER: Final = frozenset({2, 7, 18, 19, 20, 21})
"""Error codes of X509_verify_cert: no trusted issuer, or one of its name that has another key."""

_MAX_RSA_BITS: Final = 4096
_MAX_RSA_EXPONENT: Final = 2**32
"""Limits of an issuer's key for the last link. The TPM's owner chooses that key, and verification
under a larger one takes many times as long."""

_NAME_CONSTRAINTS: Final = "2.5.29.30"
_KNOWN_EXTENSIONS: Final = frozenset({"2.5.29.15", "2.5.29.17", "2.5.29.19", "2.5.29.37"})
"""Extensions that may be critical in a leaf with an OAEP key."""


def build_chain(
    leaf: CertificateFields,
    provided: Sequence[CertificateFields],
    anchors: TrustAnchors,
    now: datetime,
) -> list[CertificateFields]:
    """Return a verified chain from the leaf to a configured root, both included.

    `provided` are the certificates that the TPM holds. They are untrusted intermediates.

    Raises:
        EndorsementCertificateUntrusted: no chain leads to a configured root.
        EndorsementCertificateOutOfDate: a certificate of the chain is not valid now.
        EndorsementCertificateNotAllowed: the chain breaks another rule.
        CertificateMalformed: OpenSSL cannot read the leaf.

    """
    loaded = _load(leaf)
    if loaded is None:
        raise CertificateMalformed("OpenSSL cannot read it")
    others = [fields for fields in provided if fields is not leaf]
    if _has_decodable_key(loaded):
        return _build_with_openssl(leaf, loaded, others, anchors, now)
    return _build_for_oaep_leaf(leaf, others, anchors, now)


def _has_decodable_key(certificate: crypto.X509) -> bool:
    try:
        certificate.get_pubkey()
    except crypto.Error:
        return False
    return True


def _build_with_openssl(
    leaf: CertificateFields,
    loaded: crypto.X509,
    others: Sequence[CertificateFields],
    anchors: TrustAnchors,
    now: datetime,
) -> list[CertificateFields]:
    store = crypto.X509Store()
    for root in anchors.roots:
        store.add_cert(root.loaded)
    store.set_time(now)
    from_tpm = [certificate for fields in others if (certificate := _load(fields)) is not None]
    untrusted = [*from_tpm, *(anchor.loaded for anchor in anchors.intermediates)]
    try:
        chain = crypto.X509StoreContext(store, loaded, untrusted).get_verified_chain()
    except crypto.X509StoreContextError as error:
        raise _chain_error(error) from None
    authorities = (anchor.fields for anchor in (*anchors.intermediates, *anchors.roots))
    known = {fields.der: fields for fields in (*others, *authorities)}
    _, *above = chain
    ders = [crypto.dump_certificate(crypto.FILETYPE_ASN1, certificate) for certificate in above]
    return [leaf, *(known.get(der) or read_fields(der) for der in ders)]


def _load(fields: CertificateFields) -> crypto.X509 | None:
    try:
        return crypto.load_certificate(crypto.FILETYPE_ASN1, fields.der)
    except crypto.Error:
        return None


def _chain_error(error: crypto.X509StoreContextError) -> AttestationError:
    code, depth, text = error.errors[:3]
    where = "the endorsement certificate" if depth == 0 else f"authority {depth} above it"
    if code in _OUT_OF_DATE:
        return EndorsementCertificateOutOfDate(f"{where}: {text}{REMEDY}")
    if code in _NO_ISSUER:
        below = read_fields(crypto.dump_certificate(crypto.FILETYPE_ASN1, error.certificate))
        return _untrusted(f"{where}: {text}", below)
    return EndorsementCertificateNotAllowed(f"{where}: {text}{REMEDY}")


def _untrusted(problem: str, below: CertificateFields) -> EndorsementCertificateUntrusted:
    """Return an error that names the authority to add: the one that signed `below`."""
    message = f"the endorsement certificate does not lead to a configured authority{REMEDY}"
    key = authority_key_identifier(below)
    identifier = f" whose key has the identifier {key.hex(':')}" if key else ""
    return EndorsementCertificateUntrusted(
        message,
        detail=f"{problem}; it needs the authority {describe_name(below.issuer)}{identifier}",
    )


def _build_for_oaep_leaf(
    leaf: CertificateFields,
    others: Sequence[CertificateFields],
    anchors: TrustAnchors,
    now: datetime,
) -> list[CertificateFields]:
    """Verify the leaf's signature here, and the chain of its issuer with OpenSSL.

    An authority may have several certificates (other dates, another encoding). One is enough.
    """
    known = [*others, *(anchor.fields for anchor in (*anchors.intermediates, *anchors.roots))]
    signed_by = [fields for fields in known if _is_signed_by(leaf, fields)]
    issuers = [(fields, loaded) for fields in signed_by if (loaded := _load(fields)) is not None]
    if not issuers:
        raise _untrusted("no known authority signed it", leaf)
    if not leaf.not_before <= now <= leaf.not_after:
        raise EndorsementCertificateOutOfDate(
            f"the endorsement certificate is not valid now{REMEDY}"
        )
    if any(e.critical and oid not in _KNOWN_EXTENSIONS for oid, e in leaf.extensions.items()):
        raise _not_supported("a critical extension is unknown")
    errors: list[AttestationError] = []
    for issuer, loaded in issuers:
        try:
            issuer_chain = _build_with_openssl(issuer, loaded, others, anchors, now)
        except AttestationError as error:
            errors.append(error)
            continue
        if any(_NAME_CONSTRAINTS in authority.extensions for authority in issuer_chain):
            errors.append(_not_supported("name constraints are not supported for an OAEP key"))
            continue
        return [leaf, *issuer_chain]
    raise errors[0]


def _not_supported(rule: str) -> EndorsementCertificateNotAllowed:
    return EndorsementCertificateNotAllowed(f"endorsement certificate: {rule}{REMEDY}")


def _is_signed_by(leaf: CertificateFields, issuer: CertificateFields) -> bool:
    digest = SIGNATURE_ALGORITHMS.get(leaf.signature_algorithms[0])
    if digest is None or issuer.public_key is None or leaf.issuer != issuer.subject:
        return False
    if isinstance(issuer.public_key, rsa.RSAPublicKey) and _is_costly(issuer.public_key):
        return False
    try:
        if isinstance(issuer.public_key, rsa.RSAPublicKey):
            issuer.public_key.verify(leaf.signature, leaf.tbs, padding.PKCS1v15(), digest)
        else:
            issuer.public_key.verify(leaf.signature, leaf.tbs, ec.ECDSA(digest))
    except InvalidSignature:
        return False
    return True


def _is_costly(key: rsa.RSAPublicKey) -> bool:
    return key.key_size > _MAX_RSA_BITS or key.public_numbers().e > _MAX_RSA_EXPONENT
