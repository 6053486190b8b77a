"""The state directory: reads files only if they are safe, and replaces them as a whole.

The directory is opened once and every file is opened through its descriptor, so renaming it or
putting links into it has no effect. A file is used only if it is a regular file of this user that
no other user may write. A file that others may read is used with a warning, and its mode becomes
0600: only this program can have written its content. In a directory of another user, files of this
user are read, but no file is written. The first write closes a directory that others can read or
write; reading changes nothing about a directory. A file is replaced by one rename after its
bytes are on disk, and the directory is synced after that: a kill or a power cut leaves the old file
or the new one.
"""

import contextlib
import fcntl
import logging
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

SIZE_LIMIT: Final = 16 * 1024 * 1024
"""Bytes; the largest file holds four pending exchanges with event logs, 3 MiB each."""

LOCK_POLL_SECONDS: Final = 0.05
FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
_SAFE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Links are not followed, children do not inherit the file, and opening a pipe does not block."""

_logger = logging.getLogger(__name__)


class StateDirectory:
    """An open state directory."""

    __slots__ = ("_fd", "_is_own", "path")

    def __init__(self, path: Path) -> None:
        """Open the directory; create it with mode 0700 if it does not exist.

        Raises `StateDirectoryUnsafe` if it is a link, and `StateDirectoryUnwritable`.
        """
        self.path = path
        try:
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=DIRECTORY_MODE)
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if path.is_symlink():
                raise StateDirectoryUnsafe(
                    f"state directory {path} is a link: set stateDir to the directory it leads to"
                ) from error
            raise StateDirectoryUnwritable(f"state directory {path}: {error.strerror}") from error
        self._is_own = os.fstat(self._fd).st_uid == os.geteuid()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, None if it does not exist. Raises `StateCorrupted` if unsafe."""
        try:
            fd = os.open(name, os.O_RDONLY | _SAFE, dir_fd=self._fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateCorrupted(f"{self.path / name}: {error.strerror}") from error
        try:
            self._require_own_file(name, fd)
            with os.fdopen(fd, "rb", closefd=False) as file:
                content = file.read(SIZE_LIMIT + 1)
        except OSError as error:
            raise StateCorrupted(f"{self.path / name}: {error.strerror}") from error
        finally:
            os.close(fd)
        if len(content) > SIZE_LIMIT:
            raise StateCorrupted(f"{self.path / name}: larger than any file of this program")
        return content

    def write_atomic(self, name: str, content: bytes) -> None:
        """Replace a file by one with this content. Raises `StateDirectoryUnwritable`.

        The caller holds the lock: the temporary file always has the same name.
        Raises `StateDirectoryUnsafe`.
        """
        self._require_private()
        try:
            _replace(self._fd, name, content)
        except OSError as error:
            raise StateDirectoryUnwritable(f"{self.path / name}: {error.strerror}") from error

    def rename(self, name: str, new: str) -> None:
        """Give a file another name, if it is there.

        Raises `StateDirectoryUnsafe`, `StateDirectoryUnwritable`.
        """
        self._require_private()
        try:
            with contextlib.suppress(FileNotFoundError):
                os.rename(name, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            os.fsync(self._fd)
        except OSError as error:
            raise StateDirectoryUnwritable(f"{self.path / name}: {error.strerror}") from error

    def remove(self, name: str) -> None:
        """Remove a file if it is there.

        Raises `StateDirectoryUnsafe`, `StateDirectoryUnwritable`.
        """
        self._require_private()
        try:
            _unlink(self._fd, name)
            os.fsync(self._fd)
        except OSError as error:
            raise StateDirectoryUnwritable(f"{self.path / name}: {error.strerror}") from error

    def open_log(self, name: str, limit: int) -> int:
        """Open a log for appending and return its descriptor.

        A log over `limit` bytes is first renamed to `<name>.1`.
        Raises `StateDirectoryUnsafe`, `StateDirectoryUnwritable`.
        """
        self._require_private()
        try:
            with contextlib.suppress(FileNotFoundError):
                if os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_size > limit:
                    os.rename(name, name + ".1", src_dir_fd=self._fd, dst_dir_fd=self._fd)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _SAFE
            fd = os.open(name, flags, FILE_MODE, dir_fd=self._fd)
        except OSError as error:
            raise StateDirectoryUnwritable(f"{self.path / name}: {error.strerror}") from error
        try:
            self._require_own_file(name, fd)
        except StateCorrupted as error:
            os.close(fd)
            raise StateDirectoryUnwritable(error.message) from error
        return fd

    @contextlib.contextmanager
    def lock(self, name: str, clock: Clock, deadline: Deadline) -> Iterator[None]:
        """Hold the lock; wait for it until the deadline.

        Raises `DeadlinePassed`, `StateDirectoryUnsafe`, `StateDirectoryUnwritable`.

        The kernel releases it when its holder exits. The file stays: removing it would let two
        processes hold two locks of one name.
        """
        self._require_private()
        flags = os.O_RDWR | os.O_CREAT | _SAFE
        try:
            fd = os.open(name, flags, FILE_MODE, dir_fd=self._fd)
        except OSError as error:
            raise StateDirectoryUnwritable(f"{self.path / name}: {error.strerror}") from error
        with os.fdopen(fd):
            while not self._try_lock(name, fd):
                if deadline.remaining() <= 0:
                    raise DeadlinePassed("another call still runs the exchange")
                clock.sleep(LOCK_POLL_SECONDS)
            yield

    def _try_lock(self, name: str, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:  # for example ENOLCK on NFS
            raise StateDirectoryUnwritable(
                f"{self.path / name} cannot be locked: {error.strerror}; put the state directory"
                " on a local disk"
            ) from error
        return True

    def require_own(self) -> None:
        """Require that the directory is this user's. Raises `StateDirectoryUnsafe`."""
        if not self._is_own:
            raise StateDirectoryUnsafe(
                f"state directory {self.path} belongs to another user: remove it, or check its"
                f" content and then run chown {os.geteuid()} and chmod 0700"
            )

    def mode(self) -> int:
        """Return the permissions of the directory."""
        return stat.S_IMODE(os.fstat(self._fd).st_mode)

    def _require_private(self) -> None:
        """Require that the directory is this user's, and give it the mode 0700.

        Another user who could write to it could move files, but not write one that is used here:
        used files belong to this user. Raises `StateDirectoryUnsafe`.
        """
        self.require_own()
        mode = self.mode()
        if mode & 0o022:
            _logger.warning(
                "state directory %s: others could write to it (mode %04o); now it has mode 0700",
                self.path,
                mode,
            )
        if mode & 0o077:
            with contextlib.suppress(OSError):  # on a read-only disk: each file is checked as well
                os.fchmod(self._fd, DIRECTORY_MODE)

    def _require_own_file(self, name: str, fd: int) -> None:
        """Require a regular file that only this user could have written; close it to readers."""
        status = os.fstat(fd)
        is_own_file = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if not is_own_file or status.st_mode & 0o022:
            raise StateCorrupted(
                f"{self.path / name}: must be a regular file of this user that no other user can"
                " write"
            )
        if status.st_mode & 0o077:
            _logger.warning(
                "%s: others could read it (mode %04o); now it has mode 0600",
                self.path / name,
                stat.S_IMODE(status.st_mode),
            )
            with contextlib.suppress(OSError):
                os.fchmod(fd, FILE_MODE)


def write_file_atomic(path: Path, content: bytes) -> None:
    """Replace a private file in a directory that is not the state directory. Raises `OSError`."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _replace(directory, path.name, content)
    finally:
        os.close(directory)


def _replace(directory: int, name: str, content: bytes) -> None:
    new = name + ".new"
    try:
        _unlink(directory, new)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, FILE_MODE, dir_fd=directory)
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(fd)
        os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
        os.fsync(directory)
    except OSError:
        with contextlib.suppress(OSError):
            _unlink(directory, new)
        raise


def _unlink(directory: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
