"""What the steps of a rehearsal share: the built versions, the authority, what keeps running."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.harness import pki

OLD: Final = "0.1.0"
NEW: Final = "0.1.1"
VERSIONS: Final = (OLD, NEW)
HOST: Final = "127.0.0.1"
# The artifacts name these places, so the ports cannot be chosen when the servers start.
REGISTRY: Final = f"{HOST}:19443"
SITE: Final = f"https://{HOST}:19444"
"""Serves `Stage.site`: the files of each version in /vVERSION/, the repositories of packages."""

T = TypeVar("T")


class Stage:
    """One rehearsal. `stack` ends what its steps have started."""

    def __init__(self, directory: Path, stack: ExitStack, *, as_built: bool) -> None:
        """Keep all files in a directory. With `as_built`, an earlier commit may have built them."""
        self.directory = directory
        self.as_built = as_built
        self.stack = stack
        self._work = 0
        self._shared: dict[Callable[[Stage], Any], Any] = {}

    def once(self, make: Callable[["Stage"], T]) -> T:
        """Return what a function makes, which all steps share."""
        if make not in self._shared:
            self._shared[make] = make(self)
        shared: T = self._shared[make]
        return shared

    def source(self, version: str) -> Path:
        """Return the clone in which a version is built."""
        return self.directory / version

    def dist(self, version: str) -> Path:
        """Return the directory with the artifacts of a version."""
        return self.source(version) / "dist"

    def new_directory(self, name: str) -> Path:
        """Return a new directory for the files of one step."""
        self._work += 1
        path = self.directory / "work" / f"{self._work:02}-{name}"
        path.mkdir(parents=True)
        return path

    @cached_property
    def site(self) -> Path:
        """The directory that `SITE` serves."""
        return self.new_directory("site")

    @cached_property
    def authority(self) -> pki.Authority:
        """The authority that every server of the rehearsal has a certificate of."""
        return pki.Authority.make("rehearsal", pki.ec_key())

    @cached_property
    def authority_file(self) -> Path:
        """The certificate of the authority, as the trust store of all clients."""
        path = self.new_directory("authority") / "ca.crt"
        path.write_bytes(self.authority.pair.certificate)
        return path

    def server_files(self, directory: Path) -> tuple[Path, Path]:
        """Write certificate and key of a server on loopback. Return both paths."""
        pair = self.authority.server("localhost", HOST)
        certificate, key = directory / "tls.crt", directory / "tls.key"
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        return certificate, key
