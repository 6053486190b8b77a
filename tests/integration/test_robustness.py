"""Kills, failing disks, damage, wrong clocks and links: a valid certificate remains, whole.

Everything happens from outside: strace, a small file system, changed files, libfaketime.
"""

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from authenticator import launcher
from authenticator.errors import StateCorrupted
from authenticator.state.credential import decode
from authenticator.state.entries import FORMAT
from common import evidence
from tests.harness import background_runs, clocks
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Call, Node
from tests.integration import csrs
from tests.integration.csr_watch import Filings
from tests.integration.tampering import KILLED, steps, tampered

pytestmark = [pytest.mark.usefixtures("signer"), pytest.mark.timeout(600)]

KILLS = 100
NODES = 4
HOUR = 3600
YEAR = 365 * 24 * HOUR


def renewing(node: Node) -> tuple[str, ...]:
    """Return the arguments of a manual renewal."""
    return ("renew", "--kubeconfig", str(node.kubeconfig()))


def require_served(call: Call, node: Node) -> str:
    """Require the node's certificate and key from a call, and return the certificate."""
    status = call.credential
    leaf = x509.load_pem_x509_certificate(status["clientCertificateData"].encode())
    key = load_pem_private_key(status["clientKeyData"].encode(), None)
    assert leaf.public_key() == key.public_key()
    assert f"CN=system:node:{node.name}" in leaf.subject.rfc4514_string()
    certificate: str = status["clientCertificateData"]
    return certificate


def require_whole(node: Node) -> None:
    """Require that each file is private, and whole or the temporary file of a killed call."""
    for path in node.state.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    decode((node.state / "credential.pem").read_bytes())
    pending = node.state / "pending.json"
    if pending.exists():
        document = json.loads(pending.read_bytes())
        assert document["format"] == FORMAT
        assert document["entries"]


def require_one_after_the_other(filed: list[dict[str, Any]]) -> None:
    """Require that each exchange ended before the next began: an offer, then its own answer."""
    for offer, answer in zip(filed[::2], filed[1::2], strict=True):
        assert isinstance(csrs.content(offer), evidence.Offer)
        evidence_of_answer = csrs.content(answer)
        assert isinstance(evidence_of_answer, evidence.Answer)
        assert evidence_of_answer.challenge.uid == offer["metadata"]["uid"]


def tidy(node: Node) -> None:
    """Flush the TPM.

    The kernel's resource manager does this when a program that used it has ended.
    """
    background_runs.wait_for_end(node)
    node.tpm.run("flushcontext", "--transient-object")
    node.tpm.run("flushcontext", "--loaded-session")


@pytest.fixture
def filings(fleet: Fleet) -> Iterator[Filings]:
    """Watch the requests that are filed during a test."""
    with Filings(fleet.first.workload.admin) as watching:
        yield watching


def test_hundred_kills_at_random_steps(machines: Machines, filings: Filings) -> None:
    """Each call serves a valid certificate; no two exchanges run at once."""
    nodes = [machines.registered() for _ in range(NODES)]
    for node in nodes:
        assert node.call().status == 0
    possible = steps(nodes[0], renewing(nodes[0]))
    shift = clocks.until(nodes[0].call().credential["expirationTimestamp"]) + HOUR

    def torment(node: Node) -> None:
        order = random.Random(node.name)
        later = replace(node, environment=clocks.shifted(shift))
        turns = 0
        kills = 0
        with ThreadPoolExecutor(1) as pool:
            while kills < KILLS // NODES:
                name = order.choice(sorted(possible))
                fatal = f"signal=SIGKILL:when={order.randint(1, possible[name])}"
                dying = pool.submit(tampered, node, renewing(node), name, fatal)
                # Every third call finds the renewal due and starts it in the background.
                turns += 1
                require_served((node if turns % 3 else later).call(), node)
                kills += dying.result().returncode in KILLED
                tidy(node)
                require_served(node.call(), node)
                # This call may have started a renewal in the background, too.
                background_runs.wait_for_end(node)
                require_whole(node)

    with ThreadPoolExecutor(NODES) as pool:
        list(pool.map(torment, nodes))
    for node in nodes:
        tidy(node)
        assert node.call(*renewing(node)).status == 0
        require_one_after_the_other(filings.of_node(node))
        assert not list(node.state.glob("*.new"))


def joined(machines: Machines) -> tuple[Node, str]:
    """Return a node and its certificate."""
    node = machines.registered(settings={"expirationSeconds": HOUR})
    return node, require_served(node.call(), node)


def due(node: Node) -> Node:
    """Return the node with a clock at which its certificate is due for renewal."""
    expires = node.call().credential["expirationTimestamp"]
    return replace(node, environment=clocks.shifted(clocks.until(expires) + 60))


FAILURES = {
    "nothing can be written": ("write", "error=ENOSPC:when=1+", "pending.json.new"),
    "the end cannot be written": ("write", "error=ENOSPC:when=1+", "credential.pem.new"),
    "nothing can be synced": ("fsync", "error=EIO:when=1+", ""),
    "the end cannot be synced": ("fsync", "error=EIO:when=7+", ""),
    "nothing can be renamed": ("renameat", "error=EROFS:when=1+", ""),
    "the end cannot be renamed": ("renameat", "error=EIO:when=4+", ""),
}
"""The end comes after three versions of the pending exchange: the new credential."""


@pytest.mark.parametrize("failure", FAILURES)
def test_certificate_survives_a_failing_disk(machines: Machines, failure: str) -> None:
    node, first = joined(machines)
    calls, action, name = FAILURES[failure]
    paths = [node.state / name] if name else []
    failed = tampered(node, renewing(node), calls, action, paths=paths)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "StateDirectoryUnwritable" in failed.stderr
    assert require_served(node.call(), node) == first
    require_whole(node)
    assert not list(node.state.glob("*.new"))
    assert node.call(*renewing(node)).status == 0
    assert require_served(node.call(), node) != first
    # The exchange that was filed before the disk failed was continued.
    assert len(csrs.offers(node)) == len(csrs.answers(node)) == 2


def test_certificate_that_cannot_be_stored_is_served(machines: Machines) -> None:
    """The cache has no certificate; the next call gets the same one again."""
    node = machines.registered()
    unkept = tampered(
        node, (), "write", "error=ENOSPC:when=1+", paths=[node.state / "credential.pem.new"]
    )
    first = require_served(Call(unkept.returncode, unkept.stdout, unkept.stderr), node)
    assert "the new credential is served, but not stored" in unkept.stderr
    assert require_served(node.call(), node) == first
    assert len(csrs.of_node(node)) == 2


@contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    """Mount a separate small file system under a state directory."""
    directory.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k,mode=0700", "none", str(directory)]
    subprocess.run(mount, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", directory], check=True)


@contextmanager
def full(directory: Path) -> Iterator[None]:
    """Fill the disk up to its last byte."""
    filler = directory / "filler"
    with filler.open("wb", buffering=0) as file:
        file.write(bytes(1024 * 1024))
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Make the file system read-only, as the kernel does after a disk error."""
    subprocess.run(["mount", "-o", "remount,ro", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", directory], check=True)


Spoil = Callable[[Path], AbstractContextManager[None]]
DISKS: dict[str, tuple[Spoil, str]] = {
    "full": (full, "No space left on device"),
    "read-only": (read_only, "Read-only file system"),
}


@pytest.mark.parametrize("disk", DISKS)
def test_join_waits_for_the_disk(machines: Machines, disk: str) -> None:
    """A node that cannot store its exchange files none."""
    node = machines.registered()
    spoil, message = DISKS[disk]
    with small_disk(node.state):
        with spoil(node.state):
            call = node.call()
            assert (call.status, call.output) == (1, "")
            assert "StateDirectoryUnwritable" in call.complaint
            assert message in call.complaint
        assert csrs.of_node(node) == []
        assert node.call().status == 0


@pytest.mark.parametrize("disk", DISKS)
def test_certificate_is_served_from_a_read_only_or_full_disk(machines: Machines, disk: str) -> None:
    node = machines.registered(settings={"expirationSeconds": HOUR})
    spoil, message = DISKS[disk]
    with small_disk(node.state):
        first = require_served(node.call(), node)
        later = due(node)
        (node.state / "served").unlink()
        with spoil(node.state):
            assert require_served(node.call(), node) == first
            assert require_served(later.call(), node) == first
            background_runs.wait_for_end(node)
            failed = node.call(*renewing(node))
            assert failed.status == 1
            assert message in failed.complaint
            assert require_served(node.call(), node) == first
        assert node.call(*renewing(node)).status == 0
        assert require_served(node.call(), node) != first


def damages(content: bytes, count: int) -> Iterator[bytes]:
    """Yield the file with one flipped bit, and truncated, at this many places each."""
    size = len(content)
    for number in range(count):
        position = number * (size - 1) // (count - 1)
        yield content[:position]
        yield content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def test_damaged_cache_is_never_served(machines: Machines) -> None:
    """Neither the launcher nor the full program serves it. Here they have nothing else to serve."""
    node, first = joined(machines)
    node.bootstrap_kubeconfig.unlink()
    file = node.state / "credential.pem"
    whole = file.read_bytes()
    made_for = tuple(whole.split(b"\n", 4)[2:4])
    received = int(whole.split(b"\n", 5)[4])
    assert launcher.render(whole, (made_for[0], made_for[1]), received)
    for damaged in damages(whole, len(whole)):
        with pytest.raises((ValueError, LookupError)):
            launcher.render(damaged, (made_for[0], made_for[1]), received)
        with pytest.raises(StateCorrupted):
            decode(damaged)
    for damaged in damages(whole, 6):
        file.write_bytes(damaged)
        call = node.call()
        assert (call.status, call.output) == (2, "")
        assert "BootstrapCredentialUnusable" in call.complaint
    file.write_bytes(whole)
    assert require_served(node.call(), node) == first


FOREIGN: dict[str, Callable[[Path], object]] = {
    "empty": lambda file: file.write_bytes(b""),
    "for all to write": lambda file: file.chmod(0o622),
    "another user's": lambda file: os.chown(file, 65534, 65534),
}


def test_cache_of_unknown_origin_is_replaced(machines: Machines) -> None:
    node, last = joined(machines)
    for spoil in FOREIGN.values():
        spoil(node.state / "credential.pem")
        renewed = require_served(node.call(), node)
        assert renewed != last
        assert require_served(node.call(), node) == renewed
        require_whole(node)
        assert (node.state / "credential.pem").stat().st_uid == os.geteuid()
        last = renewed


def test_state_directory_of_another_user_is_refused_with_the_remedy(machines: Machines) -> None:
    node, first = joined(machines)
    os.chown(node.state, 65534, -1)
    refused = node.call(*renewing(node))
    assert refused.status == 2
    assert "StateDirectoryUnsafe" in refused.complaint
    assert "chmod 0700" in refused.complaint
    os.chown(node.state, os.geteuid(), -1)
    for mode in (0o770, 0o755):
        node.state.chmod(mode)
        assert node.call(*renewing(node)).status == 0
        assert node.state.stat().st_mode & 0o777 == 0o700
    assert require_served(node.call(), node) != first


def test_certificate_survives_a_clock_jump(machines: Machines, filings: Filings) -> None:
    """With an error of hours, a node works.

    With one of years, it trusts no API server; it loses nothing.
    """
    node, _ = joined(machines)
    for jump in (-10 * YEAR, 5 * HOUR, -5 * HOUR, 10 * YEAR, -HOUR / 4, 2 * YEAR):
        shifted = replace(node, environment=clocks.shifted(jump))
        for call in (shifted.call(), shifted.call()):
            if jump < YEAR:
                require_served(call, node)
            else:
                assert call.status == 1
                assert "ApiServerUntrusted" in call.complaint
        background_runs.wait_for_end(node)
        require_served(node.call(), node)
        background_runs.wait_for_end(node)
        require_whole(node)
    require_one_after_the_other(filings.of_node(node))


SECRET = "root:$6$made-up$of-another-user:20000:0:99999:7:::\n"


@pytest.fixture
def shadow(tmp_path: Path) -> Iterator[Path]:
    """Return a file to which links may point, and which the program must not change or print."""
    target = tmp_path / "shadow"
    target.touch(mode=0o600)
    target.write_text(SECRET, encoding="ascii")
    yield target
    assert target.read_text(encoding="ascii") == SECRET
    assert target.stat().st_mode & 0o777 == 0o600


def put_link(name: Path, target: Path) -> None:
    """Replace a file with a link."""
    name.unlink(missing_ok=True)
    name.symlink_to(target)


def test_link_in_place_of_the_state_directory_is_refused(machines: Machines) -> None:
    """Neither the launcher nor the full program reads the target of the link."""
    node, first = joined(machines)
    elsewhere = node.state.rename(node.directory / "elsewhere")
    node.state.symlink_to(elsewhere)
    call = node.call()
    assert (call.status, call.output) == (2, "")
    assert "StateDirectoryUnsafe" in call.complaint
    node.state.unlink()
    elsewhere.rename(node.state)
    assert require_served(node.call(), node) == first


def test_links_and_pipes_in_the_state_directory_are_not_followed(
    machines: Machines, shadow: Path
) -> None:
    node, first = joined(machines)
    put_link(node.state / "credential.pem", shadow)
    put_link(node.state / "credential.pem.new", shadow)
    put_link(node.state / "served", shadow)
    put_link(node.state / "runs.jsonl", shadow)
    put_link(node.state / "background.log", shadow)
    os.mkfifo(node.state / "pending.json", 0o600)
    os.mkfifo(node.state / "cooldown.json", 0o600)
    call = node.call()
    renewed = require_served(call, node)
    assert renewed != first
    assert "the record of this run cannot be written" in call.complaint
    assert "made-up" not in call.complaint
    assert require_served(node.call(), node) == renewed
    assert not (node.state / "pending.json").exists()
    assert not (node.state / "cooldown.json").exists()
    # A renewal whose log cannot be opened is not started; the call still serves the certificate.
    due_call = due(node).call()
    assert require_served(due_call, node) == renewed
    assert "no background run can be started" in due_call.complaint


def test_link_in_place_of_the_lock_is_refused(machines: Machines, shadow: Path) -> None:
    node, first = joined(machines)
    put_link(node.state / "exchange.lock", shadow)
    refused = node.call(*renewing(node))
    assert refused.status == 1
    assert "StateDirectoryUnwritable" in refused.complaint
    assert require_served(node.call(), node) == first
