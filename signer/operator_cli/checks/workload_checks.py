"""Checks of one Cluster: opt-in, certificate authority, connection, and rights in its cluster."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Any, Final

from common.errors import ApiServerUnavailable, AttestationError
from common.names import ANNOTATION_PREFIX, CLIENT_SIGNER
from common.printed_command import printed_command
from signer.inventory.caches import read_binding
from signer.inventory.cluster_api.cluster import (
    CLIENT_SIGNER_ANNOTATION,
    NODES_NOT_ATTESTED,
    ClusterObject,
)
from signer.inventory.cluster_api.cluster_secret import (
    AUTHORITY_TYPES,
    authority_secret_name,
    require_label_and_type,
)
from signer.inventory.ended_certificates import POLICY_NAMES
from signer.issue.authority import parse_authority
from signer.kinds.resources import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CSRS,
    NODES,
    Resource,
)
from signer.kube.access_review import read_access_review
from signer.kube.secrets import Secret
from signer.kube.transport.client import ApiClient
from signer.kube.transport.kubeconfig import Connection
from signer.operator_cli.checks.findings import DoctorCheck, Finding
from signer.operator_cli.checks.rbac import find_administrators, find_holders
from signer.operator_cli.errors import CommandError
from signer.operator_cli.management.api import ManagementApi
from signer.operator_cli.workloads.workload_reader import (
    Unreachable,
    list_workload,
    read_named_secret,
)

_REVIEWS: Final = Resource(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    namespaced=False,
)
_SOON: Final = timedelta(days=30)
_AUTHORITY: Final = "certificate authority"
_AUTOMATIC_APPROVAL: Final = "automatic approval"
_ATTESTED_NODES: Final = "attested nodes"
_MAX_NAMED: Final = 10
"""Nodes that a finding names."""
PERMISSIONS: Final = (
    ("list", CSRS, ""),
    ("watch", CSRS, ""),
    ("patch", CSRS, ""),
    ("patch", CSRS, "approval"),
    ("patch", CSRS, "status"),
    ("list", NODES, ""),
    ("list", CLUSTER_ROLE_BINDINGS, ""),
)
"""Verb, resource and subresource that the signer's kubeconfig must allow."""
NAMED_PERMISSIONS: Final = tuple(
    (verb, resource, POLICY_NAMES[0])
    for resource in (ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS)
    for verb in ("get", "create", "patch", "delete")
)
"""Verb, resource and name of the same kubeconfig."""


def check_opt_in(
    cluster: ClusterObject, signers: frozenset[str], annotations: Mapping[str, str]
) -> Finding:
    """Check whether the Cluster has opted in, and find typing errors."""
    check = DoctorCheck("opt-in", str(cluster.key))
    command = printed_command(
        "kubectl annotate cluster",
        cluster.key.name,
        f"{CLIENT_SIGNER_ANNOTATION}={CLIENT_SIGNER}",
        n=cluster.key.namespace,
        overwrite=True,
    )
    if signers == {CLIENT_SIGNER}:
        return check.ok()
    if signers:
        named = ", ".join(sorted(signers))
        return check.problem(f"names the client signer {named}, not {CLIENT_SIGNER} alone", command)
    near = sorted(key for key in annotations if _is_near_miss(key))
    if near:
        return check.problem(f"has the annotation {', '.join(near)}, which means nothing", command)
    return check.ok("has not opted in: its nodes get no attested certificates")


def check_authority(api: ManagementApi, cluster: ClusterObject, now: datetime) -> Finding:
    """Check that the Secret of the certificate authority has a key that can sign."""
    key = cluster.key
    check = DoctorCheck(_AUTHORITY, str(key))
    secret_name = f"{key.namespace}/{authority_secret_name(key)}"
    step = f"give the Secret {secret_name} the type, label, tls.crt and tls.key of Cluster API"
    try:
        expiry = _authority_expiry(
            read_named_secret(api, key.namespace, authority_secret_name(key)), key.name
        )
    except ApiServerUnavailable as error:
        return check.unknown(error.message)
    except CommandError as error:
        return check.unknown(error.message, error.hint)
    except (ValueError, AttestationError) as error:
        return check.problem(f"Secret {secret_name}: {error}", step)
    if now + _SOON < expiry:
        return check.ok()
    find = check.problem if expiry <= now else check.warning
    return find(f"expires on {expiry:%Y-%m-%d}", "rotate the certificate authority of the Cluster")


def _authority_expiry(secret: Secret | None, cluster: str) -> datetime:
    """Return when the authority expires. Raises if the signer would not use the Secret.

    It may be older than the Cluster: Cluster API keeps an authority that it finds.
    """
    if secret is None:
        raise ValueError("it is missing")
    require_label_and_type(secret, cluster, AUTHORITY_TYPES)
    return parse_authority(secret.data).certificate.not_valid_after_utc


def read_workload_findings(
    client: ApiClient, cluster: ClusterObject, attested: AbstractSet[str]
) -> list[Finding]:
    """Return the findings of a workload cluster that answers. Raises `AttestationError`.

    `attested` has the names of the nodes whose client certificates say for which key they are.
    """
    return [
        DoctorCheck("connection", str(cluster.key)).ok(),
        _check_permissions(client, cluster),
        _check_attested_nodes(client, cluster, attested),
        *_check_bindings(client, cluster),
    ]


def check_kubeconfig_expiry(
    connection: Connection, cluster: ClusterObject, now: datetime
) -> Finding:
    """Check how long the certificate of a kubeconfig Secret is valid."""
    check = DoctorCheck("kubeconfig's certificate", str(cluster.key))
    expiry = None if connection.certificate is None else connection.certificate.not_after()
    if expiry is not None and expiry <= now + _SOON:
        step = printed_command("kubectl attestation kubeconfig", str(cluster.key))
        return check.warning(f"expires on {expiry:%Y-%m-%d}", step)
    return check.ok()


def unreachable_finding(cluster: ClusterObject, failure: Unreachable) -> Finding:
    """Return the finding of a workload cluster that cannot be read."""
    key = cluster.key
    step = f"check the Secret {key.namespace}/{key.name}-kubeconfig and its API server"
    check = DoctorCheck("connection", str(cluster.key))
    return check.problem(failure.reason, failure.next_step or step)


def without_attestation(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings that apply to a Cluster whose policy has the mode ServingOnly.

    Its nodes get their client certificates from kube-controller-manager: by automatic approval, and
    without the signer's use of the certificate authority.
    """
    omitted = {_AUTHORITY, _AUTOMATIC_APPROVAL, _ATTESTED_NODES}
    yield from (finding for finding in findings if finding.check not in omitted)


def _is_near_miss(annotation: str) -> bool:
    """Return whether the annotation was probably meant for the opt-in."""
    prefix, _, name = annotation.rpartition("/")
    is_ours = prefix == ANNOTATION_PREFIX.rstrip("/")
    return (is_ours and annotation != CLIENT_SIGNER_ANNOTATION) or name.replace(
        "_", "-"
    ).lower() in {"client-signer", "clientsigner", "client-signers"}


def missing_permissions(client: ApiClient) -> list[str]:
    """Return what the signer needs and the client's user may not do. Raises `AttestationError`."""
    missing = [
        f"{verb} {resource.plural}" + (f"/{subresource}" if subresource else "")
        for verb, resource, subresource in PERMISSIONS
        if not _may(client, verb, resource, subresource=subresource)
    ]
    named = (each for each in NAMED_PERMISSIONS if not _may(client, *each[:2], name=each[2]))
    return missing + [f"{verb} {resource.plural} {name}" for verb, resource, name in named]


def _check_attested_nodes(
    client: ApiClient, cluster: ClusterObject, attested: AbstractSet[str]
) -> Finding:
    """Say which nodes attested-nodes-policy.yaml would refuse; it is optional, so all is well."""
    check = DoctorCheck(_ATTESTED_NODES, str(cluster.key))
    names = {body["metadata"]["name"] for body in list_workload(client, NODES)}
    refused = sorted(names - attested)
    if not refused:
        return check.ok()
    more = f" and {len(refused) - _MAX_NAMED} more" if len(refused) > _MAX_NAMED else ""
    return check.ok(
        "attested-nodes-policy.yaml would refuse the writes of"
        f" {', '.join(refused[:_MAX_NAMED])}{more}"
    )


def _check_permissions(client: ApiClient, cluster: ClusterObject) -> Finding:
    missing = missing_permissions(client)
    check = DoctorCheck("kubeconfig's permissions", str(cluster.key))
    step = "apply packaging/signer/workload-rbac.yaml in the workload cluster"
    return check.permissions(missing, step)


def _may(client: ApiClient, verb: str, resource: Resource, **named: str) -> bool:
    attributes = {"verb": verb, "group": resource.group, "resource": resource.plural}
    body = _REVIEWS.manifest(spec={"resourceAttributes": attributes | named})
    return client.create(_REVIEWS.collection_path(), body).read(read_access_review)


def _check_bindings(client: ApiClient, cluster: ClusterObject) -> Iterator[Finding]:
    """Yield the bindings that approve by themselves, and the holders of other rights."""
    check = DoctorCheck("rights", str(cluster.key))
    bindings = list_workload(client, CLUSTER_ROLE_BINDINGS)
    yield _check_automatic_approval(bindings, cluster)
    try:
        roles = list_workload(client, CLUSTER_ROLES)
    except ApiServerUnavailable as error:
        yield check.unknown(
            f"ClusterRoles cannot be listed: {error.message}",
            "allow the kubeconfig's user to list clusterroles, or check them by hand",
        )
        return
    holders = find_holders(roles, bindings)
    for holder in holders:
        yield check.warning(
            f"{holder.subject} may {holder.right}",
            f"remove it from ClusterRole {holder.role} unless it needs the right",
        )
    if not holders:
        administrators = ", ".join(find_administrators(roles, bindings))
        yield check.ok(f"administrators: {administrators}" if administrators else "")


def _check_automatic_approval(
    bindings: Sequence[dict[str, Any]], cluster: ClusterObject
) -> Finding:
    check, approving = DoctorCheck(_AUTOMATIC_APPROVAL, str(cluster.key)), []
    for body in bindings:
        try:
            binding = read_binding(body)
        except ValueError:
            continue
        if binding is not None:
            approving.append(binding)
    if not approving:
        return check.ok()
    message = f"{', '.join(approving)} approves kubelet certificates without attestation"
    if cluster.bindings is not None and cluster.bindings.reason == NODES_NOT_ATTESTED:
        return check.warning(
            f"{message}; {cluster.bindings.message}",
            "attest these nodes (docs/migration.md): without the bindings they cannot renew their"
            " certificates",
        )
    command = printed_command("kubectl delete clusterrolebinding --", *approving)
    return check.problem(message, f"{command} (workload cluster)")
