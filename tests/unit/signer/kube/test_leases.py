"""Leases as an API server sends them; `integration/test_replicas.py` uses a real one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from common.errors import ApiServerUnavailable
from signer.kube.client import ApiClient
from signer.kube.kubeconfig import Connection
from signer.kube.leases import Lease, LeaseClient
from tests.fakes.api_server import api_server


def read(answer: dict[str, Any], directory: Path) -> tuple[Sequence[Lease], str]:
    """Return the Leases of an answer, and the path that was asked for."""
    with api_server(lambda request: request.give(answer), directory) as server:
        ca = server.authority.pair.certificate.decode()
        connection = Connection(server=server.url, ca=ca, token="t")
        api = ApiClient("fake", connection, user_agent="test")
        try:
            return LeaseClient(api, "own").all("the/label"), server.requests[0].path
        finally:
            api.close()


def test_leases_with_a_label_are_read(tmp_path: Path) -> None:
    metadata = {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"the/label": "x"}}
    spec = {"holderIdentity": "me", "renewTime": "2026-11-22T12:00:00.000000Z"}
    other = {"metadata": {"name": "b", "uid": "v", "resourceVersion": "8"}}
    items = [{"metadata": metadata, "spec": spec}, other]
    leases, path = read({"metadata": {}, "items": items}, tmp_path)
    assert path == (
        "/apis/coordination.k8s.io/v1/namespaces/own/leases?labelSelector=the%2Flabel&limit=500"
    )
    assert leases == (
        Lease(
            name="a",
            uid="u",
            resource_version="7",
            labels={"the/label": "x"},
            holder="me",
            renewed="2026-11-22T12:00:00.000000Z",
        ),
        Lease(name="b", uid="v", resource_version="8", labels={}, holder="", renewed=""),
    )


@pytest.mark.parametrize(
    "answer",
    [{"metadata": {"continue": "more"}, "items": []}, {"metadata": {}, "items": [{"spec": {}}]}],
    ids=["more than 500", "not a Lease"],
)
def test_incomplete_list_is_not_used(answer: dict[str, Any], tmp_path: Path) -> None:
    """A replica that is left out would look as if it had ended."""
    with pytest.raises(ApiServerUnavailable):
        read(answer, tmp_path)
