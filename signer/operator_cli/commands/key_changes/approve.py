"""`approve`: registers the TPM that was offered for a Machine, so that its node can join."""

from signer.kinds.endorsement_key import EndorsementKeyObject, read_endorsement_key
from signer.kinds.key_request import EndorsementKeyRequest, OfferedKey
from signer.operator_cli.commands.key_changes.register import register
from signer.operator_cli.errors import EXIT_OK, InputInvalid, Rejected
from signer.operator_cli.keys.endorsement_key_objects import (
    KeyBody,
    held_elsewhere,
    registered_elsewhere,
)
from signer.operator_cli.keys.key_input import (
    KeyRegistration,
    PublicEndorsementKey,
    parse_digest,
)
from signer.operator_cli.keys.key_request_list import choose_key, key_documents, read_key_requests
from signer.operator_cli.management.snapshot import Selection, Snapshot, take_snapshot
from signer.operator_cli.output import render_document
from signer.operator_cli.session import Session
from signer.verify.machines.offered_key import TRUSTED


def run(session: Session) -> int:
    """Show the key, ask, and register it for the Machine."""
    arguments = session.arguments
    with session.progress("reading the requests of endorsement keys"):
        requests = read_key_requests(session)
    request, key = choose_key(requests, arguments.target, arguments.key)
    with session.progress("reading the objects of the Cluster"):
        snapshot = take_snapshot(session.api, Selection(cluster=request.cluster))
    machine = f"{request.cluster.namespace}/{request.name}"
    _require_machine(request, snapshot)
    registration = _registration(request, key)
    _require_free(snapshot.keys.get(key.sha256), registration)
    if arguments.yes and key.sha256 not in map(
        parse_digest, (arguments.target, arguments.key or "")
    ):
        raise InputInvalid(
            f"--yes must follow the key of machine {machine}, with all 64 digits",
            hint="take it from the machine or its vendor: an offer can name any key",
        )
    document = next(d for d in key_documents(request) if d["endorsementKey"] == key.sha256)
    session.stderr.write(render_document(document, "table"))
    if key.certificate.status != TRUSTED:
        session.warn("the endorsement certificate is not trusted: it can name any vendor")
    session.confirm(
        "No offer is proved, and all of the above may be false: compare the key with the one that"
        f" machine {machine} or its vendor gives. After the approval, the TPM with this key can"
        " join as this Machine.",
        hint="add the key that the machine or its vendor gives and --yes to confirm",
    )

    def require_free(body: KeyBody) -> None:
        """Require it of the version that is written: an operator compares keys for a while."""
        _require_free(read_endorsement_key(body) if body else None, registration)

    outcome = register(session, registration, require_free)
    session.report(f"EndorsementKey {key.sha256}: {outcome}, registered for {machine}")
    return EXIT_OK


def _registration(request: EndorsementKeyRequest, key: OfferedKey) -> KeyRegistration:
    return KeyRegistration(
        key=PublicEndorsementKey(name=key.sha256),
        cluster=request.cluster,
        machine=request.name,
        provider_id=request.provider_id,
    )


def _require_machine(request: EndorsementKeyRequest, snapshot: Snapshot) -> None:
    """Raise unless the Machine is the one that the keys were offered for."""
    expected = (request.name, request.machine_uid, request.provider_id)
    if expected not in {(m.name, m.uid, m.provider_id) for m in snapshot.machines}:
        raise Rejected(
            f"Machine {request.cluster.namespace}/{request.name} is gone, or another one has its"
            " name or provider ID now",
            hint="wait until the node of the new Machine asks, then run the command again",
        )


def _require_free(key: EndorsementKeyObject | None, wanted: KeyRegistration) -> None:
    """Raise if another machine has the key: an offer can name the key of any TPM."""
    if key is None:
        return
    held = held_elsewhere(key, wanted)
    if held is not None:
        raise Rejected(
            held,
            hint="if the machine was moved, delete its former Machine or run the command `release`,"
            " then use the command `register`",
        )
    registered = registered_elsewhere(key, wanted)
    if registered is not None:
        raise Rejected(registered, hint="use the command `register` if the TPM belongs to both")
