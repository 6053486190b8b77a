"""Endorsement keys on record for a Machine, from annotations and registrations (E2)."""

from signer.model import Inventory, Machine, Registration


def registered_keys(machine: Machine, node_name: str, records: Inventory) -> frozenset[str]:
    """Collect the names of the EndorsementKeys that annotations and registrations give.

    `node_name` is one that the Machine has, or is about to be given under these records.
    """
    annotated = {record.spki_sha256.hex() for record in machine.registered_keys}
    entries = records.registrations(machine.provider_id, machine.name, node_name)
    registered = {key for key, entry in entries if _is_for(entry, machine, node_name)}
    return frozenset(annotated | registered)


def is_name_registered_to_other_key(
    key: str, machine: Machine, node_name: str, records: Inventory
) -> bool:
    """Tell whether operators registered other keys for the node name, and none for this Machine.

    A Machine's addresses may come from its guest, a registration does not: where one gives the
    name, it says whose it is before anybody has claimed it.
    """
    named = [
        (name, entry)
        for name, entry in records.registrations(node_name)
        if entry.node_name == node_name
    ]
    return bool(named) and not any(
        name == key or _names_machine(entry, machine, node_name) for name, entry in named
    )


def _names_machine(entry: Registration, machine: Machine, node_name: str) -> bool:
    """Tell whether a registration means this Machine, by more than the node name."""
    by_more = (entry.provider_id, entry.machine_name) != (None, None)
    return by_more and _is_for(entry, machine, node_name)


def _is_for(entry: Registration, machine: Machine, node_name: str) -> bool:
    """Tell whether a registration means this Machine: it says something, and nothing else."""
    said = (
        (entry.provider_id, machine.provider_id),
        (entry.machine_name, machine.name),
        (entry.node_name, node_name),
    )
    given = [(expected, actual) for expected, actual in said if expected is not None]
    return bool(given) and all(expected == actual for expected, actual in given)
