"""Two nodes join two clusters; then three intruders are refused.

Everything is real: etcd, kube-apiserver, kubectl, TPMs (swtpm), the installed plugin and the
installed signer with the credentials that its packaging gives it. The demo fails, with exit
status 1, when something does not end as it tells.
"""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.controlplane import pins, provide
from tests.demo import intruders
from tests.demo.environment import Stage, require
from tests.demo.narration import Narrator
from tests.harness.fleet import Fleet
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.signer import serving_all
from tests.harness.tpm import TrustDomain

NODE = "worker-1"
INTRUDERS = {
    "a stranger's genuine TPM, with a bootstrap token": intruders.stranger,
    "a stolen bootstrap token, without a TPM": intruders.thief,
    "a node that asks for another's name": intruders.impostor,
}
PROGRAMS = ("kube-apiserver", "etcd", "kubectl")


def join(stage: Stage, node: Node) -> None:
    """Run the plugin as client-go does, and tell the exchange by the plugin's own record."""
    story = stage.story
    call = node.call()
    require(call.status == 0, f"the plugin of {node.name} failed: {call.complaint}")
    status = json.loads(node.call("status", "--output", "json").output)
    for phase in status["lastRun"]["phases"]:
        story.quote(f"{phase['seconds'] * 1000:7.0f} ms  {phase['name']}")
    again = node.call()
    require(again.output == call.output, "a second call gave another credential")
    story.tell("asked again, the plugin answers from its cache")


def look_with_kubectl(stage: Stage, node: Node) -> None:
    """Use the certificate as people would: kubectl, with the plugin named in its kubeconfig."""
    kubectl = node.tenant.workload.kubectl
    config = node.kubeconfig()
    who = kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", config=config)
    require(who == f"system:node:{node.name}", f"kubectl is {who}")
    stage.story.tell(f"kubectl auth whoami: {who}")
    may = kubectl("get", "services", "-A", "--no-headers", config=config)
    stage.story.tell("kubectl get services -A, which a node may:")
    stage.story.quote(may)
    refusal = _refused(node, config, "get", "secrets", "-A")
    stage.story.tell("kubectl get secrets -A, which a node may not:")
    stage.story.quote(refusal)


def _refused(node: Node, config: Path, *arguments: str) -> str:
    done = subprocess.run(
        [node.tenant.workload.assets / "kubectl", f"--kubeconfig={config}", *arguments],
        env={"PATH": os.defpath, "HOME": str(node.folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    require(done.returncode != 0, f"kubectl {' '.join(arguments)} was allowed")
    return done.stderr


def show(stage: Stage) -> None:
    """Tell the whole story."""
    story, fleet = stage.story, stage.fleet
    nodes = []
    for tenant in fleet.tenants:
        story.chapter(f"Node {NODE} joins cluster {tenant.namespace}/{tenant.name}")
        with story.timed("a machine is made, with a TPM of its own"):
            node = stage.boot_machine(tenant, NODE, seed=f"{tenant.namespace}-{NODE}")
        fleet.add_machine(tenant, Machine(NODE, annotations=node.registration()))
        story.tell("its endorsement key is put on record on its Machine; the plugin is called")
        join(stage, node)
        nodes.append(node)
    story.chapter("The claims: kubectl get attestednodes -A")
    story.quote(fleet.management.kubectl("get", "attestednodes", "-A"))
    for node in nodes:
        story.chapter(f"kubectl with the plugin in {node.tenant.namespace}/{node.tenant.name}")
        look_with_kubectl(stage, node)
    for title, intruder in INTRUDERS.items():
        story.chapter(f"Refused: {title}")
        intruder(stage, nodes[0])


def main() -> int:
    """Set the stage, show it, and leave nothing behind."""
    story = Narrator()
    version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
    assets = provide.kubernetes(version, PROGRAMS)
    with tempfile.TemporaryDirectory(prefix="demo-") as name, ExitStack() as stack:
        folder = Path(name)
        story.chapter("The stage")
        with story.timed(f"one management and two workload clusters, Kubernetes {version}"):
            fleet = stack.enter_context(Fleet(folder / "fleet", assets))
        with story.timed("a TPM vendor, and the signer on the management cluster"):
            vendor = TrustDomain(folder / "vendor")
            stack.enter_context(serving_all(fleet, folder / "signer"))
        show(Stage(story, fleet, folder, vendor, stack))
        story.chapter("That was it.")
        story.tell("two nodes have their certificates, three intruders have none")
    return 0


if __name__ == "__main__":
    sys.exit(main())
