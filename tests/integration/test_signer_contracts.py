"""The signer's interfaces to API servers: each contract over the fake and over the real one."""

import base64
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from common.errors import ApiServerUnavailable
from common.formats.pem import encode_block
from common.names import (
    CHALLENGE_ANNOTATION,
    CLIENT_SIGNER,
    PEM_REQUEST,
    PENDING_REASON_ANNOTATION,
)
from common.public_keys import canonical_spki, spki_sha256
from common.requests.csr import build_pkcs10
from signer.errors import AnnotationsFull, ClaimConflict, CsrChanged
from signer.inventory.custom_resources.claim_store import KubeClaimStore
from signer.kinds.attested_node import AttestedNodeObject, BootCounters
from signer.kinds.cluster import ClusterKey
from signer.kinds.csr import Csr, credential_id
from signer.kinds.endorsement_key import EndorsementKeyObject, KeyHolder, TrustBasis, is_same_holder
from signer.kinds.machine import Machine, MachineState
from signer.kube.csrs import CsrClient
from signer.kube.secrets import SecretClient
from signer.kube.transport.client import ApiClient
from signer.kube.transport.kubeconfig import parse_kubeconfig
from tests.builders.attested_nodes import attested_node
from tests.builders.scenario import machine
from tests.fakes.claims import FakeClaimStore, StoredClaims
from tests.fakes.csrs import FakeCsrs
from tests.harness import objects
from tests.harness.client import ApiError
from tests.harness.fleet import Fleet
from tests.harness.management import NAMESPACE
from tests.harness.signer import Signer
from tests.integration import csrs

# A signer that runs at the same time would delete a claim that expired long ago.
NOW = datetime.now(UTC).replace(microsecond=0)
HOME = ClusterKey(namespace="team-a", name="workload")


@pytest.fixture
def management(fleet: Fleet) -> Iterator[ApiClient]:
    connection = parse_kubeconfig(fleet.management.signer_kubeconfig().encode())
    api = ApiClient("management", connection, user_agent="test")
    yield api
    api.close()


# Claims


@dataclass(slots=True)
class FakeClaimWorld:
    """Claims in memory."""

    store: StoredClaims = field(default_factory=StoredClaims)
    cluster: ClusterKey = HOME

    @property
    def claims(self) -> FakeClaimStore:
        return FakeClaimStore(store=self.store)

    def machine(self, provider_id: str, cluster: ClusterKey | None = None) -> str:
        made: Machine = machine(provider_id=provider_id)
        self.store.machines.setdefault(cluster or self.cluster, []).append(made)
        return made.name

    def delete_machine(self, provider_id: str) -> None:
        self.store.machines[self.cluster] = [
            replace(m, deleting=True) if m.provider_id == provider_id else m
            for m in self.store.machines[self.cluster]
        ]

    def other_cluster(self) -> ClusterKey:
        return replace(self.cluster, name="other")

    def delete_cluster(self, cluster: ClusterKey) -> None:
        self.store.deleted_clusters.add(cluster)

    def pause(self, cluster: ClusterKey) -> None:
        self.store.paused_clusters.add(cluster)


@dataclass(slots=True)
class RealClaimWorld:
    """Claims on a management cluster."""

    fleet: Fleet
    claims: KubeClaimStore
    names: dict[str, str] = field(default_factory=dict)
    clusters: list[ClusterKey] = field(default_factory=list)

    @property
    def cluster(self) -> ClusterKey:
        return ClusterKey(namespace=self.fleet.first.namespace, name=self.fleet.first.name)

    def machine(self, provider_id: str, cluster: ClusterKey | None = None) -> str:
        name = f"contract-{secrets.token_hex(4)}"
        self.names[provider_id] = name
        owner, wanted = cluster or self.cluster, objects.Machine(name, provider_id=provider_id)
        self.fleet.management.create_machine(owner.namespace, owner.name, wanted)
        # A finalizer, like the one of Cluster API, keeps the object while it is being deleted.
        path = self._path("machines", name)
        self.fleet.management.admin.patch(path, {"metadata": {"finalizers": ["a/b"]}})
        return name

    def delete_machine(self, provider_id: str) -> None:
        self.fleet.management.admin.delete(self._path("machines", self.names[provider_id]))

    def other_cluster(self) -> ClusterKey:
        made = replace(self.cluster, name=f"contract-{secrets.token_hex(4)}")
        self.clusters.append(made)
        endpoint = self.fleet.first.workload.url
        self.fleet.management.create_cluster(made.namespace, made.name, endpoint=endpoint)
        return made

    def delete_cluster(self, cluster: ClusterKey) -> None:
        self.fleet.management.admin.delete(self._path("clusters", cluster.name))

    def pause(self, cluster: ClusterKey) -> None:
        self.fleet.management.admin.patch(
            self._path("clusters", cluster.name), {"spec": {"paused": True}}
        )

    def close(self) -> None:
        """Remove the finalizers of every Machine, and the Clusters."""
        for cluster in self.clusters:
            with suppress(ApiError):  # the test has deleted it
                self.delete_cluster(cluster)
        for name in self.names.values():
            path = self._path("machines", name)
            self.fleet.management.admin.patch(path, {"metadata": {"finalizers": []}})

    def _path(self, plural: str, name: str) -> str:
        namespace = self.fleet.first.namespace
        return f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{namespace}/{plural}/{name}"


ClaimWorld = FakeClaimWorld | RealClaimWorld


@pytest.fixture(params=["fake", "real"])
def world(
    request: pytest.FixtureRequest, fleet: Fleet, management: ApiClient
) -> Iterator[ClaimWorld]:
    if request.param == "fake":
        yield FakeClaimWorld()
        return
    real = RealClaimWorld(fleet, KubeClaimStore(management))
    yield real
    real.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """A node with its own key."""

    key: str
    pem: str
    holder: KeyHolder
    node: AttestedNodeObject


def claimant(world: ClaimWorld) -> Claimant:
    """Make a node that the signer does not know."""
    public = generate_private_key(SECP256R1()).public_key()
    key, name = spki_sha256(public).hex(), f"node-{secrets.token_hex(4)}"
    holder = KeyHolder.of(
        world.cluster,
        node_name=name,
        provider_id=f"test://{name}",
        basis=TrustBasis.REGISTERED,
    )
    node = attested_node(
        world.cluster,
        name,
        resource_version="",
        provider_id=holder.provider_id,
        key=key,
        credential_ids=(credential_id(b"first"), credential_id(b"second")),
        last_attested=NOW,
        boot=BootCounters(reset_count=2**32 - 1, restart_count=0, firmware_version="0x" + 16 * "f"),
    )
    pem = encode_block("PUBLIC KEY", canonical_spki(public)).decode()
    return Claimant(key=key, pem=pem, holder=holder, node=node)


def assert_held(key: EndorsementKeyObject, by: Claimant) -> None:
    """Assert that a node holds a key on its basis."""
    assert key.held_by is not None
    assert is_same_holder(key.held_by, by.holder)
    assert key.held_by.basis is by.holder.basis


def test_unclaimed_key_and_name_are_absent(world: ClaimWorld) -> None:
    made = claimant(world)
    assert world.claims.endorsement_key(made.key) is None
    assert world.claims.attested_node(world.cluster, made.node.node_name) is None


def test_a_key_is_created_once(world: ClaimWorld) -> None:
    made = claimant(world)
    created = world.claims.create_endorsement_key(made.key, made.pem, made.holder, NOW)
    assert (created.name, created.banned) == (made.key, None)
    assert_held(created, made)
    assert world.claims.endorsement_key(made.key) == created
    with pytest.raises(ClaimConflict):
        world.claims.create_endorsement_key(made.key, made.pem, made.holder, NOW)


def test_a_key_is_held_under_the_version_that_was_read(world: ClaimWorld) -> None:
    made, other = claimant(world), claimant(world)
    created = world.claims.create_endorsement_key(made.key, made.pem, made.holder, NOW)
    held = world.claims.set_key_holder(created, other.holder, NOW)
    assert_held(held, other)
    assert world.claims.endorsement_key(made.key) == held
    with pytest.raises(ClaimConflict):
        world.claims.set_key_holder(created, made.holder, NOW)


def test_unchanged_write_still_makes_earlier_readers_conflict(world: ClaimWorld) -> None:
    """K3 needs this: without a new resourceVersion, another replica could take over the key."""
    made = claimant(world)
    created = world.claims.create_endorsement_key(made.key, made.pem, made.holder, NOW)
    again = world.claims.set_key_holder(created, made.holder, NOW)
    once_more = world.claims.set_key_holder(again, made.holder, NOW)
    assert_held(once_more, made)
    for before in (created, again):
        with pytest.raises(ClaimConflict):
            world.claims.set_key_holder(before, made.holder, NOW)


def test_confirmed_name_makes_earlier_readers_conflict(world: ClaimWorld) -> None:
    """K2 too: a stale claim whose name was confirmed meanwhile is not deleted or taken over."""
    made = claimant(world)
    created = world.claims.create_attested_node(made.node)
    again = world.claims.replace_attested_node(created, made.node)
    world.claims.replace_attested_node(again, made.node)
    for before in (created, again):
        with pytest.raises(ClaimConflict):
            world.claims.replace_attested_node(before, made.node)


def test_a_key_that_was_deleted_cannot_be_held(world: ClaimWorld) -> None:
    made = claimant(world)
    created = world.claims.create_endorsement_key(made.key, made.pem, made.holder, NOW)
    gone = created.replace(name=claimant(world).key)
    with pytest.raises(ClaimConflict):
        world.claims.set_key_holder(gone, made.holder, NOW)


def test_a_name_is_created_once_and_replaced_as_a_whole(world: ClaimWorld) -> None:
    made = claimant(world)
    created = world.claims.create_attested_node(made.node)
    assert created == made.node.replace(resource_version=created.resource_version)
    with pytest.raises(ClaimConflict):
        world.claims.create_attested_node(made.node)
    wanted = made.node.replace(
        machine_name="", boot=None, endorsement_key="ab" * 32, provider_id="test://new"
    )
    replaced = world.claims.replace_attested_node(created, wanted)
    assert replaced == wanted.replace(resource_version=replaced.resource_version)
    assert world.claims.attested_node(world.cluster, made.node.node_name) == replaced
    with pytest.raises(ClaimConflict):
        world.claims.replace_attested_node(created, wanted)


def test_machine_that_exists_is_live(world: ClaimWorld) -> None:
    made = claimant(world)
    provider_id = made.holder.provider_id
    state = world.claims.machine_state
    assert state(world.cluster, provider_id, "") is MachineState.ABSENT
    name = world.machine(provider_id)
    assert state(world.cluster, provider_id, "") is MachineState.PRESENT
    assert state(world.cluster, provider_id, name) is MachineState.PRESENT
    assert state(world.cluster, provider_id, "another") is MachineState.ABSENT
    elsewhere = replace(world.cluster, name="elsewhere")
    assert state(elsewhere, provider_id, "") is MachineState.ABSENT
    world.delete_machine(provider_id)
    assert state(world.cluster, provider_id, name) is MachineState.DELETING


def test_machines_of_a_deleted_cluster_are_not_live(world: ClaimWorld) -> None:
    """The Machines remain if an operator removed the Cluster's finalizers."""
    provider_id = claimant(world).holder.provider_id
    other = world.other_cluster()
    world.machine(provider_id, other)
    assert world.claims.machine_state(other, provider_id, "") is MachineState.PRESENT
    world.delete_cluster(other)
    assert world.claims.machine_state(other, provider_id, "") is MachineState.ABSENT


def test_machine_that_a_paused_cluster_lacks_may_come(world: ClaimWorld) -> None:
    """`clusterctl move` makes the Machines after the claims."""
    provider_id = claimant(world).holder.provider_id
    other = world.other_cluster()
    world.pause(other)
    assert world.claims.machine_state(other, provider_id, "") is MachineState.DELETING
    world.machine(provider_id, other)
    assert world.claims.machine_state(other, provider_id, "") is MachineState.PRESENT


def test_what_an_operator_wrote_survives_the_signer(fleet: Fleet, management: ApiClient) -> None:
    world = RealClaimWorld(fleet, KubeClaimStore(management))
    made = claimant(world)
    registered = {
        "clusterNamespace": world.cluster.namespace,
        "clusterName": world.cluster.name,
        "nodeName": made.node.node_name,
    }
    body = {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "EndorsementKey",
        "metadata": {"name": made.key, "labels": {"rack": "7"}},
        "spec": {"publicKey": made.pem, "registeredFor": [registered]},
    }
    path = "/apis/attestation.cluster.x-k8s.io/v1alpha1/endorsementkeys"
    fleet.management.admin.create(path, body)
    read = world.claims.endorsement_key(made.key)
    assert read is not None
    held = world.claims.set_key_holder(read, made.holder, NOW)
    assert [r.node_name for r in held.registered_for] == [made.node.node_name]
    stored = fleet.management.admin.get(f"{path}/{made.key}")
    assert stored["metadata"]["labels"]["rack"] == "7"
    assert stored["spec"]["publicKey"] == made.pem


def test_an_endorsement_key_that_was_claimed_meanwhile_is_not_deleted(
    fleet: Fleet, management: ApiClient
) -> None:
    """Housekeeping deletes unclaimed keys.

    The claim must win, and deleting needs the permission.
    """
    world = RealClaimWorld(fleet, KubeClaimStore(management))
    made = claimant(world)
    created = world.claims.create_endorsement_key(made.key, made.pem, made.holder, NOW)
    assert created.last_claimed is not None
    assert created.last_claimed >= NOW.replace(microsecond=0)
    claimed = world.claims.set_key_holder(created, made.holder, NOW)
    world.claims.delete_endorsement_key(created)
    assert world.claims.endorsement_key(made.key) == claimed
    world.claims.delete_endorsement_key(claimed.replace(uid="another"))
    assert world.claims.endorsement_key(made.key) == claimed
    world.claims.delete_endorsement_key(claimed)
    assert world.claims.endorsement_key(made.key) is None


# CSRs


@dataclass(slots=True)
class FakeCsrWorld:
    """CSRs in memory."""

    csrs: FakeCsrs = field(default_factory=FakeCsrs)

    def file(self, annotations: Mapping[str, str]) -> Csr:
        made = Csr(
            name=csrs.new_name(),
            uid=secrets.token_hex(8),
            resource_version="",
            created=NOW,
            signer_name=CLIENT_SIGNER,
            username="system:bootstrap:abcdef",
            groups=frozenset(),
            credential_id="",
            usages=("client auth", "digital signature"),
            expiration_seconds=None,
            request=b"",
            annotations=annotations,
            annotations_size=len(json.dumps(dict(annotations))),
            conditions={},
            certificate=None,
        )
        return self.csrs.put(made)


@dataclass(slots=True)
class RealCsrWorld:
    """CSRs on a workload cluster."""

    fleet: Fleet
    csrs: CsrClient

    def file(self, annotations: Mapping[str, str]) -> Csr:
        der = build_pkcs10(generate_private_key(SECP256R1()), node_name="n", provider_id="a://b")
        name = csrs.new_name()
        body = {
            "metadata": {"name": name, "annotations": dict(annotations)},
            "spec": {
                "signerName": CLIENT_SIGNER,
                "usages": ["client auth", "digital signature"],
                "request": base64.b64encode(encode_block(PEM_REQUEST, der)).decode(),
            },
        }
        self.fleet.second.workload.admin.create(csrs.CSRS, body)
        found = self.csrs.read(name)
        assert found is not None
        return found


CsrWorld = FakeCsrWorld | RealCsrWorld


@pytest.fixture(scope="module")
def no_other_signer(signer: Signer) -> Iterator[None]:
    """Stop the signer of the other tests: it would judge the requests of these tests."""
    signer.stop()
    yield
    signer.start()


@pytest.fixture(params=["fake", "real"])
def filing(
    request: pytest.FixtureRequest, fleet: Fleet, no_other_signer: None
) -> Iterator[CsrWorld]:
    """Return CSRs on which no other controller decides."""
    assert no_other_signer is None
    if request.param == "fake":
        yield FakeCsrWorld()
        return
    text = fleet.second.workload.signer_kubeconfig()
    api = ApiClient("workload", parse_kubeconfig(text.encode()), user_agent="test")
    yield RealCsrWorld(fleet, CsrClient(api))
    api.close()


def certificate(fleet: Fleet) -> bytes:
    """Return any certificate. The API server does not check its owner."""
    return fleet.second.workload.authority.client("system:node:n", "system:nodes").certificate


def test_annotations_are_added(filing: CsrWorld) -> None:
    csr = filing.file({CHALLENGE_ANNOTATION: "1"})
    written = filing.csrs.annotate(csr, {PENDING_REASON_ANNOTATION: "2"})
    assert written.annotations == {CHALLENGE_ANNOTATION: "1", PENDING_REASON_ANNOTATION: "2"}
    assert filing.csrs.read(csr.name) == written
    assert written.resource_version != csr.resource_version


@pytest.mark.parametrize("subresource", ["nodeclient", "selfnodeclient", "selfnodeserver"])
def test_administrator_may_request_every_kind_of_certificate(
    filing: CsrWorld, subresource: str
) -> None:
    assert filing.csrs.may_create(filing.file({}), subresource)


def test_annotations_have_a_limit(filing: CsrWorld) -> None:
    csr = filing.file({"a": "x" * (256 * 1024 - 10)})
    with pytest.raises(AnnotationsFull):
        filing.csrs.annotate(csr, {"attestation.cluster.x-k8s.io/challenge": "{}"})
    assert filing.csrs.deny(csr, "AnnotationsFull", "no room").conditions.keys() == {"Denied"}


def test_approved_and_then_certified(filing: CsrWorld, fleet: Fleet) -> None:
    csr = filing.csrs.approve(filing.file({}), "Attested", "proved")
    assert (csr.conditions["Approved"].reason, csr.certificate) == ("Attested", None)
    pem = certificate(fleet)
    csr = filing.csrs.set_certificate(csr, pem)
    assert csr.certificate == pem
    assert csr.conditions.keys() == {"Approved"}
    with pytest.raises(CsrChanged):
        filing.csrs.set_certificate(csr, certificate(fleet))


def test_approved_and_then_failed(filing: CsrWorld) -> None:
    csr = filing.csrs.approve(filing.file({}), "ByHand", "trust me")
    csr = filing.csrs.fail(csr, "QuoteMalformed", "no")
    assert {kind: c.reason for kind, c in csr.conditions.items()} == {
        "Approved": "ByHand",
        "Failed": "QuoteMalformed",
    }


def test_conditions_of_others_are_kept(filing: CsrWorld) -> None:
    """A custom condition may be an operator's note; an approval must keep it."""
    csr = filing.csrs.fail(filing.file({}), "Early", "on its own")
    csr = filing.csrs.approve(csr, "ByHand", "trust me")
    assert csr.conditions.keys() == {"Approved", "Failed"}


def test_approved_is_never_denied(filing: CsrWorld) -> None:
    csr = filing.csrs.approve(filing.file({}), "ByHand", "trust me")
    with pytest.raises(ApiServerUnavailable):
        filing.csrs.deny(csr, "QuoteMalformed", "no")


Write = Callable[[FakeCsrs | CsrClient, Csr], object]


@pytest.mark.parametrize(
    "write",
    [
        lambda to, csr: to.annotate(csr, {"c": "3"}),
        lambda to, csr: to.approve(csr, "R", "m"),
        lambda to, csr: to.deny(csr, "R", "m"),
        lambda to, csr: to.fail(csr, "R", "m"),
        lambda to, csr: to.delete(csr),
    ],
    ids=["annotate", "approve", "deny", "fail", "delete"],
)
def test_nothing_is_written_to_a_changed_csr(filing: CsrWorld, write: Write) -> None:
    csr = filing.file({})
    changed = filing.csrs.annotate(csr, {"b": "2"})
    with pytest.raises(CsrChanged):
        write(filing.csrs, csr)
    assert filing.csrs.read(csr.name) == changed


def test_no_certificate_is_written_to_a_changed_csr(filing: CsrWorld, fleet: Fleet) -> None:
    csr = filing.file({})
    filing.csrs.annotate(csr, {"b": "2"})
    with pytest.raises(CsrChanged):
        filing.csrs.set_certificate(csr, certificate(fleet))


def test_nothing_is_written_to_a_deleted_csr(filing: CsrWorld) -> None:
    csr = replace(filing.file({}), name=csrs.new_name())
    assert filing.csrs.read(csr.name) is None
    with pytest.raises(CsrChanged):
        filing.csrs.annotate(csr, {"b": "2"})
    with pytest.raises(CsrChanged):
        filing.csrs.deny(csr, "R", "m")


def test_one_event_is_written_for_each_reason(filing: CsrWorld) -> None:
    csr = filing.file({})
    for reason in ("MachineNotFound", "MachineNotFound", "NodeNameReserved"):
        filing.csrs.record_event(csr, reason, "waiting", NOW)
    if isinstance(filing, RealCsrWorld):
        path = "/api/v1/namespaces/default/events"
        selector = f"involvedObject.name={csr.name}"
        events = filing.fleet.second.workload.admin.list(path, fieldSelector=selector)
        assert sorted(e["reason"] for e in events) == ["MachineNotFound", "NodeNameReserved"]
        assert {e["involvedObject"]["uid"] for e in events} == {csr.uid}


# Secrets


def test_a_secret_is_created_once_and_replaced_as_a_whole(management: ApiClient) -> None:
    store = SecretClient(management)
    name = f"contract-{secrets.token_hex(4)}"
    assert store.read(NAMESPACE, name) is None
    created = store.create(NAMESPACE, name, {"a": b"\x00\xff", "b": b"2"})
    assert created is not None
    assert store.read(NAMESPACE, name) == created
    assert store.create(NAMESPACE, name, {"a": b"other"}) is None
    replaced = store.replace(created, {"c": b"3"})
    assert replaced is not None
    assert dict(replaced.data) == {"c": b"3"}
    assert store.replace(created, {"d": b"4"}) is None
    assert store.read(NAMESPACE, name) == replaced
