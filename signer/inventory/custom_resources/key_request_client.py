"""Writes EndorsementKeyRequests to the management cluster."""

from signer.kinds.key_request import (
    KEY_REQUESTS,
    EndorsementKeyRequest,
    OfferedKey,
    encode_key_request,
)
from signer.kinds.record import encode
from signer.kube.transport.client import MAY_EXIST, MAY_HAVE_CHANGED, ApiClient


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
            "spec": {"keys": [encode(each) for each in (*request.keys, key)]},
        }
        path = _path(request)
        return self._api.merge_patch(path, body, accepted=MAY_HAVE_CHANGED).succeeded

    def delete(self, request: EndorsementKeyRequest) -> None:
        """Delete a request, if it has not changed. Raises `ApiServerUnavailable`."""
        preconditions = {"uid": request.uid, "resourceVersion": request.resource_version}
        self._api.delete(_path(request), preconditions, accepted=MAY_HAVE_CHANGED)


def _path(request: EndorsementKeyRequest) -> str:
    return KEY_REQUESTS.object_path(request.name, request.cluster.namespace)
