"""The node of the end-to-end tests: its state in the cluster, and actions of an operator."""

import base64
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from common.names import BUILTIN_SERVING_SIGNER
from tests.harness.client import ApiError, Client
from tests.harness.controlplane import KubectlFailed
from tests.harness.fleet import Fleet
from tests.harness.kubelet import Kubelet
from tests.harness.node import Node
from tests.harness.pki import LIFETIME, Authority
from tests.harness.process import wait_until
from tests.harness.programs import PLUGIN
from tests.harness.signer import Signer
from tests.harness.workload import WorkloadCluster
from tests.integration import csrs

WAIT_SECONDS = 180
"""Limit for events that need kubelet, plugin and signer, also on a busy machine."""
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True)
class LeaseCall:
    """One lease request of the kubelet, from the audit log of the API server."""

    status: int
    credential: str
    """ID of the client certificate; empty when the API server refused it."""


@dataclass(frozen=True, slots=True)
class JoinedNode:
    """A node with a running kubelet."""

    fleet: Fleet
    signer: Signer
    node: Node
    kubelet: Kubelet

    @property
    def workload(self) -> WorkloadCluster:
        """The workload cluster of the node."""
        return self.node.tenant.workload

    @property
    def admin(self) -> Client:
        """The workload cluster's administrator."""
        return self.workload.admin

    def wait_until_ready(self) -> str:
        """Wait until the node is Ready, and return the time of that transition."""
        wait_until(self._ready, what=f"{self.node.name} is Ready", seconds=WAIT_SECONDS)
        return self.ready_since()

    def ready_since(self) -> str:
        """Return when the node became Ready. A later time means that it was not Ready meanwhile."""
        condition = self._ready_condition()
        assert condition["status"] == "True", condition
        since: str = condition["lastTransitionTime"]
        return since

    def certificate(self) -> x509.Certificate:
        """Return the certificate in the plugin's cache."""
        content = (self.node.state / "credential.pem").read_bytes()
        return x509.load_pem_x509_certificate(content)

    def lease_calls(self, *, after: int = 0) -> list[LeaseCall]:
        """Return the kubelet's lease requests, without the first ones."""
        calls = []
        whole, _, _ = self.workload.audit_log.read_text(encoding="utf-8").rpartition("\n")
        for line in whole.splitlines():
            event = json.loads(line)
            if event["sourceIPs"] == [self.kubelet.address]:
                [credential] = event["user"].get("extra", {}).get(CREDENTIAL_ID, [""])
                calls.append(LeaseCall(event["responseStatus"]["code"], credential))
        return calls[after:]

    def wait_until_used(self, certificate: x509.Certificate) -> None:
        """Wait until the kubelet has renewed its lease with a certificate."""
        expected = LeaseCall(200, credential_id(certificate))
        before = len(self.lease_calls())
        wait_until(
            lambda: expected in self.lease_calls(after=before),
            what=f"the kubelet uses {expected.credential}",
            seconds=WAIT_SECONDS,
        )

    def renew(self) -> x509.Certificate:
        """Run `renew`, as an operator or a timer does, and return the new certificate.

        The signer reads a replaced authority up to ten seconds later. So this repeats `renew` until
        the certificate ends with the authority that is in the Secret now.
        """
        ends = self._authority().not_valid_after_utc
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}

        def is_of_this_authority() -> bool:
            before = self.certificate()
            subprocess.run(
                [PLUGIN, "renew", "--kubeconfig", self.node.kubeconfig()],
                check=True,
                env=environment,
            )
            assert self.certificate() != before
            return self.certificate().not_valid_after_utc == ends

        wait_until(is_of_this_authority, what="the signer uses the authority", poll=0.5)
        return self.certificate()

    def _authority(self) -> x509.Certificate:
        """Return the certificate of the authority in the Secret of the Cluster."""
        tenant = self.node.tenant
        path = f"/api/v1/namespaces/{tenant.namespace}/secrets/{tenant.name}-ca"
        data = self.fleet.management.admin.get(path)["data"]
        return x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"]))

    def hold_short_certificate(self, lifetime: timedelta) -> x509.Certificate:
        """Let the kubelet use a certificate that expires soon, and return it.

        A running kubelet keeps its credential until it runs the plugin again, so this restarts it.
        """
        self.certify_for(lifetime)
        short = self.renew()
        self.certify_for()
        self.restart_kubelet()
        self.wait_until_used(short)
        return short

    def restart_kubelet(self) -> None:
        """Restart the kubelet."""
        self.kubelet.stop()
        self.start_kubelet()

    def start_kubelet(self) -> None:
        """Start a stopped kubelet, and wait until it has reported the node as Ready.

        Until then the Node has the status that the previous kubelet reported. A new kubelet may
        first report that it is not ready. A test that reads the status too early would then see a
        break in Ready.
        """
        before = self._ready_condition()["lastHeartbeatTime"]
        self.kubelet.start()
        wait_until(
            lambda: self._ready() and self._ready_condition()["lastHeartbeatTime"] != before,
            what="the new kubelet reports that the node is Ready",
            seconds=WAIT_SECONDS,
        )

    def certify_for(self, lifetime: timedelta = LIFETIME) -> None:
        """Limit the lifetime of new certificates through that of their authority."""
        authority = Authority.make(
            self.workload.name, self.workload.client_authority.key, lifetime=lifetime
        )
        tenant = self.node.tenant
        self.fleet.management.replace_authority(tenant.namespace, tenant.name, authority.pair)

    def answers(self) -> bool:
        """Return whether the kubelet answers the API server."""
        try:
            return self.ask_kubelet("healthz") == "ok"
        except KubectlFailed:
            return False

    def wait_until_answers(self) -> None:
        """Wait until the kubelet has a serving certificate, and the API server trusts it."""
        what = "the API server gets through to the kubelet"
        wait_until(self.answers, what=what, seconds=WAIT_SECONDS)

    def ask_kubelet(self, path: str) -> str:
        """Send a request to the kubelet through the API server, and return the answer."""
        return self.workload.kubectl("get", "--raw", f"{self._path()}/proxy/{path}")

    def metric(self, name: str) -> float:
        """Return the sum of one of the kubelet's metrics over all labels."""
        lines = self.ask_kubelet("metrics").splitlines()
        samples = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in samples)

    def attested_requests(self) -> dict[str, str]:
        """Return the requester of each attested CSR of this node, by name of the CSR."""
        return {csr["metadata"]["name"]: csr["spec"]["username"] for csr in csrs.of_node(self.node)}

    def filed_beyond(self, known: Mapping[str, str]) -> dict[str, str]:
        """Return the attested CSRs that are not in `known`; the cluster deletes old ones."""
        filed = self.attested_requests()
        return {name: user for name, user in filed.items() if name not in known}

    def serving_requests(self) -> set[str]:
        """Return the names of the kubelet's CSRs for serving certificates."""
        return {
            csr["metadata"]["name"]
            for csr in self.admin.list(csrs.CSRS)
            if csr["spec"]["signerName"] == BUILTIN_SERVING_SIGNER
            and csr["spec"]["username"] == f"system:node:{self.node.name}"
        }

    def object(self) -> dict[str, Any]:
        """Return the Node."""
        return self.admin.get(self._path())

    def _ready(self) -> bool:
        return self._ready_condition().get("status") == "True"

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
    """Return the ID of a certificate in the API server's audit log."""
    return f"X509SHA256={sha256(certificate.public_bytes(Encoding.DER)).hexdigest()}"
