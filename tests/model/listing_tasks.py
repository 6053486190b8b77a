"""The signer's work on a credential list, run call by call (`replay`): answers and maintenance.

An answer is `certify_answer` from the first read of the list to the release. What precedes is
replaced: the checks have passed, and the certificate is signed.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, Self, cast
from unittest.mock import patch

from common.errors import Denied
from signer.claims.credential_entry import CredentialEntry
from signer.controller.maintenance.credential_list_sync import sync_credential_list
from signer.controller.reconcile import answers
from signer.errors import ClaimConflict, RequesterCredentialUnknown
from signer.inventory.credential_list import ClaimReader, CredentialList, CredentialListClient
from signer.model import AttestedNodeObject, EndorsementKeyObject, KeyHolder, TrustBasis
from signer.policy.policy import Policy, RenewalRules, UnknownCredential
from signer.verify.claimed_answer import WithheldCertificate
from signer.verify.requests.recognize import CsrKind
from tests.builders.attested_nodes import attested_node
from tests.fakes.claims import FakeClaimStore, StoredClaims
from tests.model.objects import NOT_AFTER, NOW, cluster_key
from tests.model.replay import Call, Replay, next_call

NODE: Final = "n"
_CLUSTER: Final = cluster_key("a")
_KEY: Final = "ab" * 32
_HOLDER: Final = KeyHolder(
    cluster=_CLUSTER, node_name=NODE, provider_id="p", basis=TrustBasis.REGISTERED
)
_POLICY: Final = Policy(
    name="model",
    renewals=RenewalRules(unknown_credential=UnknownCredential.DENY, publish_credentials=True),
)
WRITES: Final = frozenset({"replace_attested_node", "set_key_holder", "publish"})
CACHED: Final = frozenset({"cached_node", "cached_key"})


class Record(NamedTuple):
    """A claim or an entry: its time, and certificates in the order in which they were signed."""

    time: int
    ids: tuple[int, ...]


class Seen(NamedTuple):
    """The answer to a call."""

    method: str
    record: Record | None = None
    banned: bool = False
    is_current: bool = True
    """Whether the object has still this resourceVersion."""


class Task(NamedTuple):
    """The work of one replica: an answer, or a round of maintenance. A crash loses all of it."""

    time: int
    request: int | None = None
    """`None` for a round of maintenance."""
    presented: int | None = None
    certificate: int | None = None
    seen: tuple[Seen, ...] = ()
    is_complete: bool = False
    """Whether a round knows all that happened: nothing is left for the next one."""

    @property
    def has_written(self) -> bool:
        """Return whether it has changed the claim or the list."""
        return any(each.method in WRITES for each in self.seen)

    def without_attempt(self) -> Self:
        """Return the same after a conflict: the claims are read again, the list is not."""
        return self._replace(seen=self.seen[:1])


class Outcome(NamedTuple):
    """How a function ended."""

    text: str
    is_denied: bool = False
    is_unknown: bool = False
    """Whether K4 denied it."""


@contextmanager
def checked() -> Iterator[None]:
    """Replace what precedes and follows the calls of `certify_answer` that are explored."""
    verified = SimpleNamespace(
        holder=_HOLDER,
        endorsement_key=SimpleNamespace(name=_KEY, pem="-----BEGIN PUBLIC KEY-----"),
        machine=SimpleNamespace(is_pool_member=False, name="m", uid="u"),
        boot=None,
        pcrs={},
        measured_boot=None,
        alarms=(),
        requester_credential="",
    )
    replaced = {
        "_verify": lambda current, *_: SimpleNamespace(
            **{**vars(verified), "requester_credential": current.presented}
        ),
        "_audit_answer": lambda *_: None,
        "_report": lambda *_: None,
        "certificate_not_after": lambda **_: NOT_AFTER,
    }
    with ExitStack() as stack:
        for name, value in replaced.items():
            stack.enter_context(patch.object(answers, name, value))
        next_of.cache_clear()
        stack.callback(next_of.cache_clear)
        yield


@cache
def next_of(task: Task) -> Call | Outcome:
    """Return the next call of a task, or how it ends."""
    function = _maintain if task.request is None else partial(_answer, task)
    try:
        result = next_call(function, [_object(each) for each in task.seen])
    except RequesterCredentialUnknown:
        return Outcome("K4 refuses it", is_denied=True, is_unknown=True)
    except Denied as error:
        return Outcome(f"denies it: {error.reason}", is_denied=True)
    except ClaimConflict:
        return Outcome("the claim has changed")
    return result if isinstance(result, Call) else Outcome("done")


def _maintain(api: Replay) -> object:
    """Run a round of maintenance for the one node."""
    return sync_credential_list(
        cast("CredentialListClient", api),
        lambda: [NODE],
        cached=ClaimReader(node=api.cached_node, key=api.cached_key),
        live=ClaimReader(node=partial(api.attested_node, _CLUSTER), key=api.endorsement_key),
    )


def _answer(task: Task, api: Replay) -> object:
    """Certify an answer, with live reads: another node has the key in the caches."""
    withheld = WithheldCertificate(
        pem=b"", credential_id=_id(task.certificate), not_after=NOT_AFTER
    )
    elsewhere = _key(held_by=replace(_HOLDER, node_name=""))
    caches = SimpleNamespace(
        endorsement_key=lambda _: elsewhere,
        attested_node=lambda _: None,
        attested_nodes_with_key=lambda _: (),
    )
    nothing = lambda *_, **__: None  # noqa: E731 - one name for all that has no effect here
    current: Any = SimpleNamespace(
        presented=_id(task.presented),
        policy=_POLICY,
        is_dry_run=False,
        csr=SimpleNamespace(uid="", conditions={"Approved": None}),
        reports=SimpleNamespace(clear_pending_reason=nothing),
        audit=SimpleNamespace(),
        dependencies=SimpleNamespace(
            now=partial(_time, task.time),
            authorities=SimpleNamespace(authority=nothing),
            random=None,
            claims=api,
        ),
        cluster=SimpleNamespace(
            key=_CLUSTER,
            withheld=SimpleNamespace(get_or_sign=lambda *_: withheld, note_release=nothing),
            credentials=api,
            csrs=api,
        ),
        context=lambda now: SimpleNamespace(inventory=caches, policy=_POLICY, now=now),
        read_credential_list=api.read,
        verify_access=nothing,
        raise_alarm=nothing,
        record=nothing,
    )
    return answers.certify_answer(current, CsrKind.CLIENT, cast("Any", None))


def perform(call: Call, claim: Record, *, banned: bool) -> tuple[Seen, Record] | None:
    """Make a call to the management cluster; return `None` if it conflicts."""
    node = _node(claim)
    key = _key(banned=banned)
    store = StoredClaims(keys={_KEY: key}, nodes={(node.cluster.namespace, node.name): node})
    try:
        result = getattr(FakeClaimStore(store), call.method)(*call.arguments)
    except ClaimConflict:
        return None
    [written] = store.nodes.values()
    if isinstance(result, AttestedNodeObject):
        return Seen(call.method, _record(result)), _record(written)
    return Seen(call.method, banned=result.banned), _record(written)


def published(call: Call) -> Record | None:
    """Return the entry that a call writes."""
    entry: CredentialEntry | None = call.arguments[0][NODE]
    if entry is None:
        return None
    return Record(entry.order - _seconds(0), tuple(int(each, 16) for each in entry.ids))


def _object(seen: Seen) -> object:
    if seen.method == "read":
        texts = {} if seen.record is None else {NODE: _entry(seen.record).encode()}
        return CredentialList(texts)
    if seen.method in ("endorsement_key", "set_key_holder", "cached_key"):
        return _key(banned=seen.banned, is_current=seen.is_current)
    if seen.record is not None and seen.method != "publish":
        return _node(seen.record, is_current=seen.is_current)
    return None


def _entry(record: Record) -> CredentialEntry:
    return CredentialEntry(_seconds(record.time), tuple(f"{each:032x}" for each in record.ids))


def _record(node: AttestedNodeObject) -> Record:
    ids = tuple(int(each.partition("=")[2][:32], 16) for each in node.credential_ids)
    return Record(int((node.last_attested - NOW).total_seconds()), ids)


def _id(certificate: int | None) -> str:
    return "" if certificate is None else f"X509SHA256={certificate:032x}{0:032x}"


def _time(seconds: int) -> Any:  # noqa: ANN401 - a time, for objects that take any
    return NOW + timedelta(seconds=seconds)


def _seconds(time: int) -> int:
    return int(_time(time).timestamp())


def _key(
    *, banned: bool = False, is_current: bool = True, held_by: KeyHolder = _HOLDER
) -> EndorsementKeyObject:
    return EndorsementKeyObject(
        name=_KEY,
        resource_version="current" if is_current else "old",
        registered_for=(),
        released_from=(),
        banned=banned,
        held_by=held_by,
    )


def _node(record: Record, *, is_current: bool = True) -> AttestedNodeObject:
    return attested_node(
        _CLUSTER,
        NODE,
        key=_KEY,
        last_attested=_time(record.time),
        not_after=NOT_AFTER,
        provider_id="p",
        resource_version="current" if is_current else "old",
        credential_ids=tuple(map(_id, record.ids)),
    )
