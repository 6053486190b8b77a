"""Builds the container images of the signers with buildah, which needs no daemon.

    python -m builders.image signer dist
    python -m builders.image insecure dist

Writes an image for all architectures as one OCI archive. No program of another architecture runs.
The base image of the Containerfile is in a registry. Here debootstrap makes a base of the same
Debian release, so that a machine without access to a registry can build the image too. The base is
not a part of the image, whose last stage starts from nothing. The image of the insecure signer
starts from the one of the signer that is in the same directory.
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
INSECURE: Final = PROJECT / "packaging/signer/insecure"
NAME: Final = "node-attestation-signer"
INSECURE_NAME: Final = "node-attestation-insecure-signer"
ARCHITECTURES: Final = ("amd64", "arm64")
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
THIS_ARCHITECTURE: Final = _MACHINES.get(platform.machine(), "")
_INDEX: Final = "index"
"""The name of the images of all architectures in the storage of buildah."""

_SUITE: Final = "trixie"
_SOURCES: Final = f"""\
deb http://deb.debian.org/debian {_SUITE} main
deb http://deb.debian.org/debian {_SUITE}-updates main
deb http://deb.debian.org/debian-security {_SUITE}-security main
"""
"""The same as in Debian's own image. debootstrap leaves security updates out."""


def write_image(directory: Path) -> Path:
    """Build the image of the signer and write it as an OCI archive. Return the archive."""
    directory.mkdir(parents=True, exist_ok=True)
    with _storage() as buildah:
        base = _import_base(buildah)
        for architecture in ARCHITECTURES:
            _build(buildah, SOURCE, architecture, BASE=base)
        return _push(buildah, directory / archive_name(NAME))


def write_insecure_image(directory: Path) -> Path:
    """Build the image of the insecure signer from that of the signer. Return the archive."""
    signer = directory / archive_name(NAME)
    with _storage() as buildah:
        for architecture in ARCHITECTURES:
            pull = ("pull", "--quiet", f"--arch={architecture}", f"oci-archive:{signer}")
            _build(buildah, INSECURE, architecture, SIGNER=_buildah(buildah, *pull))
        return _push(buildah, directory / archive_name(INSECURE_NAME))


def archive_name(name: str) -> str:
    """Return the name of the OCI archive of an image."""
    return f"{name}-{semantic_version()}.oci.tar"


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
        for layer in _manifest(tar, architecture)["layers"]:
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
def _storage() -> Iterator[Sequence[str | Path]]:
    """Return a buildah command whose images are in a temporary directory."""
    with tempfile.TemporaryDirectory() as work:
        command = ("buildah", "--root", f"{work}/storage", "--runroot", f"{work}/run")
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


def _build(
    buildah: Sequence[str | Path], source: Path, architecture: str, **arguments: str
) -> None:
    """Build the Containerfile of a directory for an architecture, and add it to the index."""
    say(f"building the image for {architecture}: 1 to 3 minutes")
    values = arguments | {
        "BUILDPLATFORM": f"linux/{THIS_ARCHITECTURE}",
        "SOURCE_DATE_EPOCH": str(_epoch()),
        "VERSION": semantic_version(),
        "REVISION": output("git", "-C", PROJECT, "rev-parse", "HEAD").strip(),
    }
    _buildah(
        buildah, "build", "--quiet", "--isolation", "chroot", "--timestamp", str(_epoch()),
        "--platform", f"linux/{architecture}",
        *(f"--build-arg={name}={value}" for name, value in values.items()),
        "--file", source / "Containerfile", "--ignorefile", SOURCE / "Containerfile.dockerignore",
        "--manifest", _INDEX, PROJECT,
    )  # fmt: skip


def _push(buildah: Sequence[str | Path], archive: Path) -> Path:
    """Write the index as an archive, with the same names, owners and times in each build."""
    with tempfile.TemporaryDirectory() as layout:
        target = f"oci:{layout}:{semantic_version()}"
        _buildah(buildah, "manifest", "push", "--quiet", "--all", "--format", "oci", _INDEX, target)
        output(
            "tar", "--create", "--file", archive, "--directory", layout, "--sort=name",
            f"--mtime=@{_epoch()}", "--owner=0", "--group=0", "--numeric-owner",
            "--mode=u=rwX,go=rX", "oci-layout", "index.json", "blobs",
        )  # fmt: skip
    say(f"{archive} has {archive.stat().st_size / 1e6:.1f} MB, {read_digest(archive)}")
    return archive


def _epoch() -> int:
    """Return the time of all files."""
    return int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


WRITERS: Final = {"signer": write_image, "insecure": write_insecure_image}


def main() -> None:
    """Build the image that the command line names."""
    parser = argparse.ArgumentParser(prog="image", description=__doc__.splitlines()[0])
    parser.add_argument("image", choices=WRITERS)
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    arguments = parser.parse_args()
    WRITERS[arguments.image](arguments.directory)


if __name__ == "__main__":
    main()
