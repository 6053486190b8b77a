"""The credential list of a workload cluster: which certificates each node may write with.

It is the parameter of the ValidatingAdmissionPolicy in packaging/signer/credential-policy.yaml: a
ConfigMap with an entry for each node. A node without an entry is not restricted.

The reconciler publishes a certificate before its release. Maintenance makes all other changes
(`signer.controller.maintenance.credential_list_sync`).
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from signer.claims.credential_entry import CredentialEntry, decode_entry, next_entry
from signer.errors import ClaimConflict
from signer.kube.decode import Fields, Source, decode
from signer.kube.resources import CONFIG_MAPS
from signer.kube.transport.client import MAY_BE_ABSENT, ApiClient
from signer.model import AttestedNodeObject, ClusterKey, EndorsementKeyObject

_PATH: Final = CONFIG_MAPS.object_path("node-attestation-credentials", "kube-system")
_Entry = Annotated[str, msgspec.Meta(max_length=4096)]
_Name = Annotated[str, msgspec.Meta(max_length=253)]
"""Kubernetes allows no longer key, and alarms name nodes of the list."""
_Data = Annotated[dict[_Name, _Entry], msgspec.Meta(max_length=20_000)]
_MAX_VALUES: Final = 1 << 20
"""Bytes of all values that an API server accepts in a ConfigMap."""
_MAX_OBJECT: Final = 3 << 19
"""Bytes of one object that etcd accepts (1.5 MiB). They include the names of the nodes, each twice:
`managedFields` has them, too."""
_MAX_USED: Final = 0.95
"""The rest is for bans, which always fit, and for what others add at the same time."""
_QUOTES: Final = 16
"""Bytes of quotes and braces around both names of a node."""
_MAX_ATTEMPTS: Final = 5
"""Writes of an entry. Each further one means that the claims changed during the one before."""


class _ConfigMap(Fields):
    data: _Data | None = None


class CredentialList:
    """The list as it was read."""

    def __init__(self, texts: Mapping[str, str], size: int = 0) -> None:
        """Hold the entries by node name, of an object with this number of bytes."""
        self.texts = texts
        self._size = size
        self._values = sum(map(len, texts.values()))

    def entry(self, node_name: str) -> CredentialEntry | None:
        """Return the entry of a node, `None` if it has none."""
        text = self.texts.get(node_name)
        return None if text is None else decode_entry(text)

    def of_node(self, node_name: str) -> "CredentialList":
        """Return the list without the entries of other nodes, whose space counts as before.

        A worker holds it while it waits for API servers, and a hostile one may have filled it.
        """
        listed, text = copy(self), self.texts.get(node_name)
        listed.texts = {} if text is None else {node_name: text}
        return listed

    def used(self) -> float:
        """Return which part of the space is used."""
        return self._used(0, 0)

    def fits(self, node_name: str, entry: CredentialEntry) -> bool:
        """Return whether an entry has space; one that ends all certificates always has."""
        old = self.texts.get(node_name)
        growth = len(entry.encode()) - len(old or "")
        names = 0 if old is not None else 2 * len(node_name) + _QUOTES
        return growth <= 0 or not entry.ids or self._used(growth, names) <= _MAX_USED

    def _used(self, growth: int, names: int) -> float:
        by_values = (self._values + growth) / _MAX_VALUES
        return max(by_values, (self._size + growth + names) / _MAX_OBJECT)


class CredentialListClient:
    """Reads and writes the credential list; a cluster without the ConfigMap has none."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def read(self) -> CredentialList | None:
        """Return the list, `None` if the ConfigMap does not exist."""
        response = self._api.find(_PATH)
        return None if response is None else response.read(_read)

    def publish(self, entries: Mapping[str, CredentialEntry | None]) -> None:
        """Write the entries of nodes; `None` removes one.

        Has no precondition: all nodes are in one ConfigMap, and many may renew at the same time.
        Does nothing if the ConfigMap does not exist.
        """
        data = {name: entry and entry.encode() for name, entry in entries.items()}
        self._api.merge_patch(_PATH, {"data": data}, accepted=MAY_BE_ABSENT)


def _read(source: Source) -> CredentialList:
    size = len(source) if isinstance(source, bytes) else 0
    return CredentialList(decode(source, _ConfigMap).data or {}, size)


def cluster_of_changed_key(
    before: EndorsementKeyObject | None, after: EndorsementKeyObject | None
) -> ClusterKey | None:
    """Return the Cluster whose list a change of a key makes out of date, `None` if there is none.

    So the list shows within seconds that a ban or a release began or ended. A claim of the holder
    needs no change of the list here: the reconciler publishes what it issues.
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
