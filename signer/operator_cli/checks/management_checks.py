"""Checks of the management cluster: CRDs, the signer's permissions, and the admission policy."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from common.names import API_GROUP
from signer.kinds.attested_node import ATTESTED_NODES
from signer.kinds.decode import read_as
from signer.kinds.endorsement_key import ENDORSEMENT_KEYS
from signer.kinds.key_request import KEY_REQUESTS
from signer.kinds.policy import POLICIES
from signer.kinds.resources import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    CAPI,
    KUBEADM_CONFIG,
    SUBJECT_ACCESS_REVIEWS,
    Resource,
)
from signer.kube.access_review import read_access_review
from signer.operator_cli.checks.findings import DoctorCheck, Finding
from signer.operator_cli.errors import CommandError
from signer.operator_cli.management.api import ManagementApi

_RESOURCES: Final = (ATTESTED_NODES, KEY_REQUESTS, ENDORSEMENT_KEYS, POLICIES)
_CRDS: Final = Resource(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
)
_PROTECTED: Final = frozenset({ATTESTED_NODES.plural, KEY_REQUESTS.plural})
"""What only the signer and named operators may write (admission-policy.yaml)."""
_RECORDS: Final = ", ".join(sorted(_PROTECTED))
_INSTALL: Final = "upgrade the installation of the signer (Helm chart, install.yaml or clusterctl)"
PERMISSIONS: Final = (
    ("", "secrets", ("get",)),
    (CAPI, "clusters", ("get", "list", "watch")),
    (CAPI, "machines", ("get", "list", "watch")),
    (CAPI, "machinepools", ("get", "list", "watch")),
    (KUBEADM_CONFIG[0], "kubeadmconfigs", ("get", "list", "watch")),
    (API_GROUP, "endorsementkeys", ("get", "list", "watch", "create", "patch", "delete")),
    (API_GROUP, "attestednodes", ("get", "list", "watch", "create", "update", "delete")),
    (API_GROUP, "endorsementkeyrequests", ("list", "watch", "create", "patch", "delete")),
    (API_GROUP, "kubeletattestationpolicies", ("get", "list", "watch", "create")),
    (API_GROUP, "kubeletattestationpolicies/status", ("patch",)),
    (CAPI, "machines/status", ("patch",)),
    (CAPI, "clusters/status", ("patch",)),
    ("authentication.k8s.io", "tokenreviews", ("create",)),
    ("authorization.k8s.io", "subjectaccessreviews", ("create",)),
    ("", "events", ("create",)),
)
"""What the signer needs in all namespaces: API group, resource or subresource, and verbs.

Those of infrastructure objects depend on the kinds.
"""
OWN_PERMISSIONS: Final = (
    ("", "secrets", ("get", "create", "update")),
    ("coordination.k8s.io", "leases", ("list", "create", "patch", "delete")),
)
"""What it needs in its own namespace, in the same form."""


def check_management(api: ManagementApi, namespace: str, account: str) -> Iterator[Finding]:
    """Yield a finding for each CRD, the permissions of the signer, and the admission policy.

    `account` is the name of the signer's ServiceAccount, `namespace` the one of both.
    """
    for resource in _RESOURCES:
        yield _guard(_check_crd, api, DoctorCheck("CRD", f"{resource.plural}.{resource.group}"))
    check = DoctorCheck("signer's permissions", f"{namespace}/{account}")
    yield _guard(partial(_check_account, namespace, account), api, check)
    yield _guard(_check_admission_policy, api, DoctorCheck("admission policy", _RECORDS))


def _guard(
    run: Callable[[ManagementApi, DoctorCheck], Finding], api: ManagementApi, check: DoctorCheck
) -> Finding:
    try:
        return run(api, check)
    except CommandError as error:
        return check.unknown(error.message, error.hint)


def _check_crd(api: ManagementApi, check: DoctorCheck) -> Finding:
    response = api.find(_CRDS.object_path(check.object))
    if response is None:
        return check.problem("is missing", _INSTALL)
    conditions = response.read(read_as(dict)).get("status", {}).get("conditions") or []
    if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
        return check.ok()
    return check.problem("is not established", _INSTALL)


def _check_admission_policy(api: ManagementApi, check: DoctorCheck) -> Finding:
    bodies = api.list_objects(ADMISSION_POLICIES.collection_path())
    policies = {body["metadata"]["name"] for body in bodies if _protects(body)}
    for binding in api.list_objects(ADMISSION_POLICY_BINDINGS.collection_path()):
        spec = binding["spec"]
        if spec["policyName"] in policies and "Deny" in spec["validationActions"]:
            return check.ok()
    return check.warning(
        "no policy is in force: a tenant with edit rights in its namespace can write these objects"
        " there",
        "set admissionPolicy.enabled of the chart, or apply admission-policy.yaml",
    )


def _protects(policy: dict[str, Any]) -> bool:
    """Return whether a ValidatingAdmissionPolicy is for all that the signer records."""
    rules = (policy["spec"].get("matchConstraints") or {}).get("resourceRules") or ()
    return any(
        API_GROUP in rule["apiGroups"] and {*rule["resources"]} >= _PROTECTED for rule in rules
    )


def _check_account(namespace: str, account: str, api: ManagementApi, check: DoctorCheck) -> Finding:
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    subject = {
        "user": f"system:serviceaccount:{namespace}:{account}",
        "groups": [*groups, "system:authenticated"],
    }
    missing = [
        f"{verb} {resource}" + (f".{group}" if group else "")
        for group, resource, verbs in PERMISSIONS
        for verb in verbs
        if not _is_allowed(api, subject, verb=verb, group=group, resource=resource)
    ]
    missing += [
        f"{verb} {resource} in {namespace}"
        for group, resource, verbs in OWN_PERMISSIONS
        for verb in verbs
        if not _is_allowed(
            api, subject, verb=verb, group=group, resource=resource, namespace=namespace
        )
    ]
    return check.permissions(
        missing,
        f"{_INSTALL}; if its ServiceAccount has another name, name it with --signer-account",
    )


def _is_allowed(
    api: ManagementApi, subject: Mapping[str, object], *, resource: str, **attributes: str
) -> bool:
    resource, _, subresource = resource.partition("/")
    attributes |= {"resource": resource, "subresource": subresource}
    body = SUBJECT_ACCESS_REVIEWS.manifest(spec={**subject, "resourceAttributes": attributes})
    return api.create(SUBJECT_ACCESS_REVIEWS.collection_path(), body).read(read_access_review)
