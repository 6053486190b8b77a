"""Machines as an operator and an infrastructure provider make them, for Cluster API to complete.

Nothing in the status of a Machine, and no provider ID: Cluster API's own manager writes those, from
the infrastructure object.
"""

from tests.harness import kubeconfig, objects
from tests.harness.client import Object
from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.node import Node
from tests.harness.workload import MANIFESTS, SIGNER

GROUP = "test:cluster-api"


def connect(fleet: Fleet, tenant: WorkloadTenant) -> None:
    """Let Cluster API reach a workload cluster, with the kubeconfig that the signer reads too.

    To be called again when the cluster's authority for clients has changed.
    """
    workload = tenant.workload
    workload.kubectl("apply", "--server-side", "-f", str(MANIFESTS / "cluster-api.yaml"))
    pair = workload.client_authority.client(SIGNER, SIGNER, GROUP)
    authority = workload.authority.pair.certificate
    text = kubeconfig.with_certificate(workload.url, authority, pair, user=SIGNER)
    fleet.management.replace_secret(tenant.namespace, tenant.name, "kubeconfig", {"value": text})


def order(fleet: Fleet, node: Node, addresses: list[tuple[str, str]]) -> None:
    """Create a Machine for a node with its TPM on record, and let the provider provide it."""
    tenant = node.tenant
    wanted = objects.Machine(
        node.name, addresses=addresses, infrastructure_annotations=node.registration()
    )
    made = objects.machine(tenant.name, wanted, provider_id=node.provider_id)
    del made["status"], made["spec"]["providerID"]
    infrastructure = objects.infrastructure_machine(
        tenant.name, wanted, provider_id=node.provider_id
    )
    fleet.management.create_object(tenant.namespace, made)
    fleet.management.create_object(tenant.namespace, infrastructure)


def report_addresses(fleet: Fleet, node: Node, addresses: list[tuple[str, str]]) -> None:
    """Let the provider say which addresses the machine has now."""
    path = f"/apis/{objects.INFRASTRUCTURE}/v1/namespaces/{node.tenant.namespace}/testmachines"
    listed = objects.Machine(node.name, addresses=addresses).listed_addresses()
    status = {"status": {"addresses": listed}}
    fleet.management.admin.patch(f"{path}/{node.name}/status", status)


def machine(fleet: Fleet, node: Node) -> Object:
    """Return the Machine of a node as Cluster API has it."""
    path = f"/apis/{objects.CORE}/v1beta2/namespaces/{node.tenant.namespace}/machines/{node.name}"
    return fleet.management.admin.get(path)
