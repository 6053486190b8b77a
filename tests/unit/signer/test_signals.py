"""Signals end both signers, also if they cannot end by themselves."""

import signal
import subprocess
import sys

import pytest

_PROGRAM = """
import sys
from signer.signals import stop_on_signals

stop = stop_on_signals(float(sys.argv[1]))
print("ready", flush=True)
while not stop.is_set():
    stop.wait()
if sys.argv[2] == "hang":
    while True:
        pass
"""


def status_after(number: signal.Signals, *, seconds: float, then: str) -> int:
    """Start the program, send a signal, and return the exit status."""
    arguments = [sys.executable, "-c", _PROGRAM, str(seconds), then]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(number)
        return program.wait(60)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_ends_the_program(number: signal.Signals) -> None:
    assert status_after(number, seconds=60, then="end") == 0


def test_program_that_hangs_after_a_signal_is_ended() -> None:
    assert status_after(signal.SIGTERM, seconds=0.1, then="hang") == 1
