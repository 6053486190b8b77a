"""Calls of the installed operator program, as an administrator of the management cluster."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.node import Node
from tests.harness.programs import OPERATOR

CALL_SECONDS = 90


@dataclass(frozen=True, slots=True)
class Call:
    """The result of one call."""

    status: int
    output: str
    complaint: str

    @property
    def document(self) -> Any:  # noqa: ANN401 - any JSON
        """The output as JSON."""
        return json.loads(self.output)

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items of a list as JSON."""
        items: list[dict[str, Any]] = self.document["items"]
        return items


def call_operator(kubeconfig: Path, *arguments: str | Path, stdin: str = "") -> Call:
    """Run the program with a kubeconfig of the management cluster."""
    done = subprocess.run(
        [OPERATOR, *arguments],
        input=stdin,
        env={"PATH": os.defpath, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
        timeout=CALL_SECONDS,
    )
    return Call(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True, slots=True)
class Operator:
    """A person with a kubeconfig of the management cluster."""

    fleet: Fleet
    kubeconfig: Path

    def call(self, *arguments: str | Path, stdin: str = "") -> Call:
        """Run the program and return its result; stdin is not a terminal."""
        return call_operator(self.kubeconfig, *arguments, stdin=stdin)

    def list(self, *arguments: str | Path) -> Sequence[dict[str, Any]]:
        """Run a command that succeeds, and return its items."""
        call = self.call(*arguments, "-o", "json")
        assert call.status == 0, call
        return call.items


def cluster_of(tenant: WorkloadTenant) -> str:
    """Return the Cluster as the program's flag has it."""
    return f"{tenant.namespace}/{tenant.name}"


def policy_file(path: Path, name: str, **spec: object) -> Path:
    """Write a policy file with one policy."""
    document = {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "KubeletAttestationPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def key_of(node: Node) -> str:
    """Return the digest of a node's endorsement key."""
    [digest] = node.registration().values()
    return digest.removeprefix("sha256:")


def register(operator: Operator, node: Node, *flags: str | Path) -> Call:
    """Register a node's key for its Machine."""
    where = ("--cluster", cluster_of(node.tenant), "--machine", node.name)
    return operator.call("register", *flags, *where)
