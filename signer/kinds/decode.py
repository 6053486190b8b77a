"""Decodes Kubernetes objects into typed structs: only declared fields are built, each bounded.

A struct declares the fields that are read. `msgspec` skips all others without building them, so
that a large object costs little CPU and memory. There are two ways to read a text: `Text` must be
there and not empty; `MaybeText` may be absent or null. A name of an object is a `Name`, a
`Namespace` or a `MaybeName`. A field of another type or form, or over its bound, makes the whole
object unreadable (`ValueError`): an API server that validates its objects never sends one.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from threading import Lock
from typing import Annotated, Any, Final, TypeVar

import msgspec

T = TypeVar("T")
Json = Mapping[str, Any]
"""An object of plain Python values, as from a YAML file."""
Source = bytes | msgspec.Raw | Json
"""One object: the bytes of the wire, a part of an answer that is not decoded yet, or values."""

MAX_TEXT: Final = 4096
"""Characters of one text. The longest that Kubernetes allows in a field read here is a URL."""
MAX_ENTRIES: Final = 1000
"""Entries of one list or mapping in an object."""

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT)]
MaybeText = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)] | None
_LABEL: Final = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(?:\.{_LABEL})*"
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253, pattern=rf"^{_SUBDOMAIN}\Z")]
"""Name of an object: a DNS-1123 subdomain, which a shell, a log and a path read as one word."""
ClusterName = Annotated[str, msgspec.Meta(min_length=1, max_length=63, pattern=rf"^{_SUBDOMAIN}\Z")]
MaybeName = Annotated[str, msgspec.Meta(max_length=253, pattern=rf"^(?:{_SUBDOMAIN})?\Z")] | None
Namespace = Annotated[str, msgspec.Meta(min_length=1, max_length=63, pattern=rf"^{_LABEL}\Z")]
PathSegment = Annotated[str, msgspec.Meta(max_length=MAX_TEXT, pattern=r"^(?!\.\.?\Z)[^/%]+\Z")]
"""All that Kubernetes requires of the names of RBAC's objects, and of keys in a cache: a binding
that the signer could not read would be one that it does not find (R0)."""
Texts = Annotated[list[MaybeText], msgspec.Meta(max_length=MAX_ENTRIES)] | None
Labels = (
    Annotated[
        dict[str, Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]],
        msgspec.Meta(max_length=MAX_ENTRIES),
    ]
    | None
)
Time = Annotated[datetime, msgspec.Meta(tz=True)]
"""A point in time with its time zone (RFC 3339)."""


class Fields(msgspec.Struct, rename="camel", gc=False):
    """Base of all structs; a field's name in JSON is its name here in camelCase."""


class ObjectMeta(Fields):
    """What every object has."""

    name: PathSegment
    namespace: Namespace | None = None

    @property
    def key(self) -> str:
        """Return the object's key in a cache: `namespace/name`, or `name`."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class AnyObject(Fields):
    """An object of which only the name is read."""

    metadata: ObjectMeta


def decode(source: Source, shape: type[T]) -> T:
    """Return the fields that `shape` declares. Raises `ValueError`: the object cannot be read."""
    try:
        if not isinstance(source, (bytes, msgspec.Raw)):
            source = msgspec.json.encode(source)
        return _decoder(shape).decode(source)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_as(shape: type[T]) -> Callable[[Source], T]:
    """Return a function that decodes a value of a type, as `decode` does."""
    return lambda source: decode(source, shape)


def object_key(source: Source) -> str:
    """Return an object's key in a cache. Raises `ValueError`: the object cannot be read."""
    return decode(source, AnyObject).metadata.key


def texts(values: list[str | None] | None) -> tuple[str, ...]:
    """Return the texts of a list that are not empty."""
    return tuple(value for value in values or () if value)


@lru_cache(maxsize=1024)
def shared(text: str) -> str:
    """Return one value for equal texts of many objects, such as the names of labels.

    `sys.intern` is not bounded: Python 3.12 never frees what a tenant wrote.
    """
    return text


def _decoder(shape: type[T]) -> msgspec.json.Decoder[T]:
    decoder = _decoders.get(shape)
    if decoder is None:
        # One at a time: while msgspec reads the annotations of a struct, another thread could get
        # a decoder of the unfinished struct, and its first use would end the process (SIGSEGV).
        with _building:
            decoder = _decoders.setdefault(shape, msgspec.json.Decoder(shape))
    return decoder


_building = Lock()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
