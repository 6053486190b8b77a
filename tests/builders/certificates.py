"""Certificate authorities and endorsement certificates, with the quirks of real ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from common.public_keys import PublicKey
from signer.verify.x509.trust_anchors import TrustAnchors, load_trust_anchors
from tests.builders import der
from tests.builders.odd_rsa import OddRsa
from tests.builders.software_tpm import PrivateKey

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
EK_PURPOSE = x509.ObjectIdentifier("2.23.133.8.1")

VERSION, SERIAL, SIGNATURE_ALGORITHM, ISSUER, VALIDITY, SUBJECT, SPKI, EXTENSIONS = range(8)
"""Positions in a TBSCertificate of version 3."""
NEXT_UPDATE = 4
"""Position in a TBSCertList of version 2."""

Digest = hashes.SHA256 | hashes.SHA384 | hashes.SHA512


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """A certificate authority."""

    certificate: x509.Certificate
    key: PrivateKey

    @property
    def der(self) -> bytes:
        """Its certificate, DER."""
        return self.certificate.public_bytes(Encoding.DER)


def usage(*names: str) -> x509.KeyUsage:
    """Make a key usage with these bits."""
    every = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: name in names for name in every})


def name(common_name: str) -> x509.Name:
    """Make a name with this CN."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def authority(  # noqa: PLR0913 - each by name
    common_name: str,
    issuer: Issuer | None = None,
    *,
    key: PrivateKey | None = None,
    begins: datetime = NOW - timedelta(days=365),
    ends: datetime = NOW + timedelta(days=3650),
    extensions: Mapping[x509.ExtensionType, bool] | None = None,
) -> Issuer:
    """Make a root, or an authority below an issuer. `extensions` maps to criticality."""
    key = ec.generate_private_key(ec.SECP384R1()) if key is None else key
    if extensions is None:
        extensions = {
            x509.BasicConstraints(ca=True, path_length=None): True,
            usage("key_cert_sign", "crl_sign"): True,
        }
    builder = (
        x509.CertificateBuilder()
        .issuer_name(name(common_name) if issuer is None else issuer.certificate.subject)
        .subject_name(name(common_name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )
    for extension, critical in extensions.items():
        builder = builder.add_extension(extension, critical=critical)
    signer = key if issuer is None else issuer.key
    signed = builder.sign(signer, hashes.SHA256())
    return Issuer(certificate=signed, key=key)


def san() -> x509.SubjectAlternativeName:
    """Make the directoryName with manufacturer, model and version of a TPM."""
    attributes = [("1", "id:414D4400"), ("2", "AMD"), ("3", "id:00030002")]
    return x509.SubjectAlternativeName(
        [
            x509.DirectoryName(
                x509.Name(
                    x509.NameAttribute(x509.ObjectIdentifier(f"2.23.133.2.{number}"), text)
                    for number, text in attributes
                )
            )
        ]
    )


def leaf_extensions(key: PublicKey) -> dict[x509.ExtensionType, bool]:
    """Return the extensions of an ordinary endorsement certificate."""
    needed = "key_encipherment" if isinstance(key, rsa.RSAPublicKey) else "key_agreement"
    return {
        san(): True,
        x509.BasicConstraints(ca=False, path_length=None): True,
        usage(needed): True,
        x509.ExtendedKeyUsage([EK_PURPOSE]): False,
    }


def leaf(  # noqa: PLR0913 - each by name
    issuer: Issuer,
    key: PublicKey,
    *,
    extensions: Mapping[x509.ExtensionType, bool] | None = None,
    begins: datetime = NOW - timedelta(days=30),
    ends: datetime = NOW + timedelta(days=3650),
    serial: int = 7,
    digest: type[Digest] = hashes.SHA256,
) -> bytes:
    """Make an endorsement certificate, DER."""
    builder = (
        x509.CertificateBuilder()
        .issuer_name(issuer.certificate.subject)
        .subject_name(x509.Name([]))
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(begins)
        .not_valid_after(ends)
    )
    for extension, critical in (extensions or leaf_extensions(key)).items():
        builder = builder.add_extension(extension, critical=critical)
    signed = builder.sign(issuer.key, digest())
    return signed.public_bytes(Encoding.DER)


Change = Callable[[bytes], bytes]


def rewritten(
    certificate: bytes,
    issuer: Issuer,
    place: int,
    change: Change,
    digest: type[Digest] = hashes.SHA256,
) -> bytes:
    """Return the DER with one part of its TBSCertificate or TBSCertList changed, signed again."""
    tbs, algorithm, _ = der.parse(certificate).children
    parts = [child.der for child in tbs.children]
    parts[place] = change(parts[place])
    signed = der.encode(der.SEQUENCE, b"".join(parts))
    if isinstance(issuer.key, rsa.RSAPrivateKey):
        signature = issuer.key.sign(signed, padding.PKCS1v15(), digest())
    else:
        signature = issuer.key.sign(signed, ec.ECDSA(digest()))
    bits = der.encode(der.BIT_STRING, b"\0" + signature)
    return der.encode(der.SEQUENCE, signed + algorithm.der + bits)


def oaep(spki: bytes) -> bytes:
    """Name an RSA key id-RSAES-OAEP, as Infineon and Nuvoton do."""
    bits = der.parse(spki).children[1]
    algorithm = bytes.fromhex("06092a864886f70d0101073000")
    return der.encode(der.SEQUENCE, der.encode(der.SEQUENCE, algorithm) + bits.der)


SIGNATURES = {
    "ecdsa-sha1": bytes.fromhex("300906072a8648ce3d0401"),
    "md5": bytes.fromhex("300d06092a864886f70d0101040500"),
    "sha1": bytes.fromhex("300d06092a864886f70d0101050500"),
    "sha256": bytes.fromhex("300d06092a864886f70d01010b0500"),
}


def signed_by_hand(
    certificate: bytes, name: str, sign: Callable[[bytes], bytes], change_spki: Change = bytes
) -> bytes:
    """Sign again with parameters that libraries refuse; a name of a hash alone is for RSA."""
    algorithm = SIGNATURES[name]
    parts = [child.der for child in der.parse(certificate).children[0].children]
    parts[SIGNATURE_ALGORITHM], parts[SPKI] = algorithm, change_spki(parts[SPKI])
    signed = der.encode(der.SEQUENCE, b"".join(parts))
    bits = der.encode(der.BIT_STRING, b"\0" + sign(signed))
    return der.encode(der.SEQUENCE, signed + algorithm + bits)


def under_odd_key(root: Issuer, subject: PublicKey, key: OddRsa) -> tuple[bytes, bytes]:
    """Certify an OAEP key by an authority whose key no library generates; return both."""
    issuer = authority("Vendor TPM CA 94", root)
    certificate = signed_by_hand(leaf(issuer, subject), "sha256", key.sign, oaep)
    return certificate, rewritten(issuer.der, root, SPKI, lambda _: key.spki())


def ca(path_length: int | None = None) -> x509.BasicConstraints:
    """Make an authority's basic constraints."""
    return x509.BasicConstraints(ca=True, path_length=path_length)


def anchors(*authorities: Issuer, lists: tuple[bytes, ...] = ()) -> TrustAnchors:
    """Configure authorities and revocation lists."""
    return load_trust_anchors(
        {f"authority-{n}.der": issuer.der for n, issuer in enumerate(authorities)},
        {f"list-{n}.der": data for n, data in enumerate(lists)},
    )


def revocation_list(  # noqa: PLR0913 - keyword arguments
    issuer: Issuer,
    *serials: int,
    begins: datetime = NOW - timedelta(days=1),
    ends: datetime = NOW + timedelta(days=30),
    key: PrivateKey | None = None,
    issuer_name: x509.Name | None = None,
    extensions: Mapping[x509.ExtensionType, bool] | None = None,
) -> bytes:
    """Make a revocation list, DER. `extensions` maps to criticality."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer_name or issuer.certificate.subject)
        .last_update(begins)
        .next_update(ends)
    )
    for serial in serials:
        revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(begins)
        builder = builder.add_revoked_certificate(revoked.build())
    for extension, critical in (extensions or {}).items():
        builder = builder.add_extension(extension, critical=critical)
    signed = builder.sign(issuer.key if key is None else key, hashes.SHA256())
    return signed.public_bytes(Encoding.DER)


SPELLINGS = {
    "PrintableString": x509.Name(
        [
            x509.NameAttribute(
                NameOID.COMMON_NAME, "Vendor TPM CA 01", _type=_ASN1Type.PrintableString
            )
        ]
    ),
    "upper case": name("VENDOR TPM CA 01"),
    "spaces": name("Vendor  TPM CA 01"),
    "another name": name("Vendor CRL issuer"),
}
"""Other names for the authority of `vendor` in a revocation list, which its key signs."""


@cache
def vendor() -> tuple[Issuer, Issuer]:
    """Make a vendor's root and the authority below it."""
    root = authority("Vendor Root CA")
    return root, authority("Vendor TPM CA 01", root)
