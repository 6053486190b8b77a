"""Trust anchors (E2): accepted authorities and revocation lists, and the effect of a list."""

import re
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from signer.verify.x509.endorsement_certificate import verify_endorsement_certificate
from signer.verify.x509.trust_anchors import load_trust_anchors
from tests.builders import der
from tests.builders.certificates import (
    EXTENSIONS,
    NOW,
    SPELLINGS,
    Issuer,
    anchors,
    authority,
    leaf,
    revocation_list,
    rewritten,
    vendor,
)

ROOT, BELOW = vendor()
ECC_KEY = ec.generate_private_key(ec.SECP256R1()).public_key()


def verify_with(*lists: bytes, serial: int = 7) -> None:
    verify_endorsement_certificate(
        [leaf(BELOW, ECC_KEY, serial=serial)],
        ECC_KEY,
        anchors=anchors(ROOT, BELOW, lists=lists),
        now=NOW,
    )


def test_certificate_that_no_list_of_its_issuer_names_passes() -> None:
    """Lists of its issuer, of the root, and of another key under the issuer's name."""
    other = ec.generate_private_key(ec.SECP256R1())
    verify_with(
        revocation_list(BELOW, 8),
        revocation_list(ROOT, 7),
        revocation_list(BELOW, 7, key=other),
    )


@pytest.mark.parametrize("issuer_name", SPELLINGS.values(), ids=SPELLINGS)
def test_list_counts_however_its_issuer_is_spelled(issuer_name: x509.Name) -> None:
    """The key decides. A list that spelled the name differently was ignored."""
    current = revocation_list(BELOW, 8, issuer_name=issuer_name)
    verify_with(current)
    assert anchors(ROOT, BELOW, lists=(current,)).unmatched_lists == ()


def test_list_that_no_configured_authority_signed_is_reported() -> None:
    """Otherwise the operator believes that it revokes something."""
    stranger = authority("Vendor TPM CA 01")
    lists = (revocation_list(BELOW), revocation_list(stranger), revocation_list(ROOT))
    assert anchors(ROOT, BELOW, lists=lists).unmatched_lists == ("list-1.der",)
    assert anchors(ROOT, lists=lists).unmatched_lists == ("list-0.der", "list-1.der")


def test_expired_list_does_not_matter_next_to_a_current_one() -> None:
    verify_with(revocation_list(BELOW, ends=NOW - timedelta(hours=1)), revocation_list(BELOW))


def test_list_is_valid_from_its_first_to_its_last_second() -> None:
    verify_with(revocation_list(BELOW, begins=NOW))
    verify_with(revocation_list(BELOW, ends=NOW))


def pem(issuer: Issuer) -> bytes:
    return issuer.certificate.public_bytes(Encoding.PEM)


def test_anchors_are_loaded_from_pem_and_der() -> None:
    """One or several per file, with text between them as in vendors' bundles."""
    files = {"bundle.pem": b"Vendor\n" + pem(ROOT) + b"\nTPM CA\n" + pem(BELOW), "r.der": ROOT.der}
    loaded = load_trust_anchors(files, {})
    assert [a.source for a in loaded.roots] == ["bundle.pem (1)", "r.der"]
    assert [a.source for a in loaded.intermediates] == ["bundle.pem (2)"]
    assert loaded.roots[0].fields.not_after == NOW + timedelta(days=3650)
    assert loaded.unreadable == ()
    verify_endorsement_certificate([leaf(BELOW, ECC_KEY)], ECC_KEY, anchors=loaded, now=NOW)
    assert load_trust_anchors({"one.pem": pem(ROOT)}, {}).roots[0].source == "one.pem"


def list_pem(data: bytes) -> bytes:
    return x509.load_der_x509_crl(data).public_bytes(Encoding.PEM)


def test_revocation_lists_are_loaded_from_pem() -> None:
    """One or several per file, with text between them; each list counts."""
    lists = list_pem(revocation_list(ROOT)) + b"\nTPM CA\n" + list_pem(revocation_list(BELOW, 7))
    loaded = load_trust_anchors({"r.der": ROOT.der, "b.der": BELOW.der}, {"lists.pem": lists})
    first, second = loaded.revocation_lists
    assert (first.source, second.source) == ("lists.pem (1)", "lists.pem (2)")
    assert (len(first.loaded), len(second.loaded)) == (0, 1)


@pytest.mark.parametrize("common_name", ["Vendor AAAA CA", "Vendor ZZZZ CA"])
def test_root_is_its_own_issuer(common_name: str) -> None:
    """The order of the names does not matter."""
    below = authority(common_name, ROOT)
    loaded = load_trust_anchors({"root.der": ROOT.der, "below.der": below.der}, {})
    assert [a.source for a in loaded.roots] == ["root.der"]
    assert [a.source for a in loaded.intermediates] == ["below.der"]


def twice(extensions: bytes) -> bytes:
    """Repeat every extension, which OpenSSL accepts."""
    (listed,) = der.parse(extensions).children
    return der.encode(0xA3, der.encode(der.SEQUENCE, listed.content * 2))


def test_unreadable_authority_is_skipped_and_reported() -> None:
    """Vendors' bundles hold such certificates. Without one, fewer certificates are trusted."""
    loaded = load_trust_anchors(
        {
            "r.der": ROOT.der,
            "junk": b"junk",
            "key.pem": b"-----BEGIN PUBLIC KEY-----\n",
            "twice.der": rewritten(BELOW.der, ROOT, EXTENSIONS, twice),
        },
        {},
    )
    assert set(loaded.unreadable) == {
        "key.pem: no PEM block of the expected kind",
        "junk: not a certificate that OpenSSL can read",
        "twice.der: not a certificate that OpenSSL can read",
    }


POINT = x509.UniformResourceIdentifier("http://vendor.example/1.crl")
SCOPE = x509.IssuingDistributionPoint(
    full_name=[POINT],
    relative_name=None,
    only_contains_user_certs=False,
    only_contains_ca_certs=False,
    only_some_reasons=None,
    indirect_crl=False,
    only_contains_attribute_certs=False,
)
UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\5\0")


NO_ROOT = "there is no root certificate among the authorities"
NO_CERTIFICATE = f"{NO_ROOT}; a.der: not a certificate that OpenSSL can read"
OF_VERSION_3 = rewritten(revocation_list(BELOW), BELOW, 0, lambda _: b"\x02\x01\x02")
NO_LIST = "list.der: not a revocation list"
REFUSED: dict[str, tuple[bytes, bytes | None, str]] = {
    "no root": (BELOW.der, None, NO_ROOT),
    "no certificate": (b"junk", None, NO_CERTIFICATE),
    "nothing": (b"", None, NO_CERTIFICATE),
    "no list": (ROOT.der, b"junk", NO_LIST),
    "an empty list": (ROOT.der, b"", NO_LIST),
    "a certificate for a list": (
        ROOT.der,
        pem(ROOT),
        "list.der: no PEM block of the expected kind",
    ),
    "a list of version 3": (ROOT.der, OF_VERSION_3, NO_LIST),
    **{
        f"{what}, critical: {critical}": (
            ROOT.der,
            revocation_list(BELOW, 8, extensions={extension: critical}),
            f"list.der: {what}; configure the full list of its issuer",
        )
        for extension, critical, what in (
            (x509.DeltaCRLIndicator(1), True, "a delta list"),
            (x509.DeltaCRLIndicator(1), False, "a delta list"),
            (SCOPE, True, "a list of one distribution point"),
            (UNKNOWN, True, "a list with the critical extension 1.2.3.4"),
        )
    },
}


@pytest.mark.parametrize(("authority", "crl", "problem"), REFUSED.values(), ids=REFUSED)
def test_bundle_is_refused(authority: bytes, crl: bytes | None, problem: str) -> None:
    """Without a root no certificate would be valid; without a list revoked ones would be."""
    lists = {} if crl is None else {"list.der": crl}
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        load_trust_anchors({"a.der": authority}, lists)


def test_known_extensions_of_full_lists_are_accepted() -> None:
    """Every list of a vendor has a CRL number."""
    verify_with(revocation_list(BELOW, 8, extensions={x509.CRLNumber(1): False, UNKNOWN: False}))
