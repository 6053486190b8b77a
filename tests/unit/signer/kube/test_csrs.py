"""Reading CSRs, and which of them are kept."""

import base64
import json
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import msgspec
import pytest

from common.errors import ApiServerUnavailable
from common.names import BUILTIN_SERVING_SIGNER, CHALLENGE_ANNOTATION, CLIENT_SIGNER, SERVING_SIGNER
from signer.kinds.csr import Condition, Csr
from signer.kube.csrs import CsrClient, read_csr, read_pending_csr
from signer.kube.transport.client import MAX_WORKLOAD_RESPONSE, Request
from tests.fakes.cluster import Answer, FakeCluster
from tests.fakes.cluster_clients import FakeClient

CERTIFICATE = f"X509SHA256={'ab' * 32}"


def body(**status: Any) -> dict[str, Any]:  # noqa: ANN401 # fields of status
    return {
        "metadata": {
            "name": "kubelet-tpm-a",
            "uid": "u",
            "resourceVersion": "7",
            "creationTimestamp": "2026-11-21T09:30:00Z",
            "annotations": {CHALLENGE_ANNOTATION: "c", "of-no-interest": "x"},
        },
        "spec": {
            "signerName": CLIENT_SIGNER,
            "request": base64.b64encode(b"request").decode(),
            "username": "system:bootstrap:abcdef",
            "groups": ["system:bootstrappers", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": [CERTIFICATE], "other": ["x"]},
            "usages": ["digital signature", "client auth"],
            "expirationSeconds": 3600,
        },
        "status": status,
    }


def condition(kind: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": "R", "message": "m"}


def test_all_fields_of_a_csr_are_read() -> None:
    csr = read_csr(body(conditions=[condition("Approved")]))
    assert (csr.name, csr.uid, csr.resource_version) == ("kubelet-tpm-a", "u", "7")
    assert csr.created == datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
    assert (csr.signer_name, csr.request) == (CLIENT_SIGNER, b"request")
    assert csr.username == "system:bootstrap:abcdef"
    assert csr.groups == {"system:bootstrappers", "system:authenticated"}
    assert csr.credential_id == CERTIFICATE
    assert csr.usages == ("digital signature", "client auth")
    assert csr.expiration_seconds == 3600
    assert csr.annotations == {CHALLENGE_ANNOTATION: "c"}
    assert csr.annotations_size == len(msgspec.json.encode(body()["metadata"]["annotations"]))
    assert csr.conditions == {"Approved": Condition(type="Approved", reason="R", message="m")}
    assert csr.certificate is None


def test_optional_fields_may_be_absent() -> None:
    csr_body = body()
    for key in ("username", "groups", "extra", "expirationSeconds"):
        del csr_body["spec"][key]
    del csr_body["metadata"]["annotations"]
    csr = read_csr(csr_body)
    assert (csr.username, csr.groups, csr.expiration_seconds) == ("", frozenset(), None)
    assert csr.credential_id == ""
    assert csr.annotations == {}
    assert csr.annotations_size <= len("null")


@pytest.mark.parametrize(
    "extra",
    [
        {},
        None,
        {"authentication.kubernetes.io/credential-id": None},
        {"authentication.kubernetes.io/credential-id": []},
        {"authentication.kubernetes.io/credential-id": ["JTI=6f1a"]},
        {"authentication.kubernetes.io/credential-id": [CERTIFICATE, CERTIFICATE]},
        {"authentication.kubernetes.io/credential-id": [CERTIFICATE + "0"]},
        {"authentication.kubernetes.io/credential-id": [CERTIFICATE.upper()]},
    ],
    ids=["empty", "null", "no value", "no values", "a token", "two", "too long", "upper case"],
)
def test_credential_id_of_another_form_is_none(extra: object) -> None:
    csr_body = body()
    csr_body["spec"]["extra"] = extra
    assert read_csr(csr_body).credential_id == ""


@pytest.mark.parametrize("signer", [CLIENT_SIGNER, SERVING_SIGNER, BUILTIN_SERVING_SIGNER])
def test_pending_csrs_of_our_signers_are_kept(signer: str) -> None:
    csr_body = body(conditions=[condition("Approved")])
    csr_body["spec"]["signerName"] = signer
    assert read_pending_csr(csr_body) is not None


def test_csrs_of_other_signers_are_not_kept() -> None:
    csr_body = body()
    csr_body["spec"]["signerName"] = "kubernetes.io/kube-apiserver-client-kubelet"
    assert read_pending_csr(csr_body) is None


def test_csr_that_a_finalizer_keeps_is_not_kept() -> None:
    """Its requester chose the finalizer. Each round of maintenance would delete the CSR again."""
    csr_body = body()
    csr_body["metadata"]["deletionTimestamp"] = "2026-11-22T12:00:00Z"
    assert read_pending_csr(csr_body) is None


@pytest.mark.parametrize(
    "status",
    [
        {"certificate": base64.b64encode(b"c").decode()},
        {"conditions": [condition("Denied")]},
        {"conditions": [condition("Approved"), condition("Failed")]},
    ],
)
def test_settled_csrs_are_not_kept(status: dict[str, Any]) -> None:
    assert read_pending_csr(body(**status)) is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "request"), "not base64!"),
        (("spec", "request"), ""),
        (("metadata", "uid"), None),
        (("metadata", "resourceVersion"), "1" * 65),
        (("metadata", "creationTimestamp"), "yesterday"),
        (("spec", "expirationSeconds"), 599),
        (("spec", "expirationSeconds"), -1),
        (("spec", "expirationSeconds"), 2**31),
        (("spec", "expirationSeconds"), 10**18),
    ],
)
def test_csr_that_no_api_server_stores_is_unreadable(path: tuple[str, str], value: object) -> None:
    csr_body = body()
    csr_body[path[0]][path[1]] = value
    with pytest.raises(ValueError, match=r"."):
        read_csr(csr_body)


Call = Callable[[CsrClient, Csr], object]


@pytest.mark.parametrize(
    "call",
    [
        lambda csrs, csr: csrs.read(csr.name),
        lambda csrs, csr: csrs.annotate(csr, {"a": "1"}),
        lambda csrs, csr: csrs.approve(csr, "R", "m"),
        lambda csrs, csr: csrs.deny(csr, "R", "m"),
        lambda csrs, csr: csrs.fail(csr, "R", "m"),
        lambda csrs, csr: csrs.set_certificate(csr, b"c"),
    ],
    ids=["read", "annotate", "approve", "deny", "fail", "certify"],
)
def test_answer_of_a_hostile_api_server_is_not_kept_while_a_worker_waits(call: Call) -> None:
    """Each worker could keep 15 MiB, which no budget counted."""
    wide = {**condition("x"), "message": "m" * 32_000 + "\U0001f600"}
    conditions = [{**wide, "type": str(number)} for number in range(120)]
    answer = json.dumps(body(conditions=conditions)).encode()
    assert len(answer) < MAX_WORKLOAD_RESPONSE
    cluster = FakeCluster()
    cluster.intercept((HTTPStatus.OK, answer))
    with pytest.raises(ApiServerUnavailable, match="answer cannot be read") as caught:
        call(CsrClient(FakeClient(cluster)), read_csr(body()))
    assert caught.value.detail == "the CSR takes over 2 MiB of memory"


def test_largest_csr_that_etcd_stores_is_read() -> None:
    cluster = FakeCluster()
    request = base64.b64encode(b"x" * (1536 << 10)).decode()
    largest = body()
    largest["spec"]["request"] = request
    cluster.intercept((HTTPStatus.OK, largest))
    csr = CsrClient(FakeClient(cluster)).read("kubelet-tpm-a")
    assert csr is not None
    assert len(csr.request) == 1536 << 10


def test_csr_is_not_kept_while_a_worker_waits_for_an_access_review() -> None:
    """Reading the requester took 4 MiB for each worker until the review was answered."""
    held = []

    def send_csr(_: Request) -> Answer:
        return HTTPStatus.OK, json.dumps(body() | {"padding": "x" * (3 << 20)}).encode()

    def review(_: Request) -> Answer:
        held.append(tracemalloc.get_traced_memory()[0])
        return HTTPStatus.CREATED, {"status": {"allowed": True}}

    cluster = FakeCluster()
    cluster.intercept(send_csr, "GET")
    cluster.intercept(review, "POST")
    client, csr = CsrClient(FakeClient(cluster)), read_csr(body())
    tracemalloc.start()
    try:
        assert client.may_create(csr, "nodeclient")
    finally:
        tracemalloc.stop()
    assert max(held) < 1 << 20
