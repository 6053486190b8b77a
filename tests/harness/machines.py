"""Machines for tests, each with a TPM and a bootstrap token, and with or without a Machine."""

import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.tpm import SoftwareTpm, TrustDomain


@dataclass(frozen=True, slots=True)
class Machines:
    """Creates machines whose TPMs are switched off when `stack` is closed."""

    fleet: Fleet
    vendor: TrustDomain
    directory: Path
    stack: ExitStack

    def power_on(
        self,
        tenant: WorkloadTenant | None = None,
        name: str = "",
        *,
        tpm: SoftwareTpm | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> Node:
        """Create a machine without a Machine; name and TPM are new by default."""
        name = name or f"node-{secrets.token_hex(4)}"
        seed = f"{name}-{secrets.token_hex(4)}"
        tpm = tpm or self.stack.enter_context(SoftwareTpm(self.vendor, seed=seed))
        node = Node(
            tenant or self.fleet.first, name, tpm, self.directory / seed, settings=settings or {}
        )
        node.give_token(node.tenant.workload.bootstrap_token())
        return node

    def tpm(self, domain: TrustDomain | None = None, **arguments: Any) -> SoftwareTpm:  # noqa: ANN401
        """Create a TPM with a new seed and the given arguments of SoftwareTpm."""
        arguments.setdefault("seed", f"tpm-{secrets.token_hex(4)}")
        return self.stack.enter_context(SoftwareTpm(domain or self.vendor, **arguments))

    def known(
        self,
        tenant: WorkloadTenant | None = None,
        name: str = "",
        *,
        tpm: SoftwareTpm | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> Node:
        """Create a machine with a Machine that has no registered endorsement key."""
        node = self.power_on(tenant, name, tpm=tpm, settings=settings)
        self.fleet.add_machine(node.tenant, Machine(node.name, provider_id=node.provider_id))
        return node

    def register(self, node: Node, machine: Machine | None = None) -> None:
        """Create the Machine of a node, with its registered endorsement key."""
        machine = machine or Machine(node.name)
        annotations = {**machine.annotations, **node.registration()}
        self.fleet.add_machine(node.tenant, replace(machine, annotations=annotations))

    def registered(
        self,
        tenant: WorkloadTenant | None = None,
        name: str = "",
        *,
        settings: Mapping[str, object] | None = None,
    ) -> Node:
        """Create a machine that may join."""
        node = self.power_on(tenant, name, settings=settings)
        self.register(node)
        return node

    def forget(self, node: Node) -> None:
        """Delete a node's Machine and infrastructure object, to free its TPM and name."""
        self.fleet.management.delete_machine(node.tenant.namespace, node.name)
