"""A Machine of Cluster API, or a member of a MachinePool."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredKey:
    """A trusted statement that the Machine has this endorsement key."""

    source: str
    """Where the statement is, for messages, e.g. `Machine annotation`."""
    spki_sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One of a Machine's addresses, as Cluster API types them (Hostname, InternalIP, ...)."""

    type: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A Machine, or a member of a MachinePool that has no Machine object."""

    name: str
    uid: str
    provider_id: str
    deleting: bool
    bootstrap_ready: bool
    addresses: tuple[Address, ...]
    node_ref: str | None
    created: datetime | None
    """`None` for a pool member without a Machine object. `clusterctl move` makes it later."""
    bootstrap_token_id: str | None
    """ID of the token that the Machine's bootstrap configuration owns, if it owns one."""
    is_pool_member: bool
    labels: Mapping[str, str]
    registered_keys: tuple[RegisteredKey, ...]
    """From the annotations on Machine and infrastructure object."""
    registered_keys_error: str | None
    """Why such an annotation could not be read; the Machine may then have more registered keys."""
    vm_id: str | None = None
    """UUID of its virtual machine in lower case, by the annotation on the Machine."""


class MachineState(Enum):
    """Whether the Machine of a claim exists. A complete claim is live only while it does."""

    PRESENT = "present"
    DELETING = "deleting"
    """It is being deleted, or may come: its Cluster is paused, as `clusterctl move` does it."""
    ABSENT = "absent"
