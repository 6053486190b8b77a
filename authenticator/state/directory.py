"""A folder of this user's own: files are read when they are safe, and replaced as a whole.

The folder is opened once and everything in it is reached through it, so that exchanging it, or
putting links in it, leads nowhere. A file counts only when it is a regular one of this user that
nobody else may read. It is replaced by one rename after its bytes are on disk, and the folder is
synced after that: a kill or a power cut leaves the old file or the new one.
"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from authenticator.errors import (
    DeadlinePassed,
    StateCorrupted,
    StateDirectoryUnsafe,
    StateDirectoryUnwritable,
)
from authenticator.model import Clock, Deadline

SIZE_LIMIT: Final = 4 * 1024 * 1024
"""Bytes; the largest file is a pending exchange with an event log, at most twice 1.5 MiB."""

LOCK_POLL_SECONDS: Final = 0.05
PRIVATE: Final = 0o600
_SAFE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""No links are followed, nothing is inherited, and a pipe put there makes nobody wait."""


class StateDirectory:
    """An open folder."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path) -> None:
        """Open the folder, made with mode 0700 when there is none.

        Raises StateDirectoryUnsafe, StateDirectoryUnwritable.
        """
        self.path = path
        try:
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if path.is_symlink():
                raise StateDirectoryUnsafe(
                    f"state folder {path} is a link: name the folder that it leads to (stateDir)"
                ) from error
            raise StateDirectoryUnwritable(f"state folder {path}: {error.strerror}") from error
        try:
            self._require_own()
        except BaseException:
            os.close(self._fd)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, None when there is none. Raises StateCorrupted when it is unsafe."""
        try:
            fd = os.open(name, os.O_RDONLY | _SAFE, dir_fd=self._fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateCorrupted(f"{self.path / name}: {error.strerror}") from error
        try:
            self._require_private(name, fd)
            with os.fdopen(fd, "rb", closefd=False) as file:
                content = file.read(SIZE_LIMIT + 1)
        except OSError as error:
            raise StateCorrupted(f"{self.path / name}: {error.strerror}") from error
        finally:
            os.close(fd)
        if len(content) > SIZE_LIMIT:
            raise StateCorrupted(f"{self.path / name}: larger than anything that is kept there")
        return content

    def write_atomic(self, name: str, content: bytes) -> None:
        """Put `content` in place of a file, at once. Raises StateDirectoryUnwritable.

        Only for who holds the lock: the new file has one name while it is written.
        """
        try:
            _replace(self._fd, name, content)
        except OSError as error:
            raise StateDirectoryUnwritable(f"{self.path / name}: {error.strerror}") from error

    def remove(self, name: str) -> None:
        """Remove a file if it is there. Raises StateDirectoryUnwritable."""
        try:
            _discard(self._fd, name)
            os.fsync(self._fd)
        except OSError as error:
            raise StateDirectoryUnwritable(f"{self.path / name}: {error.strerror}") from error

    def open_log(self, name: str, limit: int) -> int:
        """Open a log for appending, begun anew when over `limit` bytes; return its descriptor.

        The one before stays as `<name>.1`. Raises StateDirectoryUnwritable.
        """
        try:
            with contextlib.suppress(FileNotFoundError):
                if os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_size > limit:
                    os.rename(name, name + ".1", src_dir_fd=self._fd, dst_dir_fd=self._fd)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _SAFE
            fd = os.open(name, flags, PRIVATE, dir_fd=self._fd)
        except OSError as error:
            raise StateDirectoryUnwritable(f"{self.path / name}: {error.strerror}") from error
        try:
            self._require_private(name, fd)
        except StateCorrupted as error:
            os.close(fd)
            raise StateDirectoryUnwritable(error.message) from error
        return fd

    @contextlib.contextmanager
    def lock(self, name: str, clock: Clock, deadline: Deadline) -> Iterator[None]:
        """Hold the lock; wait for it until the deadline. Raises DeadlinePassed.

        The kernel gives it back when its holder dies. The file stays: removing it would let two
        processes hold two locks of one name.
        """
        flags = os.O_RDWR | os.O_CREAT | _SAFE
        try:
            fd = os.open(name, flags, PRIVATE, dir_fd=self._fd)
        except OSError as error:
            raise StateDirectoryUnwritable(f"{self.path / name}: {error.strerror}") from error
        with os.fdopen(fd):
            while not _locked(fd):
                if deadline.remaining() <= 0:
                    raise DeadlinePassed("another call is still at the exchange")
                clock.sleep(LOCK_POLL_SECONDS)
            yield

    def _require_own(self) -> None:
        found = os.fstat(self._fd)
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise StateDirectoryUnsafe(
                f"state folder {self.path}: others may write to it, or it is another user's;"
                f" remove it, or after a look: chown {os.geteuid()} and chmod 0700"
            )
        if found.st_mode & 0o077:
            with contextlib.suppress(OSError):  # every file in it is private as well
                os.fchmod(self._fd, 0o700)

    def _require_private(self, name: str, fd: int) -> None:
        found = os.fstat(fd)
        own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        if not own or found.st_mode & 0o077:
            raise StateCorrupted(f"{self.path / name}: not a private, regular file of this user")


def write_file_atomic(path: Path, content: bytes) -> None:
    """Put a private file in the place of another, in a folder that is not ours. Raises OSError."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _replace(folder, path.name, content)
    finally:
        os.close(folder)


def _replace(folder: int, name: str, content: bytes) -> None:
    new = name + ".new"
    try:
        _discard(folder, new)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, PRIVATE, dir_fd=folder)
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(fd)
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except OSError:
        with contextlib.suppress(OSError):
            _discard(folder, new)
        raise


def _discard(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
