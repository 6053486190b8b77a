"""The taint that the signer writes on Nodes whose renewal was refused or is overdue.

The admission plugin NodeRestriction allows no kubelet to change the taints of its Node.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from common.names import API_GROUP
from signer.kinds.decode import Fields, MaybeText, Source, decode
from signer.kinds.node import Node
from signer.kinds.resources import NODES
from signer.kube.transport.client import MAY_BE_ABSENT, MAY_HAVE_CHANGED, ApiClient

KEY: Final = f"{API_GROUP}/unattested"
EFFECT: Final = "NoSchedule"


_MAX_BYTES: Final = 64 << 10
"""Of all taints. Kubernetes does not limit their number, also not for a kubelet that registers."""
_NONE: Final = msgspec.Raw(b"[]")


class NodeTaints(Fields):
    """The taints in the `spec` of a Node. They are read only if they take little memory."""

    taints: msgspec.Raw = _NONE

    @property
    def has_own(self) -> bool:
        """Return whether the signer's taint is among them; not known, so no, if they are many."""
        return not self.are_many and any(_is_own(taint) for taint in self.read())

    @property
    def are_many(self) -> bool:
        """Return whether they take more memory than a Node may."""
        return len(self.taints) > _MAX_BYTES

    def read(self) -> list[dict[str, Any]]:
        """Return the taints as JSON objects. Raises `ValueError`."""
        return decode(self.taints, list[dict[str, Any]])


def _is_own(taint: Mapping[str, Any]) -> bool:
    return (taint.get("key"), taint.get("effect")) == (KEY, EFFECT)


class _Meta(Fields):
    uid: MaybeText = None
    resource_version: MaybeText = None


class _Node(Fields):
    metadata: _Meta
    spec: NodeTaints = msgspec.field(default_factory=NodeTaints)


class NodeTaintClient:
    """Writes the taint of Nodes."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def change(self, node: Node, *, tainted: bool) -> None:
        """Add or remove the taint; all others stay.

        A merge patch replaces the whole list, so it has the resourceVersion that was read. Does
        nothing if the Node has changed since, or is another one: the next round sees it. Raises
        `ApiServerUnavailable`.
        """
        path = NODES.object_path(node.name)
        response = self._api.get(path, accepted=MAY_BE_ABSENT)
        if not response.succeeded:
            return
        read, present = response.read(_read_node)
        taints = [taint for taint in present if taint.get("key") != KEY]
        if tainted:
            taints.append({"key": KEY, "effect": EFFECT})
        metadata = {"uid": node.uid, "resourceVersion": read.metadata.resource_version}
        body = {"metadata": metadata, "spec": {"taints": taints}}
        if read.metadata.uid == node.uid:
            self._api.merge_patch(path, body, accepted=MAY_HAVE_CHANGED)


def _read_node(source: Source) -> tuple[_Node, list[dict[str, Any]]]:
    node = decode(source, _Node)
    if node.spec.are_many:
        raise ValueError("the Node has too many taints")
    return node, node.spec.read()
