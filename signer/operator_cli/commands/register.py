"""`register`: records which machines have which TPMs; one key, or an inventory of many."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from common.errors import AttestationError
from signer.kube.decode import Json
from signer.kube.discovery import collection_path, namespaced_path
from signer.operator_cli.endorsement_keys import (
    KeyBody,
    change_key,
    is_banned,
    registrations_of,
)
from signer.operator_cli.errors import EXIT_OK, CommandError, InputInvalid, Rejected
from signer.operator_cli.keys import KeyRegistration, read_inventory, read_key, require_machine
from signer.operator_cli.management import ManagementApi
from signer.operator_cli.session import Session
from signer.operator_cli.snapshot import CAPI

_MAX_ABSENT: Final = 10
"""Warnings of names, of an inventory that has thousands."""


def run(session: Session) -> int:
    """Read and check the whole input, then write each registration."""
    registrations = _requested(session)
    counts: Counter[str] = Counter()
    with session.progress("registering endorsement keys"):
        for number, registration in enumerate(registrations):
            done = f"{number} of {len(registrations)}"
            session.doing(f"registering endorsement keys: {done}")
            try:
                counts[register(session, registration)] += 1
            except CommandError:
                if number > 0:
                    session.warn(f"{done} registrations are written: solve the error and repeat")
                raise
    if len(registrations) == 1:
        [(outcome, _)] = counts.items()
        session.stdout.write(f"EndorsementKey {registrations[0].key.name}: {outcome}\n")
    else:
        parts = (f"{counts[outcome]} {outcome}" for outcome in ("created", "changed", "unchanged"))
        session.stdout.write(f"{len(registrations)} registrations: {', '.join(parts)}\n")
    with session.progress("comparing the registrations with Clusters and Machines"):
        _warn_of_absent_objects(session, registrations)
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


def _warn_of_absent_objects(session: Session, registrations: Sequence[KeyRegistration]) -> None:
    """Name the Clusters and Machines that do not exist: a name may have a typing error.

    They may also be created later, so this is no error. A user who may not list them gets no
    warning.
    """
    try:
        absent = sorted(set(_absent_objects(session.api, registrations)))
    except (CommandError, AttestationError):
        return
    for name in absent[:_MAX_ABSENT]:
        session.warn(f"{name} does not exist: correct the name, unless it is created later")
    if len(absent) > _MAX_ABSENT:
        session.warn(f"{len(absent) - _MAX_ABSENT} more Clusters and Machines do not exist")


def _absent_objects(api: ManagementApi, registrations: Sequence[KeyRegistration]) -> Iterator[str]:
    names = {
        (kind, namespace): _names(api, kind, namespace)
        for kind in ("Cluster", "Machine")
        for namespace in {r.cluster.namespace for r in registrations}
    }
    for registration in registrations:
        namespace, name = registration.cluster.namespace, registration.cluster.name
        machine = registration.machine
        if name not in names["Cluster", namespace]:
            yield f"Cluster {namespace}/{name}"
        elif machine is not None and machine not in names["Machine", namespace]:
            yield f"Machine {namespace}/{machine}"


def _names(api: ManagementApi, kind: str, namespace: str) -> frozenset[str]:
    """Return the names of the objects of a kind of Cluster API."""
    path = collection_path(api, CAPI, kind)
    if path is None:
        raise Rejected(f"the API server serves no {kind}s")
    bodies = api.list_objects(namespaced_path(path, namespace))
    return frozenset(body["metadata"]["name"] for body in bodies)


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
