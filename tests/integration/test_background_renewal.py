"""client-go calls without a time limit and under a lock: no call may wait for what is away.

With a certificate a call ends while its renewal hangs behind it; without one it ends by its budget,
and the next call goes on with the same exchange. Time limits here are generous: what tells is that
a call was over while the thing it could have waited for was not.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from common.names import ENDORSEMENT_KEY_ANNOTATION
from tests.harness import background_runs, clocks
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Call, Node, finished
from tests.harness.process import wait_until
from tests.harness.signer import Signer
from tests.integration import csrs
from tests.integration.scripted_node import Script
from tests.integration.timeouts import enough, within

LIFETIME = 3600
BUDGET = 2
GENEROUS = 30
"""Seconds: far more than the budget, far less than any time limit of TLS, TPM or client-go."""

BACK = 120
"""Seconds in which what was away is back for everybody, on a busy machine too."""

LONGEST_PAUSE, LONGEST_OUTAGE_PAUSE = 600, 30
"""Seconds between two attempts at most, after a refusal and in an outage."""


@contextmanager
def without_signer(signer: Signer, _node: Node) -> Iterator[None]:
    """Stop the signer."""
    signer.stop()
    try:
        yield
    finally:
        signer.start()


@contextmanager
def without_api_server(_signer: Signer, node: Node) -> Iterator[None]:
    """Stop the API server: connections are refused."""
    node.tenant.workload.stop_apiserver()
    try:
        yield
    finally:
        node.tenant.workload.start_apiserver()


@contextmanager
def silent_api_server(_signer: Signer, node: Node) -> Iterator[None]:
    """Keep the API server from running: connections are made, and nothing comes."""
    pid = node.tenant.workload._running["kube-apiserver"].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def stuck_tpm(_signer: Signer, node: Node) -> Iterator[None]:
    """Let the TPM take connections, and never answer."""
    assert node.tpm._process is not None
    os.kill(node.tpm._process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(node.tpm._process.pid, signal.SIGCONT)


Away = Callable[[Signer, Node], AbstractContextManager[None]]
SILENT: tuple[Away, ...] = (silent_api_server, stuck_tpm)
AWAY: tuple[Away, ...] = (without_signer, without_api_server, *SILENT)


def name(away: Away) -> str:
    """Name a test's case."""
    return away.__name__


def due(machines: Machines) -> tuple[Node, Call]:
    """Join a node, and set its clock forward until its certificate has to be renewed."""
    node = machines.registered(settings={"expirationSeconds": LIFETIME})
    first = node.call()
    renewal = clocks.until(first.credential["expirationTimestamp"])
    node.environment = clocks.shifted(renewal + 60)
    return node, first


def require_detached(pid: int, node: Node) -> None:
    """Check that a process has its own session and streams."""
    assert os.getsid(pid) == pid
    streams = [Path(f"/proc/{pid}/fd/{number}").readlink() for number in range(3)]
    assert streams == [Path("/dev/null"), Path("/dev/null"), node.state / "background.log"]


@pytest.mark.parametrize("away", AWAY, ids=name)
def test_due_certificate_is_served_while_its_renewal_hangs(
    machines: Machines, signer: Signer, away: Away
) -> None:
    """The call is over, its pipes are at their end; the renewal has a session of its own."""
    node, first = due(machines)
    with away(signer, node):
        call = node.call()
        [pid] = background_runs.running(node)
        assert call.certificate == first.certificate
        require_detached(pid, node)
    background_runs.wait_for_end(node, seconds=BACK)
    wait_until(lambda: node.call().certificate != first.certificate, what="the renewal", poll=1)
    background_runs.wait_for_end(node)


def test_twenty_due_calls_start_one_renewal(machines: Machines, signer: Signer) -> None:
    node, first = due(machines)
    with without_signer(signer, node):
        calls = [node.start() for _ in range(20)]
        with ThreadPoolExecutor(len(calls)) as pool:
            ended = list(pool.map(finished, calls))
        assert {call.certificate for call in ended} == {first.certificate}
        # Those that find another at the renewal end by themselves.
        wait_until(lambda: len(background_runs.running(node)) == 1, what="one is left")
        wait_until(lambda: len(csrs.offers(node)) == 2, what="the renewal's offer is filed")
    background_runs.wait_for_end(node, seconds=BACK)
    assert node.call().certificate != first.certificate
    assert len(csrs.offers(node)) == len(csrs.answers(node)) == 2


@pytest.mark.parametrize("away", SILENT, ids=name)
def test_call_without_certificate_ends_by_its_budget(
    machines: Machines, signer: Signer, away: Away
) -> None:
    node = machines.registered()
    with away(signer, node):
        began = time.monotonic()
        call = node.call(within(BUDGET))
        assert time.monotonic() - began < GENEROUS
        assert (call.status, call.output) == (1, "")
        assert call.complaint.count("\n") == 1
    wait_until(lambda: node.call().status == 0, what="the node has joined", poll=1)
    assert len(csrs.offers(node)) == len(csrs.answers(node)) == 1


def filed(node: Node) -> bool:
    """Tell whether the node has filed an offer."""
    return bool(csrs.offers(node))


def test_exchange_of_an_ended_call_is_taken_up_by_the_next(
    machines: Machines, signer: Signer
) -> None:
    node = machines.registered()
    with without_signer(signer, node):
        budget = enough(node.call, lambda end: "DeadlinePassed" in end.complaint and filed(node))
        assert "DeadlinePassed" in node.call(within(budget)).complaint
        [offer] = csrs.offers(node)
        [pending] = json.loads((node.state / "pending.json").read_bytes())["entries"]
        assert pending["offer_name"] == offer["metadata"]["name"]
    assert node.call().status == 0
    assert [csr["metadata"]["uid"] for csr in csrs.offers(node)] == [offer["metadata"]["uid"]]
    assert [csr["metadata"]["name"] for csr in csrs.answers(node)] == [pending["answer_name"]]
    assert not (node.state / "pending.json").exists()


def most_attempts(seconds: float, longest: float = LONGEST_PAUSE) -> int:
    """Return how many attempts fit into a time: pauses are 2, 4, 8 ... seconds, less up to half."""
    attempts, pause, began = 1, 2.0, 1.0
    while began <= seconds:
        attempts, pause = attempts + 1, min(2 * pause, longest)
        began += pause / 2
    return attempts


@pytest.mark.usefixtures("signer")
def test_refused_node_files_few_offers_however_often_it_is_called(machines: Machines) -> None:
    victim = machines.registered()
    node = machines.power_on(name=victim.name)
    began = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        calls = list(pool.map(lambda _: node.call(), range(50)))
    assert {call.status for call in calls} == {1}
    assert sum("CoolingDown" in call.complaint for call in calls) > 40
    assert len(csrs.offers(node)) <= most_attempts(time.monotonic() - began)


@pytest.mark.usefixtures("signer")
def test_refused_renewal_is_served_and_files_few_offers(machines: Machines, fleet: Fleet) -> None:
    node, first = due(machines)
    other = machines.power_on()
    assert node.registration() != other.registration()
    path = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{node.tenant.namespace}/machines/{node.name}"
    change = {
        "annotations": {ENDORSEMENT_KEY_ANNOTATION: next(iter(other.registration().values()))}
    }
    script = Script(other)
    fleet.management.admin.patch(path, {"metadata": change})
    # The signer hears of Machines in order: once it knows this one, it knows of the change
    machines.register(other)
    script.challenge()
    began = time.monotonic()
    calls = [node.call() for _ in range(20)]
    background_runs.wait_for_end(node)
    assert {call.certificate for call in calls} == {first.certificate}
    assert 2 <= len(csrs.offers(node)) <= 1 + most_attempts(time.monotonic() - began)
    told = node.call().complaint
    assert "the last renewal failed: " in told
    assert "EndorsementKeyMismatch" in told
    background_runs.wait_for_end(node)


def test_outage_is_not_called_into(machines: Machines, signer: Signer) -> None:
    """While the API server is away, most calls end without asking it."""
    node = machines.registered()
    began = time.monotonic()
    with without_api_server(signer, node):
        # Of a call whose time was up before it could ask, nothing follows
        budget = 2 * enough(node.call, lambda end: "ApiServerUnavailable" in end.complaint)
        calls = [node.call(within(budget)) for _ in range(10)]
        seconds = time.monotonic() - began
    assert {call.status for call in calls} == {1}
    attempts = [call.complaint for call in calls if "CoolingDown" not in call.complaint]
    assert len(attempts) < len(calls)
    met = [complaint for complaint in attempts if "DeadlinePassed" not in complaint]
    assert all("ApiServerUnavailable" in complaint for complaint in met)
    # One more had been made before
    assert 1 + len(met) <= most_attempts(seconds, LONGEST_OUTAGE_PAUSE)
