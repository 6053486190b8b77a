"""Values as they stand in the protocol's JSON: one way to write each, every other way refused.

JSON is read in two steps, because the version of a document is to be known before anything strict
(docs/protocol.md section 3): `load` takes any JSON object, then the functions below take single
members. Nothing is looked up here, and no error tells a value.
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
"""What `digests.key_id` makes."""

_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_MAX_INTEGER_DIGITS: Final = 9
"""No integer of the protocol has more than two; conversion of huge ones takes quadratic time."""
_MAX_VALUES: Final = 4096
"""Commas and opening brackets; no document of the protocol has 300, and each may cost a list."""


class JsonMalformed(ValueError):
    """The JSON, or a value in it, is not written as the protocol writes it."""


class _DuplicateKeys(dict[str, object]):
    """An object with a name twice: two parsers may read two things (SPIRE 1.14.6 class)."""


def load(data: bytes) -> dict[str, object]:
    """Read any JSON object. Fractions, huge numbers and NaN come out as None, which nothing takes.

    Raises WireMalformed for what is no UTF-8, no JSON, no object, or nested without end, and for
    what has more values than any document.
    """
    if data.count(b",") + data.count(b"[") + data.count(b"{") > _MAX_VALUES:
        raise JsonMalformed("more values than any document has")
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
    """Write JSON without spaces, in the order given."""
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
    """Take an object that has no name twice. Raises WireMalformed."""
    if type(value) is dict:
        return value
    if isinstance(value, _DuplicateKeys):
        raise JsonMalformed("a name stands twice in an object")
    raise JsonMalformed("a value is not an object")


def take_members(value: object, *names: str) -> list[object]:
    """Take the members of an object that has exactly these, in this order. Raises WireMalformed."""
    found = take_object(value)
    try:
        if len(found) == len(names):
            return [found[name] for name in names]
    except KeyError:
        pass
    raise JsonMalformed(f"an object does not have exactly the names {', '.join(names)}")


def take_array(value: object) -> list[object]:
    """Take an array. Raises WireMalformed."""
    if not isinstance(value, list):
        raise JsonMalformed("a value is not an array")
    return value


def take_bool(value: object) -> bool:
    """Take true or false. Raises WireMalformed."""
    if not isinstance(value, bool):
        raise JsonMalformed("a value is neither true nor false")
    return value


def take_str(value: object, grammar: re.Pattern[str]) -> str:
    """Take a string that matches the grammar from end to end. Raises WireMalformed."""
    if not isinstance(value, str) or grammar.fullmatch(value) is None:
        raise JsonMalformed("a string is not of its grammar")
    return value


def take_base64(value: object) -> bytes:
    """Take padded standard base64 that re-encodes to itself. Raises WireMalformed."""
    try:
        if isinstance(value, str):
            data = binascii.a2b_base64(value)
            if binascii.b2a_base64(data, newline=False).decode() == value:
                return data
    except (binascii.Error, ValueError):
        pass
    raise JsonMalformed("a value is not canonical base64")


def base64_text(data: bytes) -> str:
    """Write padded standard base64."""
    return base64.b64encode(data).decode()


def take_digest(value: object, size: int) -> bytes:
    """Take `size` bytes in lower-case hex. Raises WireMalformed."""
    try:
        if isinstance(value, str):
            data = bytes.fromhex(value)
            if data.hex() == value and len(data) == size:
                return data
    except ValueError:
        pass
    raise JsonMalformed("a digest is not lower-case hex, or not of the size of its bank")


def parse_time(value: object) -> datetime:
    """Take exactly `YYYY-MM-DDTHH:MM:SSZ`, a moment that exists, in UTC. Raises WireMalformed."""
    moment = take_str(value, _TIME)
    try:
        return datetime.fromisoformat(moment)
    except ValueError:
        raise JsonMalformed("a time does not exist") from None


def time_text(value: object) -> str:
    """Take what `parse_time` takes, as it is written: there is one way to write it."""
    parse_time(value)
    return str(value)


def format_time(moment: datetime) -> str:
    """Write an aware moment as `parse_time` takes it; fractions of a second are dropped."""
    utc = moment.astimezone(UTC)
    return utc.replace(tzinfo=None, microsecond=0).isoformat() + "Z"
