"""Kubelets' keys that are weak or unsupported, and signatures that prove no possession.

The holder of the private key of a node's certificate is that node. A request that its own key did
not sign could certify the key of another party. Encodings that libraries parse differently (curves,
exponents, points) give two checks two keys. The attacker signs each request as well as such a key
can sign (P3).
"""

from collections.abc import Callable
from functools import cache

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, padding, x25519
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from common.errors import RequestKeyNotAllowed, RequestMalformed, RequestSignatureInvalid
from signer.errors import RequestKeyWeak
from tests.attacks.requests import forged, forgery, rewritten
from tests.attacks.runner import Attack, Mutation, Table, assert_issued, assert_refused, attacks
from tests.builders import der, odd_rsa
from tests.builders.forgery import RSA_SHA256, SEQUENCE, spki_of, tlv
from tests.builders.odd_rsa import OddRsa
from tests.builders.scenario import Scenario
from tests.builders.software_tpm import rsa_key

P256 = ec.SECP256R1()
SHA1, MD5 = hashes.SHA1(), hashes.MD5()  # noqa: S303 - refused, which is the point
ORDER = P256.group_order
ID_EC = "06072a8648ce3d0201"
EC_ALGORITHM = "301306072a8648ce3d020106082a8648ce3d030107"
EXPLICIT_P256 = (
    "3081f7020101302c06072a8648ce3d0101022100ffffffff00000001000000000000000000000000ffffffffffff"
    "ffffffffffff305b0420ffffffff00000001000000000000000000000000fffffffffffffffffffffffc04205ac6"
    "35d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b031500c49d360886e704936a6678e113"
    "9d26b7819f7e900441046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c2964fe342e2"
    "fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5022100ffffffff00000000ffffffffffffff"
    "ffbce6faada7179e84f3b9cac2fc632551020101"
)
"""P-256 as ECParameters (RFC 3279): a verifier that reads them lets the peer choose the base."""
ECDSA = {"SHA-1": "300906072a8648ce3d0401", "SHA-256 with NULL": "300c06082a8648ce3d0403020500"}
ECDSA_SHA384 = "300a06082a8648ce3d040303"
RSA_SHA1 = "300d06092a864886f70d0101050500"
RSA_MD5 = "300d06092a864886f70d0101040500"
RSA_WITHOUT_NULL = "300b06092a864886f70d01010b"
RSA_PSS = (
    "304106092a864886f70d01010a3034a00f300d06096086480165030402010500"
    "a11c301a06092a864886f70d010108300d06096086480165030402010500a203020120"
)
ED25519_SIGNATURE, ED448_SIGNATURE = "300506032b6570", "300506032b6571"


def odd(key: OddRsa) -> Mutation:
    """Use an RSA key that no library generates."""
    return forged(spki=key.spki(), sign=key.sign, algorithm=RSA_SHA256)


def on_curve(curve: ec.EllipticCurve, scalar: int = 0x1234567) -> Mutation:
    """Use a key on this curve."""
    return forged(key=ec.derive_private_key(scalar, curve))


def point(encoded: Callable[[bytes, bytes], bytes]) -> Mutation:
    """Encode the coordinates of the key's point differently."""

    def mutate(scenario: Scenario) -> None:
        good = spki_of(scenario.kubelet_key)[-64:]
        spki = tlv(SEQUENCE, EC_ALGORITHM, tlv(0x03, b"\0", encoded(good[:32], good[32:])))
        scenario.request_der = forgery(scenario, spki=spki).der()

    return mutate


def unused_bit(scenario: Scenario) -> None:
    """Declare the key's last bit, which is zero, unused."""
    scenario.kubelet_key = ec.derive_private_key(3, P256)
    good = spki_of(scenario.kubelet_key)[-65:]
    assert good[-1] & 1 == 0
    spki = tlv(SEQUENCE, EC_ALGORITHM, tlv(0x03, b"\1", good))
    scenario.request_der = forgery(scenario, spki=spki).der()


def flipped(coordinate: bytes) -> bytes:
    """Use a point that is not on the curve."""
    return coordinate[:-1] + bytes([coordinate[-1] ^ 1])


def compressed(x: bytes, y: bytes) -> bytes:
    """Encode a compressed point."""
    return bytes([2 + y[-1] % 2]) + x


def hybrid(x: bytes, y: bytes) -> bytes:
    """Encode a hybrid point (X9.62)."""
    return bytes([6 + y[-1] % 2]) + x + y


def of_scalar(scalar: int, mutate: Mutation) -> Mutation:
    """Use the key of this scalar: 2 has an odd y on P-256, 3 an even one."""

    def mutate_key(scenario: Scenario) -> None:
        scenario.kubelet_key = ec.derive_private_key(scalar, P256)
        mutate(scenario)

    return mutate_key


def spki_edit(edit: Callable[[bytes], bytes], *, by_rsa: bool = False) -> Mutation:
    """Edit the SubjectPublicKeyInfo before signing."""

    def mutate(scenario: Scenario) -> None:
        if by_rsa:
            scenario.kubelet_key = rsa_key()
        good = spki_of(scenario.kubelet_key)
        edited = edit(good)
        assert edited != good
        algorithm = {"algorithm": RSA_SHA256} if by_rsa else {}
        scenario.request_der = forgery(scenario, spki=edited, **algorithm).der()

    return mutate


def hexed(old: str, new: str) -> Callable[[bytes], bytes]:
    """Replace bytes by other bytes of equal length."""
    assert len(old) == len(new)
    return lambda data: data.replace(bytes.fromhex(old), bytes.fromhex(new), 1)


def algorithm_of(*algorithm: str) -> Callable[[bytes], bytes]:
    """Put the key's bits under another algorithm."""

    def edit(spki: bytes) -> bytes:
        bits = der.parse(spki).children[1].der
        return tlv(SEQUENCE, tlv(SEQUENCE, *algorithm), bits)

    return edit


def rsa_public_key(*parts: bytes | str) -> bytes:
    """Encode an RSA key from encoded numbers."""
    key = tlv(SEQUENCE, *parts)
    return tlv(SEQUENCE, "300d06092a864886f70d0101010500", tlv(0x03, b"\0", key))


def padded_modulus(good: bytes) -> bytes:
    """Encode the modulus with a leading zero."""
    assert good
    n = rsa_key().public_key().public_numbers().n.to_bytes(258, "big")
    return rsa_public_key(tlv(0x02, n), bytes.fromhex("0203010001"))


def negative_modulus(good: bytes) -> bytes:
    """Omit the zero that makes the modulus positive."""
    assert good
    n = rsa_key().public_key().public_numbers().n.to_bytes(256, "big")
    return rsa_public_key(tlv(0x02, n), bytes.fromhex("0203010001"))


def negative_odd_modulus(good: bytes) -> bytes:
    """Use a negative odd modulus of 2048 bits."""
    assert good
    n = 1 - (1 << 2048)
    return rsa_public_key(tlv(0x02, n.to_bytes(257, "big", signed=True)), "0203010001")


@cache
def dsa_key() -> tuple[bytes, Callable[[bytes], bytes]]:
    """Make a DSA key with fixed, small parameters, as an unsupported type."""
    key = dsa.generate_private_key(1024)  # noqa: S505 - refused for its kind, whatever its size
    return spki_of(key), lambda data: key.sign(data, hashes.SHA256())


def with_dsa(scenario: Scenario) -> None:
    """Use a DSA key."""
    spki, sign = dsa_key()
    algorithm = "300b0609608648016503040302"
    scenario.request_der = forgery(scenario, spki=spki, sign=sign, algorithm=algorithm).der()


def edwards(key: ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey, algorithm: str) -> Mutation:
    """Use an Edwards key."""
    return forged(spki=spki_of(key), sign=key.sign, algorithm=algorithm)


def agreement_key(scenario: Scenario) -> None:
    """Use an X25519 key, which cannot sign. Another key signs."""
    key = x25519.X25519PrivateKey.from_private_bytes(bytes(32))
    spki = tlv(SEQUENCE, "300506032b656e", tlv(0x03, b"\0", key.public_key().public_bytes_raw()))
    scenario.request_der = forgery(scenario, spki=spki).der()


def signs_with(
    hash_: hashes.HashAlgorithm, algorithm: str, *, pss: bool = False, by_rsa: bool = False
) -> Mutation:
    """Sign with another hash or padding, and name it."""

    def mutate(scenario: Scenario) -> None:
        if by_rsa:
            key = scenario.kubelet_key = rsa_key()
            pad = padding.PSS(padding.MGF1(hash_), 32) if pss else padding.PKCS1v15()

            def sign(data: bytes) -> bytes:
                return key.sign(data, pad, hash_)

            scenario.request_der = forgery(scenario, sign=sign, algorithm=algorithm).der()
        else:
            ecc = scenario.kubelet_key
            assert isinstance(ecc, ec.EllipticCurvePrivateKey)
            scenario.request_der = forgery(
                scenario, sign=lambda data: ecc.sign(data, ec.ECDSA(hash_)), algorithm=algorithm
            ).der()

    return mutate


def signature(edit: Callable[[int, int], bytes]) -> Mutation:
    """Encode the integers of a good signature differently."""

    def mutate(scenario: Scenario) -> None:
        key = scenario.kubelet_key
        assert isinstance(key, ec.EllipticCurvePrivateKey)

        def sign(data: bytes) -> bytes:
            return edit(*decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256()))))

        scenario.request_der = forgery(scenario, sign=sign).der()

    return mutate


def integer(value: int, pad: bytes = b"") -> bytes:
    """Encode an INTEGER, with leading bytes if given."""
    return tlv(0x02, pad, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def foreign_key(scenario: Scenario) -> None:
    """Request a certificate for another party's key, signed by the own key."""
    other = ec.derive_private_key(7, P256)
    scenario.request_der = forgery(scenario, spki=spki_of(other)).der()


def foreign_signature(scenario: Scenario) -> None:
    """Use the signature of another request by the same key."""
    key = scenario.kubelet_key
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    other = key.sign(b"other", ec.ECDSA(hashes.SHA256()))
    scenario.request_der = forgery(scenario, sign=lambda _: other).der()


def confused(scenario: Scenario) -> None:
    """Name ECDSA for an RSA key, with an RSA signature."""
    scenario.kubelet_key = rsa_key()
    scenario.request_der = forgery(scenario).der()


def relabelled(algorithm: str) -> Mutation:
    """Name another algorithm for a good signature."""
    return forged(algorithm=algorithm)


def rsa_scenario() -> Scenario:
    """Join with an RSA key."""
    return Scenario(kubelet_key=rsa_key())


def p384_scenario() -> Scenario:
    """Join with a key on P-384."""
    return Scenario(kubelet_key=ec.derive_private_key(0x7654321, ec.SECP384R1()))


KEYS: Table = {
    RequestKeyWeak: {
        "ROCA (CVE-2017-15361)": odd(odd_rsa.ROCA),
        "close primes (CVE-2022-26320)": odd(odd_rsa.CLOSE_PRIMES),
        "square modulus": odd(odd_rsa.SQUARE),
        "small factor": odd(odd_rsa.SMALL_FACTOR),
        "private key 1 on P-256": on_curve(P256, 1),
        "private key n - 1 on P-256": on_curve(P256, ORDER - 1),
        "private key 1 on P-384": on_curve(ec.SECP384R1(), 1),
    },
    RequestKeyNotAllowed: {
        "even modulus": odd(odd_rsa.EVEN),
        "exponent 1": odd(odd_rsa.EXPONENT_1),
        "exponent 3": odd(odd_rsa.EXPONENT_3),
        "exponent 65539": odd(odd_rsa.EXPONENT_65539),
        "RSA of 1024 bits": odd(odd_rsa.BITS_1024),
        "RSA of 2040 bits": odd(odd_rsa.BITS_2040),
        "RSA of 4097 bits": odd(odd_rsa.BITS_4097),
        "RSA of 4104 bits": odd(odd_rsa.BITS_4104),
        "P-224": on_curve(ec.SECP224R1()),
        "P-192": on_curve(ec.SECP192R1()),
        "P-521": on_curve(ec.SECP521R1()),
        "secp256k1": on_curve(ec.SECP256K1()),
        "brainpoolP256r1": on_curve(ec.BrainpoolP256R1()),
        "Ed25519": edwards(
            ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32)), ED25519_SIGNATURE
        ),
        "Ed448": edwards(ed448.Ed448PrivateKey.from_private_bytes(bytes(57)), ED448_SIGNATURE),
        "X25519": agreement_key,
        "DSA": with_dsa,
        "point not on the curve": point(lambda x, y: b"\4" + x + flipped(y)),
        "point on no curve": point(lambda *_: b"\4" + bytes(64)),
        "point at infinity": point(lambda *_: b"\0"),
        "empty point": point(lambda *_: b""),
        "coordinate over the prime": point(lambda _, y: b"\4" + b"\xff" * 32 + y),
        "half a point": point(lambda x, _: b"\4" + x),
        "longer coordinates": point(lambda x, y: b"\4\0" + x + b"\0" + y),
        "another curve's name over the point": spki_edit(algorithm_of(ID_EC, "06052b8104000a")),
        "curve by explicit parameters": spki_edit(algorithm_of(ID_EC, EXPLICIT_P256)),
        "no curve named": spki_edit(algorithm_of(ID_EC)),
        "NULL for a curve": spki_edit(algorithm_of(ID_EC, "0500")),
        "RSA key without NULL": spki_edit(algorithm_of("06092a864886f70d010101"), by_rsa=True),
        "RSA key for OAEP alone": spki_edit(hexed("0101010500", "0101070500"), by_rsa=True),
        "RSA key for PSS alone": spki_edit(hexed("0101010500", "01010a0500"), by_rsa=True),
        "modulus with a needless zero": spki_edit(padded_modulus, by_rsa=True),
        "negative modulus": spki_edit(negative_modulus, by_rsa=True),
        "negative modulus of 2048 bits, odd": spki_edit(negative_odd_modulus, by_rsa=True),
        "RSA numbers as an EC point": spki_edit(
            algorithm_of(ID_EC, "06082a8648ce3d030107"), by_rsa=True
        ),
        "an EC point as RSA numbers": spki_edit(algorithm_of("06092a864886f70d010101", "0500")),
    },
    RequestMalformed: {
        **{
            f"{form.__name__} point of {what} y": of_scalar(scalar, point(form))
            for form in (compressed, hybrid)
            for what, scalar in {"odd": 2, "even": 3}.items()
        },
        "point with an unused bit": unused_bit,
    },
}

SIGNATURES: Table = {
    RequestSignatureInvalid: {
        "another party's key": foreign_key,
        "signature of another request": foreign_signature,
        "subject changed after signing": rewritten(
            lambda d: d.replace(b"node-1.example", b"node-2.example")
        ),
        "provider ID changed after signing": rewritten(
            lambda d: d.replace(b"rack-1/slot-1", b"rack-1/slot-2")
        ),
        "ECDSA with SHA-1": signs_with(SHA1, ECDSA["SHA-1"]),
        "ECDSA with NULL": relabelled(ECDSA["SHA-256 with NULL"]),
        "another hash named": relabelled(ECDSA_SHA384),
        "RSA named over an EC key": relabelled(RSA_SHA256),
        "ECDSA named over an RSA key": confused,
        "Ed25519 named over an EC key": relabelled(ED25519_SIGNATURE),
        "RSA with SHA-1": signs_with(SHA1, RSA_SHA1, by_rsa=True),
        "RSA with MD5": signs_with(MD5, RSA_MD5, by_rsa=True),
        "RSA without NULL": signs_with(hashes.SHA256(), RSA_WITHOUT_NULL, by_rsa=True),
        "RSASSA-PSS": signs_with(hashes.SHA256(), RSA_PSS, pss=True, by_rsa=True),
        "PSS padding named PKCS#1": signs_with(hashes.SHA256(), RSA_SHA256, pss=True, by_rsa=True),
        "r = s = 0 (CVE-2022-21449)": signature(lambda *_: encode_dss_signature(0, 0)),
        "r = n, s = n": signature(lambda *_: encode_dss_signature(ORDER, ORDER)),
        "r + n": signature(lambda r, s: encode_dss_signature(r + ORDER, s)),
        "signature as r and s alone": signature(
            lambda r, s: r.to_bytes(32, "big") + s.to_bytes(32, "big")
        ),
        "trailing byte after s": signature(lambda r, s: encode_dss_signature(r, s) + b"\0"),
        "needless zero before r": signature(
            lambda r, s: tlv(SEQUENCE, integer(r, b"\0"), integer(s))
        ),
        "third integer": signature(lambda r, s: tlv(SEQUENCE, integer(r), integer(s), integer(0))),
        "empty signature": signature(lambda *_: b""),
    },
}
ATTACKS = attacks(KEYS, SIGNATURES)


@pytest.mark.parametrize("scenario", [Scenario, rsa_scenario, p384_scenario])
def test_the_good_case_passes(scenario: Callable[[], Scenario]) -> None:
    assert_issued(scenario)


def test_unchanged_forgery_is_accepted() -> None:
    def unchanged() -> Scenario:
        scenario = Scenario()
        scenario.request_der = forgery(scenario).der()
        return scenario

    assert_issued(unchanged)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
