"""Verifies a request to the insecure signer: the first one of a Machine, and nothing else.

Nothing proves that the requester is the Machine: any bootstrap token of the Cluster gets the name
of any Machine that has not joined. Pure. Source: the proposal 20210222-kubelet-authentication,
"Insecure providers"; the checks have the numbers of docs/protocol.md section 5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from common.names import CLIENT_USAGES
from common.requests.pkcs10 import Pkcs10
from signer.errors import (
    AttestationPolicyPresent,
    MachineAlreadyCertified,
    MachineNotNew,
    MultipleClientSigners,
    NotOptedIn,
    RequesterNotAllowed,
)
from signer.kinds.cluster import Cluster
from signer.kinds.csr import Csr
from signer.kinds.machine import Machine
from signer.policy.policy import Policy, RefusedPolicy
from signer.verify.machines.machine import address_names, require_one_machine, require_ready
from signer.verify.requests.parse import parse_plain_request, require_no_names
from signer.verify.requests.request import BOOTSTRAP_USER_PREFIX, verify_usages

INSECURE_SIGNER: Final = "cluster.x-k8s.io/kube-apiserver-client-kubelet-insecure"
KUBEADM_GROUP: Final = "system:bootstrappers:kubeadm:default-node-token"
"""The group that kubeadm and Cluster API give to the bootstrap tokens of nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMachine:
    """A Machine, and the record of the certificate that it got."""

    machine: Machine
    resource_version: str
    certified_csr: str | None
    """UID of the CSR that may get, or got, the Machine's certificate; `None` if there is none."""


def verify_cluster(cluster: Cluster, selecting: Sequence[Policy | RefusedPolicy]) -> None:
    """R0: verify that the Cluster names the insecure signer alone, and has no attestation policy.

    Raises `NotOptedIn`, `MultipleClientSigners`, `AttestationPolicyPresent`: nothing is decided.
    """
    if INSECURE_SIGNER not in cluster.client_signers:
        raise NotOptedIn("the Cluster has not opted in to the insecure signer")
    if len(cluster.client_signers) > 1:
        raise MultipleClientSigners("the Cluster names more than one client signer")
    if selecting:
        names = ", ".join(sorted(policy.name for policy in selecting))
        raise AttestationPolicyPresent(
            "a KubeletAttestationPolicy selects the Cluster", detail=names
        )


def parse_first_request(csr: Csr) -> Pkcs10:
    """Verify usages and requester (R2, R3), and parse the request (P1 to P5).

    Raises `Denied` for any defect. A node is no bootstrap token, so a renewal is denied, too.
    """
    verify_usages(csr, CLIENT_USAGES)
    if not csr.username.startswith(BOOTSTRAP_USER_PREFIX) or KUBEADM_GROUP not in csr.groups:
        raise RequesterNotAllowed("only a bootstrap token of kubeadm may request a certificate")
    request = parse_plain_request(csr)
    require_no_names(request)
    return request


def verify_first_machine(
    request: Pkcs10,
    csr: Csr,
    *,
    cluster: Cluster,
    machines: Sequence[RecordedMachine],
    node_exists: bool,
) -> RecordedMachine:
    """Return the one Machine with the node name, if it never got a certificate (M1, M2, M3, M7).

    The name of a Machine counts as its node name, too. Some providers, CAPD for example, report
    addresses and provider ID only after the node has joined. A provider ID in the request must be
    the Machine's. Raises `Denied`, `Waiting` with the reason.
    """
    by_uid = {entry.machine.uid: entry for entry in machines if _fits(entry.machine, request)}
    candidates = [entry.machine for entry in by_uid.values()]
    machine = require_one_machine(candidates, "the node name of the request")  # (M1, M3)
    recorded = by_uid[machine.uid]
    if recorded.certified_csr not in {None, csr.uid}:  # (M7)
        raise MachineAlreadyCertified("the Machine has got its only certificate: replace it")
    require_ready(machine, cluster)  # (M2)
    if machine.node_ref is not None:  # (M7)
        raise MachineNotNew("the Machine has a nodeRef")
    if node_exists:  # (M7)
        raise MachineNotNew("a Node of that name exists")
    return recorded


def _fits(machine: Machine, request: Pkcs10) -> bool:
    if request.provider_id not in {None, machine.provider_id}:
        return False
    return request.node_name in address_names(machine) | {machine.name}
