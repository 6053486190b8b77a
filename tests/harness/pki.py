"""Certificate authorities of test clusters, and the certificates that they issue."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

LIFETIME = timedelta(days=2)
BACKDATED = timedelta(minutes=5)


def rsa_key() -> rsa.RSAPrivateKey:
    """Generate a key of kubeadm's default type."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def ec_key() -> ec.EllipticCurvePrivateKey:
    """Generate a key of kubeadm's encryptionAlgorithm ECDSA-P256."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: PrivateKey) -> bytes:
    """Encode a private key."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def public_pem(key: PrivateKey) -> bytes:
    """Encode the public key of a private key."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its key, both as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority that issues certificates for servers and clients."""

    certificate: x509.Certificate
    key: PrivateKey

    @classmethod
    def make(cls, name: str, key: PrivateKey, *, lifetime: timedelta = LIFETIME) -> Self:
        """Create a self-signed authority. Two with equal name and key verify the same."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_encipherment=True,
            key_cert_sign=True,
            content_commitment=False,
            data_encipherment=False,
            key_agreement=False,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = (
            _builder(subject, subject, key, lifetime)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(identifier, critical=False)
        )
        return cls(certificate=builder.sign(key, hashes.SHA256()), key=key)

    @property
    def pair(self) -> Pair:
        """Certificate and key of the authority."""
        return Pair(certificate=_pem(self.certificate), key=key_pem(self.key))

    def client(
        self,
        common_name: str,
        *organisations: str,
        backdated: timedelta = BACKDATED,
        lifetime: timedelta = LIFETIME,
    ) -> Pair:
        """Issue a client certificate for a user and its groups."""
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organisations]
        subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        key = ec_key()
        builder = _builder(subject, self.certificate.subject, key, lifetime, backdated)
        return self._issue(builder, key, client=True)

    def server(self, *names: str) -> Pair:
        """Issue a serving certificate for DNS names and IP addresses."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        key = ec_key()
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        builder = _builder(subject, self.certificate.subject, key)
        builder = builder.add_extension(alternatives, critical=False)
        return self._issue(builder, key, client=False)

    def _issue(self, builder: x509.CertificateBuilder, key: PrivateKey, *, client: bool) -> Pair:
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        # As Go adds it. From Python 3.13 on, the default of OpenSSL's clients requires it.
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        builder = builder.add_extension(issuer, critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        return Pair(certificate=_pem(certificate), key=key_pem(key))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: PrivateKey,
    lifetime: timedelta = LIFETIME,
    backdated: timedelta = BACKDATED,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - backdated)
        .not_valid_after(now + lifetime)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
