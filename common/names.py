"""Names of protocol v1: signers, PEM labels, annotations, object identifiers.

Source: the Cluster API proposal 20210222-kubelet-authentication and docs/protocol.md section 2.
"""

from typing import Final

CLIENT_SIGNER: Final = "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm"
SERVING_SIGNER: Final = "cluster.x-k8s.io/kubelet-serving-tpm"
BUILTIN_SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"

PEM_REQUEST: Final = "CERTIFICATE REQUEST"
PEM_PROVIDER: Final = "KUBELET AUTHENTICATOR ATTESTATION PROVIDER"
PEM_DATA: Final = "KUBELET AUTHENTICATOR ATTESTATION DATA"
PROVIDER: Final = b"tpm"

PROVIDER_ID_OID: Final = "1.3.6.1.4.1.11129.2.1.21"

NODES_GROUP: Final = "system:nodes"
NODE_USER_PREFIX: Final = "system:node:"

ENDORSEMENT_KEY_ANNOTATION: Final = "cluster-x-k8s-io/tpm-endorsement-key"
ANNOTATION_PREFIX: Final = "attestation.cluster.x-k8s.io/"
VM_ID_ANNOTATION: Final = ANNOTATION_PREFIX + "vm-id"
IMPORTED_PCRS_ANNOTATION: Final = ANNOTATION_PREFIX + "imported-pcrs"
CHALLENGE_ANNOTATION: Final = ANNOTATION_PREFIX + "challenge"
SUPPORTED_VERSIONS_ANNOTATION: Final = ANNOTATION_PREFIX + "supported-versions"
PENDING_REASON_ANNOTATION: Final = ANNOTATION_PREFIX + "pending-reason"

API_GROUP: Final = "attestation.cluster.x-k8s.io"
API_VERSION: Final = "v1alpha1"

VERSION: Final = "v1"
SUPPORTED_VERSIONS: Final = (VERSION,)

CLIENT_USAGES: Final = frozenset({"digital signature", "client auth"})
SERVING_USAGES: Final = frozenset({"digital signature", "server auth"})
RSA_USAGE: Final = "key encipherment"
