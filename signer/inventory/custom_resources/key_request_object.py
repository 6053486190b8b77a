"""EndorsementKeyRequests: the keys that were offered for Machines without a registered key.

Only the signer writes them, and no check reads them. Source:
docs/decisions/0033-unknown-tpms-as-requests.md, and the CRD in packaging/signer/crds.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from common.formats.strict_json import format_time
from signer.kinds.cluster import ClusterKey
from signer.kinds.decode import Fields, MaybeText, Name, Namespace, Source, Text, Time, decode
from signer.kinds.key_request import KEY_REQUESTS, EndorsementKeyRequest, OfferedKey, TpmIdentity
from signer.kube.transport.client import MAY_EXIST, MAY_HAVE_CHANGED, ApiClient

MAX_OFFERED_KEYS: Final = 4
"""Keys of one Machine. Two are a conflict already; the first ones stay."""

_MAX_NAME: Final = 512
"""Characters of the name of a machine, as of a provider ID."""


class _Certificate(Fields):
    status: Text
    manufacturer: MaybeText = None
    model: MaybeText = None
    firmware: MaybeText = None
    certified_for: MaybeText = None


class _Key(Fields):
    sha256: Text
    node_name: Name
    requester: Text
    first_seen: Time
    certificate: _Certificate


class _Meta(Fields):
    name: Name
    namespace: Namespace
    uid: Text
    resource_version: Text


class _Spec(Fields):
    cluster_name: Name
    machine_uid: Text = msgspec.field(name="machineUID")
    provider_id: Text = msgspec.field(name="providerID")
    keys: Annotated[list[_Key], msgspec.Meta(min_length=1, max_length=MAX_OFFERED_KEYS)]


class _Request(Fields):
    metadata: _Meta
    spec: _Spec


def read_key_request(source: Source) -> EndorsementKeyRequest:
    """Read an EndorsementKeyRequest. Raises `ValueError`."""
    request = decode(source, _Request)
    metadata, spec = request.metadata, request.spec
    return EndorsementKeyRequest(
        cluster=ClusterKey(namespace=metadata.namespace, name=spec.cluster_name),
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        machine_uid=spec.machine_uid,
        provider_id=spec.provider_id,
        keys=tuple(map(_offered_key, spec.keys)),
    )


def encode_key_request(request: EndorsementKeyRequest) -> dict[str, Any]:
    """Return the body of a new EndorsementKeyRequest; its UID and version are not written."""
    return KEY_REQUESTS.manifest(
        metadata={"name": request.name, "namespace": request.cluster.namespace},
        spec={
            "clusterName": request.cluster.name,
            "machineUID": request.machine_uid,
            "providerID": request.provider_id,
            "keys": _encode_keys(request.keys),
        },
    )


class KeyRequestClient:
    """Writes EndorsementKeyRequests to the management cluster."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def create(self, request: EndorsementKeyRequest) -> bool:
        """Create a request; return whether it was created. Raises `ApiServerUnavailable`."""
        path = KEY_REQUESTS.collection_path(request.cluster.namespace)
        return self._api.create(path, encode_key_request(request), accepted=MAY_EXIST).succeeded

    def add_key(self, request: EndorsementKeyRequest, key: OfferedKey) -> bool:
        """Append a key; return whether it was written, and not changed by others meanwhile.

        Raises `ApiServerUnavailable`.
        """
        body = {
            "metadata": {"uid": request.uid, "resourceVersion": request.resource_version},
            "spec": {"keys": _encode_keys((*request.keys, key))},
        }
        path = _path(request)
        return self._api.merge_patch(path, body, accepted=MAY_HAVE_CHANGED).succeeded

    def delete(self, request: EndorsementKeyRequest) -> None:
        """Delete a request, if it has not changed. Raises `ApiServerUnavailable`."""
        preconditions = {"uid": request.uid, "resourceVersion": request.resource_version}
        self._api.delete(_path(request), preconditions, accepted=MAY_HAVE_CHANGED)


def _offered_key(key: _Key) -> OfferedKey:
    certificate = key.certificate
    return OfferedKey(
        name=key.sha256,
        node_name=key.node_name,
        requester=key.requester,
        first_seen=key.first_seen,
        certificate=certificate.status,
        identity=TpmIdentity(
            manufacturer=certificate.manufacturer or "",
            model=certificate.model or "",
            firmware=certificate.firmware or "",
        ),
        certified_for=certificate.certified_for or "",
    )


def _encode_keys(keys: Sequence[OfferedKey]) -> list[dict[str, Any]]:
    return [_encode_key(key) for key in keys]


def _encode_key(key: OfferedKey) -> dict[str, Any]:
    identity = {
        "manufacturer": key.identity.manufacturer,
        "model": key.identity.model,
        "firmware": key.identity.firmware,
        "certifiedFor": key.certified_for[:_MAX_NAME],
    }
    known = {name: value for name, value in identity.items() if value}
    return {
        "sha256": key.name,
        "nodeName": key.node_name,
        "requester": key.requester,
        "firstSeen": format_time(key.first_seen),
        "certificate": {"status": key.certificate, **known},
    }


def _path(request: EndorsementKeyRequest) -> str:
    return KEY_REQUESTS.object_path(request.name, request.cluster.namespace)
