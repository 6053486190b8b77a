"""What node and signer tell each other: offer, challenge and answer, to the byte.

`decode` and `decode_challenge` take one encoding of each document and refuse all others (P6);
what the bytes in it mean is not looked at here. The version is read before anything strict, so
that a document of another version is told apart from a broken one.

Source: docs/protocol.md section 4.
"""

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from common import strict_json
from common.errors import (
    AttestationDataMalformed,
    ChallengeMalformed,
    TooLarge,
    UnsupportedVersion,
)
from common.names import VERSION
from common.tpm.constants import BANKS, DIGEST_SIZES, PCR_COUNT
from common.tpm.pcrs import PcrSelection

MAX_SIZE: Final = 64 * 1024
"""Bytes of attestation data without an event log (P1)."""
MAX_SIZE_WITH_EVENT_LOG: Final = 1024 * 1024
"""Bytes of attestation data with an event log (P1)."""
MAX_EVENT_LOG: Final = 4 * 1024 * 1024
"""Bytes of a decompressed event log: 64 times the 64 KiB that firmware has to reserve for one
(TCG ACPI Specification, LAML), about 100 times the largest seen in the wild, and little enough to
inflate for strangers."""
MAX_CHALLENGE: Final = 8 * 1024
"""Characters of a challenge: more than all PCRs of all banks and the widest keys need."""

_GZIP: Final = 16 + zlib.MAX_WBITS
_INDICES: Final = {str(index): index for index in range(PCR_COUNT)}
_TAG: Final = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmKeys:
    """The TPM's keys as sent: TPM2B_PUBLIC areas, and DER certificates (leaf first)."""

    ek_public: bytes
    ek_certificates: tuple[bytes, ...]
    ak_public: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer(TpmKeys):
    """In CSR A: these are my keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeReference:
    """Which challenge is answered: uid of A, and as in its annotation; all of known grammar.

    `issued_at` is kept as text, since the digests are over it; `wire.parse_time` reads it.
    """

    uid: str
    issued_at: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(TpmKeys):
    """In CSR B: what the TPM says to a challenge.

    `quote` is a TPMS_ATTEST, `signature` a TPMT_SIGNATURE, `event_log` already decompressed.
    """

    challenge: ChallengeReference
    quote: bytes
    signature: bytes
    pcrs: Mapping[str, Mapping[int, bytes]]
    """Digest by index by bank; a bank that the TPM has not allocated may be there, but empty."""
    event_log: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The annotation on A. `tag` is the signer's own business."""

    issued_at: str
    key: str
    credential_blob: bytes
    encrypted_secret: bytes
    pcrs: PcrSelection
    event_log: bool
    tag: str


def encode_attestation_data(document: Offer | Answer) -> bytes:
    """Write the attestation data of an offer or answer."""
    return strict_json.dump(
        _encode_answer(document) if isinstance(document, Answer) else _head(document, "offer")
    ).encode()


def decode_attestation_data(data: bytes) -> Offer | Answer:
    """Read attestation data (P1, P6).

    Raises:
        TooLarge: the data or its event log is over its limit.
        UnsupportedVersion: its version is another one.
        AttestationDataMalformed: anything else is wrong.

    """
    if len(data) > MAX_SIZE_WITH_EVENT_LOG:
        raise TooLarge("attestation data is over 1 MiB")
    try:
        document = strict_json.load(data)
        _require_version(document.get("version"))
        if len(data) > MAX_SIZE and "eventLog" not in document:
            raise TooLarge("attestation data without event log is over 64 KiB")
        return _decode_kind(document)
    except strict_json.JsonMalformed as error:
        raise AttestationDataMalformed(f"attestation data: {error}") from None


def encode_challenge(challenge: Challenge) -> str:
    """Write the challenge annotation."""
    return strict_json.dump(
        {
            "version": VERSION,
            "issuedAt": challenge.issued_at,
            "key": challenge.key,
            "credentialBlob": strict_json.base64_text(challenge.credential_blob),
            "encryptedSecret": strict_json.base64_text(challenge.encrypted_secret),
            "pcrs": {bank: list(indices) for bank, indices in challenge.pcrs.items()},
            "eventLog": challenge.event_log,
            "tag": challenge.tag,
        }
    )


def decode_challenge(text: str) -> Challenge:
    """Read a challenge annotation.

    Raises ChallengeMalformed.
    """
    if len(text) > MAX_CHALLENGE:
        raise ChallengeMalformed("challenge is over its size limit")
    try:
        return _decode_challenge(strict_json.load(text.encode("utf-8", errors="surrogatepass")))
    except strict_json.JsonMalformed as error:
        raise ChallengeMalformed(f"challenge: {error}") from None


def _require_version(version: object) -> None:
    if not isinstance(version, str):
        raise strict_json.JsonMalformed("version is missing, or not a string")
    if version != VERSION:
        raise UnsupportedVersion("attestation data is of a version that is not spoken here")


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
            raise strict_json.JsonMalformed("kind is neither offer nor answer")


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
        pcrs={bank: _pcr_values(bank, values) for bank, values in _banks(pcrs).items()},
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


def _banks(value: object) -> dict[str, object]:
    banks = strict_json.take_object(value)
    if not banks or not banks.keys() <= BANKS.keys():
        raise strict_json.JsonMalformed("pcrs is empty, or names an unknown bank")
    return banks


def _pcr_values(bank: str, value: object) -> dict[int, bytes]:
    size = DIGEST_SIZES[BANKS[bank]]
    values = strict_json.take_object(value)
    if not values.keys() <= _INDICES.keys():
        raise strict_json.JsonMalformed("a PCR index is none, or not written as decimals are")
    return {
        _INDICES[index]: strict_json.take_digest(digest, size) for index, digest in values.items()
    }


def _decode_challenge(document: dict[str, object]) -> Challenge:
    version, issued_at, key, blob, secret, pcrs, event_log, tag = strict_json.take_members(
        document,
        "version",
        "issuedAt",
        "key",
        "credentialBlob",
        "encryptedSecret",
        "pcrs",
        "eventLog",
        "tag",
    )
    if version != VERSION:
        raise strict_json.JsonMalformed("its version is not spoken here")
    return Challenge(
        issued_at=strict_json.time_text(issued_at),
        key=strict_json.take_str(key, strict_json.KEY_ID),
        credential_blob=strict_json.take_base64(blob),
        encrypted_secret=strict_json.take_base64(secret),
        pcrs={bank: _pcr_indices(indices) for bank, indices in _banks(pcrs).items()},
        event_log=strict_json.take_bool(event_log),
        tag=strict_json.take_str(tag, _TAG),
    )


def _pcr_indices(value: object) -> tuple[int, ...]:
    indices = [index for index in strict_json.take_array(value) if type(index) is int]
    if (
        not indices
        or indices != sorted(set(indices))
        or len(indices) != len(strict_json.take_array(value))
    ):
        raise strict_json.JsonMalformed(
            "PCR indices are not ascending integers, once each, at least one"
        )
    if indices[-1] >= PCR_COUNT:
        raise strict_json.JsonMalformed("a PCR index is over 23")
    return tuple(indices)


def _inflate(compressed: bytes) -> bytes:
    """Decompress one gzip member, whole and with nothing behind it, up to MAX_EVENT_LOG."""
    stream = zlib.decompressobj(wbits=_GZIP)
    try:
        log = stream.decompress(compressed, MAX_EVENT_LOG + 1)
    except zlib.error:
        raise strict_json.JsonMalformed("eventLog is not gzip") from None
    if len(log) > MAX_EVENT_LOG:
        raise TooLarge("event log is over 4 MiB when decompressed")
    if not stream.eof or stream.unused_data:
        raise strict_json.JsonMalformed("eventLog is not exactly one gzip member")
    return log
