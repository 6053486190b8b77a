"""Pending requests of workload clusters: who asks, for which machine, and why it waits.

The requester chose these bytes, and nothing in them is proved: an offer can name the endorsement
key of any TPM. An operator compares the key with the one that the vendor or the machine itself
gives.

The requester can also file its request with the annotations of the signer, and the API server is a
tenant's. So what a request says of its state is only shown as `reported`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from common.errors import AttestationError
from common.names import CHALLENGE_ANNOTATION, PENDING_REASON_ANNOTATION
from signer.kinds.cluster import ClusterKey
from signer.kinds.csr import Csr
from signer.kinds.decode import Source
from signer.kinds.resources import CSRS
from signer.kube.csrs import read_pending_csr
from signer.kube.pages import list_objects
from signer.kube.transport.client import ApiClient
from signer.operator_cli.management.snapshot import Snapshot
from signer.verify.attestation.endorsement_key import verify_endorsement_key
from signer.verify.requests.parse import ParsedKubeletServing, ParsedOffer, parse_request
from signer.verify.requests.recognize import CsrKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """One request; a field is empty where the request does not have it or cannot be parsed."""

    name: str
    kind: str
    requester: str
    created: datetime
    reported: str
    """The annotation with the reason why it waits, which the requester may have written."""
    challenged: bool
    """Whether it has a challenge and no such annotation."""
    node: str = ""
    provider_id: str = ""
    endorsement_key: str = ""


def read_pending(client: ApiClient) -> list[PendingRequest]:
    """Return the requests to our signers that are not decided. Raises `AttestationError`."""
    return list(list_objects(client, CSRS.collection_path(), read_pending_request, left_out=[]))


def read_pending_request(source: Source) -> PendingRequest | None:
    """Read a CSR that is not decided; `None` for others, and for one that cannot be read.

    The signer's watch leaves out what cannot be read, too.
    """
    try:
        csr = read_pending_csr(source)
        return None if csr is None else describe(csr)
    except ValueError:
        return None


def unanswered(
    requests: Iterable[PendingRequest], cluster: ClusterKey, snapshot: Snapshot
) -> list[PendingRequest]:
    """Leave out the offers whose node has attested since: they stay pending for some minutes."""
    attested = {n.provider_id: n.last_attested for n in snapshot.nodes if n.cluster == cluster}
    return [
        request
        for request in requests
        if not request.challenged
        or request.provider_id not in attested
        or attested[request.provider_id] < request.created
    ]


def describe(csr: Csr) -> PendingRequest:
    """Return what a request says, as far as it can be parsed."""
    reported = csr.annotations.get(PENDING_REASON_ANNOTATION, "")
    request = PendingRequest(
        name=csr.name,
        kind="invalid",
        requester=csr.username,
        created=csr.created,
        reported=reported,
        challenged=not reported and CHALLENGE_ANNOTATION in csr.annotations,
    )
    try:
        parsed = parse_request(csr, CsrKind(csr.signer_name))
        node = parsed.request.node_name
        if isinstance(parsed, ParsedKubeletServing):
            return replace(request, kind="serving", node=node)
        key = verify_endorsement_key(parsed.evidence.ek_public).name
    except AttestationError:
        return request
    kind = "offer" if isinstance(parsed, ParsedOffer) else "answer"
    provider_id = parsed.provider_id
    return replace(request, kind=kind, node=node, provider_id=provider_id, endorsement_key=key)
