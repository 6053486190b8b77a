"""Attestation data: the documents of offer and answer, to the byte.

The decoder accepts one encoding of each document and refuses all others (P6). It does not interpret
the TPM structures in it. It reads the version before it checks the rest, so a document of another
version is not reported as malformed.

Source: docs/protocol.md section 4.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from common import strict_json
from common.challenge import take_banks
from common.errors import (
    AttestationDataMalformed,
    TooLarge,
    UnsupportedVersion,
)
from common.names import VERSION
from common.tpm.constants import BANKS, DIGEST_SIZES, PCR_COUNT

MAX_SIZE: Final = 64 * 1024
"""Bytes of attestation data without an event log (P1)."""
MAX_SIZE_WITH_EVENT_LOG: Final = 1024 * 1024
"""Bytes of attestation data with an event log (P1)."""
MAX_EVENT_LOG: Final = 4 * 1024 * 1024
"""Bytes of a decompressed event log.

This is 64 times the 64 KiB that firmware must reserve for a log (TCG ACPI Specification, LAML), and
about 100 times the largest published log. It is small enough to decompress for an unverified node.
"""
_GZIP: Final = 16 + zlib.MAX_WBITS
_INDICES: Final = {str(index): index for index in range(PCR_COUNT)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmKeys:
    """The TPM's keys as sent: TPM2B_PUBLIC areas, and DER certificates, leaf first."""

    ek_public: bytes
    ek_certificates: tuple[bytes, ...]
    ak_public: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer(TpmKeys):
    """The document of CSR A: the TPM's keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeReference:
    """The challenge of an answer: `uid` of CSR A, `issued_at` and `key` of its annotation.

    All three match their grammar. `issued_at` stays text, because the secret is derived from the
    text; `strict_json.parse_time` parses it.
    """

    uid: str
    issued_at: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(TpmKeys):
    """The document of CSR B: the TPM's keys, and its quote for a challenge.

    `quote` is a TPMS_ATTEST, `signature` a TPMT_SIGNATURE, `event_log` is decompressed.
    """

    challenge: ChallengeReference
    quote: bytes
    signature: bytes
    pcrs: Mapping[str, Mapping[int, bytes]]
    """Digests by index, by bank. A bank that the TPM has not allocated may be present and empty."""
    event_log: bytes | None


def encode_attestation_data(document: Offer | Answer) -> bytes:
    """Return the attestation data of an offer or an answer."""
    return strict_json.dump(
        _encode_answer(document) if isinstance(document, Answer) else _head(document, "offer")
    ).encode()


def decode_attestation_data(data: bytes) -> Offer | Answer:
    """Parse attestation data (P1, P6).

    Raises:
        TooLarge: the data or its event log exceeds its limit.
        UnsupportedVersion: the version is not supported.
        AttestationDataMalformed: the data breaks another rule.

    """
    if len(data) > MAX_SIZE_WITH_EVENT_LOG:
        raise TooLarge("attestation data exceeds 1 MiB")
    try:
        document = strict_json.load(data)
        _require_version(document.get("version"))
        if len(data) > MAX_SIZE and "eventLog" not in document:
            raise TooLarge("attestation data without event log exceeds 64 KiB")
        return _decode_kind(document)
    except strict_json.JsonMalformed as error:
        raise AttestationDataMalformed(f"attestation data: {error}") from None


def _require_version(version: object) -> None:
    if not isinstance(version, str):
        raise strict_json.JsonMalformed("version must be a string")
    if version != VERSION:
        raise UnsupportedVersion(f"attestation data: the version must be {VERSION}")


def _head(keys: TpmKeys, kind: str) -> dict[str, object]:
    return {
        "version": VERSION,
        "kind": kind,
        "ek": {
            "public": strict_json.base64_text(keys.ek_public),
            "certificates": [strict_json.base64_text(c) for c in keys.ek_certificates],
        },
        "ak": {"public": strict_json.base64_text(keys.ak_public)},
    }


def _encode_answer(answer: Answer) -> dict[str, object]:
    reference = answer.challenge
    document = _head(answer, "answer") | {
        "challenge": {
            "uid": reference.uid,
            "issuedAt": reference.issued_at,
            "key": reference.key,
        },
        "quote": strict_json.base64_text(answer.quote),
        "signature": strict_json.base64_text(answer.signature),
        "pcrs": {
            bank: {str(index): value.hex() for index, value in values.items()}
            for bank, values in answer.pcrs.items()
        },
    }
    if answer.event_log is not None:
        document["eventLog"] = strict_json.base64_text(zlib.compress(answer.event_log, wbits=_GZIP))
    return document


def _decode_kind(document: dict[str, object]) -> Offer | Answer:
    match document.get("kind"):
        case "offer":
            _, _, ek, ak = strict_json.take_members(document, "version", "kind", "ek", "ak")
            ek_public, ek_certificates, ak_public = _keys(ek, ak)
            return Offer(ek_public=ek_public, ek_certificates=ek_certificates, ak_public=ak_public)
        case "answer":
            return _decode_answer(document)
        case _:
            raise strict_json.JsonMalformed("kind must be offer or answer")


def _decode_answer(document: dict[str, object]) -> Answer:
    names = ["version", "kind", "ek", "ak", "challenge", "quote", "signature", "pcrs"]
    if "eventLog" in document:
        names.append("eventLog")
    _, _, ek, ak, challenge, quote, signature, pcrs, *log = strict_json.take_members(
        document, *names
    )
    ek_public, ek_certificates, ak_public = _keys(ek, ak)
    return Answer(
        ek_public=ek_public,
        ek_certificates=ek_certificates,
        ak_public=ak_public,
        challenge=_reference(challenge),
        quote=strict_json.take_base64(quote),
        signature=strict_json.take_base64(signature),
        pcrs={bank: _pcr_values(bank, values) for bank, values in take_banks(pcrs).items()},
        event_log=_inflate(strict_json.take_base64(log[0])) if log else None,
    )


def _keys(ek: object, ak: object) -> tuple[bytes, tuple[bytes, ...], bytes]:
    ek_public, certificates = strict_json.take_members(ek, "public", "certificates")
    (ak_public,) = strict_json.take_members(ak, "public")
    return (
        strict_json.take_base64(ek_public),
        tuple(strict_json.take_base64(c) for c in strict_json.take_array(certificates)),
        strict_json.take_base64(ak_public),
    )


def _reference(value: object) -> ChallengeReference:
    uid, issued_at, key = strict_json.take_members(value, "uid", "issuedAt", "key")
    return ChallengeReference(
        uid=strict_json.take_str(uid, strict_json.UID),
        issued_at=strict_json.time_text(issued_at),
        key=strict_json.take_str(key, strict_json.KEY_ID),
    )


def _pcr_values(bank: str, value: object) -> dict[int, bytes]:
    size = DIGEST_SIZES[BANKS[bank]]
    values = strict_json.take_object(value)
    if not values.keys() <= _INDICES.keys():
        raise strict_json.JsonMalformed("a PCR index must be 0 to 23 in decimal")
    return {
        _INDICES[index]: strict_json.take_digest(digest, size) for index, digest in values.items()
    }


def _inflate(compressed: bytes) -> bytes:
    """Decompress exactly one complete gzip member, up to MAX_EVENT_LOG bytes."""
    stream = zlib.decompressobj(wbits=_GZIP)
    try:
        log = stream.decompress(compressed, MAX_EVENT_LOG + 1)
    except zlib.error:
        raise strict_json.JsonMalformed("eventLog is not gzip") from None
    if len(log) > MAX_EVENT_LOG:
        raise TooLarge("the decompressed event log exceeds 4 MiB")
    if not stream.eof or stream.unused_data:
        raise strict_json.JsonMalformed("eventLog must be exactly one gzip member")
    return log
