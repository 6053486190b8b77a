"""`register`: records which machines have which TPMs; one key, or an inventory of many."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

from common.errors import AttestationError
from signer.kinds.decode import Json
from signer.kinds.endorsement_key import ENDORSEMENT_KEYS, read_endorsement_key
from signer.kinds.resources import CLUSTER, MACHINE, Kind
from signer.kube.discovery import find_resource
from signer.kube.unreadable import Unreadable
from signer.operator_cli.errors import EXIT_OK, CommandError, InputInvalid, Rejected
from signer.operator_cli.keys.endorsement_key_objects import (
    KeyBody,
    change_key,
    held_elsewhere,
    is_banned,
    read_key_body,
    registered_elsewhere,
    registrations_of,
)
from signer.operator_cli.keys.key_input import (
    KeyRegistration,
    read_inventory,
    read_key,
    require_machine,
)
from signer.operator_cli.management.api import ManagementApi
from signer.operator_cli.session import Session

_MAX_LINES: Final = 10
"""Lines about names or keys, of an inventory that has thousands."""


def run(session: Session) -> int:
    """Read and check the whole input, then write each registration."""
    registrations = _requested(session)
    _confirm_other_machines(session, registrations)
    counts: Counter[str] = Counter()
    with session.progress("registering endorsement keys"):
        for number, registration in enumerate(registrations):
            done = f"{number} of {len(registrations)}"
            session.doing(f"registering endorsement keys: {done}")
            try:
                counts[register(session, registration)] += 1
            except CommandError as error:
                if number > 0:
                    session.warn(f"{done} registrations are written: solve the error and repeat")
                if registration.place:
                    error.message = f"{registration.place}: {error.message}"
                raise
    if len(registrations) == 1:
        [(outcome, _)] = counts.items()
        session.report(f"EndorsementKey {registrations[0].key.name}: {outcome}")
    else:
        parts = (f"{counts[outcome]} {outcome}" for outcome in ("created", "changed", "unchanged"))
        session.report(f"{len(registrations)} registrations: {', '.join(parts)}")
    with session.progress("comparing the registrations with Clusters and Machines"):
        _warn_of_absent_objects(session, registrations)
    return EXIT_OK


def register(
    session: Session,
    registration: KeyRegistration,
    require: Callable[[KeyBody], None] = lambda _: None,
) -> str:
    """Add one registration to its EndorsementKey, and return what was done.

    `require` raises if the stored object, or `{}` without one, does not permit that.
    Raises `Rejected`: the key is banned.
    """
    entry = registration.entry()
    name = registration.key.name

    def add(body: KeyBody) -> Json | None:
        require(body)
        if is_banned(body):
            raise Rejected(
                f"EndorsementKey {name} is banned",
                hint="lift the ban with the command `ban --lift` first",
            )
        entries = registrations_of(body)
        return None if entry in entries else {"registeredFor": [*entries, entry]}

    return change_key(session.api, name, add, pem=registration.key.pem)


def _confirm_other_machines(session: Session, registrations: Sequence[KeyRegistration]) -> None:
    """Ask before a key that another machine has is registered for one more."""
    others = chain(_given_twice(registrations), _other_machines(session.api, registrations))
    found = list(dict.fromkeys(others))
    if not found:
        return
    lines = found[:_MAX_LINES]
    if len(found) > _MAX_LINES:
        lines.append(f"{len(found) - _MAX_LINES} more keys are held or registered elsewhere")
    session.confirm("\n".join((*lines, "These TPMs can then join as the machines that you name.")))


def _given_twice(registrations: Sequence[KeyRegistration]) -> Iterator[str]:
    """Yield the keys that an inventory registers for several machines."""
    machines: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for registration in registrations:
        machine = registration.machine or registration.provider_id or registration.node or ""
        machines[registration.key.name].add((str(registration.cluster), machine))
    for key, places in machines.items():
        if len(places) > 1:
            names = ", ".join(f"{machine} of Cluster {c}" for c, machine in sorted(places))
            yield f"the inventory has the key {key} for several machines: {names}"


def _other_machines(api: ManagementApi, registrations: Sequence[KeyRegistration]) -> Iterator[str]:
    """Yield which other machines hold the keys, or have them registered."""
    if len(registrations) == 1:
        bodies = [read_key_body(api, registrations[0].key.name)]
    else:
        bodies = list(api.list_objects(ENDORSEMENT_KEYS.collection_path()))
    stored = {body["metadata"]["name"]: body for body in bodies if body is not None}
    for registration in registrations:
        body = stored.get(registration.key.name)
        if body is not None:
            key = read_endorsement_key(body)
            other = held_elsewhere(key, registration) or registered_elsewhere(key, registration)
            if other is not None:
                yield other


def _warn_of_absent_objects(session: Session, registrations: Sequence[KeyRegistration]) -> None:
    """Name the Clusters and Machines that do not exist: a name may have a typing error.

    They may also be created later, so this is no error. A user who may not list them gets no
    warning.
    """
    try:
        absent = sorted(set(_absent_objects(session.api, registrations)))
    except (CommandError, AttestationError):
        return
    for name in absent[:_MAX_LINES]:
        session.warn(f"{name} does not exist: correct the name, unless it is created later")
    if len(absent) > _MAX_LINES:
        session.warn(f"{len(absent) - _MAX_LINES} more Clusters and Machines do not exist")


def _absent_objects(api: ManagementApi, registrations: Sequence[KeyRegistration]) -> Iterator[str]:
    names = {
        (kind, namespace): _names(api, kind, namespace)
        for kind in (CLUSTER, MACHINE)
        for namespace in {r.cluster.namespace for r in registrations}
    }
    for registration in registrations:
        namespace, name = registration.cluster.namespace, registration.cluster.name
        machine = registration.machine
        if name not in names[CLUSTER, namespace]:
            yield f"Cluster {namespace}/{name}"
        elif machine is not None and machine not in names[MACHINE, namespace]:
            yield f"Machine {namespace}/{machine}"


def _names(api: ManagementApi, kind: Kind, namespace: str) -> frozenset[str]:
    """Return the names of the objects of a kind of Cluster API."""
    resource = find_resource(api, kind)
    if resource is None:
        raise Rejected(f"the API server serves no {kind[1]}s")
    left_out: list[Unreadable] = []
    bodies = api.list_objects(resource.collection_path(namespace), left_out=left_out)
    names = {body["metadata"]["name"] for body in bodies}
    return frozenset(names | {each.key.rpartition("/")[2] for each in left_out})


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
