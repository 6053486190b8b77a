"""Signs the leaf certificate of a node; only the public key comes from the request.

The caller decides that a certificate may exist. So only two modules may import this one, and an
import contract in pyproject.toml names them.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from common.public_keys import PublicKey
from common.requests.csr import node_subject
from signer.issue.authority import CertificateAuthority
from signer.verify.machines.serving_names import ServingNames

_BACKDATED: Final = timedelta(minutes=5)
"""For nodes whose clock is late; kube-controller-manager does the same."""
_SERIAL_BYTES: Final = 16
"""128 random bits; RFC 5280, section 4.1.2.2 allows up to 20 bytes."""


def sign_leaf(  # noqa: PLR0913 - everything that the certificate depends on
    public_key: PublicKey,
    node_name: str,
    *,
    serving_names: ServingNames | None,
    groups: Sequence[str] = (),
    not_after: datetime,
    authority: CertificateAuthority,
    now: datetime,
    random: Callable[[int], bytes],
) -> x509.Certificate:
    """Return a serving certificate with these names, or a client certificate if it has none.

    The API server puts its user into `groups`, in addition to that of all nodes.
    """
    serving = serving_names is not None
    starts = max(now - _BACKDATED, authority.certificate.not_valid_before_utc)
    usage = ExtendedKeyUsageOID.SERVER_AUTH if serving else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        x509.CertificateBuilder()
        .issuer_name(authority.certificate.subject)
        .subject_name(node_subject(node_name, *groups))
        .public_key(public_key)
        .serial_number(int.from_bytes(random(_SERIAL_BYTES), "big") + 1)
        .not_valid_before(starts.replace(microsecond=0))
        .not_valid_after(not_after)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(public_key), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(authority.key_identifier, critical=False)
    )
    if serving_names is not None:
        names = _subject_alternative_name(serving_names)
        builder = builder.add_extension(names, critical=False)
    return builder.sign(authority.private_key, hashes.SHA256())


def _key_usage(public_key: PublicKey) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=isinstance(public_key, rsa.RSAPublicKey),
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _subject_alternative_name(names: ServingNames) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName(
        [*map(x509.DNSName, names.dns), *map(x509.IPAddress, names.addresses)]
    )
