"""Shows the TPMs of Machines that have no key on record, so that an operator can approve them.

Workers note the keys of offers, and one thread writes them: no verdict waits for these writes or
depends on them. An offer proves nothing: a thief of a bootstrap token can file one. So the
first keys of a Machine stay, later ones are added up to a limit, and a namespace has a bounded
number of objects. Source: docs/decisions/0033-unknown-tpms-as-requests.md.
"""

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Final, Protocol

from common.errors import Unavailable
from signer.inventory.key_requests import MAX_OFFERED_KEYS
from signer.inventory.machine import MachineObject
from signer.inventory.management import ManagementCluster
from signer.model import ClusterKey, EndorsementKeyRequest, Machine, OfferedKey
from signer.verify.registered_keys import is_registration_of

_logger = logging.getLogger(__name__)

_MAX_REQUESTS: Final = 1000
"""EndorsementKeyRequests of one namespace; about 2 MB in etcd."""
_MAX_DUE: Final = 200
"""Keys of one namespace that wait to be written; above it, new ones are dropped until their CSRs
are reconciled again."""
_BATCH_SIZE: Final = 20
"""Writes of one round for one namespace."""
_FAILURE_PAUSE: Final = 30.0
"""Seconds without a write for a namespace, after a failure."""
_MAX_FAILURES: Final = 3
"""Namespaces whose writes fail in one round. Each failure may take half a minute."""


class KeyRequestWriter(Protocol):
    """Writes EndorsementKeyRequests. Each method raises `ApiServerUnavailable`."""

    def create(self, request: EndorsementKeyRequest) -> bool:
        """Create a request; return whether it was created."""

    def add_key(self, request: EndorsementKeyRequest, key: OfferedKey) -> bool:
        """Append a key; return whether it was written."""

    def delete(self, request: EndorsementKeyRequest) -> None:
        """Delete a request, if it has not changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    """A key that waits to be written."""

    cluster: ClusterKey
    machine_name: str
    machine_uid: str
    provider_id: str
    key: OfferedKey


class _Round:
    """Runs the writes of one round, a few for each namespace.

    A write that always fails, such as one that the API server refuses, delays only its namespace.
    """

    def __init__(self, paused: Container[str]) -> None:
        """Write nothing for the namespaces that are paused."""
        self._paused = paused
        self._writes: Counter[str] = Counter()
        self.failed: set[str] = set()

    def run(self, namespace: str, write: Callable[[], None]) -> None:
        """Run a write unless its namespace, or the whole round, has had enough; never raises."""
        if namespace in self._paused or namespace in self.failed:
            return
        if len(self.failed) >= _MAX_FAILURES or self._writes[namespace] >= _BATCH_SIZE:
            return
        self._writes[namespace] += 1
        try:
            write()
        except Unavailable as e:
            self.failed.add(namespace)
            fields = {"namespace": namespace, "message": e.message, "detail": e.detail}
            _logger.warning("endorsement key request not written", extra={"fields": fields})


class KeyRequests:
    """The requests of all namespaces; any thread may call `note`, one `sync`."""

    def __init__(
        self,
        management: ManagementCluster,
        writer: KeyRequestWriter,
        *,
        serves: Callable[[ClusterKey], bool],
        monotonic: Callable[[], float],
    ) -> None:
        """Delete settled requests of the Clusters that this replica `serves`."""
        self._management = management
        self._serves = serves
        self._writer = writer
        self._monotonic = monotonic
        self._paused: dict[str, float] = {}
        """Namespaces whose last write failed, each with the end of its pause."""
        self._lock = Lock()
        self._due: dict[tuple[str, str, str], _Due] = {}
        """By namespace, UID of the Machine, and key."""
        self._counts: Counter[str] = Counter()
        """How many of them each namespace has."""

    def note(
        self,
        cluster: ClusterKey,
        machine: Machine,
        key_name: str,
        describe: Callable[[], OfferedKey],
    ) -> None:
        """Remember a key for the next `sync`; `describe` is called only for a new one.

        Raises `ApiServerUnavailable` until the requests have been listed.
        """
        place = (cluster.namespace, machine.uid, key_name)
        request = self._management.key_requests.get(f"{cluster.namespace}/{machine.name}")
        with self._lock:
            if place in self._due or self._counts[cluster.namespace] >= _MAX_DUE:
                return
        if not _lacks(request, machine.uid, key_name):
            return
        due = _Due(
            cluster=cluster,
            machine_name=machine.name,
            machine_uid=machine.uid,
            provider_id=machine.provider_id,
            key=describe(),
        )
        with self._lock:
            if place not in self._due:
                self._due[place] = due
                self._counts[cluster.namespace] += 1

    def sync(self) -> None:
        """Delete the requests that are settled, and write the keys that are due.

        What cannot be written stays due. Raises `ApiServerUnavailable` until the objects are known.
        """
        now = self._monotonic()
        self._paused = {name: until for name, until in self._paused.items() if until > now}
        round_ = _Round(self._paused)
        for request in self._settled():
            round_.run(request.cluster.namespace, partial(self._writer.delete, request))
        with self._lock:
            due = list(self._due.items())
        for place, entry in due:
            round_.run(entry.cluster.namespace, partial(self._handle, place, entry))
        self._paused |= dict.fromkeys(round_.failed, now + _FAILURE_PAUSE)

    def _handle(self, place: tuple[str, str, str], due: _Due) -> None:
        """Write a key. After a failure, it comes after all others."""
        with self._lock:
            self._due[place] = self._due.pop(place)
        if self._write(due):
            with self._lock:
                del self._due[place]
                self._counts[place[0]] -= 1

    def _write(self, due: _Due) -> bool:
        """Write a key; return whether nothing is left to do."""
        namespace = due.cluster.namespace
        machine = self._management.machines.get(f"{namespace}/{due.machine_name}")
        if machine is None or machine.uid != due.machine_uid:
            return True
        requests = self._management.key_requests
        request = requests.get(f"{namespace}/{due.machine_name}")
        if request is not None and request.machine_uid != due.machine_uid:
            # Of a former Machine with this name: the next round finds it deleted.
            self._writer.delete(request)
            return False
        if not _lacks(request, due.machine_uid, due.key.name):
            return True
        if request is not None:
            written = self._writer.add_key(request, due.key)
        else:
            if len(requests.by_index("namespace", namespace)) >= _MAX_REQUESTS:
                fields = {"namespace": namespace, "machine": due.machine_name, "alarm": True}
                _logger.warning("too many endorsement key requests", extra={"fields": fields})
                return True
            written = self._writer.create(_new_request(due))
        if written:
            fields = due.cluster.log_fields() | {
                "machine": due.machine_name,
                "endorsementKey": due.key.name,
            }
            _logger.info("endorsement key requested", extra={"fields": fields})
        return written

    def _settled(self) -> Iterator[EndorsementKeyRequest]:
        """Yield requests whose Machine is gone, has a key on record, or has attested."""
        management = self._management
        for request in management.key_requests.all():
            if not self._serves(request.cluster):
                continue
            machine = management.machines.get(f"{request.cluster.namespace}/{request.name}")
            if (
                machine is None
                or machine.uid != request.machine_uid
                or machine.registered_keys.keys
                or self._has_attested_since(machine, request)
                or self._is_registered(machine, request)
            ):
                yield request

    def _has_attested_since(self, machine: MachineObject, request: EndorsementKeyRequest) -> bool:
        """Return whether the Machine's node has attested after the last key was offered."""
        nodes = self._management.nodes.by_index(
            "provider ID", (machine.cluster, machine.provider_id)
        )
        last = max(key.first_seen for key in request.keys)
        return any(n.machine_name == machine.name and n.last_attested > last for n in nodes)

    def _is_registered(self, machine: MachineObject, request: EndorsementKeyRequest) -> bool:
        """Return whether any EndorsementKey is registered for the Machine."""
        cluster, names = machine.cluster, {key.node_name for key in request.keys}
        keys = {
            key.name: key
            for value in (machine.provider_id, machine.name, *names)
            for key in self._management.keys.by_index("registered", (cluster, value))
        }
        return any(
            entry.cluster == cluster and is_registration_of(entry, machine, name)
            for key in keys.values()
            for entry in key.registered_for
            for name in names
        )


def _lacks(request: EndorsementKeyRequest | None, machine_uid: str, key_name: str) -> bool:
    """Return whether a key has to be written for a Machine."""
    if request is None or request.machine_uid != machine_uid:
        return True
    names = {key.name for key in request.keys}
    return key_name not in names and len(names) < MAX_OFFERED_KEYS


def _new_request(due: _Due) -> EndorsementKeyRequest:
    return EndorsementKeyRequest(
        cluster=due.cluster,
        name=due.machine_name,
        uid="",
        resource_version="",
        machine_uid=due.machine_uid,
        provider_id=due.provider_id,
        keys=(due.key,),
    )
