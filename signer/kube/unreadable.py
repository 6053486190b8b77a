"""Objects that cannot be read, and what one means for the others of its kind."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import msgspec

from signer.kinds.decode import Source
from signer.kube.scan import Identity, identify


class Effect(Enum):
    """What is not decided while an object cannot be read."""

    KIND = "what needs all objects of its kind is undecided, and what has its name"
    NAMESPACE = "all of its namespace is undecided, or all of its workload cluster"
    NAME = "what has its name is undecided"
    NOTHING = "it is left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """An object that cannot be read; texts are empty where the object does not say them."""

    key: str
    """`namespace/name`, or `name`."""
    problem: str
    api_version: str = ""
    kind: str = ""
    uid: str = ""

    def __str__(self) -> str:
        """Return the object and its problem, for an operator."""
        return f"{self.kind} {self.key}: {self.problem}".lstrip()


def describe_unreadable(body: Source, error: Exception, key: str = "") -> Unreadable:
    """Return what is known of an object that cannot be read."""
    try:
        known = identify(
            bytes(body) if isinstance(body, (bytes, msgspec.Raw)) else msgspec.json.encode(body)
        )
    except ValueError:
        known = Identity(name=key or "(without a name)")
    return Unreadable(
        key=key or known.key,
        problem=str(error)[:500],
        api_version=known.api_version or "",
        kind=known.kind or "",
        uid=known.uid or "",
    )


class UnreadableObject(NamedTuple):
    """One object, and whose it is."""

    namespace: str
    """Of the management cluster; empty for an object without one."""
    cluster: str
    """The Cluster whose workload cluster has the object, as `namespace/name`; or empty."""
    plural: str
    unreadable: Unreadable
