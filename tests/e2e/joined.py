"""The node of the end-to-end tests as others see it, and what is done to it from outside."""

import json
import os
import subprocess
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from tests.harness.client import ApiError, Client
from tests.harness.fleet import Fleet
from tests.harness.kubelet import Kubelet
from tests.harness.node import Node
from tests.harness.pki import LIFETIME, Authority
from tests.harness.process import wait_until
from tests.harness.programs import PLUGIN
from tests.harness.signer import Signer
from tests.harness.workload import WorkloadCluster

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True)
class LeaseUpdate:
    """One answer of the API server to the kubelet's sign of life, from the audit log."""

    status: int
    credential: str
    """Which certificate it came with; empty when it was refused."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A node whose kubelet runs."""

    fleet: Fleet
    signer: Signer
    node: Node
    kubelet: Kubelet

    @property
    def workload(self) -> WorkloadCluster:
        """The cluster that it is a node of."""
        return self.node.tenant.workload

    @property
    def admin(self) -> Client:
        """The workload cluster's administrator."""
        return self.workload.admin

    def wait_until_ready(self) -> str:
        """Wait until the node is Ready, and return since when."""

        def ready() -> bool:
            return self._ready_condition().get("status") == "True"

        wait_until(ready, what=f"{self.node.name} is Ready", seconds=90)
        return self.ready_since()

    def ready_since(self) -> str:
        """Return when the node became Ready; another moment tells that it was not, in between."""
        condition = self._ready_condition()
        assert condition["status"] == "True", condition
        since: str = condition["lastTransitionTime"]
        return since

    def certificate(self) -> x509.Certificate:
        """Return the certificate in the plugin's cache."""
        content = (self.node.state / "credential.pem").read_bytes()
        return x509.load_pem_x509_certificate(content)

    def lease_updates(self, *, after: int = 0) -> list[LeaseUpdate]:
        """Return the kubelet's signs of life, without the first few."""
        updates = []
        whole, _, _ = self.workload.audit_log.read_text(encoding="utf-8").rpartition("\n")
        for line in whole.splitlines():
            event = json.loads(line)
            if event["verb"] != "update" or event["objectRef"].get("name") != self.node.name:
                continue
            [credential] = event["user"].get("extra", {}).get(CREDENTIAL_ID, [""])
            updates.append(LeaseUpdate(event["responseStatus"]["code"], credential))
        return updates[after:]

    def wait_until_used(self, certificate: x509.Certificate) -> None:
        """Wait until the kubelet has renewed its lease with a certificate."""
        wanted = LeaseUpdate(200, credential_id(certificate))
        before = len(self.lease_updates())
        wait_until(
            lambda: wanted in self.lease_updates(after=before),
            what=f"the kubelet uses {wanted.credential}",
            seconds=90,
        )

    def renew(self) -> x509.Certificate:
        """Renew by hand, as an operator or a timer does, and return the new certificate."""
        before = self.certificate()
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        subprocess.run(
            [PLUGIN, "renew", "--kubeconfig", self.node.kubeconfig()], check=True, env=environment
        )
        after = self.certificate()
        assert after != before
        return after

    def certify_for(self, lifetime: timedelta = LIFETIME) -> None:
        """Let certificates from now on end with an authority that lasts no longer than this."""
        authority = Authority.make(
            self.workload.name, self.workload.client_authority.key, lifetime=lifetime
        )
        tenant = self.node.tenant
        self.fleet.management.replace_authority(tenant.namespace, tenant.name, authority.pair)

    def ask_kubelet(self, path: str) -> str:
        """Ask the kubelet for something, through the API server."""
        return self.workload.kubectl("get", "--raw", f"{self._path()}/proxy/{path}")

    def object(self) -> dict[str, Any]:
        """Return the Node."""
        return self.admin.get(self._path())

    def _ready_condition(self) -> dict[str, Any]:
        try:
            conditions: list[dict[str, Any]] = self.object()["status"].get("conditions", [])
        except ApiError as error:
            if error.code != 404:
                raise
            return {}
        return next((each for each in conditions if each["type"] == "Ready"), {})

    def _path(self) -> str:
        return f"/api/v1/nodes/{self.node.name}"


def credential_id(certificate: x509.Certificate) -> str:
    """Name a certificate as the API server's audit log does."""
    return f"X509SHA256={sha256(certificate.public_bytes(Encoding.DER)).hexdigest()}"
