"""What an operator does in the demo: trusts a platform, approves an unknown TPM, and bans it."""

import os
import subprocess
import uuid

from tests.demo.environment import Stage, require
from tests.harness.fleet import WorkloadTenant
from tests.harness.node import Node, finished
from tests.harness.objects import Machine
from tests.harness.process import wait_until
from tests.harness.programs import OPERATOR
from tests.harness.signer import Signer, of_cluster

REQUESTS = "/apis/attestation.cluster.x-k8s.io/v1alpha1/namespaces/{}/endorsementkeyrequests"
NEWCOMER = "worker-3"
SERVER, OTHER_SERVER = "worker-4", "worker-5"
MAX_JOIN_SECONDS = 20


def trust_names_in_certificates(stage: Stage, tenant: WorkloadTenant, signer: Signer) -> None:
    """Let the hypervisors' certificates name the machines of a cluster. No key is registered.

    The server of which the certificate names another one must not join.
    """
    authorities = stage.directory / "hypervisors.pem"
    authorities.write_bytes(stage.vendor.root + stage.vendor.intermediate)
    trust = {
        "trust": "Certified",
        "certificateAuthorities": [str(authorities)],
        "certificateNames": {"domainUUID": {"schemes": ["openstack"]}},
    }
    with signer.with_policies({}, of_cluster(tenant, endorsementKey=trust)):
        stage.story.step("the policy of the cluster trusts the authority of the hypervisors")
        server = _boot_server(stage, tenant, SERVER)
        call = server.call()
        require(call.status == 0, f"the plugin of {SERVER} failed: {call.complaint}")
        stage.story.step(f"the TPM of {SERVER} has a certificate for {server.provider_id}: joined")
        call = _boot_server(stage, tenant, OTHER_SERVER, named=str(uuid.uuid4())).call()
        reason = "EndorsementCertificateOfOtherMachine"
        require(reason in call.complaint, f"expected {reason}, not {call.complaint}")
        stage.story.step(f"{OTHER_SERVER} has the TPM of another server. The plugin prints:")
        stage.story.quote(call.complaint)


def _boot_server(stage: Stage, tenant: WorkloadTenant, name: str, *, named: str = "") -> Node:
    """Start a server of OpenStack and create its Machine without a registration."""
    server = str(uuid.uuid4())
    node = stage.boot_machine(tenant, name, seed=f"instance-0000002a:{named or server}")
    node.provider_id = f"openstack:///{server}"
    stage.fleet.add_machine(tenant, Machine(name, provider_id=node.provider_id))
    return node


def approve_an_unknown_tpm(stage: Stage, tenant: WorkloadTenant) -> Node:
    """Start a node whose TPM is not registered, and approve the TPM while the plugin waits."""
    story = stage.story
    node = stage.boot_machine(tenant, NEWCOMER, seed="newcomer")
    stage.fleet.add_machine(tenant, Machine(NEWCOMER))
    plugin = node.start()
    story.step("its Machine has no registered key; the plugin waits")
    wait_until(lambda: _is_recorded(stage, node), what="the signer records the TPM")
    _kubectl_attestation(stage, "pending", "--cluster", f"{tenant.namespace}/{tenant.name}")
    [digest] = node.registration().values()
    _kubectl_attestation(stage, "approve", f"{tenant.namespace}/{NEWCOMER}", digest, "--yes")
    approved = story.elapsed
    call = finished(plugin)
    require(call.status == 0, f"the approved node did not join: {call.complaint}")
    waited = story.elapsed - approved
    require(waited < MAX_JOIN_SECONDS, f"the node joined {waited:.1f} s after the approval")
    story.step("the plugin prints the credential")
    return node


def ban(stage: Stage, node: Node) -> None:
    """Ban the TPM of a node; the signer must deny its next renewal."""
    tenant = node.tenant
    name = f"{tenant.namespace}/{tenant.name}/{node.name}"
    _kubectl_attestation(stage, "ban", name, "--reason", "stolen", "--yes")

    def renewal() -> str:
        return node.call("renew", "--kubeconfig", str(node.kubeconfig())).complaint

    wait_until(lambda: "EndorsementKeyBanned" in renewal(), what="the signer denies the renewal")
    stage.story.step("the node renews its certificate; the signer denies it: EndorsementKeyBanned")


def _is_recorded(stage: Stage, node: Node) -> bool:
    requests = stage.fleet.management.admin.list(REQUESTS.format(node.tenant.namespace))
    return any(request["metadata"]["name"] == node.name for request in requests)


def _kubectl_attestation(stage: Stage, *arguments: str) -> None:
    """Run a command, and print it with its output."""
    stage.story.step(f"kubectl attestation {' '.join(arguments)}")
    kubeconfig = str(stage.fleet.management.admin_config)
    done = subprocess.run(
        [OPERATOR, *arguments],
        env={"PATH": os.defpath, "KUBECONFIG": kubeconfig},
        capture_output=True,
        text=True,
        check=False,
    )
    require(done.returncode == 0, f"{' '.join(arguments)} failed: {done.stderr}")
    stage.story.quote(done.stdout)
