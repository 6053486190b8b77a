"""Reads and writes of the ConfigMap with the credential list."""

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from signer.inventory.credential_list import CredentialListClient
from signer.kube.client import ApiClient, Response
from signer.model import credential_id

PATH = "/api/v1/namespaces/kube-system/configmaps/node-attestation-credentials"
A, B = credential_id(b"a"), credential_id(b"b")


@dataclass(slots=True)
class Api:
    """An API server that answers each request with one status."""

    status: int = 200
    body: Mapping[str, Any] = field(default_factory=dict)
    patches: list[Mapping[str, Any]] = field(default_factory=list)

    def get(self, path: str, *, accepted: Container[int]) -> Response:
        return self._answer(path, accepted)

    def merge_patch(
        self, path: str, body: Mapping[str, Any], *, accepted: Container[int]
    ) -> Response:
        self.patches.append(body)
        return self._answer(path, accepted)

    def _answer(self, path: str, accepted: Container[int]) -> Response:
        assert path == PATH
        assert self.status in accepted
        return Response(status=self.status, content=json.dumps(self.body).encode())

    @property
    def client(self) -> CredentialListClient:
        return CredentialListClient(cast("ApiClient", self))


def test_entries_are_read() -> None:
    api = Api(body={"metadata": {"resourceVersion": "7"}, "data": {"node-1": A}})
    assert api.client.read() == {"node-1": A}


def test_new_config_map_has_no_entries() -> None:
    api = Api(body={"metadata": {"resourceVersion": "7"}})
    assert api.client.read() == {}


def test_cluster_without_the_config_map_has_no_list() -> None:
    api = Api(status=404)
    assert api.client.read() is None


@pytest.mark.parametrize("status", [200, 404], ids=["present", "absent"])
def test_ban_does_not_wait_until_no_other_node_renews(status: int) -> None:
    """Under the version that was read, each renewal of any node delayed it by a minute."""
    api = Api(status=status)
    data = {"node-1": "", "node-2": None, "node-3": f"{A} {B}"}
    api.client.publish(data)
    assert api.patches == [{"data": data}]
