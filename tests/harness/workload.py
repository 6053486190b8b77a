"""A workload cluster as kubeadm leaves it, without the bindings that approve by themselves."""

import secrets
import string
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.harness import kubeconfig
from tests.harness.client import ApiError
from tests.harness.controlplane import SERVICE_NETWORK, ApiServer
from tests.harness.process import wait_until

MANIFESTS = Path(__file__).parent / "manifests"
PACKAGING = Path(__file__).parents[2] / "packaging/signer"

SIGNER = "attestation.cluster.x-k8s.io:signer"
BOOTSTRAPPERS = "system:bootstrappers:kubeadm:default-node-token"
CERTIFICATES = "certificates.k8s.io"
TOKEN_ALPHABET = string.ascii_lowercase + string.digits
TOKEN_LIFETIME = timedelta(days=1)


class WorkloadCluster(ApiServer):
    """The cluster that nodes join, with the signer's least-privilege role in place."""

    def start(self) -> None:
        """Start the API server and set up what kubeadm and the packaging set up."""
        super().start()
        self.kubectl("apply", "--server-side", "-f", str(MANIFESTS / "kubeadm-bootstrap.yaml"))
        self.kubectl("apply", "--server-side", "-f", str(PACKAGING / "workload-rbac.yaml"))
        signer = self.client(SIGNER, SIGNER)
        wait_until(
            lambda: signer.may("delete", "certificatesigningrequests", group=CERTIFICATES),
            what="the signer's role counts",
        )

    def start_controllers(self) -> None:
        """Start kube-controller-manager, unless it runs; it signs with the cluster's authority."""
        if "kube-controller-manager" in self._running:
            return
        pki = self.folder / "pki"
        self._run(
            "kube-controller-manager",
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
            "--leader-elect=false",
            "--secure-port=0",
        )
        self._wait("kube-controller-manager", self._has_default_account)

    def allow_automatic_approval(self) -> None:
        """Make the bindings that kubeadm makes and the signer must not tolerate."""
        self.kubectl("apply", "--server-side", "-f", str(MANIFESTS / "kubeadm-autoapprove.yaml"))

    def bootstrap_token(self) -> str:
        """Make a bootstrap token as Cluster API does, and wait until it counts."""
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
        wait_until(lambda: self._token_counts(token), what="the bootstrap token counts")
        return token

    def bootstrap_kubeconfig(self, token: str) -> str:
        """Return the text of a bootstrap-kubelet.conf."""
        return kubeconfig.with_token(self.url, self.authority.pair.certificate, token)

    def signer_kubeconfig(self) -> str:
        """Return the kubeconfig that the packaging's role is for."""
        pair = self.authority.client(SIGNER, SIGNER)
        authority = self.authority.pair.certificate
        return kubeconfig.with_certificate(self.url, authority, pair, user=SIGNER)

    def _token_counts(self, token: str) -> bool:
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
