"""Builds the certificate (I1): only the public key comes from the request.

Subject and subject alternative names are the verified and claimed ones. Everything else that the
requester wrote is left out, so the signer never signs an extension or a name of its choice.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from common.csr import node_subject
from signer.errors import AuthorityUnavailable
from signer.model import Csr, credential_id
from signer.policy import Policy
from signer.verify.answer import VerifiedAnswer
from signer.verify.claimed_answer import UnreleasedCertificate
from signer.verify.recognize import CsrKind
from signer.verify.serving_names import ServingNames

_BACKDATED: Final = timedelta(minutes=5)
"""For nodes whose clock is late; kube-controller-manager does the same."""
_SERIAL_BYTES: Final = 16
"""128 random bits; RFC 5280, section 4.1.2.2 allows up to 20 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateAuthority:
    """The certificate authority of a cluster; `repr` leaves the private key out."""

    certificate: x509.Certificate
    private_key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey = field(repr=False)


def certificate_not_after(
    *, policy: Policy, csr: Csr, authority: CertificateAuthority, now: datetime
) -> datetime:
    """Return `notAfter` of the new certificate in whole seconds, the precision of certificates.

    It is the earliest of three: the policy's lifetime from now, `expirationSeconds` from now, and
    the end of the authority's own certificate.

    Raises:
        AuthorityUnavailable: the authority's certificate is not valid now.

    """
    certificate = authority.certificate
    if not certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc:
        raise AuthorityUnavailable("the cluster's certificate authority is not valid now")
    ends = [now + policy.certificate_lifetime, certificate.not_valid_after_utc]
    if csr.expiration_seconds is not None:
        ends.append(now + timedelta(seconds=csr.expiration_seconds))
    return min(ends).replace(microsecond=0)


def issue_certificate(
    verified: VerifiedAnswer,
    *,
    not_after: datetime,
    authority: CertificateAuthority,
    now: datetime,
    random: Callable[[int], bytes],
) -> UnreleasedCertificate:
    """Sign the leaf certificate, which `make_claims` releases when the claims name it.

    Raises:
        AuthorityUnavailable: the authority's key is not that of its certificate.

    """
    issuer, key = authority.certificate, authority.private_key
    if issuer.public_key() != key.public_key():
        raise AuthorityUnavailable("the authority's key is not that of its certificate")
    serving = verified.kind is CsrKind.SERVING
    usage = ExtendedKeyUsageOID.SERVER_AUTH if serving else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        x509.CertificateBuilder()
        .issuer_name(issuer.subject)
        .subject_name(node_subject(verified.holder.node_name))
        .public_key(verified.public_key)
        .serial_number(int.from_bytes(random(_SERIAL_BYTES), "big") + 1)
        .not_valid_before((now - _BACKDATED).replace(microsecond=0))
        .not_valid_after(not_after)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(verified), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(_authority_key_identifier(authority), critical=False)
    )
    names = verified.serving_names
    if names is not None:
        builder = builder.add_extension(_subject_alternative_name(names), critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    der = certificate.public_bytes(Encoding.DER)
    return UnreleasedCertificate(
        pem=certificate.public_bytes(Encoding.PEM),
        credential_id="" if serving else credential_id(der),
        not_after=not_after,
    )


def _key_usage(verified: VerifiedAnswer) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=isinstance(verified.public_key, rsa.RSAPublicKey),
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_key_identifier(authority: CertificateAuthority) -> x509.AuthorityKeyIdentifier:
    """Return the subject key identifier of the issuer, or its digest if the issuer has none."""
    try:
        identifier = authority.certificate.extensions.get_extension_for_class(
            x509.SubjectKeyIdentifier
        ).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(
            authority.private_key.public_key()
        )
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _subject_alternative_name(names: ServingNames) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName(
        [*map(x509.DNSName, names.dns), *map(x509.IPAddress, names.addresses)]
    )
