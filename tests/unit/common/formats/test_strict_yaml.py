"""YAML with the data types of JSON: plain data is parsed, other input raises YamlMalformed."""

import pytest

from common.formats.strict_yaml import YamlMalformed, load, load_all


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: [1, 1.5, true, null, ~, '2', 0x1f]", {"a": [1, 1.5, True, None, None, "2", 31]}),
        ("a: 2026-11-21T09:30:00Z", {"a": "2026-11-21T09:30:00Z"}),
        ("a: 2026-11-21", {"a": "2026-11-21"}),
        ("a: &b [1]\nc: *b", {"a": [1], "c": [1]}),
        ("<<: {a: 1}\nb: 2", {"a": 1, "b": 2}),
        ('{"a": "\\u00e9"}', {"a": "é"}),
        ('["\\ud7ff", "\\ue000"]', ["\ud7ff", "\ue000"]),
        ("", None),
        ("--- \n", None),
    ],
    ids=str,
)
def test_plain_data_is_parsed(text: str, value: object) -> None:
    assert load(text) == load(text.encode()) == value


MALFORMED = {
    "a key twice": "a: 1\na: 2",
    "a key twice by a merge": "<<: {a: 1}\na: 2",
    "a list as key": "? [1]\n: 2",
    "itself": "a: &b [*b]",
    "itself by a merge": "a: &b\n  <<: *b",
    "an object": "!!python/object/apply:os.system [id]",
    "an unknown tag": "!secret a",
    "bytes": "!!binary QQ==",
    "a set": "!!set {a}",
    "pairs": "!!omap [a: 1]",
    "a date with its tag": "!!timestamp 2026-11-21",
    "no truth value": "!!bool x",
    "no number": "!!int ''",
    "no fraction": "!!float ''",
    "no digits": "0x_",
    "digits without end": "1" * 5000,
    "a list as text": "!!str [a]",
    "the first half of a character": '"\\ud800"',
    "the last half of a character": '"\\udfff"',
    "half a list": "[1, ",
    "nested without end": "[" * 600,
    "no text": "\0",
    "two documents": "--- 1\n--- 2\n",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_other_data_raises_one_error(text: str) -> None:
    """PyYAML itself raises various exceptions, for example KeyError for `!!bool x`."""
    with pytest.raises(YamlMalformed):
        load(text)


@pytest.mark.parametrize("content", [b"\xff", b"\xff\xfe\0", b"a: \x80"], ids=bytes.hex)
def test_bytes_that_are_not_text_are_refused(content: bytes) -> None:
    with pytest.raises(YamlMalformed):
        load(content)


def test_all_documents_are_parsed() -> None:
    assert load_all("--- 1\n--- {a: 2}\n") == [1, {"a": 2}]
    assert load_all("") == []
