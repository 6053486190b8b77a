"""Builds the container image of the signer with buildah, which needs no daemon.

    python -m builders.image dist

Writes the image for all architectures as one OCI archive. No program of another architecture runs.
The base image of the Containerfile is in a registry. Here debootstrap makes a base of the same
Debian release, so that a machine without access to a registry can build the image too. The base is
not a part of the image, whose last stage starts from nothing.
"""

import argparse
import json
import os
import platform
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from builders.systems import CERTIFICATES, bootstrap, cache, locked, output, say
from builders.version import PROJECT, semantic_version

SOURCE: Final = PROJECT / "packaging/signer/image"
NAME: Final = "node-attestation-signer"
ARCHITECTURES: Final = ("amd64", "arm64")
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
THIS_ARCHITECTURE: Final = _MACHINES.get(platform.machine(), "")
_SUITE: Final = "trixie"
_SOURCES: Final = f"""\
deb http://deb.debian.org/debian {_SUITE} main
deb http://deb.debian.org/debian {_SUITE}-updates main
deb http://deb.debian.org/debian-security {_SUITE}-security main
"""
"""The same as in Debian's own image. debootstrap leaves security updates out."""


def write_image(directory: Path) -> Path:
    """Build the image and write it as an OCI archive. Return the archive."""
    directory.mkdir(parents=True, exist_ok=True)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    version = semantic_version()
    archive = directory / f"{NAME}-{version}.oci.tar"
    with tempfile.TemporaryDirectory() as work, _storage(Path(work)) as buildah:
        base = _import_base(buildah)
        for architecture in ARCHITECTURES:
            say(f"building the image for {architecture}: 1 to 3 minutes")
            _build(buildah, base, architecture, epoch)
        layout = Path(work, "layout")
        target = f"oci:{layout}:{version}"
        _buildah(buildah, "manifest", "push", "--quiet", "--all", "--format", "oci", NAME, target)
        _pack(layout, archive, epoch)
    say(f"{archive} has {archive.stat().st_size / 1e6:.1f} MB, {read_digest(archive)}")
    return archive


def read_digest(archive: Path) -> str:
    """Return the digest of the index in an OCI archive, by which a registry serves it."""
    with tarfile.open(archive) as tar:
        digest: str = _index(tar)["digest"]
    return digest


def read_config(archive: Path, architecture: str = THIS_ARCHITECTURE) -> dict[str, Any]:
    """Return the configuration of the image for an architecture in an OCI archive."""
    with tarfile.open(archive) as tar:
        manifest = _manifest(tar, architecture)
        config: dict[str, Any] = _read_blob(tar, manifest["config"])
    return config


def unpack_root(archive: Path, root: Path, architecture: str = THIS_ARCHITECTURE) -> None:
    """Unpack the root file system of the image for an architecture in an OCI archive."""
    root.mkdir()
    with tarfile.open(archive) as tar:
        [layer] = _manifest(tar, architecture)["layers"]
        content = tar.extractfile(_blob_name(layer))
        with tarfile.open(fileobj=content) as files:
            files.extractall(root, filter="tar")


def _index(tar: tarfile.TarFile) -> dict[str, Any]:
    [index] = _read_json(tar, "index.json")["manifests"]
    answer: dict[str, Any] = index
    return answer


def _manifest(tar: tarfile.TarFile, architecture: str) -> dict[str, Any]:
    [found] = [
        manifest
        for manifest in _read_blob(tar, _index(tar))["manifests"]
        if manifest["platform"] == {"architecture": architecture, "os": "linux"}
    ]
    answer: dict[str, Any] = _read_blob(tar, found)
    return answer


def _read_blob(tar: tarfile.TarFile, descriptor: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    return _read_json(tar, _blob_name(descriptor))


def _read_json(tar: tarfile.TarFile, name: str) -> Any:  # noqa: ANN401 - JSON
    if (content := tar.extractfile(name)) is None:
        raise FileNotFoundError(f"the archive must have {name}")
    return json.load(content)


def _blob_name(descriptor: dict[str, Any]) -> str:
    digest: str = descriptor["digest"]
    return f"blobs/{digest.replace(':', '/')}"


def debian_base() -> Path:
    """Return a minimal Debian system, made by debootstrap when it is not in the cache."""

    def complete(root: Path) -> None:
        # Authorities of this machine, which may reach the package indexes through a proxy.
        shutil.copy(CERTIFICATES, root / "authorities.crt")

    base = cache() / f"{_SUITE}-image-base"
    with locked(base.with_name(f".{base.name}.lock")):
        if not base.exists():
            bootstrap(_SUITE, base, (), complete)
        (base / "etc/apt/sources.list").write_text(_SOURCES, encoding="utf-8")
    return base


@contextmanager
def _storage(work: Path) -> Iterator[Sequence[str | Path]]:
    """Return a buildah command whose images are in a temporary directory."""
    command = ("buildah", "--root", work / "storage", "--runroot", work / "run")
    try:
        yield command
    finally:
        # They hold mounts, which would keep the directory.
        _buildah(command, "rm", "--all")
        _buildah(command, "rmi", "--all", "--force")


def _buildah(command: Sequence[str | Path], *arguments: str | Path) -> str:
    return output(*command, *arguments).strip()


def _import_base(buildah: Sequence[str | Path]) -> str:
    """Make an image of the Debian system, with this machine's way to the package indexes."""
    container = _buildah(buildah, "from", "scratch")
    _buildah(buildah, "copy", "--quiet", container, debian_base(), "/")
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    pip.pop("PIP_FIND_LINKS", None)  # directories of this machine
    environment = pip | {"SSL_CERT_FILE": "/authorities.crt", "PIP_CERT": "/authorities.crt"}
    for name, value in environment.items():
        _buildah(buildah, "config", "--env", f"{name}={value}", container)
    return _buildah(buildah, "commit", "--quiet", container)


def _build(buildah: Sequence[str | Path], base: str, architecture: str, epoch: int) -> None:
    """Build the image for an architecture, and add it to the index."""
    values = {
        "BASE": base,
        "BUILDPLATFORM": f"linux/{THIS_ARCHITECTURE}",
        "SOURCE_DATE_EPOCH": str(epoch),
        "VERSION": semantic_version(),
        "REVISION": output("git", "-C", PROJECT, "rev-parse", "HEAD").strip(),
    }
    _buildah(
        buildah, "build", "--quiet", "--isolation", "chroot", "--timestamp", str(epoch),
        "--platform", f"linux/{architecture}",
        *(f"--build-arg={name}={value}" for name, value in values.items()),
        "--file", SOURCE / "Containerfile", "--ignorefile", SOURCE / "Containerfile.dockerignore",
        "--manifest", NAME, PROJECT,
    )  # fmt: skip


def _pack(layout: Path, archive: Path, epoch: int) -> None:
    """Pack an OCI layout, with names, owners and times that are the same in each build."""
    output(
        "tar", "--create", "--file", archive, "--directory", layout, "--sort=name",
        f"--mtime=@{epoch}", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX",
        "oci-layout", "index.json", "blobs",
    )  # fmt: skip


def main() -> None:
    """Build the image into the directory that the command line names."""
    parser = argparse.ArgumentParser(prog="image", description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    write_image(parser.parse_args().directory)


if __name__ == "__main__":
    main()
