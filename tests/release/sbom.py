"""Makes the SBOM of a program from its lock, in CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).

The SBOM names what is installed from the Python package index, with the hashes of the lock. The
licenses are those of the installed packages: the tests' environment has all of them. It has no time
and no random serial number, so that two builds have the same bytes.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import distribution
from typing import Any, Final

from tests.release.components import distribution_of, licenses_of
from tests.release.lock import Pin

PROJECT: Final = "node-attestation"

Json = dict[str, Any]


def make_sbom(program: str, version: str, pins: Sequence[Pin], *, lock_sha256: str) -> Json:
    """Return the SBOM of one program.

    `lock_sha256` identifies the lock, which has the hashes of every file that may be installed.
    """
    root = f"pkg:pypi/{PROJECT}@{version}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": program,
                "version": version,
                "purl": root,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
            "properties": [{"name": f"{PROJECT}:lock:sha256", "value": lock_sha256}],
        },
        "components": [_component(pin) for pin in pins],
        "dependencies": _dependencies(root, pins),
    }


def _component(pin: Pin) -> Json:
    component: Json = {
        "type": "library",
        "bom-ref": pin.purl,
        "name": pin.name,
        "version": pin.version,
        "purl": pin.purl,
        "licenses": licenses_of(distribution(pin.name).metadata),
        "externalReferences": [distribution_of(pin)],
    }
    if pin.marker is not None:
        # The package is installed only where this condition (PEP 508) holds.
        component["properties"] = [{"name": f"{PROJECT}:marker", "value": pin.marker}]
    return component


def _dependencies(root: str, pins: Sequence[Pin]) -> list[Json]:
    refs: Mapping[str, str] = {PROJECT: root} | {pin.name: pin.purl for pin in pins}
    return [
        {"ref": ref, "dependsOn": [pin.purl for pin in pins if name in pin.dependents]}
        for name, ref in refs.items()
    ]
