"""The timers of the services that renew certificates."""

import pytest

from tests.harness.process import wait_until
from tests.harness.systemd_machine import SystemdMachine
from tests.systemd import units

TIMERS = pytest.mark.parametrize("name", [units.RENEW, units.SERVING])
RUNS = "/var/lib/kubelet-authenticator/runs"
LONG_RUN = f"cut -d' ' -f1 /proc/uptime >>{RUNS}; sleep 3; cut -d' ' -f1 /proc/uptime >>{RUNS}"


def seconds_of_pause(machine: SystemdMachine, timer: str) -> float:
    """Return the time from the start of a timer until it elapses."""
    units_of_time = {"d": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
    elapse = 0.0
    for word in machine.show(timer, "NextElapseUSecMonotonic").split():
        number = word.rstrip("dhminsu")
        elapse += float(number) * units_of_time[word[len(number) :]]
    return elapse - float(machine.show(timer, "ActiveEnterTimestampMonotonic")) / 1e6


@TIMERS
def test_timer_that_is_enabled_late_waits(running: SystemdMachine, name: str) -> None:
    """With OnBootSec= in the past both timers started their services at once."""
    running.run("systemctl", "enable", "--now", f"{name}.timer")
    assert 60 <= round(seconds_of_pause(running, f"{name}.timer"), 3) <= 180
    assert running.show(f"{name}.service", "ExecMainStartTimestamp") == ""


@TIMERS
def test_long_run_is_followed_by_a_pause(machine: SystemdMachine, name: str) -> None:
    """A run of 3 seconds with an interval of 2 seconds."""
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig())
    units.change(machine, f"{name}.timer", units.QUICK)
    units.run_instead(machine, name, LONG_RUN)
    machine.boot()
    machine.run("systemctl", "start", f"{name}.timer")

    def times() -> list[float]:
        return [float(line) for line in machine.call("cat", RUNS).stdout.split()]

    wait_until(lambda: len(times()) > 2, what="the second run has started")
    _, end, second, *_ = times()
    assert second - end > 1.9


@TIMERS
def test_timer_starts_the_service_again_after_the_node_has_joined(
    machine: SystemdMachine, name: str
) -> None:
    """A run whose condition fails never was active, and still counts for OnUnitInactiveSec=."""
    units.change(machine, f"{name}.timer", units.QUICK)
    units.run_instead(machine, name, f"touch {RUNS}")
    machine.boot()
    machine.run("systemctl", "start", f"{name}.timer")
    wait_until(
        lambda: (
            machine.show(f"{name}.service", "ConditionResult") == "no"
            and machine.show(f"{name}.service", "ConditionTimestamp") != ""
        ),
        what="the timer has elapsed before the join",
    )
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig())
    wait_until(lambda: machine.call("test", "-e", RUNS).returncode == 0, what="the service has run")
