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

from common.binding import sha256
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
from signer.model import Csr
from tests.attacks.runner import Attack, Mutation, assert_issued, assert_refused
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


def quoted(scenario: Scenario) -> bytes:
    """Return the body of a quote, which the attacker writes to certified memory."""
    return scenario.attest().encode()[101:]


def certified(_: Scenario) -> bytes:
    """TPMS_CERTIFY_INFO: name and qualifiedName."""
    return tpm2b(b"\0\x0b" + bytes(32)) * 2


def created(_: Scenario) -> bytes:
    """TPMS_CREATION_INFO: objectName and creationHash."""
    return tpm2b(b"\0\x0b" + bytes(32)) + tpm2b(bytes(32))


def time(scenario: Scenario) -> bytes:
    """TPMS_TIME_ATTEST_INFO: time, clockInfo, firmwareVersion."""
    return bytes(8) + scenario.attest().encode()[76:101]


def nv(scenario: Scenario) -> bytes:
    """TPMS_NV_CERTIFY_INFO: indexName, offset and contents of the attacker's choice."""
    return tpm2b(b"\0\x0b" + bytes(32)) + b"\0\0" + tpm2b(quoted(scenario))


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


AFTER_SIGNING = [
    Attack(
        "Q1",
        f"{name} changed after signing",
        QuoteSignatureInvalid,
        unsigned(flips(at)),
    )
    for name, at in FIELDS.items()
] + [
    Attack("Q1", "cut short after signing", QuoteSignatureInvalid, unsigned(lambda q: q[:-1])),
    Attack(
        "Q1", "a trailing byte, after signing", QuoteSignatureInvalid, unsigned(lambda q: q + b"\0")
    ),
    Attack(
        "Q1",
        "another quote after signing",
        QuoteSignatureInvalid,
        unsigned(lambda q: q[:44] + bytes(32) + q[76:]),
    ),
]
BEFORE_SIGNING = (
    [
        Attack("Q1", name, QuoteMalformed, signed(edit))
        for name, edit in {
            "magic of another byte": lambda q: b"\xfe" + q[1:],
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
            "the bank twice, once empty": lambda q: q[:101] + b"\0\0\0\2\0\x0b\3\0\0\0" + q[105:],
        }.items()
    ]
    + [
        Attack("Q1", f"qualifiedSigner {name}", QuoteMalformed, signed(edit))
        for name, edit in {
            "of no bytes": lambda q: q[:6] + b"\0\0" + q[42:],
            "of SHA-1": lambda q: q[:6] + tpm2b(b"\0\4" + bytes(20)) + q[42:],
            "of SHA-384": lambda q: q[:6] + tpm2b(b"\0\x0c" + bytes(48)) + q[42:],
            "of an unknown algorithm": lambda q: q[:8] + b"\0\x12" + q[10:],
            "that is a handle": lambda q: q[:6] + tpm2b(b"\x40\0\0\x0b") + q[42:],
            "that ends early": lambda q: q[:6] + tpm2b(q[8:41]) + q[42:],
        }.items()
    ]
    + [
        Attack("Q2", name, AnswerNotBound, signed(edit))
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
    ]
    + [
        Attack("Q3", name, reason, signed(edit))
        for name, reason, edit in (
            ("no banks", PcrSelectionMismatch, lambda q: q[:101] + bytes(4) + q[111:]),
            ("one PCR less", PcrSelectionMismatch, lambda q: q[:108] + b"\xfe" + q[109:]),
            ("one PCR more", PcrSelectionMismatch, lambda q: q[:109] + b"\1" + q[110:]),
            ("all PCRs", PcrSelectionMismatch, lambda q: q[:108] + b"\xff\xff\xff" + q[111:]),
            ("SHA-1 for the bank", PcrSelectionMismatch, lambda q: q[:105] + b"\0\4" + q[107:]),
            ("SHA-384 for the bank", PcrSelectionMismatch, lambda q: q[:105] + b"\0\x0c" + q[107:]),
            ("another pcrDigest", PcrDigestMismatch, lambda q: flipped(q, 113)),
            ("pcrDigest of zeros", PcrDigestMismatch, lambda q: q[:113] + bytes(32)),
            ("empty pcrDigest", PcrDigestMismatch, lambda q: q[:111] + b"\0\0"),
            ("beginning of pcrDigest", PcrDigestMismatch, lambda q: q[:111] + tpm2b(q[113:144])),
            ("pcrDigest and a zero", PcrDigestMismatch, lambda q: q[:111] + tpm2b(q[113:] + b"\0")),
        )
    ]
)
CONFUSED = (
    [
        Attack("Q1", f"{name} instead of a quote", QuoteMalformed, statement(kind, body))
        for kind, (name, body) in TYPES.items()
    ]
    + [
        Attack("Q1", f"{name}, its body that of a quote", QuoteMalformed, statement(kind, quoted))
        for kind, (name, _) in TYPES.items()
    ]
    + [
        Attack("Q1", f"{name} that says quote", reason, statement(0x8018, body))
        for name, body, reason in (
            ("certify", certified, QuoteMalformed),
            ("creation", created, QuoteMalformed),
            ("time", time, QuoteMalformed),
            ("NV", nv, QuoteMalformed),
            ("session audit", session, QuoteMalformed),
            ("command audit", command, QuoteMalformed),
        )
    ]
    + [
        Attack(
            "Q1", "a quote among other bytes", QuoteMalformed, signed(lambda q: b"\x30\x82" + q)
        ),
        Attack("Q1", "text that was signed", QuoteMalformed, signed(lambda _: b"I am a quote")),
        Attack("Q1", "a digest that was signed", QuoteMalformed, signed(sha256)),
    ]
)
SIGNATURES = [
    Attack("Q1", "signed by another key", QuoteSignatureInvalid, by_another_key),
    Attack("Q1", "signed by the kubelet's key", QuoteSignatureInvalid, by_the_kubelet_key),
    Attack("Q1", "signature of another quote", QuoteSignatureInvalid, of_another_answer),
    Attack(
        "Q1",
        "r = s = 0 (CVE-2022-21449)",
        QuoteSignatureInvalid,
        ecdsa(lambda _: EcdsaValue(r=bytes(32), s=bytes(32))),
    ),
    Attack("Q1", "empty r and s", QuoteSignatureInvalid, ecdsa(lambda _: EcdsaValue(r=b"", s=b""))),
    Attack(
        "Q1",
        "r = s = n",
        QuoteSignatureInvalid,
        ecdsa(lambda _: EcdsaValue(r=pack_uints((ORDER, 32)), s=pack_uints((ORDER, 32)))),
    ),
    Attack(
        "Q1",
        "r + n",
        QuoteSignatureInvalid,
        ecdsa(lambda v: replace(v, r=pack_uints((integer(v.r) + ORDER, 33)))),
    ),
    Attack(
        "Q1", "r and s exchanged", QuoteSignatureInvalid, ecdsa(lambda v: EcdsaValue(r=v.s, s=v.r))
    ),
    Attack("Q1", "empty signature", SignatureMalformed, signature(lambda _: b"")),
    Attack("Q1", "signature cut short", SignatureMalformed, signature(lambda s: s[:-1])),
    Attack(
        "Q1", "a trailing byte in the signature", SignatureMalformed, signature(lambda s: s + b"\0")
    ),
    Attack("Q1", "null signature", SignatureMalformed, signature(lambda _: b"\0\x10")),
    Attack("Q1", "HMAC for a signature", SignatureMalformed, signature(lambda s: b"\0\5" + s[2:])),
    Attack("Q1", "ECDAA", SignatureMalformed, signature(lambda s: b"\0\x1a" + s[2:])),
    Attack("Q1", "SM2", SignatureMalformed, signature(lambda s: b"\0\x1b" + s[2:])),
    Attack("Q1", "ECSchnorr", SignatureMalformed, signature(lambda s: b"\0\x1c" + s[2:])),
    Attack("Q1", "SHA-1 named", SignatureMalformed, signature(lambda s: s[:2] + b"\0\4" + s[4:])),
    Attack(
        "Q1", "SHA-384 named", SignatureMalformed, signature(lambda s: s[:2] + b"\0\x0c" + s[4:])
    ),
    Attack("Q1", "SM3 named", SignatureMalformed, signature(lambda s: s[:2] + b"\0\x12" + s[4:])),
    Attack(
        "Q1", "no hash named", SignatureMalformed, signature(lambda s: s[:2] + b"\0\x10" + s[4:])
    ),
    Attack(
        "Q1", "r of 67 bytes", SignatureMalformed, ecdsa(lambda v: replace(v, r=bytes(35) + v.r))
    ),
    Attack(
        "Q1",
        "size of r over the end",
        SignatureMalformed,
        signature(lambda s: s[:4] + b"\xff\xff" + s[6:]),
    ),
    Attack("Q1", "signed with SHA-1", SignatureMalformed, ecc_signs(hashes.SHA1(), TPM_ALG_SHA1)),  # noqa: S303 - refused
    Attack(
        "Q1", "signed with SHA-384", SignatureMalformed, ecc_signs(hashes.SHA384(), TPM_ALG_SHA384)
    ),
    Attack(
        "Q1", "signed with SHA-512", SignatureMalformed, ecc_signs(hashes.SHA512(), TPM_ALG_SHA512)
    ),
    Attack(
        "Q1",
        "signed with SHA-384, SHA-256 named",
        QuoteSignatureInvalid,
        ecc_signs(hashes.SHA384(), SHA256),
    ),
    Attack(
        "Q1",
        "RSA under an EC key",
        SignatureMalformed,
        signature(lambda _: raw(TPM_ALG_RSASSA, SHA256, bytes(256))),
    ),
    Attack(
        "Q1",
        "EC under an RSA key",
        SignatureMalformed,
        signature(lambda _: raw(TPM_ALG_ECDSA, SHA256, EcdsaValue(r=b"\1", s=b"\1"))),
        rsa_scenario,
    ),
    Attack(
        "Q1",
        "PSS named and made under RSASSA",
        SignatureMalformed,
        rsa_signs(TPM_ALG_RSAPSS, PSS),
        rsa_scenario,
    ),
    Attack(
        "Q1",
        "PSS under the name RSASSA",
        QuoteSignatureInvalid,
        rsa_signs(TPM_ALG_RSASSA, PSS),
        rsa_scenario,
    ),
    Attack(
        "Q1",
        "RSASSA under the name PSS",
        QuoteSignatureInvalid,
        rsa_signs(TPM_ALG_RSAPSS, padding.PKCS1v15()),
        pss_scenario,
    ),
    *(
        Attack(
            "Q1",
            f"PSS with a salt of {size} bytes, which no TPM makes",
            QuoteSignatureInvalid,
            rsa_signs(TPM_ALG_RSAPSS, padding.PSS(padding.MGF1(hashes.SHA256()), size)),
            pss_scenario,
        )
        for size in (0, 20, 31, 33, 221)
    ),
    Attack(
        "Q1",
        "RSASSA named and made under PSS",
        SignatureMalformed,
        rsa_signs(TPM_ALG_RSASSA, padding.PKCS1v15()),
        pss_scenario,
    ),
    Attack(
        "Q1",
        "RSA over other bytes",
        QuoteSignatureInvalid,
        rsa_signs(TPM_ALG_RSASSA, padding.PKCS1v15(), b"other"),
        rsa_scenario,
    ),
    Attack("Q1", "RSA signature 1", QuoteSignatureInvalid, algebraic, rsa_scenario),
    Attack(
        "Q1",
        "empty RSA signature",
        QuoteSignatureInvalid,
        signature(lambda _: raw(TPM_ALG_RSASSA, SHA256, b"")),
        rsa_scenario,
    ),
    Attack(
        "Q1",
        "RSA signature with a zero before it",
        QuoteSignatureInvalid,
        signature(lambda s: raw(TPM_ALG_RSASSA, SHA256, b"\0" + s[6:])),
        rsa_scenario,
    ),
    Attack(
        "Q1",
        "RSA signature of 513 bytes",
        SignatureMalformed,
        signature(lambda _: b"\0\x14\0\x0b" + tpm2b(bytes(513))),
        rsa_scenario,
    ),
    Attack(
        "Q1",
        "P-384, SHA-256 named",
        SignatureMalformed,
        signature(lambda s: s[:2] + b"\0\x0b" + s[4:]),
        p384_scenario,
    ),
]
ATTACKS = AFTER_SIGNING + BEFORE_SIGNING + CONFUSED + SIGNATURES


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
