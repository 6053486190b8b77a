"""How this project declares its own kinds: one frozen struct says what is read, written and stored.

From the fields and their limits come the decoder, the encoder and the schema of the CRD
(`make manifests`). The text below a field is its description in the CRD. A field without a default
is required; a field with its default is not written. These kinds are strict: what breaks a limit
makes the whole object unreadable, and the API server stores no such object.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final, Self, TypeVar

import msgspec

from common.formats.strict_json import format_time
from signer.kinds.cluster import ClusterKey, shared_cluster_key
from signer.kinds.decode import ClusterName, Fields, MaybeText, Name, Namespace, Text
from signer.kinds.decode import Time as AnyTime
from signer.kinds.resources import Resource

K = TypeVar("K", bound="Record")

_ACRONYMS: Final = {"id": "ID", "ids": "IDs", "uid": "UID"}


def schema(**fields: object) -> msgspec.Meta:
    """Return an annotation with fields of the CRD that no program reads."""
    return msgspec.Meta(extra_json_schema={_keyword(name): value for name, value in fields.items()})


def rules(*rules: tuple[str, str]) -> msgspec.Meta:
    """Return an annotation with rules in CEL, each with its message."""
    return schema(x_kubernetes_validations=validations(*rules))


def validations(*rules: tuple[str, str]) -> list[dict[str, str]]:
    """Return `x-kubernetes-validations` with these rules and their messages."""
    return [{"rule": rule, "message": message} for rule, message in rules]


def _keyword(name: str) -> str:
    return name.replace("_", "-")


ATOMIC: Final = schema(x_kubernetes_list_type="atomic")
SET: Final = schema(x_kubernetes_list_type="set")

Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
MachineUid = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
ProviderId = Annotated[str, msgspec.Meta(min_length=1, max_length=512, pattern=r"^[!-~]+\Z")]
Short = Annotated[str, msgspec.Meta(max_length=64)]
Time = Annotated[
    AnyTime,
    schema(pattern="^2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"),
]
"""A second of UTC. The API server stores no other form, and a program can read each one."""


def _json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(_ACRONYMS.get(word, word.capitalize()) for word in others)


class Record(
    msgspec.Struct, frozen=True, kw_only=True, rename=_json_name, omit_defaults=True, gc=False
):
    """Base of all declared objects and their parts."""

    def replace(self, **changes: Any) -> Self:  # noqa: ANN401 # fields of the struct
        """Return a copy with these fields."""
        return msgspec.structs.replace(self, **changes)


class InCluster(Record, frozen=True, kw_only=True):
    """What a part says of one Cluster."""

    cluster_namespace: Namespace
    """Namespace of the Cluster on the management cluster."""
    cluster_name: ClusterName
    """Name of the Cluster."""

    @classmethod
    def of(cls, cluster: ClusterKey, **fields: Any) -> Self:  # noqa: ANN401 # fields of the struct
        """Return the part of this Cluster with these fields."""
        return cls(cluster_namespace=cluster.namespace, cluster_name=cluster.name, **fields)

    @property
    def cluster(self) -> ClusterKey:
        """Return the key of the Cluster."""
        return shared_cluster_key(self.cluster_namespace, self.cluster_name)


class Metadata(Fields):
    """What the signer reads of the metadata of its own kinds."""

    name: Name
    resource_version: Text
    uid: MaybeText = ""
    creation_timestamp: AnyTime | None = None


class NamespacedMetadata(Metadata, kw_only=True):
    """As `Metadata`, of an object in a namespace."""

    namespace: Namespace


def with_metadata(kind: type[K], spec: Record, metadata: Metadata) -> K:
    """Return the object: its struct extends that of the spec by fields of the metadata."""
    fields = msgspec.structs.asdict(spec)
    own = kind.__struct_fields__
    return kind(**fields, **{name: getattr(metadata, name) for name in own if name not in fields})


def encode(record: Record, declaration: type[Record] | None = None) -> dict[str, Any]:
    """Return the fields of a struct as JSON has them, or those of a struct that it extends."""
    fields = msgspec.to_builtins(record, builtin_types=(datetime,))
    names = (declaration or type(record)).__struct_encode_fields__
    return {name: _with_times(fields[name]) for name in names if name in fields}


def _with_times(value: Any) -> Any:  # noqa: ANN401 # JSON
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, dict):
        return {key: _with_times(each) for key, each in value.items()}
    return [_with_times(each) for each in value] if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of `kubectl get`; a wide one is shown with `-o wide` only."""

    name: str
    path: str
    description: str = ""
    type: str = "string"
    is_wide: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What the CRD of a kind has beside the schema of its `spec`."""

    resource: Resource
    kind: type[object]
    """Its docstring describes the kind."""
    spec: type[Record]
    short_name: str
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
    rules: tuple[tuple[str, str], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    """Beside those that `clusterctl` needs of every CRD."""
