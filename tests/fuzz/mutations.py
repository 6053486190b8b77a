"""Mutations that keep most of an input well-formed, so that it passes the first checks of a parser.

Both fuzzers share them. Every choice is drawn from a `Random`: Hypothesis's in `make test`, which
also shrinks findings, and one that libFuzzer seeds in `make fuzz`.
"""

import base64
import binascii
import copy
import json
import re
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any, cast

import yaml

from common.formats.pem import encode_block
from tests.builders import der
from tests.builders.der import DerMalformed, Element

MAX_CHANGES = 4
_NOT_OF_ITS_FORM = (
    *(ValueError, TypeError, LookupError, AttributeError, RecursionError, yaml.YAMLError),
)
"""PyYAML raises most of these errors itself, for unexpected tags."""


class Form(Enum):
    """The format of an input, which decides how to change it."""

    BYTES = "bytes"
    LINES = "lines"
    PEM = "pem"
    JSON = "json"
    YAML = "yaml"
    DER = "der"


def mutate(form: Form, data: bytes, random: Random) -> bytes:
    """Change the input one or more times. Input that is not in its format is changed as bytes."""
    for _ in range(random.randint(1, MAX_CHANGES)):
        change = random.choice(_CHANGES[form])
        try:
            data = change(data, random)
        except _NOT_OF_ITS_FORM:
            data = _change_bytes(data, random)
    return data


def _change_bytes(data: bytes, random: Random) -> bytes:
    start = random.randint(0, len(data))
    end = random.randint(start, min(len(data), start + 32))
    return random.choice(_BYTE_CHANGES)(data, start, end, random)


def _flip(data: bytes, start: int, _: int, random: Random) -> bytes:
    if start == len(data):
        return data
    flipped = data[start] ^ 1 << random.randint(0, 7)
    return data[:start] + bytes([flipped]) + data[start + 1 :]


def _cut(data: bytes, start: int, end: int, _: Random) -> bytes:
    return data[:start] + data[end:]


def _end(data: bytes, start: int, _end: int, _: Random) -> bytes:
    return data[:start]


def _repeat(data: bytes, start: int, end: int, random: Random) -> bytes:
    return data[:start] + data[start:end] * random.randint(2, 5) + data[end:]


def _insert(data: bytes, start: int, _: int, random: Random) -> bytes:
    return data[:start] + random.randbytes(random.randint(1, 8)) + data[start:]


def _stretch(data: bytes, start: int, _: int, random: Random) -> bytes:
    """Make a number or a text very long."""
    filling = random.choice((b"\xff", b"\x80", b"0", b"a")) * random.choice((200, 3000))
    return data[:start] + filling + data[start:]


def _number(data: bytes, start: int, _: int, random: Random) -> bytes:
    """Return a length or count at a limit."""
    size = random.choice((1, 2, 4, 8))
    value = random.choice((0, 1, 0x7F, 0x80, 0xFF, 0x100, 0xFFFF, 1 << 31, (1 << 64) - 1))
    order = cast("Any", random.choice(("big", "little")))
    written = (value & (1 << size * 8) - 1).to_bytes(size, order)
    return data[:start] + written + data[start + size :]


_BYTE_CHANGES = (_flip, _flip, _cut, _end, _repeat, _insert, _number, _stretch)


def _change_lines(data: bytes, random: Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if not lines:
        raise ValueError("no lines")
    first, second = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(4):
        case 0:
            lines[first], lines[second] = lines[second], lines[first]
        case 1:
            lines.insert(second, lines[first])
        case 2:
            del lines[first]
        case _:
            lines[first] = lines[first].rstrip(b"\n") + random.choice(
                (b"\r\n", b" \n", b"", b"=\n")
            )
    return b"".join(lines)


_VALUES: tuple[object, ...] = (
    *(None, True, False, 0, 1, -1, 1 << 70, 1.5, float("nan"), "", " ", "\0", "\ud800", "v2"),
    *("x" * 5000, "-" * 70, "1" * 5000, "9999-99-99T99:99:99Z", "::1", "10.0.0.0/33", "~", "é"),
    *([], {}, [[]], [{}], {"": ""}, {"a": [None]}),
)


def _change_document(document: object, random: Random) -> object:
    """Change one value somewhere in plain data."""
    places = list(_places(document))
    if not places:
        return random.choice(_VALUES)
    parent, key = random.choice(places)
    _, other = random.choice(places)
    match random.randrange(6):
        case 0:
            parent[key] = copy.deepcopy(random.choice(_VALUES))
        case 1:
            del parent[key]
        case 2:
            elsewhere, there = random.choice(places)
            parent[key] = copy.deepcopy(elsewhere[there])
        case 3 if isinstance(parent, dict):
            parent[random.choice((f"{key}x", str(other), ""))] = parent.pop(key)
        case 4:
            parent[key] = random.choice(([parent[key]], {"a": parent[key]}, [parent[key]] * 3))
        case _:
            parent[key] = _change_scalar(parent[key], random)
    return document


def _places(document: object) -> Any:  # noqa: ANN401 - pairs of a container and a key of it
    entries: Any = ()
    if isinstance(document, dict):
        entries = list(document.items())
    elif isinstance(document, list):
        entries = list(enumerate(document))
    for key, value in entries:
        yield document, key
        yield from _places(value)


def _change_scalar(value: object, random: Random) -> object:
    """Change the bytes of a text. Base64 is decoded, changed and encoded again."""
    if not isinstance(value, str) or not value:
        return copy.deepcopy(random.choice(_VALUES))
    try:
        content = base64.b64decode(value, validate=True)
    except binascii.Error:
        content = b""
    if content and random.randrange(4):
        return base64.b64encode(_change_bytes(content, random)).decode()
    return _change_bytes(value.encode("utf-8", "surrogatepass"), random).decode("latin-1")


def _change_json(data: bytes, random: Random) -> bytes:
    return json.dumps(_change_document(json.loads(data), random)).encode()


def _change_yaml(data: bytes, random: Random) -> bytes:
    documents = list(yaml.safe_load_all(data))
    changed = _change_document(documents, random)
    if not isinstance(changed, list):
        raise TypeError("no documents")
    # No aliases for repeated values: the parsers refuse all aliases.
    return yaml.safe_dump_all(json.loads(json.dumps(changed))).encode("utf-8", "surrogatepass")


_TAGS = ("!!int", "!!float", "!!bool", "!!null", "!!timestamp", "!!binary", "!!set", "!!omap", "!x")


def _change_yaml_text(data: bytes, random: Random) -> bytes:
    """Insert features of YAML: tags, anchors, merges, documents."""
    lines = data.splitlines(keepends=True)
    if not lines:
        raise ValueError("no lines")
    number = random.randrange(len(lines))
    words = (*(f"{tag} " for tag in _TAGS), "&a ", "*a", "<<: ", "? ", "[", "{", "|\n", "--- ", "@")
    head, colon, tail = lines[number].partition(b": ")
    lines[number] = head + colon + random.choice(words).encode() + random.choice((tail, b"\n"))
    return b"".join(lines)


def _change_der(data: bytes, random: Random) -> bytes:
    """Change one element, and update the lengths around it."""
    try:
        whole = der.parse(data)
    except DerMalformed as error:
        raise ValueError("no DER") from error
    chosen = random.randrange(_count(whole))
    return _written(whole, iter(range(chosen, -1, -1)), random)


def _count(element: Element) -> int:
    return 1 + sum(map(_count, _parts(element)))


def _parts(element: Element) -> tuple[Element, ...]:
    """Return the parts of an element, also those in the OCTET STRING of an extension."""
    if element.tag != der.OCTET_STRING:
        return element.children
    try:
        return (der.parse(element.content),)
    except DerMalformed:
        return ()


def _written(element: Element, countdown: Any, random: Random) -> bytes:  # noqa: ANN401
    """Encode an element; change the one at which the countdown ends."""
    if next(countdown, -1) == 0:
        return _change_element(element, random)
    parts = [_written(child, countdown, random) for child in _parts(element)]
    if not parts:
        return element.der
    return der.encode(element.tag, b"".join(parts))


def _change_element(element: Element, random: Random) -> bytes:
    parts = [child.der for child in element.children]
    match random.randrange(6):
        case 0:
            return b""
        case 1:
            return element.der * 2
        case 2:
            return der.encode(random.choice(_DER_TAGS), element.content)
        case 3 if parts:
            random.shuffle(parts)
            return der.encode(element.tag, b"".join(parts))
        case 4:
            return der.encode(element.tag, element.der)
        case _:
            return der.encode(element.tag, _change_bytes(element.content, random))


def _change_pem(data: bytes, random: Random) -> bytes:
    """Change the content of a block, and encode the block again."""
    blocks = list(_BLOCK.finditer(data))
    if not blocks:
        raise ValueError("no blocks")
    chosen = random.choice(blocks)
    content = base64.b64decode(chosen[2])
    change = random.choice((_change_der, _change_der, _change_json, _change_bytes))
    changed = encode_block(chosen[1].decode(), change(content, random))
    return data[: chosen.start()] + changed + data[chosen.end() :]


_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\n([A-Za-z0-9+/=\n]*)-----END \1-----\n")
_DER_TAGS = (*range(1, 7), 0x0A, 0x0C, 0x13, 0x16, 0x17, 0x18, 0x30, 0x31, 0x80, 0x82, 0xA0, 0xA3)

_Change = Callable[[bytes, Random], bytes]
_CHANGES: dict[Form, tuple[_Change, ...]] = {
    Form.BYTES: (_change_bytes,),
    Form.LINES: (_change_bytes, _change_lines),
    Form.PEM: (_change_pem, _change_pem, _change_pem, _change_lines, _change_bytes),
    Form.JSON: (_change_json, _change_json, _change_json, _change_bytes),
    Form.YAML: (_change_yaml, _change_yaml, _change_yaml_text, _change_lines, _change_bytes),
    Form.DER: (_change_der, _change_der, _change_der, _change_bytes),
}
