"""Writes the CRDs from the declarations in `signer/kinds`.

    python -m builders.crds packaging/signer/crds

A description is the text below a field; a docstring describes a kind, or an entry of a list. The
schema is structural, as API servers require it: no `$ref`, and nothing that may be null.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import inspect as types

from signer.kinds import attested_node, endorsement_key, key_request
from signer.kinds.record import Column, Definition, Record, validations

DEFINITIONS: Final = (
    attested_node.DEFINITION,
    endorsement_key.DEFINITION,
    key_request.DEFINITION,
)
_LABELS: Final = {"cluster.x-k8s.io/v1beta2": "v1alpha1", "clusterctl.cluster.x-k8s.io": ""}
"""The contract of Cluster API that the kinds are for, and that `clusterctl` discovers them."""
_HEADER: Final = "# Written from {} by `make manifests`. Do not edit.\n"
_WIDTH: Final = 120
Schema = dict[str, Any]


def write_crds(directory: Path) -> None:
    """Write one file for each kind."""
    for definition in DEFINITIONS:
        path = directory / f"{definition.resource.plural}.yaml"
        path.write_text(render(definition), encoding="utf-8")


def render(definition: Definition) -> str:
    """Return the CRD of a kind as YAML."""
    source = definition.spec.__module__.replace(".", "/") + ".py"
    body = yaml.dump(crd(definition), Dumper=_Dumper, sort_keys=False, width=_WIDTH)
    return _HEADER.format(source) + body


def crd(definition: Definition) -> Schema:
    """Return the CRD of a kind."""
    resource = definition.resource
    singular = resource.kind.lower()
    version: Schema = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(each) for each in definition.columns],
    }
    if definition.selectable:
        paths = [{"jsonPath": f".spec.{path}"} for path in definition.selectable]
        version["selectableFields"] = paths
    version["schema"] = {"openAPIV3Schema": _object(definition)}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            "labels": {**_LABELS, **definition.labels},
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": singular,
                "shortNames": [definition.short_name],
                "categories": ["cluster-api"],
            },
            "versions": [version],
        },
    }


def _column(column: Column) -> Schema:
    described = {"description": column.description} if column.description else {}
    wide = {"priority": 1} if column.is_wide else {}
    return {
        "name": column.name,
        **described,
        "type": column.type,
        **wide,
        "jsonPath": column.path,
    }


def _object(definition: Definition) -> Schema:
    schema: Schema = {
        "description": _docstring(definition.kind),
        "type": "object",
        "required": ["spec"],
    }
    if definition.rules:
        schema["x-kubernetes-validations"] = validations(*definition.rules)
    spec = _schema(types.type_info(definition.spec))
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": {"description": _docstring(definition.spec), **spec},
    }
    return schema


def _schema(kind: types.Type) -> Schema:  # noqa: C901, PLR0911 - one case for each type
    """Return the structural schema of a type."""
    match kind:
        case types.Metadata(inner, extra):
            return {**_schema(inner), **(extra or {})}
        case types.UnionType(kinds):
            [inner] = [each for each in kinds if not isinstance(each, types.NoneType)]
            return _schema(inner)
        case types.StructType():
            return _fields(kind)
        case types.DictType():
            limits = _limits(maxProperties=kind.max_length)
            return {
                "type": "object",
                **limits,
                "additionalProperties": _schema(kind.value_type),
            }
        case types.VarTupleType():
            limits = _limits(minItems=kind.min_length, maxItems=kind.max_length)
            return {"type": "array", **limits, "items": _entry(kind.item_type)}
        case types.StrType():
            pattern = kind.pattern and kind.pattern.replace(r"\Z", "$")
            limits = _limits(minLength=kind.min_length, maxLength=kind.max_length, pattern=pattern)
            return {"type": "string", **limits}
        case types.IntType():
            return {
                "type": "integer",
                "format": "int64",
                **_limits(minimum=kind.ge, maximum=kind.le),
            }
        case types.BoolType():
            return {"type": "boolean"}
        case types.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case types.EnumType():
            return {"type": "string", "enum": [member.value for member in kind.cls]}
    raise TypeError(f"no schema is known for {kind}")


def _limits(**limits: object) -> Schema:
    return {name: limit for name, limit in limits.items() if limit is not None}


def _entry(kind: types.Type) -> Schema:
    inner = kind.type if isinstance(kind, types.Metadata) else kind
    described = (
        {"description": _docstring(inner.cls)} if isinstance(inner, types.StructType) else {}
    )
    return {**described, **_schema(kind)}


def _fields(struct: types.StructType) -> Schema:
    texts = _descriptions(struct.cls)
    required = [field.encode_name for field in struct.fields if field.required]
    properties = {
        field.encode_name: {"description": texts[field.name], **_schema(field.type)}
        for field in struct.fields
    }
    requires = {"required": required} if required else {}
    return {"type": "object", **requires, "properties": properties}


def _descriptions(struct: type[Any]) -> Mapping[str, str]:
    """Return the text below each field of a struct and of those that it extends."""
    texts: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        if issubclass(each, Record) and each is not Record:
            [definition] = ast.parse(textwrap.dedent(inspect.getsource(each))).body
            statements = definition.body if isinstance(definition, ast.ClassDef) else []
            for field, text in pairwise(statements):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value):
                        texts[name] = _one_line(ast.literal_eval(value))
    return texts


def _docstring(kind: type[object]) -> str:
    return _one_line(kind.__doc__ or "")


def _one_line(text: str) -> str:
    return " ".join(text.split())


class _Dumper(yaml.SafeDumper):
    """Writes no anchors: each reader of YAML understands the files."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base class decides it
        return True


if __name__ == "__main__":
    write_crds(Path(sys.argv[1]))
