"""Which workload clusters there are: opted-in Clusters, reached by their kubeconfig Secrets.

A Cluster that has not opted in is never connected to. One that cannot be reached, or whose Secret
is refused, costs the others nothing.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from common.errors import ApiServerUnavailable
from common.names import CLIENT_SIGNER
from signer.errors import KubeconfigRefused
from signer.inventory.cluster import ClusterObject, client_signers
from signer.inventory.lister import infrastructure_signer
from signer.inventory.management import ManagementCluster
from signer.inventory.workload import WorkloadCluster
from signer.kube.kubeconfig import Connection, parse_kubeconfig
from signer.kube.secrets import Secret
from signer.model import ClusterKey

_logger = logging.getLogger(__name__)

_SOON: Final = 5.0
"""Seconds until a Secret that is missing or refused is read again."""
_REREAD: Final = 15.0
"""Seconds until a Secret in use is read again: Cluster API renews it before it expires."""


class SecretReader(Protocol):
    """The part of the management cluster's API that this needs."""

    def read(self, namespace: str, name: str) -> Secret | None:
        """Return the Secret, `None` when there is none."""


@dataclass(slots=True)
class _Known:
    """What is known of one Cluster's connection."""

    workload: WorkloadCluster | None = None
    due: float = 0.0
    last_error: str = ""


class WorkloadClusters:
    """The open workload clusters; `tend` is for one thread, the rest for any."""

    def __init__(
        self,
        management: ManagementCluster,
        secrets: SecretReader,
        *,
        agent: str,
        opened: Callable[[WorkloadCluster], None],
        monotonic: Callable[[], float],
    ) -> None:
        """Call `opened` with each workload cluster before its watches start."""
        self._management = management
        self._secrets = secrets
        self._agent = agent
        self._opened = opened
        self._monotonic = monotonic
        self._known: dict[ClusterKey, _Known] = {}

    def get(self, key: ClusterKey) -> WorkloadCluster | None:
        """Return an open workload cluster."""
        known = self._known.get(key)
        return known.workload if known else None

    def sync(self) -> None:
        """Open and close workload clusters, as their Clusters and Secrets say now."""
        if not self._management.clusters.has_synced:
            return
        clusters = {c.key: c for c in self._management.clusters.all()}
        for key in [k for k in self._known if k not in clusters]:
            self._close(key)
        for cluster in clusters.values():
            try:
                self._sync_one(cluster)
            except ApiServerUnavailable as e:
                self._report_error(cluster.key, e.message, e.detail)
            except KubeconfigRefused as e:
                self._report_error(cluster.key, f"the kubeconfig Secret is refused: {e.message}")

    def stop(self) -> None:
        """Close every workload cluster."""
        for key in list(self._known):
            self._close(key)

    def _sync_one(self, cluster: ClusterObject) -> None:
        signers = client_signers(cluster, infrastructure_signer(cluster, self._management))
        if CLIENT_SIGNER not in signers:
            self._close(cluster.key)
            return
        known = self._known.setdefault(cluster.key, _Known())
        if known.workload is not None and known.workload.uid != cluster.uid:
            self._close(cluster.key)
            known = self._known.setdefault(cluster.key, _Known())
        if self._monotonic() < known.due:
            return
        known.due = self._monotonic() + _SOON
        connection = self._connection(cluster.key)
        known.due = self._monotonic() + _REREAD
        if known.workload is None or known.workload.connection != connection:
            self._open(cluster, known, connection)
        known.last_error = ""

    def _connection(self, key: ClusterKey) -> Connection:
        secret = self._secrets.read(key.namespace, f"{key.name}-kubeconfig")
        if secret is None:
            raise KubeconfigRefused("it is missing")
        return parse_kubeconfig(secret.data.get("value", b""))

    def _open(self, cluster: ClusterObject, known: _Known, connection: Connection) -> None:
        workload = WorkloadCluster(cluster.key, cluster.uid, connection, agent=self._agent)
        if known.workload is not None:
            known.workload.stop()
        known.workload = workload
        try:
            self._opened(workload)
            workload.start()
        except Exception:
            # Half of its threads would be there for ever.
            known.workload = None
            workload.stop()
            raise
        _logger.info("cluster opened", extra=_fields(cluster.key, server=connection.server))

    def _close(self, key: ClusterKey) -> None:
        known = self._known.pop(key, None)
        if known is not None and known.workload is not None:
            known.workload.stop()
            _logger.info("cluster closed", extra=_fields(key))

    def _report_error(self, key: ClusterKey, message: str, detail: str = "") -> None:
        known = self._known.setdefault(key, _Known())
        if known.last_error != message:
            known.last_error = message
            fields = _fields(key, message=message, detail=detail, alarm=True)
            _logger.warning("cluster not reachable", extra=fields)


def _fields(key: ClusterKey, **more: object) -> dict[str, dict[str, object]]:
    return {"fields": {"cluster": f"{key.namespace}/{key.name}", **more}}
