"""The services that renew certificates: their permissions, and the meaning of their exit status."""

import pytest

from tests.harness import kubeconfig, pki
from tests.harness.systemd_machine import SystemdMachine
from tests.systemd import units

SERVICES = pytest.mark.parametrize("service", [units.RENEW, units.SERVING])
NEEDS_OPERATOR = "2"
PROTECTED = ("/run", "/etc", "/usr", "/var/lib", "/opt", "/root")


@SERVICES
def test_missing_state_directory_is_created(machine: SystemdMachine, service: str) -> None:
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig())
    units.run_instead(machine, service, f"touch {units.STATE}/written")
    machine.boot()
    machine.run("systemctl", "start", service)
    assert machine.run("stat", "-c", "%a %U", units.STATE).split() == ["700", "root"]
    assert machine.run("ls", units.STATE).split() == ["written"]


@SERVICES
def test_another_state_directory_needs_one_setting(machine: SystemdMachine, service: str) -> None:
    """Also while the usual directory does not exist."""
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig())
    machine.write("/opt/state/.keep", "")
    units.run_instead(machine, service, "touch /opt/state/written")
    machine.boot()
    assert machine.call("systemctl", "start", service).returncode
    machine.write(
        f"/etc/systemd/system/{service}.service.d/state.conf",
        "[Service]\nReadWritePaths=/opt/state\n",
    )
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", service)
    assert machine.run("ls", "/opt/state").split() == ["written"]


@SERVICES
def test_services_write_nowhere_else(running: SystemdMachine, service: str) -> None:
    tries = "; ".join(f"touch {directory}/written" for directory in PROTECTED)
    units.run_instead(running, service, f"{tries}; true")
    running.run("systemctl", "daemon-reload")
    running.run("systemctl", "start", service)
    for directory in PROTECTED:
        assert running.call("test", "-e", f"{directory}/written").returncode, directory


@SERVICES
def test_services_open_the_tpm_and_no_other_device(running: SystemdMachine, service: str) -> None:
    """A device that is allowed and absent gives ENXIO, one that is not allowed EPERM."""
    running.call("mknod", "/dev/tpmrm0", "c", "253", "65536")
    running.call("mknod", "/dev/other", "c", "253", "65537")
    units.run_instead(
        running, service, f"(cat </dev/tpmrm0; cat </dev/other) >{units.STATE}/errors 2>&1"
    )
    running.run("systemctl", "daemon-reload")
    running.call("systemctl", "start", service)
    first, second = running.run("cat", f"{units.STATE}/errors").splitlines()
    assert "No such device" in first
    assert "Operation not permitted" in second


@SERVICES
def test_denied_system_call_is_an_error_and_no_kill(running: SystemdMachine, service: str) -> None:
    call = "import ctypes; print(ctypes.CDLL(None).swapoff(b'/none'))"
    units.run_instead(running, service, f'python3 -c "{call}" >{units.STATE}/result')
    running.run("systemctl", "daemon-reload")
    running.run("systemctl", "start", service)
    assert running.run("cat", f"{units.STATE}/result").strip() == "-1"


def test_unreachable_api_server_does_not_degrade_the_system(tpm_machine: SystemdMachine) -> None:
    """Exit code 1 means "not now", and the next run tries again."""
    tpm_machine.write(units.KUBECONFIG, units.unreachable_kubeconfig())
    server = "https://127.0.0.1:1"
    certificate = pki.Authority.make("unused", pki.ec_key()).pair.certificate
    text = kubeconfig.with_token(server, certificate, "abcdef.0123456789abcdef")
    tpm_machine.write(units.BOOTSTRAP_KUBECONFIG, text, mode=0o600)
    tpm_machine.boot()
    tpm_machine.run("systemctl", "start", units.RENEW)
    assert ": ApiServerUnavailable: " in tpm_machine.journal(units.RENEW)
    assert tpm_machine.state() == "running"


def test_error_for_an_operator_is_a_failed_unit(machine: SystemdMachine) -> None:
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig().replace("node-1, ", "-, "))
    machine.boot()
    assert machine.call("systemctl", "start", units.RENEW).returncode
    assert machine.show(units.RENEW, "ExecMainStatus") == NEEDS_OPERATOR
    assert machine.state() == "degraded"


def test_services_do_nothing_before_the_node_has_joined(machine: SystemdMachine) -> None:
    machine.boot()
    for service in (units.RENEW, units.SERVING):
        machine.run("systemctl", "start", service)
        assert machine.show(service, "ConditionResult") == "no"
    assert machine.state() == "running"
