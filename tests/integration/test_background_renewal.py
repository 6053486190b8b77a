"""client-go calls the plugin without a time limit, under a lock: no call may wait for an outage.

A call that has a certificate ends while its renewal hangs in the background. A call without one
ends by its budget, and the next call continues the same exchange. Time limits here are generous. A
test shows that a call ended while the dependency for which it could have waited was still away.
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

from authenticator.state.credential import OVERDUE_SECONDS
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
"""Seconds. Far more than the budget, and far less than any time limit of TLS, TPM or client-go."""

BACK = 120
"""Seconds until every client reaches a dependency that is back, also on a busy machine."""

LONGEST_PAUSE, LONGEST_OUTAGE_PAUSE = 600, 30
"""Maximum seconds between two attempts, after a refusal and in an outage."""


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
    """Freeze the API server: it accepts connections and sends nothing."""
    pid = node.tenant.workload._running["kube-apiserver"].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def stuck_tpm(_signer: Signer, node: Node) -> Iterator[None]:
    """Let the TPM accept connections and never answer."""
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
    """Return the name of a test's case."""
    return away.__name__


def due(machines: Machines) -> tuple[Node, Call]:
    """Join a node, and advance its clock until its certificate has to be renewed."""
    node = machines.registered(settings={"expirationSeconds": LIFETIME})
    first = node.call()
    renewal = clocks.until(first.credential["expirationTimestamp"])
    node.environment = clocks.shifted(renewal + 60)
    return node, first


def require_detached(pid: int, node: Node) -> None:
    """Require that a process has its own session and streams."""
    assert os.getsid(pid) == pid
    streams = [Path(f"/proc/{pid}/fd/{number}").readlink() for number in range(3)]
    assert streams == [Path("/dev/null"), Path("/dev/null"), node.state / "background.log"]


@pytest.mark.parametrize("away", AWAY, ids=name)
def test_due_certificate_is_served_while_its_renewal_hangs(
    machines: Machines, signer: Signer, away: Away
) -> None:
    """The call has ended and its pipes are closed; the renewal has its own session."""
    node, first = due(machines)
    with away(signer, node):
        call = node.call()
        pid = background_runs.wait_for_one(node)
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
        # Background runs that find the renewal lock taken end by themselves.
        background_runs.wait_for_one(node)
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
    """Return whether the node has filed an offer."""
    return bool(csrs.offers(node))


def test_next_call_continues_the_exchange_of_an_ended_call(
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
def test_refused_node_files_few_offers_for_many_calls(machines: Machines) -> None:
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
    # The signer sees Machines in order: when it knows this one, it also knows the change.
    machines.register(other)
    script.challenge()
    began = time.monotonic()
    calls = [node.call() for _ in range(20)]
    background_runs.wait_for_end(node)
    assert {call.certificate for call in calls} == {first.certificate}
    assert 2 <= len(csrs.offers(node)) <= 1 + most_attempts(time.monotonic() - began)
    renewal = clocks.until(first.credential["expirationTimestamp"])
    node.environment = clocks.shifted(renewal + OVERDUE_SECONDS + 60)
    error_text = node.call().complaint
    assert "the renewal is overdue for 0.1 h; " in error_text
    assert "the last renewal failed: " in error_text
    assert "EndorsementKeyMismatch" in error_text
    background_runs.wait_for_end(node)


def test_most_calls_in_an_outage_send_no_request(machines: Machines, signer: Signer) -> None:
    """While the API server is away, most calls end without a request to it."""
    node = machines.registered()
    began = time.monotonic()
    with without_api_server(signer, node):
        # A call whose time is up before its first request has no effect.
        budget = 2 * enough(node.call, lambda end: "ApiServerUnavailable" in end.complaint)
        calls = [node.call(within(budget)) for _ in range(10)]
        seconds = time.monotonic() - began
    assert {call.status for call in calls} == {1}
    attempts = [call.complaint for call in calls if "CoolingDown" not in call.complaint]
    assert len(attempts) < len(calls)
    met = [complaint for complaint in attempts if "DeadlinePassed" not in complaint]
    assert all("ApiServerUnavailable" in complaint for complaint in met)
    # The node made one more attempt before.
    assert 1 + len(met) <= most_attempts(seconds, LONGEST_OUTAGE_PAUSE)
