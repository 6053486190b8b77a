"""A workload cluster that nothing connects to."""

from signer.inventory.workload import WorkloadCluster
from signer.kube.budget import Budgets
from signer.kube.event_loop import EventLoop
from signer.kube.kubeconfig import parse_kubeconfig
from signer.task_pool import TaskPool
from tests.builders.kube_objects import HOME
from tests.harness import kubeconfig, pki


def unconnected_workload() -> WorkloadCluster:
    """Return the workload cluster of `HOME`, whose address no host has."""
    ca = pki.Authority.make("test", pki.ec_key()).pair.certificate
    connection = parse_kubeconfig(kubeconfig.with_token("https://192.0.2.1:6443", ca, "t").encode())
    loop = EventLoop("unused", TaskPool(1))
    return WorkloadCluster(HOME, "uid", connection, user_agent="test", budgets=Budgets(), loop=loop)
