"""One contract for the store, over the fake and the folder; then what only a folder can meet."""

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from authenticator.errors import (
    DeadlinePassed,
    StateCorrupted,
    StateDirectoryUnsafe,
    StateDirectoryUnwritable,
)
from authenticator.model import Cooldown, Deadline, PendingExchange
from authenticator.state.directory import (
    LOCK_POLL_SECONDS,
    SIZE_LIMIT,
    StateDirectory,
    write_file_atomic,
)
from authenticator.state.store import (
    LOG_LIMIT,
    REPEAT_CALL_SECONDS,
    FileStore,
    Store,
    with_checksum,
)
from tests.builders import credentials
from tests.fakes.clock import FakeClock
from tests.fakes.store import FakeStore

PENDING = PendingExchange(
    fingerprint="digest",
    boot_id="boot-1",
    started_at=12.5,
    offer_name="kubelet-tpm-1",
    answer_name="kubelet-tpm-2",
    key=b"key",
    offer=b"offer",
    offer_uid=None,
    challenge=None,
    challenge_seen=None,
    answer=None,
)
ANSWERED = replace(
    PENDING, offer_uid="uid", challenge='{"a": "ä"}', challenge_seen=13.0, answer=b"\x00\xff"
)
COOLDOWN = Cooldown(
    boot_id="boot-1", until=99.5, failures=2, reason="Denied", message="no", fingerprint="digest"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the state folder will be."""
    return tmp_path / "state"


@pytest.fixture
def folder(path: Path) -> Iterator[StateDirectory]:
    """Return an open state folder."""
    with StateDirectory(path) as opened:
        yield opened


@pytest.fixture
def clock() -> FakeClock:
    """Return a clock."""
    return FakeClock()


@pytest.fixture
def folder_store(folder: StateDirectory, clock: FakeClock) -> FileStore:
    """Return the store in the folder."""
    return FileStore(folder, clock)


@pytest.fixture(params=["fake", "folder"])
def store(request: pytest.FixtureRequest, folder_store: FileStore) -> Store:
    """Return each kind of store."""
    return FakeStore() if request.param == "fake" else folder_store


def test_nothing_is_there_at_first(store: Store) -> None:
    assert store.load_credential() is None
    assert store.load_pending() is None
    assert store.load_cooldown() is None


def test_what_is_kept_is_there_again(store: Store) -> None:
    credential = credentials.make(1_800_000_000)
    store.save_credential(credential)
    store.save_cooldown(COOLDOWN)
    assert store.load_credential() == credential
    assert store.load_cooldown() == COOLDOWN
    for pending in (PENDING, ANSWERED):
        store.save_pending(pending)
        assert store.load_pending() == pending


def test_what_is_dropped_is_gone(store: Store) -> None:
    for _ in range(2):
        store.save_pending(PENDING)
        store.delete_pending()
        store.delete_pending()
        store.save_cooldown(COOLDOWN)
        store.save_cooldown(None)
        store.save_cooldown(None)
    assert store.load_pending() is None
    assert store.load_cooldown() is None


def test_lock_is_one_callers_alone(store: Store, clock: FakeClock) -> None:
    with store.lock(Deadline(clock, 1)):
        before = clock.boottime()
        with pytest.raises(DeadlinePassed), store.lock(Deadline(clock, 1)):
            pass
        assert clock.boottime() - before < 2
    with store.lock(Deadline(clock, 1)):
        pass


def test_everything_is_private_and_nothing_is_left_over(
    path: Path, folder_store: FileStore, clock: FakeClock
) -> None:
    before = os.umask(0)
    try:
        with folder_store.lock(Deadline(clock, 1)):
            folder_store.save_credential(credentials.make(0))
            folder_store.save_pending(PENDING)
            folder_store.append_run_record({})
            os.close(folder_store.background_log())
            folder_store.is_repeat_call(1, 1)
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
    """Stand for a call of the system that fails."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_folder_is_private_from_its_first_moment(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fchmod", fail)
    before = os.umask(0)
    try:
        with StateDirectory(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_folder_that_cannot_be_closed_to_readers_is_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fchmod", fail)
    path.mkdir(mode=0o755)
    with StateDirectory(path) as opened:
        assert opened.read("x") is None


def test_waiting_for_the_lock_lasts_until_the_deadline(
    folder_store: FileStore, clock: FakeClock
) -> None:
    with folder_store.lock(Deadline(clock, 1)):
        before = clock.boottime()
        with pytest.raises(DeadlinePassed), folder_store.lock(Deadline(clock, 1)):
            pass
        assert 1 <= clock.boottime() - before < 1 + 2 * LOCK_POLL_SECONDS


def test_lock_that_is_given_back_is_taken(
    folder_store: FileStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = folder_store.lock(Deadline(clock, 1))
    first.__enter__()
    monkeypatch.setattr(clock, "sleep", lambda _: first.__exit__(None, None, None))
    with folder_store.lock(Deadline(clock, 1)):
        pass


def link(path: Path) -> None:
    """Put a link to the same content in its place."""
    path.symlink_to(path.rename(path.with_suffix(".elsewhere")))


def pipe(path: Path) -> None:
    """Put a pipe in its place."""
    path.unlink()
    os.mkfifo(path, 0o600)


def directory(path: Path) -> None:
    """Put a folder in its place."""
    path.unlink()
    path.mkdir()


SPOILERS: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-2]),
    "no JSON": lambda path: path.write_bytes(b"\xff"),
    "another kind": lambda path: path.write_bytes(b"[]"),
    "another version": lambda path: path.write_bytes(with_checksum({"format": 2})),
    "without a checksum": lambda path: path.write_bytes(b'{"format": 1}'),
    "too large": lambda path: path.write_bytes(b" " * (SIZE_LIMIT + 1)),
    "readable by others": lambda path: path.chmod(0o604),
    "another user's": lambda path: os.chown(path, 65534, 65534),
    "a link": link,
    "a pipe": pipe,
    "a folder": directory,
}


@pytest.mark.parametrize("spoiler", SPOILERS)
def test_what_is_damaged_or_unsafe_is_absent(
    path: Path, folder_store: FileStore, spoiler: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder_store.save_credential(credentials.make(0))
    folder_store.save_pending(PENDING)
    folder_store.save_cooldown(COOLDOWN)
    for name in ("credential.pem", "pending.json", "cooldown.json"):
        SPOILERS[spoiler](path / name)
    assert folder_store.load_credential() is None
    assert folder_store.load_pending() is None
    assert folder_store.load_cooldown() is None
    assert len(caplog.messages) == 3, "each is told"
    assert "key" not in " ".join(caplog.messages)


def test_exchange_with_one_wrong_bit_anywhere_is_absent(
    path: Path, folder_store: FileStore
) -> None:
    """It could be JSON still: its offer would fail again and again until it is too old."""
    folder_store.save_pending(ANSWERED)
    whole = (path / "pending.json").read_bytes()
    for position in range(len(whole)):
        content = bytearray(whole)
        content[position] ^= 1
        (path / "pending.json").write_bytes(content)
        assert folder_store.load_pending() is None


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_is_too_odd(path: Path, folder_store: FileStore, data: st.DataObject) -> None:
    folder_store.save_pending(ANSWERED)
    content = bytearray((path / "pending.json").read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position : position + data.draw(st.integers(0, 20))] = data.draw(st.binary())
    (path / "pending.json").write_bytes(content)
    folder_store.load_pending()


def test_what_is_damaged_is_replaced(path: Path, folder_store: FileStore) -> None:
    for spoil in (link, pipe, lambda p: p.write_bytes(b"x")):
        folder_store.save_pending(PENDING)
        spoil(path / "pending.json")
        folder_store.save_pending(ANSWERED)
        assert folder_store.load_pending() == ANSWERED


def test_link_is_not_written_through(path: Path, folder_store: FileStore, tmp_path: Path) -> None:
    target = tmp_path / "target"
    credentials.write_private(target, b"untouched")
    for name in ("pending.json", "pending.json.new", "runs.jsonl", "background.log"):
        (path / name).symlink_to(target)
    folder_store.save_pending(PENDING)
    with pytest.raises(StateDirectoryUnwritable):
        folder_store.append_run_record({})
    with pytest.raises(StateDirectoryUnwritable):
        folder_store.background_log()
    assert target.read_text(encoding="ascii") == "untouched"


def test_leftover_of_a_kill_is_in_nobodys_way(path: Path, folder_store: FileStore) -> None:
    (path / "credential.pem.new").write_bytes(b"half")
    folder_store.save_credential(credentials.make(0))
    assert not (path / "credential.pem.new").exists()


def test_folder_of_others_is_refused(path: Path) -> None:
    path.mkdir(mode=0o700)
    os.chown(path, 65534, 65534)
    with pytest.raises(StateDirectoryUnsafe, match="chown"):
        StateDirectory(path)


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_folder_that_others_may_write_to_is_refused(path: Path, mode: int) -> None:
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(StateDirectoryUnsafe):
        StateDirectory(path)


@pytest.mark.parametrize("mode", [0o740, 0o710, 0o704, 0o701, 0o755])
def test_folder_that_others_may_only_read_is_closed_to_them(path: Path, mode: int) -> None:
    path.mkdir()
    path.chmod(mode)
    with StateDirectory(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_link_to_a_folder_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateDirectoryUnsafe, match="is a link"):
        StateDirectory(path)


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo], ids=["file", "pipe"])
def test_what_is_no_folder_is_told(path: Path, make: Callable[[Path], object]) -> None:
    make(path)
    with pytest.raises(StateDirectoryUnwritable, match="Not a directory"):
        StateDirectory(path)


def test_folder_without_a_parent_is_told(tmp_path: Path) -> None:
    with pytest.raises(StateDirectoryUnwritable, match="No such file"):
        StateDirectory(tmp_path / "a" / "b")


def test_folder_exchanged_behind_us_leads_nowhere(
    path: Path, folder_store: FileStore, tmp_path: Path
) -> None:
    path.rename(tmp_path / "moved")
    path.mkdir()
    folder_store.save_pending(PENDING)
    assert not list(path.iterdir())
    assert (tmp_path / "moved" / "pending.json").exists()


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename"])
def test_disk_that_fails_leaves_the_old_file(
    folder_store: FileStore, call: str, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    folder_store.save_pending(PENDING)
    with monkeypatch.context() as patched:
        if call == "write":
            patched.setattr(os, "fdopen", fail)
        else:
            patched.setattr(os, call, fail)
        with pytest.raises(StateDirectoryUnwritable, match="No space left"):
            folder_store.save_pending(ANSWERED)
    assert folder_store.load_pending() == PENDING
    assert not (path / "pending.json.new").exists()


def test_folder_in_the_place_of_a_file_is_told(
    path: Path, folder_store: FileStore, clock: FakeClock
) -> None:
    for name in ("pending.json", "exchange.lock"):
        (path / name).mkdir()
    with pytest.raises(StateDirectoryUnwritable, match=r"pending\.json"):
        folder_store.delete_pending()
    with (
        pytest.raises(StateDirectoryUnwritable, match=r"exchange\.lock"),
        folder_store.lock(Deadline(clock, 1)),
    ):
        pass


def test_disk_that_cannot_be_read_is_damage(
    folder: StateDirectory, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials.write_private(path / "x", b"x")
    monkeypatch.setattr(os, "fdopen", fail)
    with pytest.raises(StateCorrupted, match="No space left"):
        folder.read("x")


def test_file_is_on_disk_before_its_name_and_its_name_before_the_call_ends(
    folder: StateDirectory, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut leaves an empty file in the place of the old one."""
    done: list[object] = []
    sync, rename, unlink = os.fsync, os.rename, os.unlink

    def synced(fd: int) -> None:
        found = os.fstat(fd)
        done.append("folder" if stat.S_ISDIR(found.st_mode) else found.st_size)
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
    folder.write_atomic("x", b"four")
    assert done == [4, "rename", "folder"]
    done.clear()
    folder.remove("x")
    assert done == ["unlink", "folder"]
    assert not list(path.iterdir())


def descriptors() -> set[tuple[str, str]]:
    """Return what is open in this process, by number and what it is."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that looked for them, or another thread's
            found.add((path.name, str(path.readlink())))
    return found


def test_no_descriptor_stays_open(path: Path, clock: FakeClock, tmp_path: Path) -> None:
    before = descriptors()
    with StateDirectory(path) as folder:
        store = FileStore(folder, clock)
        store.save_credential(credentials.make(0))
        store.load_credential()
        (path / "credential.pem").chmod(0o644)
        store.load_credential()
        write_file_atomic(tmp_path / "kubelet.conf", b"x")
        (path / "runs.jsonl").touch(mode=0o644)
        with pytest.raises(StateDirectoryUnwritable):
            store.append_run_record({})
        with store.lock(Deadline(clock, 1)):
            pass
    path.chmod(0o777)
    with pytest.raises(StateDirectoryUnsafe):
        StateDirectory(path)
    # A server of an earlier test may have closed its last connection meanwhile.
    assert descriptors() <= before


def test_new_credential_removes_the_mark(path: Path, folder_store: FileStore) -> None:
    folder_store.is_repeat_call(5, 100)
    folder_store.save_credential(credentials.make(0))
    assert not (path / "served").exists()


def test_same_parent_is_suspicious_after_a_while(folder_store: FileStore) -> None:
    now = 1000
    assert not folder_store.is_repeat_call(5, now)
    assert not folder_store.is_repeat_call(5, now + REPEAT_CALL_SECONDS)
    assert folder_store.is_repeat_call(5, now + REPEAT_CALL_SECONDS + 1)
    assert not folder_store.is_repeat_call(5, now + REPEAT_CALL_SECONDS + 2), "marked again"
    assert folder_store.is_repeat_call(5, now), "the clock went back"
    assert not folder_store.is_repeat_call(6, now)


def test_runs_are_bounded_and_the_last_ones_stay(path: Path, folder_store: FileStore) -> None:
    record = {"message": "x" * 1000}
    for number in range(400):
        folder_store.append_run_record({**record, "number": number})
    sizes = [entry.stat().st_size for entry in path.iterdir() if entry.name.startswith("runs")]
    assert len(sizes) == 2
    assert (path / "runs.jsonl.1").exists()
    assert max(sizes) < LOG_LIMIT + 2000
    assert folder_store.run_records()[-1]["number"] == 399


def test_broken_record_hides_no_other(path: Path, folder_store: FileStore) -> None:
    folder_store.append_run_record({"number": 1})
    with (path / "runs.jsonl").open("ab") as file:
        file.write(b'{"half\n[]\n')
    folder_store.append_run_record({"number": 2})
    assert folder_store.run_records() == [{"number": 1}, {"number": 2}]


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601])
def test_file_of_others_is_damaged_for_who_reads_it(
    folder: StateDirectory, path: Path, mode: int
) -> None:
    (path / "x").write_bytes(b"x")
    (path / "x").chmod(0o600)
    assert folder.read("x") == b"x"
    (path / "x").chmod(mode)
    with pytest.raises(StateCorrupted):
        folder.read("x")


def test_pipe_is_damaged_for_who_reads_it(folder: StateDirectory, path: Path) -> None:
    os.mkfifo(path / "x", 0o600)
    with pytest.raises(StateCorrupted, match="not a private, regular file"):
        folder.read("x")


def test_pipe_that_somebody_reads_is_no_log(folder: StateDirectory, path: Path) -> None:
    os.mkfifo(path / "x", 0o600)
    reader = os.open(path / "x", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(StateDirectoryUnwritable, match="not a private, regular file"):
            folder.open_log("x", LOG_LIMIT)
    finally:
        os.close(reader)


def test_log_that_others_may_read_is_not_written(folder: StateDirectory, path: Path) -> None:
    (path / "x").touch(mode=0o600)
    os.close(folder.open_log("x", LOG_LIMIT))
    (path / "x").chmod(0o604)
    with pytest.raises(StateDirectoryUnwritable, match="not a private, regular file"):
        folder.open_log("x", LOG_LIMIT)


def test_log_of_two_at_once_keeps_both(folder: StateDirectory, path: Path) -> None:
    """A descriptor is what a detached run gets, and another may begin meanwhile."""
    first, second = folder.open_log("x", LOG_LIMIT), folder.open_log("x", LOG_LIMIT)
    for fd in (first, second):
        os.write(fd, b"%d" % (fd == second))
        os.close(fd)
    assert (path / "x").read_bytes() == b"01"


def test_link_to_a_full_log_is_no_log(folder: StateDirectory, path: Path, tmp_path: Path) -> None:
    (tmp_path / "full").write_bytes(bytes(5000))
    (path / "x").symlink_to(tmp_path / "full")
    with pytest.raises(StateDirectoryUnwritable):
        folder.open_log("x", 4096)


def test_log_is_begun_anew_when_it_is_over_its_limit(folder: StateDirectory, path: Path) -> None:
    for content, is_kept in ((b"xx", False), (b"xxx", True)):
        credentials.write_private(path / "x", content)
        os.close(folder.open_log("x", 2))
        assert (path / "x.1").exists() is is_kept


def test_link_in_the_place_of_the_lock_is_not_followed(
    path: Path, folder_store: FileStore, clock: FakeClock, tmp_path: Path
) -> None:
    (path / "exchange.lock").symlink_to(tmp_path / "target")
    with pytest.raises(StateDirectoryUnwritable), folder_store.lock(Deadline(clock, 1)):
        pass
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("size", [SIZE_LIMIT, SIZE_LIMIT + 1])
def test_file_is_read_up_to_its_limit(folder: StateDirectory, path: Path, size: int) -> None:
    credentials.write_private(path / "x", bytes(size))
    if size > SIZE_LIMIT:
        with pytest.raises(StateCorrupted, match="larger"):
            folder.read("x")
    else:
        assert folder.read("x") == bytes(size)


@pytest.mark.parametrize("mark", [b"5 soon", b"5", b"\xff"])
def test_mark_that_cannot_be_read_is_no_sign(
    path: Path, folder_store: FileStore, mark: bytes
) -> None:
    credentials.write_private(path / "served", mark)
    assert folder_store.is_repeat_call(5, 1000) is False


def test_mark_that_is_unsafe_or_cannot_be_written_is_no_sign(
    path: Path, folder_store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_store.is_repeat_call(5, 1000)
    (path / "served").chmod(0o604)
    assert folder_store.is_repeat_call(5, 2000) is False
    (path / "served").chmod(0o600)
    monkeypatch.setattr(os, "rename", fail)
    assert folder_store.is_repeat_call(5, 2000) is False


@pytest.mark.parametrize(("since", "again"), [(1000, False), (1001, True), (989, True)])
def test_mark_counts_for_its_time_alone(
    folder_store: FileStore, since: int, *, again: bool
) -> None:
    folder_store.is_repeat_call(5, since)
    assert folder_store.is_repeat_call(5, 1000) is again


def test_records_of_runs_that_others_may_read_are_left_out(
    path: Path, folder_store: FileStore
) -> None:
    folder_store.append_run_record({"number": 1})
    (path / "runs.jsonl").chmod(0o644)
    assert folder_store.run_records() == []


def test_record_that_is_nested_without_end_hides_no_other(
    path: Path, folder_store: FileStore
) -> None:
    credentials.write_private(path / "runs.jsonl", b"[" * 100_000 + b"\n")
    folder_store.append_run_record({"number": 1})
    assert folder_store.run_records() == [{"number": 1}]


def rewritten(path: Path, **change: object) -> None:
    """Write a file again with one change, whole by its checksum."""
    members = json.loads(path.read_bytes())
    del members["check"]
    members |= change
    path.write_bytes(with_checksum({k: v for k, v in members.items() if v is not ...}))


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
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
def test_exchange_that_is_whole_and_says_something_else_is_absent(
    path: Path, folder_store: FileStore, change: dict[str, object]
) -> None:
    folder_store.save_pending(ANSWERED)
    rewritten(path / "pending.json")
    assert folder_store.load_pending() == ANSWERED
    rewritten(path / "pending.json", **change)
    assert folder_store.load_pending() is None


@pytest.mark.parametrize("change", [{"format": 2}, {"until": ...}, {"failures": "2"}])
def test_cooldown_that_is_whole_and_says_something_else_is_absent(
    path: Path, folder_store: FileStore, change: dict[str, object]
) -> None:
    folder_store.save_cooldown(COOLDOWN)
    rewritten(path / "cooldown.json")
    assert folder_store.load_cooldown() == COOLDOWN
    rewritten(path / "cooldown.json", **change)
    assert folder_store.load_cooldown() is None


def test_what_was_never_there_is_not_complained_about(
    folder_store: FileStore, caplog: pytest.LogCaptureFixture
) -> None:
    assert folder_store.load_pending() is None
    assert folder_store.load_cooldown() is None
    assert caplog.messages == []
