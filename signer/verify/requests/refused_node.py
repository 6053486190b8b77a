"""Decides whose renewal a refused request is: only the node itself can show up as refused.

Anyone with a bootstrap token of the Cluster can file a request that names any node, and the public
part of any endorsement key. So a refusal counts for a node only if one of two facts is proved.
"""

from common.names import CLIENT_SIGNER, NODE_USER_PREFIX, NODES_GROUP
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.csr import Csr
from signer.seams import Inventory


def find_refused_node(
    csr: Csr,
    inventory: Inventory,
    *,
    node_name: str = "",
    proved_keys: frozenset[str] = frozenset(),
) -> AttestedNodeObject | None:
    """Return the claim of the node whose client certificate a refused request would renew.

    Either the API server says that the request was filed with a client certificate which the claim
    names: then it is the claim of the requester, whatever the request contains. Or the quote of the
    request is of the TPM (`proved_keys`, empty if no quote was verified) that the claim of
    `node_name` names. `None` for all other requests.

    Raises `ApiServerUnavailable`: the cache of the claims is not filled yet.
    """
    if csr.signer_name != CLIENT_SIGNER:
        return None
    if csr.username.startswith(NODE_USER_PREFIX) and NODES_GROUP in csr.groups:
        node = inventory.attested_node(csr.username.removeprefix(NODE_USER_PREFIX))
        if node is not None and csr.credential_id and csr.credential_id in node.credential_ids:
            return node
    if proved_keys and node_name:
        node = inventory.attested_node(node_name)
        if node is not None and node.endorsement_key in proved_keys:
            return node
    return None
