"""Machines as an operator and an infrastructure provider create them.

They have no status and no provider ID: Cluster API's manager copies both from the infrastructure
object.
"""

from tests.harness import kubeconfig, objects
from tests.harness.client import Object
from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.node import Node
from tests.harness.workload import MANIFESTS, SIGNER

GROUP = "test:cluster-api"


def connect(fleet: Fleet, tenant: WorkloadTenant) -> None:
    """Let Cluster API connect to a workload cluster, with the kubeconfig of the signer.

    Call it again when the cluster's authority for clients has changed.
    """
    workload = tenant.workload
    workload.kubectl("apply", "--server-side", "-f", str(MANIFESTS / "cluster-api.yaml"))
    pair = workload.client_authority.client(SIGNER, SIGNER, GROUP)
    authority = workload.authority.pair.certificate
    text = kubeconfig.with_certificate(workload.url, authority, pair, user=SIGNER)
    fleet.management.replace_secret(tenant.namespace, tenant.name, "kubeconfig", {"value": text})


def order(fleet: Fleet, node: Node, addresses: list[tuple[str, str]]) -> None:
    """Create a Machine for a node whose TPM is registered, and its infrastructure object."""
    tenant = node.tenant
    properties = objects.Machine(
        node.name, addresses=addresses, infrastructure_annotations=node.registration()
    )
    document = objects.machine(tenant.name, properties, provider_id=node.provider_id)
    del document["status"], document["spec"]["providerID"]
    infrastructure = objects.infrastructure_machine(
        tenant.name, properties, provider_id=node.provider_id
    )
    fleet.management.create_object(tenant.namespace, document)
    fleet.management.create_object(tenant.namespace, infrastructure)


def report_addresses(fleet: Fleet, node: Node, addresses: list[tuple[str, str]]) -> None:
    """Report the addresses of the machine, as its infrastructure provider does."""
    path = f"/apis/{objects.INFRASTRUCTURE}/v1/namespaces/{node.tenant.namespace}/testmachines"
    reported = objects.Machine(node.name, addresses=addresses).listed_addresses()
    status = {"status": {"addresses": reported}}
    fleet.management.admin.patch(f"{path}/{node.name}/status", status)


def machine(fleet: Fleet, node: Node) -> Object:
    """Return the Machine of a node."""
    path = f"/apis/{objects.CORE}/v1beta2/namespaces/{node.tenant.namespace}/machines/{node.name}"
    return fleet.management.admin.get(path)
