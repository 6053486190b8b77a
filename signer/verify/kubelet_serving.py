"""Requests to `kubernetes.io/kubelet-serving`: approved here, signed by kube-controller-manager.

There is no attestation in them. What they rest on is the client certificate that the node was
given: the requester is the node itself, and its claim says which Machine it is.
"""

from dataclasses import dataclass

from signer.errors import NodeNameUnknown
from signer.model import ClusterKey, Csr, Inventory, Machine
from signer.policy import Policy
from signer.verify.claims import is_complete_claim, require_not_banned
from signer.verify.machine import find_machine
from signer.verify.parse import ParsedKubeletServing
from signer.verify.recognize import CsrKind
from signer.verify.request import verify_requester, verify_requester_name
from signer.verify.serving_names import verify_serving_names
from signer.verify.trace import CheckTrace, no_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedServing:
    """A request to the built-in serving signer that may be approved."""

    cluster: ClusterKey
    node_name: str
    machine: Machine


def verify_kubelet_serving(
    csr: Csr,
    serving: ParsedKubeletServing,
    *,
    records: Inventory,
    policy: Policy,
    told: CheckTrace = no_trace,
) -> VerifiedServing:
    """Check R2, R3, M5 and S of a request to `kubernetes.io/kubelet-serving`, from caches only.

    Raises:
        Denied, Waiting: with the reason.
        ApiServerUnavailable: a cache is not filled yet.

    """
    requester = told("R2 R3", verify_requester(csr, CsrKind.BUILTIN_SERVING, policy))
    name = serving.request.node_name
    verify_requester_name(requester, name)
    told("M5", requester)
    machine = told("M3 E3 M1", _machine_of_node(name, records, policy))
    told("S1 S2 S3", verify_serving_names(serving.request.subject_alt_names, machine, records))
    return VerifiedServing(cluster=records.cluster().key, node_name=name, machine=machine)


def _machine_of_node(node_name: str, records: Inventory, policy: Policy) -> Machine:
    """Find the Machine of a node that asks for itself: by its claim, else by nodeRef if allowed."""
    node = records.attested_node(node_name)
    if node is not None:
        key = records.endorsement_key(node.endorsement_key)
        if key is not None:
            require_not_banned(key)
        if is_complete_claim(key, node):
            return find_machine(records, node.provider_id)
    elif policy.serving_by_node_ref:
        found = records.machines_with_node_ref(node_name)
        if len(found) == 1:
            return found[0]
    raise NodeNameUnknown("no attested Machine has this node name")
