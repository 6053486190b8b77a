"""Kubeconfig Secrets of Clusters."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness.fleet import Fleet


@contextmanager
def administrators_kubeconfig(fleet: Fleet) -> Iterator[None]:
    """Let the Cluster have the kubeconfig that Cluster API writes, with all rights."""
    tenant, admin = fleet.second, fleet.management.admin
    path = f"/api/v1/namespaces/{tenant.namespace}/secrets/{tenant.name}-kubeconfig"
    present = admin.get(path)["data"]
    given = {"value": base64.b64encode(tenant.workload.admin_config.read_bytes()).decode()}
    admin.patch(path, {"data": given})
    try:
        yield
    finally:
        admin.patch(path, {"data": present})
