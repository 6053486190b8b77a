"""Attestation data: the documents of offer and answer, to the byte.

The decoder accepts one encoding of each document and refuses all others (P6). It does not interpret
the TPM structures in it. It reads the version before it checks the rest, so a document of another
version is not reported as malformed.

Source: docs/protocol.md section 4.
"""

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from common.challenge import MEMBERS, take_banks
from common.errors import (
    AttestationDataMalformed,
    TooLarge,
    UnsupportedVersion,
)
from common.formats import strict_json
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
MAX_PCR_SIGNATURES: Final = 16 * 1024
"""Bytes of systemd's `tpm2-pcr-signature.json`: four boot phases of one key need 2 KiB a bank."""
_MAX_MEMBERS: Final = 64
_MEMBER: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}")
_GZIP: Final = 16 + zlib.MAX_WBITS
_INDICES: Final = {str(index): index for index in range(PCR_COUNT)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A TPMS_ATTEST and the TPMT_SIGNATURE of the attestation key over it."""

    attest: bytes
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmKeys:
    """The TPM's keys as sent: TPM2B_PUBLIC areas, and DER certificates, leaf first."""

    ek_public: bytes
    ek_certificates: tuple[bytes, ...]
    ak_public: bytes
    ak_certificate: bytes | None = None
    """The content of the NV index in which a platform certifies the attestation key."""
    ek_creation: Statement | None = None
    """That the TPM of the attestation key created the endorsement key (TPM2_CertifyCreation)."""


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
    members: tuple[str, ...] = MEMBERS
    """The names in the challenge that the node acted on, sorted: those of v1, and perhaps more."""


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
    pcr_signatures: bytes | None = None
    """systemd's `tpm2-pcr-signature.json`, as the node has it; not interpreted here."""


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
    ak = {"public": strict_json.base64_text(keys.ak_public)}
    if keys.ak_certificate is not None:
        ak["certificate"] = strict_json.base64_text(keys.ak_certificate)
    ek: dict[str, object] = {
        "public": strict_json.base64_text(keys.ek_public),
        "certificates": [strict_json.base64_text(c) for c in keys.ek_certificates],
    }
    if keys.ek_creation is not None:
        ek["creation"] = {
            "attest": strict_json.base64_text(keys.ek_creation.attest),
            "signature": strict_json.base64_text(keys.ek_creation.signature),
        }
    return {
        "version": VERSION,
        "kind": kind,
        "ek": ek,
        "ak": ak,
    }


def _encode_answer(answer: Answer) -> dict[str, object]:
    reference = answer.challenge
    document = _head(answer, "answer") | {
        "challenge": {
            "uid": reference.uid,
            "issuedAt": reference.issued_at,
            "key": reference.key,
            "members": list(reference.members),
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
    if answer.pcr_signatures is not None:
        document["pcrSignatures"] = strict_json.base64_text(answer.pcr_signatures)
    return document


def _decode_kind(document: dict[str, object]) -> Offer | Answer:
    match document.get("kind"):
        case "offer":
            _, _, ek, ak = strict_json.take_members(document, "version", "kind", "ek", "ak")
            keys = _keys(ek, ak)
            return Offer(
                ek_public=keys.ek_public,
                ek_certificates=keys.ek_certificates,
                ak_public=keys.ak_public,
                ak_certificate=keys.ak_certificate,
                ek_creation=keys.ek_creation,
            )
        case "answer":
            return _decode_answer(document)
        case _:
            raise strict_json.JsonMalformed("kind must be offer or answer")


def _decode_answer(document: dict[str, object]) -> Answer:
    names = ("version", "kind", "ek", "ak", "challenge", "quote", "signature", "pcrs")
    optional = [name for name in ("eventLog", "pcrSignatures") if name in document]
    _, _, ek, ak, challenge, quote, signature, pcrs, *_ = strict_json.take_members(
        document, *names, *optional
    )
    keys = _keys(ek, ak)
    return Answer(
        ek_public=keys.ek_public,
        ek_certificates=keys.ek_certificates,
        ak_public=keys.ak_public,
        ak_certificate=keys.ak_certificate,
        ek_creation=keys.ek_creation,
        challenge=_reference(challenge),
        quote=strict_json.take_base64(quote),
        signature=strict_json.take_base64(signature),
        pcrs={bank: _pcr_values(bank, values) for bank, values in take_banks(pcrs).items()},
        event_log=_take_optional(document, "eventLog", _event_log),
        pcr_signatures=_take_optional(document, "pcrSignatures", _pcr_signatures),
    )


def _take_optional(
    document: Mapping[str, object], name: str, take: Callable[[object], bytes]
) -> bytes | None:
    return take(document[name]) if name in document else None


def _keys(ek: object, ak: object) -> TpmKeys:
    ek_members, ak_members = strict_json.take_object(ek), strict_json.take_object(ak)
    creation = ("creation",) if "creation" in ek_members else ()
    certificate = ("certificate",) if "certificate" in ak_members else ()
    ek_public, certificates, *_ = strict_json.take_members(ek, "public", "certificates", *creation)
    ak_public, *_ = strict_json.take_members(ak, "public", *certificate)
    return TpmKeys(
        ek_public=strict_json.take_base64(ek_public),
        ek_certificates=tuple(map(strict_json.take_base64, strict_json.take_array(certificates))),
        ak_public=strict_json.take_base64(ak_public),
        ak_certificate=_take_optional(ak_members, "certificate", strict_json.take_base64),
        ek_creation=_statement(ek_members["creation"]) if creation else None,
    )


def _statement(value: object) -> Statement:
    attest, signature = strict_json.take_members(value, "attest", "signature")
    return Statement(
        attest=strict_json.take_base64(attest), signature=strict_json.take_base64(signature)
    )


def _reference(value: object) -> ChallengeReference:
    uid, issued_at, key, members = strict_json.take_members(
        value, "uid", "issuedAt", "key", "members"
    )
    return ChallengeReference(
        uid=strict_json.take_str(uid, strict_json.UID),
        issued_at=strict_json.time_text(issued_at),
        key=strict_json.take_str(key, strict_json.KEY_ID),
        members=_members(members),
    )


def _members(value: object) -> tuple[str, ...]:
    array = strict_json.take_array(value)
    if len(array) > _MAX_MEMBERS:
        raise strict_json.JsonMalformed("challenge.members has too many names")
    names = [strict_json.take_str(name, _MEMBER) for name in array]
    if names != sorted(set(names)) or not set(names) >= set(MEMBERS):
        raise strict_json.JsonMalformed(
            "challenge.members must be ascending without repetition, with all names of v1"
        )
    return tuple(names)


def _pcr_values(bank: str, value: object) -> dict[int, bytes]:
    size = DIGEST_SIZES[BANKS[bank]]
    values = strict_json.take_object(value)
    if not values.keys() <= _INDICES.keys():
        raise strict_json.JsonMalformed("a PCR index must be 0 to 23 in decimal")
    return {
        _INDICES[index]: strict_json.take_digest(digest, size) for index, digest in values.items()
    }


def _pcr_signatures(value: object) -> bytes:
    signatures = strict_json.take_base64(value)
    if len(signatures) > MAX_PCR_SIGNATURES:
        raise TooLarge("the signatures of PCR values exceed 16 KiB")
    return signatures


def _event_log(value: object) -> bytes:
    """Decompress exactly one complete gzip member, up to MAX_EVENT_LOG bytes."""
    stream = zlib.decompressobj(wbits=_GZIP)
    try:
        log = stream.decompress(strict_json.take_base64(value), MAX_EVENT_LOG + 1)
    except zlib.error:
        raise strict_json.JsonMalformed("eventLog is not gzip") from None
    if len(log) > MAX_EVENT_LOG:
        raise TooLarge("the decompressed event log exceeds 4 MiB")
    if not stream.eof or stream.unused_data:
        raise strict_json.JsonMalformed("eventLog must be exactly one gzip member")
    return log
