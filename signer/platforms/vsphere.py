"""Endorsement keys of virtual TPMs in vSphere: the certificates of the device `VirtualTPM`.

Source: vSphere Web Services API 8.0.1.0: SearchIndex.FindAllByUuid,
PropertyCollector.RetrievePropertiesEx, VirtualTPM. Built from the reference, and never run against
a real vCenter Server.

The provider ID has the BIOS UUID of a virtual machine (VM), which names no place. So vCenter says
where the VM is: its folders up to the root are read together with its devices, by one request. If
several VMs have the UUID, their folders are read first: the owners of the others could have so many
devices, or so many VMs, that the answer would be too large.
"""

import base64
import re
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import InvalidVersion, load_der_x509_certificate

from signer.errors import PlatformLocationNotAllowed, PlatformQueryFailed
from signer.platforms.https import invalid_answer
from signer.platforms.platform import parse_provider_id
from signer.platforms.vsphere_api.vsphere_inventory import (
    ManagedObjectReference,
    Properties,
    VcenterInventory,
    as_list,
    as_object,
    devices_and_folders,
    folders,
    read_inventory,
    read_references,
)
from signer.platforms.vsphere_api.vsphere_session import (
    QUERY_SECONDS,
    VcenterSession,
    VcenterSessions,
)
from signer.policy.policy import PlatformRules

_PROVIDER_ID: Final = re.compile(
    r"vsphere://(?P<uuid>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
)
"""Cluster API Provider vSphere: `vsphere://<BIOS UUID>`."""
_parse: Final = partial(parse_provider_id, _PROVIDER_ID, "vsphere://<BIOS UUID>")
_SEARCH_INDEX: Final = "SearchIndex/SearchIndex"
_PROPERTY_COLLECTOR: Final = "PropertyCollector/propertyCollector"
"""The IDs of these two and of the session manager are the same in each vCenter Server."""
_UNKNOWN: Final = "unknown: the account needs System.View for all folders up to the root"
_MAX_DETAIL: Final = 1000
"""Characters in the log. The owners of VMs choose the number of copies and their folders."""
_SESSIONS: Final = VcenterSessions()


class Vsphere:
    """One account of a vCenter Server; the location is the folder or datacenter of the VM."""

    def __init__(self, rules: PlatformRules) -> None:
        self._credentials_file = Path(rules.credentials_file)
        self._locations = rules.locations

    def location(self, provider_id: str) -> None:
        """Return `None`: a BIOS UUID names no location."""
        _parse(provider_id)

    def endorsement_keys(self, provider_id: str) -> Collection[bytes]:
        """Query the keys of the virtual TPM of the VM with this BIOS UUID.

        VMs outside of the allowed locations do not count: their owners may copy the UUID.
        """
        uuid = _parse(provider_id)["uuid"]
        until = time.monotonic() + QUERY_SECONDS
        session = _SESSIONS.of(self._credentials_file)
        search = {"uuid": uuid, "vmSearch": True, "instanceUuid": False}
        found = session.invoke(f"{_SEARCH_INDEX}/FindAllByUuid", search, until)
        machines = read_references(found)
        if not machines:
            return []
        machine = machines[0]
        if len(machines) > 1:
            machine = self._require_one_allowed(machines, _read(session, folders(machines), until))
        inventory = _read(session, devices_and_folders(machine), until)
        self._require_one_allowed([machine], inventory)
        return read_keys(inventory.objects[machine], uuid)

    def _require_one_allowed(
        self, machines: Collection[ManagedObjectReference], inventory: VcenterInventory
    ) -> ManagedObjectReference:
        """Return the only VM that is in an allowed location."""
        paths = {machine: inventory.folder(machine) for machine in machines}
        allowed = [machine for machine, path in paths.items() if self._allows(path)]
        if not allowed:
            raise PlatformLocationNotAllowed(
                "the policy does not allow the location of the Machine's VM",
                detail=", ".join(path or _UNKNOWN for path in paths.values())[:_MAX_DETAIL],
            )
        if len(allowed) > 1:
            raise PlatformQueryFailed(
                "several VMs have the UUID that the Machine's provider ID names",
                detail=", ".join(sorted(machine.value for machine in allowed))[:_MAX_DETAIL],
            )
        return allowed[0]

    def _allows(self, path: str | None) -> bool:
        if path is None:
            return False
        return any(f"{path}/".startswith(f"{location}/") for location in self._locations)


def _read(session: VcenterSession, query: object, until: float) -> VcenterInventory:
    return read_inventory(
        session.invoke(f"{_PROPERTY_COLLECTOR}/RetrievePropertiesEx", query, until)
    )


def read_keys(machine: Properties, uuid: str) -> Collection[bytes]:
    """Return the keys that the certificates of the virtual TPM certify: RSA, ECC, none or both."""
    if machine.get("config.uuid") != uuid:
        raise invalid_answer("the VM has another UUID")
    devices = as_list(machine.get("config.hardware.device"))
    tpms = [device for device in devices if as_object(device).get("_typeName") == "VirtualTPM"]
    certificates = (as_list(tpm.get("endorsementKeyCertificate", [])) for tpm in tpms)
    return [_public_key(encoded) for encodeds in certificates for encoded in encodeds]


def _public_key(encoded: object) -> bytes:
    try:
        der = base64.b64decode(str(encoded), validate=True)
        key = load_der_x509_certificate(der).public_key()
        return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, UnsupportedAlgorithm, InvalidVersion) as error:
        raise invalid_answer(f"an endorsement certificate cannot be read: {error}") from error
