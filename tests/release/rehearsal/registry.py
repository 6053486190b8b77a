"""Publishes the image and the chart in a registry, signs them, and verifies them as documented."""

import re
import socket
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import yaml

from builders import image
from tests.controlplane import provide, tools
from tests.harness import process
from tests.harness.documentation import ROOT, blocks_of
from tests.release.rehearsal.stage import HOST, REGISTRY, VERSIONS, Stage
from tests.release.rehearsal.story import ALWAYS, Step
from tests.release.rehearsal.workstation import Workstation

IMAGE: Final = f"{REGISTRY}/{image.NAME}"
CHART: Final = f"{REGISTRY}/charts/{image.NAME}"
_MARKER: Final = "run by: tests/release/rehearsal/registry.py::verify"
_SCRIPT: Final = ROOT / "packaging/release/publish.sh"


def serve(stage: Stage) -> str:
    """Run a registry until the end, and make the key pair that signs."""
    directory = stage.new_directory("registry")
    certificate, key = stage.server_files(directory)
    configuration = {
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(directory / "storage")}},
        "http": {
            "addr": REGISTRY,
            "secret": "rehearsal",
            "tls": {"certificate": str(certificate), "key": str(key)},
        },
    }
    file, log = directory / "registry.yaml", directory / "registry.log"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    argv = (provide.tool("registry"), "serve", file)
    started = stage.stack.enter_context(process.running(argv, log=log, env={}))
    process.wait_until_ready(started, _is_open, what="the registry listens", log=log)
    script = "cosign generate-key-pair\ncosign signing-config create --out signing-config.json\n"
    Workstation(stage, "keys").run(script)
    version = tools.TOOLS["registry"].version()
    return f"distribution {version} at https://{REGISTRY}, a key pair of cosign"


def _is_open() -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, int(REGISTRY.partition(":")[2]))) == 0


def _keys(stage: Stage) -> Path:
    """Return the directory with the key pair."""
    [file] = stage.directory.glob("work/*-keys/cosign.key")
    return file.parent


def publish(version: str, stage: Stage) -> str:
    """Publish a version with the script of the release workflow, which gets the key pair."""
    dist = stage.dist(version)
    keys = _keys(stage)
    options = f"--key={keys}/cosign.key --signing-config={keys}/signing-config.json"
    workstation = Workstation(stage, f"publisher-{version}")
    workstation.run(f'{_SCRIPT} "$DIST" {REGISTRY}', DIST=dist, COSIGN_OPTIONS=options)
    archive = archive_of(stage, version)
    served = workstation.run(f'skopeo inspect --raw "docker://{IMAGE}:{version}" | sha256sum')
    digest = image.read_digest(archive)
    assert served.split()[0] == digest.removeprefix("sha256:"), "the registry must serve the index"
    size = f"{archive.stat().st_size / 1e6:.1f} MB"
    return f"{IMAGE}:{version}, {size}\n{workstation.run(f'cosign tree {IMAGE}@{digest}')}"


def archive_of(stage: Stage, version: str) -> Path:
    """Return the OCI archive from which the image of a version is published."""
    return stage.dist(version) / f"{image.NAME}-{version}.oci.tar"


def pull(stage: Stage, name: str) -> Path:
    """Pull an image of the registry by its digest. Return it as an OCI archive."""
    assert name.startswith(f"{IMAGE}@sha256:"), f"a manifest must name a digest, not {name}"
    workstation = Workstation(stage, "pulled")
    workstation.run(f'skopeo copy --quiet --all "docker://{name}" oci-archive:image.oci.tar')
    return workstation.directory / "image.oci.tar"


def verify(version: str, stage: Stage) -> str:
    """Run the commands of docs/releasing.md that verify image and chart.

    They must refuse the key of another.
    """
    [block] = [b for b in blocks_of(ROOT / "docs/releasing.md") if b.marker == _MARKER]
    workstation = Workstation(stage, "verifier")
    names = {"REGISTRY": REGISTRY, "VERSION": version}
    signer = "--key {}/cosign.pub --insecure-ignore-tlog"
    workstation.run(block.text, SIGNER=signer.format(_keys(stage)), **names)
    other = Workstation(stage, "stranger")
    other.run("cosign generate-key-pair")
    commands = re.split(r"\n(?=cosign )", block.text)
    for command in commands:
        with pytest.raises(RuntimeError, match=r"no matching|invalid signature"):
            workstation.run(command, SIGNER=signer.format(other.directory), **names)
    return f"{len(commands)} commands of {block} accept the key, and refuse another key"


STEPS: Final = (
    Step(phase="publish", subject=ALWAYS, run=serve),
    *(Step(phase="publish", subject=ALWAYS, run=partial(publish, each)) for each in VERSIONS),
    Step(phase="install", subject="image", run=partial(verify, VERSIONS[0])),
)
