"""Reads workload clusters. Their kubeconfig Secrets and API servers are a tenant's.

So the kubeconfig is read by the signer's strict parser, which runs no command and opens no file,
and the answers by its client, which limits their size and time. A list has a limit, too, and all
requests of a command to one cluster have a deadline.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from threading import Lock
from typing import Any, Final, TypeVar

from common.errors import ApiServerUnavailable, AttestationError
from common.printed_command import printed_command
from signer.clusters.kubeconfig_secret import find_kubeconfig_secret, read_connection
from signer.errors import KubeconfigRefused
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.kinds.cluster import ClusterKey
from signer.kinds.decode import Source, decode, object_key
from signer.kinds.resources import SECRETS, Resource
from signer.kube.pages import list_objects
from signer.kube.secrets import Secret, read_secret
from signer.kube.transport.client import (
    MAX_WORKLOAD_PAGE,
    MAX_WORKLOAD_RESPONSE,
    ApiClient,
    Request,
)
from signer.kube.transport.kubeconfig import Connection
from signer.kube.unreadable import Unreadable
from signer.operator_cli.errors import CommandError, ServerUnavailable
from signer.operator_cli.management.api import FIELD_MANAGER, ManagementApi
from signer.operator_cli.session import Session

V = TypeVar("V")
Body = dict[str, Any]
_AT_ONCE: Final = 8
_NAMED: Final = 3
"""Clusters that a line of progress names."""
READ_SECONDS: Final = 30.0
"""After these seconds a command sends no more requests to one cluster. The last answer may take as
long again (`ANSWER_SECONDS`)."""

USUAL_SECONDS: Final = 5.0
NAMESPACE_SECONDS: Final = 120.0
"""How long the Clusters of one namespace may keep a command waiting. Of each, the time above the
usual one counts: a tenant may have hundreds, of which each takes half a minute."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Why a workload cluster could not be read, and the next command, if it is known."""

    reason: str
    next_step: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: run {self.next_step}" if self.next_step else self.reason


def read_named_secret(api: ManagementApi, namespace: str, name: str) -> Secret | None:
    """Read a Secret of the management cluster. Raises `CommandError` and `ApiServerUnavailable`."""
    response = api.find(SECRETS.object_path(name, namespace))
    return None if response is None else response.read(read_secret)


def connect_workload(
    api: ManagementApi, cluster: ClusterObject, *, seconds: float = READ_SECONDS
) -> ApiClient:
    """Return a client of the Cluster's workload cluster, connected as the signer is.

    Raises `AttestationError` when its kubeconfig `Secret` is refused, and `CommandError`.
    """
    _, secret = find_kubeconfig_secret(partial(read_named_secret, api), cluster.key)
    return open_client(cluster, read_connection(secret, cluster), seconds=seconds)


class WorkloadClient(ApiClient):
    """A client of a workload cluster, which sends no request after a deadline."""

    def __init__(self, name: str, connection: Connection, *, seconds: float) -> None:
        super().__init__(
            name,
            connection,
            user_agent=FIELD_MANAGER,
            max_response=MAX_WORKLOAD_RESPONSE,
            max_page=MAX_WORKLOAD_PAGE,
        )
        self._seconds = seconds
        self._until = time.monotonic() + seconds

    def _exchange(self, request: Request) -> tuple[int, bytes]:
        if time.monotonic() >= self._until:
            raise ApiServerUnavailable(f"it could not be read within {self._seconds:.0f} s")
        return super()._exchange(request)


def open_client(
    cluster: ClusterObject, connection: Connection, *, seconds: float = READ_SECONDS
) -> ApiClient:
    """Return a client of a workload cluster, for `seconds`."""
    return WorkloadClient(str(cluster.key), connection, seconds=seconds)


@contextmanager
def reading_workload(cluster: ClusterObject) -> Iterator[None]:
    """Turn an error of a workload cluster into a `ServerUnavailable` that names the Cluster."""
    try:
        yield
    except AttestationError as error:
        key = str(cluster.key)
        raise ServerUnavailable(
            f"the workload cluster {key} cannot be read: {_describe(error)}",
            hint="run the command `doctor` for the connection to each cluster",
        ) from error


def list_workload(
    client: ApiClient, resource: Resource, *, left_out: list[Unreadable] | None = None
) -> list[Body]:
    """Return all objects of a resource, each with a name. Raises `AttestationError`.

    An object that cannot be read is added to `left_out`; without that it raises, too.
    """
    path = resource.collection_path()
    return list(list_objects(client, path, read_body, left_out=left_out))


def read_body(source: Source) -> Body:
    """Read an object of a workload cluster, whose API server may send anything.

    Raises `ValueError` unless it is a JSON object with a name in its metadata.
    """
    object_key(source)
    return decode(source, Body)


def for_each_workload(
    session: Session,
    clusters: Sequence[ClusterObject],
    read: Callable[[ApiClient, ClusterObject], V],
    *,
    seconds: float = READ_SECONDS,
) -> list[tuple[ClusterObject, V | Unreachable]]:
    """Connect to each workload cluster and read it, eight at a time; keep their order."""
    api = session.api
    progress, patience = _Progress(session, len(clusters)), _Patience()

    def attempt(cluster: ClusterObject) -> tuple[ClusterObject, V | Unreachable]:
        with progress.reading(cluster):
            return cluster, patience.spend(cluster.key.namespace, partial(read_one, cluster))

    def read_one(cluster: ClusterObject) -> V | Unreachable:
        try:
            with closing(connect_workload(api, cluster, seconds=seconds)) as client:
                try:
                    return read(client, cluster)
                except AttestationError as error:
                    expired = _expired(client.endpoint.connection, cluster, session.now)
                    return expired or Unreachable(_describe(error))
        except KubeconfigRefused as error:
            return Unreachable(f"the kubeconfig Secret is refused: {error.message}")
        except AttestationError as error:
            return Unreachable(_describe(error))
        except CommandError as error:
            return Unreachable(error.message)

    pool = ThreadPoolExecutor(_AT_ONCE)
    with session.progress(progress.line()):
        try:
            return list(pool.map(attempt, clusters))
        finally:
            # An operator who interrupts the command does not wait for servers that do not answer.
            pool.shutdown(wait=False, cancel_futures=True)


def _expired(connection: Connection, cluster: ClusterObject, now: datetime) -> Unreachable | None:
    """Return that the certificate of a kubeconfig Secret has expired; `None` if it has not."""
    expiry = None if connection.certificate is None else connection.certificate.not_after()
    if expiry is None or now < expiry:
        return None
    return Unreachable(
        f"the certificate in the kubeconfig Secret expired on {expiry:%Y-%m-%d}",
        next_step=printed_command("kubectl attestation kubeconfig", str(cluster.key)),
    )


def _describe(error: AttestationError) -> str:
    """Return message and detail of an error; of an answer with a Status, only its message."""
    detail = error.detail
    if isinstance(error, ApiServerUnavailable) and error.status:
        detail, _, content = detail.partition(": ")
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict) and answer.get("message"):
            detail += f": {answer['message']}"
    return f"{error.message} ({detail})" if detail else error.message


class _Patience:
    """How long the Clusters of each namespace have kept a command waiting; for any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._seconds: dict[str, float] = defaultdict(float)

    def spend(self, namespace: str, read: Callable[[], V | Unreachable]) -> V | Unreachable:
        """Read a Cluster, unless others of its namespace have taken too long."""
        began = time.monotonic()
        with self._lock:
            is_over = self._seconds[namespace] >= NAMESPACE_SECONDS
        if is_over:
            return Unreachable(
                f"it was not read: other Clusters of namespace {namespace} answered too slowly"
                " (--cluster reads one)"
            )
        result = read()
        with self._lock:
            self._seconds[namespace] += max(0.0, time.monotonic() - began - USUAL_SECONDS)
        return result


class _Progress:
    """How many workload clusters were read, and which ones a command waits for."""

    def __init__(self, session: Session, total: int) -> None:
        self._session = session
        self._total = total
        self._done = 0
        self._awaited: dict[ClusterKey, None] = {}
        self._lock = Lock()

    @contextmanager
    def reading(self, cluster: ClusterObject) -> Iterator[None]:
        """Show that the Cluster is awaited, and then that it is done."""
        with self._lock:
            self._awaited[cluster.key] = None
            self._session.doing(self.line())
        try:
            yield
        finally:
            with self._lock:
                del self._awaited[cluster.key]
                self._done += 1
                self._session.doing(self.line())

    def line(self) -> str:
        """Return the line. The Clusters that began first come first."""
        line = f"reading workload clusters: {self._done} of {self._total}"
        names = [str(key) for key in self._awaited]
        if len(names) > _NAMED:
            names[_NAMED:] = [f"{len(names) - _NAMED} more"]
        return f"{line}, waiting for {', '.join(names)}" if names else line
