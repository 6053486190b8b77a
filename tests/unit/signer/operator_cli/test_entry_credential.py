"""`entry-credential` prints only a credential that the API server limits."""

import base64
import io
import json
from argparse import Namespace
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from common.names import CLIENT_SIGNER
from signer.kube.client import ApiClient, Response
from signer.kube.kubeconfig import Connection, parse_kubeconfig
from signer.operator_cli.commands import entry_credential
from signer.operator_cli.errors import Rejected
from signer.operator_cli.management import ManagementApi
from signer.operator_cli.session import Session
from signer.verify.request import ENTRY_GROUP
from tests.harness import pki
from tests.unit.signer.operator_cli.test_kubeconfig import CLUSTER

FOREIGN = "kubernetes.io/kube-apiserver-client"
CA = pki.Authority.make("test", pki.ec_key()).pair.certificate.decode()


@dataclass
class Workload:
    """A workload cluster, for an administrator and for the entry credential."""

    secret: dict[str, str] | None = None
    allowed: frozenset[str] = frozenset({CLIENT_SIGNER})
    """Signers for which the entry credential may create requests."""

    def get(self, path: str, *, accepted: tuple[int, ...]) -> Response:
        assert path.endswith("/node-attestation-entry/secrets/entry-token")
        assert 404 in accepted
        if self.secret is None:
            return Response(status=404, content=b"{}")
        data = {k: base64.b64encode(v.encode()).decode() for k, v in self.secret.items()}
        metadata = {"name": "entry-token", "namespace": "n", "resourceVersion": "1"}
        return Response(
            status=200, content=json.dumps({"metadata": metadata, "data": data}).encode()
        )

    def create(self, path: str, body: dict[str, Any], *, accepted: tuple[int, ...]) -> Response:
        assert path.endswith("?dryRun=All"), "nothing may be created"
        status = 201 if body["spec"]["signerName"] in self.allowed else 403
        assert status in accepted
        return Response(status=status, content=b"{}")


@dataclass
class Policies:
    """The management cluster with one policy."""

    spec: dict[str, Any] = field(default_factory=dict)

    def list_objects(self, _: str) -> list[dict[str, Any]]:
        return [
            {
                "metadata": {"name": "p", "uid": "u", "generation": 1, "resourceVersion": "1"},
                "spec": self.spec,
            }
        ]


def client(workload: Workload) -> ApiClient:
    return cast("ApiClient", workload)


@pytest.mark.parametrize(
    ("secret", "message"),
    [(None, "has no entry credential"), ({}, "has no token yet"), ({"token": ""}, "no token yet")],
)
def test_missing_token_is_rejected(secret: dict[str, str] | None, message: str) -> None:
    with pytest.raises(Rejected, match=message):
        entry_credential._read_token(client(Workload(secret)))


def test_kubeconfig_has_the_token_and_the_server_of_the_cluster() -> None:
    token = entry_credential._read_token(client(Workload({"token": "abc"})))
    connection = Connection(server="https://192.0.2.1:6443", ca=CA, token="administrator")
    read = parse_kubeconfig(entry_credential._kubeconfig(connection, token))
    assert (read.server, read.ca, read.token) == (connection.server, CA, "abc")


def test_limited_credential_is_accepted() -> None:
    entry_credential._require_limits(client(Workload()))


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        ({CLIENT_SIGNER, FOREIGN}, "does not limit the entry credential"),
        ({FOREIGN}, "does not limit the entry credential"),
        (set(), "may not request"),
    ],
    ids=["any signer", "another signer", "no rights"],
)
def test_credential_with_other_rights_is_rejected(allowed: set[str], message: str) -> None:
    with pytest.raises(Rejected, match=message):
        entry_credential._require_limits(client(Workload(allowed=frozenset(allowed))))


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        ({"bootstrapGroups": ["system:bootstrappers", ENTRY_GROUP]}, ""),
        ({}, 'set bootstrapGroups to ["system:bootstrappers", "system:serviceaccounts:'),
        ({"unknown": True}, f"must have {ENTRY_GROUP} in bootstrapGroups"),
    ],
    ids=["accepted", "default", "invalid policy"],
)
def test_policy_that_does_not_accept_the_credential_is_a_warning(
    spec: dict[str, Any], warning: str
) -> None:
    """The signer would deny each of its requests (RequesterNotAllowed)."""
    streams = io.StringIO(), io.StringIO(), io.StringIO()
    api = cast("ManagementApi", Policies(spec))
    session = Session(Namespace(), lambda: api, datetime.now(UTC), *streams)
    entry_credential._warn_of_policy(session, CLUSTER)
    assert warning in streams[2].getvalue()
    assert bool(streams[2].getvalue()) is bool(warning)
