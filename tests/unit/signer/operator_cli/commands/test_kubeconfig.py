"""`kubeconfig` neither takes rights from the signer nor overwrites another Cluster's Secret."""

import io
from datetime import timedelta
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import load_pem_x509_certificate

from signer.kube.transport.endpoint import ANSWER_SECONDS
from signer.kube.transport.kubeconfig import ClientCertificate, Connection, parse_kubeconfig
from signer.operator_cli.checks.findings import FindingResult
from signer.operator_cli.checks.rbac import SIGNER_GROUP
from signer.operator_cli.checks.workload_checks import check_kubeconfig_expiry
from signer.operator_cli.commands import kubeconfig
from signer.operator_cli.errors import Rejected
from signer.operator_cli.session import Session
from tests.builders.operator_clusters import CLUSTER
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_objects import CAPI
from tests.fakes.management_api import Console
from tests.harness import pki

AUTHORITY = pki.Authority.make("test", pki.ec_key())
CLIENT = AUTHORITY.client("signer", SIGNER_GROUP)
CONNECTION = Connection(
    server="https://192.0.2.1:6443",
    ca=AUTHORITY.pair.certificate.decode(),
    server_name="api.example",
    certificate=ClientCertificate(certificate=CLIENT.certificate.decode(), key=CLIENT.key.decode()),
)


SECRETS = "/api/v1/namespaces/team-a/secrets"
SECRET = "c1-attestation-kubeconfig"


def management(owner: str | None = None) -> FakeCluster:
    """Return a management cluster; `owner` is the Cluster of a Secret that exists."""
    cluster = FakeCluster()
    if owner is not None:
        labels = {"cluster.x-k8s.io/cluster-name": owner}
        body = {"metadata": {"name": SECRET, "labels": labels}, "type": "cluster.x-k8s.io/secret"}
        cluster.put(SECRETS, body)
    return cluster


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


def test_client_outlives_the_wait_for_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deadline ended the wait before the hint about kube-controller-manager."""
    opened: list[float] = []

    def record(*_: object, seconds: float) -> None:
        opened.append(seconds)
        raise Rejected("opened")

    monkeypatch.setattr(kubeconfig, "open_client", record)
    monkeypatch.setattr(kubeconfig, "read_administrator", lambda *_: CONNECTION)
    session = Console(management(), {"cluster": CLUSTER.key}).session()
    monkeypatch.setattr(Session, "snapshot", lambda _: SimpleNamespace(clusters=[CLUSTER]))
    with pytest.raises(Rejected, match="opened"):
        kubeconfig.run(session)
    assert opened > [kubeconfig._SIGNING_SECONDS + ANSWER_SECONDS - 1]


@pytest.mark.parametrize("owner", [None, "c1"])
def test_secret_is_created_or_its_content_replaced(owner: str | None) -> None:
    cluster = management(owner)
    kubeconfig._write(Console(cluster).session(), CLUSTER, b"content")
    body = cluster.objects[f"{SECRETS}/{SECRET}"]
    assert body["data"] == {"value": "Y29udGVudA=="}
    assert body["metadata"]["labels"] == {"cluster.x-k8s.io/cluster-name": "c1"}
    if owner is None:
        [reference] = body["metadata"]["ownerReferences"]
        assert (reference["apiVersion"], reference["uid"]) == (CAPI, "u")


def test_administrators_secret_of_another_cluster_is_not_overwritten() -> None:
    """It is the one of a Cluster `c1-attestation`."""
    cluster = management("c1-attestation")
    with pytest.raises(Rejected, match="belongs to another Cluster"):
        kubeconfig._write(Console(cluster).session(), CLUSTER, b"content")
    assert not cluster.writes


@pytest.mark.parametrize(("days", "result"), [(31, FindingResult.OK), (29, FindingResult.WARNING)])
def test_expiry_of_the_kubeconfig_is_a_warning(days: int, result: FindingResult) -> None:
    end = load_pem_x509_certificate(CLIENT.certificate).not_valid_after_utc
    assert check_kubeconfig_expiry(CONNECTION, CLUSTER, end - timedelta(days=days)).result is result


def test_expired_kubeconfig_of_the_administrator_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """`doctor` named this command, and this command named `doctor`."""
    monkeypatch.setattr(kubeconfig, "read_administrator", lambda *_: CONNECTION)
    monkeypatch.setattr(Session, "snapshot", lambda _: SimpleNamespace(clusters=[CLUSTER]))
    end = load_pem_x509_certificate(CLIENT.certificate).not_valid_after_utc
    session = Console(management(), {"cluster": CLUSTER.key}, now=end).session()
    with pytest.raises(Rejected) as refused:
        kubeconfig.run(session)
    assert refused.value.message.startswith(
        "the certificate in the Secret team-a/c1-kubeconfig expired on "
    )
    assert "Cluster API renew the Secret" in refused.value.hint
