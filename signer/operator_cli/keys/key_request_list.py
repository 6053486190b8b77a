"""Unknown TPMs that the signer recorded: which keys were offered for which Machines.

No offer is proved. So a key that operators name must be whole: the holder of a stolen bootstrap
token could make a key that begins as the machine's key does.
"""

from collections.abc import Iterable, Sequence

from common.printed_command import printed_command
from signer.kinds.key_request import (
    KEY_REQUESTS,
    MAX_OFFERED_KEYS,
    EndorsementKeyRequest,
    OfferedKey,
    read_key_request,
)
from signer.kube.discovery import find_resource
from signer.operator_cli.errors import InputInvalid, Rejected
from signer.operator_cli.keys.key_input import parse_digest
from signer.operator_cli.management.snapshot import Selection, read_objects
from signer.operator_cli.output import Document, time_text
from signer.operator_cli.session import Session

_HINT = "run the command `pending` for the Machines and keys that wait"


def read_key_requests(session: Session) -> list[EndorsementKeyRequest]:
    """Return the requests of the selected Clusters; none if the CRD is not installed."""
    arguments = session.arguments
    selection = Selection(namespace=arguments.namespace, cluster=arguments.cluster)
    resource = find_resource(session.api, KEY_REQUESTS.group_kind)
    if resource is None:
        return []
    requests, unreadable = read_objects(session.api, resource, selection, read_key_request)
    session.warn_left_out(unreadable)
    return [request for request in requests if request.cluster in selection]


def choose_key(
    requests: Sequence[EndorsementKeyRequest], target: str, key: str | None
) -> tuple[EndorsementKeyRequest, OfferedKey]:
    """Return the request and the key that an operator means.

    `target` is `MACHINE`, `NAMESPACE/MACHINE` or a key; `key` chooses one key of a Machine.

    Raises:
        InputInvalid: `key` is not a whole digest.
        Rejected: no request or more than one fits, or several keys were offered.

    """
    machines = [r for r in requests if target in {r.name, f"{r.cluster.namespace}/{r.name}"}]
    digest = parse_digest(target if key is None else key)
    if machines:
        if key is not None and digest is None:
            raise InputInvalid(f"{key!r} must be sha256: and all 64 digits")
        candidates, digest = machines, None if key is None else digest
    elif key is None and digest is not None:
        candidates = [r for r in requests if any(k.sha256 == digest for k in r.keys)]
    else:
        raise Rejected(f"no unknown TPM was recorded for Machine {target}", hint=_HINT)
    if len(candidates) > 1:
        names = ", ".join(f"{r.cluster.namespace}/{r.name}" for r in candidates)
        raise Rejected(
            f"{target} fits several Machines: {names}",
            hint="name one as NAMESPACE/MACHINE, and the key after it",
        )
    if not candidates:
        raise Rejected(f"no request has the key {digest}", hint=_HINT)
    return candidates[0], _key_of(candidates[0], digest)


def key_documents(request: EndorsementKeyRequest) -> Iterable[Document]:
    """Return one document for each key of a request."""
    for key in request.keys:
        certificate = key.certificate
        yield {
            "namespace": request.cluster.namespace,
            "cluster": request.cluster.name,
            "machine": request.name,
            "node": key.node_name,
            "providerID": request.provider_id,
            "endorsementKey": key.sha256,
            "certificate": certificate.status,
            "manufacturer": certificate.manufacturer or None,
            "model": certificate.model or None,
            "firmware": certificate.firmware or None,
            "certifiedFor": certificate.certified_for or None,
            "requester": key.requester,
            "firstSeen": time_text(key.first_seen),
            "conflict": len(request.keys) > 1,
        }


def approval_command(key: Document) -> str:
    """Return the command that approves a key of `key_documents`.

    It names the key only where several were offered. Without a key, `approve` refuses a Machine for
    which another key has been offered since.
    """
    machine = f"{key['namespace']}/{key['machine']}"
    keys = [key["endorsementKey"]] if key["conflict"] else []
    return printed_command("kubectl attestation approve", machine, *keys)


def _key_of(request: EndorsementKeyRequest, digest: str | None) -> OfferedKey:
    machine = f"{request.cluster.namespace}/{request.name}"
    if digest is None and len(request.keys) == 1:
        return request.keys[0]
    if digest is None:
        names = ", ".join(key.sha256 for key in request.keys)
        raise Rejected(
            f"{len(request.keys)} different keys were offered for Machine {machine}: {names}",
            hint="find out which one the machine has, and give it after the Machine",
        )
    for key in request.keys:
        if key.sha256 == digest:
            return key
    full = len(request.keys) >= MAX_OFFERED_KEYS
    raise Rejected(
        f"the key {digest} was not recorded for Machine {machine}",
        hint="the record is full: use the command `register`" if full else _HINT,
    )
