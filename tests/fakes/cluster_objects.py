"""The paths of an API server, and what it does with objects: patches, selectors, validation."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from signer.kinds.attested_node import ATTESTED_NODES
from signer.kinds.endorsement_key import ENDORSEMENT_KEYS
from signer.kinds.key_request import KEY_REQUESTS
from signer.kinds.policy import POLICIES
from signer.kinds.resources import CAPI as CLUSTER_API
from signer.kinds.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CSRS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
    Resource,
)

Object = dict[str, Any]
ATTESTATION = ATTESTED_NODES.api_version
CLUSTERS, MACHINES, MACHINE_POOLS = (
    Resource(CLUSTER_API, "v1beta2", kind, f"{kind.lower()}s")
    for kind in ("Cluster", "Machine", "MachinePool")
)
CAPI = MACHINES.api_version
_ADMISSION = "ValidatingAdmissionPolicy"
RESOURCES = (
    *(CONFIG_MAPS, EVENTS, NODES, PODS, SECRETS, SERVICES),
    *(CSRS, LEASES, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS),
    Resource("admissionregistration.k8s.io", "v1", _ADMISSION, "validatingadmissionpolicies"),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        f"{_ADMISSION}Binding",
        "validatingadmissionpolicybindings",
    ),
    *(CLUSTERS, MACHINES, MACHINE_POOLS),
    *(ATTESTED_NODES, ENDORSEMENT_KEYS, KEY_REQUESTS, POLICIES),
)
"""What an API server serves, unless a test changes it."""
_MAX_ANNOTATIONS = 256 << 10
"""Bytes of all annotations of an object."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a path names: a collection or one object, and a subresource of the object."""

    collection: str
    kind: Mapping[str, str]
    """The API version and kind of its objects."""
    namespace: Mapping[str, str]
    """As their metadata have it; empty for objects without one."""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> str:
        """The place of the object itself."""
        return f"{self.collection}/{self.name}"

    def contains(self, key: str) -> bool:
        """Return whether the collection has the object; one of a kind has all namespaces."""
        collection, _, _ = key.rpartition("/")
        version, _, plural = self.collection.rpartition("/")
        in_namespace = collection.startswith(f"{version}/namespaces/")
        return self.collection == collection or (in_namespace and collection.endswith(f"/{plural}"))


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def merged(current: Any, patch: Any) -> Any:  # noqa: ANN401 # JSON
    """Return the result of a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(current) if isinstance(current, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def applied(current: Any, fields: Any) -> Any:  # noqa: ANN401 # JSON
    """Return the result of a server-side apply: a list of conditions is merged by their types.

    Our programs apply other lists as a whole.
    """
    if isinstance(current, list) and all("type" in item for item in (*current, *fields)):
        own = {condition["type"]: condition for condition in fields}
        others = [own.pop(condition["type"], condition) for condition in current]
        return [*others, *own.values()]
    if not isinstance(fields, dict):
        return fields
    result = dict(current) if isinstance(current, dict) else {}
    return result | {name: applied(result.get(name), fields[name]) for name in fields}


def selects(options: Mapping[str, str], body: Object) -> bool:
    """Return whether field and label selectors select an object."""
    labels = body["metadata"].get("labels") or {}
    fields = [term.partition("=") for term in options.get("fieldSelector", "").split(",") if term]
    wanted = [term.partition("=") for term in options.get("labelSelector", "").split(",") if term]
    return all(_value(body, name) == value for name, _, value in fields) and all(
        labels.get(name) == value if equals else name in labels for name, equals, value in wanted
    )


def json_patched(current: Object, operations: Any) -> Object:  # noqa: ANN401 # JSON
    """Return the result of `replace` and `add`."""
    result = copy.deepcopy(current)
    for operation in operations:
        *parents, last = operation["path"].strip("/").split("/")
        target: Any = result
        for name in parents:
            target = target.setdefault(name, {})
        if last == "-":
            target.append(operation["value"])
        else:
            target[last] = operation["value"]
    return result


def validate(current: Object, new: Object) -> None:
    """Refuse what the API server's validation refuses."""
    annotations = new["metadata"].get("annotations") or {}
    if sum(len(name) + len(value) for name, value in annotations.items()) > _MAX_ANNOTATIONS:
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "metadata.annotations: Too long")
    if new.get("kind") != "CertificateSigningRequest":
        return
    before, after = current.get("status") or {}, new.get("status") or {}
    certificate = before.get("certificate")
    types = [condition["type"] for condition in after.get("conditions") or ()]
    if certificate and after.get("certificate") != certificate:
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "status.certificate: immutable")
    if len(set(types)) < len(types) or {"Approved", "Denied"} <= set(types):
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "status.conditions: Invalid value")


def _value(body: Object, name: str) -> str:
    value: Any = body
    for part in name.split("."):
        value = (value or {}).get(part)
    return str(value or "")
