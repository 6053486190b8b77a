"""Names in serving certificates (S1 to S3): this Machine's, and nobody else's.

Machines' addresses come from infrastructure providers, and some of those repeat what guests say,
so a name that two Machines have is nobody's. What is somebody else's is so in every form that
clients find it under, that of IDNA included; what is one's own, as it is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from common.csr import OtherGeneralName, SubjectAltName, require_node_name
from common.errors import NodeNameInvalid
from signer.errors import (
    AddressNotOfMachine,
    AddressOfAnotherMachine,
    AddressOfControlPlane,
    SubjectAltNameMissing,
    SubjectAltNameNotAllowed,
)
from signer.host_names import HostName, as_address, equivalent_names, fold_case, normalize
from signer.model import Cluster, Inventory, Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingNames:
    """Names that a serving certificate may have; `verify_names` makes it."""

    dns: tuple[str, ...]
    addresses: tuple[IPv4Address | IPv6Address, ...]


def verify_serving_names(
    asked: Sequence[SubjectAltName] | None, machine: Machine, records: Inventory
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
    for name in set(names):
        if any(other.uid != machine.uid for other in records.machines_with_host_name(name)):
            raise AddressOfAnotherMachine("a name in the request is another Machine's address too")
    return ServingNames(
        dns=tuple(name for name in names if isinstance(name, str)),
        addresses=tuple(name for name in names if not isinstance(name, str)),
    )


def _strict(name: SubjectAltName) -> HostName:
    """S1: DNS names as Kubernetes writes them, and addresses; every look-alike is refused."""
    if isinstance(name, OtherGeneralName):
        raise SubjectAltNameNotAllowed(f"a subject alternative name is of type {name.kind}")
    if isinstance(name, IPv6Address) and name.ipv4_mapped is not None:
        raise SubjectAltNameNotAllowed("an IPv4 address is written as an IPv6 one")
    if not isinstance(name, str):
        return name
    written = fold_case(name)
    if as_address(written) is not None:
        raise SubjectAltNameNotAllowed("an IP address is written as a DNS name")
    try:
        return require_node_name(written)
    except NodeNameInvalid:
        raise SubjectAltNameNotAllowed("a DNS name is not a plain host name") from None


def _names_of(machine: Machine) -> frozenset[HostName]:
    return frozenset(normalize(a.address) for a in machine.addresses)


def _require_not_control_plane(names: Sequence[HostName], cluster: Cluster) -> None:
    """S3: with such a name, a node could stand in for the API server."""
    reserved = {form for host in cluster.control_plane_hosts for form in equivalent_names(host)}
    if not reserved.isdisjoint(names):
        raise AddressOfControlPlane("a name in the request belongs to the control plane")
