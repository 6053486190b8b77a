"""Builds the container image of the signer with buildah, which needs no daemon.

    python -m tests.packaging.signer.image dist

Writes the image for this machine's architecture as an OCI archive, and its SBOM. The base image of
the Containerfile is in a registry. Here debootstrap makes a base of the same Debian release, so
that a machine without access to a registry can build the image too. The base is not a part of the
image, whose last stage starts from nothing.
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

from tests.controlplane import provide
from tests.controlplane.progress import Heartbeat, say
from tests.controlplane.release import ARCHITECTURES
from tests.harness.wire import output
from tests.packaging.signer.sbom import make_sbom
from tests.packaging.signer.version import PROJECT, semantic_version
from tests.release.lock import read_lock

SOURCE: Final = PROJECT / "packaging/signer/image"
NAME: Final = "node-attestation-signer"
_SUITE: Final = "trixie"
_AUTHORITIES: Final = "/etc/ssl/certs/ca-certificates.crt"
"""Authorities of this machine, which may reach the package indexes through a proxy."""


def write_image(directory: Path) -> Path:
    """Build the image and write it as an OCI archive, with its SBOM. Return the archive."""
    directory.mkdir(parents=True, exist_ok=True)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    version = semantic_version()
    name = f"{NAME}-{version}-linux-{ARCHITECTURES[platform.machine()]}.oci.tar"
    with tempfile.TemporaryDirectory() as work, _storage(Path(work)) as buildah:
        with Heartbeat(lambda: "building the image"):
            _build(buildah, _import_base(buildah), epoch)
        layout, root = Path(work, "layout"), Path(work, "root")
        _buildah(buildah, "push", "--quiet", NAME, f"oci:{layout}:{version}")
        _pack(layout, directory / name, epoch)
        unpack_root(directory / name, root)
        locked = {pin.name: pin for pin in read_lock(PROJECT / "requirements/signer.txt")}
        sbom = json.dumps(make_sbom(root, version, locked), indent=2)
    (directory / name.replace(".oci.tar", ".cdx.json")).write_text(f"{sbom}\n", encoding="utf-8")
    return directory / name


def read_config(archive: Path) -> dict[str, Any]:
    """Return the configuration of the one image in an OCI archive."""
    with tarfile.open(archive) as tar:
        config: dict[str, Any] = _read_blob(tar, _manifest(tar)["config"])
    return config


def unpack_root(archive: Path, root: Path) -> None:
    """Unpack the root file system of the one image in an OCI archive."""
    root.mkdir()
    with tarfile.open(archive) as tar:
        [layer] = _manifest(tar)["layers"]
        content = tar.extractfile(_blob_name(layer))
        with tarfile.open(fileobj=content) as files:
            files.extractall(root, filter="tar")


def _manifest(tar: tarfile.TarFile) -> dict[str, Any]:
    index = tar.extractfile("index.json")
    assert index is not None
    [manifest] = json.load(index)["manifests"]
    answer: dict[str, Any] = _read_blob(tar, manifest)
    return answer


def _read_blob(tar: tarfile.TarFile, descriptor: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    content = tar.extractfile(_blob_name(descriptor))
    assert content is not None
    return json.load(content)


def _blob_name(descriptor: dict[str, Any]) -> str:
    digest: str = descriptor["digest"]
    return f"blobs/{digest.replace(':', '/')}"


def _debian_base() -> Path:
    """Return a minimal Debian system, made by debootstrap when it is not in the cache."""
    base = provide.cache_directory(os.environ).with_name("roots") / f"{_SUITE}-image-base"
    with provide.locked(base.with_name(f".{base.name}.lock")):
        if not base.exists():
            partial = base.with_name(f".{base.name}")
            shutil.rmtree(partial, ignore_errors=True)
            say(f"Debian {_SUITE} with debootstrap: about a minute, once on this machine")
            output("debootstrap", "--variant=minbase", _SUITE, partial)
            shutil.copy(_AUTHORITIES, partial / "authorities.crt")
            partial.rename(base)
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
    _buildah(buildah, "copy", "--quiet", container, _debian_base(), "/")
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    pip.pop("PIP_FIND_LINKS", None)  # directories of this machine
    environment = pip | {"SSL_CERT_FILE": "/authorities.crt", "PIP_CERT": "/authorities.crt"}
    for name, value in environment.items():
        _buildah(buildah, "config", "--env", f"{name}={value}", container)
    return _buildah(buildah, "commit", "--quiet", container)


def _build(buildah: Sequence[str | Path], base: str, epoch: int) -> None:
    _buildah(
        buildah, "build", "--quiet", "--isolation", "chroot", "--timestamp", str(epoch),
        "--build-arg", f"BASE={base}", "--build-arg", f"SOURCE_DATE_EPOCH={epoch}",
        "--build-arg", f"VERSION={semantic_version()}",
        "--file", SOURCE / "Containerfile", "--ignorefile", SOURCE / "Containerfile.dockerignore",
        "--tag", NAME, PROJECT,
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
