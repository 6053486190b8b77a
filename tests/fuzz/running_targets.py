"""What the signer reads besides requests and records: watches, its master Secret, its own log."""

import base64
import io
import json
from collections.abc import Iterator, Mapping
from threading import Event
from typing import Any, Final

from common.binding import SECRET_SIZE
from common.errors import ApiServerUnavailable
from signer.errors import ChallengeKeyUnavailable
from signer.inventory.challenge_keys import SECRET_NAME, ChallengeKeyStore
from signer.kube.budget import MemoryBudget
from signer.kube.cache import Cache
from signer.kube.client import Expired, Response
from signer.kube.csrs import read_pending_csr
from signer.kube.decode import Json
from signer.kube.secrets import read_secret
from signer.kube.watch import Reflector, ResourceSpec
from signer.model import Csr
from signer.policy import PcrMode, load_policies
from signer.policy.learn import LearnError, draft_policy
from tests.builders.scenario import NOW
from tests.fakes.secrets import FakeSecrets
from tests.fuzz.mutations import Form
from tests.fuzz.record_targets import CSR
from tests.fuzz.target import Refused, Target

HOME: Final = "node-attestation-system"
ROOM: Final = 8 << 10
"""Bytes of the watch's cache: little, so that it is soon full."""


class _Played:
    """An API server that plays one page and events, and a good list from then on."""

    name = "fuzz"

    def __init__(self, page: object, events: object) -> None:
        self._page: object = page
        self._events = events if isinstance(events, list) else []
        self._began = False
        self._over = False
        self.stop = _AtOnce()
        self.budget = MemoryBudget(per_owner=ROOM)
        self.cache: Cache[Csr] = Cache("things", budget=self.budget, owner="team-a")
        self.left = len(self._events)
        self.heaviest = 0

    def get_page(self, path: str, query: Mapping[str, str]) -> Response:
        assert path
        self._weigh()
        self._over = self._began and "continue" not in query
        page, self._page = self._page, _page(_csr("good"))
        return Response(status=200, content=_as_sent(page))

    def watch(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        assert path
        assert "resourceVersion" in query
        self._began = True
        if self._over:
            self.stop.set()
            return
        events, self._events = self._events, []
        for event in events:
            yield _as_sent(event)
            self.left -= 1
            self._weigh()
        raise Expired

    def _weigh(self) -> None:
        self.heaviest = max([self.heaviest, *self.budget.used().values()])


class _AtOnce(Event):
    """Nobody waits."""

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 # theirs
        return self.is_set()


def _as_sent(value: object) -> bytes:
    """Return a value as the wire has it."""
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
    """Keep a cache within its room through whatever comes, and right once a good list comes."""
    document = _object(data)
    server = _Played(document.get("page"), document.get("events"))
    collection = ResourceSpec(plural="things", path=lambda: "/things", read=read_pending_csr)
    Reflector(server, collection, server.cache, server.stop).run()
    assert server.heaviest <= ROOM
    assert [csr.name for csr in server.cache.all()] == ["good"]
    if server.left:
        raise Refused


def _csr(name: str) -> dict[str, Any]:
    """Return a pending one."""
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


def _master_secret(data: bytes) -> None:
    """Serve and tend what is taken; a Secret that is damaged is never made anew."""
    secret = Response(status=200, content=data).read(read_secret)
    store = FakeSecrets(stored={(HOME, SECRET_NAME): secret})
    keys = ChallengeKeyStore(store, HOME, now=lambda: NOW, random=bytes)
    found = [keys.cached(), keys.refresh()]
    keys.rotate()
    found.append(keys.cached())
    for challenge_keys in found:
        assert {
            len(challenge_keys.current),
            len(challenge_keys.previous or challenge_keys.current),
        } == {SECRET_SIZE}


def _master_secrets() -> list[bytes]:
    current, previous = bytes(range(SECRET_SIZE)), bytes(SECRET_SIZE)
    kept = (
        {"current": current, "since": b"2026-11-21T09:00:00+00:00", "previous": previous},
        {"current": current, "since": b"2026-01-01T00:00:00+00:00"},
    )
    metadata = {"namespace": HOME, "name": SECRET_NAME, "resourceVersion": "1"}
    return [json.dumps({"metadata": metadata, "data": _encoded(data)}).encode() for data in kept]


def _encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}


def _learn(data: bytes) -> None:
    """Learn from one node's lines, then beside a good one; a draft is a policy that can be used."""
    log = [*io.StringIO(data.decode("utf-8", "replace")), _issued("node-2", "cd" * 32).decode()]
    for nodes in (("node-1",), ("node-1", "node-2")):
        [policy] = load_policies(draft_policy(log, nodes=nodes, cluster=None)).all()
        assert policy.pcr_mode is PcrMode.ENFORCE


def _issued(node: str, digest: str) -> bytes:
    """Write a line of the log, of a certificate that was issued."""
    line = {
        "time": "2026-11-21T09:30:00.000+00:00",
        "event": "verdict",
        "outcome": "issued",
        "cluster": "tenants/blue",
        "node": node,
        "pcrs": {"sha256": {"4": digest, "7": "ab" * 32}},
        "measuredBoot": {
            "secureBoot": True,
            "platformKeys": [digest],
            "signatureDatabases": ["ab" * 32],
            "bootLoaders": [],
        },
    }
    return json.dumps(line).encode() + b"\n"


TARGETS = (
    Target(
        name="watch",
        run=_watch,
        seeds=_watches,
        errors=(ApiServerUnavailable,),
        form=Form.JSON,
    ),
    Target(
        name="master-secret",
        run=_master_secret,
        seeds=_master_secrets,
        errors=(ApiServerUnavailable, ChallengeKeyUnavailable),
        form=Form.JSON,
    ),
    Target(
        name="learn",
        run=_learn,
        seeds=lambda: [_issued("node-1", "ef" * 32)],
        errors=(LearnError,),
        form=Form.JSON,
    ),
)
