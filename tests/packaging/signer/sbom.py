"""Makes the SBOM of the image from its root file system, in CycloneDX 1.6.

It lists what is installed: the Debian packages and the Python packages. It has no time and no
random number, so that two builds have the same bytes. Format: https://cyclonedx.org/docs/1.6/json/
"""

from collections.abc import Iterator
from email.parser import HeaderParser
from importlib.metadata import PathDistribution
from pathlib import Path
from urllib.parse import quote

Json = dict[str, object]


def make_sbom(root: Path, version: str) -> Json:
    """Return the SBOM of a root file system."""
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
        "components": [*_debian_packages(root), *_python_packages(root)],
    }


def _debian_packages(root: Path) -> Iterator[Json]:
    for file in sorted((root / "var/lib/dpkg/status.d").iterdir()):
        fields = HeaderParser().parsestr(file.read_text(encoding="utf-8"))
        name, version, architecture = (
            fields[key] for key in ("Package", "Version", "Architecture")
        )
        purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={architecture}"
        yield _component(name, version, purl)


def _python_packages(root: Path) -> Iterator[Json]:
    for directory in sorted(root.glob("usr/local/lib/python3.*/dist-packages/*.dist-info")):
        metadata = PathDistribution(directory).metadata
        name, version = metadata["Name"].lower().replace("_", "-"), metadata["Version"]
        yield _component(name, version, f"pkg:pypi/{name}@{version}")


def _component(name: str, version: str, purl: str) -> Json:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
