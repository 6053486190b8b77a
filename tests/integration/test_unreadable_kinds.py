"""A kind that cannot be listed or watched: what is still done, what is not decided, who waits."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness import objects
from tests.harness.client import ApiError, Client
from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.process import wait_until
from tests.harness.signer import Signer
from tests.integration import csrs
from tests.integration.credentials import ban, client_of, is_refused
from tests.integration.relays import PATIENCE, Relayed
from tests.integration.scripted_node import Script

pytestmark = pytest.mark.timeout(600)

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BROKEN = [f"Broken{letter}Machine" for letter in "ABCDE"]
"""Kinds of a provider whose conversion webhook is dead."""
DEFINITIONS = [f"{kind.lower()}s.{objects.INFRASTRUCTURE}" for kind in BROKEN]


def restart(signer: Signer) -> None:
    """Stop the signer and start it again, with empty caches."""
    signer.stop()
    signer.start()


def test_ban_takes_effect_while_requests_cannot_be_listed(
    relayed: Relayed, machines: Machines, tmp_path: Path
) -> None:
    """A banned node that kept its CSR unreadable still wrote: its Cluster got no maintenance."""
    fleet = relayed.fleet
    with relayed.signer(tmp_path / "signer") as signer:
        nodes = [machines.registered(fleet.first, settings=PATIENCE) for _ in range(2)]
        clients = [joined(node) for node in nodes]
        relayed.workload.unanswered = r"^GET .*/certificatesigningrequests\?"
        relayed.workload.cut()
        wait_until(lambda: state(signer, fleet.first) != "Served", what="the failure is reported")
        for node, client in zip(nodes, clients, strict=True):
            ban(node, fleet.management.admin)
            wait_until(lambda c=client, n=node: is_refused(c, n.name), what="the ban", seconds=120)  # type: ignore[misc]
            assert machines.registered(fleet.second, settings=PATIENCE).call().status == 0
            restart(signer)
        relayed.workload.unanswered = ""
        assert machines.registered(fleet.first, settings=PATIENCE).call().status == 0


def joined(node: Node) -> Client:
    """Join a node; return a client with its certificate, which may write."""
    assert node.call().status == 0
    client = client_of(node)
    assert not is_refused(client, node.name)
    return client


def state(signer: Signer, tenant: WorkloadTenant) -> str:
    """Return why a Cluster is not served."""
    return signer.states().get((tenant.namespace, tenant.name), "")


def test_nothing_is_decided_from_machines_that_cannot_be_listed(
    relayed: Relayed, machines: Machines, tmp_path: Path
) -> None:
    """A node whose Machine was deleted renewed twice, from a cache that stood still."""
    with relayed.signer(tmp_path / "signer") as signer:
        signer.wait_until_ready()
        node = machines.registered()
        script, name = Script(node), csrs.new_name()
        answer = script.encoded(name)
        relayed.management.unanswered = r"^GET /apis/cluster.x-k8s.io/\w+/machines\?"
        relayed.management.cut()
        machines.forget(node)
        wait_until(lambda: not signer.ask("/readyz").ok, what="it is not ready", seconds=120)
        script.put(name, answer)
        message = "Machines could not be read from the API server for over a minute"
        wait_until(lambda: message in str(signer.verdicts(name)), what="the request waits")
        wait_until(lambda: bool(alarms(signer, "Machines")), what="there is an alarm", seconds=120)
        failing = signer.metric("node_attestation_kind_failing_seconds", objects="Machines")
        assert failing is not None
        assert failing > 60
        restart(signer)
        wait_until(lambda: len(outages(signer, "Machines")) > 1, what="it tries again")
        assert not signer.ask("/readyz").ok
        assert csrs.certificate(script.client, name) == b""
        relayed.management.unanswered = ""
        signer.wait_until_ready()
        csrs.waiting_for(script.client, name, "MachineNotFound")
        assert csrs.certificate(script.client, name) == b""
        assert machines.registered(settings=PATIENCE).call().status == 0


def alarms(signer: Signer, plural: str) -> list[int]:
    """Return the ages in the alarms about a kind."""
    return [line["seconds"] for line in outages(signer, plural) if line.get("alarm")]


def outages(signer: Signer, plural: str) -> list[dict[str, Any]]:
    """Return the lines about the failures of a kind."""
    lines = [line for line in signer.lines if line["event"] == "watch interrupted"]
    return [line for line in lines if line["objects"] == plural]


def test_dead_webhook_of_a_provider_pauses_nobody(
    relayed: Relayed, machines: Machines, tmp_path: Path
) -> None:
    """Five such kinds paused the verdicts on all Clusters for half of the time."""
    fleet = relayed.fleet
    with broken_provider(fleet), relayed.signer(tmp_path / "signer") as signer:
        signer.wait_until_ready()
        node = machines.power_on(fleet.second)
        machines.register(node)
        refer_to(fleet, node, BROKEN)
        wait_until(lambda: all(outages(signer, f"{kind}s") for kind in BROKEN), what="they fail")
        begin = len(signer.lines)
        require_joins_without_pause(signer, machines, begin)
        kind = f"{BROKEN[0]}s"
        wait_until(lambda: bool(alarms(signer, kind)), what="there is an alarm", seconds=120)
        assert signer.ask("/readyz").ok
        script = Script(node)
        message = f"{kind} are not known yet"
        wait_until(lambda: message in str(signer.lines[begin:]), what="its own node waits")
        restart(signer)
        signer.wait_until_ready()
        begin = len(signer.lines)
        require_joins_without_pause(signer, machines, begin)
        for name in DEFINITIONS:
            conversion = {"strategy": "None", "webhook": None}
            fleet.management.admin.patch(f"{CRDS}/{name}", {"spec": {"conversion": conversion}})
        script.challenge()


def require_joins_without_pause(signer: Signer, machines: Machines, begin: int) -> None:
    """Require that nodes join, and that no verdict waits for a confirmation of the state."""
    for _ in range(8):
        assert machines.registered(settings=PATIENCE).call().status == 0
    assert "whether it was restored" not in str(signer.lines[begin:])


@contextmanager
def broken_provider(fleet: Fleet) -> Iterator[None]:
    """Install kinds that only a conversion webhook could give in the version that is preferred."""
    admin = fleet.management.admin
    webhook = {"clientConfig": {"url": "https://127.0.0.1:1/"}, "conversionReviewVersions": ["v1"]}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    for kind, name in zip(BROKEN, DEFINITIONS, strict=True):
        versions = [
            {"name": version, "served": True, "storage": stored, "schema": schema}
            for version, stored in (("v1", False), ("v1beta1", True))
        ]
        spec = {
            "group": objects.INFRASTRUCTURE,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": f"{kind.lower()}s"},
            "versions": versions,
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        }
        body = {"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1"}
        admin.create(CRDS, {**body, "metadata": {"name": name}, "spec": spec})
    try:
        yield
    finally:
        for name in DEFINITIONS:
            admin.delete(f"{CRDS}/{name}")


def refer_to(fleet: Fleet, node: Node, kinds: list[str]) -> None:
    """Create an object of each kind, and a Machine that refers to it: the node's to the first."""
    namespace, cluster = node.tenant.namespace, node.tenant.name
    management = fleet.management
    for kind in kinds:
        name = f"{kind.lower()}-{node.name}"
        path = f"/apis/{objects.INFRASTRUCTURE}/v1beta1/namespaces/{namespace}/{kind.lower()}s"
        stored = {"apiVersion": f"{objects.INFRASTRUCTURE}/v1beta1", "kind": kind}
        wait_until(lambda p=path: served(fleet, p), what="the kind is served")  # type: ignore[misc]
        management.admin.create(path, {**stored, "metadata": {"name": name}})
        body = objects.machine(cluster, Machine(name), provider_id=f"test://{name}")
        body["spec"]["infrastructureRef"] |= {"kind": kind, "name": name}
        management.create_object(namespace, body)
    reference = {"kind": kinds[0], "name": f"{kinds[0].lower()}-{node.name}"}
    path = f"/apis/{objects.CORE}/v1beta2/namespaces/{namespace}/machines/{node.name}"
    management.admin.patch(path, {"spec": {"infrastructureRef": reference}})


def served(fleet: Fleet, path: str) -> bool:
    """Return whether the API server serves a collection."""
    try:
        fleet.management.admin.list(path)
    except ApiError:
        return False
    return True
