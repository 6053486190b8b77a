"""Issued certificates: parsing, their order, and their dates to the second."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from authenticator.enroll import issued_certificate
from authenticator.errors import CertificateMismatch, ClockSkewTooLarge
from authenticator.model import CertificateSpec
from common.formats.pem import encode_block
from common.names import CLIENT_SIGNER, CLIENT_USAGES, SERVING_USAGES
from common.requests.csr import build_pkcs10
from tests.fakes.csr_api import CLIENT_AUTH, SERVER_AUTH, Issuance
from tests.harness.pki import Authority, ec_key

NOW: Final = 1_800_000_000
DAY: Final = 24 * 3600
WEEK: Final = 7 * DAY
WANTED: Final = CertificateSpec(
    node_name="worker-1",
    provider_id="test:///1",
    signer_name=CLIENT_SIGNER,
    usages=CLIENT_USAGES,
    names=(),
    expiration_seconds=None,
    fingerprint="digest",
)
KEY: Final = issued_certificate.new_key()
OTHER: Final = Authority.make("other", ec_key()).pair.certificate
OID_OF_P256: Final = bytes.fromhex("06082a8648ce3d030107")
OID_OF_NO_CURVE: Final = bytes.fromhex("06082a8648ce3d03017f")
VERSION_3, VERSION_8 = (bytes([0xA0, 3, 2, 1, number - 1]) for number in (3, 8))
OID_OF_CONSTRAINTS: Final = bytes.fromhex("0603551d13")
OID_OF_USAGE: Final = bytes.fromhex("0603551d25")


def certificate(usage: x509.ExtendedKeyUsage = CLIENT_AUTH) -> bytes:
    """Return a certificate as requested, valid for a week from now."""
    pkcs10 = build_pkcs10(
        KEY, node_name="worker-1", provider_id="test:///1", dns_names=[], ip_addresses=[]
    )
    return Issuance(backdated=timedelta(0), usage=usage).issue(pkcs10, ec_key(), NOW)


def with_der(change: Callable[[bytes], bytes]) -> bytes:
    """Return the certificate with its DER changed; no test verifies its signature."""
    der = x509.load_pem_x509_certificate(certificate()).public_bytes(Encoding.DER)
    changed = change(der)
    assert changed != der
    return encode_block("CERTIFICATE", changed)


def verify(
    chain: bytes, wanted: CertificateSpec = WANTED, now: float = NOW
) -> issued_certificate.IssuedCertificate:
    """Verify a certificate for the key."""
    pem = issued_certificate.key_pem(KEY)
    return issued_certificate.verify_issued_certificate(chain, pem, wanted, now)


UNREADABLE: Final[dict[str, Callable[[], bytes]]] = {
    "not PEM": lambda: b"junk",
    "no certificate": lambda: issued_certificate.key_pem(KEY),
    "an unknown curve": lambda: with_der(lambda der: der.replace(OID_OF_P256, OID_OF_NO_CURVE)),
    "an unknown version": lambda: with_der(lambda der: der.replace(VERSION_3, VERSION_8, 1)),
    "one extension twice": lambda: with_der(
        lambda der: der.replace(OID_OF_CONSTRAINTS, OID_OF_USAGE)
    ),
    "a subject that is no text": lambda: with_der(
        lambda der: der.replace(b"\x0c\x14system:node:", b"\x03\x14system:node:")
    ),
    "an issuer that is no text": lambda: with_der(
        lambda der: der.replace(b"\x0c\x0acluster CA", b"\x03\x0acluster CA")
    ),
    "an issuer that is not UTF-8": lambda: with_der(
        lambda der: der.replace(b"cluster CA", b"cluster C\xff")
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_unreadable_certificate_is_refused(case: str) -> None:
    verify(certificate())
    with pytest.raises(CertificateMismatch, match="cannot be read"):
        verify(UNREADABLE[case]())


def test_first_certificate_is_that_of_the_node_and_the_others_are_kept() -> None:
    leaf = certificate()
    assert verify(leaf + OTHER).chain == leaf + OTHER
    with pytest.raises(CertificateMismatch, match="another key"):
        verify(OTHER + leaf)


@pytest.mark.parametrize("now", [NOW - DAY, NOW + WEEK + DAY - 1])
def test_dates_a_day_off_the_clock_are_accepted(now: float) -> None:
    issued = verify(certificate(), now=now)
    assert (issued.not_before, issued.not_after) == (NOW, NOW + WEEK)


@pytest.mark.parametrize("now", [NOW - DAY - 1, NOW + WEEK + DAY])
def test_dates_more_than_a_day_off_the_clock_are_refused(now: float) -> None:
    dates = r"valid from 2027-01-15T08:00:00Z to 2027-01-22T08:00:00Z, and this node's clock"
    with pytest.raises(ClockSkewTooLarge, match=dates):
        verify(certificate(), now=now)


@pytest.mark.parametrize(
    ("usages", "purpose", "other"),
    [(CLIENT_USAGES, CLIENT_AUTH, SERVER_AUTH), (SERVING_USAGES, SERVER_AUTH, CLIENT_AUTH)],
    ids=["client", "serving"],
)
def test_each_requested_usage_is_required(
    usages: frozenset[str], purpose: x509.ExtendedKeyUsage, other: x509.ExtendedKeyUsage
) -> None:
    wanted = replace(WANTED, usages=usages)
    verify(certificate(purpose), wanted)
    with pytest.raises(CertificateMismatch, match="is not for"):
        verify(certificate(other), wanted)
