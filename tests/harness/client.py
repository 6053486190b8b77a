"""A small Kubernetes client for set-up and checks, by path and without types.

It shares no code with the clients of the programs under test, so it can find their errors.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import requests
import yaml

Object = dict[str, Any]

TIMEOUT_SECONDS = 60
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_FILLING = "storage is (re)initializing"
"""After its start, the API server fills its caches, one for each kind."""
_RETRY_SECONDS = 0.1


class ApiError(Exception):
    """The API server answered with an error."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One identity at one API server: a certificate with its key, a token, or anonymous."""

    server: str
    authority: Path
    certificate: tuple[Path, Path] | None = None
    token: str | None = None

    def get(self, path: str, **query: str) -> Object:
        """Return the object at a path."""
        return self._request("GET", path, query=query)

    def list(self, path: str, **query: str) -> list[Object]:
        """Return the items of a collection."""
        items: list[Object] = self.get(path, **query)["items"]
        return items

    def create(self, path: str, body: Mapping[str, Any]) -> Object:
        """Create an object in the collection at a path."""
        return self._request("POST", path, body=body)

    def apply(self, path: str, body: Mapping[str, Any]) -> Object:
        """Create or change the object at a path by server-side apply."""
        query = {"fieldManager": "test-harness", "force": "true"}
        return self._request("PATCH", path, body=body, kind=APPLY_PATCH, query=query)

    def patch(self, path: str, body: Mapping[str, Any]) -> Object:
        """Merge into the object at a path."""
        return self._request("PATCH", path, body=body, kind=MERGE_PATCH)

    def patch_text(self, path: str, text: bytes) -> None:
        """Merge JSON into the object at a path, which Python need not be able to decode."""
        response = self._send("PATCH", path, body=text, kind=MERGE_PATCH)
        if not response.ok:
            raise ApiError(response.status_code, response.reason, response.text[:500])

    def replace(self, path: str, body: Mapping[str, Any]) -> Object:
        """Replace the object at a path."""
        return self._request("PUT", path, body=body)

    def delete(self, path: str) -> Object:
        """Delete the object at a path."""
        return self._request("DELETE", path)

    def may(self, verb: str, resource: str, *, group: str = "", name: str = "") -> bool:
        """Ask the API server whether this identity may do something, in all namespaces."""
        attributes = {"verb": verb, "resource": resource, "group": group, "name": name}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(self.create(path, review)["status"]["allowed"])

    def ready(self) -> bool:
        """Return whether the API server answers that it is ready."""
        try:
            return self._send("GET", "/readyz").ok
        except (requests.ConnectionError, requests.Timeout):
            return False

    def _request(self, method: str, path: str, **more: Any) -> Object:  # noqa: ANN401 - see _send
        response = self._send(method, path, **more)
        while response.status_code == HTTPStatus.TOO_MANY_REQUESTS and _FILLING in response.text:
            time.sleep(_RETRY_SECONDS)
            response = self._send(method, path, **more)
        answer: Object = response.json()
        if not response.ok:
            reason, message = answer.get("reason", ""), answer.get("message", "")
            raise ApiError(response.status_code, reason, message)
        return answer

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | bytes | None = None,
        kind: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> requests.Response:
        headers = {"Content-Type": kind}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        pair = None
        if self.certificate is not None:
            pair = (str(self.certificate[0]), str(self.certificate[1]))
        with requests.Session() as session:
            # The environment must not add proxies, credentials or another authority.
            session.trust_env = False
            return session.request(
                method,
                self.server + path,
                params=query,
                data=body if body is None or isinstance(body, bytes) else json.dumps(body),
                headers=headers,
                cert=pair,
                verify=str(self.authority),
                timeout=TIMEOUT_SECONDS,
            )


def documents(*files: Path) -> Sequence[Object]:
    """Return the objects in YAML files."""
    return [
        document
        for file in files
        for document in yaml.safe_load_all(file.read_text())
        if document is not None
    ]
