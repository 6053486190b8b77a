"""Reads workload clusters. Their kubeconfig Secrets and API servers are a tenant's.

So the kubeconfig is read by the signer's strict parser, which runs no command and opens no file,
and the answers by its client, which limits their size and time. A list has a limit, too.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote

from common.errors import ApiServerUnavailable, AttestationError
from signer.errors import KubeconfigRefused
from signer.inventory.cluster import ClusterObject
from signer.inventory.kubeconfig_secret import find_kubeconfig_secret, read_connection
from signer.kube.client import MAX_WORKLOAD_RESPONSE, ApiClient, Expired
from signer.kube.kubeconfig import Connection
from signer.kube.pages import list_pages
from signer.kube.secrets import Secret, read_secret
from signer.operator_cli.errors import CommandError, ServerUnavailable
from signer.operator_cli.management import FIELD_MANAGER, ManagementApi
from signer.operator_cli.session import Session

V = TypeVar("V")
Body = dict[str, Any]
_AT_ONCE: Final = 8
_PAGE_SIZE: Final = 250
_MAX_OBJECTS: Final = 10_000
"""Objects of one list: more than the largest supported cluster has nodes."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Why a workload cluster could not be read."""

    reason: str


def read_named_secret(api: ManagementApi, namespace: str, name: str) -> Secret | None:
    """Read a Secret of the management cluster. Raises `CommandError` and `ApiServerUnavailable`."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/secrets/{quote(name, safe='')}"
    response = api.find(path)
    return None if response is None else response.read(read_secret)


def connect_workload(api: ManagementApi, cluster: ClusterObject) -> ApiClient:
    """Return a client of the Cluster's workload cluster, connected as the signer is.

    Raises `AttestationError` when its kubeconfig Secret is refused, and `CommandError`.
    """
    _, secret = find_kubeconfig_secret(partial(read_named_secret, api), cluster.key)
    return open_client(cluster, read_connection(secret, cluster))


def open_client(cluster: ClusterObject, connection: Connection) -> ApiClient:
    """Return a client of a workload cluster."""
    return ApiClient(
        f"{cluster.key.namespace}/{cluster.key.name}",
        connection,
        user_agent=FIELD_MANAGER,
        max_response=MAX_WORKLOAD_RESPONSE,
    )


@contextmanager
def reading_workload(cluster: ClusterObject) -> Iterator[None]:
    """Turn an error of a workload cluster into a `ServerUnavailable` that names the Cluster."""
    try:
        yield
    except AttestationError as e:
        key = f"{cluster.key.namespace}/{cluster.key.name}"
        raise ServerUnavailable(
            f"the workload cluster {key} cannot be read: {e.message} {e.detail}".strip(),
            hint="run the command `check` for the connection to each cluster",
        ) from e


def list_workload(client: ApiClient, path: str) -> list[Body]:
    """Return all objects of a collection, each with a name. Raises `AttestationError`."""
    items: list[Body] = []
    try:
        for page in list_pages(client, path, _PAGE_SIZE, {}):
            items += [parse_object(bytes(item)) for item in page.items or ()]
            if len(items) > _MAX_OBJECTS:
                raise ApiServerUnavailable(f"it has more than {_MAX_OBJECTS} objects at {path}")
    except Expired as e:
        raise ApiServerUnavailable(f"the list {path} expired before its end") from e
    return items


def parse_object(content: bytes) -> Body:
    """Return an object of a workload cluster, whose API server may send anything.

    Raises `ApiServerUnavailable` unless it is a JSON object with a name in its metadata.
    """
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as e:
        raise ApiServerUnavailable("the API server's answer cannot be read") from e
    metadata = body.get("metadata") if isinstance(body, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise ApiServerUnavailable("the API server's answer has an object without a name")
    result: Body = body
    return result


def for_each_workload(
    session: Session,
    clusters: Sequence[ClusterObject],
    read: Callable[[ApiClient, ClusterObject], V],
) -> list[V | Unreachable]:
    """Connect to each workload cluster and read it, eight at once; results in the same order."""
    api, done = session.api, 0

    def attempt(cluster: ClusterObject) -> V | Unreachable:
        nonlocal done
        try:
            client = connect_workload(api, cluster)
            try:
                return read(client, cluster)
            finally:
                client.close()
        except KubeconfigRefused as e:
            return Unreachable(f"the kubeconfig Secret is refused: {e.message}")
        except AttestationError as e:
            detail = f" ({e.detail})" if e.detail else ""
            return Unreachable(f"{e.message}{detail}")
        except CommandError as e:
            return Unreachable(e.message)
        finally:
            done += 1
            session.doing(f"reading workload clusters: {done} of {len(clusters)}")

    with (
        session.progress(f"reading workload clusters: 0 of {len(clusters)}"),
        ThreadPoolExecutor(_AT_ONCE) as pool,
    ):
        return list(pool.map(attempt, clusters))
