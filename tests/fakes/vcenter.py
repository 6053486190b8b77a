"""The JSON form of vCenter's Web Services API, as far as endorsement keys need it.

The answers have the form of "Virtual Infrastructure JSON API" 8.0.1.0. They were not recorded from
a real server. `tests/integration/test_vcenter_contract.py` compares them with VMware's simulator.
"""

import base64
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.api_server import Answering, Handler

USERNAME = "signer@vsphere.local"
PASSWORD = "correct horse battery staple"
TOKEN = "vmware-api-session-id"
_API = "/sdk/vim25/8.0.1.0/"
_ROOT = "group-d1"


@dataclass(slots=True)
class VirtualMachine:
    """A VM in a folder."""

    uuid: str
    folder: str
    """Its inventory path, such as `/dc-1/vm/team-a`."""
    certificates: Sequence[bytes] | None = None
    """The endorsement certificates as DER; `None`: the VM has no virtual TPM."""


@dataclass(slots=True)
class FakeVcenter:
    """One vCenter Server with one account."""

    machines: list[VirtualMachine] = field(default_factory=list)
    password: str = PASSWORD
    sessions: set[str] = field(default_factory=set)
    overrides: dict[str, Handler] = field(default_factory=dict)
    """Other answers, by name of a method."""
    calls: list[str] = field(default_factory=list)
    """The names of the methods that were called."""

    def handle(self, answering: Answering) -> None:
        request = answering.server.requests[-1]
        assert request.method == "POST"
        method = request.path.removeprefix(_API)
        name = method.rpartition("/")[2]
        self.calls.append(name)
        if name in self.overrides:
            self.overrides[name](answering)
        elif method == "SessionManager/SessionManager/Login":
            self._log_in(answering, request.body)
        elif answering.headers.get(TOKEN) not in self.sessions:
            give_fault(answering, "NotAuthenticated")
        elif method == "SessionManager/SessionManager/Logout":
            self.sessions.remove(answering.headers[TOKEN])
            answering.give(b"", 204)
        elif method == "SearchIndex/SearchIndex/FindAllByUuid":
            answering.give(self._find(request.body))
        elif method == "PropertyCollector/propertyCollector/RetrievePropertiesEx":
            answering.give(self._retrieve(request.body))
        else:
            answering.give(b"", 404)

    def _log_in(self, answering: Answering, parameters: object) -> None:
        if parameters != {"userName": USERNAME, "password": self.password}:
            give_fault(answering, "InvalidLogin")
            return
        token = secrets.token_hex(20)
        self.sessions.add(token)
        body = {"_typeName": "UserSession", "key": "52e7", "userName": USERNAME, "callCount": 0}
        answering.give(body, 200, **{TOKEN: token})

    def _find(self, parameters: Mapping[str, Any]) -> object:
        uuid = parameters["uuid"]
        assert parameters == {"uuid": uuid, "vmSearch": True, "instanceUuid": False}
        found = [i for i, machine in enumerate(self.machines) if machine.uuid == uuid]
        return [reference("VirtualMachine", f"vm-{i}") for i in found]

    def _retrieve(self, parameters: Mapping[str, Any]) -> object:
        (query,) = parameters["specSet"]
        paths = {wanted["type"]: wanted["pathSet"] for wanted in query["propSet"]}
        wanted = paths.get("VirtualMachine", paths["ManagedEntity"])
        objects: dict[str, object] = {}
        for selected in query["objectSet"]:
            assert selected["selectSet"][0]["path"] == "parent"
            machine = self.machines[int(selected["obj"]["value"].removeprefix("vm-"))]
            objects |= self._folders(machine.folder)
            objects[selected["obj"]["value"]] = _describe_machine(selected["obj"], machine, wanted)
        return {"_typeName": "RetrieveResult", "objects": list(objects.values())}

    def _folders(self, path: str) -> Mapping[str, object]:
        """Describe a folder and all above it."""
        root = reference("Folder", _ROOT)
        objects = {_ROOT: content(root, {"name": text("Datacenters")})}
        names = path.strip("/").split("/")
        parent = root
        for depth in range(len(names)):
            identifier = "group-" + "-".join(names[: depth + 1])
            folder = reference("Folder", identifier)
            properties = {"name": text(names[depth]), "parent": parent}
            objects[identifier] = content(folder, properties)
            parent = folder
        return objects


def _describe_machine(obj: object, machine: VirtualMachine, wanted: Sequence[str]) -> object:
    """Describe a VM by the properties that were asked for."""
    devices: list[object] = [
        {"_typeName": "VirtualIDEController", "key": 200, "busNumber": 0},
        {"_typeName": "VirtualE1000", "key": 4000, "macAddress": "00:50:56:00:00:01"},
    ]
    if machine.certificates is not None:
        encoded = [base64.b64encode(der).decode() for der in machine.certificates]
        # An empty list is left out.
        certificates = {"endorsementKeyCertificate": encoded} if encoded else {}
        devices.append({"_typeName": "VirtualTPM", "key": 11000, **certificates})
    names = machine.folder.strip("/").split("/")
    properties = {
        "parent": reference("Folder", "group-" + "-".join(names)),
        "config.uuid": text(machine.uuid),
        "config.hardware.device": {"_typeName": "ArrayOfVirtualDevice", "_value": devices},
    }
    return content(obj, {name: properties[name] for name in wanted if name in properties})


def reference(type_name: str, value: str) -> dict[str, str]:
    """Return a ManagedObjectReference."""
    return {"_typeName": "ManagedObjectReference", "type": type_name, "value": value}


def text(value: str) -> dict[str, str]:
    """Return a property that is a string."""
    return {"_typeName": "string", "_value": value}


def content(obj: object, properties: Mapping[str, object]) -> dict[str, object]:
    """Return an object and its properties."""
    listed = [
        {"_typeName": "DynamicProperty", "name": name, "val": value}
        for name, value in properties.items()
    ]
    return {"_typeName": "ObjectContent", "obj": obj, "propSet": listed}


def give_fault(answering: Answering, type_name: str) -> None:
    """Answer with an error of the API."""
    answering.give({"_typeName": type_name, "faultstring": "Refused."}, 500)
