"""The service of serving certificates: its permissions, and the meaning of its exit status."""

from tests.harness.systemd_machine import SystemdMachine
from tests.systemd import units

NEEDS_OPERATOR = "2"
PROTECTED = ("/run", "/etc", "/usr", "/var/lib", "/opt", "/root")


def test_missing_state_directory_is_created(machine: SystemdMachine) -> None:
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig())
    units.run_instead(machine, units.SERVING, f"touch {units.STATE}/written")
    machine.boot()
    machine.run("systemctl", "start", units.SERVING)
    assert machine.run("stat", "-c", "%a %U", units.STATE).split() == ["700", "root"]
    assert machine.run("ls", units.STATE).split() == ["written"]


def test_another_state_directory_needs_one_setting(machine: SystemdMachine) -> None:
    """Also while the usual directory does not exist."""
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig())
    machine.write("/opt/state/.keep", "")
    units.run_instead(machine, units.SERVING, "touch /opt/state/written")
    machine.boot()
    assert machine.call("systemctl", "start", units.SERVING).returncode
    machine.write(
        f"/etc/systemd/system/{units.SERVING}.service.d/state.conf",
        "[Service]\nReadWritePaths=/opt/state\n",
    )
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", units.SERVING)
    assert machine.run("ls", "/opt/state").split() == ["written"]


def test_service_writes_nowhere_else(running: SystemdMachine) -> None:
    tries = "; ".join(f"touch {directory}/written" for directory in PROTECTED)
    units.run_instead(running, units.SERVING, f"{tries}; true")
    running.run("systemctl", "daemon-reload")
    running.run("systemctl", "start", units.SERVING)
    for directory in PROTECTED:
        assert running.call("test", "-e", f"{directory}/written").returncode, directory


def test_service_opens_the_tpm_and_no_other_device(running: SystemdMachine) -> None:
    """A device that is allowed and absent gives ENXIO, one that is not allowed EPERM."""
    running.call("mknod", "/dev/tpmrm0", "c", "253", "65536")
    running.call("mknod", "/dev/other", "c", "253", "65537")
    units.run_instead(
        running, units.SERVING, f"(cat </dev/tpmrm0; cat </dev/other) >{units.STATE}/errors 2>&1"
    )
    running.run("systemctl", "daemon-reload")
    running.call("systemctl", "start", units.SERVING)
    first, second = running.run("cat", f"{units.STATE}/errors").splitlines()
    assert "No such device" in first
    assert "Operation not permitted" in second


def test_denied_system_call_is_an_error_and_no_kill(running: SystemdMachine) -> None:
    call = "import ctypes; print(ctypes.CDLL(None).swapoff(b'/none'))"
    units.run_instead(running, units.SERVING, f'python3 -c "{call}" >{units.STATE}/result')
    running.run("systemctl", "daemon-reload")
    running.run("systemctl", "start", units.SERVING)
    assert running.run("cat", f"{units.STATE}/result").strip() == "-1"


def test_missing_client_certificate_does_not_degrade_the_system(machine: SystemdMachine) -> None:
    """Exit code 1 means "not now", and the next run tries again."""
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig())
    machine.write(units.DEFAULTS, 'KUBELET_AUTHENTICATOR_SERVING_ARGS="--address=192.0.2.1"\n')
    machine.boot()
    machine.run("systemctl", "start", units.SERVING)
    assert ": ClientCertificateMissing: " in machine.journal(units.SERVING)
    assert machine.state() == "running"


def test_error_for_an_operator_is_a_failed_unit(machine: SystemdMachine) -> None:
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig().replace("node-1, ", "-, "))
    machine.boot()
    assert machine.call("systemctl", "start", units.SERVING).returncode
    assert machine.show(units.SERVING, "ExecMainStatus") == NEEDS_OPERATOR
    assert machine.state() == "degraded"


def test_service_does_nothing_before_the_node_has_joined(machine: SystemdMachine) -> None:
    machine.boot()
    machine.run("systemctl", "start", units.SERVING)
    assert machine.show(units.SERVING, "ConditionResult") == "no"
    assert machine.state() == "running"
