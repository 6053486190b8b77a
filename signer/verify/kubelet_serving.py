"""Verifies requests to `kubernetes.io/kubelet-serving`, which kube-controller-manager signs.

Such a request has no attestation. It relies on the client certificate that the node has:
the requester is the node, and its claim names its Machine. With mode ServingOnly there is no claim.
Then nodeRef and addresses of the Machine name the node.

The steps, from caches only, are `checks.BUILTIN_ORDER`, or `checks.SERVING_ONLY_ORDER` with mode
ServingOnly (docs/protocol.md section 5). Each call of `trace` ends one step.
"""

from dataclasses import dataclass

from signer.errors import NodeNameUnknown
from signer.kinds.cluster import ClusterKey
from signer.kinds.csr import Csr
from signer.kinds.machine import Machine
from signer.policy.policy import PolicyMode
from signer.verify import checks
from signer.verify.context import VerificationContext
from signer.verify.machines.claims import is_claim_of, is_complete_claim, require_usable
from signer.verify.machines.machine import find_machine, verify_unattested_machine
from signer.verify.machines.serving_names import verify_serving_names
from signer.verify.requests.parse import ParsedKubeletServing
from signer.verify.requests.recognize import CsrKind
from signer.verify.requests.request import verify_requester, verify_requester_name


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedServing:
    """A request to the built-in serving signer that may be approved."""

    cluster: ClusterKey
    node_name: str
    machine: Machine


def verify_kubelet_serving(
    csr: Csr, serving: ParsedKubeletServing, context: VerificationContext
) -> VerifiedServing:
    """Verify a serving request, in the order of `checks`.

    Raises:
        Denied, Waiting: with the reason.
        ApiServerUnavailable: a cache has not been filled yet.

    """
    inventory, trace = context.inventory, context.trace
    node_name = serving.request.node_name

    # (R2 R3)
    requester = verify_requester(csr, CsrKind.BUILTIN_SERVING, context.policy)
    trace(checks.REQUESTER, requester)

    # (M5)
    verify_requester_name(requester, node_name)
    trace(checks.OWN_NAME, requester)

    # (M1 M3 M4 M6), or (M3 E3 M1)
    if context.policy.mode is PolicyMode.SERVING_ONLY:
        verified = verify_unattested_machine(node_name, requester, context)
        machine = trace(checks.UNATTESTED_MACHINE, verified).machine
    else:
        machine = trace(checks.CLAIMED_MACHINE, _find_attested_machine(node_name, context))

    # (S1 S2 S3)
    requested = serving.request.subject_alt_names
    trace(checks.SERVING_NAMES, verify_serving_names(requested, machine, inventory))

    return VerifiedServing(cluster=inventory.cluster().key, node_name=node_name, machine=machine)


def _find_attested_machine(node_name: str, context: VerificationContext) -> Machine:
    """Find the Machine of a node by its claim, else by nodeRef where the policy allows it."""
    inventory = context.inventory
    node = inventory.attested_node(node_name)
    if node is not None:
        key = inventory.endorsement_key(node.endorsement_key)
        if key is not None:
            require_usable(key, node.cluster, node.provider_id)
        if is_complete_claim(key, node):
            machine = find_machine(inventory, node.provider_id)
            if is_claim_of(node, machine):
                return machine
    elif context.policy.serving.node_ref_fallback:
        machines = inventory.machines_with_node_ref(node_name)
        if len(machines) == 1:
            return machines[0]
    raise NodeNameUnknown("no attested Machine has this node name")
