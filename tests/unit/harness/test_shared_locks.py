"""The check that no thread waits for a Cluster while it holds what Clusters share."""

from collections.abc import Callable
from threading import Thread, current_thread

import pytest

from signer.controller.queue.workqueue import WorkQueue
from signer.fairness.compute_line import ComputeLine
from signer.fairness.task_pool import TaskPool
from signer.kube.transport.client import ApiClient
from signer.kube.transport.kubeconfig import Connection
from tests.fakes import shared_locks
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.harness import pki

SECONDS = 60.0


def read() -> None:
    """Make a request to a Cluster in memory."""
    FakeClient(FakeCluster()).find("/api/v1/namespaces/default/services/kubernetes")


def connect() -> None:
    """Connect to a server that is down."""
    ca = pki.Authority.make("test", pki.ec_key()).pair.certificate.decode()
    api = ApiClient("down", Connection(server="https://127.0.0.1:1", ca=ca), user_agent="test")
    with pytest.raises(Exception, match="cannot be reached"):
        api.find("/")


@pytest.mark.parametrize("wait", [read, connect])
def test_wait_with_a_lock_is_found(wait: Callable[[], None]) -> None:
    queue = WorkQueue(workers=1, max_workers_per_cluster=1, monotonic=float, jitter=float)
    with queue._lock:
        wait()
    holding = "['a lock of signer.controller.queue.workqueue']"
    found = shared_locks.found()
    assert found
    assert set(found) == {f"{current_thread().name} waits for a network and holds {holding}"}
    wait()
    assert shared_locks.found() == []


def test_wait_with_a_place_is_found_and_without_it_is_not() -> None:
    line = ComputeLine(1)
    line.start("unaware", shared_locks.require_nothing_shared).join(SECONDS)
    holding = "['a place in the line of threads that compute']"
    assert shared_locks.found() == [f"unaware waits for a network and holds {holding}"]
    for wait in (read, connect):
        line.start("aware", wait).join(SECONDS)
    assert shared_locks.found() == []


def test_wait_on_a_thread_of_a_pool_is_found_and_on_one_of_a_cluster_is_not() -> None:
    TaskPool(1).submit("team-a", read).result(SECONDS)
    holding = "['a thread of a pool']"
    assert shared_locks.found() == [f"task 0 waits for a network and holds {holding}"]
    thread = Thread(target=read)
    thread.start()
    thread.join(SECONDS)
    assert shared_locks.found() == []
