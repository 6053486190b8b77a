"""Checks of the management cluster: CRDs, and the permissions of the signer's account."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from common.names import API_GROUP
from signer.kube.access_review import read_access_review
from signer.operator_cli.errors import CommandError
from signer.operator_cli.findings import Finding, Result, permissions_finding
from signer.operator_cli.management import ManagementApi

ACCOUNT: Final = "node-attestation-signer"
_PLURALS: Final = (
    "attestednodes",
    "endorsementkeyrequests",
    "endorsementkeys",
    "kubeletattestationpolicies",
)
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_INSTALL: Final = "upgrade the installation of the signer (Helm chart, install.yaml or clusterctl)"
PERMISSIONS: Final = (
    ("", "secrets", ("get",)),
    ("cluster.x-k8s.io", "clusters", ("get", "list", "watch")),
    ("cluster.x-k8s.io", "machines", ("get", "list", "watch")),
    ("cluster.x-k8s.io", "machinepools", ("get", "list", "watch")),
    ("bootstrap.cluster.x-k8s.io", "kubeadmconfigs", ("get", "list", "watch")),
    (API_GROUP, "endorsementkeys", ("get", "list", "watch", "create", "patch", "delete")),
    (API_GROUP, "attestednodes", ("get", "list", "watch", "create", "update", "delete")),
    (API_GROUP, "endorsementkeyrequests", ("list", "watch", "create", "patch", "delete")),
    (API_GROUP, "kubeletattestationpolicies", ("get", "list", "watch")),
    (API_GROUP, "kubeletattestationpolicies/status", ("patch",)),
    ("cluster.x-k8s.io", "machines/status", ("patch",)),
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


def check_management(api: ManagementApi, signer_namespace: str) -> Iterator[Finding]:
    """Yield a finding for each CRD, and for the permissions of the signer."""
    for plural in _PLURALS:
        yield _guard(partial(_check_crd, api, plural), "CRD", f"{plural}.{API_GROUP}")
    account = f"{signer_namespace}/{ACCOUNT}"
    yield _guard(partial(_check_account, api, signer_namespace), "signer's permissions", account)


def _guard(check: Callable[[], Finding], title: str, name: str) -> Finding:
    try:
        return check()
    except CommandError as e:
        return Finding(
            result=Result.UNKNOWN, check=title, object=name, message=e.message, next_step=e.hint
        )


def _check_crd(api: ManagementApi, plural: str) -> Finding:
    name = f"{plural}.{API_GROUP}"
    response = api.find(f"{_CRDS}/{name}")
    conditions: list[dict[str, Any]] = []
    if response is not None:
        conditions = json.loads(response.content).get("status", {}).get("conditions") or []
    if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
        return Finding(result=Result.OK, check="CRD", object=name)
    return Finding(
        result=Result.PROBLEM,
        check="CRD",
        object=name,
        message="is missing" if response is None else "is not established",
        next_step=_INSTALL,
    )


def _check_account(api: ManagementApi, namespace: str) -> Finding:
    title, name = "signer's permissions", f"{namespace}/{ACCOUNT}"
    missing = [
        f"{verb} {resource}" + (f".{group}" if group else "")
        for group, resource, verbs in PERMISSIONS
        for verb in verbs
        if not _is_allowed(api, namespace, verb=verb, group=group, resource=resource)
    ]
    missing += [
        f"{verb} {resource} in {namespace}"
        for group, resource, verbs in OWN_PERMISSIONS
        for verb in verbs
        if not _is_allowed(
            api, namespace, verb=verb, group=group, resource=resource, namespace=namespace
        )
    ]
    return permissions_finding(title, name, missing, next_step=_INSTALL)


def _is_allowed(
    api: ManagementApi, account_namespace: str, *, resource: str, **attributes: str
) -> bool:
    resource, _, subresource = resource.partition("/")
    attributes |= {"resource": resource, "subresource": subresource}
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{account_namespace}"]
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{account_namespace}:{ACCOUNT}",
            "groups": [*groups, "system:authenticated"],
            "resourceAttributes": attributes,
        },
    }
    return api.create(_REVIEWS, body).read(read_access_review)
