"""Housekeeping of one workload cluster: no verdict depends on it.

Deletes expired offers. Reports the auto-approving bindings of kubeadm, and deletes them if the
policy says so (R0). Each round is limited in size, and an object that cannot be handled does not
stop the round. Source: docs/protocol.md, sections 3 and 5.
"""

import contextlib
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import Final

from common.challenge import decode_challenge
from common.errors import (
    ApiServerUnavailable,
    AttestationError,
    ChallengeMalformed,
    Denied,
    Unavailable,
)
from common.formats.strict_json import parse_time
from common.names import CHALLENGE_ANNOTATION
from signer.errors import AuthorityShared, AutoApproveBindingPresent, CsrChanged
from signer.fairness.outbox import Outbox, Write
from signer.kinds.cluster import ClusterKey
from signer.kinds.csr import Csr
from signer.kube.csrs import CsrClient
from signer.policy.policy import Approval, AutoApproveBindings, Policy, PolicyMode
from signer.verify.answer import CHALLENGE_MAX_AGE
from signer.verify.requests.parse import ParsedOffer, parse_request
from signer.verify.requests.recognize import CsrKind

_logger = logging.getLogger(__name__)

_CHALLENGED_OFFER_TTL: Final = timedelta(minutes=5)
"""A node answers a challenge within four minutes after it first sees it, or not at all."""
_MAX_OFFERS_PER_ROUND: Final = 500
"""Each is parsed, and the parser runs with Python's global lock held."""
_REMOVING: Final = (AutoApproveBindings.REMOVE, AutoApproveBindings.REMOVE_WHEN_ATTESTED)
_MAX_BINDINGS_PER_ROUND: Final = 20
"""kubeadm makes two. A hostile cluster that makes thousands must not fill the log."""


def delete_expired_offers(
    csrs: Iterable[Csr], writer: CsrClient, outbox: Outbox, now: datetime
) -> None:
    """Delete offers whose challenge is answered by now, or cannot be answered anymore.

    Otherwise answered offers would look like requests that wait. A node that has not seen its
    challenge in time starts over. Raises the first failure after the round.
    """
    expired = [csr for csr in csrs if _is_expired(csr, now)]

    def delete(csr: Csr) -> None:
        with contextlib.suppress(CsrChanged):
            writer.delete(csr)
            _logger.info("expired offer deleted", extra={"fields": {"csr": csr.name}})

    sample = random.sample(expired, min(len(expired), _MAX_OFFERS_PER_ROUND))
    failure = outbox.write((csr.name, partial(delete, csr)) for csr in sample if _is_offer(csr))
    if failure is not None:
        raise failure


def enforce_auto_approve_policy(  # noqa: PLR0913 - the last is an option
    cluster: ClusterKey,
    names: Iterable[str],
    policy: Policy,
    remove: Callable[[str], None],
    outbox: Outbox,
    *,
    keep: bool = False,
) -> str:
    """R0: raise an alarm for each auto-approving binding, and delete it if the policy says so.

    Return each binding and whether it was deleted, for an Event; empty if there is none to report.
    None is deleted if Nodes from before the opt-in need them (`keep`).

    With mode ServingOnly these bindings are how nodes get their client certificates. While
    approvals are disabled, nodes may still need them.
    """
    if policy.mode is PolicyMode.SERVING_ONLY:
        return ""
    remove_them = (
        policy.auto_approve_bindings in _REMOVING
        and policy.approval is Approval.ENABLED
        and not keep
    )
    found = list(islice(names, _MAX_BINDINGS_PER_ROUND))
    outcomes = dict.fromkeys(found, "not deleted")

    def alarm(event: str, name: str) -> None:
        fields = cluster.log_fields() | {
            "reason": AutoApproveBindingPresent.reason,
            "check": AutoApproveBindingPresent.check,
            "detail": name,
            "alarm": True,
        }
        _logger.warning(event, extra={"fields": fields})

    def remove_binding(name: str) -> None:
        remove(name)
        outcomes[name] = "deleted"
        alarm("binding removed", name)

    for name in found:
        alarm("auto-approving binding found", name)
    if remove_them:
        outbox.write((name, partial(remove_binding, name)) for name in found)
    return ", ".join(f"{name} ({outcome})" for name, outcome in outcomes.items())


def check_authority(
    cluster: ClusterKey, load: Callable[[ClusterKey], object]
) -> AttestationError | None:
    """I1: load the cluster's certificate authority; return why it cannot sign, `None` if it can.

    Otherwise the first of two Clusters with one authority would get certificates until the second
    one asks for its first.
    """
    try:
        load(cluster)
    except AuthorityShared as error:
        fields = cluster.log_fields() | {
            "reason": error.reason,
            "check": error.check,
            "detail": error.detail,
            "alarm": True,
        }
        _logger.warning("certificate authority is shared", extra={"fields": fields})
        return error
    except Unavailable as error:
        return error
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


def write_nodes(writes: Sequence[Write], outbox: Outbox) -> None:
    """Write Nodes within the limits of a round; a Node that fails does not stop the others.

    Raises `ApiServerUnavailable` if the workload cluster forbids a write.
    """
    failure = outbox.write(writes)
    if isinstance(failure, ApiServerUnavailable) and failure.status == HTTPStatus.FORBIDDEN:
        raise failure
