"""Verifies the names in serving certificates (S1 to S3): each is this Machine's and no other's.

Infrastructure providers report Machines' addresses, and some of them repeat what a guest reports.
So a name that two Machines have is accepted for neither, and names and addresses that cannot be one
Machine's are refused. Names of the control plane and of other Machines are compared in the form
that all their spellings share, IDNA included; the Machine's own names only as they are written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from common.errors import NodeNameInvalid
from common.node_identity import require_dns_name
from common.requests.pkcs10 import OtherGeneralName, SubjectAltName
from signer.errors import (
    AddressNotOfMachine,
    AddressOfAnotherMachine,
    AddressOfControlPlane,
    AddressReserved,
    SubjectAltNameMissing,
    SubjectAltNameNotAllowed,
)
from signer.host_names import HostName, as_address, canonical_name, fold_case, normalize
from signer.kinds.cluster import Cluster
from signer.kinds.machine import Machine
from signer.seams import Inventory

_METADATA_ADDRESSES: Final = frozenset(
    map(
        ip_address,
        (
            "169.254.169.254",  # most clouds
            "fd00:ec2::254",  # AWS
            "fd20:ce::254",  # Google
            "168.63.129.16",  # Azure
            "100.100.100.200",  # Alibaba
        ),
    )
)
_BROADCAST: Final = ip_address("255.255.255.255")
_RESERVED_DOMAINS: Final = ("localhost", "svc", "metadata.google.internal")
"""RFC 6761 section 6.3; Services by the resolver's search path; Google's metadata server."""
_SEARCHED_DOMAINS: Final = ("pod", "default", "kube-node-lease", "kube-public", "kube-system")
"""What a pod finds below the search path of its resolver (`svc.<domain>` and `<domain>`): Services
in the namespaces that every cluster has, and names of pods. The signer knows no other namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingNames:
    """Names that a serving certificate may have; only `verify_serving_names` creates one."""

    dns: tuple[str, ...]
    addresses: tuple[IPv4Address | IPv6Address, ...]


def verify_serving_names(
    requested: Sequence[SubjectAltName] | None, machine: Machine, inventory: Inventory
) -> ServingNames:
    """Verify each subject alternative name of a request.

    Raises:
        SubjectAltNameMissing, SubjectAltNameNotAllowed: S1.
        AddressNotOfMachine: S2; the Machine may get the address later.
        AddressOfControlPlane, AddressReserved, AddressOfAnotherMachine: S3.

    """
    if not requested:
        raise SubjectAltNameMissing("a serving request needs a subject alternative name")
    names = [_require_plain_name(name) for name in requested]  # (S1)
    cluster = inventory.cluster()
    canonical = {canonical_name(n) if isinstance(n, str) else n for n in names}
    if not canonical.isdisjoint(cluster.control_plane_hosts):  # (S3)
        raise AddressOfControlPlane("a name in the request belongs to the control plane")
    if any(_is_reserved(name, cluster) for name in names):  # (S3)
        raise AddressReserved("a name in the request cannot belong to a single machine")
    machine_names = frozenset(normalize(a.address) for a in machine.addresses)
    if not machine_names.issuperset(names):  # (S2)
        raise AddressNotOfMachine("a name in the request is not an address of the Machine")
    for name in canonical:  # (S3)
        if any(other.uid != machine.uid for other in inventory.machines_with_host_name(name)):
            raise AddressOfAnotherMachine("a name in the request is another Machine's address too")
    return ServingNames(
        dns=tuple(name for name in names if isinstance(name, str)),
        addresses=tuple(name for name in names if not isinstance(name, str)),
    )


def _require_plain_name(name: SubjectAltName) -> HostName:
    """S1: require a DNS name as Kubernetes writes it, or an IP address; refuse look-alikes."""
    if isinstance(name, OtherGeneralName):
        raise SubjectAltNameNotAllowed(f"a subject alternative name is of type {name.kind}")
    if isinstance(name, IPv6Address) and name.ipv4_mapped is not None:
        raise SubjectAltNameNotAllowed("an IPv4 address is written as an IPv6 one")
    if not isinstance(name, str):
        return name
    folded = fold_case(name)
    if as_address(folded) is not None:
        raise SubjectAltNameNotAllowed("an IP address is written as a DNS name")
    try:
        return require_dns_name(folded)
    except NodeNameInvalid:
        raise SubjectAltNameNotAllowed("a DNS name is not a plain host name") from None


def _is_reserved(name: HostName, cluster: Cluster) -> bool:
    """S3: return whether a name is that of a Service, or an address that machines share."""
    if isinstance(name, str):
        domain = fold_case(cluster.service_domain)
        reserved = (*_RESERVED_DOMAINS, f"svc.{domain}", f"pod.{domain}")
        parents = (*reserved, *_SEARCHED_DOMAINS)
        return name in reserved or name.endswith(tuple(f".{parent}" for parent in parents))
    return (
        name.is_loopback
        or name.is_unspecified
        or name.is_link_local
        or name.is_multicast
        or name == _BROADCAST
        or name in _METADATA_ADDRESSES
        or any(name in network for network in cluster.service_networks)
    )
