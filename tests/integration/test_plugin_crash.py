"""The plugin is killed at every step, from outside; the next call continues where it ended.

strace kills it at its n-th system call of a kind: before it sends to the API server or to the TPM,
renames, syncs, or locks. The product has no hook for it.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.harness.machines import Machines
from tests.harness.node import CALL_SECONDS, Node
from tests.harness.programs import PLUGIN
from tests.integration import csrs
from tests.integration.node_join import call, join, join_arguments, kubelet_conf

pytestmark = [pytest.mark.usefixtures("signer"), pytest.mark.timeout(600)]

KILLED = 128 + 9
STEPS = ("renameat", "fsync", "unlinkat", "flock", "connect", "write")
"""One at a time: strace counts each system call separately."""

MOST_STEPS = 200
"""More than an exchange makes: a limit against an endless loop."""


def killed(node: Node, kind: str, step: int, *arguments: str) -> bool:
    """Kill a call at its n-th system call of a kind, and return whether it came that far."""
    done = subprocess.run(
        [
            "strace", "--follow-forks", "--quiet=all", "--output=/dev/null",
            f"--trace={kind}", f"--inject={kind}:signal=SIGKILL:when={step}",
            PLUGIN, *arguments,
        ],
        env=os.environ | {"KUBERNETES_EXEC_INFO": node.exec_info()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=CALL_SECONDS,
        check=False,
    )  # fmt: skip
    if done.returncode not in {0, KILLED, -9}:
        raise AssertionError(f"{done.returncode}: {done.stderr.decode()}")
    # The kernel's resource manager does this when a program that used the TPM has ended.
    node.tpm.run("flushcontext", "--transient-object")
    node.tpm.run("flushcontext", "--loaded-session")
    return done.returncode != 0


def files(node: Node) -> set[str]:
    """Return the contents of the state directory."""
    return {path.name for path in node.state.iterdir()} if node.state.exists() else set()


def require_private(directory: Path) -> None:
    """Require that only the owner can read the files of the state."""
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in directory.iterdir()} == {0}


@pytest.mark.parametrize("kind", STEPS)
def test_killed_at_every_step_of_a_join(machines: Machines, kind: str) -> None:
    """The test repeats the call after each kill. In the end there was exactly one exchange."""
    node = machines.registered()
    step = 1
    while killed(node, kind, step):
        step += 1
        assert step < MOST_STEPS
    assert step > 1, "no step of this kind: the test tests nothing"
    assert node.call().status == 0
    require_private(node.state)
    # Killed between its first two writes, a call may leave one offer that was never filed.
    assert len(csrs.answers(node)) == 1
    assert len(csrs.offers(node)) == 1


@pytest.mark.parametrize("name", ["unlinkat", "fsync", "renameat"])
def test_killed_at_every_step_to_the_kubeconfig(machines: Machines, name: str) -> None:
    """Once there is a certificate, there is either no kubeconfig or a whole one."""
    node = machines.registered()
    assert join(node).status == 0
    whole, step = kubelet_conf(node).read_bytes(), 1
    kubelet_conf(node).unlink()
    while killed(node, name, step, *join_arguments(node)):
        if kubelet_conf(node).exists():
            assert kubelet_conf(node).read_bytes() == whole
            kubelet_conf(node).unlink()
        step += 1
        assert step < MOST_STEPS
    assert step > 1, "no step of this kind: the test tests nothing"
    assert join(node).status == 0
    assert call(node).status == 0
    assert [path.name for path in kubelet_conf(node).parent.iterdir()] == ["kubelet.conf"]
    assert len(csrs.answers(node)) == 1
    require_private(node.state)


@pytest.mark.parametrize("kind", STEPS)
def test_killed_at_every_step_of_a_renewal(machines: Machines, kind: str) -> None:
    """However the call ends, the node still has its valid certificate, or a newer one."""
    node = machines.registered()
    assert node.call().status == 0
    renew = ("renew", "--kubeconfig", str(node.kubeconfig()))
    step = 1
    while killed(node, kind, step, *renew):
        assert node.call().status == 0
        step += 1
        assert step < MOST_STEPS
    assert step > 1, "no step of this kind: the test tests nothing"
    require_private(node.state)
    left = files(node) - {"served", "runs.jsonl", "exchange.lock", "background.log"}
    assert left == {"credential.pem"}
