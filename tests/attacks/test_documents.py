"""JSON documents that two parsers read differently, or that cost more to read than to send.

A repeated member has two values, base64 with spare bits has many encodings, and a number of a
million digits takes a minute to parse. The signer must use the value that it has checked, and any
requester can send documents. So each document has one form and limits (P1, P6).
"""

import base64
import gzip
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest

from common.challenge import MEMBERS as OF_V1
from common.errors import AttestationDataMalformed, AttestationError, TooLarge, UnsupportedVersion
from common.evidence import (
    MAX_EVENT_LOG,
    MAX_SIZE,
    MAX_SIZE_WITH_EVENT_LOG,
    encode_attestation_data,
)
from common.names import SUPPORTED_VERSIONS_ANNOTATION
from common.requests.csr import encode_request
from signer.errors import AnswerNotBound, EndorsementKeyMalformed, PcrSelectionMismatch
from signer.kinds.csr import Csr
from signer.policy import policy
from tests.attacks.documents import (
    Document,
    answered,
    member,
    offered,
    parsed,
    raw,
    text_of,
    without,
)
from tests.attacks.runner import Attack, assert_issued, assert_refused, reconcile_once
from tests.builders.scenario import Scenario

DEPTH = 3000


def twice(name: str, value: str) -> Callable[[bytes], bytes]:
    """Write a member a second time, at the end."""
    return lambda data: data[:-1] + f',"{name}":{value}}}'.encode()


def twice_first(name: str, value: str) -> Callable[[bytes], bytes]:
    """Write a member a second time, before."""
    return lambda data: f'{{"{name}":{value},'.encode() + data[1:]


def escaped_name(data: bytes) -> bytes:
    """Write a member again, its name in escapes: one name to a parser, two to a search."""
    return data[:-1] + b',"\\u006bind":"offer"}'


def nested_twice(data: bytes) -> bytes:
    """Write the endorsement key's public area twice."""
    return data.replace(b'"ek":{', b'"ek":{"public":"AAAA",')


def renamed(old: str, new: str) -> Callable[[bytes], bytes]:
    """Rename a member."""
    return lambda data: data.replace(f'"{old}":'.encode(), f'"{new}":'.encode(), 1)


def spare_bits(text: str) -> str:
    """Set the unused bits of the last base64 character."""
    padded = text.rstrip("=")
    assert padded != text
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    last = alphabet[alphabet.index(padded[-1]) + 1]
    return padded[:-1] + last + text[len(padded) :]


def padded_member(document: Document) -> None:
    """Set spare bits: the 90 bytes of the AK's area have none, and one more byte has some."""
    area = base64.b64decode(document["ak"]["public"]) + b"\0"
    text = base64.b64encode(area + bytes(-(len(area) + 2) % 3)).decode()
    document["ak"]["public"] = spare_bits(text)


def with_log(log: bytes | Callable[[], bytes]) -> Callable[[bytes], bytes]:
    """Add these bytes as event log. A function that returns them runs with the attack."""

    def edit(data: bytes) -> bytes:
        text = base64.b64encode(log() if callable(log) else log).decode()
        return member("eventLog", value=text)(data)

    return edit


@cache
def bomb() -> bytes:
    """Compress one zero byte more than the limit."""
    return gzip.compress(bytes(MAX_EVENT_LOG + 1), compresslevel=9, mtime=0)


@cache
def big_bomb() -> bytes:
    """Compress far more than the limit, which must apply during decompression."""
    piece, pieces, checksum = bytes(1 << 20), 512, 0
    deflate = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    # After a full flush no state is left, so the compressed piece can be repeated.
    compressed = deflate.compress(piece) + deflate.flush(zlib.Z_FULL_FLUSH)
    for _ in range(pieces):
        checksum = zlib.crc32(piece, checksum)
    header = gzip.compress(b"", mtime=0)[:10]
    trailer = struct.pack("<II", checksum, pieces * len(piece))
    return header + compressed * pieces + deflate.flush() + trailer


def broken_checksum() -> bytes:
    """Spoil the CRC at the end of a gzip member."""
    good = gzip.compress(b"log", mtime=0)
    return good[:-8] + b"\0\0\0\0" + good[-4:]


def too_large(scenario: Scenario) -> Csr:
    """Pad a good answer with spaces, which JSON allows, over the limit."""
    data = encode_attestation_data(scenario.answer())
    return scenario.answer_csr(request=encode_request(scenario.pkcs10(), data.ljust(MAX_SIZE + 1)))


def too_large_with_log(scenario: Scenario) -> Csr:
    """Pad a good answer with an event log over the larger limit."""
    data = encode_attestation_data(scenario.answer())
    data = with_log(gzip.compress(b"log"))(data).ljust(MAX_SIZE_WITH_EVENT_LOG + 1)
    return scenario.answer_csr(request=encode_request(scenario.pkcs10(), data))


def large_annotations(scenario: Scenario) -> Csr:
    """Fill the annotations of an offer, as the API server lets its requester do."""
    return scenario.offer_csr(annotations_size=32 * 1024 + 1)


def too_large_offer(scenario: Scenario) -> Csr:
    """Fill an offer with certificates."""
    offer = replace(scenario.offer(), ek_certificates=(bytes(MAX_SIZE),))
    return scenario.offer_csr(offer)


def pcr(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    """Change the values of the bank that is quoted."""
    return parsed(lambda d: change(d["pcrs"]["sha256"]))


def malformed(
    name: str,
    edit: Callable[[bytes], bytes],
    *,
    offer: bool = False,
) -> Attack:
    """Expect that the document is refused for its form."""
    mutate = offered(edit) if offer else answered(edit)
    return Attack(name, AttestationDataMalformed, mutate)


def other(name: str, reason: type[AttestationError], edit: Callable[[bytes], bytes]) -> Attack:
    """Expect another reason."""
    return Attack(name, reason, answered(edit))


FORM = [
    malformed("nothing", lambda _: b""),
    malformed("a line feed", lambda _: b"\n"),
    malformed("an array", lambda d: b"[" + d + b"]"),
    malformed("a string", lambda d: json.dumps(d.decode()).encode()),
    malformed("null", lambda _: b"null"),
    malformed("a number", lambda _: b"1"),
    malformed("cut short", lambda d: d[:-1]),
    malformed("a second document at the end", lambda d: d + b"{}"),
    malformed("NUL at the end", lambda d: d + b"\0"),
    malformed("a comment", lambda d: d + b"/**/"),
    malformed("a comma too many", lambda d: d[:-1] + b",}"),
    malformed("single quotes", lambda d: d.replace(b'"', b"'")),
    malformed("byte order mark", lambda d: b"\xef\xbb\xbf" + d),
    malformed("UTF-16", lambda d: d.decode().encode("utf-16")),
    malformed("UTF-32", lambda d: d.decode().encode("utf-32-le")),
    malformed("bytes that are no UTF-8", lambda d: d.replace(b'"answer"', b'"answer\xff"')),
    malformed("overlong UTF-8", lambda d: d.replace(b'"answer"', b'"\xc1\xa1nswer"')),
    malformed("an encoded surrogate", lambda d: d.replace(b'"answer"', b'"\xed\xa0\x80"')),
    malformed("an escaped surrogate", raw("kind", value='"\\ud800"')),
    malformed("a raw line feed in a string", raw("kind", value='"answer\n"')),
    malformed("arrays without end", raw("quote", value="[" * DEPTH + "]" * DEPTH)),
    malformed("objects without end", raw("quote", value='{"a":' * DEPTH + "1" + "}" * DEPTH)),
    malformed("depth without an end", lambda _: b"[" * 60_000),
    malformed("a number of 60000 digits", raw("quote", value="9" * 60_000)),
    malformed("a number of 4301 digits", raw("quote", value="9" * 4301)),
    malformed("an exponent", raw("quote", value="1e999999999")),
    malformed("NaN", raw("quote", value="NaN")),
    malformed("Infinity", raw("quote", value="-Infinity")),
    malformed("hexadecimal", raw("quote", value="0x10")),
    malformed("half a million values", raw("eventLog", value=f"[{'1,' * 500_000}1]")),
    malformed("arrays by the hundred thousand", raw("eventLog", value="[" * 300_000)),
    malformed("a thousand members", parsed(lambda d: d.update({str(i): i for i in range(1000)}))),
]

MEMBERS = [
    malformed("kind twice", twice("kind", '"offer"')),
    malformed("kind twice and equal", twice("kind", '"answer"')),
    malformed("kind twice, in escapes", escaped_name),
    malformed("endorsement key twice", twice("ek", '{"public":"","certificates":[]}')),
    malformed("quote twice", twice_first("quote", '"AAAA"')),
    malformed("a member of the endorsement key twice", nested_twice),
    malformed("PCR twice", lambda d: d.replace(b'"sha256":{"0"', b'"sha256":{"1":"00","0"')),
    malformed("bank twice", lambda d: d.replace(b'"pcrs":{', b'"pcrs":{"sha256":{},')),
    malformed("version twice", twice("version", '"v1"')),
    malformed("no version", without("version")),
    malformed("version is a number", member("version", value=1)),
    malformed("version is null", member("version", value=None)),
    malformed("version is an array", member("version", value=["v1"])),
    malformed("no kind", without("kind")),
    malformed("unknown kind", member("kind", value="serving")),
    malformed("kind in capitals", member("kind", value="Answer")),
    malformed("kind is null", member("kind", value=None)),
    malformed("an answer that says offer", member("kind", value="offer")),
    malformed("an offer that says answer", member("kind", value="answer"), offer=True),
    malformed("an offer with a quote", member("quote", value="AAAA"), offer=True),
    malformed("an offer with a challenge", member("challenge", value={}), offer=True),
    malformed("an unknown member", member("insecure", value=True)),
    malformed("a member of no name", member("", value="")),
    malformed("an unknown member in an offer", member("trust", value="FirstUse"), offer=True),
    malformed("an unknown member of the endorsement key", member("ek", "template", value="L-1")),
    malformed("the attestation key also as PEM", member("ak", "pem", value="-----BEGIN")),
    malformed("an unknown member of the challenge", member("challenge", "secret", value="AAAA")),
    *(
        malformed(f"{what} as what the node acted on", member("challenge", "members", value=value))
        for what, value in {
            "nothing": [],
            "a text": ",".join(OF_V1),
            "not all of v1": OF_V1[1:],
            "names that descend": OF_V1[::-1],
            "a name twice": sorted((*OF_V1, OF_V1[0])),
            "a name with a comma": sorted((*OF_V1, "pcrs,x")),
            "a number": [*OF_V1, 1],
            "a hundred names": sorted((*OF_V1, *(f"x{i}" for i in range(100)))),
        }.items()
    ),
    malformed("a name in capitals", renamed("quote", "Quote")),
    malformed("a name with a space", renamed("quote", "quote ")),
    malformed("a name with a Cyrillic letter", renamed("quote", "qu\u043ete")),
    *(
        malformed(f"no {name}", without(*name.split(".")))
        for name in (
            *("ek", "ek.public", "ek.certificates", "ak", "ak.public"),
            *("challenge", "challenge.uid", "challenge.issuedAt", "challenge.key"),
            "challenge.members",
            *("quote", "signature", "pcrs"),
        )
    ),
    malformed("no attestation key in an offer", without("ak"), offer=True),
    *(
        malformed(f"{name} is null", member(*name.split("."), value=None))
        for name in ("ek", "ek.public", "ek.certificates", "ak", "challenge", "quote", "pcrs")
    ),
    malformed("certificates in an object", member("ek", "certificates", value={})),
    malformed("a certificate is a number", member("ek", "certificates", value=[1])),
    malformed("a certificate is an array", member("ek", "certificates", value=[[]])),
    malformed("quote is true", member("quote", value=True)),
]

VALUES = [
    malformed("base64 without padding", text_of("quote", change=lambda t: t.rstrip("=") + "A")),
    malformed("base64 with spare bits", parsed(padded_member)),
    malformed("base64 with a line feed", text_of("quote", change=lambda t: t + "\n")),
    malformed("base64 with a space", text_of("quote", change=lambda t: " " + t)),
    malformed("base64 in lines", text_of("quote", change=lambda t: t[:64] + "\r\n" + t[64:])),
    malformed("base64 of the URL alphabet", member("quote", value="-_-_")),
    malformed("base64 padded in the middle", member("quote", value="AA==AAAA")),
    malformed("base64 with too much padding", text_of("quote", change=lambda t: t + "====")),
    malformed("base64 of other digits", member("quote", value="\uff21AAA")),
    malformed(
        "hexadecimal for base64", text_of("quote", change=lambda t: base64.b64decode(t).hex() + "0")
    ),
    malformed("uid in capitals", text_of("challenge", "uid", change=lambda t: "A" + t[1:])),
    malformed("uid in braces", text_of("challenge", "uid", change=lambda t: f"{{{t}}}")),
    malformed(
        "uid without hyphens", text_of("challenge", "uid", change=lambda t: t.replace("-", ""))
    ),
    malformed("uid with a line feed", text_of("challenge", "uid", change=lambda t: t + "\n")),
    malformed("empty uid", member("challenge", "uid", value="")),
    malformed("uid as a path", member("challenge", "uid", value="../../secrets")),
    malformed(
        "time with a fraction", member("challenge", "issuedAt", value="2026-11-21T09:30:00.0Z")
    ),
    malformed(
        "time with a zone", member("challenge", "issuedAt", value="2026-11-21T09:30:00+00:00")
    ),
    malformed("time without a zone", member("challenge", "issuedAt", value="2026-11-21T09:30:00")),
    malformed("time with a space", member("challenge", "issuedAt", value="2026-11-21 09:30:00Z")),
    malformed(
        "time in small letters", member("challenge", "issuedAt", value="2026-11-21t09:30:00z")
    ),
    malformed(
        "time in Arabic digits", member("challenge", "issuedAt", value="\u0662026-11-21T09:30:00Z")
    ),
    malformed(
        "time that does not exist", member("challenge", "issuedAt", value="2026-02-30T09:30:00Z")
    ),
    malformed("leap second", member("challenge", "issuedAt", value="2026-11-21T09:29:60Z")),
    malformed("hour 24", member("challenge", "issuedAt", value="2026-11-20T24:00:00Z")),
    malformed("year 0", member("challenge", "issuedAt", value="0000-11-21T09:30:00Z")),
    malformed("time as a number", member("challenge", "issuedAt", value=1795253400)),
    malformed("key ID in capitals", text_of("challenge", "key", change=str.upper)),
    malformed("key ID of 15 digits", text_of("challenge", "key", change=lambda t: t[:-1])),
    malformed("empty key ID", member("challenge", "key", value="")),
    malformed("pcrs is empty", member("pcrs", value={})),
    malformed("pcrs is an array", member("pcrs", value=[])),
    malformed("unknown bank", member("pcrs", "sha3_256", value={})),
    malformed("bank in capitals", renamed("sha256", "SHA256")),
    malformed("bank is an array", member("pcrs", "sha256", value=["00" * 32])),
    malformed("PCR 24", pcr(lambda p: p.update({"24": "00" * 32}))),
    malformed("PCR -1", pcr(lambda p: p.update({"-1": "00" * 32}))),
    malformed("PCR 00", pcr(lambda p: p.update({"00": p.pop("0")}))),
    malformed("PCR with a plus", pcr(lambda p: p.update({"+1": p.pop("1")}))),
    malformed("PCR with a space", pcr(lambda p: p.update({" 1": p.pop("1")}))),
    malformed("PCR in an Arabic digit", pcr(lambda p: p.update({"\u0661": p.pop("1")}))),
    malformed("PCR with an underscore", pcr(lambda p: p.update({"1_0": "00" * 32}))),
    malformed(
        "digest in capitals", pcr(lambda p: p.update({"0": p["0"].upper().replace("0", "A")}))
    ),
    malformed("digest cut short", pcr(lambda p: p.update({"0": p["0"][:-2]}))),
    malformed("digest of another bank", pcr(lambda p: p.update({"0": "00" * 48}))),
    malformed("half a byte of digest", pcr(lambda p: p.update({"0": p["0"][:-1]}))),
    malformed("digest with spaces", pcr(lambda p: p.update({"0": "00 " * 21 + "0"}))),
    malformed("digest is null", pcr(lambda p: p.update({"0": None}))),
    malformed("digest in base64", pcr(lambda p: p.update({"0": "A" * 43 + "="}))),
    other("no PCRs in the bank", PcrSelectionMismatch, member("pcrs", "sha256", value={})),
    other(
        "a bank that was not asked for",
        PcrSelectionMismatch,
        member("pcrs", "sha384", value={}),
    ),
    other("empty endorsement key", EndorsementKeyMalformed, member("ek", "public", value="")),
    other(
        "another uid",
        AnswerNotBound,
        text_of("challenge", "uid", change=lambda t: "0" + t[1:]),
    ),
]

VERSIONS = [
    other(f"version {what}", UnsupportedVersion, member("version", value=value))
    for what, value in {
        "2": "v2",
        "0": "v0",
        "1 in capitals": "V1",
        "1.1": "v1.1",
        "1 and space": "v1 ",
        "of nothing": "",
    }.items()
] + [
    other(
        "version 2 of another form",
        UnsupportedVersion,
        lambda _: b'{"version":"v2","anything":[1.5,{"a":1,"a":2}]}',
    ),
    Attack("offer of version 2", UnsupportedVersion, offered(member("version", value="v2"))),
]

SIZES = [
    Attack("data over 64 KiB", TooLarge, too_large),
    Attack("data with event log over 1 MiB", TooLarge, too_large_with_log),
    Attack("offer over 64 KiB", TooLarge, too_large_offer),
    Attack("annotations over 32 KiB", TooLarge, large_annotations),
    Attack("decompression bomb", TooLarge, answered(with_log(bomb))),
    Attack("half a gigabyte in half a megabyte", TooLarge, answered(with_log(big_bomb))),
    malformed("event log that is not compressed", with_log(b"log")),
    malformed("event log of zlib", with_log(zlib.compress(b"log"))),
    malformed("event log as raw deflate", with_log(zlib.compress(b"log", wbits=-15))),
    malformed("empty event log", with_log(b"")),
    malformed("event log cut short", with_log(gzip.compress(b"log")[:-1])),
    malformed("event log with a trailing byte", with_log(gzip.compress(b"log") + b"\0")),
    malformed("two event logs", with_log(gzip.compress(b"log") * 2)),
    malformed("event log with a wrong checksum", with_log(broken_checksum())),
    malformed("event log is null", member("eventLog", value=None)),
    malformed("event log in an offer", with_log(gzip.compress(b"log")), offer=True),
    malformed("bomb in an offer", with_log(bomb), offer=True),
]

ATTACKS = FORM + MEMBERS + VALUES + VERSIONS + SIZES


def test_the_good_case_passes() -> None:
    assert_issued(Scenario)


def test_member_order_and_spaces_do_not_matter() -> None:
    """Member order and spaces do not change the meaning of JSON."""
    scenario = Scenario()
    document = json.loads(encode_attestation_data(scenario.answer()))
    data = json.dumps(dict(reversed(document.items())), indent=2).encode()
    csr = scenario.answer_csr(request=encode_request(scenario.pkcs10(), data))
    assert reconcile_once(scenario, csr).outcome == "issued"


def test_large_event_log_is_accepted() -> None:
    """Between the limit without a log and the one with it."""
    scenario = Scenario(event_log=Random(0).randbytes(MAX_SIZE))
    csr = scenario.answer_csr()
    assert len(csr.request) > MAX_SIZE
    assert reconcile_once(scenario, csr).outcome == "issued"


def test_version_below_the_minimum_of_the_policy_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`minimumVersion` prevents a downgrade to a weaker version."""
    monkeypatch.setattr(policy, "SUPPORTED_VERSIONS", ("v1", "v2"))
    scenario = Scenario()
    scenario.policy = replace(scenario.policy, minimum_version="v2")
    for csr in (scenario.offer_csr(), scenario.answer_csr()):
        traces = reconcile_once(scenario, csr)
        assert traces.reason == "UnsupportedVersion"
        assert traces.csr.annotations[SUPPORTED_VERSIONS_ANNOTATION] == "v2"


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
