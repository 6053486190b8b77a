"""What is done from time to time, and on which no verdict depends.

Old offers and dead claims are removed, and kubeadm's auto-approving bindings are told of and, by
policy, removed (R0). Source: docs/protocol.md sections 2, 3 and 5.
"""

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, Protocol

from common.errors import Denied, Unavailable
from signer.errors import AuthorityShared, CsrChanged
from signer.model import AttestedNodeObject, ClusterKey, Csr, MachineState
from signer.policy import AutoApproveBindings, Policy
from signer.verify.answer import CHALLENGE_MAX_AGE
from signer.verify.parse import ParsedOffer, parse_request
from signer.verify.recognize import CsrKind

_logger = logging.getLogger(__name__)

_CLAIM_GRACE: Final = timedelta(days=1)
"""How long a dead claim is left alone: while a management cluster is moved, Machines may come after
the claims that name them."""
_CLAIMS_AT_ONCE: Final = 20
"""Each costs a list of Machines."""
_BINDINGS_AT_ONCE: Final = 20
"""kubeadm makes two; a hostile cluster that makes thousands is not to fill the log."""


class OfferDeleter(Protocol):
    """The part of the CSR writes that this needs."""

    def delete(self, csr: Csr) -> None:
        """Delete a CSR."""


class ClaimDeleter(Protocol):
    """The part of the claims that this needs."""

    def machine_state(
        self, cluster: ClusterKey, provider_id: str, machine_name: str
    ) -> MachineState:
        """Return the state of the Machine of that Cluster with this name and provider ID."""

    def delete_attested_node(self, dead: AttestedNodeObject) -> None:
        """Delete an AttestedNode, if it is still as it was read."""


def delete_expired_offers(csrs: Iterable[Csr], writer: OfferDeleter, now: datetime) -> None:
    """Delete offers that no answer can come to any more."""
    for csr in csrs:
        if now - csr.created > CHALLENGE_MAX_AGE and _is_offer(csr):
            try:
                writer.delete(csr)
            except CsrChanged:
                continue
            _logger.info("old offer deleted", extra={"fields": {"csr": csr.name}})


def delete_stale_claims(
    nodes: Sequence[AttestedNodeObject],
    claims: ClaimDeleter,
    *,
    lives: Callable[[AttestedNodeObject], bool],
    now: datetime,
) -> None:
    """Delete AttestedNodes whose Machine is gone and whose certificate has long expired.

    `lives` tells from caches which need not be asked for.
    """
    expired = [n for n in nodes if now - n.not_after > _CLAIM_GRACE and not lives(n)]
    # Any of them: some that nobody can tell of would stand before the others for ever.
    for node in random.sample(expired, min(len(expired), _CLAIMS_AT_ONCE)):
        state = claims.machine_state(node.cluster, node.provider_id, node.machine_name)
        if state is MachineState.ABSENT:
            claims.delete_attested_node(node)
            fields = {
                "cluster": f"{node.cluster.namespace}/{node.cluster.name}",
                "node": node.node_name,
            }
            _logger.info("dead claim deleted", extra={"fields": fields})


def enforce_auto_approve_policy(
    cluster: ClusterKey, names: Iterable[str], policy: Policy, remove: Callable[[str], None]
) -> None:
    """R0: raise the alarm over each auto-approving binding, and by policy remove it.

    Where there are many, over some of them each time.
    """
    for name in islice(names, _BINDINGS_AT_ONCE):
        fields = {
            "cluster": f"{cluster.namespace}/{cluster.name}",
            "reason": "AutoApproveBindingPresent",
            "check": "R0",
            "detail": name,
            "alarm": True,
        }
        _logger.warning("auto-approving binding found", extra={"fields": fields})
        if policy.auto_approve_bindings is AutoApproveBindings.REMOVE:
            try:
                remove(name)
            except Unavailable as e:
                fields |= {"message": e.message, "detail": e.detail}
                _logger.warning("binding not removed", extra={"fields": fields})
            else:
                _logger.warning("binding removed", extra={"fields": fields})


def check_authority(cluster: ClusterKey, load: Callable[[ClusterKey], object]) -> None:
    """I1: load the cluster's certificate authority, and raise the alarm if another one has it.

    Otherwise the first of two Clusters with one authority would get certificates until the second
    one asks for its first.
    """
    try:
        load(cluster)
    except AuthorityShared as e:
        fields = {
            "cluster": f"{cluster.namespace}/{cluster.name}",
            "reason": e.reason,
            "check": e.check,
            "detail": e.detail,
            "alarm": True,
        }
        _logger.warning("certificate authority is shared", extra={"fields": fields})
    except Unavailable:
        # Requests that need the authority report this.
        return


def _is_offer(csr: Csr) -> bool:
    try:
        return isinstance(parse_request(csr, CsrKind(csr.signer_name)), ParsedOffer)
    except Denied:
        return False
