"""What our programs write, validated by the models of the official client.

An API server drops fields that it does not know, so a misspelt one goes unnoticed there.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes.client import (
    CoreV1Event,
    V1CertificateSigningRequest,
    V1Secret,
    V1SelfSubjectAccessReview,
    V1SubjectAccessReview,
)
from pydantic import BaseModel, ValidationError

from authenticator.kube.objects import encode_csr
from authenticator.model import CsrRequest
from common.names import CLIENT_SIGNER, CLIENT_USAGES
from signer.inventory.cluster_api.cluster import read_cluster
from signer.kinds.decode import Json
from signer.kube.csrs import CsrClient, read_csr
from signer.kube.secrets import SecretClient
from signer.operator_cli.checks import workload_checks
from signer.operator_cli.checks.management_checks import check_management
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient, management_api

NOW = datetime(2026, 11, 22, tzinfo=UTC)
CSR = encode_csr(
    CsrRequest(
        name="kubelet-tpm-1",
        signer_name=CLIENT_SIGNER,
        usages=tuple(CLIENT_USAGES),
        expiration_seconds=3600,
        request=b"request",
    )
)
STORED_CSR = json.dumps(
    {
        **CSR,
        "metadata": {
            "name": "kubelet-tpm-1",
            "uid": "u",
            "resourceVersion": "1",
            "creationTimestamp": "2026-11-22T00:00:00Z",
        },
    }
).encode()
CLUSTER = b'{"metadata": {"name": "c1", "namespace": "team-a", "uid": "u"}, "spec": {}}'


def created(write: Callable[[FakeCluster], object]) -> list[Any]:
    """Return the bodies of what is created."""
    cluster = FakeCluster()
    write(cluster)
    return [request.body for request in cluster.requests if request.method == "POST"]


def event(cluster: FakeCluster) -> None:
    csrs = CsrClient(FakeClient(cluster))
    csrs.record_event(read_csr(STORED_CSR), "PolicyMissing", "no policy", NOW)


def secret(cluster: FakeCluster) -> None:
    SecretClient(FakeClient(cluster)).create("ns", "name", {"current": b"key"})


def account_review(cluster: FakeCluster) -> list[object]:
    return list(check_management(management_api(cluster), "ns", "signer"))


def kubeconfig_review(cluster: FakeCluster) -> object:
    return workload_checks._check_permissions(FakeClient(cluster), read_cluster(CLUSTER))


def written() -> Iterator[tuple[type[BaseModel], Json]]:
    yield V1CertificateSigningRequest, CSR
    for model, write in (
        (CoreV1Event, event),
        (V1Secret, secret),
        (V1SubjectAccessReview, account_review),
        (V1SelfSubjectAccessReview, kubeconfig_review),
    ):
        yield model, created(write)[0]


@pytest.mark.parametrize(
    ("model", "body"), list(written()), ids=lambda value: getattr(value, "__name__", "")
)
def test_model_of_the_official_client_accepts_what_is_written(
    model: type[BaseModel], body: dict[str, Any]
) -> None:
    assert f"V1{body['kind']}" in {model.__name__, f"V1{model.__name__.removeprefix('CoreV1')}"}
    # As an API server gets it: JSON has no tuples.
    body = json.loads(json.dumps(body))
    model.model_validate(body)
    with pytest.raises(ValidationError):
        model.model_validate({**body, "unknownField": 1})
