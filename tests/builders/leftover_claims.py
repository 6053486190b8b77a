"""Claims that a crash or `clusterctl move` leaves half: the key and a living node disagree."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from signer.kinds.attested_node import AttestedNodeObject
from tests.builders.scenario import ABROAD, Scenario, key_name, machine

OTHER_ID: Final = "metal://rack-1/slot-2"
LIVING: Final = machine(name="machine-0", uid="uid-after-a-move", provider_id=OTHER_ID)
"""A Machine of another Cluster, which `clusterctl move` gave a new UID."""


def moved_claim(scenario: Scenario, *, deleting: bool = False) -> AttestedNodeObject:
    """Claim the key for a node of the other Cluster, whose Machine was moved."""
    holder = scenario.holder(cluster=ABROAD, node_name="old-name", provider_id=OTHER_ID)
    scenario.put_key(key_name(scenario.ek), held_by=holder)
    scenario.store.machines[ABROAD] = [replace(LIVING, deleting=deleting)]
    return scenario.put_node(
        key_name(scenario.ek), holder, machine_name="machine-0", machine_uid="uid-before-the-move"
    )


def crash_before_k2(scenario: Scenario) -> None:
    """Let the Machine of the claim request another node name, and the signer end after K1."""
    renamed = scenario.holder(cluster=ABROAD, node_name="new-name", provider_id=OTHER_ID)
    scenario.put_key(key_name(scenario.ek), held_by=renamed)


def holder_is_lost(scenario: Scenario) -> None:
    """Move the AttestedNode to a management cluster that has the key without a holder."""
    scenario.put_key(key_name(scenario.ek), held_by=None)


def _key_is_lost(scenario: Scenario) -> None:
    del scenario.store.keys[key_name(scenario.ek)]


def _holder_is_another_machine(scenario: Scenario) -> None:
    """Move the AttestedNode to a management cluster that has the key of a Machine that is gone."""
    gone = scenario.holder(node_name="gone", provider_id="metal://rack-1/slot-9")
    scenario.put_key(key_name(scenario.ek), held_by=gone)
    scenario.put_node(key_name(scenario.ek), gone)


LEFTOVERS: Final[Mapping[str, Callable[[Scenario], None]]] = {
    "a crash between K1 and K2": crash_before_k2,
    "a key without a holder": holder_is_lost,
    "a deleted key": _key_is_lost,
    "a holder that is gone": _holder_is_another_machine,
}
"""What happens to a claim of `moved_claim`, by name."""
