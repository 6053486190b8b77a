"""A signer whose log cannot be written: the reader of its stderr has stopped."""

import fcntl
import os
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.process import wait_until
from tests.harness.signer import Signer, opt_in

JOINS = 4
"""Their verdicts fill the pipe."""


@pytest.fixture
def blocked_pipe() -> Iterator[int]:
    """Make the smallest pipe of the kernel, whose output is never read."""
    output, descriptor = os.pipe()
    fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, 4096)
    yield descriptor
    os.close(output)
    os.close(descriptor)


def test_replica_whose_log_is_blocked_serves_until_another_takes_over(
    fleet: Fleet, signer: Signer, machines: Machines, blocked_pipe: int, tmp_path: Path
) -> None:
    """Its workers waited for the log: it kept its Lease, served nothing, and ignored SIGTERM."""
    opt_in(fleet, fleet.first)
    signer.stop()
    try:
        blocked = Signer(fleet, tmp_path / "blocked")
        blocked.stderr = blocked_pipe
        blocked.start()
        blocked.wait_until_ready()
        for _ in range(JOINS):
            assert machines.registered(fleet.first).call().status == 0
        wait_until(
            lambda: blocked.ask("/healthz").status_code == HTTPStatus.SERVICE_UNAVAILABLE,
            what="the probe fails",
        )
        assert blocked.ask("/readyz").status_code == HTTPStatus.SERVICE_UNAVAILABLE
        served = (fleet.first.namespace, fleet.first.name)
        with Signer(fleet, tmp_path / "other") as other:
            wait_until(lambda: other.states().get(served) == "Served", what="another takes over")
            wait_until(
                lambda: other.metric("node_attestation_replicas") == 1, what="it serves everything"
            )
            assert machines.registered(fleet.first).call().status == 0
        assert blocked.stop() == 0
    finally:
        signer.start()
