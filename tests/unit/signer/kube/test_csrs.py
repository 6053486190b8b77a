"""Reading CSRs, and which of them are kept."""

import base64
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from common.names import BUILTIN_SERVING_SIGNER, CHALLENGE_ANNOTATION, CLIENT_SIGNER, SERVING_SIGNER
from signer.kube.csrs import read_csr, read_pending_csr
from signer.model import Condition

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
