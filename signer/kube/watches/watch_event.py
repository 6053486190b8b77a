"""Reads one event of a watch: what happened to which object, and the version to continue from.

The decoder reads it. Where it refuses the event, the scanner says which object it is about, so that
an object that cannot be read concerns nothing but itself.
"""

from dataclasses import dataclass

import msgspec

from signer.kinds.decode import Fields, Text, decode
from signer.kube.scan import Identity, identify, members


class _Event(Fields):
    type: Text
    object: msgspec.Raw


class _Object(Fields):
    metadata: Identity


class _Version(Fields):
    resource_version: Text


class _Bookmark(Fields):
    metadata: _Version


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event; an event of the type ERROR has neither version nor key."""

    type: str
    object: msgspec.Raw
    version: str = ""
    """Where the next watch continues."""
    key: str = ""
    """The object's key in a cache; empty for a bookmark."""


def read_event(line: bytes) -> WatchEvent:
    """Read an event. Raises `ValueError`: it does not say which object or version it is about."""
    try:
        event = decode(line, _Event)
    except ValueError:
        parts = members(line)
        kind = decode(parts.get("type", b"null"), Text)
        event = _Event(type=kind, object=msgspec.Raw(parts.get("object", b"null")))
    if event.type == "ERROR":
        return WatchEvent(event.type, event.object)
    if event.type == "BOOKMARK":
        bookmark = decode(event.object, _Bookmark)
        return WatchEvent(event.type, event.object, bookmark.metadata.resource_version)
    try:
        found = decode(event.object, _Object).metadata
    except ValueError:
        found = identify(bytes(event.object))
    if not found.resource_version:
        raise ValueError("the object of an event must have a resourceVersion")
    return WatchEvent(event.type, event.object, found.resource_version, found.key)
