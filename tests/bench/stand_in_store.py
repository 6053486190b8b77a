"""The objects of one stand-in API server, and the rules of writes that the signer relies on."""

import asyncio
import json
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

Json = dict[str, Any]

_HISTORY: Final = 100_000
"""Events of one collection that a watch can continue from."""


class Conflict(Exception):
    """A write under a resourceVersion that is not the current one, or of an object that exists."""


class Store:
    """The objects of one API server."""

    def __init__(self) -> None:
        self.version = 1
        self.objects: dict[str, dict[str, Json]] = {}
        """By collection path without namespace, then by namespace and name."""
        self.history: dict[str, deque[tuple[int, bytes]]] = {}
        self.watchers: dict[str, list[asyncio.Transport]] = {}
        self.on_write: Callable[[str, Json], None] = lambda _path, _body: None

    def put(self, path: str, body: Json, *, kind: str = "MODIFIED") -> Json:
        """Write an object, and send it to the watches."""
        self.version += 1
        metadata = body["metadata"]
        metadata["resourceVersion"] = str(self.version)
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", _now())
        self.objects.setdefault(path, {})[object_key(metadata)] = body
        self._publish(path, kind, body)
        self.on_write(path, body)
        return body

    def create(self, path: str, body: Json) -> Json:
        """Create an object."""
        if object_key(body["metadata"]) in self.objects.get(path, {}):
            raise Conflict
        return self.put(path, body, kind="ADDED")

    def get(self, path: str, key: str) -> Json | None:
        """Return an object."""
        return self.objects.get(path, {}).get(key)

    def delete(self, path: str, key: str) -> None:
        """Delete an object."""
        body = self.objects.get(path, {}).pop(key, None)
        if body is not None:
            self.version += 1
            metadata = {**body["metadata"], "resourceVersion": str(self.version)}
            self._publish(path, "DELETED", {**body, "metadata": metadata})

    def watch(self, path: str, version: int, transport: asyncio.Transport) -> None:
        """Send the events after a version, and all later ones."""
        for number, line in self.history.get(path, ()):
            if number > version:
                transport.write(line)
        self.watchers.setdefault(path, []).append(transport)

    def end_watch(self, path: str, transport: asyncio.Transport) -> None:
        """End a watch; its connection is used again."""
        if transport in self.watchers[path] and not transport.is_closing():
            transport.write(b"0\r\n\r\n")
        self.watchers[path] = [w for w in self.watchers[path] if w is not transport]

    def open_watches(self) -> int:
        """Return the number of watches that are open now."""
        watchers = (w for path in self.watchers.values() for w in path)
        return sum(not watcher.is_closing() for watcher in watchers)

    def send_bookmarks(self) -> None:
        """Send a bookmark to every watch, as an API server does about each minute."""
        event = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}}
        for watchers in self.watchers.values():
            for watcher in watchers:
                if not watcher.is_closing():
                    watcher.write(_chunk(event))

    def _publish(self, path: str, kind: str, body: Json) -> None:
        chunk = _chunk({"type": kind, "object": body})
        self.history.setdefault(path, deque(maxlen=_HISTORY)).append((self.version, chunk))
        watchers = [w for w in self.watchers.get(path, ()) if not w.is_closing()]
        self.watchers[path] = watchers
        for watcher in watchers:
            watcher.write(chunk)


def merge(target: Json, patch: Mapping[str, Any]) -> Json:
    """Apply a merge patch (RFC 7386)."""
    for name, value in patch.items():
        if isinstance(value, Mapping):
            target[name] = merge(dict(target.get(name) or {}), value)
        elif value is None:
            target.pop(name, None)
        else:
            target[name] = value
    return target


def require_version(current: Json, metadata: Mapping[str, Any]) -> None:
    """Raise `Conflict` unless the write is for the current version."""
    version = metadata.get("resourceVersion")
    if version is not None and version != current["metadata"]["resourceVersion"]:
        raise Conflict


def patched(current: Json, patch: Json | list[Json]) -> Json:
    """Apply a merge patch, or the JSON patch that adds a condition."""
    if isinstance(patch, list):
        precondition, add = patch
        require_version(current, {"resourceVersion": precondition["value"]})
        values = add["value"] if isinstance(add["value"], list) else [add["value"]]
        status = dict(current.get("status") or {})
        conditions = [*status.get("conditions", []), *values]
        return {**current, "status": {**status, "conditions": conditions}}
    require_version(current, patch.get("metadata", {}))
    copied = {**current, "metadata": dict(current["metadata"])}
    return merge(copied, patch)


def dump(body: object) -> bytes:
    """Encode as JSON."""
    return json.dumps(body, separators=(",", ":")).encode()


def _chunk(event: Json) -> bytes:
    line = dump(event) + b"\n"
    return b"%x\r\n%s\r\n" % (len(line), line)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def object_key(metadata: Mapping[str, Any]) -> str:
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
