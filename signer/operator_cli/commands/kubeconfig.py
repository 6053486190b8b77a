"""`kubeconfig`: makes the Secret that the signer prefers to the administrator's kubeconfig.

The workload cluster signs a client certificate of the group that workload-rbac.yaml gives the
signer's rights to. The certificate and its key are stored in the management cluster only.
"""

import base64
import secrets
import time
from contextlib import closing
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from signer.clusters.kubeconfig_secret import admin_kubeconfig_name, signer_kubeconfig_name
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.inventory.cluster_api.cluster_secret import CLUSTER_SECRET_TYPE
from signer.kinds.cluster import CLUSTER_NAME_LABEL
from signer.kinds.decode import read_as
from signer.kinds.resources import CLUSTER, CSRS, SECRETS
from signer.kube.discovery import find_resource
from signer.kube.transport.client import ApiClient
from signer.kube.transport.kubeconfig import Connection, parse_kubeconfig
from signer.operator_cli.checks.rbac import SIGNER_GROUP
from signer.operator_cli.checks.workload_checks import missing_permissions
from signer.operator_cli.errors import EXIT_OK, Rejected, ServerUnavailable
from signer.operator_cli.session import Session
from signer.operator_cli.workloads.kubeconfigs import (
    build_kubeconfig,
    build_request,
    encode_base64,
    read_administrator,
)
from signer.operator_cli.workloads.workload_reader import (
    READ_SECONDS,
    open_client,
    read_named_secret,
    reading_workload,
)

_USER: Final = "node-attestation-signer"
_LIFETIME: Final = timedelta(days=365)
"""kube-controller-manager may sign a shorter one (--cluster-signing-duration)."""
_SIGNING_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.5


def run(session: Session) -> int:
    """Write the Secret, or replace its content; nothing is written if rights are missing."""
    [cluster] = session.snapshot().clusters
    with (
        session.progress("requesting a client certificate from the workload cluster"),
        reading_workload(cluster),
    ):
        connection = read_administrator(session.api, cluster)
        _require_valid(connection, cluster, session.now)
        # The deadline of the client is for more than the wait for the certificate.
        seconds = READ_SECONDS + _SIGNING_SECONDS
        with closing(open_client(cluster, connection, seconds=seconds)) as client:
            private_key = ec.generate_private_key(ec.SECP256R1())
            certificate = _request_certificate(client, private_key)
    content = _kubeconfig(connection, certificate, private_key)
    with reading_workload(cluster):
        _require_rights(cluster, content)
    _write(session, cluster, content)
    until = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    name = f"{cluster.key.namespace}/{signer_kubeconfig_name(cluster.key)}"
    session.stdout.write(f"Secret {name} is written; its certificate is valid until {until:%F}\n")
    return EXIT_OK


def _require_valid(connection: Connection, cluster: ClusterObject, now: datetime) -> None:
    """Raise `Rejected` if the certificate of the administrator has expired: no other is issued."""
    expiry = None if connection.certificate is None else connection.certificate.not_after()
    if expiry is not None and expiry <= now:
        secret = f"{cluster.key.namespace}/{admin_kubeconfig_name(cluster.key)}"
        raise Rejected(
            f"the certificate in the Secret {secret} expired on {expiry:%F}",
            hint="let Cluster API renew the Secret (docs/runbooks/kubeconfig-expires.md)",
        )


def _request_certificate(client: ApiClient, key: ec.EllipticCurvePrivateKey) -> bytes:
    """Let kube-controller-manager sign a certificate for the signer's group; return it as PEM."""
    subject = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, SIGNER_GROUP),
        x509.NameAttribute(NameOID.COMMON_NAME, _USER),
    ]
    name = f"{_USER}-{secrets.token_hex(8)}"
    spec = {
        "signerName": "kubernetes.io/kube-apiserver-client",
        "request": build_request(key, subject),
        "usages": ["client auth"],
        "expirationSeconds": int(_LIFETIME.total_seconds()),
    }
    client.create(CSRS.collection_path(), CSRS.manifest(metadata={"name": name}, spec=spec))
    condition = {
        "type": "Approved",
        "status": "True",
        "reason": "KubeconfigOfSigner",
        "message": "an operator makes the kubeconfig of the attestation's signer",
    }
    approval = CSRS.object_path(name, subresource="approval")
    client.merge_patch(approval, {"status": {"conditions": [condition]}})
    deadline = time.monotonic() + _SIGNING_SECONDS
    while time.monotonic() < deadline:
        status = client.get(CSRS.object_path(name)).read(read_as(dict)).get("status") or {}
        if status.get("certificate"):
            return base64.b64decode(status["certificate"])
        time.sleep(_POLL_SECONDS)
    raise ServerUnavailable(
        f"the workload cluster did not sign the CSR {name} within {_SIGNING_SECONDS:.0f} s",
        hint="check its kube-controller-manager, which signs such certificates",
    )


def _kubeconfig(
    connection: Connection, certificate: bytes, key: ec.EllipticCurvePrivateKey
) -> bytes:
    """Return the kubeconfig of the signer for the server of `connection`."""
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    user = {
        "client-certificate-data": encode_base64(certificate.decode()),
        "client-key-data": encode_base64(key_pem.decode()),
    }
    return build_kubeconfig(connection, _USER, user)


def _require_rights(cluster: ClusterObject, content: bytes) -> None:
    """Raise `Rejected` unless the new certificate has the rights that the signer needs."""
    with closing(open_client(cluster, parse_kubeconfig(content))) as client:
        missing = missing_permissions(client)
    if missing:
        raise Rejected(
            f"nothing was changed: the group {SIGNER_GROUP} may not {', '.join(missing)}",
            hint="apply packaging/signer/workload-rbac.yaml in the workload cluster, and try again",
        )


def _write(session: Session, cluster: ClusterObject, content: bytes) -> None:
    api, key, name = session.api, cluster.key, signer_kubeconfig_name(cluster.key)
    data = {"value": base64.b64encode(content).decode()}
    present = read_named_secret(api, key.namespace, name)
    if present is not None:
        if present.labels.get(CLUSTER_NAME_LABEL) != key.name:
            raise Rejected(
                f"the Secret {key.namespace}/{name} belongs to another Cluster",
                hint="the signer has to use the administrator's Secret of this Cluster",
            )
        api.merge_patch(SECRETS.object_path(name, key.namespace), {"data": data})
        return
    metadata = {
        "name": name,
        "labels": {CLUSTER_NAME_LABEL: key.name},
        "ownerReferences": [_owner(session, cluster)],
    }
    body = SECRETS.manifest(metadata=metadata, type=CLUSTER_SECRET_TYPE, data=data)
    api.create(SECRETS.collection_path(key.namespace), body)


def _owner(session: Session, cluster: ClusterObject) -> dict[str, str]:
    """Return the reference by which the Secret is moved and deleted with its Cluster."""
    resource = find_resource(session.api, CLUSTER)
    if resource is None:
        raise Rejected("the API server serves no Clusters")
    return resource.manifest(name=cluster.key.name, uid=cluster.uid)
