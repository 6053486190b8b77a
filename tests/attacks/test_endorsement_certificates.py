"""Certificates for other uses, of other authorities, or of another time.

If a vendor's CA is the basis of trust, an attacker can offer everything that the CA ever signed:
certificates of other TPMs, of attestation keys, of servers, of non-authorities, with broken hashes,
or revoked ones. OpenSSL accepts many of them; the signer must not (E2). The Machine has no record,
so the certificate alone decides.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import cache

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from common.errors import AttestationError
from common.public_keys import PublicKey
from signer.errors import (
    EndorsementCertificateMalformed,
    EndorsementCertificateMismatch,
    EndorsementCertificateMissing,
    EndorsementCertificateNotAllowed,
    EndorsementCertificateOutOfDate,
    EndorsementCertificateRevoked,
    EndorsementCertificateUntrusted,
    EndorsementKeyMismatch,
    EndorsementKeyNotRegistered,
    OperatorActionRequired,
    RevocationListOutOfDate,
)
from signer.policy.policy import TrustMode
from signer.verify.x509.trust_anchors import NO_ANCHORS
from tests.attacks.certified_nodes import BELOW, EK, ROOT, RSA_EK, certified, configured, ordinary
from tests.attacks.runner import Attack, Mutation, Table, assert_issued, assert_refused, attacks
from tests.builders import der
from tests.builders.certificates import (
    EXTENSIONS,
    NEXT_UPDATE,
    NOW,
    SERIAL,
    SPELLINGS,
    SPKI,
    VERSION,
    Issuer,
    anchors,
    authority,
    ca,
    leaf,
    leaf_extensions,
    name,
    oaep,
    revocation_list,
    rewritten,
    san,
    signed_by_hand,
    under_odd_key,
    usage,
)
from tests.builders.odd_rsa import BITS_4097, EXPONENT_3, EXPONENT_65539, ROCA
from tests.builders.scenario import Scenario, default_keys, record_of
from tests.builders.software_tpm import PrivateKey, endorsement_key, rsa_key

STRANGER = endorsement_key()
DAY = timedelta(days=1)
SHA1, MD5 = hashes.SHA1(), hashes.MD5()  # noqa: S303 - refused, which is the point

Extensions = dict[x509.ExtensionType, bool]
UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\5\0")


def certified_rsa() -> Scenario:
    """Join by the certificate of an RSA key."""
    ek, certificates = endorsement_key(0), (ordinary(by_rsa=True),)
    scenario = Scenario(ek=ek, anchors=configured(), certificates=certificates)
    scenario.change_policy("endorsement_key", trust=TrustMode.CERTIFIED)
    scenario.change_machine(registered_keys=())
    return scenario


def both() -> Scenario:
    """Join by record and certificate."""
    scenario = Scenario(anchors=configured(), certificates=(ordinary(),))
    scenario.change_policy("endorsement_key", trust=TrustMode.REGISTERED_AND_CERTIFIED)
    return scenario


def sent(*certificates: bytes) -> Mutation:
    """Put these certificates into the TPM."""

    def mutate(scenario: Scenario) -> None:
        scenario.certificates = certificates

    return mutate


def with_lists(*lists: bytes) -> Mutation:
    """Configure revocation lists."""

    def mutate(scenario: Scenario) -> None:
        scenario.anchors = configured(*lists)

    return mutate


def without_anchors(scenario: Scenario) -> None:
    """Configure no authority."""
    scenario.anchors = NO_ANCHORS


def unrecorded(scenario: Scenario) -> None:
    """Remove the record."""
    scenario.change_machine(registered_keys=())


def recorded_for_another(scenario: Scenario) -> None:
    """Record another key."""
    scenario.change_machine(registered_keys=(record_of(STRANGER),))


def without(*kinds: type[x509.ExtensionType]) -> Extensions:
    """Return the ordinary extensions except for some."""
    return {e: c for e, c in leaf_extensions(EK).items() if not isinstance(e, kinds)}


def purposes(*oids: str) -> Extensions:
    """Certify for these purposes."""
    eku = x509.ExtendedKeyUsage([x509.ObjectIdentifier(oid) for oid in oids])
    return {**without(x509.ExtendedKeyUsage), eku: False}


def of_version_1() -> Mutation:
    """Omit the version, which makes extensions meaningless."""
    return sent(rewritten(ordinary(), BELOW, VERSION, lambda _: b""))


def authority_of_version_1() -> Mutation:
    """Omit the version of the authority between."""
    between = authority("between", ROOT)
    return sent(leaf(between, EK), rewritten(between.der, ROOT, VERSION, lambda _: b""))


def usages(*names: str) -> Extensions:
    """Certify for these usages."""
    return {**without(x509.KeyUsage), usage(*names): True}


def as_leaf(extensions: Extensions) -> Mutation:
    """Certify the key with these extensions."""
    return sent(leaf(BELOW, EK, extensions=extensions))


def with_value(kind: type[x509.ExtensionType], value: bytes) -> Mutation:
    """Certify the key with another value of an extension."""
    return as_leaf({**without(kind), x509.UnrecognizedExtension(kind.oid, value): False})


def under(extensions: Extensions | None = None, **changes: object) -> Mutation:
    """Certify the key by an authority of these extensions, below the root."""
    between = authority("between", ROOT, extensions=extensions, **changes)  # type: ignore[arg-type]
    return sent(leaf(between, EK), between.der)


def constrained(*, excluded: bool) -> x509.NameConstraints:
    """Allow other directory names than a TPM has, or forbid those that it has."""
    subtrees = [x509.DirectoryName(name("elsewhere"))]
    every = [x509.DirectoryName(x509.Name([]))]
    return x509.NameConstraints(
        permitted_subtrees=None if excluded else subtrees,
        excluded_subtrees=every if excluded else None,
    )


def too_deep() -> Mutation:
    """Put an authority below one with path length 0."""
    last = authority("last", ROOT, extensions={ca(0): True})
    below = authority("below", last)
    return sent(leaf(below, EK), below.der, last.der)


def leaf_as_issuer() -> Mutation:
    """Certify the key by another TPM's certified key, as if that were an authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    other = Issuer(
        certificate=x509.load_der_x509_certificate(leaf(BELOW, key.public_key())), key=key
    )
    return sent(leaf(other, EK), other.der)


def stranger_sent_along() -> Mutation:
    """Send a stranger's root."""
    stranger = authority("Stranger CA")
    return sent(leaf(stranger, EK), stranger.der)


def chain_of_strangers() -> Mutation:
    """Send a stranger's whole chain."""
    root = authority("Stranger Root CA")
    below = authority("Stranger CA", root)
    return sent(leaf(below, EK), below.der, root.der)


def namesake() -> Issuer:
    """Make an authority with the vendor's name and another key."""
    return authority("Vendor TPM CA 01", authority("Vendor Root CA"))


def self_signed(key: PrivateKey) -> bytes:
    """Certify the key by itself."""
    return authority("TPM", key=key, extensions=leaf_extensions(key.public_key())).der


def signed_with(
    digest: hashes.SHA1 | hashes.MD5 | hashes.SHA256,
    *,
    pss: bool = False,
    change_spki: Callable[[bytes], bytes] = bytes,
    key: PublicKey = EK,
) -> Mutation:
    """Sign with parameters that libraries refuse, by an authority below the root."""
    issuer = rsa_authority()
    signer = issuer.key
    assert isinstance(signer, rsa.RSAPrivateKey)
    pad = padding.PSS(padding.MGF1(digest), 32) if pss else padding.PKCS1v15()
    certificate = signed_by_hand(
        leaf(issuer, key), digest.name, lambda tbs: signer.sign(tbs, pad, digest), change_spki
    )
    return sent(certificate, issuer.der)


@cache
def rsa_authority() -> Issuer:
    """Make an authority of an RSA key."""
    return authority("Vendor TPM CA 90", ROOT, key=rsa_key(number=2))


def changed(certificate: bytes, at: int = -1) -> bytes:
    """Flip a bit."""
    position = at % len(certificate)
    flipped = bytes([certificate[position] ^ 1])
    return certificate[:position] + flipped + certificate[position + 1 :]


def edited(place: int, change: Callable[[bytes], bytes]) -> Mutation:
    """Change one part of what is signed, by the vendor itself."""
    return sent(rewritten(ordinary(), BELOW, place, change))


def twice(extensions: bytes) -> bytes:
    """Repeat every extension."""
    content = der.parse(extensions).children[0].content
    return der.encode(0xA3, der.encode(der.SEQUENCE, content + content))


def written(oid: bytes, value: bytes) -> bytes:
    """Write one critical extension."""
    content = oid + b"\x01\x01\xff" + der.encode(der.OCTET_STRING, value)
    return der.encode(0xA3, der.encode(der.SEQUENCE, der.encode(der.SEQUENCE, content)))


def no_bits(_: bytes) -> bytes:
    """Write a key usage without bits."""
    return written(bytes.fromhex("0603551d0f"), b"\x03\x00")


def oaep_leaf(issuer: Issuer, **changes: object) -> bytes:
    """Certify an RSA key under its other name."""
    return rewritten(leaf(issuer, RSA_EK, **changes), issuer, SPKI, oaep)  # type: ignore[arg-type]


def oaep_under(extensions: Extensions, *above: Issuer) -> Mutation:
    """Certify an RSA key under its other name, by an authority of these extensions."""
    between = authority("between", above[0] if above else ROOT, extensions=extensions)
    return sent(oaep_leaf(between), between.der, *(issuer.der for issuer in above))


def renamed(certificate: bytes, algorithm: str) -> Mutation:
    """Name another algorithm in the outer part, which no signature covers."""
    tbs, _, bits = der.parse(certificate).children
    return sent(der.encode(der.SEQUENCE, tbs.der + bytes.fromhex(algorithm) + bits.der))


def under_sha1(certify: Callable[[Issuer], bytes]) -> Mutation:
    """Certify the key by an authority that SHA-1 signed: it may be one of two that collide."""
    between, root = authority("between", ROOT), ROOT.key
    assert isinstance(root, ec.EllipticCurvePrivateKey)
    sha1 = ec.ECDSA(SHA1)
    old = signed_by_hand(between.der, "ecdsa-sha1", lambda tbs: root.sign(tbs, sha1))
    return sent(certify(between), old)


def under_other_name(certify: Callable[[Issuer], bytes]) -> Mutation:
    """Send an authority with the key of the issuer and another name."""
    issuer = authority("between", ROOT)
    return sent(certify(issuer), authority("other", ROOT, key=issuer.key).der)


def under_root(**changes: object) -> Mutation:
    """Certify the key below a configured root of these dates."""

    def mutate(scenario: Scenario) -> None:
        root = authority("root", **changes)  # type: ignore[arg-type]
        between = authority("between", root)
        scenario.anchors = anchors(root, between)
        scenario.certificates = (leaf(between, EK),)

    return mutate


def revoked_below_an_authority_of_the_tpm(scenario: Scenario) -> None:
    """Configure a list of an authority that only the TPM holds."""
    between = authority("between", ROOT)
    scenario.anchors = configured(revocation_list(between, 7))
    scenario.certificates = (leaf(between, EK), between.der)


def unlistable(scenario: Scenario) -> None:
    """Use a negative serial number, where the operator has a list."""
    scenario.anchors = configured(revocation_list(BELOW, 5))
    scenario.certificates = (rewritten(ordinary(), BELOW, SERIAL, lambda _: b"\2\1\xfb"),)


def key_of_numbers(spki: bytes) -> Callable[[bytes], bytes]:
    """Certify another key."""
    return lambda _: spki


def attack(
    name: str,
    reason: type[AttestationError],
    mutate: Mutation,
    scenario: Callable[[], Scenario] = certified,
    says: str = "",
) -> Attack:
    """Return an attack."""
    return Attack(name, reason, mutate, scenario, says=says)


NOT_ITS_OWN = [
    *attacks(
        {
            EndorsementCertificateMissing: {"no certificate": sent()},
            EndorsementKeyMismatch: {"a certificate against a record": recorded_for_another},
            EndorsementCertificateMismatch: {
                "a certificate of the TPM next door": sent(
                    leaf(BELOW, STRANGER.private.public_key())
                ),
                "a certificate of the attestation key": sent(
                    leaf(BELOW, default_keys()[1].private.public_key())
                ),
                "a certificate of the kubelet's key": sent(
                    leaf(BELOW, default_keys()[2].public_key())
                ),
                "a certificate of an RSA key": sent(leaf(BELOW, RSA_EK)),
                "the authority's own certificate": sent(BELOW.der),
                "the root's own certificate": sent(ROOT.der),
                "the right one after sixteen others": sent(*[leaf(BELOW, RSA_EK)] * 16, ordinary()),
                "a certificate of a ROCA key": edited(SPKI, key_of_numbers(ROCA.spki())),
                "a certificate of a key of exponent 3": edited(
                    SPKI, key_of_numbers(EXPONENT_3.spki())
                ),
                "a certificate of a key on P-521": sent(
                    leaf(BELOW, ec.generate_private_key(ec.SECP521R1()).public_key())
                ),
            },
        },
        scenario=certified,
    ),
    Attack("no certificate, a record alone", EndorsementCertificateMissing, sent(), both),
    Attack("no record, a certificate alone", EndorsementKeyNotRegistered, unrecorded, both),
    Attack(
        "a record, the certificate of another",
        EndorsementCertificateMismatch,
        sent(leaf(BELOW, RSA_EK)),
        both,
    ),
]
UNTRUSTED: Table = {
    EndorsementCertificateUntrusted: {
        "a stranger's authority": sent(leaf(authority("Stranger CA"), EK)),
        "a stranger's authority, sent along": stranger_sent_along(),
        "a chain to a stranger's root, sent along": chain_of_strangers(),
        "signed by its own kind of key": sent(self_signed(default_keys()[0].private)),
        "another TPM of the vendor's for an authority": leaf_as_issuer(),
        "no authority configured": without_anchors,
        "an authority that is not sent": sent(leaf(authority("Vendor TPM CA 77", ROOT), EK)),
        "an authority of another name": under_other_name(lambda issuer: leaf(issuer, EK)),
    },
}
BELOW_RENEWED = namesake()
NEW_KEY = x509.AuthorityKeyIdentifier.from_issuer_public_key(BELOW_RENEWED.key.public_key())
assert NEW_KEY.key_identifier is not None
FORGED = [
    attack(name, EndorsementCertificateUntrusted, mutate, says=f"it needs the authority CN={ca}")
    for name, mutate, ca in (
        ("a stranger of the authority's name", sent(leaf(namesake(), EK)), "Vendor TPM CA 01"),
        (
            "a stranger of the root's name",
            sent(leaf(authority("Vendor Root CA"), EK)),
            "Vendor Root CA",
        ),
        (
            "an authority's new key",
            sent(leaf(BELOW_RENEWED, EK, extensions={**leaf_extensions(EK), NEW_KEY: False})),
            f"Vendor TPM CA 01 whose key has the identifier {NEW_KEY.key_identifier.hex(':')}",
        ),
        ("one bit of the signature", sent(changed(ordinary())), "Vendor TPM CA 01"),
        ("signed with PSS, PKCS#1 named", signed_with(hashes.SHA256(), pss=True), "Vendor"),
    )
]
ECDSA_SHA384, NO_DIGEST = "300a06082a8648ce3d040303", "300d06092a864886f70d0101010500"
ALGORITHMS = [
    attack(
        name,
        EndorsementCertificateNotAllowed,
        mutate,
        certified_rsa if "OAEP" in name else certified,
        "must be signed with RSA or ECDSA and SHA-256 or better",
    )
    for name, mutate in {
        "signed with SHA-1": signed_with(SHA1),
        "signed with MD5": signed_with(MD5),
        "another outer algorithm": renamed(ordinary(), ECDSA_SHA384),
        "an outer algorithm without a digest": renamed(ordinary(), NO_DIGEST),
        "authority: signed with SHA-1": under_sha1(lambda issuer: leaf(issuer, EK)),
        "OAEP key: signed with SHA-1": signed_with(SHA1, change_spki=oaep, key=RSA_EK),
        "OAEP key: another outer algorithm": renamed(oaep_leaf(BELOW), ECDSA_SHA384),
        "OAEP key: an outer algorithm without a digest": renamed(oaep_leaf(BELOW), NO_DIGEST),
        "OAEP key: under an authority signed with SHA-1": under_sha1(oaep_leaf),
    }.items()
]
CA_EXTENSIONS: Extensions = {**without(x509.BasicConstraints), ca(): True}
EXPIRED = leaf(BELOW, EK, ends=NOW - DAY)
USAGES: Table = {
    EndorsementCertificateNotAllowed: {
        **{
            name: as_leaf(extensions)
            for name, extensions in {
                "an authority's": CA_EXTENSIONS,
                "an authority's of path length 0": {**without(x509.BasicConstraints), ca(0): True},
                "for attestation keys": purposes("2.23.133.8.3"),
                "for platform certificates": purposes("2.23.133.8.2"),
                "for servers": purposes("1.3.6.1.5.5.7.3.1"),
                "for clients": purposes("1.3.6.1.5.5.7.3.2"),
                "for code": purposes("1.3.6.1.5.5.7.3.3"),
                "for any purpose": purposes("2.5.29.37.0"),
                "for signatures": usages("digital_signature"),
                "for encipherment, of an ECC key": usages("key_encipherment"),
                "for agreement and certificates": usages("key_agreement", "key_cert_sign"),
                "with an unknown critical extension": {
                    **leaf_extensions(EK),
                    UNKNOWN: True,
                },
            }.items()
        },
        "an authority's before an expired one": sent(
            leaf(BELOW, EK, extensions=CA_EXTENSIONS), EXPIRED
        ),
        "of version 1": of_version_1(),
        "of version 2": edited(VERSION, lambda _: b"\xa0\3\2\1\1"),
    },
}
AUTHORITIES: Table = {
    EndorsementCertificateNotAllowed: {
        f"authority: {name}": mutate
        for name, mutate in {
            "CA:FALSE": under({x509.BasicConstraints(ca=False, path_length=None): True}),
            "that does not say": under({usage("key_cert_sign"): True}),
            "that may not sign": under({ca(): True, usage("crl_sign"): True}),
            "for other names": under({ca(): True, constrained(excluded=False): True}),
            "for no names": under({ca(): True, constrained(excluded=True): True}),
            "one too many": too_deep(),
            "of version 1": authority_of_version_1(),
            "of RSA 1024": under(key=rsa_key(1024)),
            "of RSA 2047": under(key=rsa_key(2047)),
            "of exponent 3": under(key=rsa.generate_private_key(3, 2048)),
            "of P-224": under(key=ec.generate_private_key(ec.SECP224R1())),
            "of a known private key": under(key=ec.derive_private_key(1, ec.SECP256R1())),
            "with an unknown critical extension": under(
                {
                    ca(): True,
                    UNKNOWN: True,
                }
            ),
        }.items()
    },
}
TIMES = [
    attack(name, EndorsementCertificateOutOfDate, mutate, says=f"{level}: ")
    for level, mutations in {
        "the endorsement certificate": {
            "expired yesterday": sent(EXPIRED),
            "expired a second ago": sent(leaf(BELOW, EK, ends=NOW - timedelta(seconds=1))),
            "expired before an authority's": sent(
                EXPIRED, leaf(BELOW, EK, extensions=CA_EXTENSIONS)
            ),
            "valid tomorrow": sent(leaf(BELOW, EK, begins=NOW + DAY)),
        },
        "authority 1 above it": {
            "an authority expired": under(ends=NOW - DAY),
            "an authority valid tomorrow": under(begins=NOW + DAY),
        },
        "authority 2 above it": {
            "a root expired": under_root(ends=NOW - DAY),
            "a root valid tomorrow": under_root(begins=NOW + DAY),
        },
    }.items()
    for name, mutate in mutations.items()
]
MALFORMED: Table = {
    EndorsementCertificateMalformed: {
        "nothing": sent(b""),
        "zeros": sent(bytes(1024)),
        "ones, as in empty NV": sent(b"\xff" * 1024),
        "cut short": sent(ordinary()[:-1]),
        "a header alone": sent(b"\x10\x01\x00\x00\x00\x10\x02"),
        "an empty OCTET STRING": sent(b"\x04\0"),
        "an indefinite length": sent(b"\x30\x80" + ordinary()[4:] + b"\0\0"),
        "a length of four gigabytes": sent(b"\x30\x84\xff\xff\xff\xff" + ordinary()[4:]),
        "PEM": sent(b"-----BEGIN CERTIFICATE-----\n"),
        "a public key": sent(ROCA.spki()),
        "extensions twice": edited(EXTENSIONS, twice),
        "a key usage of no bits": edited(EXTENSIONS, no_bits),
        "a serial number with a needless zero": edited(SERIAL, lambda _: b"\2\2\0\5"),
        "seventeen times nothing": sent(*[b""] * 17),
    },
}
LONG = der.encode(der.OBJECT_IDENTIFIER, b"\x55\x1d" + b"\xff" * 3000 + b"\x7f")
"""Python raises ValueError when it formats this number of more than 4300 digits."""
VALUES = [
    attack(name, EndorsementCertificateMalformed, mutate, says=rule)
    for rule, mutations in {
        "exactly one element": {
            f"{kind.__name__} of {what}": with_value(kind, value)
            for kind in (x509.ExtendedKeyUsage, x509.KeyUsage, x509.BasicConstraints)
            for what, value in {"nothing": b"", "two values": b"\x30\0\x30\0"}.items()
        },
        "too long": {
            "a purpose of 3000 bytes": with_value(
                x509.ExtendedKeyUsage, der.encode(der.SEQUENCE, LONG)
            )
        },
    }.items()
    for name, mutate in mutations.items()
]
REVOKED: Table = {
    EndorsementCertificateRevoked: {
        "revoked": with_lists(revocation_list(BELOW, 7)),
        "its authority revoked": with_lists(revocation_list(ROOT, BELOW.certificate.serial_number)),
        "revoked by a list that is out of date": with_lists(
            revocation_list(BELOW, 7, begins=NOW - 9 * DAY, ends=NOW - DAY)
        ),
        **{
            f"revoked by a list with another name of its issuer: {what}": with_lists(
                revocation_list(BELOW, 7, issuer_name=spelled)
            )
            for what, spelled in SPELLINGS.items()
        },
        "revoked below an authority of the TPM": revoked_below_an_authority_of_the_tpm,
    },
    EndorsementCertificateNotAllowed: {"a serial number that no list can name": unlistable},
    RevocationListOutOfDate: {
        "a list that is out of date": with_lists(
            revocation_list(BELOW, 1, begins=NOW - 9 * DAY, ends=NOW - DAY)
        ),
        "a list without an end": with_lists(
            rewritten(revocation_list(BELOW), BELOW, NEXT_UPDATE, lambda _: b"")
        ),
        "a list of tomorrow": with_lists(
            revocation_list(BELOW, 1, begins=NOW + DAY, ends=NOW + 9 * DAY)
        ),
    },
}
P224 = authority("Vendor TPM CA 92", ROOT, key=ec.generate_private_key(ec.SECP224R1()))
EXPIRED_CA = authority("Vendor TPM CA 93", ROOT, ends=NOW - DAY)
OAEP: Table = {
    EndorsementCertificateUntrusted: {
        "OAEP key: a stranger of the authority's name": sent(oaep_leaf(namesake())),
        "OAEP key: one bit of the signature": sent(changed(oaep_leaf(BELOW))),
        "OAEP key: a stranger of the name of an RSA authority": sent(
            oaep_leaf(replace(rsa_authority(), key=rsa_key(number=4))), rsa_authority().der
        ),
        "OAEP key: under a key on P-224": sent(oaep_leaf(P224), P224.der),
        "OAEP key: under an authority of another name": under_other_name(oaep_leaf),
        **{
            f"OAEP key: under {what}": sent(*under_odd_key(ROOT, RSA_EK, key))
            for what, key in {
                "an exponent over 32 bits": replace(EXPONENT_65539, exponent=2**32 + 1),
                "an exponent of 2001 bits": replace(EXPONENT_65539, exponent=2**2000 + 1),
                "a modulus of 4097 bits": BITS_4097,
            }.items()
        },
    },
    EndorsementCertificateOutOfDate: {
        "OAEP key: expired": sent(oaep_leaf(BELOW, ends=NOW - DAY)),
        "OAEP key: valid tomorrow": sent(oaep_leaf(BELOW, begins=NOW + DAY)),
        "OAEP key: under an authority that expired": sent(oaep_leaf(EXPIRED_CA), EXPIRED_CA.der),
    },
    EndorsementCertificateNotAllowed: {
        "OAEP key: an unknown critical extension": sent(
            oaep_leaf(BELOW, extensions={**leaf_extensions(RSA_EK), UNKNOWN: True})
        ),
        "OAEP key: under CA:FALSE": oaep_under(
            {x509.BasicConstraints(ca=False, path_length=None): True}
        ),
        "OAEP key: under what may not sign": oaep_under({ca(): True, usage("crl_sign"): True}),
        "OAEP key: under name constraints": oaep_under(
            {ca(): True, constrained(excluded=False): True}
        ),
        "OAEP key: one authority too many": oaep_under(
            {ca(): True}, authority("last", ROOT, extensions={ca(0): True})
        ),
        "OAEP key: for attestation keys": sent(
            oaep_leaf(
                BELOW,
                extensions={
                    san(): True,
                    x509.ExtendedKeyUsage([x509.ObjectIdentifier("2.23.133.8.3")]): False,
                },
            )
        ),
    },
    EndorsementCertificateMismatch: {
        "OAEP key: another TPM's": sent(
            rewritten(leaf(BELOW, rsa_key(number=1).public_key()), BELOW, SPKI, oaep)
        )
    },
}


def node_requester(scenario: Scenario) -> None:
    """Make a first claim as a node: the certificate does not prove whose TPM it is."""
    scenario.as_node()


def with_node_ref(scenario: Scenario) -> None:
    """Make a first claim for a Machine that already has a Node."""
    scenario.change_machine(node_ref=scenario.node_name)


FIRST_CLAIMS: Table = {
    OperatorActionRequired: {
        "a certified first claim by a node": node_requester,
        "a certified first claim with a nodeRef": with_node_ref,
    },
}


def without_usage_by_policy() -> Scenario:
    """Join with a certificate without any usage, which the policy allows."""
    scenario = certified()
    scenario.change_policy("endorsement_key", allow_certificates_without_usage=True)
    extensions = without(x509.KeyUsage, x509.ExtendedKeyUsage)
    scenario.certificates = (leaf(BELOW, EK, extensions=extensions),)
    return scenario


ATTACKS = [
    *attacks(
        UNTRUSTED,
        USAGES,
        AUTHORITIES,
        MALFORMED,
        REVOKED,
        FIRST_CLAIMS,
        scenario=certified,
    ),
    *attacks(OAEP, scenario=certified_rsa),
    *(
        replace(each, name=f"certificates without usage allowed: {each.name}")
        for each in attacks(USAGES, scenario=without_usage_by_policy)
    ),
    *(NOT_ITS_OWN + FORGED + ALGORITHMS + TIMES + VALUES),
    attack(
        "without key usage and extended key usage",
        EndorsementCertificateNotAllowed,
        as_leaf(without(x509.KeyUsage, x509.ExtendedKeyUsage)),
        says="the policy can set allowCertificatesWithoutUsage",
    ),
]


def with_list() -> Scenario:
    """Join where the authority's list names other certificates."""
    scenario = certified()
    scenario.anchors = configured(revocation_list(BELOW, 8, 9))
    return scenario


def with_negative_serial() -> Scenario:
    """Join with a negative serial number, without a list."""
    scenario = certified()
    scenario.certificates = (rewritten(ordinary(), BELOW, SERIAL, lambda _: b"\2\1\xfb"),)
    return scenario


def with_list_of_namesake() -> Scenario:
    """Join where a list of another key under the authority's name names the certificate."""
    scenario = certified()
    stranger = ec.generate_private_key(ec.SECP384R1())
    scenario.anchors = configured(revocation_list(BELOW, 7, key=stranger))
    return scenario


def with_trailing_bytes() -> Scenario:
    """Join with trailing bytes after the certificate, as NV holds it."""
    scenario = certified()
    scenario.certificates = (ordinary() + b"\xff" * 300,)
    return scenario


def without_purpose() -> Scenario:
    """Join with a certificate without extended key usage, as older ones are."""
    scenario = certified()
    scenario.certificates = (leaf(BELOW, EK, extensions=without(x509.ExtendedKeyUsage)),)
    return scenario


def under_rsa_authority() -> Scenario:
    """Join by an authority with an RSA key and without key usage."""
    scenario = certified()
    key = rsa_key(number=2)
    issuer = authority("Vendor TPM CA 91", ROOT, key=key, extensions={ca(): True})
    scenario.certificates = (leaf(issuer, EK), issuer.der)
    return scenario


def with_exotic_serial() -> Scenario:
    """Join with a serial number longer than it may be."""
    scenario = certified()
    serial = der.encode(der.INTEGER, b"\1" + bytes(24))
    scenario.certificates = (rewritten(ordinary(), BELOW, SERIAL, lambda _: serial),)
    return scenario


@pytest.mark.parametrize(
    "scenario",
    [
        certified,
        certified_rsa,
        both,
        with_list,
        with_negative_serial,
        with_list_of_namesake,
        with_trailing_bytes,
        without_purpose,
        without_usage_by_policy,
        under_rsa_authority,
        with_exotic_serial,
    ],
)
def test_the_good_case_passes(scenario: Callable[[], Scenario]) -> None:
    assert_issued(scenario)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
