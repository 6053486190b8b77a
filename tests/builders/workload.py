"""A workload cluster that nothing connects to, and a configuration of the signer."""

from signer.clusters.workload_cluster import WorkloadCluster
from signer.fairness.compute_line import ComputeLine
from signer.fairness.memory_budget import Budgets
from signer.kube.transport.kubeconfig import Connection, parse_kubeconfig
from signer.settings.config import Config
from tests.builders.kube_objects import HOME
from tests.harness import kubeconfig, pki


def unconnected_workload() -> WorkloadCluster:
    """Return the workload cluster of `HOME`, whose address no host has."""
    ca = pki.Authority.make("test", pki.ec_key()).pair.certificate
    connection = parse_kubeconfig(kubeconfig.with_token("https://192.0.2.1:6443", ca, "t").encode())
    return WorkloadCluster(
        HOME, "uid", connection, user_agent="test", budgets=Budgets(), line=ComputeLine(1)
    )


def config_with(management: Connection) -> Config:
    """Return the smallest configuration."""
    return Config(
        management=management,
        own_namespace="n",
        watched_namespace="",
        infrastructure_groups=(),
        create_default_policy=False,
        metrics_address=None,
        metrics_secure=False,
    )
