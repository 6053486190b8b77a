"""The contract of the store, for the fake and the files; then cases that only files have."""

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from authenticator.errors import (
    DeadlinePassed,
    StateCorrupted,
    StateDirectoryUnsafe,
    StateDirectoryUnwritable,
)
from authenticator.model import EXCHANGE_TTL_SECONDS, Cooldown, Deadline
from authenticator.state import store as store_module
from authenticator.state.directory import (
    LOCK_POLL_SECONDS,
    SIZE_LIMIT,
    StateDirectory,
    write_file_atomic,
)
from authenticator.state.entries import FORMAT
from authenticator.state.run_record import RunRecorder
from authenticator.state.store import (
    LOG_LIMIT,
    MAX_ENTRIES,
    MAX_SERVED_PROCESSES,
    REPEAT_CALL_SECONDS,
    FileStore,
)
from tests.builders import credentials
from tests.builders.pending_exchange import PENDING
from tests.fakes.clock import FakeClock
from tests.fakes.store import FakeStore

ANSWERED = replace(
    PENDING, offer_uid="uid", challenge='{"a": "ä"}', challenge_seen=13.0, answer=b"\x00\xff"
)
COOLDOWN = Cooldown(
    boot_id="boot-1",
    until=99.5,
    failures=2,
    reason="Denied",
    message="no",
    fingerprint="digest",
    clock_offset=0.5,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the state directory, which does not exist yet."""
    return tmp_path / "state"


@pytest.fixture
def state_directory(path: Path) -> Iterator[StateDirectory]:
    with StateDirectory(path) as opened:
        yield opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def file_store(state_directory: StateDirectory, clock: FakeClock) -> FileStore:
    return FileStore(state_directory, clock)


@pytest.fixture(params=["fake", "files"])
def store(request: pytest.FixtureRequest, file_store: FileStore) -> FileStore:
    """Return each kind of store."""
    return cast("FileStore", FakeStore()) if request.param == "fake" else file_store


def test_new_store_is_empty(store: FileStore, caplog: pytest.LogCaptureFixture) -> None:
    assert store.load_credential() is None
    assert store.load_pending("digest") is None
    assert store.load_cooldown("digest") is None
    assert caplog.messages == [], "a missing file is no problem"


def test_saved_values_are_loaded(store: FileStore) -> None:
    credential = credentials.make(1_800_000_000)
    store.save_credential(credential)
    store.save_cooldown(COOLDOWN)
    assert store.load_credential() == credential
    assert store.load_cooldown("digest") == COOLDOWN
    for pending in (PENDING, ANSWERED):
        store.save_pending(pending)
        assert store.load_pending("digest") == pending


def test_deleted_values_are_gone(store: FileStore) -> None:
    for _ in range(2):
        store.save_pending(PENDING)
        store.delete_pending("digest")
        store.delete_pending("digest")
        store.save_cooldown(COOLDOWN)
        store.delete_cooldowns()
        store.delete_cooldowns()
    assert store.load_pending("digest") is None
    assert store.load_cooldown("digest") is None


def test_entries_of_several_fingerprints_are_kept(store: FileStore) -> None:
    other = replace(PENDING, fingerprint="other")
    store.save_pending(PENDING)
    store.save_pending(other)
    store.save_cooldown(COOLDOWN)
    store.save_cooldown(replace(COOLDOWN, fingerprint="other"))
    assert store.load_pending("digest") == PENDING
    assert store.load_pending("other") == other
    assert store.load_cooldown("digest") == COOLDOWN
    store.delete_pending("other")
    assert store.load_pending("other") is None
    assert store.load_pending("digest") == PENDING


def test_key_of_a_completed_exchange_is_deleted_from_disk(
    path: Path, file_store: FileStore, clock: FakeClock
) -> None:
    file_store.save_pending(PENDING)
    clock.pass_time(EXCHANGE_TTL_SECONDS)
    later = replace(PENDING, fingerprint="later", started_at=clock.boottime(), key=b"later")
    file_store.save_pending(later)
    assert file_store.pending_exchanges() == [later]
    clock.reboot()
    file_store.delete_pending("digest")
    assert not (path / "pending.json").exists()


def test_number_of_entries_is_bounded_and_the_newest_are_kept(file_store: FileStore) -> None:
    for number in range(MAX_ENTRIES + 2):
        file_store.save_pending(replace(PENDING, fingerprint=str(number)))
        file_store.save_cooldown(replace(COOLDOWN, fingerprint=str(number)))
    newest = [str(number) for number in range(2, MAX_ENTRIES + 2)]
    assert [pending.fingerprint for pending in file_store.pending_exchanges()] == newest
    assert [cooldown.fingerprint for cooldown in file_store.cooldowns()] == newest


def test_lock_has_one_holder(store: FileStore, clock: FakeClock) -> None:
    with store.lock(Deadline(clock, 1)):
        before = clock.boottime()
        with pytest.raises(DeadlinePassed), store.lock(Deadline(clock, 1)):
            pass
        assert clock.boottime() - before < 1 + 2 * LOCK_POLL_SECONDS
    with store.lock(Deadline(clock, 1)):
        pass


def test_all_files_are_private_and_no_temporary_file_remains(
    path: Path, file_store: FileStore, clock: FakeClock
) -> None:
    before = os.umask(0)
    try:
        with file_store.lock(Deadline(clock, 1)):
            file_store.save_credential(credentials.make(0))
            file_store.save_pending(PENDING)
            file_store.append_run_record({})
            os.close(file_store.background_log())
            file_store.is_repeat_call(1, 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.iterdir()}
    assert set(modes.values()) == {0o600}
    assert sorted(modes) == [
        "background.log",
        "credential.pem",
        "exchange.lock",
        "pending.json",
        "runs.jsonl",
        "served",
    ]


def fail(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_directory_is_created_private(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fchmod", fail)
    before = os.umask(0)
    try:
        with StateDirectory(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_directory_whose_mode_cannot_be_changed_is_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fchmod", fail)
    path.mkdir(mode=0o755)
    with StateDirectory(path) as opened:
        assert opened.read("x") is None


def test_released_lock_is_acquired(
    file_store: FileStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = file_store.lock(Deadline(clock, 1))
    first.__enter__()
    monkeypatch.setattr(clock, "sleep", lambda _: first.__exit__(None, None, None))
    with file_store.lock(Deadline(clock, 1)):
        pass


def link(path: Path) -> None:
    path.symlink_to(path.rename(path.with_suffix(".elsewhere")))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


SPOILERS: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-2]),
    "not JSON": lambda path: path.write_bytes(b"\xff"),
    "another kind": lambda path: path.write_bytes(b"[]"),
    "another version": lambda path: path.write_bytes(b'{"format": 1, "entries": []}'),
    "entries of another kind": lambda path: path.write_bytes(b'{"format": 2, "entries": [[]]}'),
    "too large": lambda path: path.write_bytes(b" " * (SIZE_LIMIT + 1)),
    "writable by others": lambda path: path.chmod(0o602),
    "another user's": lambda path: os.chown(path, 65534, 65534),
    "a link": link,
    "a pipe": pipe,
    "a directory": directory,
}


@pytest.mark.parametrize("spoiler", SPOILERS)
def test_damaged_or_unsafe_file_is_ignored(
    path: Path, file_store: FileStore, spoiler: str, caplog: pytest.LogCaptureFixture
) -> None:
    file_store.save_credential(credentials.make(0))
    file_store.save_pending(PENDING)
    file_store.save_cooldown(COOLDOWN)
    for name in ("credential.pem", "pending.json", "cooldown.json"):
        SPOILERS[spoiler](path / name)
    assert file_store.load_credential() is None
    assert file_store.load_pending("digest") is None
    assert file_store.load_cooldown("digest") is None
    assert len(caplog.messages) == 3, "each is logged"
    assert "key" not in " ".join(caplog.messages)


def test_damaged_file_is_replaced(path: Path, file_store: FileStore) -> None:
    for spoil in (link, pipe, lambda p: p.write_bytes(b"x")):
        file_store.save_pending(PENDING)
        spoil(path / "pending.json")
        file_store.save_pending(ANSWERED)
        assert file_store.load_pending("digest") == ANSWERED


def test_link_is_not_written_through(path: Path, file_store: FileStore, tmp_path: Path) -> None:
    target = tmp_path / "target"
    credentials.write_private(target, b"untouched")
    for name in ("pending.json", "pending.json.new", "runs.jsonl", "background.log"):
        (path / name).symlink_to(target)
    file_store.save_pending(PENDING)
    with pytest.raises(StateDirectoryUnwritable):
        file_store.append_run_record({})
    with pytest.raises(StateDirectoryUnwritable):
        file_store.background_log()
    assert target.read_text(encoding="ascii") == "untouched"


def test_temporary_file_of_a_killed_call_is_replaced(path: Path, file_store: FileStore) -> None:
    (path / "credential.pem.new").write_bytes(b"half")
    file_store.save_credential(credentials.make(0))
    assert not (path / "credential.pem.new").exists()


def test_file_system_without_locks_is_an_error_with_a_remedy(
    file_store: FileStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network file systems have none."""

    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        pytest.raises(StateDirectoryUnwritable, match=r"No locks available; put .* local disk"),
        file_store.lock(Deadline(clock, 1)),
    ):
        pass


def test_directory_of_another_user_is_read_and_not_written(path: Path, clock: FakeClock) -> None:
    with StateDirectory(path) as opened:
        FileStore(opened, clock).save_credential(credentials.make(0))
    os.chown(path, 65534, 65534)
    with StateDirectory(path) as opened:
        store = FileStore(opened, clock)
        assert store.load_credential() == credentials.make(0)
        assert not store.is_repeat_call(1, 0)
        for write in (
            lambda: store.save_credential(credentials.make(1)),
            store.delete_cooldowns,
            store.background_log,
            store.lock(Deadline(clock, 1)).__enter__,
        ):
            with pytest.raises(StateDirectoryUnsafe, match="chown"):
                write()
    assert [file.name for file in path.iterdir()] == ["credential.pem"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o720, 0o702, 0o777])
def test_directory_mode_0770_throws_the_certificate_away(
    path: Path, clock: FakeClock, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 11, point 22: others could move files there, but not write one of this user."""
    with StateDirectory(path) as opened:
        FileStore(opened, clock).save_credential(credentials.make(0))
    path.chmod(mode)
    with StateDirectory(path) as opened:
        store = FileStore(opened, clock)
        assert store.load_credential() == credentials.make(0)
        assert stat.S_IMODE(path.stat().st_mode) == mode, "status and doctor change nothing"
        assert not store.is_repeat_call(1, 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert f"others could write to it (mode {mode:04o})" in caplog.text


@pytest.mark.parametrize("mode", [0o640, 0o644, 0o610, 0o601])
def test_file_mode_0640_throws_the_certificate_away(
    path: Path, file_store: FileStore, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 11, point 22: others could read it, but not write it."""
    file_store.save_credential(credentials.make(0))
    (path / "credential.pem").chmod(mode)
    assert file_store.load_credential() == credentials.make(0)
    assert stat.S_IMODE((path / "credential.pem").stat().st_mode) == 0o600
    assert f"others could read it (mode {mode:04o})" in caplog.text


@pytest.mark.parametrize("mode", [0o740, 0o710, 0o704, 0o701, 0o755])
def test_directory_that_others_can_read_is_closed_to_them(
    path: Path, clock: FakeClock, mode: int
) -> None:
    path.mkdir()
    path.chmod(mode)
    with StateDirectory(path) as opened, FileStore(opened, clock).lock(Deadline(clock, 1)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_link_to_a_directory_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateDirectoryUnsafe, match="is a link"):
        StateDirectory(path)


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo], ids=["file", "pipe"])
def test_path_that_is_no_directory_is_reported(path: Path, make: Callable[[Path], object]) -> None:
    make(path)
    with pytest.raises(StateDirectoryUnwritable, match="Not a directory"):
        StateDirectory(path)


def test_directory_without_a_parent_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StateDirectoryUnwritable, match="No such file"):
        StateDirectory(tmp_path / "a" / "b")


def test_directory_is_still_used_after_it_was_renamed(
    path: Path, file_store: FileStore, tmp_path: Path
) -> None:
    path.rename(tmp_path / "moved")
    path.mkdir()
    file_store.save_pending(PENDING)
    assert not list(path.iterdir())
    assert (tmp_path / "moved" / "pending.json").exists()


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename"])
def test_old_file_is_kept_when_the_disk_fails(
    file_store: FileStore, call: str, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    file_store.save_pending(PENDING)
    with monkeypatch.context() as patched:
        if call == "write":
            patched.setattr(os, "fdopen", fail)
        else:
            patched.setattr(os, call, fail)
        with pytest.raises(StateDirectoryUnwritable, match="No space left"):
            file_store.save_pending(ANSWERED)
    assert file_store.load_pending("digest") == PENDING
    assert not (path / "pending.json.new").exists()


def test_directory_in_place_of_a_file_is_reported(
    path: Path, file_store: FileStore, clock: FakeClock
) -> None:
    for name in ("pending.json", "exchange.lock"):
        (path / name).mkdir()
    with pytest.raises(StateDirectoryUnwritable, match=r"pending\.json"):
        file_store.delete_pending("digest")
    with (
        pytest.raises(StateDirectoryUnwritable, match=r"exchange\.lock"),
        file_store.lock(Deadline(clock, 1)),
    ):
        pass


def test_unreadable_disk_counts_as_damage(
    state_directory: StateDirectory, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials.write_private(path / "x", b"x")
    monkeypatch.setattr(os, "fdopen", fail)
    with pytest.raises(StateCorrupted, match="No space left"):
        state_directory.read("x")


def test_file_and_then_its_directory_are_synced_to_disk(
    state_directory: StateDirectory, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power cut could replace the old file by an empty one."""
    done: list[object] = []
    sync, rename, unlink = os.fsync, os.rename, os.unlink

    def synced(fd: int) -> None:
        status = os.fstat(fd)
        done.append("directory" if stat.S_ISDIR(status.st_mode) else status.st_size)
        sync(fd)

    def renamed(old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        done.append("rename")
        rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def unlinked(name: str, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        done.append("unlink")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    monkeypatch.setattr(os, "unlink", unlinked)
    state_directory.write_atomic("x", b"four")
    assert done == [4, "rename", "directory"]
    done.clear()
    state_directory.remove("x")
    assert done == ["unlink", "directory"]
    assert not list(path.iterdir())


def descriptors() -> set[tuple[str, str]]:
    """Return the open descriptors of this process: number and target."""
    result = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of this directory, or another thread's
            result.add((path.name, str(path.readlink())))
    return result


def test_no_descriptor_stays_open(path: Path, clock: FakeClock, tmp_path: Path) -> None:
    before = descriptors()
    with StateDirectory(path) as opened:
        store = FileStore(opened, clock)
        store.save_credential(credentials.make(0))
        store.load_credential()
        (path / "credential.pem").chmod(0o622)
        store.load_credential()
        write_file_atomic(tmp_path / "kubelet.conf", b"x")
        (path / "runs.jsonl").touch()
        (path / "runs.jsonl").chmod(0o622)
        with pytest.raises(StateDirectoryUnwritable):
            store.append_run_record({})
        with store.lock(Deadline(clock, 1)):
            pass
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    with pytest.raises(StateDirectoryUnsafe):
        StateDirectory(path)
    # The server of an earlier test may close its last connection during this test.
    assert descriptors() <= before


def test_new_credential_resets_the_served_processes(path: Path, file_store: FileStore) -> None:
    file_store.is_repeat_call(5, 100)
    file_store.save_credential(credentials.make(0))
    assert not (path / "served").exists()


def test_credential_is_stored_although_the_served_processes_cannot_be_reset(
    path: Path, file_store: FileStore
) -> None:
    """It was reported as not stored, and its exchange stayed."""
    (path / "served").mkdir()
    file_store.save_credential(credentials.make(0))
    assert file_store.load_credential() == credentials.make(0)


def test_second_call_of_a_process_is_a_repeat_call_after_ten_seconds(file_store: FileStore) -> None:
    now = 1000
    assert not file_store.is_repeat_call(5, now)
    assert not file_store.is_repeat_call(5, now + REPEAT_CALL_SECONDS)
    assert file_store.is_repeat_call(5, now + REPEAT_CALL_SECONDS + 1)
    assert not file_store.is_repeat_call(5, now + REPEAT_CALL_SECONDS + 2), "marked again"
    assert file_store.is_repeat_call(5, now), "the clock was set back"
    assert not file_store.is_repeat_call(6, now)


def test_start_of_a_run_that_has_ended_is_not_another_run(file_store: FileStore) -> None:
    clock = FakeClock()
    for result in ("done", None, "failed"):
        run = RunRecorder(clock, "needed", file_store.append_run_record)
        with run.phase("offer"):
            clock.pass_time(1)
        if result is not None:
            file_store.append_run_record(run.record(result))
    assert [run["result"] for run in file_store.run_records()] == ["done", "started", "failed"]


def test_number_of_run_records_is_bounded_and_the_newest_are_kept(
    path: Path, file_store: FileStore
) -> None:
    record = {"message": "x" * 1000}
    for number in range(400):
        file_store.append_run_record({**record, "number": number})
    sizes = [entry.stat().st_size for entry in path.iterdir() if entry.name.startswith("runs")]
    assert len(sizes) == 2
    assert (path / "runs.jsonl.1").exists()
    assert max(sizes) < LOG_LIMIT + 2000
    assert file_store.run_records()[-1]["number"] == 399


def test_damaged_record_does_not_hide_the_others(path: Path, file_store: FileStore) -> None:
    file_store.append_run_record({"number": 1})
    with (path / "runs.jsonl").open("ab") as file:
        file.write(b'{"half\n[]\n')
    file_store.append_run_record({"number": 2})
    assert file_store.run_records() == [{"number": 1}, {"number": 2}]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o622, 0o666])
def test_file_that_others_could_have_written_is_not_read(
    state_directory: StateDirectory, path: Path, mode: int
) -> None:
    (path / "x").write_bytes(b"x")
    (path / "x").chmod(0o600)
    assert state_directory.read("x") == b"x"
    (path / "x").chmod(mode)
    with pytest.raises(StateCorrupted):
        state_directory.read("x")


def test_pipe_with_a_reader_is_not_used_as_a_log(
    state_directory: StateDirectory, path: Path
) -> None:
    os.mkfifo(path / "x", 0o600)
    reader = os.open(path / "x", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(StateDirectoryUnwritable, match="must be a regular file of this user"):
            state_directory.open_log("x", LOG_LIMIT)
    finally:
        os.close(reader)


def test_log_that_others_can_write_is_not_used(state_directory: StateDirectory, path: Path) -> None:
    (path / "x").touch(mode=0o600)
    os.close(state_directory.open_log("x", LOG_LIMIT))
    (path / "x").chmod(0o602)
    with pytest.raises(StateDirectoryUnwritable, match="must be a regular file of this user"):
        state_directory.open_log("x", LOG_LIMIT)


def test_two_writers_of_a_log_append(state_directory: StateDirectory, path: Path) -> None:
    """A background run gets a descriptor of the log, and a second run may start meanwhile."""
    first, second = (
        state_directory.open_log("x", LOG_LIMIT),
        state_directory.open_log("x", LOG_LIMIT),
    )
    for fd in (first, second):
        os.write(fd, b"%d" % (fd == second))
        os.close(fd)
    assert (path / "x").read_bytes() == b"01"


def test_link_to_a_full_log_is_not_used_as_a_log(
    state_directory: StateDirectory, path: Path, tmp_path: Path
) -> None:
    (tmp_path / "full").write_bytes(bytes(5000))
    (path / "x").symlink_to(tmp_path / "full")
    with pytest.raises(StateDirectoryUnwritable):
        state_directory.open_log("x", 4096)


def test_log_over_its_limit_is_rotated(state_directory: StateDirectory, path: Path) -> None:
    for content, is_kept in ((b"xx", False), (b"xxx", True)):
        credentials.write_private(path / "x", content)
        os.close(state_directory.open_log("x", 2))
        assert (path / "x.1").exists() is is_kept


def test_link_in_place_of_the_lock_is_not_followed(
    path: Path, file_store: FileStore, clock: FakeClock, tmp_path: Path
) -> None:
    (path / "exchange.lock").symlink_to(tmp_path / "target")
    with pytest.raises(StateDirectoryUnwritable), file_store.lock(Deadline(clock, 1)):
        pass
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("size", [SIZE_LIMIT, SIZE_LIMIT + 1])
def test_file_is_read_up_to_its_limit(
    state_directory: StateDirectory, path: Path, size: int
) -> None:
    credentials.write_private(path / "x", bytes(size))
    if size > SIZE_LIMIT:
        with pytest.raises(StateCorrupted, match="larger"):
            state_directory.read("x")
    else:
        assert state_directory.read("x") == bytes(size)


@pytest.mark.parametrize("note", [b"5 soon", b"5", b"\xff"])
def test_unreadable_note_shows_no_401_and_is_replaced(
    path: Path, file_store: FileStore, note: bytes
) -> None:
    credentials.write_private(path / "served", note)
    assert file_store.is_repeat_call(5, 1000) is False
    assert (path / "served").read_bytes() == b"5 1000\n"


def test_other_callers_suppress_the_detection_of_a_401(file_store: FileStore) -> None:
    """Issue 11, point 28: 0 of 196 were detected while kubectl ran every 10 s."""
    kubelet, kubectl = os.getpid(), 2**22 + 1  # the last one is above every process ID
    assert not file_store.is_repeat_call(kubelet, 1000)
    for number in range(200):
        file_store.is_repeat_call(kubectl + number, 1000 + number)
    assert file_store.is_repeat_call(kubelet, 1200)


def test_number_of_served_processes_is_bounded(
    path: Path, file_store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_is_running", lambda _: True)
    for number in range(MAX_SERVED_PROCESSES + 9):
        file_store.is_repeat_call(number, 1000)
    lines = (path / "served").read_bytes().splitlines()
    assert lines == [b"%d 1000" % n for n in range(9, MAX_SERVED_PROCESSES + 9)]


def test_unsafe_or_unwritable_note_shows_no_401(
    path: Path, file_store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_store.is_repeat_call(5, 1000)
    (path / "served").chmod(0o602)
    assert file_store.is_repeat_call(5, 2000) is False
    (path / "served").chmod(0o600)
    monkeypatch.setattr(os, "rename", fail)
    assert file_store.is_repeat_call(5, 2000) is False


@pytest.mark.parametrize(("since", "again"), [(1000, False), (1001, True), (989, True)])
def test_note_is_ignored_for_ten_seconds(file_store: FileStore, since: int, *, again: bool) -> None:
    file_store.is_repeat_call(5, since)
    assert file_store.is_repeat_call(5, 1000) is again


def test_run_records_that_others_could_have_written_are_ignored(
    path: Path, file_store: FileStore
) -> None:
    file_store.append_run_record({"number": 1})
    (path / "runs.jsonl").chmod(0o622)
    assert file_store.run_records() == []


def test_deeply_nested_record_does_not_hide_the_others(path: Path, file_store: FileStore) -> None:
    credentials.write_private(path / "runs.jsonl", b"[" * 100_000 + b"\n")
    file_store.append_run_record({"number": 1})
    assert file_store.run_records() == [{"number": 1}]


def rewrite(path: Path, **change: object) -> None:
    """Rewrite a file of entries with one change in its first entry."""
    document = json.loads(path.read_bytes())
    document["format"] = change.pop("format", document["format"])
    entry = document["entries"][0] | change
    document["entries"][0] = {k: v for k, v in entry.items() if v is not ...}
    path.write_text(json.dumps({k: v for k, v in document.items() if v is not ...}))


@pytest.mark.parametrize(
    "change",
    [
        {"format": FORMAT + 1},
        {"format": ...},
        {"key": ...},
        {"key": 5},
        {"key": None},
        {"key": "!"},
        {"key": "QQ==!"},
        {"answer": 5},
        {"offer_uid": 5},
        {"started_at": "12.5"},
        {"boot_id": ...},
    ],
)
def test_exchange_with_a_wrong_field_is_ignored(
    path: Path, file_store: FileStore, change: dict[str, object]
) -> None:
    file_store.save_pending(ANSWERED)
    rewrite(path / "pending.json")
    assert file_store.load_pending("digest") == ANSWERED
    rewrite(path / "pending.json", **change)
    assert file_store.load_pending("digest") is None


@pytest.mark.parametrize("change", [{"format": FORMAT + 1}, {"until": ...}, {"failures": "2"}])
def test_cooldown_with_a_wrong_field_is_ignored(
    path: Path, file_store: FileStore, change: dict[str, object]
) -> None:
    file_store.save_cooldown(COOLDOWN)
    rewrite(path / "cooldown.json")
    assert file_store.load_cooldown("digest") == COOLDOWN
    rewrite(path / "cooldown.json", **change)
    assert file_store.load_cooldown("digest") is None
