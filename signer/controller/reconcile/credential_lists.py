"""Writes entries of the credential list, so that they agree with the claims.

The reconciler publishes a certificate before its release. Maintenance makes all other changes
(`signer.controller.maintenance.credential_list_sync`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from signer.claims.credential_entry import CredentialEntry, next_entry
from signer.errors import ClaimConflict
from signer.inventory.credential_list import CredentialList, CredentialListClient
from signer.model import AttestedNodeObject, ClusterKey, EndorsementKeyObject

_MAX_ATTEMPTS: Final = 5
"""Writes of an entry. Each further one means that the claims changed during the one before."""


def cluster_of_changed_key(
    before: EndorsementKeyObject | None, after: EndorsementKeyObject | None
) -> ClusterKey | None:
    """Return the Cluster whose list a change of a key makes out of date, `None` if there is none.

    A ban or a release, and the end of one, are in the list within seconds. The holder's own writes
    change nothing: the reconciler publishes what it issues.
    """
    if before is None or after is None or after.held_by is None:
        return None
    if (before.banned, before.released_from) == (after.banned, after.released_from):
        return None
    return after.held_by.cluster


def _is_never_gone(_name: str, _node: AttestedNodeObject | None) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReader:
    """Reads the claims of one Cluster, from caches or from the API server."""

    node: Callable[[str], AttestedNodeObject | None]
    key: Callable[[str], EndorsementKeyObject | None]
    is_gone: Callable[[str, AttestedNodeObject | None], bool] = _is_never_gone
    """Whether both clusters say that there is no such node: no Machine, and no Node."""

    def next_entry(
        self, listed: CredentialList, name: str, entry: CredentialEntry | None
    ) -> CredentialEntry | None:
        """Return what the list must have for a node, `None` for nothing, which restricts nothing.

        A node that is gone, and one for which there is no space, has no entry; but a banned key
        has, and always fits.
        """
        node = self.node(name)
        following = next_entry(entry, node, self.key)
        if following is None or not listed.fits(name, following):
            return None
        if (following.ids or node is None) and self.is_gone(name, node):
            return None
        return following


def publish_entries(
    lists: CredentialListClient,
    entries: Mapping[str, CredentialEntry | None],
    following: Callable[[str, CredentialEntry | None], CredentialEntry | None],
) -> None:
    """Write entries, and read the claims after each write until both agree.

    `following` returns what follows an entry, as the claims in the API server say. A late write
    must neither bring back a certificate that a ban has ended, nor end one that another replica has
    issued meanwhile. A precondition on the whole list would let the renewals of other nodes delay a
    ban. Each change of the claims after the last read brings another write.

    Raises `ApiServerUnavailable`, and `ClaimConflict` if the claims changed during each attempt.
    """
    for _ in range(_MAX_ATTEMPTS):
        lists.publish(entries)
        present = {name: following(name, entry) for name, entry in entries.items()}
        entries = {name: entry for name, entry in present.items() if entry != entries[name]}
        if not entries:
            return
    raise ClaimConflict("others write the claims of these nodes at the same time")
