"""Finds who holds rights that lead around the attestation of a workload cluster.

Reads Roles and bindings as RBAC evaluates them: wildcards, resource names, aggregated ClusterRoles
(their rules are stored in the object). Sources: KEP-5284 for `impersonate:*-node`, and the signer
verbs of the certificates API.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.names import CLIENT_SIGNER, NODE_USER_PREFIX, NODES_GROUP, SERVING_SIGNER

Body = Mapping[str, Any]
_ALL: Final = "*"
_DOMAIN_WILDCARD: Final = f"{CLIENT_SIGNER.partition('/')[0]}/*"
"""How a role names all signers of a domain."""
SIGNER_GROUP: Final = "attestation.cluster.x-k8s.io:signer"
"""Of the kubeconfig that packaging/signer/workload-rbac.yaml is for."""
_EXPECTED: Final = frozenset({("Group", "system:masters"), ("Group", SIGNER_GROUP)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """Verbs on a resource; with `names`, on objects of these names only."""

    title: str
    verbs: frozenset[str]
    group: str
    resources: frozenset[str]
    names: frozenset[str] = frozenset()
    prefix: str = ""
    """Of more names; without names and prefix, the right is for any object."""


RIGHTS: Final = (
    Right(
        title="act as any node (constrained impersonation)",
        verbs=frozenset({"impersonate:arbitrary-node", "impersonate:associated-node"}),
        group="authentication.k8s.io",
        resources=frozenset({"nodes"}),
    ),
    Right(
        title="act as a node (impersonation)",
        verbs=frozenset({"impersonate"}),
        group="",
        resources=frozenset({"users", "groups"}),
        names=frozenset({NODES_GROUP}),
        prefix=NODE_USER_PREFIX,
    ),
    Right(
        title="approve or sign requests of the attested signers",
        verbs=frozenset({"approve", "sign"}),
        group="certificates.k8s.io",
        resources=frozenset({"signers"}),
        names=frozenset({CLIENT_SIGNER, SERVING_SIGNER, _DOMAIN_WILDCARD}),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A subject, a right, and the role that gives it."""

    subject: str
    right: str
    role: str


def find_holders(cluster_roles: Iterable[Body], bindings: Iterable[Body]) -> Sequence[Holder]:
    """Return who holds one of the rights by a ClusterRoleBinding.

    Left out are the signer, and administrators: who may do everything needs no such right.
    A RoleBinding gives none of these rights, for their resources have no namespace.
    """
    titles = defaultdict(list)
    for role in cluster_roles:
        rules = role.get("rules") or ()
        if not any(_allows_everything(rule) for rule in rules):
            titles[role["metadata"]["name"]] = [
                right.title for right in RIGHTS if any(allows(rule, right) for rule in rules)
            ]
    return [
        Holder(subject=subject, right=title, role=role)
        for binding in bindings
        for role in [str((binding.get("roleRef") or {}).get("name"))]
        for subject in _subjects(binding)
        for title in titles[role]
    ]


def find_administrators(cluster_roles: Iterable[Body], bindings: Iterable[Body]) -> Sequence[str]:
    """Return the subjects that may do everything, except system:masters."""
    everything = {
        role["metadata"]["name"]
        for role in cluster_roles
        if any(_allows_everything(rule) for rule in role.get("rules") or ())
    }
    return sorted(
        {
            subject
            for binding in bindings
            if (binding.get("roleRef") or {}).get("name") in everything
            for subject in _subjects(binding)
        }
    )


def allows(rule: Body, right: Right) -> bool:
    """Return whether a rule gives the right, at least for one object."""
    return (
        _meets(rule.get("verbs"), right.verbs)
        and _meets(rule.get("apiGroups"), {right.group})
        and _meets(rule.get("resources"), right.resources)
        and _names_one(rule.get("resourceNames") or (), right)
    )


def _meets(values: Iterable[str] | None, expected: Iterable[str]) -> bool:
    given = set(values or ())
    return _ALL in given or not given.isdisjoint(expected)


def _names_one(given: Sequence[str], right: Right) -> bool:
    if not given or not (right.names or right.prefix):
        return True
    return any(
        name in right.names or (right.prefix and name.startswith(right.prefix)) for name in given
    )


def _allows_everything(rule: Body) -> bool:
    values = (rule.get("verbs"), rule.get("apiGroups"), rule.get("resources"))
    return all(_ALL in (value or ()) for value in values) and not rule.get("resourceNames")


def _subjects(binding: Body) -> Iterator[str]:
    for subject in binding.get("subjects") or ():
        kind, name = str(subject.get("kind")), str(subject.get("name"))
        if (kind, name) not in _EXPECTED:
            namespace = subject.get("namespace")
            yield f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
