"""Compares the client certificate that filed a node's request with those issued to it (K4).

The API server writes into a CSR which client certificate filed it. The requester cannot change
that; an administrator of the workload cluster can. So a difference is a reason for an alarm or a
denial, and agreement proves nothing on its own. Source: docs/protocol.md section 5.
"""

from typing import Final

from signer.errors import RequesterCredentialUnknown
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.csr import Csr
from signer.seams import ClaimStore, Inventory
from signer.verify.requests.request import NodeRequester, Requester

MAX_CREDENTIAL_IDS: Final = 8
"""Certificates of one node that are remembered: in general two. Each crash between the write of the
claim and the receipt of the certificate adds one. Beyond the limit, the oldest besides the one that
filed the request is forgotten, although the node may have received it."""


def requester_credential(csr: Csr, requester: Requester) -> str:
    """Return the ID of the certificate with which a node filed its request.

    Empty for a bootstrapper: its credential is not one that the signer issued.
    """
    return csr.credential_id if isinstance(requester, NodeRequester) else ""


def verify_known_credential(presented: str, node: AttestedNodeObject | None) -> None:
    """K4: verify that the AttestedNode names the certificate that filed the request.

    Passes where that cannot be decided: the API server gave no ID, or no signer has recorded one
    for this node, as for the first certificate of a control plane node, which kubeadm makes. Raises
    `RequesterCredentialUnknown`: the signer has issued other certificates since, or never this.
    """
    recorded = () if node is None else node.credential_ids
    if presented and recorded and presented not in recorded:
        raise RequesterCredentialUnknown(
            "the request was filed with a client certificate that is not one of the node's last",
            detail=presented,
        )


def find_unknown_credential(
    presented: str,
    node_name: str,
    inventory: Inventory,
    claims: ClaimStore,
) -> RequesterCredentialUnknown | None:
    """Return why the certificate that filed an offer is unknown, `None` if it is known.

    An old cache must not cause a refusal, and the answer decides. So the cache is used
    only if it names the certificate; otherwise the AttestedNode is read.

    Raises `ApiServerUnavailable`.
    """
    try:
        verify_known_credential(presented, inventory.attested_node(node_name))
    except RequesterCredentialUnknown:
        node = claims.attested_node(inventory.cluster().key, node_name)
        try:
            verify_known_credential(presented, node)
        except RequesterCredentialUnknown as error:
            return error
    return None


def credential_ids_after_issue(
    node: AttestedNodeObject | None,
    endorsement_key: str,
    *,
    presented: str,
    issued: str,
) -> tuple[str, ...]:
    """Return the IDs to record before a certificate is released, in the order of their issue.

    The certificate that filed the request has arrived, so those before it end. Those after it stay:
    any of them may be the one that the node received. Two replicas may issue a certificate each for
    one CSR, of which one is released, and a signer may crash before or after the release.

    `issued` is empty if the new certificate is not a client certificate. Another endorsement key
    takes over only the certificate that filed its request.
    """
    recorded = () if node is None else node.credential_ids
    known = presented in recorded
    if known:
        recorded = recorded[recorded.index(presented) :]
    elif not recorded and presented:
        recorded = (presented,)
    if node is not None and node.endorsement_key != endorsement_key:
        recorded = recorded[:1] if known else ()
    if issued and issued not in recorded:
        recorded = (*recorded[:1], *recorded[1:][2 - MAX_CREDENTIAL_IDS :], issued)
    return recorded
