"""What a node's kubelet unit does: join, then calls from the kubeconfig that join wrote."""

import subprocess
from pathlib import Path

from authenticator.config import invocation
from authenticator.config import kubeconfig as kubeconfigs
from tests.harness.node import Call, Node, finished
from tests.harness.programs import PLUGIN

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def kubelet_conf(node: Node) -> Path:
    """Return where a join writes the kubeconfig."""
    return node.directory / "etc/kubelet.conf"


def join_arguments(node: Node) -> list[str]:
    """Return the command that the kubelet's unit runs."""
    kubelet_conf(node).parent.mkdir(exist_ok=True)
    flags = {
        "--kubeconfig": str(kubelet_conf(node)),
        "--bootstrap-kubeconfig": str(node.bootstrap_kubeconfig),
        "--node-name": node.name,
        "--provider-id": node.provider_id,
        "--state-dir": str(node.state),
        "--tcti": node.tpm.tcti,
    }
    return ["join", *(f"{name}={value}" for name, value in flags.items())]


def join(node: Node, *more: str) -> Call:
    """Run join to its end."""
    return run_plugin(*join_arguments(node), *more)


def call(node: Node, *arguments: str) -> Call:
    """Make the call of client-go with the kubeconfig, or run a command with its settings."""
    recorded = invocation.call_of_kubeconfig(kubeconfigs.load(kubelet_conf(node)))
    return run_plugin(*arguments, KUBERNETES_EXEC_INFO=recorded.exec_info.decode())


def whoami(node: Node) -> str:
    """Ask the API server with client-go and the kubeconfig that join wrote."""
    return node.tenant.workload.kubectl(
        "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", config=kubelet_conf(node)
    )


def run_plugin(*arguments: str, **environment: str) -> Call:
    """Run the installed program to its end."""
    return finished(
        subprocess.Popen(
            [PLUGIN, *arguments],
            env=ENVIRONMENT | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    )
