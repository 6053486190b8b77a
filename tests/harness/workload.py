"""A workload cluster as kubeadm creates it, without the bindings that approve requests."""

import secrets
import string
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.harness import kubeconfig, pki
from tests.harness.client import ApiError
from tests.harness.controlplane import ADMINISTRATORS, SERVICE_NETWORK, ApiServer
from tests.harness.process import wait_until

MANIFESTS = Path(__file__).parent / "manifests"
PACKAGING = Path(__file__).parents[2] / "packaging/signer"

SIGNER = "attestation.cluster.x-k8s.io:signer"
BOOTSTRAPPERS = "system:bootstrappers:kubeadm:default-node-token"
CERTIFICATES = "certificates.k8s.io"
TOKEN_ALPHABET = string.ascii_lowercase + string.digits
TOKEN_LIFETIME = timedelta(days=1)
CONTROLLERS = "kube-controller-manager"
NOT_READY_AFTER = timedelta(seconds=20)
"""How long a node may be silent: less than half of the default, so that tests notice more."""


class WorkloadCluster(ApiServer):
    """The cluster that nodes join, with the signer's least-privilege role in place."""

    packaging = PACKAGING
    """The directory with the manifests of this project."""

    def start(self) -> None:
        """Start the API server, and create the objects of kubeadm and of the packaging."""
        super().start()
        self.kubectl("apply", "--server-side", "-f", str(MANIFESTS / "kubeadm-bootstrap.yaml"))
        self.grant_signer()

    def grant_signer(self) -> None:
        """Give the signer its role, and wait until the API server applies it."""
        self.kubectl("apply", "--server-side", "-f", str(self.packaging / "workload-rbac.yaml"))
        signer = self.client(SIGNER, SIGNER)
        wait_until(
            lambda: signer.may("delete", "certificatesigningrequests", group=CERTIFICATES),
            what="the API server applies the signer's role",
        )

    @property
    def audit_log(self) -> Path:
        """The kubelets' requests and credentials, one JSON object per line."""
        return self.directory / "audit.log"

    def reach_kubelets(self, authority: pki.Authority) -> None:
        """Restart the API server, so that it trusts the kubelets of an authority."""
        self._write_pair("kubelets", authority.pair)
        self.restart_apiserver()

    def rotate_client_authority(self) -> None:
        """Replace the authority for clients, which makes all client certificates invalid.

        The new one has the same name, as with kubeadm. Servers keep their certificates.
        """
        self.client_authority = pki.Authority.make(self.name, pki.ec_key())
        self._write_client_authority()
        self.restart_apiserver()

    def restart_apiserver(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Restart the API server, and the controllers if they run.

        The controllers would take a long absence of the API server for silence of all nodes.
        """
        controlled = CONTROLLERS in self._running
        if controlled:
            self._end(CONTROLLERS)
        super().restart_apiserver(meanwhile)
        if controlled:
            self.start_controllers()

    def start_controllers(self) -> None:
        """Start kube-controller-manager, unless it runs; it signs with the cluster's authority."""
        if CONTROLLERS in self._running:
            return
        pki = self.directory / "pki"
        self._run(
            CONTROLLERS,
            f"--kubeconfig={self.admin_config}",
            f"--authentication-kubeconfig={self.admin_config}",
            f"--authorization-kubeconfig={self.admin_config}",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--root-ca-file={pki / 'ca.crt'}",
            f"--cluster-signing-cert-file={pki / 'ca.crt'}",
            f"--cluster-signing-key-file={pki / 'ca.key'}",
            f"--service-account-private-key-file={pki / 'sa.key'}",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            "--use-service-account-credentials",
            "--controllers=*,bootstrapsigner,tokencleaner",
            f"--node-monitor-grace-period={NOT_READY_AFTER.seconds}s",
            "--node-monitor-period=1s",
            "--leader-elect=false",
            "--secure-port=0",
        )
        self._wait(CONTROLLERS, self._has_default_account)

    def allow_automatic_approval(self) -> None:
        """Create kubeadm's bindings that approve requests without attestation."""
        self.kubectl("apply", "--server-side", "-f", str(MANIFESTS / "kubeadm-autoapprove.yaml"))

    def bootstrap_token(self) -> str:
        """Create a bootstrap token like Cluster API, and wait until it is accepted."""
        token_id, secret = _random(6), _random(16)
        expires = datetime.now(UTC) + TOKEN_LIFETIME
        self.admin.create(
            "/api/v1/namespaces/kube-system/secrets",
            {
                "metadata": {"name": f"bootstrap-token-{token_id}"},
                "type": "bootstrap.kubernetes.io/token",
                "stringData": {
                    "token-id": token_id,
                    "token-secret": secret,
                    "expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "usage-bootstrap-authentication": "true",
                    "usage-bootstrap-signing": "true",
                    "auth-extra-groups": BOOTSTRAPPERS,
                },
            },
        )
        token = f"{token_id}.{secret}"
        wait_until(
            lambda: self._is_accepted(token), what="the API server accepts the bootstrap token"
        )
        return token

    def bootstrap_kubeconfig(self, token: str) -> str:
        """Return the text of a bootstrap-kubelet.conf."""
        return kubeconfig.with_token(self.url, self.authority.pair.certificate, token)

    def signer_kubeconfig(self) -> str:
        """Return the kubeconfig that the packaging's role is for."""
        pair = self.client_authority.client(SIGNER, SIGNER)
        authority = self.authority.pair.certificate
        return kubeconfig.with_certificate(self.url, authority, pair, user=SIGNER)

    def _apiserver_flags(self) -> list[str]:
        pki_directory = self.directory / "pki"
        return [
            *super()._apiserver_flags(),
            f"--kubelet-certificate-authority={pki_directory / 'kubelets.crt'}",
            f"--kubelet-client-certificate={pki_directory / 'kubelet-client.crt'}",
            f"--kubelet-client-key={pki_directory / 'kubelet-client.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--audit-policy-file={MANIFESTS / 'audit-policy.yaml'}",
            f"--audit-log-path={self.audit_log}",
        ]

    def _write_certificates(self) -> None:
        super()._write_certificates()
        client = self.authority.client("kube-apiserver-kubelet-client", ADMINISTRATORS)
        self._write_pair("kubelet-client", client)
        self._write_pair("kubelets", self.authority.pair)

    def _is_accepted(self, token: str) -> bool:
        bootstrapper = self.with_token(token)
        try:
            return bootstrapper.may("create", "certificatesigningrequests", group=CERTIFICATES)
        except ApiError as error:
            if error.code != 401:
                raise
            return False

    def _has_default_account(self) -> bool:
        accounts = self.admin.list("/api/v1/namespaces/default/serviceaccounts")
        return any(account["metadata"]["name"] == "default" for account in accounts)


def _random(length: int) -> str:
    return "".join(secrets.choice(TOKEN_ALPHABET) for _ in range(length))
