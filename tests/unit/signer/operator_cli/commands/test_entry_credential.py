"""`entry-credential` prints only a credential that the API server limits."""

import base64
from math import inf
from typing import Any

import pytest

from common.names import CLIENT_SIGNER
from signer.kinds.policy import POLICIES
from signer.kube.transport.client import Request
from signer.operator_cli.commands import entry_credential
from signer.operator_cli.errors import Rejected
from signer.verify.requests.request import ENTRY_GROUP
from tests.builders.operator_clusters import CLUSTER
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.management_api import Console

FOREIGN = "kubernetes.io/kube-apiserver-client"


def workload(
    secret: dict[str, str] | None = None, allowed: frozenset[str] = frozenset({CLIENT_SIGNER})
) -> FakeClient:
    """Return a workload cluster; the entry credential may create requests for `allowed` signers."""

    def admit(request: Request) -> int | None:
        assert isinstance(request.body, dict)
        return None if request.body["spec"]["signerName"] in allowed else 403

    cluster = FakeCluster()
    cluster.intercept(admit, "POST", times=inf)
    if secret is not None:
        data = {k: base64.b64encode(v.encode()).decode() for k, v in secret.items()}
        secrets = "/api/v1/namespaces/node-attestation-entry/secrets"
        cluster.put(secrets, {"metadata": {"name": "entry-token"}, "data": data})
    return FakeClient(cluster)


@pytest.mark.parametrize(
    ("secret", "message"),
    [(None, "has no entry credential"), ({}, "has no token yet"), ({"token": ""}, "no token yet")],
)
def test_missing_token_is_rejected(secret: dict[str, str] | None, message: str) -> None:
    with pytest.raises(Rejected, match=message):
        entry_credential._read_token(workload(secret))


def test_limited_credential_is_accepted() -> None:
    client = workload()
    entry_credential._require_limits(client)
    assert client.cluster.objects == {}


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
        entry_credential._require_limits(workload(allowed=frozenset(allowed)))


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
    management = FakeCluster()
    management.put(
        POLICIES.collection_path(), {"metadata": {"name": "p", "generation": 1}, "spec": spec}
    )
    console = Console(management)
    entry_credential._warn_of_policy(console.session(), CLUSTER)
    assert warning in console.complaint
    assert bool(console.complaint) is bool(warning)
