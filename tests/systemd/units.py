"""The files that a node image installs with the program, and a stand-in for the kubelet."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.harness.node import Node
from tests.harness.systemd_machine import TPM, SystemdMachine
from tests.harness.workload import MANIFESTS

PACKAGING: Final = Path(__file__).parents[2] / "packaging/node"
UNITS: Final = "/usr/lib/systemd/system"
DROP_INS: Final = f"{UNITS}/kubelet.service.d"
KUBECONFIG: Final = "/etc/kubernetes/kubelet.conf"
PROGRAM: Final = "/usr/bin/kubelet-authenticator-tpm"
STATE: Final = "/var/lib/kubelet-authenticator"
SERVING: Final = "kubelet-authenticator-tpm-serving"
BOOTSTRAP_KUBECONFIG: Final = "/etc/kubernetes/bootstrap-kubelet.conf"
DEFAULTS: Final = "/etc/default/kubelet-authenticator-tpm"
TCTI: Final = f"swtpm:path={TPM}/sock"
ARGUMENTS: Final = "/run/kubelet-arguments"

KUBELET: Final = f"""#!/bin/sh
# Ends without a kubeconfig, as the kubelet does.
echo "$@" >{ARGUMENTS}
test -e {KUBECONFIG} || exit 1
exec sleep infinity
"""
KUBELET_SERVICE: Final = """
[Unit]
StartLimitIntervalSec=0
[Service]
ExecStart=/usr/bin/kubelet
Restart=always
RestartSec=1
"""
HANGS: Final = """#!/bin/sh
# Ignores the request to end.
trap '' TERM
exec sleep infinity
"""
QUICK: Final = MappingProxyType(
    {
        "5s 950s": "1s 1s",
        "TimeoutStartSec=970": "TimeoutStartSec=60",
        "OnActiveSec=1min": "OnActiveSec=1s",
        "OnUnitInactiveSec=10min": "OnUnitInactiveSec=2s",
        "RandomizedDelaySec=2min": "AccuracySec=100ms",
    }
)
"""Makes the times of the shipped units short."""


def install(machine: SystemdMachine, *, kubeadm: str = "10-kubeadm.conf") -> None:
    """Install the kubelet, kubeadm's drop-in under a name, and this project's drop-ins."""
    machine.write("/usr/bin/kubelet", KUBELET, mode=0o755)
    machine.write(f"{UNITS}/kubelet.service", KUBELET_SERVICE)
    machine.write(f"{DROP_INS}/{kubeadm}", (MANIFESTS / "10-kubeadm.conf").read_text())
    for path in sorted((PACKAGING / "systemd").iterdir()):
        directory = DROP_INS if path.suffix == ".conf" else UNITS
        machine.write(f"{directory}/{path.name}", path.read_text(encoding="utf-8"))
    machine.write(
        "/usr/lib/kubelet-authenticator-tpm/kubelet.env", (PACKAGING / "kubelet.env").read_text()
    )


def change(machine: SystemdMachine, name: str, changes: Mapping[str, str]) -> None:
    """Install a shipped unit or drop-in with other values."""
    text = (PACKAGING / "systemd" / name).read_text(encoding="utf-8")
    for old, new in changes.items():
        text = text.replace(old, new)
    directory = DROP_INS if name.endswith(".conf") else UNITS
    machine.write(f"{directory}/{name}", text)


def run_instead(machine: SystemdMachine, service: str, command: str) -> None:
    """Let a service run a shell command in place of its program.

    The service fails if the command does.
    """
    machine.write("/usr/local/bin/instead", f"#!/bin/sh\n({command}) || exit 3\n", mode=0o755)
    machine.write(
        f"/etc/systemd/system/{service}.service.d/instead.conf",
        "[Service]\nExecStart=\nExecStart=/usr/local/bin/instead\n",
    )


def join_flags(node: Node, tcti: str = TCTI) -> str:
    """Return the flags of `join` for a node whose TPM is in the machine."""
    return f"--provider-id={node.provider_id} --node-name={node.name} --tcti={tcti}"


def unreachable_kubeconfig() -> str:
    """Return a kubelet.conf whose API server does not answer."""
    return f"""
apiVersion: v1
kind: Config
clusters:
- name: kubernetes
  cluster:
    server: https://127.0.0.1:1
    certificate-authority: /etc/ssl/certs/ca-certificates.crt
    extensions:
    - name: client.authentication.k8s.io/exec
      extension:
        {{providerID: "test://team/node-1", nodeName: node-1, tcti: "{TCTI}", timeoutSeconds: 5}}
users:
- name: kubelet
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: {PROGRAM}
      interactiveMode: Never
      provideClusterInfo: true
contexts:
- name: kubelet@kubernetes
  context: {{cluster: kubernetes, user: kubelet}}
current-context: kubelet@kubernetes
"""
