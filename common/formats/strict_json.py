"""JSON of the protocol: each value has one accepted encoding.

Parsing has two steps, because the version of a document decides which rules apply
(docs/protocol.md section 3): `load` accepts any JSON object, then the `take_` functions check
single values. Error messages contain no value of the document.
"""

import base64
import binascii
import json
import re
from datetime import UTC, datetime
from typing import Final

UID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A Kubernetes UID: a lower-case UUID."""
KEY_ID: Final = re.compile(r"[0-9a-f]{16}")
"""The result of `common.requests.binding.challenge_key_id`."""

# Python 3.14 accepts the hour 24, a second text for the midnight of the next day.
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}Z")
_MAX_INTEGER_DIGITS: Final = 9
"""No integer of the protocol has more than two digits. Conversion takes quadratic time."""
_MAX_VALUES: Final = 4096
"""Commas and opening brackets; each may allocate a list. No document of the protocol has 300."""


class JsonMalformed(ValueError):
    """The JSON, or a value in it, is not in the encoding of the protocol."""


class _DuplicateKeys(dict[str, object]):
    """An object with a repeated name; parsers differ in what they keep (class of SPIRE 1.14.6)."""


def load(data: bytes) -> dict[str, object]:
    """Parse any JSON object. Fractions, huge numbers and NaN become None, which no rule accepts.

    Raises `JsonMalformed` if the data is not UTF-8, not JSON, not an object, nested too deeply, or
    has more values than any document of the protocol.
    """
    if data.count(b",") + data.count(b"[") + data.count(b"{") > _MAX_VALUES:
        raise JsonMalformed("the document has too many values")
    try:
        document = _DECODER.decode(data.decode("utf-8", errors="strict"))
    except UnicodeDecodeError:
        raise JsonMalformed("not UTF-8") from None
    except (json.JSONDecodeError, RecursionError):
        raise JsonMalformed("not JSON, or nested too deeply") from None
    if not isinstance(document, dict):
        raise JsonMalformed("not a JSON object")
    return document


def dump(document: object) -> str:
    """Return JSON without spaces, in the order of the dictionary."""
    return json.dumps(document, separators=(",", ":"))


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    return members if len(members) == len(pairs) else _DuplicateKeys(members)


def _integer(digits: str) -> int | None:
    return int(digits) if digits.isdecimal() and len(digits) <= _MAX_INTEGER_DIGITS else None


def _reject_number(_: str) -> None:
    return None


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_reject_number,
    parse_constant=_reject_number,
)


def take_object(value: object) -> dict[str, object]:
    """Return an object without repeated names. Raises `JsonMalformed`."""
    if type(value) is dict:
        return value
    if isinstance(value, _DuplicateKeys):
        raise JsonMalformed("an object repeats a name")
    raise JsonMalformed("a value must be an object")


def take_members(value: object, *names: str) -> list[object]:
    """Return the values of an object with exactly these names. Raises `JsonMalformed`."""
    members = take_object(value)
    try:
        if len(members) == len(names):
            return [members[name] for name in names]
    except KeyError:
        pass
    raise JsonMalformed(f"an object must have exactly the names {', '.join(names)}")


def take_array(value: object) -> list[object]:
    """Return an array. Raises `JsonMalformed`."""
    if not isinstance(value, list):
        raise JsonMalformed("a value must be an array")
    return value


def take_bool(value: object) -> bool:
    """Return true or false. Raises `JsonMalformed`."""
    if not isinstance(value, bool):
        raise JsonMalformed("a value must be true or false")
    return value


def take_str(value: object, grammar: re.Pattern[str]) -> str:
    """Return a string that matches the whole grammar. Raises `JsonMalformed`."""
    if not isinstance(value, str) or grammar.fullmatch(value) is None:
        raise JsonMalformed("a string does not match its grammar")
    return value


def take_base64(value: object) -> bytes:
    """Decode padded standard base64 that re-encodes to itself. Raises `JsonMalformed`."""
    try:
        if isinstance(value, str):
            data = binascii.a2b_base64(value)
            if binascii.b2a_base64(data, newline=False).decode() == value:
                return data
    except (binascii.Error, ValueError):
        pass
    raise JsonMalformed("a value must be canonical base64")


def base64_text(data: bytes) -> str:
    """Return padded standard base64."""
    return base64.b64encode(data).decode()


def take_digest(value: object, size: int) -> bytes:
    """Decode `size` bytes in lower-case hex. Raises `JsonMalformed`."""
    try:
        if isinstance(value, str):
            data = bytes.fromhex(value)
            if data.hex() == value and len(data) == size:
                return data
    except ValueError:
        pass
    raise JsonMalformed("a digest must be lower-case hex, of the size of its bank")


def parse_time(value: object) -> datetime:
    """Parse exactly `YYYY-MM-DDTHH:MM:SSZ`, a time that exists. Raises `JsonMalformed`."""
    text = take_str(value, _TIME)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise JsonMalformed("a time does not exist") from None


def time_text(value: object) -> str:
    """Return the text of a time that `parse_time` accepts. Raises `JsonMalformed`."""
    parse_time(value)
    return str(value)


def format_time(moment: datetime) -> str:
    """Format an aware time for `parse_time`, without fractions of a second."""
    utc = moment.astimezone(UTC)
    return utc.replace(tzinfo=None, microsecond=0).isoformat() + "Z"
