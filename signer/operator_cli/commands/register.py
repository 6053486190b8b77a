"""`register`: records which machines have which TPMs; one key, or an inventory of many."""

from collections import Counter
from collections.abc import Sequence

from signer.kube.decode import Json
from signer.operator_cli.endorsement_keys import (
    KeyBody,
    change_key,
    is_banned,
    registrations_of,
)
from signer.operator_cli.errors import EXIT_OK, InputInvalid, Rejected
from signer.operator_cli.keys import KeyRegistration, read_inventory, read_key, require_machine
from signer.operator_cli.session import Session


def run(session: Session) -> int:
    """Read and check the whole input, then write each registration."""
    registrations = _requested(session)
    counts: Counter[str] = Counter()
    with session.progress("registering endorsement keys"):
        for number, registration in enumerate(registrations):
            session.doing(f"registering endorsement keys: {number} of {len(registrations)}")
            counts[register(session, registration)] += 1
    if len(registrations) == 1:
        [(outcome, _)] = counts.items()
        session.stdout.write(f"EndorsementKey {registrations[0].key.name}: {outcome}\n")
    else:
        parts = (f"{counts[outcome]} {outcome}" for outcome in ("created", "changed", "unchanged"))
        session.stdout.write(f"{len(registrations)} registrations: {', '.join(parts)}\n")
    return EXIT_OK


def register(session: Session, registration: KeyRegistration) -> str:
    """Add one registration to its EndorsementKey, and return what was done.

    Raises:
        Rejected: the key is banned.

    """
    entry = registration.entry()
    name = registration.key.name

    def add(body: KeyBody) -> Json | None:
        if is_banned(body):
            raise Rejected(
                f"EndorsementKey {name} is banned",
                hint="lift the ban with the command `unban` first",
            )
        entries = registrations_of(body)
        return None if entry in entries else {"registeredFor": [*entries, entry]}

    return change_key(session.api, name, add, pem=registration.key.pem)


def _requested(session: Session) -> Sequence[KeyRegistration]:
    arguments = session.arguments
    machine = (arguments.machine, arguments.provider_id, arguments.node)
    if arguments.inventory is not None:
        if arguments.key is not None or machine != (None, None, None):
            raise InputInvalid("--inventory goes with --cluster only")
        return read_inventory(arguments.inventory, arguments.cluster)
    if arguments.key is None:
        raise InputInvalid("a KEY or --inventory is required")
    if arguments.cluster is None:
        raise InputInvalid("--cluster NAMESPACE/NAME is required")
    registration = KeyRegistration(
        key=read_key(arguments.key, session.stdin),
        cluster=arguments.cluster,
        machine=arguments.machine,
        provider_id=arguments.provider_id,
        node=arguments.node,
    )
    return [require_machine(registration)]
