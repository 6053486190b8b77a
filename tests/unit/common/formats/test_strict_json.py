"""JSON of the protocol: each value has one accepted encoding (P6)."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.formats import strict_json
from common.formats.strict_json import JsonMalformed


def test_object_is_parsed() -> None:
    assert strict_json.load(b' {"a": [1, true, null, "\\u00e4"]}\n') == {"a": [1, True, None, "ä"]}
    assert strict_json.load(b'{"a": 999999999}') == {"a": 999999999}


def document(values: int, value: bytes) -> bytes:
    """Return a document with this many copies of a value in an array."""
    return b'{"a":[' + b",".join([value] * values) + b"]}"


@pytest.mark.parametrize(
    ("value", "most"), [(b"1", 4095), (b"[]", 2047), (b'""', 4095), (b"{}", 2047)]
)
def test_number_of_values_is_limited(value: bytes, most: int) -> None:
    """A value costs much more memory than bytes, and 1 MiB holds half a million."""
    assert len(strict_json.take_array(strict_json.load(document(most, value))["a"])) == most
    with pytest.raises(JsonMalformed, match="too many values"):
        strict_json.load(document(most + 1, value))


@pytest.mark.parametrize(
    "number",
    ["1.0", "1e3", "1e999", "-1", "-0", "NaN", "Infinity", "-Infinity", "1" * 10, "9" * 9999],
)
def test_unsupported_numbers_become_none(number: str) -> None:
    assert strict_json.load(f'{{"a":{number}}}'.encode()) == {"a": None}


def test_exact_members_are_returned_in_the_requested_order() -> None:
    assert strict_json.take_members(strict_json.load(b'{"a":1,"b":2}'), "b", "a") == [2, 1]


@pytest.mark.parametrize(
    "data", [b'{"a":1}', b'{"a":1,"b":2,"c":3}', b'{"a":1,"B":2}', b'{"a":1,"b":2,"a":1}', b"{}"]
)
def test_other_members_are_refused(data: bytes) -> None:
    with pytest.raises(JsonMalformed):
        strict_json.take_members(strict_json.load(data), "a", "b")


def test_repeated_name_in_a_nested_object_is_refused() -> None:
    outer = strict_json.load(b'{"a":{"b":1,"b":1}}')
    with pytest.raises(JsonMalformed, match="repeats"):
        strict_json.take_object(outer["a"])


@pytest.mark.parametrize(
    ("take", "value"),
    [
        (strict_json.take_object, []),
        (strict_json.take_object, None),
        (strict_json.take_array, {}),
        (strict_json.take_array, "a"),
        (strict_json.take_bool, 1),
        (strict_json.take_bool, "true"),
        (strict_json.take_bool, None),
        (strict_json.take_base64, None),
        (strict_json.take_base64, 1),
        (strict_json.take_base64, "YQ"),
        (strict_json.take_base64, "YQ="),
        (strict_json.take_base64, "YQ==="),
        (strict_json.take_base64, "YR=="),
        (strict_json.take_base64, "YQ==YQ=="),
        (strict_json.take_base64, "YQ==\n"),
        (strict_json.take_base64, " YQ=="),
        (strict_json.take_base64, "-_-_"),
        (strict_json.take_base64, "YQ\u00e4="),
        (strict_json.take_base64, "\ud800"),
        (strict_json.parse_time, None),
        (strict_json.parse_time, "2026-11-21T06:40:00"),
        (strict_json.parse_time, "2026-11-21T06:40:00z"),
        (strict_json.parse_time, "2026-11-21 06:40:00Z"),
        (strict_json.parse_time, "2026-11-21T06:40:00.0Z"),
        (strict_json.parse_time, "2026-11-21T06:40:00+00:00"),
        (strict_json.parse_time, "2026-11-21T06:40:00Z\n"),
        (strict_json.parse_time, "2026-02-29T06:40:00Z"),
        (strict_json.parse_time, "2026-11-21T24:00:00Z"),
        (strict_json.parse_time, "2026-11-21T06:40:60Z"),
        (strict_json.parse_time, "0000-11-21T06:40:00Z"),
        (strict_json.parse_time, "٢٠٢٦-11-21T06:40:00Z"),
    ],
)
def test_other_encodings_of_a_value_are_refused(
    take: Callable[[object], object], value: object
) -> None:
    with pytest.raises(JsonMalformed):
        take(value)


def test_time_is_in_utc() -> None:
    moment = datetime(2026, 11, 21, 6, 40, tzinfo=UTC)
    assert strict_json.parse_time("2026-11-21T06:40:00Z") == moment
    assert strict_json.format_time(moment) == "2026-11-21T06:40:00Z"
    elsewhere = moment.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert strict_json.format_time(elsewhere.replace(microsecond=999999)) == "2026-11-21T06:40:00Z"


@given(st.datetimes(timezones=st.just(UTC)))
def test_formatted_time_parses_to_itself(moment: datetime) -> None:
    assert strict_json.parse_time(strict_json.format_time(moment)) == moment.replace(microsecond=0)


@given(st.binary(max_size=100))
def test_encoded_base64_decodes_to_itself(data: bytes) -> None:
    assert strict_json.take_base64(strict_json.base64_text(data)) == data


@given(st.text(max_size=12, alphabet="AQYgw0+/=-_ \n"))
def test_decoded_base64_encodes_to_itself(text: str) -> None:
    try:
        data = strict_json.take_base64(text)
    except JsonMalformed:
        return
    assert strict_json.base64_text(data) == text
