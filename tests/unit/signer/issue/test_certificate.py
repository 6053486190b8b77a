"""I1: content and lifetime of the certificate."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from hashlib import sha256
from random import Random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from signer.errors import AuthorityUnavailable
from signer.issue.authority import CertificateAuthority
from signer.issue.certificate import certificate_not_after, issue_certificate
from signer.verify.machines.claim_writes import WithheldCertificate
from tests.builders.scenario import NODE, NOW, Scenario
from tests.builders.software_tpm import rsa_key

GROUP = "attested:0123456789abcdef0123456789abcdef.1"
LIFETIME = timedelta(hours=168)
CA_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])


@cache
def authority(
    *,
    begins: datetime = NOW - timedelta(days=1),
    ends: datetime = NOW + timedelta(days=3650),
    key_identifier: bool = True,
) -> CertificateAuthority:
    """Return a cluster's certificate authority as kubeadm makes it."""
    key = rsa_key(number=7)
    builder = (
        x509.CertificateBuilder()
        .issuer_name(CA_NAME)
        .subject_name(CA_NAME)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    if key_identifier:
        identifier = x509.SubjectKeyIdentifier(b"by the authority itself")
        builder = builder.add_extension(identifier, critical=False)
    return CertificateAuthority(certificate=builder.sign(key, hashes.SHA256()), private_key=key)


def unreleased(
    scenario: Scenario,
    signing_authority: CertificateAuthority | None = None,
    random: Callable[[int], bytes] = bytes,
) -> WithheldCertificate:
    return issue_certificate(
        scenario.verify_answer(),
        GROUP,
        not_after=NOW + LIFETIME,
        authority=signing_authority or authority(),
        now=NOW,
        random=random,
    )


def issued(scenario: Scenario, seed: int = 0) -> x509.Certificate:
    pem = unreleased(scenario, random=Random(seed).randbytes).pem
    assert pem.count(b"-----BEGIN CERTIFICATE-----") == 1
    return x509.load_pem_x509_certificate(pem)


def test_i1_a_client_certificate() -> None:
    """Subject, key, usages, times and issuer; no other extension."""
    scenario = Scenario()
    certificate = issued(scenario)
    assert certificate.subject.rfc4514_string() == f"CN=system:node:{NODE},O={GROUP},O=system:nodes"
    assert len(certificate.subject.rdns) == 3
    assert certificate.public_key() == scenario.kubelet_key.public_key()
    assert certificate.issuer == CA_NAME
    assert certificate.not_valid_before_utc == NOW - timedelta(minutes=5)
    assert certificate.not_valid_after_utc == NOW + timedelta(hours=168)
    certificate.verify_directly_issued_by(authority().certificate)
    assert [extension.value for extension in certificate.extensions] == [
        x509.BasicConstraints(ca=False, path_length=None),
        x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=False,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        ),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]),
        x509.AuthorityKeyIdentifier(b"by the authority itself", None, None),
    ]
    assert [extension.critical for extension in certificate.extensions] == [
        True,
        True,
        False,
        False,
    ]


def test_i1_a_serving_certificate() -> None:
    """It has the verified names, and only serverAuth."""
    scenario = Scenario()
    scenario.for_serving(NODE.upper(), "192.0.2.11")
    extensions = issued(scenario).extensions
    usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    alternative = extensions.get_extension_for_class(x509.SubjectAlternativeName)
    names = alternative.value
    assert not alternative.critical
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert names.get_values_for_type(x509.DNSName) == [NODE]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.11"]


def test_i1_an_rsa_key_may_encipher() -> None:
    """TLS 1.2 with RSA key exchange needs keyEncipherment."""
    certificate = issued(Scenario(kubelet_key=rsa_key()))
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_encipherment


def test_i1_a_long_node_name() -> None:
    """The CN is longer than the 64 characters that X.520 allows."""
    name = "n" * 63 + "." + "m" * 63
    scenario = Scenario(node_name=name)
    scenario.change_machine(addresses=(replace(scenario.machine.addresses[0], address=name),))
    (common_name,) = issued(scenario).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert common_name.value == f"system:node:{name}"


def test_i1_the_credential_id_is_the_digest_of_the_certificate() -> None:
    """As API servers compute it: tests/integration/test_credential_ids.py."""
    certificate = unreleased(Scenario())
    der = x509.load_pem_x509_certificate(certificate.pem).public_bytes(Encoding.DER)
    assert certificate.credential_id == f"X509SHA256={sha256(der).hexdigest()}"


def test_i1_a_serving_certificate_has_no_credential_id() -> None:
    """No node authenticates with it, so it must not take the place of a client certificate."""
    scenario = Scenario()
    scenario.for_serving(NODE)
    assert unreleased(scenario).credential_id == ""


def test_i1_serial_numbers_are_random() -> None:
    """They are positive, too."""
    numbers = {issued(Scenario(), seed).serial_number for seed in range(4)}
    assert len(numbers) == 4
    assert all(0 < number <= 1 << 128 for number in numbers)


@pytest.mark.parametrize(("byte", "expected"), [(b"\xff", 1 << 128), (b"\0", 1)])
def test_i1_serial_numbers_are_of_128_bits(byte: bytes, expected: int) -> None:
    """One is added to the random number, so that it is never 0."""
    pem = unreleased(Scenario(), random=lambda size: byte * size).pem
    assert x509.load_pem_x509_certificate(pem).serial_number == expected


def test_i1_without_key_identifier_the_authoritys_key_is_digested() -> None:
    """Older authorities have no subject key identifier."""
    older = authority(key_identifier=False)
    certificate = x509.load_pem_x509_certificate(unreleased(Scenario(), older).pem)
    identifier = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    key = older.private_key.public_key()
    expected = x509.AuthorityKeyIdentifier.from_issuer_public_key(key)
    assert identifier.value == expected


def test_i1_a_key_of_another_certificate_does_not_sign() -> None:
    """Certificate and key of a Secret may be replaced in two steps."""
    with pytest.raises(AuthorityUnavailable, match="not that of its certificate"):
        replace(authority(), private_key=rsa_key())


def not_after(
    *,
    lifetime: timedelta = LIFETIME,
    requested: int | None = None,
    signing_authority: CertificateAuthority | None = None,
    now: datetime = NOW,
) -> datetime:
    """Return the end of a certificate that is requested for some seconds."""
    return certificate_not_after(
        lifetime=lifetime,
        csr=Scenario(expiration_seconds=requested).csr(b""),
        authority=signing_authority or authority(),
        now=now,
    )


HOUR = timedelta(hours=1)
LIFETIMES: dict[str, tuple[int | None, timedelta, timedelta]] = {
    "the policy's": (None, 24 * HOUR, 2 * HOUR),
    "as asked for": (3600, 24 * HOUR, HOUR),
    "not more than the policy's": (86400, 24 * HOUR, 2 * HOUR),
    "what the authority has left": (7200, HOUR / 2, HOUR / 2),
}


@pytest.mark.parametrize(("requested", "remaining", "expected"), LIFETIMES.values(), ids=LIFETIMES)
def test_i1_the_earliest_of_three_ends_counts(
    requested: int | None, remaining: timedelta, expected: timedelta
) -> None:
    """The policy, `expirationSeconds`, and the authority's certificate."""
    ending = authority(ends=NOW + remaining)
    until = not_after(lifetime=2 * HOUR, requested=requested, signing_authority=ending)
    assert until == NOW + expected


def test_i1_fractions_of_a_second_are_dropped() -> None:
    """Certificates and claims have whole seconds, and must agree."""
    assert not_after(now=NOW.replace(microsecond=999999)) == NOW + LIFETIME


def test_i1_an_authority_signs_from_its_first_second_on() -> None:
    """The first nodes of a new cluster join at once."""
    assert not_after(signing_authority=authority(begins=NOW)) == NOW + LIFETIME


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        (NOW - timedelta(days=2), NOW),
        (NOW - timedelta(days=2), NOW - timedelta(days=1)),
        (NOW + timedelta(seconds=1), NOW + timedelta(days=1)),
    ],
)
def test_i1_an_authority_that_is_not_valid_signs_nothing(begins: datetime, ends: datetime) -> None:
    """The request is tried again, since the authority can be renewed."""
    with pytest.raises(AuthorityUnavailable):
        not_after(signing_authority=authority(begins=begins, ends=ends))
