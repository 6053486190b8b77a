"""Verifies requester, usages and protocol version (R2, R3, P6, M5).

The API server wrote user name and groups, and it keeps the usages unchanged: they are trusted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from common.errors import UnsupportedVersion
from common.names import (
    CLIENT_USAGES,
    NODE_USER_PREFIX,
    NODES_GROUP,
    RSA_USAGE,
    SERVING_USAGES,
    VERSION,
)
from signer.errors import RequesterNameMismatch, RequesterNotAllowed, UsagesNotAllowed
from signer.kinds.csr import Csr
from signer.policy.policy import Policy
from signer.verify.requests.recognize import CsrKind

BOOTSTRAP_USER_PREFIX: Final = "system:bootstrap:"
"""User name of a bootstrap token, up to the token's ID (Kubernetes' own authenticator)."""

ENTRY_USER: Final = "system:serviceaccount:node-attestation-entry:entry"
"""The entry credential of a cluster (packaging/signer/entry-credential.yaml): all nodes share it,
and it does not expire. So it makes no first claim without a record, and names no key for operators.
"""
ENTRY_GROUP: Final = "system:serviceaccounts:node-attestation-entry"
"""Its group, for the policy's `bootstrapGroups`."""

_USAGES: Final[Mapping[CsrKind, frozenset[str]]] = MappingProxyType(
    {
        CsrKind.CLIENT: CLIENT_USAGES,
        CsrKind.SERVING: SERVING_USAGES,
        CsrKind.BUILTIN_SERVING: SERVING_USAGES,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapRequester:
    """The requester has a bootstrap credential: a first join."""

    username: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequester:
    """The requester is a node: a renewal, or a serving request."""

    node_name: str


Requester = BootstrapRequester | NodeRequester


def verify_requester(csr: Csr, kind: CsrKind, policy: Policy) -> Requester:
    """Verify usages (R2) and requester (R3).

    Raises:
        UsagesNotAllowed: the usages are not exactly the usages of a kubelet.
        RequesterNotAllowed: neither a bootstrapper nor a node; for serving, not a node.

    """
    verify_usages(csr, _USAGES[kind])
    if csr.username.startswith(NODE_USER_PREFIX):
        if NODES_GROUP in csr.groups and csr.username != NODE_USER_PREFIX:
            return NodeRequester(node_name=csr.username.removeprefix(NODE_USER_PREFIX))
    elif kind is CsrKind.CLIENT and not csr.groups.isdisjoint(policy.bootstrap_groups):
        return BootstrapRequester(username=csr.username)
    raise RequesterNotAllowed("the requester may not request this kind of certificate")


def verify_usages(csr: Csr, expected: frozenset[str]) -> None:
    """R2: verify that the request has these usages; for an RSA key it may have one more.

    Raises `UsagesNotAllowed`: it has other usages, or one of them twice.
    """
    usages = set(csr.usages)
    if len(usages) != len(csr.usages) or usages - {RSA_USAGE} != expected:
        raise UsagesNotAllowed(f"usages must be exactly {', '.join(sorted(expected))}")


def verify_version(policy: Policy) -> None:
    """P6: verify that the policy still accepts the version that the parser reads.

    Raises `UnsupportedVersion`: the policy's `minimumVersion` is a later one.
    """
    if VERSION not in policy.versions:
        raise UnsupportedVersion("the cluster's policy requires a later version")


def verify_requester_name(requester: Requester, node_name: str) -> None:
    """M5: verify that a node requests its own name only.

    Raises `RequesterNameMismatch`: it requests another name.
    """
    if isinstance(requester, NodeRequester) and requester.node_name != node_name:
        raise RequesterNameMismatch("a node may only request its own name")
