"""Pending requests of workload clusters: who asks, for which machine, and why it waits.

The requester chose these bytes, and nothing in them is proved: an offer can name the endorsement
key of any TPM. An operator compares the key with the one that the vendor or the machine itself
gives.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from common.errors import AttestationError
from common.names import CHALLENGE_ANNOTATION, PENDING_REASON_ANNOTATION
from signer.kube.client import ApiClient
from signer.kube.csrs import CSRS, read_pending_csr
from signer.model import ClusterKey, Csr
from signer.operator_cli.snapshot import Snapshot
from signer.operator_cli.workloads import list_workload
from signer.verify.endorsement_key import verify_endorsement_key
from signer.verify.parse import ParsedKubeletServing, ParsedOffer, parse_request
from signer.verify.recognize import CsrKind

CHALLENGED: Final = "Challenged"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """One request; a field is empty where the request does not have it or cannot be parsed."""

    name: str
    kind: str
    requester: str
    created: datetime
    reason: str
    message: str
    node: str = ""
    provider_id: str = ""
    endorsement_key: str = ""


def read_pending(client: ApiClient) -> list[PendingRequest]:
    """Return the requests to our signers that are not decided. Raises `AttestationError`."""
    requests = []
    for body in list_workload(client, CSRS):
        try:
            csr = read_pending_csr(json.dumps(body).encode())
        except ValueError:
            # The signer's watch leaves it out, too.
            continue
        if csr is not None:
            requests.append(describe(csr))
    return requests


def unanswered(
    requests: Iterable[PendingRequest], cluster: ClusterKey, snapshot: Snapshot
) -> list[PendingRequest]:
    """Leave out the offers whose node has attested since: they stay pending for some minutes."""
    attested = {n.provider_id: n.last_attested for n in snapshot.nodes if n.cluster == cluster}
    return [
        request
        for request in requests
        if request.reason != CHALLENGED
        or request.provider_id not in attested
        or attested[request.provider_id] < request.created
    ]


def describe(csr: Csr) -> PendingRequest:
    """Return what a request says, as far as it can be parsed."""
    reason, _, message = csr.annotations.get(PENDING_REASON_ANNOTATION, "").partition(": ")
    if not reason and CHALLENGE_ANNOTATION in csr.annotations:
        reason, message = CHALLENGED, "the node has not answered the challenge"
    kind, node, provider_id, key = _parsed_fields(csr)
    return PendingRequest(
        name=csr.name,
        kind=kind,
        requester=csr.username,
        created=csr.created,
        reason=reason or "Pending",
        message=message,
        node=node,
        provider_id=provider_id,
        endorsement_key=key,
    )


def _parsed_fields(csr: Csr) -> tuple[str, str, str, str]:
    """Return kind, node name, provider ID and endorsement key."""
    try:
        parsed = parse_request(csr, CsrKind(csr.signer_name))
        if isinstance(parsed, ParsedKubeletServing):
            return "serving", parsed.request.node_name, "", ""
        kind = "offer" if isinstance(parsed, ParsedOffer) else "answer"
        key = verify_endorsement_key(parsed.evidence.ek_public).name
    except AttestationError:
        return "invalid", "", "", ""
    return kind, parsed.request.node_name, parsed.provider_id, key
