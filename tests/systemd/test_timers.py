"""The timer of serving certificates. Client certificates need none: calls renew them."""

from tests.harness.process import wait_until
from tests.harness.systemd_machine import SystemdMachine
from tests.systemd import units

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


def test_timer_that_starts_late_waits(running: SystemdMachine) -> None:
    """With OnBootSec= in the past it started its service at once."""
    running.run("systemctl", "start", f"{units.SERVING}.timer")
    assert 60 <= round(seconds_of_pause(running, f"{units.SERVING}.timer"), 3) <= 180
    assert running.show(f"{units.SERVING}.service", "ExecMainStartTimestamp") == ""


def test_long_run_is_followed_by_a_pause(machine: SystemdMachine) -> None:
    """A run of 3 seconds with an interval of 2 seconds."""
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig())
    units.change(machine, f"{units.SERVING}.timer", units.QUICK)
    units.run_instead(machine, units.SERVING, LONG_RUN)
    machine.boot()
    machine.run("systemctl", "start", f"{units.SERVING}.timer")

    def times() -> list[float]:
        return [float(line) for line in machine.call("cat", RUNS).stdout.split()]

    wait_until(lambda: len(times()) > 2, what="the second run has started")
    _, end, second, *_ = times()
    assert second - end > 1.9


def test_timer_starts_the_service_again_after_the_node_has_joined(
    machine: SystemdMachine,
) -> None:
    """A run whose condition fails never was active, and still counts for OnUnitInactiveSec=."""
    units.change(machine, f"{units.SERVING}.timer", units.QUICK)
    units.run_instead(machine, units.SERVING, f"touch {RUNS}")
    machine.boot()
    machine.run("systemctl", "start", f"{units.SERVING}.timer")
    wait_until(
        lambda: (
            machine.show(f"{units.SERVING}.service", "ConditionResult") == "no"
            and machine.show(f"{units.SERVING}.service", "ConditionTimestamp") != ""
        ),
        what="the timer has elapsed before the join",
    )
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig())
    wait_until(lambda: machine.call("test", "-e", RUNS).returncode == 0, what="the service has run")


def test_kubelet_with_an_attested_serving_certificate_starts_the_timer(
    running: SystemdMachine,
) -> None:
    running.run("systemctl", "start", "kubelet")
    assert running.show(f"{units.SERVING}.timer", "ActiveState") == "active"


def test_presets_of_a_first_boot_start_nothing(running: SystemdMachine) -> None:
    """Debian's preset enables all: timers ran on machines without names for a certificate."""
    running.run("systemctl", "preset-all", "--preset-mode=enable-only")
    enabled = running.run("systemctl", "list-unit-files", "--state=enabled", "--no-legend")
    assert "kubelet-authenticator" not in enabled
    assert running.show(f"{units.SERVING}.timer", "UnitFileState") == "static"
