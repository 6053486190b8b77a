"""The service of packaging/bootstrap that replaces the certificate of `kubeadm init`."""

import yaml

from tests.harness.process import wait_until
from tests.harness.systemd_machine import SystemdMachine
from tests.release import bootstrap
from tests.systemd import units

SERVICE = "kubelet-authenticator-tpm-replace"
EXAMPLE = bootstrap.DIRECTORY / "control-plane.yaml"
UNATTESTED = "client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem"
CALLS, SIGNER = "/run/calls", "/run/signer"
PROGRAM = f"""#!/bin/sh
# Fails until the signer answers.
test "$1 $2" = "join --replace" || exit 0
echo "$@" >>{CALLS}
test -e {SIGNER} || exit 1
echo "command: {units.PROGRAM}" >{units.KUBECONFIG}
"""


def test_certificate_is_replaced_when_the_signer_answers_and_only_once(
    machine: SystemdMachine,
) -> None:
    machine.write(units.PROGRAM, PROGRAM, mode=0o755)
    machine.write(units.KUBECONFIG, UNATTESTED)
    for file in bootstrap.files(EXAMPLE):
        content = file.content.replace("RestartSec=60", "RestartSec=1")
        machine.write(file.path, content, mode=file.mode)
    machine.boot()
    machine.run("systemctl", "start", "kubelet")
    spec = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))["spec"]["kubeadmConfigSpec"]
    for command in spec["postKubeadmCommands"]:
        machine.run("sh", "-ec", command)
    wait_until(lambda: tries(machine) >= 2, what="the service tries again after a failure")
    kubelet = machine.show("kubelet", "MainPID")

    machine.write(SIGNER, "")
    wait_until(
        lambda: machine.show(SERVICE, "ActiveState") == "inactive", what="the service has ended"
    )
    assert machine.show(SERVICE, "Result") == "success"
    assert machine.run("tail", "-1", CALLS).strip() == "join --replace --provider=aws"
    restarted = machine.show("kubelet", "MainPID")
    assert restarted not in {kubelet, "0"}

    done = tries(machine)
    machine.run("systemctl", "start", SERVICE)
    assert machine.show(SERVICE, "Result") == "exec-condition"
    assert tries(machine) == done
    assert machine.show("kubelet", "MainPID") == restarted


def tries(machine: SystemdMachine) -> int:
    """Return how often the service has run the program."""
    return len(machine.call("cat", CALLS).stdout.splitlines())
