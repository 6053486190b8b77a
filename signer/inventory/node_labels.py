"""The labels that the signer writes on the Nodes of a workload cluster.

The admission plugin NodeRestriction allows no kubelet to add, change or remove labels with a prefix
that ends in `node-restriction.kubernetes.io/`. docs/policies.md says what each label means.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from common.names import API_GROUP
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.decode import Fields, MaybeText
from signer.kinds.endorsement_key import TrustBasis
from signer.kinds.node import Node
from signer.kinds.resources import NODES
from signer.kube.transport.client import MAY_BE_ABSENT, ApiClient

_PREFIX: Final = f"{API_GROUP}.node-restriction.kubernetes.io/"
ATTESTED: Final = _PREFIX + "attested"
TRUST_BASIS: Final = _PREFIX + "trust-basis"
POLICY: Final = _PREFIX + "policy"
BOOT_STATE: Final = _PREFIX + "boot-state"
_CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"

_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class NodeLabelFields(Fields):
    """The signer's labels in the metadata of a Node, and that of control plane nodes.

    All others are skipped. A kubelet may write any number of those: a limit on them would let it
    make its own Node unreadable.
    """

    attested: MaybeText = msgspec.field(name=ATTESTED, default=None)
    trust_basis: MaybeText = msgspec.field(name=TRUST_BASIS, default=None)
    policy: MaybeText = msgspec.field(name=POLICY, default=None)
    boot_state: MaybeText = msgspec.field(name=BOOT_STATE, default=None)
    control_plane: MaybeText = msgspec.field(name=_CONTROL_PLANE, default=None)

    def present(self) -> Mapping[str, str]:
        """Return those labels of the signer that the Node has."""
        labels = {
            ATTESTED: self.attested,
            TRUST_BASIS: self.trust_basis,
            POLICY: self.policy,
            BOOT_STATE: self.boot_state,
        }
        return {key: value for key, value in labels.items() if value is not None}


def build_labels(claim: AttestedNodeObject, basis: TrustBasis) -> Mapping[str, str]:
    """Return the labels of a node with this complete claim.

    A policy whose name is not a valid label value has no label.
    """
    labels = {ATTESTED: "true", TRUST_BASIS: basis.value}
    if _LABEL_VALUE.fullmatch(claim.policy):
        labels[POLICY] = claim.policy
    if claim.boot_state is not None:
        labels[BOOT_STATE] = claim.boot_state.value
    return labels


class NodeLabelClient:
    """Writes the labels of Nodes."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def change(self, node: Node, labels: Mapping[str, str | None]) -> None:
        """Write labels, and remove those whose value is `None`.

        Does nothing if the Node was deleted. Raises `ApiServerUnavailable`, also if the `Node` was
        deleted and created again: the labels were computed for another Node.
        """
        body = {"metadata": {"uid": node.uid, "labels": dict(labels)}}
        self._api.merge_patch(NODES.object_path(node.name), body, accepted=MAY_BE_ABSENT)
