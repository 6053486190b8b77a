"""Rounds of maintenance of the management cluster: challenge keys, and what nothing needs.

The caches say which claims, endorsement keys and Leases of authorities may be needed. Each round is
limited in size, and an object that cannot be handled does not stop the round. Source:
docs/protocol.md, section 2.
"""

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from common.errors import ApiServerUnavailable
from common.names import CLIENT_SIGNER
from signer.clusters.management_cluster import ManagementCluster
from signer.controller.maintenance.markers import newest_claims
from signer.controller.steps import Step, Steps
from signer.fairness.outbox import Outbox
from signer.inventory.cached_inventory import infrastructure_signer
from signer.inventory.cluster_api.cluster import client_signers
from signer.inventory.custom_resources.claim_store import KubeClaimStore
from signer.inventory.replica_records.authority_leases import AuthorityLeases
from signer.inventory.replica_records.challenge_keys import ChallengeKeyStore
from signer.inventory.replica_records.opt_in_leases import OptIns
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import EndorsementKeyObject, KeyHolder
from signer.kinds.machine import MachineState

_logger = logging.getLogger(__name__)

_CLAIM_GRACE: Final = timedelta(days=1)
"""How long a stale claim is kept: `clusterctl move` may create the Machines, and the AttestedNodes
of endorsement keys, later than the claims that name them."""
_INTERVAL: Final = 60.0
_RETRY_INTERVAL: Final = 5.0


class Cleanup:
    """Deletes what nothing needs, as the caches show."""

    def __init__(  # noqa: PLR0913 - the stores that it cleans up
        self,
        management: ManagementCluster,
        claims: KubeClaimStore,
        authorities: AuthorityLeases,
        opt_ins: OptIns,
        *,
        serves: Callable[[ClusterKey], bool],
        now: Callable[[], datetime],
    ) -> None:
        """Clean up after the Clusters that this replica `serves`, also those that are gone."""
        self._management = management
        self._serves = serves
        self._claims = claims
        self._authorities = authorities
        self._opt_ins = opt_ins
        self._now = now
        self._stale = Outbox("stale claim not deleted", "namespace", time.monotonic)
        self._unclaimed = Outbox("unclaimed key not deleted", "namespace", time.monotonic)

    def delete_stale_claims(self) -> None:
        """Delete AttestedNodes without a Machine whose certificate expired a day ago.

        The newest claim of a Cluster that exists stays: without it, claims would seem to be lost.
        What the caches show as live costs no API call.
        """
        now = self._now()
        newest = newest_claims(self._management.nodes.all())
        self._stale.write(
            (node.cluster.namespace, partial(delete_if_stale, self._claims, node))
            for node in self._management.nodes.all()
            if self._serves(node.cluster)
            and now - max(node.not_after, node.others_end_at or node.not_after) > _CLAIM_GRACE
            and not self._management.has_machine(node)
            and (
                node.last_attested < newest[node.cluster].last_attested
                or self._is_absent(node.cluster)
            )
        )

    def delete_unclaimed_keys(self) -> None:
        """Delete EndorsementKeys that no operator has written to and no AttestedNode keeps.

        A key is kept for a day after its last claim or its creation: a signer may have crashed
        between K1 and K2, and `clusterctl move` may bring the AttestedNode later. A key that is
        claimed meanwhile has another resourceVersion, and is not deleted.
        """
        now = self._now()
        held = [(k, k.held_by) for k in self._management.keys.all() if k.held_by is not None]
        self._unclaimed.write(
            (holder.cluster.namespace, partial(delete_if_unclaimed, self._claims, key, holder))
            for key, holder in held
            if self._serves(holder.cluster)
            and is_disposable(key, now)
            and not self._is_claimed(key, holder)
        )

    def delete_authority_leases(self) -> None:
        """Delete the Leases with the authorities of Clusters that do not exist."""
        self._authorities.delete_absent(self._is_absent)

    def delete_opt_in_leases(self) -> None:
        """Delete the Leases of Clusters that have opted out, or do not exist."""
        self._opt_ins.delete_ended(self._has_opted_out)

    def _has_opted_out(self, key: ClusterKey) -> bool:
        """Return whether a Cluster of this replica is not opted in; not while that is unknown."""
        cluster = self._management.clusters.get(str(key))
        if cluster is None:
            return self._is_absent(key)
        try:
            named = infrastructure_signer(cluster, self._management)
        except ApiServerUnavailable:
            return False
        return self._serves(key) and CLIENT_SIGNER not in client_signers(cluster, named)

    def _is_absent(self, cluster: ClusterKey) -> bool:
        """Return whether a Cluster of this replica does not exist."""
        clusters = self._management.clusters
        is_unknown = clusters.get(str(cluster)) is None
        return self._serves(cluster) and is_unknown and clusters.is_complete_for(cluster.namespace)

    def _is_claimed(self, key: EndorsementKeyObject, holder: KeyHolder) -> bool:
        """Return whether an AttestedNode in the caches, in the namespace of the holder, names it.

        A tenant that may write AttestedNodes keeps only keys that count for its own quota.
        """
        nodes = self._management.nodes.by_index("endorsement key", key.name)
        return any(node.cluster.namespace == holder.cluster.namespace for node in nodes)


def delete_if_stale(claims: KubeClaimStore, node: AttestedNodeObject) -> None:
    """Delete an AttestedNode, unless the API server has its Machine."""
    state = claims.machine_state(node.cluster, node.provider_id, node.machine_name)
    if state is MachineState.ABSENT:
        claims.delete_attested_node(node)
        fields = node.cluster.log_fields() | {"node": node.node_name}
        _logger.info("stale claim deleted", extra={"fields": fields})


def delete_if_unclaimed(
    claims: KubeClaimStore, key: EndorsementKeyObject, holder: KeyHolder
) -> None:
    """Delete an EndorsementKey, unless the AttestedNode of its holder names it.

    It is read from the API server: the cache omits an AttestedNode that cannot be decoded.
    """
    node = claims.attested_node(holder.cluster, holder.node_name)
    if node is None or node.endorsement_key != key.name:
        claims.delete_endorsement_key(key)
        fields = holder.cluster.log_fields() | {"endorsementKey": key.name}
        _logger.info("unclaimed endorsement key deleted", extra={"fields": fields})


def is_disposable(key: EndorsementKeyObject, now: datetime) -> bool:
    """Return whether an old claim is all that the key's object holds."""
    written = key.registered_for or key.released_from or key.banned or key.ban_lifted
    if written or key.last_claimed is None:
        return False
    return now - key.last_claimed > _CLAIM_GRACE


class ManagementRounds:
    """Rounds of all steps; a step that fails does not stop the others."""

    def __init__(self, steps: Steps, challenge_keys: ChallengeKeyStore, cleanup: Cleanup) -> None:
        self._steps = steps
        self._functions = {
            Step.ROTATE_CHALLENGE_KEYS: challenge_keys.rotate,
            Step.DELETE_STALE_CLAIMS: cleanup.delete_stale_claims,
            Step.DELETE_UNCLAIMED_KEYS: cleanup.delete_unclaimed_keys,
            Step.DELETE_AUTHORITY_LEASES: cleanup.delete_authority_leases,
            Step.DELETE_OPT_IN_LEASES: cleanup.delete_opt_in_leases,
        }
        self._succeeded = True

    def run(self) -> None:
        """Run one round."""
        results = [self._steps.run(step, function) for step, function in self._functions.items()]
        self._succeeded = all(results)

    def pause(self) -> float:
        """Return the seconds until the next round."""
        return _INTERVAL if self._succeeded else _RETRY_INTERVAL
