"""The signer's functions for the certificates of one node, run call by call (`replay`)."""

from collections.abc import Mapping
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, Self, cast

from signer.controller.reconcile import answers
from signer.errors import ClaimConflict, RequesterCredentialUnknown
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.endorsement_key import EndorsementKeyObject
from signer.policy.policy import Policy, RenewalRules, UnknownCredential
from signer.verify.machines import claim_writes
from tests.builders.attested_nodes import attested_node
from tests.builders.endorsement_keys import endorsement_key, key_holder
from tests.fakes.claims import FakeClaimStore, StoredClaims
from tests.model.objects import NOT_AFTER, NOW, cluster_key
from tests.model.replay import Call, Replay, next_call

Record = tuple[int, ...]
"""Certificates in the AttestedNode. They are numbered in the order in which they are signed."""
Numbers = Mapping[int | None, Any]

_CLUSTER: Final = cluster_key("a")
_KEY: Final = "ab" * 32
_HOLDER: Final = key_holder(_CLUSTER, node_name="n", provider_id="p")
_POLICY: Final = Policy(
    name="model", renewals=RenewalRules(unknown_credential=UnknownCredential.DENY)
)


class Seen(NamedTuple):
    """The answer to a call. The record is empty for an EndorsementKey."""

    method: str
    record: Record = ()
    is_current: bool = True
    """Whether the object has still this resourceVersion."""


class Task(NamedTuple):
    """One replica's work on one request. A crash loses all of it."""

    request: int
    presented: int | None
    certificate: int
    """It is signed first, and released last."""
    is_claimed: bool = False
    """Whether the claims are written, and the release comes next."""
    seen: tuple[Seen, ...] = ()

    def outdated(self) -> Self:
        """Return the same after another replica has written the claims."""
        return self._replace(seen=tuple(each._replace(is_current=False) for each in self.seen))

    def renumbered(self, numbers: Numbers) -> Self:
        """Return the same with other numbers of the certificates."""
        return self._replace(
            presented=numbers[self.presented],
            certificate=numbers[self.certificate],
            seen=tuple(
                each._replace(record=tuple(numbers[it] for it in each.record)) for each in self.seen
            ),
        )


class Outcome(NamedTuple):
    """How a function ended."""

    text: str
    is_denied: bool = False


@cache
def next_of(task: Task, *, is_blind: bool) -> Call | Outcome:
    """Return the next call of a task, or how it ends. If blind, it compares no versions."""
    seen = [_object(each, is_current=is_blind or each.is_current) for each in task.seen]
    try:
        result = next_call(partial(_release if task.is_claimed else _claim, task), seen)
    except RequesterCredentialUnknown:
        return Outcome(f"K4 refuses {task.presented}", is_denied=True)
    except ClaimConflict:
        return Outcome("the claim has changed")
    return result if isinstance(result, Call) else Outcome("done")


def _claim(task: Task, api: Replay) -> None:
    """Write the claims, with live reads: another node has the key in the caches."""
    request = claim_writes.ClaimRequest(
        public_key_pem="-----BEGIN PUBLIC KEY-----",
        key_names=frozenset({_KEY}),
        holder=_HOLDER,
        node=_node(()),
        requester_credential=_id(task.presented),
        sign=lambda _: _certificate(task),
        entry=None,
    )
    elsewhere = endorsement_key(_KEY, held_by=key_holder(_CLUSTER, node_name="", provider_id=""))
    caches = SimpleNamespace(
        endorsement_key=lambda _: elsewhere,
        attested_node=lambda _: None,
        went_back=lambda _: None,
    )
    claim_writes.write_claims(
        request,
        inventory=cast("Any", caches),
        claims=cast("Any", api),
        policy=_POLICY,
        now=NOW,
    )


def _certificate(task: Task) -> claim_writes.WithheldCertificate:
    return claim_writes.WithheldCertificate(
        pem=b"", credential_id=_id(task.certificate), not_after=NOW
    )


def _release(task: Task, api: Replay) -> None:
    """Release the certificate of a CSR that is approved."""
    claimed: Any = SimpleNamespace(
        verified=SimpleNamespace(
            holder=_HOLDER, ground=SimpleNamespace(key=SimpleNamespace(name=_KEY))
        ),
        certificate=_certificate(task),
    )
    current: Any = SimpleNamespace(
        csr=SimpleNamespace(conditions={"Approved": None}),
        reports=SimpleNamespace(clear_pending_reason=lambda: None),
        cluster=SimpleNamespace(csrs=api),
        dependencies=SimpleNamespace(claims=api),
    )
    answers._release(current, claimed)


def perform(call: Call, record: Record) -> tuple[Seen, Record] | None:
    """Make a call to the management cluster; return `None` if it conflicts."""
    node = _node(record)
    store = StoredClaims(keys={_KEY: _key()}, nodes={(node.cluster.namespace, node.name): node})
    try:
        result = getattr(FakeClaimStore(store), call.method)(*call.arguments)
    except ClaimConflict:
        return None
    [written] = store.nodes.values()
    known = _record(result) if isinstance(result, AttestedNodeObject) else ()
    return Seen(call.method, known), _record(written)


def _object(seen: Seen, *, is_current: bool) -> object:
    if seen.method in ("endorsement_key", "set_key_holder"):
        return _key(is_current=is_current)
    if seen.method in ("attested_node", "replace_attested_node"):
        return _node(seen.record, is_current=is_current)
    return None


def _record(node: AttestedNodeObject) -> Record:
    return tuple(map(int, node.credential_ids))


def _id(certificate: int | None) -> str:
    return "" if certificate is None else str(certificate)


def _version(*, is_current: bool) -> str:
    return "current" if is_current else "old"


def _key(*, is_current: bool = True) -> EndorsementKeyObject:
    version = _version(is_current=is_current)
    return endorsement_key(_KEY, resource_version=version, held_by=_HOLDER)


def _node(record: Record, *, is_current: bool = True) -> AttestedNodeObject:
    return attested_node(
        _CLUSTER,
        "n",
        key=_KEY,
        last_attested=NOW,
        not_after=NOT_AFTER,
        provider_id="p",
        resource_version=_version(is_current=is_current),
        credential_ids=tuple(map(_id, record)),
    )
