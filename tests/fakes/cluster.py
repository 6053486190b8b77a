"""An API server in memory: resource versions, conflicts, lists in pages and watches.

`tests/integration/test_fake_cluster.py` holds it and the real kube-apiserver to one contract. It
knows only what our programs use: objects in JSON, merge patches, the two operations of JSON patches
that they send, server-side apply of conditions, status subresources, preconditions, selectors, and
access reviews. It checks no permissions and no schemas.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, unquote
from uuid import UUID

import msgspec

from signer.kinds.resources import Resource
from signer.kube.transport.client import Request
from tests.fakes.cluster_objects import (
    RESOURCES,
    Object,
    Place,
    Refused,
    applied,
    json_patched,
    merged,
    selects,
    validate,
)

Answer = tuple[int, Object | bytes]
Outcome = int | Answer | BaseException
Action = Outcome | Callable[[Request], Outcome | None]
"""A status, an answer, an exception that the client raises, or a function that returns one of them;
it returns `None` to let the request pass."""

_REVIEWED: Object = {"allowed": True, "userInfo": {"username": "operator"}}
"""The status of each review."""
_FIXED = ["creationTimestamp", "deletionTimestamp", "name", "namespace", "resourceVersion", "uid"]
"""Metadata that no write changes."""
_PATCHES = (("apply-patch", applied), ("json-patch", json_patched))
"""By a part of their media types; the others are merge patches."""
_FIRST_VERSION = 100
"""The resource version before the first write."""


@dataclass(slots=True)
class _Interception:
    """What happens to the next requests of a method to a path."""

    action: Action
    method: str
    path: str
    times: float
    skip: int

    def outcome(self, request: Request) -> Outcome | None:
        wanted = request.method in (self.method or request.method) and self.path in request.path
        if not wanted or not self.times:
            return None
        if self.skip:
            self.skip -= 1
            return None
        self.times -= 1
        return self.action(request) if callable(self.action) else self.action


@dataclass(eq=False, repr=False)
class FakeCluster:
    """Objects by path; `cluster_clients` has the clients of it."""

    kinds: dict[str, dict[str, str]] = field(default_factory=lambda: _kinds(RESOURCES))
    """By API version, the kind of each plural."""
    objects: dict[str, Object] = field(default_factory=dict)
    """By their paths, without quoting. Watches do not notice what a test changes here."""
    requests: list[Request] = field(default_factory=list)
    review: Callable[[Object], Object] = lambda _: dict(_REVIEWED)
    """Returns the status of an access review or a token review."""
    now: Callable[[], str] = lambda: "2026-11-22T00:00:00Z"
    on_change: Callable[[str, str, Object], None] = lambda _kind, _key, _body: None
    """Called after each change with its type, key and object."""
    version: int = _FIRST_VERSION
    changes: list[tuple[int, str, str, Object]] = field(default_factory=list)
    """The version, type, key and object of each change."""
    _oldest: int = _FIRST_VERSION
    interceptions: list[_Interception] = field(default_factory=list)
    _lists: dict[str, tuple[int, list[Object], int]] = field(default_factory=dict)
    """By their tokens, the lists that continue: version, all objects, and number of the next."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def put(self, collection: str, *bodies: Mapping[str, Any]) -> None:
        """Store objects as they are, each under a new resource version."""
        place = self.place(collection)
        for body in bodies:
            stored = {**place.kind, **received(body)}
            name = stored["metadata"]["name"]
            own = {"uid": f"uid-of-{name}", "creationTimestamp": self.now(), **place.namespace}
            stored["metadata"] = {**own, **stored["metadata"]}
            self._store(f"{collection}/{name}", stored)

    def intercept(
        self, action: Action, method: str = "", path: str = "", *, times: float = 1, skip: int = 0
    ) -> None:
        """Let `action` decide the next requests, after `skip`, whose path contains `path`.

        `method` is one method or several, separated by spaces; empty for each.
        """
        self.interceptions.append(_Interception(action, method, path, times, skip))

    def compact(self) -> None:
        """Forget earlier versions: watches and lists that continue from them have expired."""
        self._oldest = self.version
        self._lists.clear()
        self.changes.clear()

    @property
    def reads(self) -> list[Request]:
        """The requests that read objects."""
        return [request for request in self.requests if request.method == "GET"]

    @property
    def writes(self) -> list[Request]:
        """The requests that may change objects, also those that were refused."""
        changing = [request for request in self.requests if request.method != "GET"]
        return [request for request in changing if not request.path.endswith("reviews")]

    @property
    def bodies(self) -> list[Any]:
        return [request.body for request in self.writes]

    def answer(self, request: Request) -> Answer:
        """Perform a request, unless it is intercepted."""
        self.requests.append(request)
        for interception in self.interceptions:
            outcome = interception.outcome(request)
            if isinstance(outcome, BaseException):
                raise outcome
            if isinstance(outcome, tuple):
                return outcome
            if outcome is not None:
                return outcome, _status(outcome, "intercepted")
        try:
            return self._perform(request)
        except Refused as refusal:
            return refusal.status, _status(refusal.status, str(refusal))

    def expired(self, version: str) -> bool:
        """Return whether a watch can no longer continue from a version."""
        return int(version) < self._oldest

    def place(self, path: str) -> Place:
        """Return what a path names. Raises `Refused` for a kind that is not served."""
        parts = path.strip("/").split("/")
        size = 2 if parts[0] == "api" else 3
        version = "/".join(parts[1:size])
        end = size + (3 if parts[size : size + 1] == ["namespaces"] else 1)
        kind = self.kinds.get(version, {}).get("".join(parts[end - 1 : end]))
        if kind is None:
            raise Refused(HTTPStatus.NOT_FOUND, "the server could not find the requested resource")
        place = Place(
            "/" + "/".join(parts[:end]),
            {"apiVersion": version, "kind": kind},
            {"namespace": unquote(parts[end - 2])} if end > size + 1 else {},
        )
        name, subresource, *_ = [*map(unquote, parts[end:]), "", ""]
        return replace(place, name=name, subresource=subresource)

    def _perform(self, request: Request) -> Answer:
        path, _, query = request.path.partition("?")
        options = {**request.query, **dict(parse_qsl(query))}
        body: Any = request.body
        if path.endswith("reviews"):
            return HTTPStatus.CREATED, {**body, "status": self.review(body)}
        if request.method == "GET":
            return HTTPStatus.OK, self._read(path, options)
        place = self.place(path)
        applies_new = "apply-patch" in request.media and place.key not in self.objects
        if request.method == "POST" or applies_new:
            return HTTPStatus.CREATED, self._create(place, body, options)
        current = self._find(place)
        if request.method == "DELETE":
            return HTTPStatus.OK, self._delete(place, current, body)
        if request.method == "PUT":
            return HTTPStatus.OK, self._write(place, current, body, other_uid=HTTPStatus.CONFLICT)
        patch = next((function for media, function in _PATCHES if media in request.media), merged)
        new = patch(current, body)
        refused = HTTPStatus.UNPROCESSABLE_ENTITY
        return HTTPStatus.OK, self._write(place, current, new, other_uid=refused)

    def _read(self, path: str, options: Mapping[str, str]) -> Object:
        discovered = self._discover(path)
        if discovered is not None:
            return discovered
        place = self.place(path)
        return self._find(place) if place.name else self._list(place, options)

    def _discover(self, path: str) -> Object | None:
        name = path.removeprefix("/apis/")
        if name in self.kinds:
            kinds = self.kinds[name].items()
            return {"resources": [{"name": name, "kind": kind} for name, kind in kinds]}
        versions = [{"groupVersion": v} for v in self.kinds if v.startswith(f"{name}/")]
        return {"versions": versions, "preferredVersion": versions[0]} if versions else None

    def _find(self, place: Place) -> Object:
        found = self.objects.get(place.key)
        if found is None:
            raise Refused(HTTPStatus.NOT_FOUND, f"{place.name} not found")
        return found

    def _list(self, place: Place, options: Mapping[str, str]) -> Object:
        token = options.get("continue")
        if token is None:
            # Most objects of a large fleet are of other kinds: this finds them in less time.
            infix = place.collection[place.collection.rindex("/") :] + "/"
            keys = sorted(key for key in self.objects if infix in key and place.contains(key))
            items = [body for key in keys if selects(options, body := self.objects[key])]
            version, start = self.version, 0
        elif token in self._lists:
            version, items, start = self._lists[token]
        else:
            raise Refused(HTTPStatus.GONE, "the list has expired")
        end = start + int(options.get("limit") or len(items))
        metadata = {"resourceVersion": str(version)}
        if end < len(items):
            metadata["continue"] = f"token-{next(self._numbers)}"
            self._lists[metadata["continue"]] = version, items, end
        return {"metadata": metadata, "items": items[start:end]}

    def _create(self, place: Place, body: Object, options: Mapping[str, str]) -> Object:
        metadata = dict(body["metadata"])
        if prefix := metadata.get("generateName"):
            metadata["name"] = f"{prefix}{next(self._numbers)}"
        place = replace(place, name=metadata["name"])
        if place.key in self.objects:
            raise Refused(HTTPStatus.CONFLICT, f"{place.name} already exists")
        own = {"uid": str(UUID(int=next(self._numbers))), "creationTimestamp": self.now()}
        stored = {**place.kind, **body, "metadata": {**metadata, **place.namespace, **own}}
        stored.pop("status", None)
        validate(stored, stored)
        if "dryRun" in options:
            return stored
        return self._store(place.key, stored)

    def _write(self, place: Place, current: Object, new: Object, *, other_uid: int) -> Object:
        """Write an object, or only its status where the place is a subresource.

        `other_uid` is the HTTP status for an object with another UID. A subresource ignores it.
        """
        metadata, present = new.get("metadata", {}), current["metadata"]
        for name, status in (("resourceVersion", HTTPStatus.CONFLICT), ("uid", other_uid)):
            if place.subresource and name == "uid":
                continue
            if metadata.get(name, present[name]) != present[name]:
                raise Refused(status, f"the {name} is {present[name]}")
        if place.subresource:
            new = {**current, "status": new.get("status", {})}
        else:
            kept = {name: present[name] for name in _FIXED if name in present}
            unchanged = {"status": current["status"]} if "status" in current else {}
            new = {**new, "metadata": {**metadata, **kept}, **unchanged}
        validate(current, new)
        if new == current:
            return current
        if "deletionTimestamp" in present and not new["metadata"].get("finalizers"):
            return self._remove(place.key)
        return self._store(place.key, new)

    def _delete(self, place: Place, current: Object, options: Object) -> Object:
        for name, value in (options.get("preconditions") or {}).items():
            if current["metadata"][name] != value:
                raise Refused(HTTPStatus.CONFLICT, f"the {name} is {current['metadata'][name]}")
        if not current["metadata"].get("finalizers"):
            return self._remove(place.key)
        metadata = {"deletionTimestamp": self.now(), **current["metadata"]}
        return self._store(place.key, {**current, "metadata": metadata})

    def _store(self, key: str, body: Object) -> Object:
        kind = "MODIFIED" if key in self.objects else "ADDED"
        self.objects[key] = changed = self._next(body)
        return self._changed(kind, key, changed)

    def _remove(self, key: str) -> Object:
        return self._changed("DELETED", key, self._next(self.objects.pop(key)))

    def _next(self, body: Object) -> Object:
        """Return an object under a new version. Earlier versions of it stay unchanged."""
        self.version += 1
        return {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}

    def _changed(self, kind: str, key: str, body: Object) -> Object:
        self.changes.append((self.version, kind, key, body))
        self.on_change(kind, key, body)
        return body


def _kinds(resources: Iterable[Resource]) -> dict[str, dict[str, str]]:
    kinds: dict[str, dict[str, str]] = {}
    for resource in resources:
        kinds.setdefault(resource.api_version, {})[resource.plural] = resource.kind
    return kinds


def _status(code: int, message: str) -> Object:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
    return {**status, "code": code, "message": message}


def encoded(body: Object | bytes) -> bytes:
    """Return an object as an answer has it."""
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


def received(body: object) -> Any:  # noqa: ANN401 # JSON
    """Return a copy of a body, as a server gets it: JSON has no tuples."""
    return msgspec.json.decode(msgspec.json.encode(body))
