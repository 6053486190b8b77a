"""Signed statements that are not quotes, that no TPM made, or that belong to another exchange.

A restricted key also signs statements whose content its user chooses: the name of a certified
object, a range of NV memory, a hash of commands. Magic and type distinguish them, so the verifier
must check both (tpm2-tools CVE-2024-29038, CVE-2024-29039). Each field of TPMS_ATTEST is changed
twice. After signing, the signature must fail. Before signing, with a key of the attacker, the check
of that field must fail.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from common.requests.binding import sha256
from common.tpm.constants import (
    TPM_ALG_ECDSA,
    TPM_ALG_RSAPSS,
    TPM_ALG_RSASSA,
    TPM_ALG_SHA1,
    TPM_ALG_SHA256,
    TPM_ALG_SHA384,
    TPM_ALG_SHA512,
)
from common.tpm.reader import pack_uints, tpm2b
from common.tpm.signature import EcdsaValue, Signature
from signer.errors import (
    AnswerNotBound,
    PcrDigestMismatch,
    PcrSelectionMismatch,
    QuoteMalformed,
    QuoteSignatureInvalid,
    SignatureMalformed,
)
from signer.kinds.csr import Csr
from tests.attacks.other_attests import nv, quoted
from tests.attacks.runner import Attack, Mutation, Table, assert_issued, assert_refused, attacks
from tests.attacks.scenarios import p384_scenario, pss_scenario, rsa_scenario
from tests.builders.scenario import Scenario
from tests.builders.software_tpm import attestation_key

SHA256 = TPM_ALG_SHA256
ORDER = ec.SECP256R1().group_order
MAGIC = b"\xffTCG"


# Offsets of the fields in a quote: magic, type, qualifiedSigner (34 + 2), extraData (32 + 2), clock
FIELDS = {
    "magic": 0,
    "type": 4,
    "size of qualifiedSigner": 6,
    "qualifiedSigner": 8,
    "size of extraData": 42,
    "extraData": 44,
    "clock": 76,
    "resetCount": 84,
    "restartCount": 88,
    "safe": 92,
    "firmwareVersion": 93,
    "count of banks": 104,
    "bank": 105,
    "sizeofSelect": 107,
    "selected PCRs": 108,
    "size of pcrDigest": 111,
    "pcrDigest": 113,
}


def flipped(quote: bytes, at: int) -> bytes:
    """Flip a bit of a byte."""
    return quote[:at] + bytes([quote[at] ^ 1]) + quote[at + 1 :]


def flips(at: int) -> Callable[[bytes], bytes]:
    """Flip a bit of this byte."""
    return lambda quote: flipped(quote, at)


def unsigned(edit: Callable[[bytes], bytes]) -> Mutation:
    """Change the quote after it was signed."""

    def mutate(scenario: Scenario) -> Csr:
        answer = scenario.answer()
        edited = edit(answer.quote)
        assert edited != answer.quote
        return scenario.answer_csr(replace(answer, quote=edited))

    return mutate


def signed(edit: Callable[[bytes], bytes]) -> Mutation:
    """Change the quote, and sign the result."""

    def mutate(scenario: Scenario) -> Csr:
        quote = scenario.attest().encode()
        edited = edit(quote)
        assert edited != quote
        return scenario.answer_csr(scenario.answer(edited))

    return mutate


def statement(kind: int, body: Callable[[Scenario], bytes]) -> Mutation:
    """Sign a statement of another command, with the right extraData."""

    def mutate(scenario: Scenario) -> Csr:
        quote = scenario.attest().encode()
        head = quote[:4] + kind.to_bytes(2, "big") + quote[6:101]
        return scenario.answer_csr(scenario.answer(head + body(scenario)))

    return mutate


def certified(_: Scenario) -> bytes:
    """TPMS_CERTIFY_INFO: name and qualifiedName."""
    return tpm2b(b"\0\x0b" + bytes(32)) * 2


def created(_: Scenario) -> bytes:
    """TPMS_CREATION_INFO: objectName and creationHash."""
    return tpm2b(b"\0\x0b" + bytes(32)) + tpm2b(bytes(32))


def time(scenario: Scenario) -> bytes:
    """TPMS_TIME_ATTEST_INFO: time, clockInfo, firmwareVersion."""
    return bytes(8) + scenario.attest().encode()[76:101]


def nv_digest(_: Scenario) -> bytes:
    """TPMS_NV_DIGEST_CERTIFY_INFO: indexName and digest."""
    return tpm2b(b"\0\x0b" + bytes(32)) + tpm2b(bytes(32))


def session(_: Scenario) -> bytes:
    """TPMS_SESSION_AUDIT_INFO: exclusive, and the digest of the attacker's commands."""
    return b"\1" + tpm2b(bytes(32))


def command(_: Scenario) -> bytes:
    """TPMS_COMMAND_AUDIT_INFO: counter, algorithm, two digests."""
    return bytes(8) + b"\0\x0b" + tpm2b(bytes(32)) * 2


TYPES = {
    0x8014: ("NV", nv),
    0x8015: ("command audit", command),
    0x8016: ("session audit", session),
    0x8017: ("certify", certified),
    0x8019: ("time", time),
    0x801A: ("creation", created),
    0x801C: ("NV digest", nv_digest),
}


def raw(scheme: int, digest: int, value: bytes | EcdsaValue) -> bytes:
    """Encode a TPMT_SIGNATURE."""
    return Signature(scheme=scheme, hash=digest, value=value).encode()


def signature(edit: Callable[[bytes], bytes]) -> Mutation:
    """Edit the TPMT_SIGNATURE of a good answer."""

    def mutate(scenario: Scenario) -> Csr:
        answer = scenario.answer()
        edited = edit(answer.signature)
        assert edited != answer.signature
        return scenario.answer_csr(replace(answer, signature=edited))

    return mutate


def ecdsa(edit: Callable[[EcdsaValue], EcdsaValue]) -> Mutation:
    """Edit r and s of a good signature."""

    def change(encoded: bytes) -> bytes:
        parsed = Signature.parse(encoded)
        assert isinstance(parsed.value, EcdsaValue)
        return replace(parsed, value=edit(parsed.value)).encode()

    return signature(change)


def integer(value: bytes) -> int:
    """Decode an integer."""
    return int.from_bytes(value, "big")


def ecc_signs(hash_: hashes.HashAlgorithm, digest: int) -> Mutation:
    """Sign the quote with the right key and another hash, and name that hash."""

    def mutate(scenario: Scenario) -> Csr:
        answer = scenario.answer()
        key = scenario.ak.private
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        r, s = decode_dss_signature(key.sign(answer.quote, ec.ECDSA(hash_)))
        value = EcdsaValue(r=pack_uints((r, 32)), s=pack_uints((s, 32)))
        return scenario.answer_csr(replace(answer, signature=raw(TPM_ALG_ECDSA, digest, value)))

    return mutate


def rsa_signs(scheme: int, pad: padding.PKCS1v15 | padding.PSS, data: bytes = b"") -> Mutation:
    """Sign the quote with the right RSA key and another padding, and name a scheme."""

    def mutate(scenario: Scenario) -> Csr:
        answer = scenario.answer()
        key = scenario.ak.private
        assert isinstance(key, rsa.RSAPrivateKey)
        value = key.sign(data or answer.quote, pad, hashes.SHA256())
        return scenario.answer_csr(replace(answer, signature=raw(scheme, SHA256, value)))

    return mutate


PSS = padding.PSS(padding.MGF1(hashes.SHA256()), 32)


def by_another_key(scenario: Scenario) -> Csr:
    """Sign with another key than the sent one."""
    answer = scenario.answer()
    return scenario.answer_csr(replace(answer, signature=attestation_key().sign(answer.quote)))


def by_the_kubelet_key(scenario: Scenario) -> Csr:
    """Sign with the key of the request."""
    answer = scenario.answer()
    key = scenario.kubelet_key
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    r, s = decode_dss_signature(key.sign(answer.quote, ec.ECDSA(hashes.SHA256())))
    value = EcdsaValue(r=pack_uints((r, 32)), s=pack_uints((s, 32)))
    return scenario.answer_csr(replace(answer, signature=raw(TPM_ALG_ECDSA, SHA256, value)))


def of_another_answer(scenario: Scenario) -> Csr:
    """Use the signature of another quote by the same key."""
    other = scenario.answer(scenario.attest(extra_data=bytes(32)))
    return scenario.answer_csr(replace(scenario.answer(), signature=other.signature))


def algebraic(scenario: Scenario) -> Csr:
    """Use the RSA signature 1, which is valid for exponent 1 or a digest of 1."""
    value = raw(TPM_ALG_RSASSA, SHA256, bytes(255) + b"\1")
    return scenario.answer_csr(replace(scenario.answer(), signature=value))


AFTER_SIGNING: Table = {
    QuoteSignatureInvalid: {
        **{f"{name} changed after signing": unsigned(flips(at)) for name, at in FIELDS.items()},
        "cut short after signing": unsigned(lambda q: q[:-1]),
        "a trailing byte, after signing": unsigned(lambda q: q + b"\0"),
        "another quote after signing": unsigned(lambda q: q[:44] + bytes(32) + q[76:]),
    },
}
BEFORE_SIGNING: Table = {
    QuoteMalformed: {
        **{
            name: signed(edit)
            for name, edit in {
                "magic of another byte (CVE-2024-29038)": lambda q: b"\xfe" + q[1:],
                "magic backwards": lambda q: b"GCT\xff" + q[4:],
                "no magic": lambda q: q[4:],
                "type 0": lambda q: q[:4] + b"\0\0" + q[6:],
                "type of a null ticket": lambda q: q[:4] + b"\x80\x00" + q[6:],
                "type backwards": lambda q: q[:4] + b"\x18\x80" + q[6:],
                "type of an unknown statement": lambda q: q[:4] + b"\x80\x1d" + q[6:],
                "qualifiedSigner of 67 bytes": lambda q: q[:6] + tpm2b(bytes(67)) + q[42:],
                "qualifiedSigner over the end": lambda q: q[:6] + b"\xff\xff" + q[8:],
                "extraData of 67 bytes": lambda q: q[:42] + tpm2b(q[44:76] + bytes(35)) + q[76:],
                "safe is 2": lambda q: q[:92] + b"\2" + q[93:],
                "safe is 255": lambda q: q[:92] + b"\xff" + q[93:],
                "no banks counted": lambda q: q[:101] + bytes(4) + q[105:],
                "four gigabanks": lambda q: q[:101] + b"\xff" * 4 + q[105:],
                "five banks counted": lambda q: q[:101] + b"\0\0\0\5" + q[105:],
                "unknown bank": lambda q: q[:105] + b"\0\x12" + q[107:],
                "null bank": lambda q: q[:105] + b"\0\x10" + q[107:],
                "sizeofSelect 0": lambda q: q[:107] + b"\0" + q[111:],
                "sizeofSelect 1": lambda q: q[:107] + b"\1\xff" + q[111:],
                "sizeofSelect 2": lambda q: q[:107] + b"\2\xff\0" + q[111:],
                "sizeofSelect 4": lambda q: q[:107] + b"\4\xff\0\0\0" + q[111:],
                "sizeofSelect 255": lambda q: q[:107] + b"\xff" + q[108:],
                "pcrDigest of 65 bytes": lambda q: q[:111] + tpm2b(bytes(65)),
                "pcrDigest over the end": lambda q: q[:111] + b"\0\x21" + q[113:],
                "cut short": lambda q: q[:-1],
                "no pcrDigest": lambda q: q[:111],
                "magic and type alone": lambda q: q[:6],
                "nothing": lambda _: b"",
                "a trailing byte": lambda q: q + b"\0",
                "two quotes": lambda q: q + q,
                "with its size before it": tpm2b,
                "the bank twice": lambda q: q[:101] + b"\0\0\0\2" + q[105:111] * 2 + q[111:],
                "banks descending": lambda q: q[:101] + b"\0\0\0\2\0\x0c\3\0\0\0" + q[105:],
                "the bank twice, once empty": lambda q: (
                    q[:101] + b"\0\0\0\2\0\x0b\3\0\0\0" + q[105:]
                ),
            }.items()
        },
        **{
            f"qualifiedSigner {name}": signed(edit)
            for name, edit in {
                "of no bytes": lambda q: q[:6] + b"\0\0" + q[42:],
                "of SHA-1": lambda q: q[:6] + tpm2b(b"\0\4" + bytes(20)) + q[42:],
                "of SHA-384": lambda q: q[:6] + tpm2b(b"\0\x0c" + bytes(48)) + q[42:],
                "of an unknown algorithm": lambda q: q[:8] + b"\0\x12" + q[10:],
                "that is a handle": lambda q: q[:6] + tpm2b(b"\x40\0\0\x0b") + q[42:],
                "that ends early": lambda q: q[:6] + tpm2b(q[8:41]) + q[42:],
            }.items()
        },
    },
    AnswerNotBound: {
        name: signed(edit)
        for name, edit in {
            "no extraData (Kairos #4828)": lambda q: q[:42] + b"\0\0" + q[76:],
            "extraData of zeros": lambda q: q[:44] + bytes(32) + q[76:],
            "extraData of one bit more": lambda q: flipped(q, 44),
            "the last bit of extraData": lambda q: flipped(q, 75),
            "beginning of extraData": lambda q: q[:42] + tpm2b(q[44:75]) + q[76:],
            "one byte of extraData": lambda q: q[:42] + tpm2b(q[44:45]) + q[76:],
            "extraData and a zero": lambda q: q[:42] + tpm2b(q[44:76] + b"\0") + q[76:],
            "a zero and extraData": lambda q: q[:42] + tpm2b(b"\0" + q[44:76]) + q[76:],
            "extraData twice": lambda q: q[:42] + tpm2b(q[44:76] * 2) + q[76:],
            "extraData in hex": lambda q: q[:42] + tpm2b(q[44:76].hex().encode()) + q[76:],
            "extraData as TPM2B": lambda q: q[:42] + tpm2b(tpm2b(q[44:76])) + q[76:],
            "extraData digested": lambda q: q[:44] + sha256(q[44:76]) + q[76:],
            "extraData in the place of the signer": lambda q: q[:6] + q[42:76] + q[6:42] + q[76:],
        }.items()
    },
    PcrSelectionMismatch: {
        "no banks": signed(lambda q: q[:101] + bytes(4) + q[111:]),
        "one PCR less": signed(lambda q: q[:108] + b"\xfe" + q[109:]),
        "one PCR more": signed(lambda q: q[:109] + b"\1" + q[110:]),
        "all PCRs": signed(lambda q: q[:108] + b"\xff\xff\xff" + q[111:]),
        "SHA-1 for the bank": signed(lambda q: q[:105] + b"\0\4" + q[107:]),
        "SHA-384 for the bank": signed(lambda q: q[:105] + b"\0\x0c" + q[107:]),
    },
    PcrDigestMismatch: {
        "another pcrDigest": signed(lambda q: flipped(q, 113)),
        "pcrDigest of zeros": signed(lambda q: q[:113] + bytes(32)),
        "empty pcrDigest": signed(lambda q: q[:111] + b"\0\0"),
        "beginning of pcrDigest": signed(lambda q: q[:111] + tpm2b(q[113:144])),
        "pcrDigest and a zero": signed(lambda q: q[:111] + tpm2b(q[113:] + b"\0")),
    },
}
CONFUSED: Table = {
    QuoteMalformed: {
        **{
            f"{name} instead of a quote": statement(kind, body)
            for kind, (name, body) in TYPES.items()
        },
        **{
            f"{name}, its body that of a quote": statement(kind, quoted)
            for kind, (name, _) in TYPES.items()
        },
        "certify that says quote": statement(0x8018, certified),
        "creation that says quote": statement(0x8018, created),
        "time that says quote": statement(0x8018, time),
        "NV that says quote": statement(0x8018, nv),
        "session audit that says quote": statement(0x8018, session),
        "command audit that says quote": statement(0x8018, command),
        "a quote among other bytes": signed(lambda q: b"\x30\x82" + q),
        "text that was signed": signed(lambda _: b"I am a quote"),
        "a digest that was signed": signed(sha256),
    },
}
SIGNATURES = [
    *attacks(
        {
            QuoteSignatureInvalid: {
                "signed by another key": by_another_key,
                "signed by the kubelet's key": by_the_kubelet_key,
                "signature of another quote": of_another_answer,
                "r = s = 0 (CVE-2022-21449)": ecdsa(lambda _: EcdsaValue(r=bytes(32), s=bytes(32))),
                "empty r and s": ecdsa(lambda _: EcdsaValue(r=b"", s=b"")),
                "r = s = n": ecdsa(
                    lambda _: EcdsaValue(r=pack_uints((ORDER, 32)), s=pack_uints((ORDER, 32)))
                ),
                "r + n": ecdsa(lambda v: replace(v, r=pack_uints((integer(v.r) + ORDER, 33)))),
                "r and s exchanged": ecdsa(lambda v: EcdsaValue(r=v.s, s=v.r)),
                "signed with SHA-384, SHA-256 named": ecc_signs(hashes.SHA384(), SHA256),
            },
            SignatureMalformed: {
                "empty signature": signature(lambda _: b""),
                "signature cut short": signature(lambda s: s[:-1]),
                "a trailing byte in the signature": signature(lambda s: s + b"\0"),
                "null signature": signature(lambda _: b"\0\x10"),
                "HMAC for a signature": signature(lambda s: b"\0\5" + s[2:]),
                "ECDAA": signature(lambda s: b"\0\x1a" + s[2:]),
                "SM2": signature(lambda s: b"\0\x1b" + s[2:]),
                "ECSchnorr": signature(lambda s: b"\0\x1c" + s[2:]),
                "SHA-1 named": signature(lambda s: s[:2] + b"\0\4" + s[4:]),
                "SHA-384 named": signature(lambda s: s[:2] + b"\0\x0c" + s[4:]),
                "SM3 named": signature(lambda s: s[:2] + b"\0\x12" + s[4:]),
                "no hash named": signature(lambda s: s[:2] + b"\0\x10" + s[4:]),
                "r of 67 bytes": ecdsa(lambda v: replace(v, r=bytes(35) + v.r)),
                "size of r over the end": signature(lambda s: s[:4] + b"\xff\xff" + s[6:]),
                "signed with SHA-1": ecc_signs(hashes.SHA1(), TPM_ALG_SHA1),  # noqa: S303 - refused
                "signed with SHA-384": ecc_signs(hashes.SHA384(), TPM_ALG_SHA384),
                "signed with SHA-512": ecc_signs(hashes.SHA512(), TPM_ALG_SHA512),
                "RSA under an EC key": signature(lambda _: raw(TPM_ALG_RSASSA, SHA256, bytes(256))),
            },
        }
    ),
    *attacks(
        {
            SignatureMalformed: {
                "EC under an RSA key": signature(
                    lambda _: raw(TPM_ALG_ECDSA, SHA256, EcdsaValue(r=b"\1", s=b"\1"))
                ),
                "PSS named and made under RSASSA": rsa_signs(TPM_ALG_RSAPSS, PSS),
                "RSA signature of 513 bytes": signature(
                    lambda _: b"\0\x14\0\x0b" + tpm2b(bytes(513))
                ),
            },
            QuoteSignatureInvalid: {
                "PSS under the name RSASSA": rsa_signs(TPM_ALG_RSASSA, PSS),
                "RSA over other bytes": rsa_signs(TPM_ALG_RSASSA, padding.PKCS1v15(), b"other"),
                "RSA signature 1": algebraic,
                "empty RSA signature": signature(lambda _: raw(TPM_ALG_RSASSA, SHA256, b"")),
                "RSA signature with a zero before it": signature(
                    lambda s: raw(TPM_ALG_RSASSA, SHA256, b"\0" + s[6:])
                ),
            },
        },
        scenario=rsa_scenario,
    ),
    *attacks(
        {
            QuoteSignatureInvalid: {
                "RSASSA under the name PSS": rsa_signs(TPM_ALG_RSAPSS, padding.PKCS1v15()),
                **{
                    f"PSS with a salt of {size} bytes, which no TPM makes": rsa_signs(
                        TPM_ALG_RSAPSS, padding.PSS(padding.MGF1(hashes.SHA256()), size)
                    )
                    for size in (0, 20, 31, 33, 221)
                },
            },
            SignatureMalformed: {
                "RSASSA named and made under PSS": rsa_signs(TPM_ALG_RSASSA, padding.PKCS1v15())
            },
        },
        scenario=pss_scenario,
    ),
    Attack(
        "P-384, SHA-256 named",
        SignatureMalformed,
        signature(lambda s: s[:2] + b"\0\x0b" + s[4:]),
        p384_scenario,
    ),
]
ATTACKS = [*attacks(AFTER_SIGNING, BEFORE_SIGNING, CONFUSED), *SIGNATURES]


@pytest.mark.parametrize("scenario", [Scenario, rsa_scenario, pss_scenario, p384_scenario])
def test_the_good_case_passes(scenario: Callable[[], Scenario]) -> None:
    assert_issued(scenario)


def test_offsets_of_fields_are_right() -> None:
    """The offsets are those of a Name of 34 bytes, 32 bytes of extraData and one bank."""
    attest = Scenario().attest()
    quote = attest.encode()
    assert quote[:6] == MAGIC + b"\x80\x18"
    assert quote[FIELDS["qualifiedSigner"] :][:34] == attest.qualified_signer
    assert quote[FIELDS["extraData"] :][:32] == attest.extra_data
    assert quote[FIELDS["bank"] :][:6] == b"\0\x0b\3\xff\0\0"
    assert quote[FIELDS["pcrDigest"] :] == attest.pcr_digest


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
