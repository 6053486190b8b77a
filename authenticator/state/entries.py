"""JSON of the files that hold exchanges and cooldowns: a format number, and a list of entries.

The files have no checksum (see `store`). So the decoders check the type of every field, and raise
ordinary exceptions, which `store` turns into a warning.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Final, TypeVar

from authenticator.model import Cooldown, PendingExchange

FORMAT: Final = 2
_BINARY_FIELDS: Final = frozenset({"key", "offer", "answer"})
_T = TypeVar("_T")


def encode_entries(entries: Iterable[Mapping[str, object]]) -> bytes:
    """Return the content of a file."""
    return json.dumps({"format": FORMAT, "entries": [*entries]}).encode()


def decode_entries(content: bytes) -> list[dict[str, object]]:
    """Return the entries of a file.

    Raises `KeyError`, `TypeError` or `ValueError` when it is damaged, or of another version.
    """
    document = decode_object(content)
    if document is None or document["format"] != FORMAT:
        raise ValueError(FORMAT)
    return [_instance(entry, dict) for entry in _instance(document["entries"], list)]


def decode_object(content: bytes) -> dict[str, object] | None:
    """Return a JSON object, None for anything else."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def encode_pending(pending: PendingExchange) -> dict[str, object]:
    """Return the entry of an exchange."""
    members = asdict(pending)
    for name in _BINARY_FIELDS:
        if members[name] is not None:
            members[name] = b64encode(members[name]).decode()
    return members


def decode_pending(entry: dict[str, object]) -> PendingExchange:
    """Return the exchange of an entry.

    Raises `KeyError`, `TypeError` or `ValueError` when a field is missing or of another type.
    """
    return PendingExchange(
        fingerprint=_instance(entry["fingerprint"], str),
        boot_id=_instance(entry["boot_id"], str),
        started_at=_instance(entry["started_at"], float),
        offer_name=_instance(entry["offer_name"], str),
        answer_name=_instance(entry["answer_name"], str),
        key=_bytes(entry["key"]),
        offer=_bytes(entry["offer"]),
        offer_uid=_optional(entry["offer_uid"], str),
        challenge=_optional(entry["challenge"], str),
        challenge_seen=_optional(entry["challenge_seen"], float),
        answer=None if entry["answer"] is None else _bytes(entry["answer"]),
    )


def decode_cooldown(entry: dict[str, object]) -> Cooldown:
    """Return the cooldown of an entry.

    Raises `KeyError` or `TypeError` when a field is missing or of another type.
    """
    return Cooldown(
        boot_id=_instance(entry["boot_id"], str),
        until=_instance(entry["until"], float),
        failures=_instance(entry["failures"], int),
        reason=_instance(entry["reason"], str),
        message=_instance(entry["message"], str),
        fingerprint=_instance(entry["fingerprint"], str),
        clock_offset=_instance(entry["clock_offset"], float),
    )


def _bytes(value: object) -> bytes:
    return b64decode(_instance(value, str), validate=True)


def _instance(value: object, kind: type[_T]) -> _T:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _optional(value: object, kind: type[_T]) -> _T | None:
    return None if value is None else _instance(value, kind)
