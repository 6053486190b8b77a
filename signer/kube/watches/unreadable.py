"""Objects that cannot be read, and what one means for the others of its kind."""

from dataclasses import dataclass
from enum import Enum

import msgspec

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


def describe_unreadable(key: str, body: bytes | msgspec.Raw, error: Exception) -> Unreadable:
    """Return what is known of an object that cannot be read."""
    try:
        known = identify(bytes(body))
    except ValueError:
        known = Identity(name=key)
    return Unreadable(
        key=key,
        problem=str(error)[:500],
        api_version=known.api_version or "",
        kind=known.kind or "",
        uid=known.uid or "",
    )
