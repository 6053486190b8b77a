"""Endorsement certificates (E2) that pass, with the quirks of real ones."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from common.public_keys import PublicKey
from signer.kinds.endorsement_key import TrustBasis
from signer.policy.policy import TrustMode
from signer.verify.x509.endorsement_certificate import verify_endorsement_certificate
from signer.verify.x509.trust_anchors import load_trust_anchors
from tests.builders import der
from tests.builders.certificates import (
    EXTENSIONS,
    NOW,
    SERIAL,
    SPKI,
    Digest,
    Issuer,
    anchors,
    authority,
    ca,
    leaf,
    leaf_extensions,
    oaep,
    revocation_list,
    rewritten,
    signed_by_hand,
    under_odd_key,
    vendor,
)
from tests.builders.odd_rsa import BITS_4096, EXPONENT_65539, OddRsa
from tests.builders.scenario import Scenario
from tests.builders.software_tpm import endorsement_key, rsa_key

ROOT, BELOW = vendor()
ECC_KEY = ec.generate_private_key(ec.SECP256R1()).public_key()
RSA_KEY = rsa_key().public_key()


def verify(
    *certificates: bytes, key: PublicKey = ECC_KEY, allow_without_usage: bool = False
) -> None:
    verify_endorsement_certificate(
        certificates,
        key,
        anchors=anchors(ROOT, BELOW),
        now=NOW,
        allow_without_usage=allow_without_usage,
    )


KEYS: dict[str, PublicKey] = {
    "RSA 2048": RSA_KEY,
    "P-256": ECC_KEY,
    "P-384": ec.generate_private_key(ec.SECP384R1()).public_key(),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("issuer", [ROOT, BELOW], ids=["root", "authority below"])
def test_ordinary_certificate_passes(key: PublicKey, issuer: Issuer) -> None:
    """Signed by a root, or by an intermediate."""
    verify(leaf(issuer, key), key=key)


def test_intermediates_may_come_from_the_tpm() -> None:
    """NV holds them with the certificate, in any order."""
    one = authority("Vendor TPM CA 02", ROOT)
    two = authority("Vendor TPM CA 03", one)
    certificate = leaf(two, ECC_KEY)
    for provided in ([certificate, two.der, one.der], [one.der, two.der, certificate]):
        verify(*provided)


def test_one_valid_certificate_for_the_key_is_enough() -> None:
    """A TPM has a certificate for each endorsement key; sixteen are read."""
    good, expired = leaf(BELOW, ECC_KEY), leaf(BELOW, ECC_KEY, ends=NOW - timedelta(days=1))
    authoritys = leaf(BELOW, ECC_KEY, extensions={**without(x509.BasicConstraints), ca(): True})
    verify(expired, authoritys, good)
    verify(leaf(ROOT, RSA_KEY), *[b"junk"] * 14, good)


def wrapped_in_octet_string(certificate: bytes) -> bytes:
    """Wrap the certificate, as some firmware does (Keylime #1891)."""
    return der.encode(der.OCTET_STRING, certificate)


def with_nv_header(certificate: bytes) -> bytes:
    """Add the header TCG_PCCLIENT_STORED_CERT."""
    size = (len(certificate) + 2).to_bytes(2, "big")
    return b"\x10\x01\x00" + size + b"\x10\x02" + certificate


WRAPPERS: dict[str, Callable[[bytes], bytes]] = {
    "trailing zeros": lambda c: c + bytes(300),
    "trailing ones": lambda c: c + b"\xff" * 300,
    "OCTET STRING": wrapped_in_octet_string,
    "OCTET STRING with padding": lambda c: wrapped_in_octet_string(c + bytes(9)) + bytes(9),
    "NV header": with_nv_header,
    "NV header and padding": lambda c: with_nv_header(c) + b"\xff" * 99,
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_nv_header_wrapper_and_padding_are_removed(wrap: Callable[[bytes], bytes]) -> None:
    verify(wrap(leaf(BELOW, ECC_KEY)))


def extension(oid: str, value: bytes, *, flag: bytes = b"") -> bytes:
    identifier = x509.ObjectIdentifier(oid)
    usage_of = x509.ExtendedKeyUsage([identifier]).public_bytes()
    encoded = der.parse(usage_of).children[0].der
    return der.encode(der.SEQUENCE, encoded + flag + der.encode(der.OCTET_STRING, value))


EXPLICIT_3 = 0xA3


def explicit_defaults(_: bytes) -> bytes:
    """Encode the defaults cA FALSE and critical FALSE, as Intel does."""
    constraints = der.encode(der.SEQUENCE, b"\x01\x01\x00")
    written = extension("2.5.29.19", constraints, flag=b"\x01\x01\x00")
    return der.encode(EXPLICIT_3, der.encode(der.SEQUENCE, written))


def unsorted_san(_: bytes) -> bytes:
    """Put several attributes into one unsorted RDN, as Nuvoton does."""
    attributes = [
        der.encode(
            der.SEQUENCE,
            der.encode(der.OBJECT_IDENTIFIER, bytes.fromhex("67810502") + bytes([number]))
            + der.encode(der.PRINTABLE_STRING, text),
        )
        for number, text in ((3, b"id:13"), (1, b"id:4E544300"), (2, b"NPCT6xx"))
    ]
    rdn = der.encode(der.SET, b"".join(attributes))
    directory = der.encode(0xA4, der.encode(der.SEQUENCE, rdn))
    written = extension("2.5.29.17", der.encode(der.SEQUENCE, directory), flag=b"\x01\x01\xff")
    return der.encode(EXPLICIT_3, der.encode(der.SEQUENCE, written))


OAEP_ISSUERS = {
    "root": ROOT,
    "authority below": BELOW,
    "RSA authority": authority("Vendor TPM CA 91", ROOT, key=rsa_key(number=3)),
}


@pytest.mark.parametrize("issuer", OAEP_ISSUERS.values(), ids=OAEP_ISSUERS)
def test_oaep_key_is_read_as_an_rsa_key(issuer: Issuer) -> None:
    """`cryptography` and OpenSSL do not decode keys named id-RSAES-OAEP."""
    verify(oaep_leaf(issuer), issuer.der, key=RSA_KEY)


def test_oaep_certificate_of_a_root_needs_no_other_certificate() -> None:
    verify(oaep_leaf(ROOT), key=RSA_KEY)


def oaep_leaf(issuer: Issuer, **changes: Any) -> bytes:  # noqa: ANN401 - those of `leaf`
    return rewritten(leaf(issuer, RSA_KEY, **changes), issuer, SPKI, oaep)


DIGESTS: list[type[Digest]] = [hashes.SHA256, hashes.SHA384, hashes.SHA512]


@pytest.mark.parametrize("digest", DIGESTS, ids=lambda digest: digest.name)
@pytest.mark.parametrize("issuer", OAEP_ISSUERS.values(), ids=OAEP_ISSUERS)
def test_signatures_with_sha256_and_better_pass(issuer: Issuer, digest: type[Digest]) -> None:
    """RSA and ECDSA, whether OpenSSL or this project verifies the last link."""
    certificate = leaf(issuer, RSA_KEY, digest=digest)
    verify(certificate, issuer.der, key=RSA_KEY)
    verify(rewritten(certificate, issuer, SPKI, oaep, digest), issuer.der, key=RSA_KEY)


UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\5\0")
OAEP_EXTENSIONS: dict[str, dict[x509.ExtensionType, bool]] = {
    "all critical": dict.fromkeys(leaf_extensions(RSA_KEY), True),
    "an unknown one": {**leaf_extensions(RSA_KEY), UNKNOWN: False},
}


@pytest.mark.parametrize("extensions", OAEP_EXTENSIONS.values(), ids=OAEP_EXTENSIONS)
def test_oaep_certificate_may_have_the_usual_extensions(
    extensions: dict[x509.ExtensionType, bool],
) -> None:
    """OpenSSL accepts them in other certificates."""
    verify(leaf(BELOW, RSA_KEY, extensions=extensions), key=RSA_KEY)
    verify(oaep_leaf(BELOW, extensions=extensions), key=RSA_KEY)


@pytest.mark.parametrize("end", ["begins", "ends"])
def test_oaep_certificate_is_valid_from_its_first_to_its_last_second(end: str) -> None:
    """RFC 5280, section 4.1.2.5: the validity includes both."""
    verify(oaep_leaf(BELOW, **{end: NOW}), key=RSA_KEY)


MAKERS = pytest.mark.parametrize(
    "make", [lambda issuer: leaf(issuer, RSA_KEY), oaep_leaf], ids=["ordinary key", "OAEP key"]
)


@MAKERS
def test_renewed_certificate_of_an_authority_is_used(make: Callable[[Issuer], bytes]) -> None:
    """The TPM still holds the expired certificate of the authority; the new one is configured."""
    yesterday = NOW - timedelta(days=1)
    old = authority("Vendor TPM CA 93", ROOT, key=rsa_key(number=3), ends=yesterday)
    new = authority("Vendor TPM CA 93", ROOT, key=rsa_key(number=3))
    provided = [make(new), old.der]
    verify_endorsement_certificate(provided, RSA_KEY, anchors=anchors(ROOT, new), now=NOW)


@MAKERS
@pytest.mark.parametrize("number", ["94", "96"])
def test_issuer_is_found_by_name_and_key(make: Callable[[Issuer], bytes], number: str) -> None:
    """An authority with the same key and another name is not the issuer."""
    issuer = authority("Vendor TPM CA 95", ROOT)
    other = authority(f"Vendor TPM CA {number}", ROOT, key=issuer.key)
    verify(make(issuer), other.der, issuer.der, key=RSA_KEY)


def test_signature_of_a_root_may_use_any_algorithm() -> None:
    """A root is trusted by configuration. Vendors' oldest roots are signed with SHA-1."""
    key = ROOT.key
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    sha1 = ec.ECDSA(hashes.SHA1())  # noqa: S303 - accepted here
    old = signed_by_hand(ROOT.der, "ecdsa-sha1", lambda tbs: key.sign(tbs, sha1))
    configured = load_trust_anchors({"root.der": old}, {})
    verify_endorsement_certificate([leaf(ROOT, ECC_KEY)], ECC_KEY, anchors=configured, now=NOW)


@pytest.mark.parametrize(
    "key",
    [EXPONENT_65539, replace(EXPONENT_65539, exponent=2**32 - 5), BITS_4096],
    ids=["exponent of 17 bits", "exponent of 32 bits", "modulus of 4096 bits"],
)
def test_oaep_certificate_is_verified_with_keys_of_authorities(key: OddRsa) -> None:
    """Authorities have no longer keys."""
    verify(*under_odd_key(ROOT, RSA_KEY, key), key=RSA_KEY)


@pytest.mark.parametrize("change", [explicit_defaults, unsorted_san])
def test_certificate_that_is_not_der_passes(change: Callable[[bytes], bytes]) -> None:
    """`cryptography` refuses one in seven real certificates for such reasons."""
    certificate = rewritten(leaf(BELOW, ECC_KEY), BELOW, EXTENSIONS, change)
    with pytest.raises(ValueError, match="parsing"):
        x509.load_der_x509_certificate(certificate).extensions  # noqa: B018 - parsed on access
    verify(certificate, allow_without_usage=True)


@pytest.mark.parametrize("number", [b"\0", b"\1" + bytes(24)], ids=["zero", "25 octets"])
def test_serial_number_that_libraries_refuse_passes_where_a_list_exists(number: bytes) -> None:
    """ChromeOS's certificates have more than the 20 octets of RFC 5280."""
    written = der.encode(der.INTEGER, number)
    certificate = rewritten(leaf(BELOW, ECC_KEY), BELOW, SERIAL, lambda _: written)
    listed = anchors(ROOT, BELOW, lists=(revocation_list(BELOW, 5),))
    verify_endorsement_certificate([certificate], ECC_KEY, anchors=listed, now=NOW)


def without(*kinds: type[x509.ExtensionType]) -> dict[x509.ExtensionType, bool]:
    return {e: c for e, c in leaf_extensions(ECC_KEY).items() if not isinstance(e, kinds)}


OPTIONAL: dict[str, dict[x509.ExtensionType, bool]] = {
    "no purpose": without(x509.ExtendedKeyUsage),
    "no key usage": without(x509.KeyUsage),
    "no basic constraints": without(x509.BasicConstraints),
    "purpose is critical": {
        **without(x509.ExtendedKeyUsage),
        x509.ExtendedKeyUsage([x509.ObjectIdentifier("2.23.133.8.1")]): True,
    },
    "a purpose more": {
        **without(x509.ExtendedKeyUsage),
        x509.ExtendedKeyUsage(
            [x509.ObjectIdentifier("2.23.133.8.1"), x509.ObjectIdentifier("1.2.3.4")]
        ): False,
    },
}


@pytest.mark.parametrize("extensions", OPTIONAL.values(), ids=OPTIONAL)
def test_optional_extensions_may_be_absent(
    extensions: dict[x509.ExtensionType, bool],
) -> None:
    """The TCG profiles have changed over the years."""
    verify(leaf(BELOW, ECC_KEY, extensions=extensions))


def test_authority_with_path_length_0_may_certify_leaves() -> None:
    last = authority("last", ROOT, extensions={ca(0): True})
    verify(leaf(last, ECC_KEY), last.der)


def test_validity_is_checked_at_the_time_of_the_argument() -> None:
    """Not at the time of the machine: this certificate was valid for a day, long ago."""
    then, day = NOW - timedelta(days=5000), timedelta(days=1)
    root = authority("root", begins=then - day, ends=then + day)
    certificate = leaf(root, ECC_KEY, begins=then - day, ends=then + day)
    verify_endorsement_certificate([certificate], ECC_KEY, anchors=anchors(root), now=then)


# Policies


def certified(trust: TrustMode, *certificates: bytes, recorded: bool) -> Scenario:
    """Make a scenario with a policy that needs a certificate."""
    scenario = Scenario(ek=endorsement_key(), certificates=certificates)
    scenario.change_policy("endorsement_key", trust=trust)
    scenario.anchors = anchors(ROOT, BELOW)
    key = scenario.ek.private.public_key()
    scenario.certificates = certificates or (leaf(BELOW, key),)
    if not recorded:
        scenario.change_machine(registered_keys=())
    return scenario


def test_e2_certificate_is_the_basis_of_a_first_claim() -> None:
    scenario = certified(TrustMode.CERTIFIED, recorded=False)
    scenario.verify_offer()
    assert scenario.verify_answer().holder.basis is TrustBasis.CERTIFICATE


@pytest.mark.parametrize("trust", [TrustMode.CERTIFIED, TrustMode.REGISTERED_AND_CERTIFIED])
def test_e2_record_is_the_basis_if_there_is_also_a_certificate(trust: TrustMode) -> None:
    """A record names the machine of the TPM."""
    assert certified(trust, recorded=True).verify_answer().holder.basis is TrustBasis.REGISTERED


@pytest.mark.parametrize("trust", [TrustMode.REGISTERED, TrustMode.FIRST_USE])
def test_e2_other_policies_ignore_certificates(trust: TrustMode) -> None:
    certified(trust, b"junk", recorded=trust is TrustMode.REGISTERED).verify_answer()
