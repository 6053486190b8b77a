"""Other inputs of the signer: watches, Leases, and the Secret with challenge keys."""

import base64
import json
from collections.abc import Generator, Mapping
from math import inf
from types import SimpleNamespace
from typing import Any, Final, cast

from common.errors import ApiServerUnavailable
from common.requests.binding import SECRET_SIZE
from signer.controller.live_leases import LiveLeases
from signer.errors import ChallengeKeyUnavailable
from signer.fairness.memory_budget import MemoryBudget
from signer.inventory.replica_records.challenge_keys import SECRET_NAME, ChallengeKeyStore
from signer.kinds.csr import Csr
from signer.kinds.decode import Json
from signer.kube.csrs import read_pending_csr
from signer.kube.leases import LeaseClient
from signer.kube.secrets import SecretClient
from signer.kube.transport.client import ApiClient, Expired, Response
from signer.kube.transport.interruption import Interrupted, Interruption
from signer.kube.watches.cache import Cache
from signer.kube.watches.watch import Reflector, ResourceSpec
from tests.builders.scenario import NOW
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fuzz.mutations import Form
from tests.fuzz.record_targets import CSR
from tests.fuzz.target import Refused, Target

HOME: Final = "node-attestation-system"
CAPACITY: Final = 8 << 10
"""Bytes of the watch's cache: few, so that it is soon full."""


class _ScriptedServer:
    """An API server that sends one page and events from the input, and then a valid list.

    It sends the list again if that exceeded the budget together with the objects from before.
    """

    name = "fuzz"

    def __init__(self, page: object, events: object) -> None:
        self._page: object = page
        self._events = events if isinstance(events, list) else []
        self.interruption = _Impatient()
        self._began = False
        self._over = False
        self.budget = MemoryBudget(per_tenant=CAPACITY)
        self.cache: Cache[Csr] = Cache("things", budget=self.budget, tenant="team-a")
        self.left = len(self._events)
        self.peak = 0

    def get_page(self, path: str, query: Mapping[str, str]) -> Response:
        assert path
        self._record_use()
        if query["limit"] == "1":
            return Response(status=200, content=_as_sent(_page()))  # only the version is read
        self._over = self._began and "continue" not in query
        page, self._page = self._page, _page(_csr("good"))
        return Response(status=200, content=_as_sent(page))

    def watch(self, path: str, query: Mapping[str, str]) -> Generator[bytes, None, None]:
        assert path
        assert "resourceVersion" in query
        self._began = True
        if self._over and not self.cache.incomplete:
            self.interruption.end()
            raise Interrupted
        events, self._events = self._events, []
        for event in events:
            yield _as_sent(event)
            self.left -= 1
            self._record_use()
        raise Expired

    def yield_cpu(self) -> None:
        """Do nothing: there are no other reflectors."""

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _record_use(self) -> None:
        self.peak = max([self.peak, *self.budget.used().values()])


class _Impatient(Interruption):
    """Does not wait."""

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0.0


def _as_sent(value: object) -> bytes:
    """Return a value in the encoding of the wire."""
    return json.dumps(value).encode()


def _object(data: bytes) -> Json:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refused from error
    if not isinstance(document, dict):
        raise Refused
    return document


def _watch(data: bytes) -> None:
    """Require that a cache keeps its capacity for any input, and is right after a valid list."""
    document = _object(data)
    server = _ScriptedServer(document.get("page"), document.get("events"))
    collection = ResourceSpec(plural="things", path="/things", read=read_pending_csr)
    Reflector(
        server, collection, server.cache, interruption=server.interruption, start=lambda *_: None
    ).run()
    assert server.peak <= CAPACITY
    assert [csr.name for csr in server.cache.all()] == ["good"]
    if server.left:
        raise Refused


def _csr(name: str) -> dict[str, Any]:
    """Return a pending CSR."""
    made: dict[str, Any] = json.loads(json.dumps(CSR))
    made["metadata"]["name"] = name
    del made["status"]
    return made


def _page(*items: Json) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "5", "continue": ""}, "items": list(items)}


def _watches() -> list[bytes]:
    bookmark = {"metadata": {"resourceVersion": "9"}}
    kinds = ("ADDED", "MODIFIED", "DELETED")
    events = [
        *({"type": kind, "object": _csr("b")} for kind in kinds),
        {"type": "MODIFIED", "object": {**CSR}},
        {"type": "BOOKMARK", "object": bookmark},
    ]
    further = _page(_csr("a"))
    further["metadata"]["continue"] = "next"
    played = ({"page": _page(_csr("a"), _csr("b")), "events": events}, {"page": further})
    return [json.dumps(each).encode() for each in played]


def _challenge_key_secret(data: bytes) -> None:
    """Use and rotate keys from the Secret. The signer never replaces a damaged Secret."""
    cluster = FakeCluster()
    cluster.intercept(lambda _: (200, data), "GET", times=inf)
    secrets = SecretClient(FakeClient(cluster))
    keys = ChallengeKeyStore(secrets, HOME, now=lambda: NOW, random=bytes)
    used = [keys.cached(), keys.refresh()]
    keys.rotate()
    used.append(keys.cached())
    for challenge_keys in used:
        assert {
            len(challenge_keys.current),
            len(challenge_keys.previous or challenge_keys.current),
        } == {SECRET_SIZE}


def _challenge_key_secrets() -> list[bytes]:
    current, previous = bytes(range(SECRET_SIZE)), bytes(SECRET_SIZE)
    stored = (
        {"current": current, "since": b"2026-11-21T09:00:00+00:00", "previous": previous},
        {"current": current, "since": b"2026-01-01T00:00:00+00:00"},
    )
    metadata = {"namespace": HOME, "name": SECRET_NAME, "resourceVersion": "1"}
    return [json.dumps({"metadata": metadata, "data": _encoded(data)}).encode() for data in stored]


def _encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}


def _leases(data: bytes) -> None:
    """Read the Leases of the other replicas twice: equal ones are not renewed, and so not live."""
    response = Response(status=200, content=data)
    client = LeaseClient(cast("ApiClient", SimpleNamespace(get_page=lambda *_: response)), HOME)
    live = LiveLeases()
    for now in (0.0, 1.0):
        live.update(client.all("replica"), now)
        assert not live.live(now)
        assert not live.abandoned(now)


def _lease_lists() -> list[bytes]:
    metadata = {"name": "a", "uid": "u", "resourceVersion": "1", "labels": {"replica": "true"}}
    spec = {"holderIdentity": "a", "renewTime": "2026-11-21T09:30:00.000000Z"}
    leases = [{"metadata": metadata, "spec": spec}, {"metadata": {**metadata, "name": "b"}}]
    return [json.dumps({"metadata": {"continue": ""}, "items": leases}).encode()]


TARGETS = (
    Target(
        name="watch",
        run=_watch,
        seeds=_watches,
        errors=(ApiServerUnavailable,),
        form=Form.JSON,
    ),
    Target(
        name="challenge-key-secret",
        run=_challenge_key_secret,
        seeds=_challenge_key_secrets,
        errors=(ApiServerUnavailable, ChallengeKeyUnavailable),
        form=Form.JSON,
    ),
    Target(
        name="leases",
        run=_leases,
        seeds=_lease_lists,
        errors=(ApiServerUnavailable,),
        form=Form.JSON,
    ),
)
