"""Describes the artifacts of a release: a bill of materials of each, and checksums of all files.

    python -m builders.describe dist

The variable SYFT names the program that writes the bills, in CycloneDX
(https://github.com/anchore/syft). They list what it finds in the unpacked artifacts.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from builders.image import ARCHITECTURES, unpack_root
from builders.version import project_version

CHECKSUMS: Final = "SHA256SUMS"
BILL: Final = ".cdx.json"
_QUIET: Final = {"SYFT_CHECK_FOR_APP_UPDATE": "false", "SYFT_FILE_METADATA_SELECTION": "none"}


def describe(dist: Path) -> None:
    """Write the bills and the checksums into the directory with the artifacts."""
    for name, unpack in list(_artifacts(dist)):
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory, "root")
            unpack(root)
            bill = json.dumps(_bill(name, root), indent=2)
        (dist / f"{name}{BILL}").write_text(f"{bill}\n", encoding="utf-8")
    files = sorted(path.relative_to(dist) for path in dist.rglob("*") if path.is_file())
    lines = (f"{_sha256(dist / path)}  {path}\n" for path in files if path.name != CHECKSUMS)
    (dist / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def _artifacts(dist: Path) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Yield each artifact that has libraries of others: its name, and how it is unpacked.

    The rpm has the same files as the deb.
    """
    for deb in sorted(dist.glob("*.deb")):
        yield deb.stem, partial(_unpack_deb, deb)
    for archive in sorted(dist.glob("kubectl-attestation-*.tar.gz")):
        yield archive.name.removesuffix(".tar.gz"), partial(_unpack_plugin, archive)
    for image in sorted(dist.glob("*.oci.tar")):
        for architecture in ARCHITECTURES:
            name = f"{image.name.removesuffix('.oci.tar')}-linux-{architecture}"
            yield name, partial(unpack_root, image, architecture=architecture)


def _unpack_deb(deb: Path, root: Path) -> None:
    subprocess.run(["dpkg-deb", "--extract", deb, root], check=True)


def _unpack_plugin(archive: Path, root: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(root, filter="data")
    shutil.unpack_archive(root / "kubectl-attestation", root, "zip")


def _bill(name: str, root: Path) -> dict[str, Any]:
    """Return the bill without time and random number, which differ from run to run."""
    command = [
        os.environ["SYFT"], "scan", "dir:.", "--quiet", "--output=cyclonedx-json",
        f"--source-name={name}", f"--source-version={project_version()}",
    ]  # fmt: skip
    environment = os.environ | _QUIET
    bill: dict[str, Any] = json.loads(subprocess.check_output(command, cwd=root, env=environment))
    del bill["serialNumber"], bill["metadata"]["timestamp"]
    return bill


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Describe the files in the directory that the command line names."""
    parser = argparse.ArgumentParser(prog="describe", description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    describe(parser.parse_args().directory)


if __name__ == "__main__":
    main()
