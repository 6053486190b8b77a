"""Resources of API servers: their kinds, and the paths of their collections and objects.

Only this module builds such paths. It escapes each name, because a tenant may have written it: no
name leads to another collection or object.
"""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

Kind = tuple[str, str]
"""API group and kind, in any version of the group."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of objects, in one version of its API group. The core group has an empty name."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def group_kind(self) -> Kind:
        """Return the kind without its version."""
        return self.group, self.kind

    @property
    def api_version(self) -> str:
        """Return the field `apiVersion` of the objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def manifest(self, **fields: object) -> dict[str, Any]:
        """Return an object with these top-level fields."""
        return {"apiVersion": self.api_version, "kind": self.kind, **fields}

    def collection_path(self, namespace: str = "") -> str:
        """Return the path of all objects, or of those in one namespace."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        parts += ["namespaces", namespace] if namespace else []
        return build_path(*parts, self.plural)

    def object_path(self, name: str, namespace: str = "", *, subresource: str = "") -> str:
        """Return the path of one object, or of its subresource, such as `status`."""
        return self.collection_path(namespace) + build_path(name, *filter(None, [subresource]))


def build_path(*segments: str) -> str:
    """Return a path of these segments, each escaped."""
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


ADMISSION_POLICIES: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    namespaced=False,
)
ADMISSION_POLICY_BINDINGS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    namespaced=False,
)
CLUSTER_ROLE_BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
CLUSTER_ROLES: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False
)
CONFIG_MAPS: Final = Resource("", "v1", "ConfigMap", "configmaps")
CSRS: Final = Resource(
    "certificates.k8s.io",
    "v1",
    "CertificateSigningRequest",
    "certificatesigningrequests",
    namespaced=False,
)
EVENTS: Final = Resource("", "v1", "Event", "events")
LEASES: Final = Resource("coordination.k8s.io", "v1", "Lease", "leases")
NODES: Final = Resource("", "v1", "Node", "nodes", namespaced=False)
PODS: Final = Resource("", "v1", "Pod", "pods")
SECRETS: Final = Resource("", "v1", "Secret", "secrets")
SERVICES: Final = Resource("", "v1", "Service", "services")
SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
)

CAPI: Final = "cluster.x-k8s.io"
"""A management cluster serves its kinds in several versions, so their resources are discovered."""
CLUSTER: Final[Kind] = (CAPI, "Cluster")
MACHINE: Final[Kind] = (CAPI, "Machine")
MACHINE_POOL: Final[Kind] = (CAPI, "MachinePool")
KUBEADM_CONFIG: Final[Kind] = (f"bootstrap.{CAPI}", "KubeadmConfig")
