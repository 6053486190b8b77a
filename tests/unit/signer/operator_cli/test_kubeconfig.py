"""`kubeconfig` neither takes rights from the signer nor overwrites another Cluster's Secret."""

import io
import json
from argparse import Namespace
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import load_pem_x509_certificate

from signer.inventory.cluster import read_cluster
from signer.kube.client import Response
from signer.kube.kubeconfig import ClientCertificate, Connection, parse_kubeconfig
from signer.operator_cli.commands import kubeconfig
from signer.operator_cli.errors import Rejected
from signer.operator_cli.findings import Result
from signer.operator_cli.management import ManagementApi
from signer.operator_cli.session import Session
from signer.operator_cli.workload_checks import check_kubeconfig_expiry
from tests.harness import pki

CLUSTER = read_cluster(
    json.dumps({"metadata": {"name": "c1", "namespace": "team-a", "uid": "u"}, "spec": {}}).encode()
)
AUTHORITY = pki.Authority.make("test", pki.ec_key())
CLIENT = AUTHORITY.client("signer", kubeconfig.GROUP)
CONNECTION = Connection(
    server="https://192.0.2.1:6443",
    ca=AUTHORITY.pair.certificate.decode(),
    server_name="api.example",
    certificate=ClientCertificate(certificate=CLIENT.certificate.decode(), key=CLIENT.key.decode()),
)


@dataclass
class Api:
    """The Secrets of one namespace; `present` is the label of a Secret that exists."""

    present: str | None = None
    written: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def find(self, _: str) -> Response | None:
        if self.present is None:
            return None
        labels = {"cluster.x-k8s.io/cluster-name": self.present}
        metadata = {"namespace": "team-a", "name": "s", "resourceVersion": "1", "labels": labels}
        body = {"metadata": {**metadata, "uid": "u"}, "type": "cluster.x-k8s.io/secret"}
        return Response(status=200, content=json.dumps(body).encode())

    def create(self, path: str, body: dict[str, Any]) -> None:
        self.written.append((path, body))

    def merge_patch(self, path: str, body: dict[str, Any]) -> None:
        self.written.append((path, body))

    def session(self) -> Session:
        streams = io.StringIO(), io.StringIO(), io.StringIO()
        return Session(
            Namespace(), lambda: cast("ManagementApi", self), datetime.now(UTC), *streams
        )


def test_kubeconfig_can_be_read_by_the_signer() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    read = parse_kubeconfig(kubeconfig._kubeconfig(CONNECTION, CLIENT.certificate, key))
    assert (read.server, read.ca, read.server_name) == (
        CONNECTION.server,
        CONNECTION.ca,
        CONNECTION.server_name,
    )
    assert read.certificate is not None
    assert read.certificate.certificate == CLIENT.certificate.decode()


@pytest.mark.parametrize("missing", [[], ["patch certificatesigningrequests/approval"]])
def test_group_without_the_rights_of_the_role_is_rejected(
    monkeypatch: pytest.MonkeyPatch, missing: list[str]
) -> None:
    monkeypatch.setattr(kubeconfig, "open_client", lambda *_: io.BytesIO())
    monkeypatch.setattr(kubeconfig, "missing_permissions", lambda _: missing)
    key = ec.generate_private_key(ec.SECP256R1())
    content = kubeconfig._kubeconfig(CONNECTION, CLIENT.certificate, key)
    if not missing:
        kubeconfig._require_rights(CLUSTER, content)
        return
    with pytest.raises(Rejected, match="nothing was changed") as refused:
        kubeconfig._require_rights(CLUSTER, content)
    assert "workload-rbac.yaml" in refused.value.hint


@pytest.mark.parametrize(("present", "method"), [(None, "create"), ("c1", "patch")])
def test_secret_is_created_or_its_content_replaced(
    monkeypatch: pytest.MonkeyPatch, present: str | None, method: str
) -> None:
    clusters = "/apis/cluster.x-k8s.io/v1beta2/clusters"
    monkeypatch.setattr(kubeconfig, "collection_path", lambda *_: clusters)
    api = Api(present)
    kubeconfig._write(api.session(), CLUSTER, b"content")
    [(path, body)] = api.written
    assert body["data"] == {"value": "Y29udGVudA=="}
    if method == "patch":
        assert path.endswith("/team-a/secrets/c1-attestation-kubeconfig")
        return
    [owner] = body["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["uid"]) == ("cluster.x-k8s.io/v1beta2", "u")


def test_administrators_secret_of_another_cluster_is_not_overwritten() -> None:
    """It is the one of a Cluster `c1-attestation`."""
    api = Api("c1-attestation")
    with pytest.raises(Rejected, match="belongs to another Cluster"):
        kubeconfig._write(api.session(), CLUSTER, b"content")
    assert api.written == []


@pytest.mark.parametrize(("days", "result"), [(31, Result.OK), (29, Result.WARNING)])
def test_expiry_of_the_kubeconfig_is_a_warning(days: int, result: Result) -> None:
    end = load_pem_x509_certificate(CLIENT.certificate).not_valid_after_utc
    assert check_kubeconfig_expiry(CONNECTION, CLUSTER, end - timedelta(days=days)).result is result
