"""Packages the chart of the signer, and renders the manifests from it.

    python -m builders.chart manifests packaging/signer/manifests
    python -m builders.chart release dist --image registry.example/signer@sha256:...

The variable HELM names Helm 4, and KUBERNETES_VERSION the version that it renders for. `manifests`
writes crds.yaml, install.yaml and addon-components.yaml into a directory. `release` also writes the
packaged chart and the other files of a release. The same source gives the same bytes.
"""

import argparse
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from builders.image import NAME, archive_name, read_digest
from builders.readme import write_readme
from builders.systems import output
from builders.version import CHART, semantic_version

RELEASE: Final = "node-attestation-signer"
NAMESPACE: Final = "node-attestation-system"
PACKAGING: Final = CHART.parent
SOURCE: Final = PACKAGING / "manifests"
RENDERED: Final[Mapping[str, tuple[str | Path, ...]]] = {
    "crds.yaml": ("--show-only", "templates/crds.yaml"),
    "install.yaml": ("--values", SOURCE / "install-values.yaml"),
    "addon-components.yaml": ("--values", SOURCE / "clusterctl-values.yaml"),
}
"""The options of Helm for each rendered file."""
_HEADER: Final = "# Rendered from packaging/signer/chart by `make manifests`. Do not edit.\n"


def write_manifests(chart: Path, directory: Path) -> None:
    """Render the manifests of a chart into a directory."""
    for name, options in RENDERED.items():
        # The variables of clusterctl are strings where the schema wants numbers.
        text = _helm(
            "template", RELEASE, chart, "--namespace", NAMESPACE,
            "--kube-version", os.environ["KUBERNETES_VERSION"],
            *options, "--skip-schema-validation",
        )  # fmt: skip
        (directory / name).write_text(_HEADER + text, encoding="utf-8")


def write_release(directory: Path, image: str) -> None:
    """Write the packaged chart and all manifests, which pull `image` unless it is empty.

    They pull it by the digest of the archive that `make image` has written into the directory.
    """
    directory.mkdir(parents=True, exist_ok=True)
    archive = directory / archive_name(NAME)
    if image and "@" not in image and archive.exists():
        image = f"{image}@{read_digest(archive)}"
    with _chart_of(image) as chart:
        _helm("package", chart, "--destination", directory)
        write_manifests(chart, directory)
    for source in (
        SOURCE / "metadata.yaml",
        PACKAGING / "workload-rbac.yaml",
        PACKAGING / "attested-nodes-policy.yaml",
        PACKAGING / "entry-credential.yaml",
        PACKAGING / "node-labels-rbac.yaml",
        PACKAGING / "node-taints-rbac.yaml",
        PACKAGING / "binding-removal-rbac.yaml",
    ):
        shutil.copy(source, directory)


def _helm(*arguments: str | Path) -> str:
    """Run Helm in an environment of its own, without the configuration of the user."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "PATH": "/usr/bin:/bin"}
        return output(os.environ["HELM"], *arguments, environment=environment)


@contextmanager
def _chart_of(image: str) -> Iterator[Path]:
    """Return a copy of the chart with the project's version and `image` as its default image.

    It has no links, and one time.
    Helm writes the times of the files into the package.
    """
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    with tempfile.TemporaryDirectory() as directory:
        chart = Path(directory, CHART.name)
        shutil.copytree(CHART, chart)
        description = chart / "Chart.yaml"
        text = description.read_text(encoding="utf-8")
        for key in ("version", "appVersion"):
            text = _substitute(text, rf"^{key}: .*$", f"{key}: {semantic_version()}")
        description.write_text(text, encoding="utf-8")
        if image:
            values = chart / "values.yaml"
            values.write_text(_with_image(values.read_text(encoding="utf-8"), image), "utf-8")
        for path in chart.rglob("*"):
            os.utime(path, (epoch, epoch))
        yield chart


def _with_image(values: str, image: str) -> str:
    name, _, digest = image.partition("@")
    repository, tag = name, ""
    if ":" in name.rpartition("/")[2]:
        repository, _, tag = name.rpartition(":")
    for key, value in (("repository", repository), ("tag", tag), ("digest", digest)):
        values = _substitute(values, rf"^  {key}: .*$", f'  {key}: "{value}"')
    return values


def _substitute(text: str, pattern: str, line: str) -> str:
    text, count = re.subn(pattern, line, text, flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"one line must match {pattern}, not {count}")
    return text


def main() -> None:
    """Run one subcommand."""
    parser = argparse.ArgumentParser(prog="chart", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    manifests = commands.add_parser("manifests", help="render the manifests into DIRECTORY")
    release = commands.add_parser("release", help="also package the chart")
    for command in (manifests, release):
        command.add_argument("directory", type=Path, metavar="DIRECTORY")
    release.add_argument(
        "--image", default="", metavar="NAME[:TAG][@DIGEST]", help="the image that pods pull"
    )
    arguments = parser.parse_args()
    if arguments.command == "release":
        write_release(arguments.directory, arguments.image)
    else:
        write_readme()
        write_manifests(CHART, arguments.directory)


if __name__ == "__main__":
    main()
