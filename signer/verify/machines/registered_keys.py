"""Collects the endorsement keys registered for a Machine: annotations and registrations (E2)."""

from typing import Protocol

from signer.kinds.endorsement_key import Registration
from signer.kinds.machine import Machine
from signer.seams import Inventory


class NamedMachine(Protocol):
    """What registrations compare of a Machine."""

    @property
    def name(self) -> str:
        """Return its name."""

    @property
    def provider_id(self) -> str:
        """Return its provider ID."""


def registered_keys(machine: Machine, node_name: str, inventory: Inventory) -> frozenset[str]:
    """Return the names of the EndorsementKeys registered for the Machine.

    `node_name` is the Machine's node name, or the one that it requests.
    """
    annotated = {record.spki_sha256.hex() for record in machine.registered_keys}
    entries = inventory.registrations(machine.provider_id, machine.name, node_name)
    registered = {key for key, entry in entries if is_registration_of(entry, machine, node_name)}
    return frozenset(annotated | registered)


def is_name_registered_to_other_key(
    key: str, machine: Machine, node_name: str, inventory: Inventory
) -> bool:
    """Return whether operators registered the node name for other keys only.

    A guest may set its Machine's addresses, but not a registration. So a registration decides who
    may claim a name first. One that also names this Machine leaves the name to all of its keys.
    """
    registrations = [
        (name, entry)
        for name, entry in inventory.registrations(node_name)
        if entry.node_name == node_name
    ]
    return bool(registrations) and not any(
        name == key or _names_machine(entry, machine, node_name) for name, entry in registrations
    )


def _names_machine(entry: Registration, machine: Machine, node_name: str) -> bool:
    """Return whether a registration matches this Machine by more than the node name."""
    by_machine = (entry.provider_id, entry.machine_name) != (None, None)
    return by_machine and is_registration_of(entry, machine, node_name)


def is_registration_of(entry: Registration, machine: NamedMachine, node_name: str) -> bool:
    """Return whether a registration has a field, and all its fields match this Machine."""
    fields = (
        (entry.provider_id, machine.provider_id),
        (entry.machine_name, machine.name),
        (entry.node_name, node_name),
    )
    given = [(expected, actual) for expected, actual in fields if expected is not None]
    return bool(given) and all(expected == actual for expected, actual in given)
