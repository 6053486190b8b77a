"""Finds who holds rights that avoid the attestation of a workload cluster.

Reads ClusterRoles and bindings as RBAC evaluates them: wildcards, resource names, aggregated
ClusterRoles (their rules are stored in the object). The API server is a tenant's, so a field of an
unexpected type counts as absent. Sources: KEP-5284 for `impersonate:*-node`, and the signer verbs
of the certificates API.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from common.names import CLIENT_SIGNER, NODE_USER_PREFIX, NODES_GROUP, SERVING_SIGNER
from signer.inventory.caches import AUTO_APPROVE_ROLES

Body = Mapping[str, Any]
_ALL: Final = "*"
_DOMAIN_WILDCARD: Final = f"{CLIENT_SIGNER.partition('/')[0]}/*"
"""How a role names all signers of a domain."""
SIGNER_GROUP: Final = "attestation.cluster.x-k8s.io:signer"
"""Of the kubeconfig that packaging/signer/workload-rbac.yaml is for."""
_EXPECTED: Final = frozenset(
    {
        "Group system:masters",
        f"Group {SIGNER_GROUP}",
        "ServiceAccount kube-system/certificate-controller",
    }
)
"""Subjects that need these rights. kube-controller-manager uses the ServiceAccount."""


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
    Right(
        title="approve or sign client certificates of nodes without attestation",
        verbs=frozenset({"approve", "sign"}),
        group="certificates.k8s.io",
        resources=frozenset({"signers"}),
        names=frozenset(
            {
                "kubernetes.io/kube-apiserver-client-kubelet",
                "kubernetes.io/kube-apiserver-client",
                "kubernetes.io/*",
            }
        ),
    ),
    Right(
        title="have client certificates of nodes approved without attestation",
        verbs=frozenset({"create"}),
        group="certificates.k8s.io",
        resources=frozenset(
            {
                "certificatesigningrequests/nodeclient",
                "certificatesigningrequests/selfnodeclient",
            }
        ),
        # kube-controller-manager asks without a name, so a rule with names does not allow it.
        names=frozenset({""}),
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

    Left out are the signer and administrators: a user with all rights needs no such right. The
    ClusterRoles of Kubernetes for automatic approval are left out too: another check finds them.
    A RoleBinding gives none of these rights, for their resources have no namespace.
    """
    titles = defaultdict(list)
    for role in cluster_roles:
        name, rules = role["metadata"]["name"], _rules(role)
        if name in AUTO_APPROVE_ROLES:
            continue
        if not any(_allows_everything(rule) for rule in rules):
            titles[name] = [
                right.title for right in RIGHTS if any(allows(rule, right) for rule in rules)
            ]
    return [
        Holder(subject=subject, right=title, role=role)
        for binding in bindings
        for role in [_role_of(binding)]
        for subject in _subjects(binding)
        for title in titles[role]
    ]


def find_administrators(cluster_roles: Iterable[Body], bindings: Iterable[Body]) -> Sequence[str]:
    """Return the subjects that may do everything, except system:masters."""
    everything = {
        role["metadata"]["name"]
        for role in cluster_roles
        if any(_allows_everything(rule) for rule in _rules(role))
    }
    return sorted(
        {
            subject
            for binding in bindings
            if _role_of(binding) in everything
            for subject in _subjects(binding)
        }
    )


def allows(rule: Body, right: Right) -> bool:
    """Return whether a rule gives the right, at least for one object."""
    return (
        _meets(rule, "verbs", right.verbs)
        and _meets(rule, "apiGroups", {right.group})
        and _meets(rule, "resources", right.resources)
        and _names_one(_strings(rule, "resourceNames"), right)
    )


def _meets(rule: Body, field: str, expected: Iterable[str]) -> bool:
    given = _strings(rule, field)
    return _ALL in given or not given.isdisjoint(expected)


def _names_one(given: AbstractSet[str], right: Right) -> bool:
    if not given or not (right.names or right.prefix):
        return True
    return any(
        name in right.names or (right.prefix and name.startswith(right.prefix)) for name in given
    )


def _allows_everything(rule: Body) -> bool:
    fields = ("verbs", "apiGroups", "resources")
    return all(_ALL in _strings(rule, field) for field in fields) and not _strings(
        rule, "resourceNames"
    )


def _role_of(binding: Body) -> str:
    role = binding.get("roleRef")
    return str(role.get("name")) if isinstance(role, dict) else ""


def _rules(role: Body) -> list[Body]:
    return _objects(role.get("rules"))


def _subjects(binding: Body) -> Iterator[str]:
    for subject in _objects(binding.get("subjects")):
        kind, name = str(subject.get("kind")), str(subject.get("name"))
        namespace = subject.get("namespace")
        text = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
        if text not in _EXPECTED:
            yield text


def _objects(value: object) -> list[Body]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _strings(rule: Body, field: str) -> AbstractSet[str]:
    value = rule.get(field)
    return {v for v in value if isinstance(v, str)} if isinstance(value, list) else set()
