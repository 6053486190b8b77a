"""Names in serving certificates (S1 to S3): this Machine's, and nobody else's.

Machines' addresses come from infrastructure providers, and some of those repeat what guests say,
so a name that two Machines have is nobody's. What is somebody else's is so in every form that
clients find it under, that of IDNA included; what is one's own, as it is written.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from common.csr import Other, SubjectAltName, valid_node_name
from common.errors import (
    AddressNotOfMachine,
    AddressOfAnotherMachine,
    AddressOfControlPlane,
    NodeNameInvalid,
    SubjectAltNameMissing,
    SubjectAltNameNotAllowed,
)
from signer.model import Cluster, Machine, Records

Name = str | IPv4Address | IPv6Address
"""A name in the one form that is compared: a lower-case DNS name, or an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingNames:
    """Names that a serving certificate may have; `verify_names` makes it."""

    dns: tuple[str, ...]
    addresses: tuple[IPv4Address | IPv6Address, ...]


def verify_names(
    asked: Sequence[SubjectAltName] | None, machine: Machine, records: Records
) -> ServingNames:
    """Check each subject alternative name of a request.

    Raises:
        SubjectAltNameMissing, SubjectAltNameNotAllowed: S1.
        AddressOfControlPlane, AddressOfAnotherMachine: S3.
        AddressNotOfMachine: S2; a Machine's addresses may come later.

    """
    if not asked:
        raise SubjectAltNameMissing("a serving request needs a subject alternative name")
    names = [_strict(name) for name in asked]
    _require_not_control_plane(names, records.cluster())
    own = _names_of(machine)
    if not own.issuperset(names):
        raise AddressNotOfMachine("a name in the request is none of the Machine's addresses")
    for other in records.all_machines():
        if other.uid != machine.uid and not _forms_of(other).isdisjoint(names):
            raise AddressOfAnotherMachine("a name in the request is another Machine's address too")
    return ServingNames(
        dns=tuple(name for name in names if isinstance(name, str)),
        addresses=tuple(name for name in names if not isinstance(name, str)),
    )


def _strict(name: SubjectAltName) -> Name:
    """S1: DNS names as Kubernetes writes them, and addresses; every look-alike is refused."""
    if isinstance(name, Other):
        raise SubjectAltNameNotAllowed(f"a subject alternative name is of type {name.kind}")
    if isinstance(name, IPv6Address) and name.ipv4_mapped is not None:
        raise SubjectAltNameNotAllowed("an IPv4 address is written as an IPv6 one")
    if not isinstance(name, str):
        return name
    folded = _folded(name)
    if _as_address(folded) is not None:
        raise SubjectAltNameNotAllowed("an IP address is written as a DNS name")
    try:
        return valid_node_name(folded)
    except NodeNameInvalid:
        raise SubjectAltNameNotAllowed("a DNS name is not a plain host name") from None


def _folded(name: str) -> str:
    """Fold case, and strip the root's dot (talos-cloud-controller-manager PR #360)."""
    return name.casefold().removesuffix(".")


def _as_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _names_of(machine: Machine) -> frozenset[Name]:
    return frozenset(_normal(a.address) for a in machine.addresses)


def _forms_of(machine: Machine) -> frozenset[Name]:
    return frozenset(form for a in machine.addresses for form in _forms(a.address))


def _normal(text: str) -> Name:
    folded = _folded(text)
    address = _as_address(folded)
    return folded if address is None else address


def _forms(text: str) -> frozenset[Name]:
    """Give every form in which a certificate names this host: letters beyond ASCII have others."""
    if text.isascii():
        return frozenset({_normal(text)})
    return frozenset(map(_normal, (text, _idna(text.lower()), _idna(text.casefold()))))


def _idna(text: str) -> str:
    """Write a host name as it stands in DNS; IDNA of 2003 folds more than what came after it."""
    labels = unicodedata.normalize("NFKC", text).replace("\u3002", ".").split(".")
    return ".".join(
        label if label.isascii() else "xn--" + label.encode("punycode").decode("ascii")
        for label in labels
    )


def _require_not_control_plane(names: Sequence[Name], cluster: Cluster) -> None:
    """S3: with such a name, a node could stand in for the API server."""
    reserved = {form for host in cluster.control_plane_hosts for form in _forms(host)}
    if not reserved.isdisjoint(names):
        raise AddressOfControlPlane("a name in the request belongs to the control plane")
