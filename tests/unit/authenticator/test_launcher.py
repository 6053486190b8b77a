"""The launcher: which calls it serves itself, and which modules it imports."""

import contextlib
import json
import os
import posix
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from authenticator import launcher
from authenticator.config.command_line import BACKGROUND_COMMAND
from authenticator.enroll.enroll import Trigger
from authenticator.state import credential as credential_file
from authenticator.state import store
from authenticator.state.credential import Credential, encode, encode_exec_credential
from tests.builders import credentials

PROGRAM = Path(sys.prefix, "bin", "kubelet-authenticator-tpm")
PACKAGED = Path(__file__).parents[3] / "packaging/node/package/kubelet-authenticator-tpm"
"""The launcher of the node packages."""

MODULES = "/usr/lib/kubelet-authenticator-tpm/lib/authenticator"

FULL_PROGRAM_RAN = 77
CALL_A = (b"a".hex().encode(), credentials.EXEC_INFO.hex().encode())
"""The call with the argument "a"."""

BUILT_IN = frozenset(sys.builtin_module_names)


@dataclass(frozen=True)
class Call:
    """One call of the program, with pipes as client-go makes it."""

    directory: Path
    program: Path = PROGRAM

    @property
    def arguments(self) -> tuple[str, ...]:
        return (f"--state-dir={self.directory}",)

    def store(self, credential: Credential) -> None:
        credentials.write_private(self.directory / "credential.pem", encode(credential))

    def fresh(self) -> Credential:
        return credentials.make(int(time.time()) - 10, arguments=self.arguments)

    def run(
        self, *more: str, exec_info: bytes | None = credentials.EXEC_INFO
    ) -> subprocess.CompletedProcess[bytes]:
        environment = {os.fsencode(k): os.fsencode(v) for k, v in os.environ.items()}
        if exec_info is not None:
            environment[b"KUBERNETES_EXEC_INFO"] = exec_info
        return subprocess.run(
            [self.program, *self.arguments, *more],
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )


@pytest.fixture
def call(tmp_path: Path) -> Call:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    return Call(directory)


@pytest.fixture
def launched(call: Call) -> Call:
    """Return a call of the launcher of the node packages, with the module of this checkout.

    Its full program only says that it runs.
    """
    alone = call.directory.parent / PROGRAM.name
    text = PACKAGED.read_text(encoding="utf-8")
    assert MODULES in text
    source = str(Path(launcher.__file__).parent)
    alone.write_text(text.replace(MODULES, source), encoding="utf-8")
    alone.with_name(f"{alone.name}-full").write_text(f"#!/bin/sh\nexit {FULL_PROGRAM_RAN}\n")
    for program in alone.parent.glob(f"{alone.name}*"):
        program.chmod(0o755)
    return Call(call.directory, alone)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[int]:
    """Return the descriptor of a state directory."""
    descriptor = launcher.open_state_directory(str(tmp_path))
    yield descriptor
    os.close(descriptor)


def served(result: subprocess.CompletedProcess[bytes], credential: Credential) -> bool:
    """Return whether exactly this credential was printed, by the launcher or the full program."""
    expires = credential.renew_at
    expected = encode_exec_credential(credential, credential.api_version, expires)
    return (result.returncode, result.stderr, result.stdout) == (0, b"", expected)


def test_launcher_and_full_program_agree_on_the_file() -> None:
    assert launcher.MAGIC == credential_file.MAGIC
    assert launcher.CHECK_MODULUS == credential_file.CHECK_MODULUS
    assert launcher.REPEAT_CALL_SECONDS == store.REPEAT_CALL_SECONDS
    assert launcher.STALE_EXPIRATION_SECONDS == credential_file.STALE_EXPIRATION_SECONDS
    assert launcher.OVERDUE_SECONDS == credential_file.OVERDUE_SECONDS
    assert launcher.LOG_LIMIT == store.LOG_LIMIT
    assert f"{launcher.STATE_DIR}/credential.pem".endswith(store.CREDENTIAL)


def test_fresh_credential_is_printed_as_the_full_program_would(call: Call) -> None:
    credential = call.fresh()
    call.store(credential)
    assert served(call.run(), credential)


def test_script_of_the_node_packages_serves_from_the_cache(launched: Call) -> None:
    credential = launched.fresh()
    launched.store(credential)
    assert served(launched.run(), credential)


def test_cached_path_imports_only_builtin_modules(launched: Call) -> None:
    launched.store(launched.fresh())
    script = Path(launched.directory, "watched.py")
    script.write_text(
        "import sys\n"
        "before = set(sys.modules)\n"
        "import posix\n"
        "leave = posix._exit\n"
        "def print_modules(code):\n"
        "    posix.write(2, ' '.join(set(sys.modules) - before).encode())\n"
        "    leave(code)\n"
        "posix._exit = print_modules\n" + launched.program.read_text(encoding="utf-8"),
        encoding="utf-8",
    )
    result = subprocess.run(
        [sys.executable, "-I", "-S", script, *launched.arguments],
        env={"KUBERNETES_EXEC_INFO": credentials.EXEC_INFO.decode()},
        capture_output=True,
        check=True,
    )
    assert json.loads(result.stdout)
    assert set(result.stderr.decode().split()) <= BUILT_IN | {"launcher"}


def test_state_directory_of_the_exec_extension_is_used(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    for separator in (":", ": "):
        text = '{"spec":{"cluster":{"config":{"stateDir"' + separator + f'"{directory}"' + "}}}}"
        assert launcher.state_dir([], text.encode()) == str(directory)
    assert launcher.state_dir([], b"{}") == launcher.STATE_DIR
    assert launcher.state_dir(["--state-dir", "/x"], b'{"stateDir":"/y"}') == "/x"


def left_to_the_full_program(result: subprocess.CompletedProcess[bytes]) -> bool:
    """Return whether the launcher printed nothing and became the full program."""
    return (result.returncode, result.stdout, result.stderr) == (FULL_PROGRAM_RAN, b"", b"")


def test_another_exec_info_is_not_served(launched: Call) -> None:
    launched.store(launched.fresh())
    assert left_to_the_full_program(launched.run(exec_info=credentials.EXEC_INFO + b" "))


def test_no_exec_info_is_not_served(call: Call) -> None:
    call.store(call.fresh())
    result = call.run(exec_info=None)
    assert result.returncode == 2
    assert b"KUBERNETES_EXEC_INFO is not set" in result.stderr
    assert result.stderr.count(b"\n") == 1


def test_other_arguments_are_left_to_the_full_program(launched: Call) -> None:
    launched.store(launched.fresh())
    assert left_to_the_full_program(launched.run("--timeout-seconds=5"))


@pytest.fixture
def due(launched: Call) -> Call:
    """Return a call whose credential has just become due for renewal."""
    launched.store(late_by(1, launched))
    return launched


def late_by(seconds: int, call: Call) -> Credential:
    """Return a credential whose renewal is due for this time."""
    template = credentials.make(0)
    received = int(time.time()) - template.renew_at - seconds
    return credentials.make(received, arguments=call.arguments)


def test_due_credential_is_printed_before_its_renewal_starts(due: Call) -> None:
    """The renewal has its own session and streams: client-go waits for the end of its pipes."""
    report = due.directory.parent / "report"
    os.mkfifo(report)
    full = due.program.with_name(f"{due.program.name}-full")
    full.write_text(
        f"""#!/bin/sh
streams=$(readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2)
session=$(cut -d ' ' -f 6 /proc/$$/stat)
printf '%s\\n' "$*" "$streams" "$session" $$ > '{report}'
"""
    )
    before = time.time()
    result = due.run()
    credential = credential_file.decode((due.directory / "credential.pem").read_bytes())
    earliest, latest = (
        credential_file.rfc3339(credential_file.expiration_timestamp(credential, now))
        for now in (before, time.time())
    )
    arguments, stdin, stdout, stderr, session, pid = report.read_text().splitlines()
    assert (result.returncode, result.stderr) == (0, b"")
    status = json.loads(result.stdout)["status"]
    assert status["clientKeyData"] == credential.key_pair.key.decode()
    assert earliest <= status["expirationTimestamp"] <= latest
    assert arguments.split() == [BACKGROUND_COMMAND, Trigger.RENEWAL_DUE.value, *due.arguments]
    assert (stdin, stdout) == ("/dev/null", "/dev/null")
    assert stderr == str(due.directory / "background.log")
    assert session == pid != str(os.getpid())


def test_overdue_credential_is_left_to_the_full_program(launched: Call) -> None:
    """It writes why into the kubelet's log. Runs that were killed left no record of a failure."""
    launched.store(late_by(launcher.OVERDUE_SECONDS + 1, launched))
    assert left_to_the_full_program(launched.run())


def test_due_credential_is_left_to_the_full_program_when_the_log_is_full(due: Call) -> None:
    credentials.write_private(due.directory / "background.log", bytes(launcher.LOG_LIMIT + 1))
    assert left_to_the_full_program(due.run())


def test_link_in_place_of_the_background_log_is_not_followed(due: Call) -> None:
    credentials.write_private(due.directory / "target", b"untouched")
    (due.directory / "background.log").symlink_to(due.directory / "target")
    assert left_to_the_full_program(due.run())
    assert (due.directory / "target").read_bytes() == b"untouched"


@pytest.mark.parametrize("mode", [0o640, 0o602])
def test_background_log_that_others_may_use_is_left_to_the_full_program(
    due: Call, mode: int
) -> None:
    credentials.write_private(due.directory / "background.log", b"")
    (due.directory / "background.log").chmod(mode)
    assert left_to_the_full_program(due.run())


@pytest.mark.parametrize("stderr", [subprocess.PIPE, Path("/dev/full")], ids=["pipe", "full disk"])
def test_due_credential_is_served_when_its_renewal_cannot_start(
    due: Call, stderr: int | Path
) -> None:
    """A script without permission to execute it cannot be started again."""
    due.program.chmod(0o600)
    with contextlib.ExitStack() as stack:
        result = subprocess.run(
            [sys.executable, "-IS", due.program, *due.arguments],
            env={"KUBERNETES_EXEC_INFO": credentials.EXEC_INFO.decode()},
            stdout=subprocess.PIPE,
            stderr=stack.enter_context(stderr.open("w")) if isinstance(stderr, Path) else stderr,
            check=True,
        )
    assert json.loads(result.stdout)["status"]["clientKeyData"] == credentials.KEY.decode()
    if stderr == subprocess.PIPE:
        expected = b"no background run can be started: Permission denied\n"
        assert result.stderr.endswith(expected)


@pytest.mark.parametrize("left", [1.5, 2, 60, 119, 120, 121, 130, 3600])
@pytest.mark.parametrize("fraction", [0, 0.25])
def test_due_credential_gets_the_expiration_that_the_full_program_gives(
    left: float, fraction: float
) -> None:
    credential = credentials.make(1_800_000_000, arguments=("a",))
    now = credential.not_after - left - fraction
    printed, late = launcher.render(encode(credential), CALL_A, now)
    expires = credential_file.expiration_timestamp(credential, now)
    assert printed == encode_exec_credential(credential, credential.api_version, expires)
    assert late == now - credential.renew_at


@pytest.mark.parametrize("left", [1, 0.5, 0, -1])
def test_credential_at_its_end_is_left_to_the_full_program(left: float) -> None:
    credential = credentials.make(1_800_000_000, arguments=("a",))
    with pytest.raises(ValueError, match=r"^$"):
        launcher.render(encode(credential), CALL_A, credential.not_after - left)


def spoil_byte(path: Path) -> None:
    """Change one bit in the key."""
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(content)


def replace_by_link(path: Path) -> None:
    path.symlink_to(path.rename(path.with_suffix(".elsewhere")))


def replace_by_pipe(path: Path) -> None:
    """Replace the file by a pipe, which blocks a reader without O_NONBLOCK."""
    path.unlink()
    os.mkfifo(path, 0o600)


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


SPOILERS: dict[str, Callable[[Path], object]] = {
    "absent": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "damaged": spoil_byte,
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "writable by others": lambda path: path.chmod(0o620),
    "a link": replace_by_link,
    "a pipe": replace_by_pipe,
    "a directory": replace_by_directory,
    "another user's": lambda path: os.chown(path, 65534, 65534),
}


@pytest.mark.parametrize("spoiler", SPOILERS)
def test_damaged_or_unsafe_file_is_not_served(launched: Call, spoiler: str) -> None:
    launched.store(launched.fresh())
    SPOILERS[spoiler](launched.directory / "credential.pem")
    assert left_to_the_full_program(launched.run())


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601])
def test_file_is_read_only_when_it_is_private(opened: int, tmp_path: Path, mode: int) -> None:
    credentials.write_private(tmp_path / "x", b"content")
    assert launcher.read_private(opened, "x") == b"content"
    (tmp_path / "x").chmod(mode)
    with pytest.raises(ValueError, match=r"^$"):
        launcher.read_private(opened, "x")


def test_file_is_read_up_to_its_limit(opened: int, tmp_path: Path) -> None:
    credentials.write_private(tmp_path / "x", bytes(launcher.SIZE_LIMIT))
    credentials.write_private(tmp_path / "y", bytes(launcher.SIZE_LIMIT + 1))
    assert len(launcher.read_private(opened, "x")) == launcher.SIZE_LIMIT
    with pytest.raises(ValueError, match=r"^$"):
        launcher.read_private(opened, "y")


def test_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(NotADirectoryError):
        launcher.open_state_directory(str(tmp_path / "x"))


def test_credential_is_served_from_its_receipt_and_to_its_call() -> None:
    credential = credentials.make(1_800_000_000, arguments=("a", "b"))
    content, expected_call = (
        encode(credential),
        (b"a\0b".hex().encode(), credential.exec_info.hex().encode()),
    )
    begin = credential.received_at - credential_file.CLOCK_SKEW_SECONDS
    expected = encode_exec_credential(credential, credential.api_version, credential.renew_at)
    for now in (begin, credential.renew_at - 1):
        late = now - credential.renew_at
        assert launcher.render(content, expected_call, now) == (expected, late)
    other = content.replace(launcher.MAGIC, launcher.MAGIC[:-1] + b"2")
    for file, call, now in (
        (content, expected_call, begin - 1),
        (content, (b"ab".hex().encode(), expected_call[1]), begin),
        (content, (expected_call[0], b"7b7d"), begin),
        (other, expected_call, begin),
    ):
        with pytest.raises(ValueError, match=r"^$"):
            launcher.render(file, call, now)


@pytest.mark.parametrize("mode", [0o640, 0o644])
def test_file_that_others_could_read_is_served_with_a_warning_and_closed(
    call: Call, mode: int
) -> None:
    """Issue 11, point 22: the launcher leaves such a file to the full program."""
    credential = credentials.make(
        int(time.time()) - 10, arguments=call.arguments, exec_info=credentials.WITH_CA
    )
    call.store(credential)
    path = call.directory / "credential.pem"
    path.chmod(mode)
    result = call.run(exec_info=credentials.WITH_CA)
    assert result.returncode == 0
    assert json.loads(result.stdout)["status"]["clientKeyData"] == credentials.KEY.decode()
    assert b"others could read it" in result.stderr
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_link_in_place_of_the_directory_is_not_followed(launched: Call) -> None:
    launched.store(launched.fresh())
    replace_by_link(launched.directory)
    assert left_to_the_full_program(launched.run())


def note(call: Call, parent: int, ago: int) -> None:
    text = b"%d %d\n" % (parent, int(time.time()) - ago)
    credentials.write_private(call.directory / "served", text)


def test_first_call_is_noted(call: Call) -> None:
    call.store(call.fresh())
    call.run()
    parent, at = (call.directory / "served").read_bytes().split()
    assert int(parent) == os.getpid()
    assert abs(int(at) - time.time()) < 30


def test_other_callers_suppress_the_detection_of_a_401(
    opened: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 11, point 28: 0 of 196 were detected while kubectl ran every 10 s."""
    kubelet, kubectl = os.getpid(), 2**22 + 1  # the last one is above every process ID
    for parent in (kubelet, *range(kubectl, kubectl + 200)):
        monkeypatch.setattr(posix, "getppid", lambda parent=parent: parent)
        assert not launcher.is_repeat_call(opened, 1000)
    assert (tmp_path / "served").stat().st_size <= 2 * launcher.NOTES_LIMIT
    monkeypatch.setattr(posix, "getppid", lambda: kubelet)
    assert launcher.is_repeat_call(opened, 1100)


def test_note_is_private_with_any_umask(opened: int, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert launcher.is_repeat_call(opened, 1000) is False
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "served").stat().st_mode) == 0o600


def test_link_in_place_of_the_note_is_not_followed(opened: int, tmp_path: Path) -> None:
    credentials.write_private(tmp_path / "target", b"untouched")
    (tmp_path / "served").symlink_to(tmp_path / "target")
    assert launcher.is_repeat_call(opened, 1000) is False
    assert (tmp_path / "target").read_bytes() == b"untouched"


@pytest.mark.parametrize(
    ("ago", "again"),
    [(0, False), (launcher.REPEAT_CALL_SECONDS, False), (launcher.REPEAT_CALL_SECONDS + 1, True)],
)
def test_note_counts_only_for_its_duration(opened: int, ago: int, *, again: bool) -> None:
    launcher.is_repeat_call(opened, 1000)
    assert launcher.is_repeat_call(opened, 1000 + ago) is again
    assert launcher.is_repeat_call(opened, 999) is True, "the clock was set back"


def test_same_parent_is_served_again_at_once(call: Call) -> None:
    credential = call.fresh()
    call.store(credential)
    assert served(call.run(), credential)
    assert served(call.run(), credential)


@pytest.mark.parametrize("ago", [launcher.REPEAT_CALL_SECONDS + 30, -3600])
def test_second_call_of_the_same_parent_after_ten_seconds_is_suspicious(
    launched: Call, ago: int
) -> None:
    launched.store(launched.fresh())
    note(launched, os.getpid(), ago)
    assert left_to_the_full_program(launched.run())


def test_another_parent_is_not_suspicious(call: Call) -> None:
    call.store(call.fresh())
    note(call, 1, 3600)
    assert call.run().returncode == 0


@pytest.mark.parametrize("note_text", [b"", b"junk", b"\0" * 64])
def test_unreadable_note_does_not_stop_the_call(call: Call, note_text: bytes) -> None:
    call.store(call.fresh())
    credentials.write_private(call.directory / "served", note_text)
    assert call.run().returncode == 0


def test_unwritable_note_does_not_stop_the_call(call: Call) -> None:
    call.store(call.fresh())
    (call.directory / "served").mkdir()
    assert call.run().returncode == 0


def test_full_program_gets_no_variables_of_python_or_openssl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "program")
    calls: list[tuple[str, list[str], dict[str, str]]] = []

    def execve(path: str, arguments: list[str], environment: dict[str, str]) -> None:
        calls.append((path, arguments, environment))

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "link"), "status", "--output=json"])
    dropped = ("PYTHONPATH", "PYTHONSTARTUP", "OPENSSL_CONF", "OPENSSL_MODULES", "SSL_CERT_FILE")
    given = {**dict.fromkeys(dropped, "/x"), "A_PYTHON": "1", "PATH": "/bin"}
    monkeypatch.setattr(os, "environ", given)
    launcher.exec_full_program()
    program = str(tmp_path / "program-full")
    environment = {"A_PYTHON": "1", "PATH": "/bin"}
    assert calls == [(program, [program, "status", "--output=json"], environment)]


def test_closed_stdout_is_reported_in_one_line(call: Call) -> None:
    call.store(call.fresh())
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as stdout:
        result = subprocess.run(
            [PROGRAM, *call.arguments],
            env={"KUBERNETES_EXEC_INFO": credentials.EXEC_INFO.decode()},
            stdout=stdout,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert result.returncode == 1
    expected = b"kubelet-authenticator-tpm: cannot print the credential: Broken pipe\n"
    assert result.stderr == expected


def test_full_program_is_found_through_a_link(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(PROGRAM)
    result = subprocess.run([link, "--version"], capture_output=True, check=True)
    assert result.stdout.startswith(b"kubelet-authenticator-tpm ")


def test_first_line_names_an_interpreter_that_an_upgrade_keeps() -> None:
    """Issue 11, point 27: the name python3.11 is gone after an upgrade of the distribution."""
    assert PACKAGED.read_bytes().startswith(b"#!/usr/bin/python3 -IS\n")


def test_missing_full_program_is_reported(tmp_path: Path) -> None:
    alone = tmp_path / "kubelet-authenticator-tpm"
    alone.write_bytes(PROGRAM.read_bytes())
    alone.chmod(0o755)
    result = subprocess.run([alone], capture_output=True, check=False)
    assert (result.returncode, result.stdout) == (1, b"")
    assert b"reinstall" in result.stderr
