"""Makes the SBOM of the image from its root file system, in CycloneDX 1.6.

It lists what is installed: the Debian packages and the Python packages, with licenses and hashes.
It has no time and no random number, so that two builds have the same bytes. Format:
https://cyclonedx.org/docs/1.6/json/
"""

import re
from collections.abc import Iterator, Mapping
from email.parser import HeaderParser
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from tests.release.components import distribution_of, licenses_of
from tests.release.lock import Pin

Json = dict[str, Any]
_LICENSE: Final = re.compile(r"^License: *(\S.*)$", re.MULTILINE)


def make_sbom(root: Path, version: str, locked: Mapping[str, Pin]) -> Json:
    """Return the SBOM of a root file system. `locked` has the hashes of Python packages."""
    name = "node-attestation-signer"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": name,
                "name": name,
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [*_debian_packages(root), *_python_packages(root, locked)],
    }


def _debian_packages(root: Path) -> Iterator[Json]:
    for file in sorted((root / "var/lib/dpkg/status.d").iterdir()):
        fields = HeaderParser().parsestr(file.read_text(encoding="utf-8"))
        name, version, architecture = (
            fields[key] for key in ("Package", "Version", "Architecture")
        )
        purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={architecture}"
        yield _component(name, version, purl) | {
            "licenses": [{"license": {"name": each}} for each in _debian_licenses(root, name)],
            "hashes": [{"alg": "SHA-256", "content": fields["SHA256"]}],
        }


def _debian_licenses(root: Path, name: str) -> list[str]:
    """Return the names in a copyright file in Debian's format (DEP-5), else where the file is."""
    file = Path("usr/share/doc", name, "copyright")
    text = (root / file).read_text(encoding="utf-8")
    names = set(_LICENSE.findall(text)) if text.startswith("Format:") else set()
    return sorted(names) or [f"see {file}"]


def _python_packages(root: Path, locked: Mapping[str, Pin]) -> Iterator[Json]:
    for directory in sorted(root.glob("usr/local/lib/python3.*/dist-packages/*.dist-info")):
        metadata = PathDistribution(directory).metadata
        name, version = metadata["Name"].lower().replace("_", "-"), metadata["Version"]
        component = _component(name, version, f"pkg:pypi/{name}@{version}")
        component["licenses"] = licenses_of(metadata)
        if name in locked:  # not the signer itself
            component["externalReferences"] = [distribution_of(locked[name])]
        yield component


def _component(name: str, version: str, purl: str) -> Json:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
