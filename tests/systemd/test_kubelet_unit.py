"""The drop-ins of the kubelet's unit."""

import pytest

from tests.harness.process import wait_until
from tests.harness.systemd_machine import SystemdMachine
from tests.harness.workload import MANIFESTS
from tests.systemd import units

OURS = "zz-20-kubelet-authenticator-tpm.conf"
OURS_SERVING = "zz-30-kubelet-authenticator-tpm-serving.conf"
FLAGS = "--kubeconfig=/etc/kubernetes/kubelet.conf --rotate-certificates=false"


def test_join_and_serving_that_hang_do_not_stop_a_kubelet_with_a_kubeconfig(
    machine: SystemdMachine,
) -> None:
    """A "-" before the command does not cover systemd's timeout; programs can ignore SIGTERM."""
    machine.write(units.PROGRAM, units.HANGS, mode=0o755)
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig())
    for name in (OURS, OURS_SERVING):
        units.change(machine, name, units.QUICK)
    machine.boot()
    machine.run("systemctl", "start", "kubelet")
    assert machine.show("kubelet", "ActiveState") == "active"
    assert machine.show("kubelet", "NRestarts") == "0"


def test_failing_join_does_not_stop_a_kubelet_with_a_kubeconfig(machine: SystemdMachine) -> None:
    machine.write(units.PROGRAM, "#!/bin/sh\nexit 2\n", mode=0o755)
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig())
    machine.boot()
    machine.run("systemctl", "start", "kubelet")
    assert machine.show("kubelet", "ActiveState") == "active"


def test_kubelet_without_a_kubeconfig_is_started_until_a_join_succeeds(
    machine: SystemdMachine,
) -> None:
    third = 'echo x >>/run/tries; test "$(wc -l </run/tries)" -lt 3 || touch ' + units.KUBECONFIG
    machine.write(units.PROGRAM, f"#!/bin/sh\n{third}\n", mode=0o755)
    machine.write("/etc/kubernetes/pki/ca.crt", "")
    machine.write(f"{units.DROP_INS}/{OURS_SERVING}", "")
    machine.boot()
    machine.run("systemctl", "start", "kubelet")
    wait_until(
        lambda: (
            machine.show("kubelet", "NRestarts") == "2"
            and machine.show("kubelet", "SubState") == "running"
        ),
        what="the kubelet runs after the third join",
    )


def arguments(machine: SystemdMachine) -> str:
    """Return the arguments of the kubelet; empty when it has not started."""
    return machine.call("cat", units.ARGUMENTS).stdout


@pytest.mark.parametrize("place", ["drop-in that sorts after digits", "/etc/default/kubelet"])
def test_bootstrap_kubeconfig_flag_does_not_come_back(machine: SystemdMachine, place: str) -> None:
    kubeadm = (MANIFESTS / "10-kubeadm.conf").read_text(encoding="utf-8")
    if place.startswith("/"):
        machine.write(place, 'KUBELET_KUBECONFIG_ARGS="--bootstrap-kubeconfig=/b"\n')
    else:
        machine.write(f"{units.DROP_INS}/kubeadm.conf", kubeadm)
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig())
    machine.boot()
    machine.run("systemctl", "start", "kubelet")
    wait_until(lambda: bool(arguments(machine)), what="the kubelet has started")
    assert arguments(machine).startswith(f"{FLAGS} --config=")
    assert "--bootstrap-kubeconfig" not in arguments(machine)


def test_kubelet_does_not_start_without_our_flags(machine: SystemdMachine) -> None:
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig())
    machine.boot()
    machine.run("rm", "/usr/lib/kubelet-authenticator-tpm/kubelet.env")
    assert machine.call("systemctl", "start", "kubelet").returncode
    assert machine.call("test", "-e", units.ARGUMENTS).returncode


def test_journal_names_no_unset_variable(machine: SystemdMachine) -> None:
    """Version 257 of systemd logs each variable of a command line that is not set."""
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig())
    machine.boot()
    machine.run("systemctl", "start", "kubelet")
    machine.call("systemctl", "start", f"{units.SERVING}.service")
    for unit in ("kubelet", units.SERVING):
        assert "KUBELET_AUTHENTICATOR" not in machine.journal(unit)
