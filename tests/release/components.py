"""What the SBOMs say of a Python package: its licenses, and the hashes of its files."""

from importlib.metadata import PackageMetadata
from typing import Any

from tests.release.lock import Pin

Json = dict[str, Any]


def licenses_of(metadata: PackageMetadata) -> list[Json]:
    """Return the licenses in the metadata of an installed package: an SPDX expression, or a name.

    Raises `ValueError`: it names none.
    """
    if "License-Expression" in metadata:
        return [{"expression": metadata["License-Expression"]}]
    if "License" in metadata:
        return [{"license": {"name": metadata["License"]}}]
    raise ValueError(f"the metadata of {metadata['Name']} must have a license")


def distribution_of(pin: Pin) -> Json:
    """Return the reference to the files of a locked package, any of which may be installed."""
    hashes = [{"alg": "SHA-256", "content": digest} for digest in pin.sha256]
    return {"type": "distribution", "url": pin.purl, "hashes": hashes}
