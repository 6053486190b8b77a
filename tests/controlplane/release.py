"""Downloads the official release binaries, each held against its published checksum."""

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

# For connecting and for each read: where nothing can be had this must not hold up what comes next.
TIMEOUT = 8.0
CHUNK = 1 << 20
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class NotDownloaded(Exception):
    """A program could not be had from its release site; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sites:
    """Where releases lie; tests put a server of their own in the place."""

    kubernetes: str = "https://dl.k8s.io/release"
    etcd: str = "https://github.com/etcd-io/etcd/releases/download"


OFFICIAL = Sites()


def download(pin: Pin, programs: Iterable[str], folder: Path, sites: Sites) -> None:
    """Bring programs of one Kubernetes version into a folder.

    Raises:
        NotDownloaded: at the first one that is not to be had; those before it stay.
    """
    architecture = ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise NotDownloaded(f"no releases are known for {platform.machine()}")
    for program in programs:
        if program == "etcd":
            _etcd(f"etcd-{pin.etcd}-linux-{architecture}", f"{sites.etcd}/{pin.etcd}", folder)
        else:
            url = f"{sites.kubernetes}/{pin.kubernetes}/bin/linux/{architecture}/{program}"
            expected = _text(f"{url}.sha256").strip()
            partial = _fetch(url, folder / f".{program}.partial", expected)
            _install(partial, folder / program)


def _etcd(name: str, base: str, folder: Path) -> None:
    archive = f"{name}.tar.gz"
    lines = [line.split() for line in _text(f"{base}/SHA256SUMS").splitlines()]
    sums = {line[-1]: line[0] for line in lines if line}
    if archive not in sums:
        raise NotDownloaded(f"{base}/SHA256SUMS does not name {archive}")
    partial = _fetch(f"{base}/{archive}", folder / ".etcd.partial.tar.gz", sums[archive])
    binary = folder / ".etcd.partial"
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
    _install(binary, folder / "etcd")


def _fetch(url: str, partial: Path, expected: str) -> Path:
    """Write what lies at an address into a file; only what was expected stays there."""
    whole = False
    try:
        whole = _receive(url, partial) == expected
    except (OSError, HTTPException) as error:
        raise NotDownloaded(f"{url}: {error}") from error
    finally:
        if not whole:
            partial.unlink(missing_ok=True)
    if not whole:
        raise NotDownloaded(f"{url} does not have the published checksum: refused")
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
