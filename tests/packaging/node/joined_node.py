"""A machine with the installed package that joins a cluster when its kubelet starts."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.harness.fleet import Fleet
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.process import wait_until
from tests.harness.systemd_machine import SystemdMachine
from tests.harness.tpm import SoftwareTpm, TrustDomain
from tests.harness.workload import MANIFESTS
from tests.packaging.node.packages import FULL_PROGRAM
from tests.systemd import units

CREDENTIAL: Final = f"{units.STATE}/credential.pem"
BOOT_SECONDS: Final = 120
_RESULTS: Final = "/run/calls"
_FEW: Final = 2
_CALLS: Final = f"""#!/bin/sh
while :; do
if /srv/call >/run/served; then echo served; else echo failed; fi >>{_RESULTS}
done
"""


class JoinedNode:
    """A booted machine whose kubelet runs with a certificate from the package's program."""

    def __init__(self, machine: SystemdMachine) -> None:
        self.machine = machine

    def start_kubelet(self) -> None:
        """Start the kubelet, whose drop-in joins the cluster."""
        self.machine.run("systemctl", "start", "kubelet")
        assert self.machine.show("kubelet", "ActiveState") == "active", self.machine.journal(
            "kubelet"
        )
        assert self.machine.show("kubelet", "NRestarts") == "0", self.machine.journal("kubelet")

    def cached_call(self) -> subprocess.CompletedProcess[str]:
        """Call the plugin as client-go did for the cached credential, with a new parent."""
        return self.machine.call("sh", "-c", self.shell_command())

    def suspicious_call(self) -> subprocess.CompletedProcess[str]:
        """Call the plugin from a parent that was served long ago, and may have got a 401."""
        note = f'rm -f {units.STATE}/served; umask 077; echo "$$ 1" >{units.STATE}/served'
        return self.machine.call("sh", "-c", f"{note}; {self.shell_command()}")

    def shell_command(self) -> str:
        """Return the call of the cached credential as a command of sh, which becomes its parent."""
        _, _, arguments, exec_info, *_ = self.machine.run("cat", CREDENTIAL).split("\n")
        assert not arguments
        info = bytes.fromhex(exec_info).decode()
        assert "'" not in info
        return f"KUBERNETES_EXEC_INFO='{info}' {units.PROGRAM}; exit $?"

    @contextmanager
    def calling(self) -> Iterator[Callable[[], list[str]]]:
        """Call the plugin without a pause, as the kubelet does; yield a reader of the results."""
        machine = self.machine
        machine.write("/srv/call", f"#!/bin/sh\n{self.shell_command()}\n", mode=0o755)
        machine.write("/srv/calls", _CALLS, mode=0o755)
        machine.run("rm", "-f", _RESULTS)
        machine.run("systemd-run", "--unit=calls", "/srv/calls")

        def results() -> list[str]:
            return machine.call("cat", _RESULTS).stdout.split()

        wait_until(lambda: len(results()) > _FEW, what="the first calls have ended")
        yield results
        served = len(results())
        wait_until(lambda: len(results()) > served + _FEW, what="more calls have ended")
        assert set(results()) == {"served"}, machine.journal("calls")
        machine.run("systemctl", "stop", "calls")

    def copy_into(self, package: Path) -> str:
        """Copy a package into the machine, and return its path there."""
        target = Path(f"/proc/{self.machine.first}/root/srv") / package.name
        shutil.copy(package, target)
        return f"/srv/{package.name}"

    def disable_full_program(self) -> None:
        """Let every call fail that the launcher does not serve."""
        self.machine.run("sh", "-c", f"printf '#!/bin/sh\\nexit 9\\n' >{FULL_PROGRAM}")


@contextmanager
def prepared(
    layers: tuple[Path, ...], fleet: Fleet, name: str, directory: Path, tcti: str = units.TCTI
) -> Iterator[JoinedNode]:
    """Boot a machine with a TPM, a Machine object and a bootstrap token."""
    with (
        SoftwareTpm(TrustDomain(directory / "vendor"), seed=name) as tpm,
        SystemdMachine(layers, log=directory / "systemd.log", tpm=tpm.directory) as machine,
    ):
        node = Node(fleet.first, name, tpm, directory / "node")
        addresses = [("Hostname", name), ("InternalIP", machine.address)]
        fleet.add_machine(
            node.tenant, Machine(name, addresses=addresses, annotations=node.registration())
        )
        token = node.tenant.workload.bootstrap_token()
        text = node.tenant.workload.bootstrap_kubeconfig(token)
        machine.write(units.BOOTSTRAP_KUBECONFIG, text, mode=0o600)
        machine.write("/usr/bin/kubelet", units.KUBELET, mode=0o755)
        machine.write(f"{units.UNITS}/kubelet.service", units.KUBELET_SERVICE)
        kubeadm = (MANIFESTS / "10-kubeadm.conf").read_text(encoding="utf-8")
        machine.write(f"{units.DROP_INS}/10-kubeadm.conf", kubeadm)
        defaults = f'KUBELET_AUTHENTICATOR_JOIN_ARGS="{units.join_flags(node, tcti)}"\n'
        for place in ("default", "sysconfig"):
            machine.write(f"/etc/{place}/kubelet-authenticator-tpm", defaults)
        machine.boot()
        yield JoinedNode(machine)
