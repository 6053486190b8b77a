"""The inventory of vCenter Server: where a virtual machine (VM) is, and what it has.

Source: vSphere Web Services API 8.0.1.0: SearchIndex.FindAllByUuid,
PropertyCollector.RetrievePropertiesEx, ManagedEntity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from signer.errors import PlatformQueryFailed
from signer.platforms.https import invalid_answer

_MAX_MACHINES: Final = 500
"""VMs with one BIOS UUID. About 1 KiB each says where they are."""
_MAX_DEPTH: Final = 64
"""Folders in folders."""


class ManagedObjectReference(NamedTuple):
    """A ManagedObjectReference."""

    type: str
    value: str


_ROOT: Final = ManagedObjectReference("Folder", "group-d1")
"""The root folder has this ID in each vCenter Server."""
_ENTITY: Final = ("name", "parent")
Properties = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class VcenterInventory:
    """The VMs of an answer, and all folders above them."""

    objects: Mapping[ManagedObjectReference, Properties]

    def folder(self, machine: ManagedObjectReference) -> str | None:
        """Return the inventory path of the folder that a VM is in, such as `/dc-1/vm/team-a`.

        vCenter writes a `/` in a name as `%2f`. `None` unless the folders lead to the root: a VM in
        a vApp has no parent, and an account without the right to view a folder may not get it.
        """
        path, entity = "", machine
        for _ in range(_MAX_DEPTH):
            parent = self.objects.get(entity, {}).get("parent")
            if parent is None:
                return None
            entity = _read_reference(parent)
            if entity == _ROOT:
                return path
            name = self.objects.get(entity, {}).get("name")
            if not isinstance(name, str):
                return None
            path = f"/{name}{path}"
        return None


def folders(machines: Sequence[ManagedObjectReference]) -> object:
    """Return the parameters that ask for all folders above VMs."""
    return _query(machines, {"ManagedEntity": _ENTITY})


def devices_and_folders(machine: ManagedObjectReference) -> object:
    """Return the parameters that ask for the devices of a VM, and for all folders above it."""
    devices = ["parent", "config.uuid", "config.hardware.device"]
    return _query([machine], {"ManagedEntity": _ENTITY, "VirtualMachine": devices})


def _query(
    machines: Sequence[ManagedObjectReference], properties: Mapping[str, Sequence[str]]
) -> object:
    """Return the parameters that ask for properties of VMs and of all folders above them.

    Of several types of an object, the one that is most derived decides.
    """
    upwards = {"_typeName": "SelectionSpec", "name": "upwards"}
    traversal = {
        "_typeName": "TraversalSpec",
        "name": "upwards",
        "type": "ManagedEntity",
        "path": "parent",
        "skip": False,
        "selectSet": [upwards],
    }
    objects = [
        {
            "_typeName": "ObjectSpec",
            "obj": {"_typeName": "ManagedObjectReference", **machine._asdict()},
            "skip": False,
            "selectSet": [traversal],
        }
        for machine in machines
    ]
    selected = [
        {"_typeName": "PropertySpec", "type": type_name, "pathSet": paths}
        for type_name, paths in properties.items()
    ]
    query = {"_typeName": "PropertyFilterSpec", "propSet": selected, "objectSet": objects}
    return {"specSet": [query], "options": {"_typeName": "RetrieveOptions"}}


def read_references(result: object) -> Sequence[ManagedObjectReference]:
    """Read the VMs that vCenter found; without any it may answer with nothing."""
    references = [] if result is None else as_list(result)
    if len(references) > _MAX_MACHINES:
        raise PlatformQueryFailed("too many VMs have the UUID that the Machine's provider ID names")
    return [_read_reference(reference) for reference in references]


def _read_reference(value: object) -> ManagedObjectReference:
    return ManagedObjectReference(_text(value, "type"), _text(value, "value"))


def read_inventory(result: object) -> VcenterInventory:
    """Read the answer to `folders` or `devices_and_folders`."""
    if "token" in as_object(result):
        raise invalid_answer("the answer is only the first part")
    objects = as_list(as_object(result).get("objects", []))
    return VcenterInventory(
        objects={_read_reference(as_object(o).get("obj")): _read_properties(o) for o in objects}
    )


def _read_properties(content: object) -> Properties:
    properties = as_list(as_object(content).get("propSet", []))
    return {_text(p, "name"): _unwrap(as_object(p).get("val")) for p in properties}


def _unwrap(value: object) -> object:
    """Return the value of a property of any type; texts and lists are in `_value`."""
    return value["_value"] if isinstance(value, dict) and "_value" in value else value


def as_object(value: object) -> dict[str, Any]:
    """Return an object of JSON."""
    if not isinstance(value, dict):
        raise invalid_answer("an object is missing")
    return value


def as_list(value: object) -> list[Any]:
    """Return a list of JSON."""
    if not isinstance(value, list):
        raise invalid_answer("a list is missing")
    return value


def _text(value: object, name: str) -> str:
    text = as_object(value).get(name)
    if not isinstance(text, str):
        raise invalid_answer(f"{name} is missing")
    return text
