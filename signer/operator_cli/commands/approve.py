"""`approve`: registers the TPM that was offered for a Machine, so that its node can join."""

from signer.model import EndorsementKeyObject, EndorsementKeyRequest, OfferedKey
from signer.operator_cli.commands.register import register
from signer.operator_cli.errors import EXIT_OK, Rejected
from signer.operator_cli.key_requests import choose_key, key_documents, read_key_requests
from signer.operator_cli.keys import KeyRegistration, PublicEndorsementKey
from signer.operator_cli.output import render_document
from signer.operator_cli.session import Session
from signer.operator_cli.snapshot import Selection, Snapshot, take_snapshot
from signer.verify.offered_key import TRUSTED


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
    _require_free(snapshot.keys.get(key.name), request)
    document = next(d for d in key_documents(request) if d["endorsementKey"] == key.name)
    session.stderr.write(render_document(document, "table"))
    if key.certificate != TRUSTED:
        session.warn("the endorsement certificate is not trusted: it can name any vendor")
    session.confirm(
        f"No offer is proved: compare the key with the one that machine {machine} or its vendor"
        " gives. After the approval, the TPM with this key can join as this Machine."
    )
    outcome = register(session, _registration(request, key))
    session.stdout.write(f"EndorsementKey {key.name}: {outcome}, registered for {machine}\n")
    return EXIT_OK


def _registration(request: EndorsementKeyRequest, key: OfferedKey) -> KeyRegistration:
    return KeyRegistration(
        key=PublicEndorsementKey(name=key.name),
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


def _require_free(key: EndorsementKeyObject | None, request: EndorsementKeyRequest) -> None:
    """Raise if another machine has the key: an offer can name the key of any TPM."""
    if key is None:
        return
    cluster, held_by = request.cluster, key.held_by
    if held_by is not None and (
        (held_by.cluster, held_by.provider_id) != (cluster, request.provider_id)
    ):
        place = f"{held_by.cluster.namespace}/{held_by.cluster.name}"
        raise Rejected(
            f"node {held_by.node_name} of Cluster {place} holds the key {key.name}",
            hint="if the machine was moved, delete its former Machine or run the command `release`,"
            " then use the command `register`",
        )
    for entry in key.registered_for:
        if entry.cluster != cluster or (
            entry.provider_id not in {None, request.provider_id}
            or entry.machine_name not in {None, request.name}
        ):
            place = f"{entry.cluster.namespace}/{entry.cluster.name}"
            other = entry.machine_name or entry.provider_id or entry.node_name
            raise Rejected(
                f"the key {key.name} is registered for {other} of Cluster {place}",
                hint="use the command `register` if the TPM belongs to both",
            )
