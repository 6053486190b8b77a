"""Four nodes join, and the signer denies four attackers and a banned node: `make demo`.

All parts are real: etcd, kube-apiserver, kubectl, software TPMs (swtpm), the installed plugin, and
the installed signer with the permissions of its packaging. The demo exits with status 1 when a step
does not end as it must.
"""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.controlplane import pins, provide
from tests.demo import intruders, operations
from tests.demo.environment import Stage, require
from tests.demo.narration import Narrator
from tests.harness.fleet import Fleet
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.signer import Signer, serving_all
from tests.harness.tpm import TrustDomain

NODE = "worker-1"
INTRUDERS = {
    "another genuine TPM with a valid bootstrap token": intruders.stranger,
    "a stolen bootstrap token without a TPM": intruders.thief,
    "a node that requests the name of another node": intruders.impostor,
}
PROGRAMS = ("kube-apiserver", "etcd", "kubectl")


def join(stage: Stage, node: Node) -> None:
    """Run the plugin as client-go does, and print the phases of its run record."""
    story = stage.story
    call = node.call()
    require(call.status == 0, f"the plugin of {node.name} failed: {call.complaint}")
    status = json.loads(node.call("status", "--output", "json").output)
    for phase in status["lastRun"]["phases"]:
        story.quote(f"{phase['seconds'] * 1000:7.0f} ms  {phase['name']}")
    second = node.call()
    require(second.output == call.output, "a second call gave another credential")
    story.step("a second call is answered from the plugin's cache")


def use_kubectl(stage: Stage, node: Node) -> None:
    """Use the certificate with kubectl, whose kubeconfig names the plugin."""
    kubectl = node.tenant.workload.kubectl
    config = node.kubeconfig()
    user = kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", config=config)
    require(user == f"system:node:{node.name}", f"kubectl authenticates as {user}")
    stage.story.step(f"kubectl auth whoami: {user}")
    services = kubectl("get", "services", "-A", "--no-headers", config=config)
    stage.story.step("kubectl get services -A, which a node is allowed to do:")
    stage.story.quote(services)
    error = _error_of_kubectl(node, config, "get", "secrets", "-A")
    stage.story.step("kubectl get secrets -A, which a node is not allowed to do:")
    stage.story.quote(error)


def _error_of_kubectl(node: Node, config: Path, *arguments: str) -> str:
    """Return the error of a command that the API server must refuse."""
    done = subprocess.run(
        [node.tenant.workload.assets / "kubectl", f"--kubeconfig={config}", *arguments],
        env={"PATH": os.defpath, "HOME": str(node.directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    require(done.returncode != 0, f"kubectl {' '.join(arguments)} was allowed")
    return done.stderr


def show(stage: Stage, signer: Signer) -> None:
    """Show every step."""
    story, fleet = stage.story, stage.fleet
    nodes = []
    for tenant in fleet.tenants:
        story.chapter(f"Node {NODE} joins cluster {tenant.namespace}/{tenant.name}")
        with story.timed("creating a machine with a TPM"):
            node = stage.boot_machine(tenant, NODE, seed=f"{tenant.namespace}-{NODE}")
        fleet.add_machine(tenant, Machine(NODE, annotations=node.registration()))
        story.step("its endorsement key is registered on its Machine; client-go calls the plugin")
        join(stage, node)
        nodes.append(node)
    story.chapter("The claims: kubectl get attestednodes -A")
    story.quote(fleet.management.kubectl("get", "attestednodes", "-A"))
    for node in nodes:
        story.chapter(f"kubectl with the plugin in {node.tenant.namespace}/{node.tenant.name}")
        use_kubectl(stage, node)
    for title, intruder in INTRUDERS.items():
        story.chapter(f"Denied: {title}")
        intruder(stage, nodes[0])
    story.chapter("A machine without a registered key joins: its certificate names the machine")
    operations.trust_names_in_certificates(stage, fleet.second, signer)
    story.chapter("An unknown TPM asks, an operator approves it, its node joins")
    newcomer = operations.approve_an_unknown_tpm(stage, fleet.first)
    story.chapter("The operator bans this TPM")
    operations.ban(stage, newcomer)


def main() -> int:
    """Start everything, show every step, and remove everything."""
    story = Narrator()
    version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
    assets = provide.kubernetes(version, PROGRAMS)
    with tempfile.TemporaryDirectory(prefix="demo-") as name, ExitStack() as stack:
        directory = Path(name)
        story.chapter("Start")
        with story.timed(
            f"starting one management and two workload clusters, Kubernetes {version}"
        ):
            fleet = stack.enter_context(Fleet(directory / "fleet", assets))
        with story.timed("creating a TPM vendor, and starting the signer"):
            vendor = TrustDomain(directory / "vendor")
            signer = stack.enter_context(serving_all(fleet, directory / "signer"))
        show(Stage(story, fleet, directory, vendor, stack), signer)
        story.chapter("Result")
        story.step("four nodes have joined, four attackers have no certificate")
    return 0


if __name__ == "__main__":
    sys.exit(main())
