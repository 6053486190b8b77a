"""The management cluster, with the operator's own kubeconfig; only this file imports `kubernetes`.

An operator's kubeconfig has exec plugins, files and proxies, which the signer's parser refuses on
purpose. The official loader reads them all. It only logs the failure of an exec plugin and then
connects without a credential, so `connect` checks that there is one.
"""

import json
import logging
import re
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException, load_kube_config
from kubernetes.config.kube_config import (
    ENV_KUBECONFIG_PATH_SEPARATOR,
    KUBE_CONFIG_DEFAULT_LOCATION,
)
from yaml import YAMLError

from common.errors import ApiServerUnavailable
from signer.kinds.decode import Json, read_as
from signer.kinds.resources import Resource
from signer.kube.pages import UNLIMITED, list_objects
from signer.kube.transport.client import MAY_BE_ABSENT, Expired, Response
from signer.kube.unreadable import Unreadable
from signer.operator_cli.errors import Rejected, ServerUnavailable

FIELD_MANAGER: Final = "kubectl-attestation"
_ANONYMOUS: Final = "system:anonymous"
_TIMEOUT: Final = (10.0, 60.0)
"""Seconds to connect, and for the next byte of an answer."""
_NO_QUERY: Final[Mapping[str, str]] = MappingProxyType({})
_NAME_KUBECONFIG: Final = (
    "name a kubeconfig with --kubeconfig or KUBECONFIG, a context with --context"
)
_JSON: Final = "application/json"
_MERGE_PATCH: Final = "application/merge-patch+json"
_CONNECTION: Final = re.compile(r"^HTTPS?Connection(?:Pool)?\([^)]*\): ")
"""What urllib3 writes before the reason."""
_SELF_REVIEW: Final = Resource(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
)


class ManagementApi:
    """Requests by path; every failure is a `CommandError` with the next step."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.written: list[str] = []
        """The objects that were written, as `plural/name`."""
        self.in_doubt = ""
        """The object whose write has no answer yet."""
        self.dry_run = False
        """Whether the API server only checks what would be written."""

    @property
    def server(self) -> str:
        """Return the URL of the API server."""
        return str(self._client.configuration.host)

    def get(
        self,
        path: str,
        query: Mapping[str, str] = _NO_QUERY,
        *,
        accepted: Container[int] = (200,),
    ) -> Response:
        """Read one object."""
        return self._call("GET", path, query, accepted=accepted)

    def find(self, path: str) -> Response | None:
        """Read one object, `None` if it does not exist."""
        response = self.get(path, accepted=MAY_BE_ABSENT)
        return response if response.succeeded else None

    def get_page(self, path: str, query: Mapping[str, str]) -> Response:
        """Read one page of a list. Raises `Expired` when the list can no longer be continued."""
        response = self._call("GET", path, query, accepted=(200, 410))
        if response.status == HTTPStatus.GONE:
            raise Expired
        return response

    def list_objects(
        self,
        path: str,
        query: Mapping[str, str] = _NO_QUERY,
        *,
        left_out: list[Unreadable] | None = None,
    ) -> list[dict[str, Any]]:
        """Return all objects of a collection.

        An object that cannot be read is added to `left_out`. Without that it raises
        `ServerUnavailable`: the caller needs all of them.
        """
        read = read_as(dict)
        try:
            return list(
                list_objects(
                    self, path, read, query=query, max_objects=UNLIMITED, left_out=left_out
                )
            )
        except ApiServerUnavailable as error:
            message = f"{error.message} {error.detail}".strip()
            raise ServerUnavailable(message, hint="run the command again") from error

    def create(self, path: str, body: Json, *, accepted: Container[int] = (201,)) -> Response:
        """Create an object."""
        return self._write("POST", path, body, media=_JSON, accepted=accepted)

    def merge_patch(self, path: str, body: Json, *, accepted: Container[int] = (200,)) -> Response:
        """Merge into an object; lists are replaced."""
        return self._write("PATCH", path, body, media=_MERGE_PATCH, accepted=accepted)

    @cached_property
    def username(self) -> str:
        """The user that the API server recognizes by the credential."""
        path, body = _SELF_REVIEW.collection_path(), _SELF_REVIEW.manifest()
        response = self._call("POST", path, {}, body=body, accepted=(201, 404))
        if not response.succeeded:
            raise ServerUnavailable(
                f"{self.server} must be the API server of a supported Kubernetes release: it has no"
                " SelfSubjectReview",
                hint="check the server of the kubeconfig's context",
            )
        review = json.loads(response.content)
        return str(review["status"]["userInfo"].get("username", ""))

    def _write(
        self, method: str, path: str, body: Json, *, media: str, accepted: Container[int]
    ) -> Response:
        """Write an object, and note it: an operator may interrupt the command at any moment."""
        parts = path.split("/")
        if method == "POST":
            parts.append(body.get("metadata", {}).get("name", ""))
        query = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if self.dry_run else {})
        # A review, which stores nothing, has no name.
        self.in_doubt = "" if self.dry_run or not parts[-1] else "/".join(parts[-2:])
        response = self._call(method, path, query, body=body, media=media, accepted=accepted)
        if response.succeeded and self.in_doubt:
            self.written.append(self.in_doubt)
        self.in_doubt = ""
        return response

    def _call(  # noqa: PLR0913 - the parts of a request
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        body: Json | None = None,
        media: str = _JSON,
        accepted: Container[int],
    ) -> Response:
        headers = {"Accept": _JSON} | ({} if body is None else {"Content-Type": media})
        request = self._client.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._client.call_api(*request, _request_timeout=_TIMEOUT)
            content = answer.read()  # type: ignore[no-untyped-call]
        except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unreachable(error) from error
        if answer.status not in accepted:
            raise _unexpected_status(method, path, answer.status, content)
        return Response(status=answer.status, content=content)

    def _unreachable(self, error: Exception) -> ServerUnavailable:
        reason = _one_line(getattr(error, "reason", None) or error)
        return ServerUnavailable(
            f"the API server {self.server} cannot be reached: {_CONNECTION.sub('', reason)[:300]}",
            hint="check the server, the proxy and the CA of the kubeconfig's context",
        )


def connect(kubeconfig: str | None, context: str | None, user: str | None = None) -> ManagementApi:
    """Load a kubeconfig and check that the API server accepts its credential.

    `None` means the files of `KUBECONFIG` or the default file, and the current context. With
    `user`, requests are made as this user, if RBAC allows the credential to impersonate it. Raises
    `ServerUnavailable`: the kubeconfig has no usable credential, or the server does not answer.
    """
    # As in kubectl, an empty KUBECONFIG means the default file.
    files = kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION or "~/.kube/config"
    _require_file(files)
    configuration = Configuration()
    # A redirect would send the credential elsewhere; a retry hides an outage.
    configuration.retries = False
    with _logged_errors() as errors:
        try:
            load_kube_config(  # type: ignore[no-untyped-call]
                config_file=files,
                context=context,
                client_configuration=configuration,
                persist_config=False,
            )
        except (ConfigException, OSError, ValueError, YAMLError) as error:
            message = f"the kubeconfig {files} cannot be used: {_one_line(error)}"
            raise ServerUnavailable(message, hint=_NAME_KUBECONFIG) from error
        except (LookupError, TypeError, AttributeError) as error:
            message = f"the kubeconfig {files} must have clusters, users and contexts"
            raise ServerUnavailable(message, hint=_NAME_KUBECONFIG) from error
    _require_credential(configuration, errors)
    # The kubeconfig asks for it with insecure-skip-tls-verify.
    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    client = ApiClient(configuration)
    if user is not None:
        client.set_default_header("Impersonate-User", user)  # type: ignore[no-untyped-call]
    api = ManagementApi(client)
    if api.username == _ANONYMOUS:
        raise ServerUnavailable(
            "the API server does not know the credential: the user is system:anonymous",
            hint="log in again, or choose another context with --context",
        )
    return api


def _require_file(files: str) -> None:
    """Raise unless one of the files exists; the loader ignores those that do not."""
    paths = filter(None, files.split(ENV_KUBECONFIG_PATH_SEPARATOR))
    if not any(Path(path).expanduser().exists() for path in paths):
        raise ServerUnavailable(f"the kubeconfig {files} does not exist", hint=_NAME_KUBECONFIG)


def _require_credential(configuration: Configuration, errors: list[str]) -> None:
    """Raise unless a token or a certificate was loaded; `errors` are those of the loader."""
    certificate = configuration.cert_file and configuration.key_file
    if configuration.api_key.get("BearerToken") or certificate:
        return
    reason = f": {errors[-1]}" if errors else ""
    raise ServerUnavailable(
        f"the kubeconfig gave no credential{reason}",
        hint="log in again, or choose another context with --context",
    )


@contextmanager
def _logged_errors() -> Iterator[list[str]]:
    """Collect what the loader logs instead of raising."""
    messages: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: messages.append(record.getMessage()[:500])  # type: ignore[method-assign]
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield messages
    finally:
        root.removeHandler(handler)


def _unexpected_status(method: str, path: str, status: int, content: bytes) -> Exception:
    message = _message(content)
    where = f"{method} {urlsplit(path).path}"
    match status:
        case HTTPStatus.UNAUTHORIZED:
            return ServerUnavailable(
                "the API server does not accept the credential (401)",
                hint="log in again, or choose another context with --context",
            )
        case HTTPStatus.FORBIDDEN:
            return ServerUnavailable(
                f"permission is missing (403): {message}",
                hint="ask an administrator to grant it, or choose another context with --context",
            )
        case HTTPStatus.NOT_FOUND:
            return Rejected(
                f"not found: {where}",
                hint="run the command `doctor`: the CRDs may be missing, or the name is wrong",
            )
        case HTTPStatus.BAD_REQUEST | HTTPStatus.UNPROCESSABLE_ENTITY:
            return Rejected(f"the API server rejects the object: {message}")
        case _:
            return ServerUnavailable(
                f"{where}: the API server answered {status}: {message}",
                hint="run the command again; if the answer stays the same, check that the server of"
                " the kubeconfig's context is the API server of the management cluster, and its"
                " log",
            )


def _one_line(error: object) -> str:
    return " ".join(str(error).split())


def _message(content: bytes) -> str:
    """Return the message of a Status object, or the start of any other answer."""
    try:
        return str(json.loads(content)["message"])[:500]
    except (ValueError, KeyError, TypeError, RecursionError):
        return content[:200].decode(errors="replace")
