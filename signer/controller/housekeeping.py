"""Housekeeping: no verdict depends on it.

Deletes expired offers, stale claims and unclaimed endorsement keys. Reports the auto-approving
bindings of kubeadm, and deletes them if the policy says so (R0). Each round is limited in size, and
an object that cannot be handled does not stop the round. Source: docs/protocol.md, sections 2, 3
and 5.
"""

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, Protocol, TypeVar

from common.challenge import decode_challenge
from common.errors import AttestationError, ChallengeMalformed, Denied, Unavailable
from common.names import CHALLENGE_ANNOTATION
from common.strict_json import parse_time
from signer.errors import AuthorityShared, AutoApproveBindingPresent, CsrChanged
from signer.model import (
    AttestedNodeObject,
    ClusterKey,
    Csr,
    EndorsementKeyObject,
    KeyHolder,
    MachineState,
)
from signer.policy import Approval, AutoApproveBindings, Policy, PolicyMode
from signer.verify.answer import CHALLENGE_MAX_AGE
from signer.verify.parse import ParsedOffer, parse_request
from signer.verify.recognize import CsrKind

_logger = logging.getLogger(__name__)
T = TypeVar("T")

_CLAIM_GRACE: Final = timedelta(days=1)
"""How long a stale claim is kept: `clusterctl move` may create the Machines, and the AttestedNodes
of endorsement keys, later than the claims that name them."""
_MAX_CLAIMS_PER_ROUND: Final = 20
"""Each costs a list of the Machines of a namespace."""
_MAX_KEYS_PER_ROUND: Final = 200
_CHALLENGED_OFFER_TTL: Final = timedelta(minutes=5)
"""A node answers a challenge within four minutes after it first sees it, or not at all."""
_MAX_OFFERS_PER_ROUND: Final = 500
"""Each is parsed, and the parser runs with Python's global lock held."""
_MAX_FAILURES_PER_ROUND: Final = 3
"""Each may take half a minute. The next round chooses other objects."""
_MAX_BINDINGS_PER_ROUND: Final = 20
"""kubeadm makes two. A hostile cluster that makes thousands must not fill the log."""


class OfferDeleter(Protocol):
    """The part of `CsrClient` that this module needs."""

    def delete(self, csr: Csr) -> None:
        """Delete a CSR, if it has not changed since it was read."""


class ClaimDeleter(Protocol):
    """The part of `KubeClaimStore` that this module needs."""

    def machine_state(
        self, cluster: ClusterKey, provider_id: str, machine_name: str
    ) -> MachineState:
        """Return the state of the Machine of that Cluster with this name and provider ID."""

    def delete_attested_node(self, node: AttestedNodeObject) -> None:
        """Delete an AttestedNode, if it has not changed since it was read."""


class KeyDeleter(Protocol):
    """The part of `KubeClaimStore` that this module needs."""

    def attested_node(self, cluster: ClusterKey, node_name: str) -> AttestedNodeObject | None:
        """Read the AttestedNode of a node."""

    def delete_endorsement_key(self, key: EndorsementKeyObject) -> None:
        """Delete an EndorsementKey, if it has not changed since it was read."""


def delete_expired_offers(csrs: Iterable[Csr], writer: OfferDeleter, now: datetime) -> None:
    """Delete offers whose challenge is answered by now, or cannot be answered anymore.

    Otherwise answered offers would look like requests that wait. A node that has not seen its
    challenge in time starts over.
    """
    expired = [csr for csr in csrs if _is_expired(csr, now)]
    for csr in _sample(expired, _MAX_OFFERS_PER_ROUND):
        if _is_offer(csr):
            try:
                writer.delete(csr)
            except CsrChanged:
                continue
            _logger.info("expired offer deleted", extra={"fields": {"csr": csr.name}})


def delete_stale_claims(
    nodes: Sequence[AttestedNodeObject],
    claims: ClaimDeleter,
    *,
    is_live: Callable[[AttestedNodeObject], bool],
    now: datetime,
) -> None:
    """Delete AttestedNodes without a Machine whose certificate expired a day ago.

    `is_live` decides from caches; what it accepts costs no API call.
    """
    expired = [n for n in nodes if now - n.not_after > _CLAIM_GRACE and not is_live(n)]

    def delete_if_stale(node: AttestedNodeObject) -> None:
        state = claims.machine_state(node.cluster, node.provider_id, node.machine_name)
        if state is MachineState.ABSENT:
            claims.delete_attested_node(node)
            fields = node.cluster.log_fields() | {"node": node.node_name}
            _logger.info("stale claim deleted", extra={"fields": fields})

    _for_each(_sample(expired, _MAX_CLAIMS_PER_ROUND), delete_if_stale, lambda n: n.cluster)


def delete_unclaimed_keys(
    keys: Sequence[EndorsementKeyObject],
    claims: KeyDeleter,
    *,
    is_claimed: Callable[[EndorsementKeyObject], bool],
    now: datetime,
) -> None:
    """Delete EndorsementKeys that no operator has written to and no AttestedNode names.

    `is_claimed` decides from caches. A key is kept for a day after its last claim or its creation:
    a signer may have crashed between K1 and K2, and `clusterctl move` may bring the AttestedNode
    later. A key that is claimed meanwhile has another resourceVersion, and is not deleted.
    """
    unclaimed = [
        (key, key.held_by)
        for key in keys
        if key.held_by is not None and _is_disposable(key, now) and not is_claimed(key)
    ]

    def delete_if_unclaimed(held: tuple[EndorsementKeyObject, KeyHolder]) -> None:
        key, holder = held
        # Read from the API server: the cache omits an AttestedNode that cannot be decoded.
        node = claims.attested_node(holder.cluster, holder.node_name)
        if node is None or node.endorsement_key != key.name:
            claims.delete_endorsement_key(key)
            fields = holder.cluster.log_fields() | {"endorsementKey": key.name}
            _logger.info("unclaimed endorsement key deleted", extra={"fields": fields})

    _for_each(
        _sample(unclaimed, _MAX_KEYS_PER_ROUND), delete_if_unclaimed, lambda held: held[1].cluster
    )


def enforce_auto_approve_policy(
    cluster: ClusterKey, names: Iterable[str], policy: Policy, remove: Callable[[str], None]
) -> str:
    """R0: raise an alarm for each auto-approving binding, and delete it if the policy says so.

    Return each binding and whether it was deleted, for an Event; empty if there is none to report.

    With mode ServingOnly these bindings are how nodes get their client certificates. While
    approvals are disabled, nodes may still need them.
    """
    if policy.mode is PolicyMode.SERVING_ONLY:
        return ""
    remove_them = (
        policy.auto_approve_bindings is AutoApproveBindings.REMOVE
        and policy.approval is Approval.ENABLED
    )
    outcomes: list[str] = []
    for name in islice(names, _MAX_BINDINGS_PER_ROUND):
        fields = cluster.log_fields() | {
            "reason": AutoApproveBindingPresent.reason,
            "check": AutoApproveBindingPresent.check,
            "detail": name,
            "alarm": True,
        }
        _logger.warning("auto-approving binding found", extra={"fields": fields})
        outcome = "not deleted"
        if remove_them:
            try:
                remove(name)
            except Unavailable as e:
                fields |= {"message": e.message, "detail": e.detail}
                _logger.warning("binding not removed", extra={"fields": fields})
            else:
                outcome = "deleted"
                _logger.warning("binding removed", extra={"fields": fields})
        outcomes.append(f"{name} ({outcome})")
    return ", ".join(outcomes)


def check_authority(
    cluster: ClusterKey, load: Callable[[ClusterKey], object]
) -> AttestationError | None:
    """I1: load the cluster's certificate authority; return why it cannot sign, `None` if it can.

    Otherwise the first of two Clusters with one authority would get certificates until the second
    one asks for its first.
    """
    try:
        load(cluster)
    except AuthorityShared as e:
        fields = cluster.log_fields() | {
            "reason": e.reason,
            "check": e.check,
            "detail": e.detail,
            "alarm": True,
        }
        _logger.warning("certificate authority is shared", extra={"fields": fields})
        return e
    except Unavailable as e:
        return e
    return None


def _is_expired(csr: Csr, now: datetime) -> bool:
    age = now - csr.created
    if age > CHALLENGE_MAX_AGE:
        return True
    challenge = csr.annotations.get(CHALLENGE_ANNOTATION)
    if challenge is None or age <= _CHALLENGED_OFFER_TTL:
        return False
    try:
        issued_at = parse_time(decode_challenge(challenge).issued_at)
    except ChallengeMalformed:
        return False
    return now - issued_at > _CHALLENGED_OFFER_TTL


def _is_offer(csr: Csr) -> bool:
    try:
        return isinstance(parse_request(csr, CsrKind(csr.signer_name)), ParsedOffer)
    except Denied:
        return False


def _is_disposable(key: EndorsementKeyObject, now: datetime) -> bool:
    """Return whether an old claim is all that the key's object holds."""
    if key.registered_for or key.banned or key.last_claimed is None:
        return False
    return now - key.last_claimed > _CLAIM_GRACE


def _sample(items: Sequence[T], most: int) -> Sequence[T]:
    """Choose at random: in a fixed order, items that always fail would starve the others."""
    return random.sample(items, min(len(items), most))


def _for_each(
    items: Iterable[T], handle: Callable[[T], None], cluster_of: Callable[[T], ClusterKey]
) -> None:
    """Handle each item. A failure does not stop the round; a few failures do."""
    failures = 0
    for item in items:
        try:
            handle(item)
        except Unavailable as e:
            fields = cluster_of(item).log_fields() | {"message": e.message, "detail": e.detail}
            _logger.warning("housekeeping failed for an object", extra={"fields": fields})
            failures += 1
        if failures == _MAX_FAILURES_PER_ROUND:
            return
