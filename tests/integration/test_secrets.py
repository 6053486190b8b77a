"""Keys and tokens are only where they must be, and the environment changes nothing.

The tests read what any other process on the node can read: /proc, files, output.
"""

import base64
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.bench.launchers import packaged
from tests.harness import background_runs, clocks
from tests.harness.machines import Machines
from tests.harness.node import Node, finished
from tests.harness.process import wait_until
from tests.harness.programs import PLUGIN
from tests.harness.signer import Signer
from tests.harness.tpm_relay import TPM2_QUOTE, Send, TpmRelay

HOUR = 3600
MAY_HOLD_KEYS = {"credential.pem", "pending.json"}


def forms(pem: bytes) -> list[bytes]:
    """Return a private key in every encoding in which it could leak."""
    key = load_pem_private_key(pem, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    scalar = key.private_numbers().private_value
    raw = scalar.to_bytes(32, "big")
    lines = [line for line in pem.splitlines() if not line.startswith(b"-----")]
    return [
        *lines,
        base64.b64encode(pem)[40:-40],
        raw,
        raw.hex().encode(),
        raw.hex().upper().encode(),
        str(scalar).encode(),
    ]


def key_on_disk(node: Node) -> bytes:
    """Return the key of the pending exchange, or else the key of the certificate, as PEM."""
    pending = node.state / "pending.json"
    if pending.exists():
        return base64.b64decode(json.loads(pending.read_bytes())["entries"][-1]["key"])
    _, begin, rest = (node.state / "credential.pem").read_bytes().partition(b"-----BEGIN PRIVATE")
    return begin + rest


def secret_of_token(node: Node) -> bytes:
    """Return the secret half of the bootstrap token."""
    _, _, token = node.bootstrap_kubeconfig.read_text(encoding="utf-8").partition("token: ")
    return token.split()[0].strip("\"'").partition(".")[2].encode()


def require_free_of(secrets: list[bytes], text: bytes, where: str) -> None:
    """Require that a text contains none of the secrets."""
    positions = [position for position, secret in enumerate(secrets) if secret in text]
    assert not positions, f"{where} holds a secret, in form {positions}"


@contextmanager
def frozen_at_the_quote(machines: Machines) -> Iterator[tuple[Node, Event]]:
    """Make a node whose TPM delays its quote until an event; by then the kubelet's key exists."""
    node = machines.power_on()
    machines.register(node)
    reached, go_on = Event(), Event()

    def wait(command: bytes, send: Send) -> bytes:
        reached.set()
        go_on.wait()
        return send(command)

    with TpmRelay(node.tpm) as relay:
        relay.on(TPM2_QUOTE, wait)
        node.settings = {"tcti": relay.tcti}
        try:
            yield node, reached
        finally:
            go_on.set()


@pytest.mark.usefixtures("signer")
def test_process_in_an_exchange_shows_no_secret_and_leaves_no_core(machines: Machines) -> None:
    with frozen_at_the_quote(machines) as (node, reached):
        umask = os.umask(0)
        try:
            process = node.start()
        finally:
            os.umask(umask)
        assert reached.wait(60)
        secrets = [*forms(key_on_disk(node)), secret_of_token(node)]
        about = Path("/proc", str(process.pid))
        for name in ("cmdline", "environ", "comm"):
            require_free_of(secrets, (about / name).read_bytes(), name)
        limits = (about / "limits").read_text(encoding="ascii")
        assert limits.partition("Max core file size")[2].split()[:2] == ["0", "0"]
        assert "Umask:\t0077" in (about / "status").read_text(encoding="ascii")
    call = finished(process)
    assert call.status == 0, call.complaint
    assert {path.stat().st_mode & 0o077 for path in [node.state, *node.state.iterdir()]} == {0}


def test_secrets_are_in_no_log_and_no_record(machines: Machines, signer: Signer) -> None:
    """Join, a background renewal, a failing renewal, and the commands of an operator."""
    node = machines.registered(settings={"expirationSeconds": HOUR})
    by_hand = ("--kubeconfig", str(node.kubeconfig()))
    calls = [node.call()]
    secrets = [*forms(key_on_disk(node)), secret_of_token(node)]
    renewal = clocks.until(calls[0].credential["expirationTimestamp"])
    node.environment = clocks.shifted(renewal + 60)
    calls.append(node.call())
    background_runs.wait_for_end(node)
    secrets += forms(key_on_disk(node))
    node.environment = {}
    signer.stop()
    try:
        failing = node.call("renew", *by_hand, "--timeout-seconds=1")
    finally:
        signer.start()
    assert failing.status == 1
    secrets += forms(key_on_disk(node))
    commands = [node.call(command, *by_hand) for command in ("status", "doctor", "renew", "status")]
    calls.append(node.call())
    for number, call in enumerate([*calls, failing, *commands]):
        require_free_of(secrets, call.complaint.encode(), f"what call {number} complained of")
    for number, call in enumerate([failing, *commands]):
        require_free_of(secrets, call.output.encode(), f"the output of call {number}")
    files = {path.name: path.read_bytes() for path in node.state.iterdir()}
    assert {"runs.jsonl", "background.log", "served", "exchange.lock"} <= files.keys()
    for name in files.keys() - MAY_HOLD_KEYS:
        require_free_of([*secrets, b"PRIVATE KEY"], files[name], name)
    require_free_of([secret_of_token(node)], b"".join(files.values()), "the state directory")


FIPS_ONLY = """
openssl_conf = openssl_init
[openssl_init]
providers = providers
alg_section = algorithms
[providers]
fips = active
base = active
[active]
activate = 1
[algorithms]
default_properties = fips=yes
"""
"""openssl.cnf of a host that allows validated algorithms only."""


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    """Return an environment that would mislead HTTP libraries, TLS and interpreters."""
    home = tmp_path / "home"
    modules = home / "modules"
    modules.mkdir(parents=True)
    for name in ("json.py", "ssl.py", "sitecustomize.py"):
        (modules / name).write_text("raise SystemExit('astray')\n", encoding="ascii")
    (home / ".netrc").write_text("default login stranger password secret\n", encoding="ascii")
    (home / ".netrc").chmod(0o600)
    (home / "empty.pem").touch()
    (home / "openssl.cnf").write_text(FIPS_ONLY, encoding="ascii")
    dead = "http://127.0.0.1:9"
    proxies = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    bundles = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
    return {
        "HOME": str(home),
        "NETRC": str(home / ".netrc"),
        "SSLKEYLOGFILE": str(home / "keys.log"),
        "SSL_CERT_DIR": str(home),
        "OPENSSL_CONF": str(home / "openssl.cnf"),
        "OPENSSL_MODULES": str(modules),
        "PYTHONPATH": str(modules),
        "PYTHONWARNINGS": "error",
        "PYTHONVERBOSE": "1",
        **dict.fromkeys(proxies, dead),
        **dict.fromkeys(bundles, str(home / "empty.pem")),
    }


ISOLATED = "#!{} -I\nimport sys\nfrom authenticator.cli import main\nsys.exit(main())\n"


@pytest.mark.usefixtures("signer")
def test_environment_changes_nothing(
    machines: Machines, surroundings: dict[str, str], tmp_path: Path
) -> None:
    """It changes neither a join, nor an answer from the cache, nor a background renewal.

    The scripts are those of the node packages: those of a wheel listen to Python's variables.
    """
    node = machines.registered(settings={"expirationSeconds": HOUR})
    node.program = packaged(tmp_path / "program")
    full = node.program.with_name(f"{node.program.name}-full")
    full.unlink()
    full.write_text(ISOLATED.format(sys.executable), encoding="utf-8")
    full.chmod(0o755)
    node.environment = surroundings
    first = node.call()
    assert (first.status, first.complaint) == (0, "")
    assert node.call().certificate == first.certificate
    renewal = clocks.until(first.credential["expirationTimestamp"])
    node.environment = {**surroundings, **clocks.shifted(renewal + 60)}
    assert node.call().certificate == first.certificate
    background_runs.wait_for_end(node)
    node.environment = surroundings
    assert node.call().certificate != first.certificate
    assert not Path(surroundings["SSLKEYLOGFILE"]).exists()


def test_background_renewal_inherits_nothing(machines: Machines, signer: Signer) -> None:
    """A process that waits for the end of a pipe does not wait for the renewal."""
    node = machines.registered(settings={"expirationSeconds": HOUR})
    renewal = clocks.until(node.call().credential["expirationTimestamp"])
    read_end, write_end = os.pipe()
    environment = {"KUBERNETES_EXEC_INFO": node.exec_info()}
    signer.stop()
    try:
        subprocess.run(
            [PLUGIN],
            env=os.environ | environment | clocks.shifted(renewal + 60),
            pass_fds=[write_end],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        os.close(write_end)
        pid = background_runs.wait_for_one(node)
        readable, _, _ = select.select([read_end], [], [], 60)
        assert readable, "another process still has the pipe open"
        assert os.read(read_end, 1) == b""
        assert background_runs.running(node) == [pid]
        # The last one belongs to libfaketime.
        expected = ("/dev/null", str(node.state), "socket:", "anon_inode:", "/dev/shm/faketime")  # noqa: S108

        def has_only_expected_files_open() -> bool:
            links = opened(pid)
            asks = any(link.startswith("socket:") for link in links)
            return asks and all(link.startswith(expected) for link in links)

        # A module is open for a moment while it is loaded; an inherited file would stay open.
        wait_until(
            has_only_expected_files_open,
            what="the renewal sends a request and has only its own files open",
        )
    finally:
        os.close(read_end)
        signer.start()
    background_runs.wait_for_end(node)


def opened(pid: int) -> list[str]:
    """Return the open files of a process, without those that it closes meanwhile."""
    links = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(str(path.readlink()))
    return links


def test_libraries_of_the_tpm_log_nothing(machines: Machines) -> None:
    """One line of the program replaces the lines of the libraries."""
    node = machines.registered(settings={"tcti": "device:/dev/no-such-tpm"})
    call = node.call()
    assert (call.status, call.output) == (1, "")
    assert call.complaint.startswith("kubelet-authenticator-tpm: TpmUnavailable: ")
    assert call.complaint.count("\n") == 1
