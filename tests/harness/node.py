"""A node: a TPM, a state directory, a bootstrap credential, and calls of the installed plugin.

The calls use pipes, as client-go does.
"""

import base64
import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from common.names import ENDORSEMENT_KEY_ANNOTATION
from tests.harness.fleet import WorkloadTenant
from tests.harness.programs import PLUGIN
from tests.harness.tpm import EndorsementKey, SoftwareTpm

EXEC_API_VERSION = "client.authentication.k8s.io/v1"
CALL_SECONDS = 90


@dataclass(frozen=True, slots=True)
class Call:
    """The result of one call of the plugin."""

    status: int
    output: str
    complaint: str

    @property
    def credential(self) -> dict[str, Any]:
        """The status of the ExecCredential. Raise AssertionError when the call failed."""
        if self.status:
            raise AssertionError(f"the plugin ended with {self.status}: {self.complaint}")
        document = json.loads(self.output)
        assert (document["kind"], document["apiVersion"]) == ("ExecCredential", EXEC_API_VERSION)
        status: dict[str, Any] = document["status"]
        return status

    @property
    def certificate(self) -> str:
        """The certificate, as PEM."""
        text: str = self.credential["clientCertificateData"]
        return text


@dataclass(slots=True)
class Node:
    """One machine that joins a workload cluster."""

    tenant: WorkloadTenant
    name: str
    tpm: SoftwareTpm
    directory: Path
    _: KW_ONLY
    provider_id: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    """More settings of the exec extension."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """More variables of the plugin's environment."""
    program: Path = PLUGIN
    """The plugin."""

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.provider_id = self.provider_id or f"test://{self.tenant.namespace}/{self.name}"

    @property
    def state(self) -> Path:
        """The plugin's state directory."""
        return self.directory / "state"

    @property
    def bootstrap_kubeconfig(self) -> Path:
        """File with the bootstrap credential."""
        return self.directory / "bootstrap-kubelet.conf"

    def give_token(self, token: str) -> None:
        """Write a bootstrap token into the bootstrap kubeconfig."""
        self.bootstrap_kubeconfig.write_text(
            self.tenant.workload.bootstrap_kubeconfig(token), encoding="utf-8"
        )

    def registration(self, key: EndorsementKey = EndorsementKey.RSA_2048) -> dict[str, str]:
        """Return the annotation with which an operator registers the TPM."""
        public = self.tpm.endorsement_public_key(key)
        der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return {ENDORSEMENT_KEY_ANNOTATION: f"sha256:{hashlib.sha256(der).hexdigest()}"}

    def extension(self) -> dict[str, object]:
        """Return the exec extension of the cluster, which has the plugin's settings."""
        return {
            "nodeName": self.name,
            "providerID": self.provider_id,
            "stateDir": str(self.state),
            "bootstrapKubeconfig": str(self.bootstrap_kubeconfig),
            "tcti": self.tpm.tcti,
            **self.settings,
        }

    def kubeconfig(self) -> Path:
        """Write the kubeconfig that names the plugin, and return its path."""
        path = self.directory / "kubelet.conf"
        cluster = self._cluster() | {
            "extensions": [
                {"name": "client.authentication.k8s.io/exec", "extension": self.extension()}
            ]
        }
        stanza = {
            "apiVersion": EXEC_API_VERSION,
            "command": str(self.program),
            "interactiveMode": "Never",
            "provideClusterInfo": True,
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "workload", "cluster": cluster}],
            "users": [{"name": "kubelet", "user": {"exec": stanza}}],
            "contexts": [{"name": "node", "context": {"cluster": "workload", "user": "kubelet"}}],
            "current-context": "node",
        }
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

    def exec_info(self) -> str:
        """Return KUBERNETES_EXEC_INFO in the encoding of client-go."""
        cluster = self._cluster() | {"config": self.extension()}
        document = {
            "kind": "ExecCredential",
            "apiVersion": EXEC_API_VERSION,
            "spec": {"cluster": cluster, "interactive": False},
        }
        return json.dumps(document, separators=(",", ":")) + "\n"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the plugin without waiting for it."""
        return subprocess.Popen(
            [self.program, *arguments],
            env=os.environ | {"KUBERNETES_EXEC_INFO": self.exec_info()} | dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, *arguments: str) -> Call:
        """Run the plugin and return its result."""
        return finished(self.start(*arguments))

    def _cluster(self) -> dict[str, str]:
        workload = self.tenant.workload
        authority = base64.b64encode(workload.authority.pair.certificate).decode()
        return {"server": workload.url, "certificate-authority-data": authority}


def finished(process: subprocess.Popen[str]) -> Call:
    """Wait for a call that was started, and return its result."""
    try:
        output, complaint = process.communicate(timeout=CALL_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return Call(process.returncode, output, complaint)
