"""Shows the TPMs of Machines that have no registered key, so that an operator can approve them.

Workers note the keys of offers, and one thread writes them: no verdict waits for these writes or
depends on them. An offer proves nothing: a thief of a bootstrap token can file one. So the
first keys of a Machine stay, later ones are added up to a limit, and a namespace has a bounded
number of objects. Source: docs/decisions/0033-unknown-tpms-as-requests.md.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from threading import Lock
from typing import Final

from signer.clusters.management_cluster import ManagementCluster
from signer.fairness.outbox import Outbox
from signer.inventory.cluster_api.machine_object import MachineObject
from signer.inventory.custom_resources.key_request_client import KeyRequestClient
from signer.kinds.cluster import ClusterKey
from signer.kinds.key_request import MAX_OFFERED_KEYS, EndorsementKeyRequest, OfferedKey
from signer.kinds.machine import Machine
from signer.verify.machines.registered_keys import is_registration_of

_logger = logging.getLogger(__name__)

_MAX_REQUESTS: Final = 1000
"""EndorsementKeyRequests of one namespace; about 2 MB in etcd."""
_MAX_DUE: Final = 200
"""Keys of one namespace that wait to be written; above it, new ones are dropped until their CSRs
are reconciled again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    """A key that waits to be written."""

    cluster: ClusterKey
    machine_name: str
    machine_uid: str
    provider_id: str
    key: OfferedKey


class KeyRequests:
    """The requests of all namespaces; any thread may call `note`, one `sync`."""

    def __init__(
        self,
        management: ManagementCluster,
        writer: KeyRequestClient,
        *,
        serves: Callable[[ClusterKey], bool],
        monotonic: Callable[[], float],
    ) -> None:
        """Delete settled requests of the Clusters that this replica `serves`."""
        self._management = management
        self._serves = serves
        self._writer = writer
        self._outbox = Outbox("endorsement key request not written", "namespace", monotonic)
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
        """Delete the requests that are settled, and write the first key due for each Machine.

        What cannot be written stays due. Raises `ApiServerUnavailable` until the objects are known.
        """
        with self._lock:
            first = {place[:2]: place for place in reversed(self._due)}
        self._outbox.write(
            chain(
                ((r.cluster.namespace, partial(self._writer.delete, r)) for r in self._settled()),
                ((place[0], partial(self._handle, place)) for place in first.values()),
            )
        )

    def _handle(self, place: tuple[str, str, str]) -> None:
        if self._write(self._due[place]):
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
        if not _lacks(request, due.machine_uid, due.key.sha256):
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
                "endorsementKey": due.key.sha256,
            }
            _logger.info("endorsement key requested", extra={"fields": fields})
        return written

    def _settled(self) -> Iterator[EndorsementKeyRequest]:
        """Yield requests whose Machine is gone, has a registered key, or has attested."""
        management = self._management
        for request in management.key_requests.all():
            namespace = request.cluster.namespace
            if not self._serves(request.cluster) or not management.machines.is_complete_for(
                namespace
            ):
                continue
            machine = management.machines.get(f"{namespace}/{request.name}")
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
    names = {key.sha256 for key in request.keys}
    return key_name not in names and len(names) < MAX_OFFERED_KEYS


def _new_request(due: _Due) -> EndorsementKeyRequest:
    return EndorsementKeyRequest(
        namespace=due.cluster.namespace,
        cluster_name=due.cluster.name,
        name=due.machine_name,
        uid="",
        resource_version="",
        machine_uid=due.machine_uid,
        provider_id=due.provider_id,
        keys=(due.key,),
    )
