"""Objects that an API server stores and the decoder refuses."""

from typing import Any, Final

import msgspec

STORED_LEVELS: Final = 9_995
"""Levels of arrays in an object, which kube-apiserver stores (it decodes 10,000)."""


def nested(levels: int) -> msgspec.Raw:
    """Return arrays within arrays, for `encoded`."""
    return msgspec.Raw(b"[" * levels + b"]" * levels)


def with_managed_fields(body: dict[str, Any], levels: int = STORED_LEVELS) -> dict[str, Any]:
    """Return an object whose field owners are nested so deeply; they come before its name."""
    fields = [{"manager": "m", "fieldsV1": {"f:a": nested(levels)}}]
    return {**body, "metadata": {"managedFields": fields, **body["metadata"]}}


def with_free_json(body: dict[str, Any], levels: int = STORED_LEVELS) -> dict[str, Any]:
    """Return an object with a value of a Cluster's variable that is nested so deeply."""
    topology = {"variables": [{"name": "v", "value": nested(levels)}]}
    return {**body, "spec": {**body.get("spec", {}), "topology": topology}}
