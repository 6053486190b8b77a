"""The connection to one workload cluster: opened by its kubeconfig Secret, and replaced with it.

A Secret is read again ten minutes after it was read, and sooner when its credential is refused,
when the API server cannot be watched, or when its Cluster changes. It is not watched: a watch would
need `list` on Secrets, and would read the Secrets of every tenant (docs/decisions/0030).
"""

import logging
import math
import random
from collections.abc import Callable
from http import HTTPStatus
from threading import Event
from typing import Any, Final

from common.errors import ApiServerUnavailable, AttestationError
from signer.clusters.connection_problem import CONNECTING, FORBIDDEN, ConnectionProblem
from signer.clusters.kubeconfig_secret import (
    admin_kubeconfig_name,
    find_kubeconfig_secret,
    read_connection,
)
from signer.clusters.workload_cluster import WorkloadCluster
from signer.errors import KubeconfigRefused
from signer.fairness.backoff import Backoff
from signer.fairness.compute_line import ComputeLine, waiting
from signer.fairness.memory_budget import Budgets
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.kinds.cluster import ClusterKey
from signer.kube.secrets import SecretClient
from signer.kube.transport.kubeconfig import Connection

_logger = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(initial=5.0, maximum=30.0)
"""Seconds between attempts to use a Secret that is missing or refused. A new Cluster gets its
Secret after some minutes, and its nodes then wait for this pause at most."""
_REFRESH_INTERVAL: Final = 600.0
"""Seconds until a Secret in use is read again: Cluster API renews it before it expires."""
_RETRY_INTERVAL: Final = 15.0
"""The same while the connection fails, and after a change of the Cluster."""


def _watch_problem(
    plural: str, error: ApiServerUnavailable, *, reachable: bool
) -> ConnectionProblem:
    if error.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return ConnectionProblem(
            reason=FORBIDDEN,
            message=f"the workload cluster forbids the signer to list and watch {plural}: apply"
            " workload-rbac.yaml there, and check the user of the kubeconfig Secret",
            reachable=True,
        )
    message = f"{error.message}: check the server in the kubeconfig Secret and the network"
    if reachable:
        message = f"{plural} cannot be listed and watched: {error.message}"
    return ConnectionProblem(reason=error.reason, message=message, reachable=reachable)


class ClusterConnector:
    """Keeps the connection to one workload cluster as its Secret says.

    It serves one Cluster object. Another Cluster of the same name has another UID and another
    connector.
    """

    def __init__(  # noqa: PLR0913 - the last six are options
        self,
        cluster: ClusterObject,
        secrets: SecretClient,
        *,
        user_agent: str,
        budgets: Budgets,
        line: ComputeLine,
        connecting: Callable[[ClusterKey], None],
        opened: Callable[[WorkloadCluster], None],
        monotonic: Callable[[], float],
    ) -> None:
        """Call `opened` with each workload cluster before its watches start.

        Their threads compute in the order of `line`. Call `connecting` before each read of the
        Secret, also while there is none.
        """
        self.cluster = cluster
        self.workload: WorkloadCluster | None = None
        """The open workload cluster, `None` while no connection is open."""
        self.jitter = 0.0
        """Seconds until the first read of the Secret: many Clusters may be opened together."""
        self._secrets = secrets
        self._user_agent = user_agent
        self._budgets = budgets
        self._line = line
        self._connecting = connecting
        self._opened = opened
        self._monotonic = monotonic
        self._stop = Event()
        self._failures = 0
        self._secret_name = admin_kubeconfig_name(cluster.key)
        self._problem: ConnectionProblem | None = None
        self._refreshed_at = -math.inf
        self._pause = 0.0
        """Seconds from `_refreshed_at` to the next refresh, if nothing happens before."""
        self._changed = False
        """Whether the Cluster has changed since the last refresh."""

    def update(self, cluster: ClusterObject) -> None:
        """Note the present state of the Cluster: a change may come with a new Secret."""
        if cluster != self.cluster:
            self.cluster = cluster
            self._changed = True

    @property
    def is_due(self) -> bool:
        """Return whether the Secret is to be read now."""
        pause, workload = self._pause, self.workload
        if workload is not None and (
            self._changed or workload.is_unauthorized or workload.failure is not None
        ):
            pause = min(pause, _RETRY_INTERVAL)
        return self._monotonic() - self._refreshed_at >= pause

    def stop(self) -> None:
        """Close the connection permanently, without waiting for a refresh."""
        self._stop.set()
        workload = self.workload
        if workload is not None:
            workload.stop()
            _logger.info("cluster closed", extra=self._fields())

    def refresh(self) -> None:
        """Open or replace the connection as the Secret says now.

        A Secret that cannot be used leaves an open connection as it is. Never raises.
        """
        with waiting():
            stopped = self._stop.wait(self.jitter)
        if stopped:
            return
        self.jitter, self._changed = 0.0, False
        try:
            self._connect()
        except KubeconfigRefused as error:
            self._report_problem(error.reason, f"the kubeconfig Secret is refused: {error.message}")
        except ApiServerUnavailable as error:
            reason, message = error.reason, error.message
            if error.status == HTTPStatus.FORBIDDEN:
                reason = FORBIDDEN
                message = "the signer may not read this Secret: grant it get in the namespace"
            self._report_problem(reason, message, error.detail)
        except AttestationError as error:
            self._report_problem(error.reason, error.message, error.detail)
        except Exception:
            _logger.exception("cluster not opened", extra=self._fields())
        else:
            self._failures, self._problem = 0, None
            self._schedule(_REFRESH_INTERVAL * (1.0 - random.random() / 5.0))  # noqa: S311 # spreads load
            return
        self._schedule(_BACKOFF.delay(self._failures, random.random()))  # noqa: S311 # spreads load
        self._failures += 1

    def _schedule(self, pause: float) -> None:
        self._pause, self._refreshed_at = pause, self._monotonic()

    def _connect(self) -> None:
        key = self.cluster.key
        self._connecting(key)
        self._secret_name, secret = find_kubeconfig_secret(self._secrets.read, key)
        connection = read_connection(secret, self.cluster)
        if self.workload is None or self.workload.connection != connection:
            self._open(connection)
        else:
            self.workload.forget_unauthorized()

    def _open(self, connection: Connection) -> None:
        key, uid = self.cluster.key, self.cluster.uid
        workload = WorkloadCluster(
            key,
            uid,
            connection,
            user_agent=self._user_agent,
            budgets=self._budgets,
            line=self._line,
        )
        if self.workload is not None:
            self.workload.stop()
        self.workload = workload
        try:
            self._opened(workload)
            workload.start()
        except Exception:
            # Some of its watches may run already.
            self.workload = None
            workload.stop()
            raise
        if self._stop.is_set():
            # `stop` was called before it could see this workload cluster.
            workload.stop()
        _logger.info("cluster opened", extra=self._fields(server=connection.server))

    def problem(self) -> ConnectionProblem | None:
        """Return why the Cluster is not served now, `None` if it is."""
        workload, problem = self.workload, self._problem
        if workload is None:
            return problem or CONNECTING
        if workload.failure is not None:
            plural, error = workload.failure
            return _watch_problem(plural, error, reachable=not workload.is_unreachable)
        # A Secret that became invalid does not close the open connection: the Cluster is served.
        return None if workload.has_synced else CONNECTING

    def _report_problem(self, reason: str, message: str, detail: str = "") -> None:
        secret = self._secret_name
        problem = ConnectionProblem(reason=reason, message=f"Secret {secret}: {message}")
        if self._problem != problem:
            self._problem = problem
            fields = self._fields(
                reason=reason, secret=secret, message=message, detail=detail, alarm=True
            )
            _logger.warning("cluster not reachable", extra=fields)

    def _fields(self, **more: object) -> dict[str, Any]:
        return {"fields": self.cluster.key.log_fields() | more}
