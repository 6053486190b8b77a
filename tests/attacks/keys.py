"""Exchanges with hostile TPM keys, in which everything else is valid for these keys.

The attacker's software replaces the TPM. So it signs with any key of the attacker, and it puts the
extraData of a challenge for these keys into the quote. The Machine's record names the endorsement
key. So a key that passes its own check gets a certificate.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from common.requests.binding import sha256
from common.tpm.public import EccPoint, PublicArea
from signer.kinds.csr import Csr
from signer.kinds.machine import RegisteredKey
from tests.attacks.runner import Mutation
from tests.builders import odd_rsa
from tests.builders.odd_rsa import OddRsa
from tests.builders.scenario import Scenario, key_name
from tests.builders.software_tpm import TpmKey, unique_field

ANSWER = "kubelet-tpm-b"


def with_ak(
    scenario: Scenario, area: bytes, *, sign: Callable[[bytes], bytes] | None = None
) -> tuple[Csr, Csr]:
    """Offer and answer with this TPM2B_PUBLIC as attestation key."""
    name = b"\x00\x0b" + sha256(area[2:])
    quote = scenario.attest(extra_data=scenario.extra_data(ANSWER, ak_name=name)).encode()
    signature = (sign or scenario.ak.sign)(quote)
    answer = scenario.answer(quote, ak_public=area, signature=signature)
    return scenario.offer_csr(replace(scenario.offer(), ak_public=area)), scenario.answer_csr(
        answer
    )


def with_ek(scenario: Scenario, area: bytes, spki_sha256: bytes | None = None) -> tuple[Csr, Csr]:
    """Offer and answer with this TPM2B_PUBLIC as endorsement key, which is registered."""
    named = bytes.fromhex(key_name(scenario.ek)) if spki_sha256 is None else spki_sha256
    scenario.change_machine(
        registered_keys=(RegisteredKey(source="Machine annotation", spki_sha256=named),)
    )
    bound = scenario.extra_data(ANSWER, ek_spki_sha256=named)
    answer = scenario.answer(scenario.attest(extra_data=bound), ek_public=area)
    return scenario.offer_csr(replace(scenario.offer(), ek_public=area)), scenario.answer_csr(
        answer
    )


def _edits(
    area_of: Callable[[Scenario], bytes], use: Callable[[Scenario, bytes], tuple[Csr, Csr]]
) -> tuple[
    Callable[[Callable[[bytes], bytes]], Mutation],
    Callable[[Callable[[PublicArea], PublicArea]], Mutation],
    Callable[..., Mutation],
]:
    """Return how to edit the TPM2B_PUBLIC of a key: its bytes, its public area, or its fields."""

    def edit_bytes(edit: Callable[[bytes], bytes]) -> Mutation:
        def mutate(scenario: Scenario) -> tuple[Csr, Csr]:
            area = edit(area_of(scenario))
            assert area != area_of(scenario)
            return use(scenario, area)

        return mutate

    def edit_public(edit: Callable[[PublicArea], PublicArea]) -> Mutation:
        return edit_bytes(lambda area: edit(PublicArea.from_tpm2b(area)).to_tpm2b())

    def edit_fields(**changes: Any) -> Mutation:  # noqa: ANN401 - fields of PublicArea
        return edit_public(lambda public: replace(public, **changes))

    return edit_bytes, edit_public, edit_fields


ak_bytes, ak_public, ak_fields = _edits(lambda scenario: scenario.ak.tpm2b, with_ak)
ek_bytes, ek_public, ek_fields = _edits(lambda scenario: scenario.ek.tpm2b, with_ek)


def malformed(
    edit_bytes: Callable[[Callable[[bytes], bytes]], Mutation], edit_fields: Callable[..., Mutation]
) -> dict[str, Mutation]:
    """Return what is no TPM2B_PUBLIC of either key."""
    return {
        "nothing": edit_bytes(lambda _: b""),
        "size 0": edit_bytes(lambda _: b"\0\0"),
        "size too large": edit_bytes(lambda a: b"\xff\xff" + a[2:]),
        "size one less": edit_bytes(lambda a: (len(a) - 3).to_bytes(2, "big") + a[2:]),
        "no size": edit_bytes(lambda a: a[2:]),
        "a trailing byte": edit_bytes(lambda a: a + b"\0"),
        "a trailing byte, inside": edit_bytes(
            lambda a: (len(a) - 1).to_bytes(2, "big") + a[2:] + b"\0"
        ),
        "the last byte missing": edit_bytes(lambda a: a[:-1]),
        "a DER key": edit_bytes(lambda _: odd_rsa.ROCA.spki()),
        "a keyed hash": edit_bytes(lambda a: a[:2] + b"\0\x08" + a[4:]),
        "RSA's number over ECC's fields": edit_bytes(lambda a: a[:2] + b"\0\x01" + a[4:]),
        "Name of SM3": edit_bytes(lambda a: a[:4] + b"\0\x12" + a[6:]),
        "a policy of 31 bytes": edit_fields(auth_policy=bytes(31)),
    }


def weak(
    edit_public: Callable[[Callable[[PublicArea], PublicArea]], Mutation],
    edit_fields: Callable[..., Mutation],
    odd: Callable[[OddRsa], Mutation],
) -> dict[str, Mutation]:
    """Return public areas whose key is weak, for either key."""
    return {
        **{name: edit_public(on_point(edit)) for name, edit in POINTS.items()},
        "a point of P-384 on P-256": edit_fields(unique=point_of(5, ec.SECP384R1())[1]),
        "ROCA (CVE-2017-15361)": odd(odd_rsa.ROCA),
        "close primes (CVE-2022-26320)": odd(odd_rsa.CLOSE_PRIMES),
        "square modulus": odd(odd_rsa.SQUARE),
        "small factor": odd(odd_rsa.SMALL_FACTOR),
        "even modulus": odd(odd_rsa.EVEN),
        "a modulus of 1024 bits that says 2048": odd(odd_rsa.BITS_1024),
        "a modulus of 2040 bits that says 2048": odd(odd_rsa.BITS_2040),
    }


def flipped(bit: int) -> Callable[[bytes], bytes]:
    """Flip one bit of the attributes, which follow size, type and nameAlg."""

    def edit(area: bytes) -> bytes:
        attributes = int.from_bytes(area[6:10], "big") ^ 1 << bit
        return area[:6] + attributes.to_bytes(4, "big") + area[10:]

    return edit


def replaced(old: str, new: str) -> Callable[[bytes], bytes]:
    """Replace a number in the area by another one, once."""

    def edit(area: bytes) -> bytes:
        assert bytes.fromhex(old) in area
        return area.replace(bytes.fromhex(old), bytes.fromhex(new), 1)

    return edit


def point_of(scalar: int, curve: ec.EllipticCurve) -> tuple[ec.EllipticCurvePrivateKey, EccPoint]:
    """Make a key on a curve from a known private key."""
    key = ec.derive_private_key(scalar, curve)
    point = unique_field(key)
    assert isinstance(point, EccPoint)
    return key, point


def trivial_ak(scalar: int) -> Mutation:
    """Use an attestation key with a known private key."""

    def mutate(scenario: Scenario) -> None:
        key, point = point_of(scalar, ec.SECP256R1())
        scenario.ak = TpmKey(private=key, public=replace(scenario.ak.public, unique=point))

    return mutate


POINTS: dict[str, Callable[[EccPoint], EccPoint]] = {
    "point not on the curve": lambda p: replace(p, y=p.y[:-1] + bytes([p.y[-1] ^ 1])),
    "point at infinity, empty": lambda _: EccPoint(x=b"", y=b""),
    "point at infinity, zeros": lambda _: EccPoint(x=bytes(32), y=bytes(32)),
    "coordinates exchanged": lambda p: EccPoint(x=p.y, y=p.x),
    "coordinate over the prime": lambda p: replace(p, x=b"\xff" * 32),
    "coordinate of 33 bytes": lambda p: replace(p, x=b"\0" + p.x),
    "half a point": lambda p: replace(p, y=b""),
}
"""Points that are not on the curve, or have another encoding (compare CVE-2020-0601)."""


def on_point(edit: Callable[[EccPoint], EccPoint]) -> Callable[[PublicArea], PublicArea]:
    """Edit the point of a public area."""

    def change(public: PublicArea) -> PublicArea:
        assert isinstance(public.unique, EccPoint)
        return replace(public, unique=edit(public.unique))

    return change
