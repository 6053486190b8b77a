"""What the users of a CSR can read about it: its pending reason, Events, and its Machine.

No verdict depends on these reports. Anyone who may file CSRs causes them, one for each CSR and
reason: `RequesterShares` limits the CSRs.
"""

import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import Final

from common.errors import AttestationError, Unavailable
from common.names import PENDING_REASON_ANNOTATION
from signer.controller.reconcile.dependencies import ClusterContext
from signer.errors import AnnotationsFull
from signer.inventory.cluster_api.machine_status import MachineCondition
from signer.kinds.csr import Csr
from signer.kinds.machine import Machine
from signer.verify.machines.claims import is_complete_claim
from signer.verify.refusals import describe_reasons

_CHECKS_OF_REQUESTER: Final = frozenset({"R", "P"})
"""Checks on requester and form: until they pass, the provider ID in the request means nothing."""


class CsrStatus:
    """The reports on one CSR; `csr` is the version that was last read or written."""

    def __init__(
        self,
        csr: Csr,
        cluster: ClusterContext,
        *,
        enqueue_condition: Callable[[MachineCondition], None],
        now: Callable[[], datetime],
    ) -> None:
        self.csr = csr
        self._cluster = cluster
        self._enqueue_condition = enqueue_condition
        self._now = now

    def is_new(self, error: AttestationError) -> bool:
        """Return whether the CSR does not have this pending reason yet."""
        return self.csr.annotations.get(PENDING_REASON_ANNOTATION) != _pending_reason(error)

    def write_pending_reason(self, error: AttestationError) -> None:
        """Write why the CSR waits. Raises `AnnotationsFull` and `Unavailable`."""
        values = {PENDING_REASON_ANNOTATION: _pending_reason(error)}
        self.csr = self._cluster.csrs.annotate(self.csr, values)

    def clear_pending_reason(self) -> Csr:
        """Remove the reason of an earlier wait; return the CSR as it is then."""
        if values := self.without_pending_reason():
            with contextlib.suppress(AnnotationsFull):
                self.csr = self._cluster.csrs.annotate(self.csr, values)
        return self.csr

    def without_pending_reason(self) -> dict[str, str | None]:
        """Return the change of annotations that removes the pending reason, empty if it has none.

        A caller that writes other annotations adds this, and saves a write.
        """
        return dict.fromkeys({PENDING_REASON_ANNOTATION} & self.csr.annotations.keys())

    def report(self, error: AttestationError, provider_id: str) -> None:
        """Create an Event about the CSR, and note the reason for the Machine of the provider ID."""
        self.record_event(error.reason, error.message)
        if provider_id and error.check[:1] not in _CHECKS_OF_REQUESTER:
            with contextlib.suppress(Unavailable):
                machines = self._cluster.inventory.machines(provider_id)
                if len(machines) == 1:
                    if not self._has_claim(machines[0]):
                        text = describe_reasons(error)
                        self.enqueue_condition(machines[0], error.reason, text, attested=False)
                    if error.check == "K4":
                        self.note_alarm(machines[0], error)

    def _has_claim(self, machine: Machine) -> bool:
        """Return whether the node of a Machine has attested: then its claim decides the condition.

        Otherwise a stranger's request could replace the reason of a condition that is False.
        """
        inventory = self._cluster.inventory
        return any(
            (node.machine_name, node.machine_uid) == (machine.name, machine.uid)
            and is_complete_claim(inventory.endorsement_key(node.endorsement_key), node)
            for node in inventory.attested_nodes_with_provider_id(machine.provider_id)
        )

    def record_event(self, reason: str, message: str) -> None:
        """Create an Event about the CSR, unless one with this reason exists."""
        with contextlib.suppress(Unavailable):
            self._cluster.csrs.record_event(self.csr, reason, message, self._now())

    def note_alarm(self, machine: Machine, error: AttestationError) -> None:
        """Note an Event for a Machine; its condition stays."""
        self.enqueue_condition(
            machine, error.reason, error.message, attested=False, event_only=True
        )

    def enqueue_condition(
        self,
        machine: Machine,
        reason: str,
        message: str,
        *,
        attested: bool,
        event_only: bool = False,
    ) -> None:
        """Note a condition of a Machine; another thread writes it."""
        if machine.is_pool_member:
            return
        self._enqueue_condition(
            MachineCondition(
                namespace=self._cluster.key.namespace,
                name=machine.name,
                uid=machine.uid,
                attested=attested,
                reason=reason,
                message=message,
                event_only=event_only,
            )
        )


def _pending_reason(error: AttestationError) -> str:
    return f"{error.reason}: {error.message}"
