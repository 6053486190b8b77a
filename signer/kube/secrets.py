"""Secrets of the management cluster: read one by one, so that no list of keys is ever held."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from common.errors import ApiServerUnavailable
from signer.kube.client import ApiClient
from signer.kube.fields import Json, get_path, get_str, labels, require_str


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """One Secret."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    type: str
    labels: Mapping[str, str]
    data: Mapping[str, bytes] = field(repr=False)


class SecretClient:
    """Reads and writes single Secrets. Raises `ApiServerUnavailable`."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def read(self, namespace: str, name: str) -> Secret | None:
        """Return the Secret, `None` when there is none."""
        answer = self._api.get(_path(namespace, name), accepted=(200, 404))
        return None if answer.status == HTTPStatus.NOT_FOUND else read_secret(answer.body)

    def create(self, namespace: str, name: str, data: Mapping[str, bytes]) -> Secret | None:
        """Create the Secret; `None` when somebody else has."""
        body = _body(namespace, name, data)
        answer = self._api.create(_path(namespace), body, accepted=(201, 409))
        return None if answer.status == HTTPStatus.CONFLICT else read_secret(answer.body)

    def replace(self, current: Secret, data: Mapping[str, bytes]) -> Secret | None:
        """Write all data under the resource version of `current`; `None` for a lost race."""
        body = _body(current.namespace, current.name, data)
        body["metadata"]["resourceVersion"] = current.resource_version
        path = _path(current.namespace, current.name)
        answer = self._api.replace(path, body, accepted=(200, 404, 409))
        return read_secret(answer.body) if answer.status == HTTPStatus.OK else None


def _path(namespace: str, name: str = "") -> str:
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/secrets"
    return f"{path}/{quote(name, safe='')}" if name else path


def _body(namespace: str, name: str, data: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"namespace": namespace, "name": name},
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def read_secret(body: Json) -> Secret:
    """Read a Secret. Raises `ApiServerUnavailable` for what is none."""
    data = get_path(body, "data")
    try:
        return Secret(
            namespace=require_str(body, "metadata", "namespace"),
            name=require_str(body, "metadata", "name"),
            uid=get_str(body, "metadata", "uid") or "",
            resource_version=require_str(body, "metadata", "resourceVersion"),
            type=get_str(body, "type") or "",
            labels=labels(body),
            data={
                key: base64.b64decode(value, validate=True)
                for key, value in (data.items() if isinstance(data, Mapping) else ())
            },
        )
    except (ValueError, TypeError) as e:
        raise ApiServerUnavailable("a Secret cannot be read") from e
