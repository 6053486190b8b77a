"""A node as the plugin sees it: a TPM, a state folder, a bootstrap credential, and client-go.

The plugin is the installed program, started with pipes as client-go starts it.
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
    """What one call of the plugin ended with."""

    status: int
    output: str
    complaint: str

    @property
    def credential(self) -> dict[str, Any]:
        """The ExecCredential's status; fails when the call did."""
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
    """One machine that wants to be a node of a workload cluster."""

    tenant: WorkloadTenant
    name: str
    tpm: SoftwareTpm
    folder: Path
    _: KW_ONLY
    provider_id: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings of the exec extension beside the usual ones."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What the plugin's environment has beside the usual."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.provider_id = self.provider_id or f"test://{self.tenant.namespace}/{self.name}"

    @property
    def state(self) -> Path:
        """The plugin's state folder."""
        return self.folder / "state"

    @property
    def bootstrap_kubeconfig(self) -> Path:
        """Where the plugin finds the bootstrap credential."""
        return self.folder / "bootstrap-kubelet.conf"

    def give_token(self, token: str) -> None:
        """Put a bootstrap token where the plugin looks for it."""
        self.bootstrap_kubeconfig.write_text(
            self.tenant.workload.bootstrap_kubeconfig(token), encoding="utf-8"
        )

    def registration(self, key: EndorsementKey = EndorsementKey.RSA_2048) -> dict[str, str]:
        """Return the annotation with which an operator puts the TPM on record."""
        public = self.tpm.endorsement_public_key(key)
        der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return {ENDORSEMENT_KEY_ANNOTATION: f"sha256:{hashlib.sha256(der).hexdigest()}"}

    def extension(self) -> dict[str, object]:
        """Return the cluster's exec extension: the plugin's settings."""
        return {
            "nodeName": self.name,
            "providerID": self.provider_id,
            "stateDir": str(self.state),
            "bootstrapKubeconfig": str(self.bootstrap_kubeconfig),
            "tcti": self.tpm.tcti,
            **self.settings,
        }

    def kubeconfig(self) -> Path:
        """Write the kubeconfig that names the plugin, and return where it is."""
        path = self.folder / "kubelet.conf"
        cluster = self._cluster() | {
            "extensions": [
                {"name": "client.authentication.k8s.io/exec", "extension": self.extension()}
            ]
        }
        stanza = {
            "apiVersion": EXEC_API_VERSION,
            "command": str(PLUGIN),
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
        """Return KUBERNETES_EXEC_INFO as client-go makes it."""
        cluster = self._cluster() | {"config": self.extension()}
        document = {
            "kind": "ExecCredential",
            "apiVersion": EXEC_API_VERSION,
            "spec": {"cluster": cluster, "interactive": False},
        }
        return json.dumps(document, separators=(",", ":")) + "\n"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the plugin and do not wait for it."""
        return subprocess.Popen(
            [PLUGIN, *arguments],
            env=os.environ | {"KUBERNETES_EXEC_INFO": self.exec_info()} | dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, *arguments: str) -> Call:
        """Run the plugin to its end."""
        return finished(self.start(*arguments))

    def _cluster(self) -> dict[str, str]:
        workload = self.tenant.workload
        authority = base64.b64encode(workload.authority.pair.certificate).decode()
        return {"server": workload.url, "certificate-authority-data": authority}


def finished(process: subprocess.Popen[str]) -> Call:
    """Wait for a call that was started."""
    try:
        output, complaint = process.communicate(timeout=CALL_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return Call(process.returncode, output, complaint)
