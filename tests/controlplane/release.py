"""Downloads official release binaries and verifies their published checksums."""

import hashlib
import platform
import tarfile
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from tests.controlplane.pins import Pin
from tests.controlplane.progress import Heartbeat, say

# For connecting and for each read. Short, because a build follows when the site cannot be reached.
TIMEOUT = 8.0
CHUNK = 1 << 20
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class NotDownloaded(Exception):
    """A program could not be downloaded from its release site; the text has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sites:
    """Addresses of the release sites; tests use a server on loopback."""

    kubernetes: str = "https://dl.k8s.io/release"
    etcd: str = "https://github.com/etcd-io/etcd/releases/download"


OFFICIAL = Sites()


def download(pin: Pin, programs: Iterable[str], directory: Path, sites: Sites) -> None:
    """Download programs of one Kubernetes version into a directory.

    Raises `NotDownloaded` for the first one that fails; those before it stay.
    """
    architecture = ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise NotDownloaded(f"no releases are known for {platform.machine()}")
    for program in programs:
        if program == "etcd":
            _etcd(f"etcd-{pin.etcd}-linux-{architecture}", f"{sites.etcd}/{pin.etcd}", directory)
        else:
            url = f"{sites.kubernetes}/{pin.kubernetes}/bin/linux/{architecture}/{program}"
            expected = _text(f"{url}.sha256").strip()
            partial = _fetch(url, directory / f".{program}.partial", expected)
            _install(partial, directory / program)


def _etcd(name: str, base: str, directory: Path) -> None:
    archive = f"{name}.tar.gz"
    lines = [line.split() for line in _text(f"{base}/SHA256SUMS").splitlines()]
    sums = {line[-1]: line[0] for line in lines if line}
    if archive not in sums:
        raise NotDownloaded(f"{base}/SHA256SUMS does not name {archive}")
    partial = _fetch(f"{base}/{archive}", directory / ".etcd.partial.tar.gz", sums[archive])
    binary = directory / ".etcd.partial"
    try:
        with tarfile.open(partial) as opened:
            member = opened.extractfile(f"{name}/etcd")
            if member is None:
                raise NotDownloaded(f"{archive} holds no file {name}/etcd")
            binary.write_bytes(member.read())
    except (tarfile.TarError, KeyError) as error:
        raise NotDownloaded(f"{archive}: {error}") from error
    finally:
        partial.unlink()
    _install(binary, directory / "etcd")


def _fetch(url: str, partial: Path, expected: str) -> Path:
    """Download a file. Remove it unless its SHA-256 digest is the expected one."""
    is_complete = False
    try:
        is_complete = _receive(url, partial) == expected
    except (OSError, HTTPException) as error:
        raise NotDownloaded(f"{url}: {error}") from error
    finally:
        if not is_complete:
            partial.unlink(missing_ok=True)
    if not is_complete:
        raise NotDownloaded(f"{url} does not match its published checksum")
    return partial


def _receive(url: str, partial: Path) -> str:
    digest = hashlib.sha256()
    received = 0
    with (
        _open(url) as response,
        partial.open("wb") as file,
        Heartbeat(lambda: f"{received >> 20} MB of {url}"),
    ):
        while chunk := response.read(CHUNK):
            file.write(chunk)
            digest.update(chunk)
            received += len(chunk)
    return digest.hexdigest()


def _text(url: str) -> str:
    try:
        with _open(url) as response:
            return response.read(CHUNK).decode("ascii")
    except (OSError, HTTPException, UnicodeDecodeError) as error:
        raise NotDownloaded(f"{url}: {error}") from error


def _open(url: str) -> HTTPResponse:
    response: HTTPResponse = urllib.request.urlopen(url, timeout=TIMEOUT)  # noqa: S310 - ours
    return response


def _install(partial: Path, program: Path) -> None:
    partial.chmod(0o755)
    partial.replace(program)
    say(f"downloaded {program.name}, checksum verified")
