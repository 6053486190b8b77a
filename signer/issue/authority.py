"""A certificate authority from the two entries of a Secret (I1).

A user who can write Secrets in a Cluster's namespace chooses these bytes. So every size is limited
before the step whose cost grows with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import (
    CertificatePublicKeyTypes,
    PrivateKeyTypes,
)
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from signer.errors import AuthorityUnavailable

_CERTIFICATE: Final = "tls.crt"
_KEY: Final = "tls.key"
_MAX_CERTIFICATE_BYTES: Final = 32 * 1024
"""Room for a chain: the first certificate is the authority's, the others are for clients."""
_MAX_KEY_BYTES: Final = 8 * 1024
"""An RSA key of 4096 bits takes 3.3 KiB."""
_MAX_RSA_BITS: Final = 4096
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What `cryptography` raises for such bytes."""
_PROBE: Final = b"node-attestation: do these two keys belong together?"

_AuthorityKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateAuthority:
    """The certificate authority of a cluster; `repr` leaves the private key out.

    Raises:
        AuthorityUnavailable: the key is not that of the certificate.
        ValueError, DuplicateExtension, UnsupportedGeneralNameType: the certificate's extensions
            cannot be read.

    """

    certificate: x509.Certificate
    private_key: _AuthorityKey = field(repr=False)
    key_identifier: x509.AuthorityKeyIdentifier = field(init=False)
    """For the certificates that it signs."""

    def __post_init__(self) -> None:
        """Check and read once what each signature needs."""
        if self.certificate.public_key() != self.private_key.public_key():
            raise AuthorityUnavailable("the authority's key is not that of its certificate")
        object.__setattr__(
            self, "key_identifier", _key_identifier(self.certificate, self.private_key)
        )


def _key_identifier(
    certificate: x509.Certificate, key: _AuthorityKey
) -> x509.AuthorityKeyIdentifier:
    """Return the subject key identifier of the authority, or the digest of its key."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(extension.value)


def parse_authority(data: Mapping[str, bytes]) -> CertificateAuthority:
    """Return the authority whose certificate and private key the entries of a Secret hold.

    Raises `AuthorityUnavailable`: an entry is missing, too large or unreadable, the key is of an
    unsupported type or size, or key and certificate do not belong together.
    """
    certificate_pem, key_pem = data.get(_CERTIFICATE), data.get(_KEY)
    if not certificate_pem or not key_pem:
        # Cluster API leaves the key out where an external authority signs.
        raise AuthorityUnavailable("the Secret of the cluster's authority lacks certificate or key")
    if len(certificate_pem) > _MAX_CERTIFICATE_BYTES or len(key_pem) > _MAX_KEY_BYTES:
        raise AuthorityUnavailable("the Secret of the cluster's authority is too large")
    try:
        certificate = x509.load_pem_x509_certificates(certificate_pem)[0]
        public_key = certificate.public_key()
        _require_supported(public_key)
        # The default checks that p and q are prime, with the GIL held: 0.35 s for 4096 bits, and
        # 108 s for 19,630 bits. _require_pair checks what signing needs.
        key = load_pem_private_key(key_pem, password=None, unsafe_skip_rsa_key_validation=True)
        return CertificateAuthority(
            certificate=certificate, private_key=_require_pair(key, public_key)
        )
    except _UNREADABLE as error:
        raise AuthorityUnavailable("the cluster's authority cannot be read") from error


def _require_supported(public_key: CertificatePublicKeyTypes) -> None:
    if isinstance(public_key, rsa.RSAPublicKey):
        if public_key.key_size > _MAX_RSA_BITS:
            raise AuthorityUnavailable(f"the authority's key is over {_MAX_RSA_BITS} bits")
    elif not isinstance(public_key, ec.EllipticCurvePublicKey):
        raise AuthorityUnavailable("the authority's key is neither RSA nor ECDSA")


def _require_pair(key: PrivateKeyTypes, public_key: CertificatePublicKeyTypes) -> _AuthorityKey:
    """Return `key` if it signs what the certificate's key verifies."""
    mismatch = AuthorityUnavailable("the authority's key is not that of its certificate")
    if key.public_key() != public_key:
        raise mismatch
    try:
        if isinstance(key, rsa.RSAPrivateKey) and isinstance(public_key, rsa.RSAPublicKey):
            _require_consistent(key.private_numbers())
            pkcs1 = padding.PKCS1v15()
            public_key.verify(
                key.sign(_PROBE, pkcs1, hashes.SHA256()), _PROBE, pkcs1, hashes.SHA256()
            )
            return key
        if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(
            public_key, ec.EllipticCurvePublicKey
        ):
            ecdsa = ec.ECDSA(hashes.SHA256())
            public_key.verify(key.sign(_PROBE, ecdsa), _PROBE, ecdsa)
            return key
    except InvalidSignature as error:
        raise mismatch from error
    raise AuthorityUnavailable("the authority's key is neither RSA nor ECDSA")


def _require_consistent(numbers: rsa.RSAPrivateNumbers) -> None:
    """Raise unless the parts of an RSA key fit its modulus; whether they are prime is not tested.

    OpenSSL computes with these numbers as they are, so this bounds the time of a signature.
    """
    p, q, d = numbers.p, numbers.q, numbers.d
    n = numbers.public_numbers.n
    if not (
        p * q == n
        and min(p, q) > 1
        and p & q & 1 == 1
        and 0 < d < n
        and numbers.dmp1 == d % (p - 1)
        and numbers.dmq1 == d % (q - 1)
        and 0 < numbers.iqmp < p
        and numbers.iqmp * q % p == 1
    ):
        raise AuthorityUnavailable("the parts of the authority's key do not belong together")
