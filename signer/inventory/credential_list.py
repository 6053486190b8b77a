"""The credential list of a workload cluster: which certificates each node may write with.

It is the parameter of the ValidatingAdmissionPolicy in packaging/signer/credential-policy.yaml: a
ConfigMap with an entry for each node, its credential IDs separated by blanks. An empty entry
accepts none. A node without an entry is not restricted.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Final

import msgspec

from signer.kube.client import ApiClient
from signer.kube.decode import Fields, Source, decode

_PATH: Final = "/api/v1/namespaces/kube-system/configmaps/node-attestation-credentials"
_Entry = Annotated[str, msgspec.Meta(max_length=4096)]
_Data = Annotated[dict[str, _Entry], msgspec.Meta(max_length=20_000)]
"""etcd accepts 1.5 MiB for an object: about 8000 nodes with two credential IDs each."""


class _ConfigMap(Fields):
    data: _Data | None = None


def encode_entry(credential_ids: Sequence[str]) -> str:
    """Return the entry of a node that may use these certificates."""
    return " ".join(credential_ids)


class CredentialListClient:
    """Reads and writes the credential list; a cluster without the ConfigMap has none."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def read(self) -> Mapping[str, str] | None:
        """Return the entries by node name, `None` if the ConfigMap does not exist."""
        response = self._api.get(_PATH, accepted=(200, 404))
        return None if response.status == HTTPStatus.NOT_FOUND else response.read(_read)

    def publish(self, entries: Mapping[str, str | None]) -> None:
        """Write the entries of nodes; `None` removes one.

        Has no precondition: all nodes are in one ConfigMap, and many may renew at the same time.
        Does nothing if the ConfigMap does not exist.
        """
        self._api.merge_patch(_PATH, {"data": dict(entries)}, accepted=(200, 404))


def _read(source: Source) -> Mapping[str, str]:
    return decode(source, _ConfigMap).data or {}
