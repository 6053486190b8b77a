"""ClusterRoleBindings that let kube-controller-manager approve certificates of nodes."""

from tests.harness.workload import WorkloadCluster

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


NAMES = ("kubeadm:node-autoapprove-bootstrap", "kubeadm:node-autoapprove-certificate-rotation")


def existing_bindings(workload: WorkloadCluster) -> set[str]:
    """Return which of the bindings exist."""
    return {each["metadata"]["name"] for each in workload.admin.list(BINDINGS)} & set(NAMES)


def create_binding(workload: WorkloadCluster, name: str) -> None:
    """Create a binding that approves requests without attestation."""
    role = "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
    api = "rbac.authorization.k8s.io"
    workload.admin.create(
        BINDINGS,
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": api, "kind": "Group", "name": "system:bootstrappers"}],
        },
    )
