"""Command line of the release helpers. `make dist` and the release workflow run it."""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.release.changelog import NotReleasable, project_version, release_notes
from tests.release.lock import read_lock
from tests.release.provenance import Build, make_statement
from tests.release.sbom import make_sbom

ROOT: Final = Path(__file__).parents[2]
LOCKS: Final = {
    "kubelet-authenticator-tpm": ROOT / "requirements/node.txt",
    "node-attestation-signer": ROOT / "requirements/signer.txt",
    "kubectl-attestation": ROOT / "requirements/operator.txt",
}
"""The lock of each program."""
PROVENANCE: Final = "provenance.intoto.json"
CHECKSUMS: Final = "SHA256SUMS"


def main() -> int:
    """Run one subcommand and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    commands = parser.add_subparsers(required=True)
    describe = commands.add_parser("describe", help="write SBOM, provenance, checksums to dist/")
    describe.add_argument("--builder-id", required=True, help="URI of the system that builds")
    describe.add_argument("--image", default="", help="container image that the manifests pull")
    describe.add_argument("targets", nargs="+", help="make targets that built the artifacts")
    describe.set_defaults(run=_describe)
    notes = commands.add_parser("notes", help="print the release notes of a tag")
    notes.add_argument("tag")
    notes.set_defaults(run=_print_notes)
    arguments = parser.parse_args()
    try:
        arguments.run(arguments)
    except NotReleasable as problem:
        sys.stderr.write(f"release: {problem}\n")
        return 1
    return 0


def _describe(arguments: argparse.Namespace) -> None:
    dist = ROOT / "dist"
    version = project_version(ROOT)
    for program, lock in LOCKS.items():
        sbom = make_sbom(program, version, read_lock(lock), lock_sha256=_sha256(lock))
        _write_json(dist / f"{program}-{version}.cdx.json", sbom)
    build = Build(
        commit=_git("rev-parse", "HEAD"),
        source_date_epoch=int(os.environ["SOURCE_DATE_EPOCH"]),
        targets=tuple(arguments.targets),
        image=arguments.image,
        locks={
            path.relative_to(ROOT).as_posix(): _sha256(path)
            for path in sorted((ROOT / "requirements").glob("*.txt"))
        },
        builder_id=arguments.builder_id,
    )
    _write_json(dist / PROVENANCE, make_statement(_digests(dist), build))
    sums = "".join(f"{digest}  {name}\n" for name, digest in _digests(dist).items())
    (dist / CHECKSUMS).write_text(sums, encoding="utf-8")


def _print_notes(arguments: argparse.Namespace) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sys.stdout.write(release_notes(arguments.tag, project_version(ROOT), changelog))


def _digests(dist: Path) -> dict[str, str]:
    """Return the SHA-256 of each file by its name below dist/."""
    files = sorted(path for path in dist.rglob("*") if path.is_file())
    return {path.relative_to(dist).as_posix(): _sha256(path) for path in files}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def _write_json(path: Path, document: dict[str, object]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
