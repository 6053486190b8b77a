"""The schema of the chart's values: that of `policies[].spec` comes from the CRD.

`make manifests` writes it. Helm then refuses a wrong or misspelt key before anything is installed.
The rules of the CRD that JSON Schema cannot state are left to the signer.
"""

import json
from typing import Any, Final

import yaml

from builders.version import PROJECT

CHART: Final = PROJECT / "packaging/signer/chart"
SCHEMA: Final = CHART / "values.schema.json"
_CRD: Final = CHART.parent / "crds/kubeletattestationpolicies.yaml"
_OMITTED: Final = {"description", "format"}
"""Keys that check nothing, or that Helm does not know."""


def build_schema() -> dict[str, Any]:
    """Return the schema of the values with the present schema of a policy's `spec`."""
    crd = yaml.load(_CRD.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    [version] = crd["spec"]["versions"]
    policy = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    schema: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    item = schema["properties"]["policies"]["items"]
    item["properties"]["spec"] = _to_json_schema(policy)
    return schema


def write_schema() -> None:
    """Write the schema of the values again."""
    SCHEMA.write_text(json.dumps(build_schema(), indent=2) + "\n", encoding="utf-8")


def _to_json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a structural schema of Kubernetes as JSON Schema that allows no other keys."""
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            result[key] = {name: _to_json_schema(each) for name, each in value.items()}
            result["additionalProperties"] = False
        elif key in {"items", "additionalProperties"}:
            result[key] = _to_json_schema(value)
        elif key == "x-kubernetes-list-type":
            result["uniqueItems"] = value == "set"
        elif key not in _OMITTED and not key.startswith("x-kubernetes-"):
            result[key] = value
    return result
