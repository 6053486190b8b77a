"""The signer's objects for a world of the model, and numbers for them.

A state holds the numbers: they are small, and equal for equal objects.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeVar

from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.cluster import Cluster, ClusterKey
from signer.kinds.csr import Csr
from signer.kinds.endorsement_key import EndorsementKeyObject, Release
from signer.kinds.machine import Address, Machine, RegisteredKey
from signer.kinds.node import Node
from tests.builders.endorsement_keys import BAN, endorsement_key, registration
from tests.builders.scenario import CLUSTER
from tests.model.messages import Answer, Place
from tests.model.world import Made, Scenario, World

NOW: Final = datetime(2026, 11, 23, tzinfo=UTC)
NOT_AFTER: Final = NOW + timedelta(days=7)
LAPSED: Final = NOW - timedelta(days=7)
"""`notAfter` of a claim whose certificates have expired."""
V = TypeVar("V", EndorsementKeyObject, AttestedNodeObject)


class Numbers(Generic[V]):
    """Numbers objects that differ in more than their resourceVersion."""

    def __init__(self) -> None:
        self._numbers: dict[V, int] = {}
        self._objects: list[tuple[V, V]] = []

    def of(self, value: V) -> int:
        """Return the number of an object."""
        current = value.replace(resource_version="current")
        number = self._numbers.setdefault(current, len(self._objects))
        if number == len(self._objects):
            self._objects.append((current, value.replace(resource_version="old")))
        return number

    def get(self, number: int, *, is_current: bool = True) -> V:
        """Return an object, under the present resourceVersion or under an earlier one."""
        current, old = self._objects[number]
        return current if is_current else old


def key_name(key: str) -> str:
    """Return the name of an EndorsementKey, which is a digest in hex."""
    return key.encode().hex()


def key_of(name: str) -> str:
    """Return the key of an EndorsementKey."""
    return bytes.fromhex(name).decode()


def cluster_key(cluster: str) -> ClusterKey:
    """Return the name of a Cluster."""
    return ClusterKey(namespace="tenants", name=cluster)


def cluster_object(cluster: str, world: World) -> Cluster:
    """Return a Cluster."""
    return replace(CLUSTER, key=cluster_key(cluster), paused=cluster in world.paused)


def place_of(node: AttestedNodeObject) -> Place:
    """Return what an AttestedNode names."""
    return Place(node.cluster.name, node.node_name, node.provider_id)


def machine_object(machine: Made, keys: Iterable[str], scenario: Scenario) -> Machine:
    """Return a Machine with these registered keys."""
    return Machine(
        name=machine.name,
        uid=machine.uid,
        provider_id=machine.provider_id,
        deleting=machine.is_deleting,
        bootstrap_ready=True,
        addresses=tuple(Address(type="Hostname", address=name) for name in machine.node_names),
        node_ref=None,
        created=NOW,
        bootstrap_token_id=f"of-{machine.provider_id}" if scenario.own_tokens else None,
        is_pool_member=machine.is_pool_member,
        labels={},
        registered_keys=tuple(
            RegisteredKey(source="annotation", spki_sha256=key.encode()) for key in sorted(keys)
        ),
        registered_keys_error=None,
        vm_id=None if machine.is_pool_member else machine.provider_id,
    )


def machine_objects(world: World, scenario: Scenario) -> dict[ClusterKey, list[Machine]]:
    """Return the Machines of a world, with the keys that are registered for them."""
    machines: dict[ClusterKey, list[Machine]] = {}
    for machine in sorted(world.machines):
        keys = {
            key
            for key, place in world.records
            if (place.cluster, place.provider_id) == (machine.cluster, machine.provider_id)
            and place.name in machine.node_names
        }
        listed = machines.setdefault(cluster_key(machine.cluster), [])
        listed.append(machine_object(machine, keys, scenario))
    return machines


def node_objects(joined: Iterable[tuple[Place, str]], cluster: str) -> list[Node]:
    """Return the Nodes of a workload cluster."""
    places = sorted(place for place, _ in joined if place.cluster == cluster)
    return [Node(name=place.name, provider_id=place.provider_id) for place in places]


def unclaimed_key(key: str, scenario: Scenario) -> EndorsementKeyObject:
    """Return an EndorsementKey as operators write it."""
    entries = tuple(
        registration(
            cluster_key(place.cluster), provider_id=place.provider_id, node_name=place.name
        )
        for registered, place in scenario.registered
        if registered == key
    )
    return endorsement_key(key_name(key), resource_version="", registered_for=entries)


def judged(key: EndorsementKeyObject, world: World) -> EndorsementKeyObject:
    """Return an EndorsementKey with the bans and releases of a world."""
    name = key_of(key.name)
    released = sorted(cluster for released, cluster in world.released if released == name)
    return key.replace(
        banned=BAN if name in world.banned else None,
        released_from=tuple(
            Release.of(cluster_key(cluster), provider_id=None) for cluster in released
        ),
    )


def csr_object(it: Answer) -> Csr:
    """Return the CSR of an answer, as far as M and E read it."""
    is_node = it.requester.startswith("node:")
    name = it.requester.removeprefix("node:")
    return Csr(
        name="answer",
        uid="",
        resource_version="",
        created=NOW,
        signer_name="",
        username=f"system:node:{name}" if is_node else f"system:bootstrap:{name}",
        groups=frozenset({"system:nodes" if is_node else "system:bootstrappers"}),
        credential_id="",
        usages=("client auth", "digital signature"),
        expiration_seconds=None,
        request=b"",
        annotations={},
        annotations_size=0,
        conditions={},
        certificate=None,
    )
