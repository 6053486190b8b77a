"""The clients of our programs over `FakeCluster`: all of their code runs but the connections."""

import copy
from collections.abc import Generator, Mapping
from dataclasses import replace
from functools import cache
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, cast

from signer.fairness.compute_line import waiting
from signer.kube.transport.client import MAX_MANAGEMENT_RESPONSE, ApiClient, Request, Response
from signer.kube.transport.endpoint import Endpoint
from signer.kube.transport.kubeconfig import Connection
from signer.operator_cli.management.api import ManagementApi
from tests.fakes.cluster import FakeCluster, encoded, received
from tests.fakes.cluster_objects import selects
from tests.fakes.shared_locks import require_nothing_shared
from tests.harness import pki


@cache
def _endpoint() -> Endpoint:
    ca = pki.Authority.make("fake", pki.ec_key()).pair.certificate.decode()
    connection = Connection(server="https://192.0.2.1:6443", ca=ca, token="t")
    return Endpoint(connection, user_agent="test")


class FakeClient(ApiClient):
    """`ApiClient` without a connection."""

    def __init__(self, cluster: FakeCluster, name: str = "fake") -> None:
        self.cluster = cluster
        self.name = name
        self.endpoint = copy.copy(_endpoint())
        self._max_response = self._max_page = MAX_MANAGEMENT_RESPONSE
        self.cpu = None

    def _exchange(self, request: Request) -> tuple[int, bytes]:
        with waiting():
            require_nothing_shared()
            status, answer = self.cluster.answer(replace(request, body=received(request.body)))
        return status, encoded(answer)

    def close(self) -> None:
        """Do nothing: a test may go on using the cluster."""

    def close_idle_connections(self) -> None:
        """Do nothing."""


class FakeStream:
    """`watch.ListerWatcher`. A watch ends with a bookmark when there are no more events."""

    name = "fake"

    def __init__(self, cluster: FakeCluster) -> None:
        self._client = FakeClient(cluster)

    def get_page(self, path: str, query: Mapping[str, str]) -> Response:
        return self._client.get_page(path, query)

    def watch(self, path: str, query: Mapping[str, str]) -> Generator[bytes, None, None]:
        cluster, version = self._client.cluster, query["resourceVersion"]
        yield b""
        if cluster.expired(version):
            gone = {"kind": "Status", "metadata": {}, "code": HTTPStatus.GONE, "reason": "Expired"}
            yield encoded({"type": "ERROR", "object": gone})
            return
        place = cluster.place(path)
        for number, kind, key, body in cluster.changes:
            if number > int(version) and place.contains(key) and selects(query, body):
                yield encoded({"type": kind, "object": body})
        if query.get("allowWatchBookmarks") == "true":
            bookmark = {"metadata": {"resourceVersion": str(cluster.version)}}
            yield encoded({"type": "BOOKMARK", "object": bookmark})

    def yield_cpu(self) -> None:
        """See `watch.ListerWatcher`."""

    def close(self) -> None:
        """See `watch.ListerWatcher`."""


class _KubernetesClient:
    """The part of the `kubernetes` package's client that `ManagementApi` uses."""

    def __init__(self, cluster: FakeCluster, server: str) -> None:
        self._cluster = cluster
        self.configuration = SimpleNamespace(host=server)

    def param_serialize(self, method: str, path: str, **parts: Any) -> tuple[Request]:  # noqa: ANN401 # as the client
        media = parts["header_params"].get("Content-Type", "")
        body, query = received(parts["body"]), dict(parts["query_params"])
        return (Request(method=method, path=path, query=query, body=body, media=media),)

    def call_api(self, request: Request, **_: object) -> SimpleNamespace:
        status, body = self._cluster.answer(request)
        return SimpleNamespace(status=status, read=lambda: encoded(body))


def management_api(cluster: FakeCluster, server: str = "https://management") -> ManagementApi:
    """Return the operator's connection to a management cluster."""
    return ManagementApi(cast("Any", _KubernetesClient(cluster, server)))
