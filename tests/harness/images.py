"""Images of kubeadm's static pods, with the programs under test; no registry is needed."""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
PAUSE = "int pause(void); int main(void) { for (;;) pause(); }"
_MEDIA_TYPE = "application/vnd.oci.image"


def names(kubeadm: Path, version: str) -> dict[str, str]:
    """Return the image that kubeadm runs for each program, and for "pause"."""
    listed = subprocess.run(
        [kubeadm, "config", "images", "list", f"--kubernetes-version={version}"],
        env={"PATH": os.defpath, "HOME": "/"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    by_program = {name.rpartition("/")[2].partition(":")[0]: name for name in listed}
    return {program: by_program[program] for program in (*PROGRAMS, "pause")}


def write_archive(assets: Path, images: dict[str, str], archive: Path) -> None:
    """Write an OCI archive in which one image, with all programs, has all names."""
    layer = archive.with_suffix(".layer")
    _write_layer(assets, layer)
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with tarfile.open(archive, "w") as tar:
        tar.add(layer, f"blobs/sha256/{digest}")
        config = _blob(
            tar,
            {
                "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
                "os": "linux",
                "config": {"Env": ["PATH=/usr/local/bin"], "Cmd": ["/usr/local/bin/pause"]},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            },
            "config.v1+json",
        )
        size = layer.stat().st_size
        manifest = _blob(
            tar,
            {
                "schemaVersion": 2,
                "config": config,
                "layers": [_descriptor("layer.v1.tar", f"sha256:{digest}", size)],
            },
            "manifest.v1+json",
        )
        index = [
            manifest | {"annotations": {"io.containerd.image.name": name}}
            for name in images.values()
        ]
        _add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": index}).encode())
        _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    layer.unlink()


def _write_layer(assets: Path, layer: Path) -> None:
    pause = layer.with_suffix(".pause")
    subprocess.run(
        ["gcc", "-static", "-Os", "-x", "c", "-", "-o", pause], input=PAUSE, text=True, check=True
    )
    with tarfile.open(layer, "w") as tar:
        tar.add(pause, "usr/local/bin/pause")
        targets = {(assets / program).resolve() for program in PROGRAMS}
        for target in targets:
            tar.add(target, f"usr/local/bin/{target.name}")
        for program in PROGRAMS:
            if (assets / program).is_symlink():
                tar.add(assets / program, f"usr/local/bin/{program}")
    pause.unlink()


def _blob(tar: tarfile.TarFile, document: dict[str, Any], kind: str) -> dict[str, Any]:
    content = json.dumps(document).encode()
    digest = hashlib.sha256(content).hexdigest()
    _add(tar, f"blobs/sha256/{digest}", content)
    return _descriptor(kind, f"sha256:{digest}", len(content))


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": f"{_MEDIA_TYPE}.{kind}", "digest": digest, "size": size}


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
