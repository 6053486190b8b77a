"""All steps under systemd, with a real API server: join, serving certificate, renewal."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.fleet import Fleet
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.process import wait_until
from tests.harness.signer import serving_all
from tests.harness.systemd_machine import SystemdMachine
from tests.harness.tpm import SoftwareTpm
from tests.systemd import units

CREDENTIAL = f"{units.STATE}/serving/credential.pem"
GUIDE = (units.PACKAGING.parents[1] / "docs/node.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def fleet(kubernetes: Path, host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Run the control planes under an address that machines reach, and a signer."""
    directory = tmp_path_factory.mktemp("fleet")
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(directory / "fleet", kubernetes, host=host))
        stack.enter_context(serving_all(fleet, directory / "signer"))
        yield fleet


@pytest.fixture
def node(
    request: pytest.FixtureRequest,
    fleet: Fleet,
    tpm: SoftwareTpm,
    tpm_machine: SystemdMachine,
    tmp_path: Path,
) -> Node:
    """Return a node with a Machine, whose machine has a bootstrap token and has not booted."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.rpartition("[")[2].strip("]"))
    name = f"{request.node.originalname.replace('_', '-')[-30:]}-{name}"
    node = Node(fleet.first, name, tpm, tmp_path / "node")
    addresses = [("Hostname", name), ("InternalIP", tpm_machine.address)]
    fleet.add_machine(
        node.tenant, Machine(name, addresses=addresses, annotations=node.registration())
    )
    token = node.tenant.workload.bootstrap_token()
    text = node.tenant.workload.bootstrap_kubeconfig(token)
    tpm_machine.write(units.BOOTSTRAP_KUBECONFIG, text, mode=0o600)
    write_defaults(tpm_machine, node)
    return node


def write_defaults(machine: SystemdMachine, node: Node, *names: str) -> None:
    """Write the flags of both commands."""
    serving = " ".join([f"--address={machine.address}", *(f"--dns={name}" for name in names)])
    machine.write(
        units.DEFAULTS,
        f'KUBELET_AUTHENTICATOR_JOIN_ARGS="{units.join_flags(node)}"\n'
        f'KUBELET_AUTHENTICATOR_SERVING_ARGS="{serving}"\n',
    )


@pytest.mark.usefixtures("node")
def test_node_joins_before_its_kubelet_starts(tpm_machine: SystemdMachine) -> None:
    tpm_machine.boot()
    tpm_machine.run("systemctl", "start", "kubelet")
    assert tpm_machine.show("kubelet", "ActiveState") == "active", tpm_machine.journal("kubelet")
    assert tpm_machine.show("kubelet", "NRestarts") == "0"
    assert units.PROGRAM.rpartition("/")[2] in tpm_machine.run("cat", units.KUBECONFIG)
    assert "-----BEGIN CERTIFICATE-----" in tpm_machine.run("cat", CREDENTIAL)
    for service in (units.SERVING,):
        tpm_machine.run("systemctl", "start", service)
    assert tpm_machine.state() == "running"


def test_new_serving_certificate_restarts_the_kubelet_and_its_first_one_does_not_abort_the_start(
    tpm_machine: SystemdMachine, node: Node
) -> None:
    """The units that docs/node.md shows for kubelets before v1.36."""
    install_documented_units(tpm_machine)
    tpm_machine.boot()
    tpm_machine.run("systemctl", "start", "kubelet-serving-changed.path")
    tpm_machine.run("systemctl", "start", "kubelet")
    first = tpm_machine.show("kubelet", "MainPID")
    assert tpm_machine.show("kubelet", "NRestarts") == "0"
    skipped = "Condition check resulted in|skipped because|ExecCondition"
    wait_until(
        lambda: re.search(skipped, tpm_machine.journal("kubelet-serving-changed")) is not None,
        what="the path unit has noticed the first certificate",
    )
    assert tpm_machine.show("kubelet", "MainPID") == first
    write_defaults(tpm_machine, node, node.name)
    tpm_machine.run("systemctl", "start", units.SERVING)
    wait_until(
        lambda: tpm_machine.show("kubelet", "MainPID") not in {first, "0"},
        what="the kubelet is restarted",
    )


def install_documented_units(machine: SystemdMachine) -> None:
    """Install the units of the ini block of the guide."""
    [block] = re.findall(r"```ini\n(.*?)```", GUIDE, re.DOTALL)
    for path, text in re.findall(
        r"^# (/etc/\S+)\n(.*?)(?=^# /etc|\Z)", block, re.MULTILINE | re.DOTALL
    ):
        machine.write(path, text)


PEM = "/var/lib/kubelet/pki/kubelet-client-current.pem"
ISSUED = "/srv/issued.pem"
BOOTSTRAPS = f"""#!/bin/sh
# Writes a kubeconfig as the kubelet does before its own bootstrap, where its flags ask for one.
# Later it writes its certificate, if the cluster issues one.
echo "$@" >{units.ARGUMENTS}
case "$*" in
*--bootstrap-kubeconfig=*)
  names='\\1client-certificate: {PEM}\\n\\1client-key: {PEM}'
  test -e {units.KUBECONFIG} || sed "s#\\( *\\)token:.*#$names#" \
    {units.BOOTSTRAP_KUBECONFIG} >{units.KUBECONFIG}
  sleep 1
  mkdir -p {PEM.rpartition("/")[0]}
  cp {ISSUED} {PEM} ;;
esac
test -e {units.KUBECONFIG} || exit 1
exec sleep infinity
"""


def test_node_leaves_and_joins_again(tpm_machine: SystemdMachine, node: Node) -> None:
    """A removed drop-in came back with the next upgrade of the package."""
    tpm_machine.write("/usr/bin/kubelet", BOOTSTRAPS, mode=0o755)
    tpm_machine.boot()
    tpm_machine.run("systemctl", "start", "kubelet")
    require_flag(tpm_machine, present=False)
    pending = tpm_machine.call(units.PROGRAM, "leave", "--timeout-seconds=5")
    assert (pending.returncode, "KubeletNotBootstrapped" in pending.stderr) == (1, True)
    require_flag(tpm_machine, present=False)
    assert units.PROGRAM.rpartition("/")[2] in tpm_machine.run("cat", units.KUBECONFIG)
    pair = node.tenant.workload.client_authority.client(f"system:node:{node.name}", "system:nodes")
    tpm_machine.write(ISSUED, (pair.certificate + pair.key).decode(), mode=0o600)
    left = tpm_machine.call(units.PROGRAM, "leave")
    assert left.returncode == 0, left.stderr
    assert f"client-certificate: {PEM}" in tpm_machine.run("cat", units.KUBECONFIG)
    require_flag(tpm_machine, present=True)
    joined = tpm_machine.call(units.PROGRAM, "join", "--replace", *units.join_flags(node).split())
    assert joined.returncode == 0, joined.stderr
    tpm_machine.run("systemctl", "restart", "kubelet")
    require_flag(tpm_machine, present=False)
    assert units.PROGRAM.rpartition("/")[2] in tpm_machine.run("cat", units.KUBECONFIG)


def require_flag(machine: SystemdMachine, *, present: bool) -> None:
    """Wait for a kubelet whose flags let it request its own certificate, or do not."""

    def has_flags() -> bool:
        flags = machine.call("cat", units.ARGUMENTS).stdout
        return bool(flags) and ("--bootstrap-kubeconfig" in flags) == present

    wait_until(has_flags, what=f"the kubelet starts, with --bootstrap-kubeconfig: {present}")
