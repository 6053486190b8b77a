"""The real `clusterctl move` brings Clusters to another management cluster while signers run."""

import json
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest

from authenticator.model import EXCHANGE_TTL_SECONDS
from signer.inventory.ended_certificates import POLICY_NAMES
from signer.kinds.resources import ADMISSION_POLICIES
from tests.harness.client import Object
from tests.harness.fleet import WorkloadTenant
from tests.harness.management import NAMESPACE
from tests.harness.node import Node, finished
from tests.harness.objects import Machine
from tests.harness.process import wait_until
from tests.harness.signer import OPT_IN, Signer
from tests.harness.tpm import SoftwareTpm, TrustDomain
from tests.harness.tpm_relay import TPM2_QUOTE, Send, TpmRelay
from tests.integration import csrs, moves
from tests.integration.audit_log import logged
from tests.integration.credentials import client_of, credential_id, is_refused
from tests.integration.moves import Site, TwoSites

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
OPT_INS = "attestation.cluster.x-k8s.io/opt-in"
BAN = {"reason": "stolen", "by": "alice", "since": "2026-11-22T09:00:00Z"}


@pytest.fixture(scope="module")
def sites(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoSites]:
    with TwoSites(tmp_path_factory.mktemp("sites"), assets) as running:
        yield running


@pytest.fixture
def signers(sites: TwoSites, tmp_path: Path) -> Iterator[tuple[Signer, Signer]]:
    """Run a signer on each management cluster; renewals with unknown certificates are denied."""
    policy = {"renewals": {"unknownCredential": "Deny"}}
    for site in (sites.first, sites.second):
        # Those of the last test: their Clusters are gone, and had the same authority.
        site.management.kubectl("delete", "leases", f"--namespace={NAMESPACE}", "--all")
    first, second = (
        Signer(site, tmp_path / name, policy=policy)
        for site, name in ((sites.first, "first"), (sites.second, "second"))
    )
    with first, second:
        for signer in (first, second):
            signer.wait_until_ready()
        yield first, second


@pytest.fixture
def node(sites: TwoSites, vendor: TrustDomain, tmp_path: Path) -> Iterator[Node]:
    """Return the node of a new Cluster on the first management cluster. It has not joined."""
    name = f"move-{secrets.token_hex(4)}"
    tenant = WorkloadTenant(namespace=name, workload=sites.workload, name=name)
    with SoftwareTpm(vendor, seed=name) as tpm:
        node = Node(tenant, name, tpm, tmp_path / name)
        node.give_token(sites.workload.bootstrap_token())
        create(sites.first, node)
        yield node
    for site in (sites.first, sites.second):
        site.management.kubectl(
            "delete", "clusters", "--namespace", name, "--all", "--ignore-not-found"
        )


def create(site: Site, node: Node) -> None:
    """Create the Cluster, its Secrets, and the Machine of the node with its key registered."""
    management, tenant = site.management, node.tenant
    namespace, name, workload = tenant.namespace, tenant.name, tenant.workload
    management.create_namespace(namespace)
    management.create_cluster(namespace, name, endpoint=workload.url, annotations=OPT_IN)
    management.store_kubeconfig(namespace, name, workload.signer_kubeconfig())
    management.store_authority(namespace, name, workload.authority.pair)
    machine = Machine(node.name, provider_id=node.provider_id, annotations=node.registration())
    management.create_machine(namespace, name, machine)


def renew(node: Node) -> str:
    """Renew the certificate of a node, and return its ID."""
    call = node.call("renew", "--kubeconfig", str(node.kubeconfig()))
    assert call.status == 0, call.complaint
    return credential_id(node.call().certificate.encode())


def claim(site: Site, node: Node) -> Object:
    return csrs.claim(node, site.management.admin)


def test_node_renews_after_a_move_with_the_same_claim(
    sites: TwoSites, signers: tuple[Signer, Signer], node: Node
) -> None:
    first, second = signers
    joined = credential_id(node.call().certificate.encode())
    before = claim(sites.first, node)
    assert before["machineUID"] == moves.machine_uid(sites.first, node)
    moves.adopt(sites.first, node)

    sites.move(node.tenant.namespace, sites.first, sites.second)
    assert claim(sites.second, node) == before
    moves.report_status(sites.second, node)
    renewed = renew(node)

    after = claim(sites.second, node)
    changed = {name for name in before if after[name] != before[name]}
    assert changed <= {
        "machineUID",
        "notAfter",
        "lastAttested",
        "renewalDeadline",
        "credentialIDs",
        "lastBootCounters",
    }
    assert after["machineUID"] == moves.machine_uid(sites.second, node) != before["machineUID"]
    assert after["credentialIDs"] == [joined, renewed]
    assert len(logged(first, node, "issued")) == len(logged(second, node, "issued")) == 1
    assert "alarms" not in logged(second, node, "issued")[0]


def test_exchange_that_a_move_interrupts_starts_over(
    sites: TwoSites, signers: tuple[Signer, Signer], node: Node
) -> None:
    """The first signer made its challenge, so the second one leaves the answer undecided."""
    _, second = signers
    reached, go_on = Event(), Event()

    def wait(command: bytes, send: Send) -> bytes:
        reached.set()
        go_on.wait()
        return send(command)

    with TpmRelay(node.tpm) as relay, ExitStack() as stack:
        stack.callback(go_on.set)
        node.settings = {"tcti": relay.tcti}
        joined = credential_id(node.call().certificate.encode())
        moves.adopt(sites.first, node)
        relay.on(TPM2_QUOTE, wait)
        renewal = node.start("renew", "--kubeconfig", str(node.kubeconfig()))
        assert reached.wait(60)
        sites.move(node.tenant.namespace, sites.first, sites.second)
        moves.report_status(sites.second, node)
        go_on.set()
        wait_until(lambda: len(csrs.answers(node)) == 2, what="the node answers")
        renewal.terminate()
        finished(renewal)
        age_exchange(node, EXCHANGE_TTL_SECONDS + 1)
        renewed = renew(node)
    assert claim(sites.second, node)["credentialIDs"] == [joined, renewed]
    assert len(logged(second, node, "issued")) == 1
    answers = [csr["metadata"]["name"] for csr in csrs.answers(node)]
    verdicts = [csrs.conditions(sites.workload.admin, name) for name in answers]
    assert verdicts.count({}) == 1


def age_exchange(node: Node, seconds: float) -> None:
    """Let the exchange on disk be older; its ages are on the clock of the boot."""
    path = node.state / "pending.json"
    stored = json.loads(path.read_bytes())
    [entry] = stored["entries"]
    entry["started_at"] -= seconds
    path.write_text(json.dumps(stored), encoding="utf-8")


@pytest.mark.usefixtures("signers")
def test_ban_of_a_key_that_the_target_has_already_arrives_before_the_move(
    sites: TwoSites, node: Node
) -> None:
    """A move leaves cluster-scoped objects in the source, and replaces none in the target."""
    first, second = sites.first, sites.second
    assert node.call().status == 0
    moves.adopt(first, node)
    sites.move(node.tenant.namespace, first, second)
    moves.adopt(second, node)
    moves.report_status(second, node)
    key = f"{csrs.ENDORSEMENT_KEYS}/{claim(second, node)['endorsementKey']}"
    second.management.admin.patch(key, {"spec": {"banned": BAN}})
    assert "banned" not in first.management.admin.get(key)["spec"]
    sites.move(node.tenant.namespace, second, first)
    moves.report_status(first, node)
    assert first.management.admin.get(key)["spec"]["banned"] == BAN
    call = node.call("renew", "--kubeconfig", str(node.kubeconfig()))
    assert call.status == 1
    assert "EndorsementKeyBanned" in call.complaint


@pytest.mark.usefixtures("signers")
def test_what_a_ban_ended_stays_ended_after_a_move(sites: TwoSites, node: Node) -> None:
    """The list is lost as well: the term and the end of the others come with the claims."""
    first, second = sites.first, sites.second
    assert node.call().status == 0
    moves.adopt(first, node)
    ended = client_of(node)
    key = f"{csrs.ENDORSEMENT_KEYS}/{claim(first, node)['endorsementKey']}"
    first.management.admin.patch(key, {"spec": {"banned": BAN}})
    wait_until(lambda: is_refused(ended, node.name), what="the ban ends it", seconds=120)
    lifted = {"banned": None, "banLifted": {"at": "2026-11-22T10:00:00Z"}, "term": 2}
    patch = ("--type=merge", "-p", json.dumps({"spec": lifted}))
    first.management.kubectl("patch", "endorsementkey", key.rpartition("/")[2], *patch)
    renew = ("renew", "--kubeconfig", str(node.kubeconfig()))
    wait_until(lambda: node.call(*renew).status == 0, what="it renews", seconds=120)
    sites.move(node.tenant.namespace, first, second)
    moves.adopt(second, node)
    moves.report_status(second, node)
    assert claim(second, node)["term"] == 2
    admin = sites.workload.admin
    path = ADMISSION_POLICIES.object_path(POLICY_NAMES[0])
    lost = admin.get(path)["metadata"]["uid"]
    admin.delete(path)

    def is_rebuilt() -> bool:
        policies = admin.list(ADMISSION_POLICIES.collection_path())
        names = {p["metadata"]["uid"]: p["metadata"]["name"] for p in policies}
        return POLICY_NAMES[0] in names.values() and lost not in names

    wait_until(is_rebuilt, what="the list is rebuilt", seconds=120)
    wait_until(lambda: is_refused(ended, node.name), what="it ends again", seconds=30)
    wait_until(lambda: node.call(*renew).status == 0, what="it renews again", seconds=120)
    assert not is_refused(client_of(node), node.name)


@pytest.mark.usefixtures("signers")
def test_opt_in_keeps_its_time_in_a_move(sites: TwoSites, node: Node) -> None:
    """Nodes that come later never delay the removal of bindings, also after a move."""
    label = f"{OPT_INS}-seen"

    assert node.call().status == 0
    moves.adopt(sites.first, node)
    holder = f"{node.tenant.namespace}/{node.tenant.name}"
    records = sites.first.management.admin.list(LEASES, labelSelector=OPT_INS)
    [name] = [r["metadata"]["name"] for r in records if r["spec"]["holderIdentity"] == holder]
    change = {"metadata": {"labels": {label: "1700000000"}}}
    sites.first.management.admin.patch(f"{LEASES}/{name}", change)
    sites.move(node.tenant.namespace, sites.first, sites.second)
    moved = sites.second.management.admin.get(f"{LEASES}/{name}")
    assert moved["metadata"]["labels"][label] == "1700000000"
