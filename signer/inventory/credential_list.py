"""The credential list of a workload cluster: which certificates each node may write with.

It is the parameter of the ValidatingAdmissionPolicy in packaging/signer/credential-policy.yaml: a
ConfigMap with an entry for each node, its credential IDs separated by blanks. An empty entry
accepts none. A node without an entry is not restricted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Final

import msgspec

from signer.kube.client import ApiClient
from signer.kube.decode import Fields, Source, Text, decode

_PATH: Final = "/api/v1/namespaces/kube-system/configmaps/node-attestation-credentials"
_Entry = Annotated[str, msgspec.Meta(max_length=4096)]
_Data = Annotated[dict[str, _Entry], msgspec.Meta(max_length=20_000)]
"""etcd accepts 1.5 MiB for an object: about 8000 nodes with two credential IDs each."""


class _Meta(Fields):
    resource_version: Text


class _ConfigMap(Fields):
    metadata: _Meta
    data: _Data | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredList:
    """The credential list, as an API server has it."""

    resource_version: str
    entries: Mapping[str, str]
    """By node name."""


def encode_entry(credential_ids: Sequence[str]) -> str:
    """Return the entry of a node that may use these certificates."""
    return " ".join(credential_ids)


class CredentialListClient:
    """Reads and writes the credential list; a cluster without the ConfigMap has none."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def read(self) -> StoredList | None:
        """Return the list, `None` if the ConfigMap does not exist."""
        response = self._api.get(_PATH, accepted=(200, 404))
        return None if response.status == HTTPStatus.NOT_FOUND else response.read(_read)

    def publish(self, node_name: str, credential_ids: Sequence[str]) -> None:
        """Write the entry of a node. Does nothing if the ConfigMap does not exist."""
        body = {"data": {node_name: encode_entry(credential_ids)}}
        self._api.merge_patch(_PATH, body, accepted=(200, 404))

    def change(self, stored: StoredList, changes: Mapping[str, str | None]) -> None:
        """Write entries, and remove those whose value is `None`.

        Does nothing if the list has changed since it was read: the next round reads it again.
        """
        body = {"metadata": {"resourceVersion": stored.resource_version}, "data": dict(changes)}
        self._api.merge_patch(_PATH, body, accepted=(200, 404, 409))


def _read(source: Source) -> StoredList:
    config_map = decode(source, _ConfigMap)
    return StoredList(
        resource_version=config_map.metadata.resource_version, entries=config_map.data or {}
    )
