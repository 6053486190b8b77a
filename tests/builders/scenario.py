# ruff: noqa: ANN401 - changes are fields of the returned value
"""A Cluster with one Machine and its node. Every check passes until a test changes one thing."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address, ip_network
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from common.challenge import MEMBERS
from common.evidence import Answer, ChallengeReference, Offer, Statement, encode_attestation_data
from common.formats.strict_json import format_time
from common.names import (
    BUILTIN_SERVING_SIGNER,
    CLIENT_SIGNER,
    CLIENT_USAGES,
    SERVING_SIGNER,
    SERVING_USAGES,
)
from common.public_keys import public_key_from_area, spki_sha256
from common.requests.binding import (
    ChallengeInputs,
    answer_extra_data,
    challenge_key_id,
    challenge_secret,
    sha256,
)
from common.requests.csr import PrivateKey, build_pkcs10, encode_request
from common.tpm.attest import Attest
from signer.host_names import canonical_name
from signer.kinds.attested_node import AttestedNodeObject, BootCounters
from signer.kinds.cluster import Cluster, ClusterKey
from signer.kinds.csr import Csr, credential_id
from signer.kinds.endorsement_key import EndorsementKeyObject, KeyHolder
from signer.kinds.machine import Address, Machine, RegisteredKey
from signer.policy.policy import Policy
from signer.seams import ChallengeKeys
from signer.verify.answer import VerifiedAnswer, verify_answer
from signer.verify.context import VerificationContext
from signer.verify.kubelet_serving import VerifiedServing, verify_kubelet_serving
from signer.verify.machines.claim_writes import Sign, WithheldCertificate
from signer.verify.offer import VerifiedOffer, verify_offer
from signer.verify.requests.parse import (
    ParsedAnswer,
    ParsedKubeletServing,
    ParsedOffer,
    parse_request,
)
from signer.verify.requests.recognize import CsrKind
from signer.verify.x509.trust_anchors import NO_ANCHORS, TrustAnchors
from tests.builders.attested_nodes import attested_node
from tests.builders.endorsement_keys import BAN, key_holder
from tests.builders.endorsement_keys import endorsement_key as stored_key
from tests.builders.software_tpm import TpmKey, attest, attestation_key, endorsement_key, pcr_values
from tests.fakes.claims import StoredClaims
from tests.fakes.inventory import FakeInventory
from tests.fakes.platforms import FakePlatforms

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
HOME = ClusterKey(namespace="tenants", name="blue")
ABROAD = ClusterKey(namespace="tenants", name="green")
NODE = "node-1.example"
PROVIDER_ID = "metal://rack-1/slot-1"
TOKEN = "abcdef"
OFFER_UID = "11111111-2222-4333-8444-555555555555"
ANSWER_UID = "66666666-7777-4888-8999-000000000000"
CHALLENGE_KEYS = ChallengeKeys(current=sha256(b"current"), previous=sha256(b"previous"))

CLUSTER = Cluster(
    key=HOME,
    uid="99999999-8888-4777-8666-555555555555",
    paused=False,
    client_signers=frozenset({CLIENT_SIGNER}),
    control_plane_hosts=frozenset(
        map(canonical_name, ("api.example", "192.0.2.1", "kubernetes", "10.96.0.1"))
    ),
    service_networks=(ip_network("10.96.0.0/12"), ip_network("fd00:10:96::/108")),
    service_domain="cluster.local",
    auto_approve_bindings=frozenset(),
)


@cache
def default_keys() -> tuple[TpmKey, TpmKey, ec.EllipticCurvePrivateKey]:
    """Make endorsement key, attestation key and kubelet key once for all tests."""
    return endorsement_key(), attestation_key(), ec.generate_private_key(ec.SECP256R1())


def key_name(key: TpmKey) -> str:
    """Name the EndorsementKey of an endorsement key."""
    return spki_sha256(public_key_from_area(key.public)).hex()


def machine(key: TpmKey | None = None, **changes: Any) -> Machine:
    """Return the Machine of the node; its endorsement key is registered if one is given."""
    records = () if key is None else (record_of(key),)
    result = Machine(
        name="machine-1",
        uid="machine-uid-1",
        provider_id=PROVIDER_ID,
        deleting=False,
        bootstrap_ready=True,
        addresses=(
            Address(type="Hostname", address=NODE),
            Address(type="InternalIP", address="192.0.2.11"),
        ),
        node_ref=None,
        created=NOW - timedelta(minutes=5),
        bootstrap_token_id=TOKEN,
        is_pool_member=False,
        labels={"pool": "workers"},
        registered_keys=records,
        registered_keys_error=None,
    )
    return replace(result, **changes)


def unreleased(not_after: datetime, name: str = "new") -> WithheldCertificate:
    """Return a certificate that waits for its claims. It is only a name, as claims need no more."""
    content = name.encode()
    return WithheldCertificate(
        pem=content, credential_id=credential_id(content), not_after=not_after
    )


def signed(not_after: datetime, name: str = "new") -> Sign:
    """Return a function that signs `unreleased` for any group."""
    return lambda _: unreleased(not_after, name)


def record_of(key: TpmKey) -> RegisteredKey:
    """Return the registration of an endorsement key."""
    return RegisteredKey(source="Machine annotation", spki_sha256=bytes.fromhex(key_name(key)))


@dataclass(slots=True)
class Scenario:
    """All input of a verdict. A test changes attributes before it requests the verdict."""

    kind: CsrKind = CsrKind.CLIENT
    policy: Policy = field(default_factory=lambda: Policy(name="test"))
    anchors: TrustAnchors = NO_ANCHORS
    challenge_keys: ChallengeKeys = CHALLENGE_KEYS
    now: datetime = NOW
    cluster: Cluster = CLUSTER
    node_name: str = NODE
    provider_id: str = PROVIDER_ID
    username: str = f"system:bootstrap:{TOKEN}"
    groups: frozenset[str] = frozenset({"system:bootstrappers", "system:authenticated"})
    credential_id: str = ""
    expiration_seconds: int | None = None
    certificates: tuple[bytes, ...] = ()
    ak_certificate: bytes | None = None
    ek_creation: Statement | None = None
    event_log: bytes | None = None
    pcr_signatures: bytes | None = None
    members: tuple[str, ...] = MEMBERS
    sans: Iterable[str] = ()
    ek: TpmKey = field(default_factory=lambda: default_keys()[0])
    ak: TpmKey = field(default_factory=lambda: default_keys()[1])
    kubelet_key: PrivateKey = field(default_factory=lambda: default_keys()[2])
    store: StoredClaims = field(default_factory=StoredClaims)
    platforms: FakePlatforms = field(default_factory=FakePlatforms)
    inventory: FakeInventory = field(init=False)
    request_der: bytes = field(init=False, default=b"")
    pcrs: Mapping[str, Mapping[int, bytes]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Fill the caches: one Machine, with the endorsement key of the node registered."""
        self.inventory = FakeInventory(of=self.cluster, store=self.store)
        self.store.machines[self.cluster.key] = [machine(self.ek)]
        self.pcrs = pcr_values(self.policy.pcrs.selection)

    @property
    def machine(self) -> Machine:
        """The first Machine."""
        return self.store.machines[self.cluster.key][0]

    def change_machine(self, **changes: Any) -> None:
        """Change the first Machine."""
        self.store.machines[self.cluster.key][0] = replace(self.machine, **changes)

    def change_cluster(self, **changes: Any) -> None:
        """Change the Cluster."""
        self.cluster = replace(self.cluster, **changes)
        self.inventory.of = self.cluster

    def change_policy(self, part: str, /, **changes: Any) -> None:
        """Change a part of the policy."""
        changed = replace(getattr(self.policy, part), **changes)
        self.policy = replace(self.policy, **{part: changed})

    def as_node(self, name: str | None = None) -> None:
        """Make the requester a node, itself by default."""
        self.username = f"system:node:{self.node_name if name is None else name}"
        self.groups = frozenset({"system:nodes", "system:authenticated"})

    def for_serving(self, *names: str) -> None:
        """Request a serving certificate."""
        self.kind, self.sans = CsrKind.SERVING, names
        self.as_node()

    def csr(self, request: bytes, **changes: Any) -> Csr:
        """Return a CSR as the API server returns it."""
        signer_names = {
            CsrKind.CLIENT: CLIENT_SIGNER,
            CsrKind.SERVING: SERVING_SIGNER,
            CsrKind.BUILTIN_SERVING: BUILTIN_SERVING_SIGNER,
        }
        result = Csr(
            name="kubelet-tpm-a",
            uid=OFFER_UID,
            resource_version="1",
            created=self.now - timedelta(seconds=2),
            signer_name=signer_names[self.kind],
            username=self.username,
            groups=self.groups,
            credential_id=self.credential_id,
            usages=tuple(sorted(CLIENT_USAGES if self.kind is CsrKind.CLIENT else SERVING_USAGES)),
            expiration_seconds=self.expiration_seconds,
            request=request,
            annotations={},
            annotations_size=2,
            conditions={},
            certificate=None,
        )
        if "annotations" in changes:
            result = replace(result, annotations_size=len(json.dumps(changes["annotations"])))
        return replace(result, **changes)

    def pkcs10(self) -> bytes:
        """Return the PKCS#10 request; offer and answer have the same one."""
        if not self.request_der:
            self.request_der = build_pkcs10(
                self.kubelet_key,
                node_name=self.node_name,
                provider_id=self.provider_id,
                dns_names=[n for n in self.sans if not n[0].isdigit()],
                ip_addresses=[ip_address(n) for n in self.sans if n[0].isdigit()],
            )
        return self.request_der

    def offer(self) -> Offer:
        """Offer the TPM's keys."""
        return Offer(
            ek_public=self.ek.tpm2b,
            ek_certificates=self.certificates,
            ak_public=self.ak.tpm2b,
            ak_certificate=self.ak_certificate,
            ek_creation=self.ek_creation,
        )

    def offer_csr(self, offer: Offer | None = None, **changes: Any) -> Csr:
        """Make CSR A."""
        data = encode_attestation_data(self.offer() if offer is None else offer)
        return self.csr(encode_request(self.pkcs10(), data), **changes)

    def extra_data(self, csr_name: str, *, quoted: bytes = b"", **changes: Any) -> bytes:
        """Derive the extraData of the quote; `changes` replace inputs of the challenge.

        `quoted` is the PKCS#10 request that the node quotes for, by default the offered one.
        """
        inputs = ChallengeInputs(
            cluster_uid=self.cluster.uid,
            signer_name=self.kind.value,
            username=self.username,
            offer_uid=OFFER_UID,
            issued_at=format_time(self.now),
            pkcs10_sha256=sha256(self.pkcs10()),
            ek_spki_sha256=bytes.fromhex(key_name(self.ek)),
            ak_name=self.ak.public.name(),
        )
        return answer_extra_data(
            challenge_secret(self.challenge_keys.current, inputs._replace(**changes)),
            name=csr_name,
            pkcs10_sha256=sha256(quoted or self.pkcs10()),
            expiration_seconds=self.expiration_seconds,
            usages=CLIENT_USAGES if self.kind is CsrKind.CLIENT else SERVING_USAGES,
            members=self.members,
        )

    def attest(self, **changes: Any) -> Attest:
        """Return the attestation of the TPM for the answer with the name `kubelet-tpm-b`."""
        scheme = self.ak.public.parameters.scheme
        assert scheme is not None
        result = attest(self.pcrs, self.extra_data("kubelet-tpm-b"), scheme.hash)
        return replace(result, **changes)

    def answer(self, statement: Attest | bytes | None = None, **changes: Any) -> Answer:
        """Return an answer with an attestation, signed by the TPM."""
        statement = self.attest() if statement is None else statement
        quote = statement.encode() if isinstance(statement, Attest) else statement
        result = Answer(
            ek_public=self.ek.tpm2b,
            ek_certificates=self.certificates,
            ak_public=self.ak.tpm2b,
            ak_certificate=self.ak_certificate,
            ek_creation=self.ek_creation,
            challenge=ChallengeReference(
                uid=OFFER_UID,
                issued_at=format_time(self.now),
                key=challenge_key_id(self.challenge_keys.current),
                members=self.members,
            ),
            quote=quote,
            signature=self.ak.sign(quote),
            pcrs=self.pcrs,
            event_log=self.event_log,
            pcr_signatures=self.pcr_signatures,
        )
        return replace(result, **changes)

    def answer_csr(self, answer: Answer | None = None, **changes: Any) -> Csr:
        """Make CSR B."""
        data = encode_attestation_data(self.answer() if answer is None else answer)
        result = self.csr(encode_request(self.pkcs10(), data), name="kubelet-tpm-b", uid=ANSWER_UID)
        return replace(result, **changes)

    def context(self) -> VerificationContext:
        """Return the context in which requests are verified."""
        return VerificationContext(
            inventory=self.inventory,
            policy=self.policy,
            anchors=self.anchors,
            now=self.now,
            platforms=self.platforms,
        )

    def verify_offer(self, csr: Csr | None = None) -> VerifiedOffer:
        """Parse and verify CSR A."""
        csr = self.offer_csr() if csr is None else csr
        parsed = parse_request(csr, self.kind)
        assert isinstance(parsed, ParsedOffer)
        return verify_offer(csr, self.kind, parsed, self.context())

    def verify_answer(self, csr: Csr | None = None) -> VerifiedAnswer:
        """Parse and verify CSR B."""
        csr = self.answer_csr() if csr is None else csr
        parsed = parse_request(csr, self.kind)
        assert isinstance(parsed, ParsedAnswer)
        return verify_answer(csr, self.kind, parsed, self.context(), self.challenge_keys)

    def verify_builtin(self, csr: Csr) -> VerifiedServing:
        """Parse and verify a request to the built-in serving signer."""
        parsed = parse_request(csr, CsrKind.BUILTIN_SERVING)
        assert isinstance(parsed, ParsedKubeletServing)
        return verify_kubelet_serving(csr, parsed, self.context())

    def holder(self, **changes: Any) -> KeyHolder:
        """Return the holder of the key: the node."""
        names = {"node_name": self.node_name, "provider_id": self.provider_id}
        return key_holder(changes.pop("cluster", self.cluster.key), **(names | changes))

    def put_claim(
        self,
        key: TpmKey | None = None,
        *,
        banned: bool = False,
        machine: tuple[str, str] = ("", ""),
        credential_ids: tuple[str, ...] = (),
        **changes: Any,
    ) -> tuple[EndorsementKeyObject, AttestedNodeObject]:
        """Store a complete claim of the node; `changes` replace fields of the holder.

        `machine` is the name and UID of its Machine; the default names none. `credential_ids` are
        those of the client certificates that were issued to the node.
        """
        holder = self.holder(**changes)
        name = key_name(self.ek if key is None else key)
        held = self.put_key(name, held_by=holder, banned=BAN if banned else None)
        node = self.put_node(
            name,
            holder,
            machine_name=machine[0],
            machine_uid=machine[1],
            credential_ids=credential_ids,
        )
        return held, node

    @property
    def claim(self) -> AttestedNodeObject:
        """The AttestedNode of the node."""
        node = self.store.find_node(self.cluster.key, NODE)
        assert node is not None
        return node

    def change_claim(self, **changes: Any) -> None:
        """Change the AttestedNode of the node."""
        self.store.put_node(self.claim.replace(**changes))

    def change_key(self, **changes: Any) -> None:
        """Change the only EndorsementKey."""
        [key] = self.store.keys.values()
        self.store.put_key(key.replace(**changes))

    def put_key(self, name: str, **changes: Any) -> EndorsementKeyObject:
        """Store an EndorsementKey."""
        return self.store.put_key(stored_key(name, **changes))

    def put_node(self, key: str, holder: KeyHolder, **changes: Any) -> AttestedNodeObject:
        """Store an AttestedNode."""
        values: dict[str, Any] = {
            "resource_version": "",
            "provider_id": holder.provider_id,
            "machine_name": "",
            "machine_uid": "",
            "not_after": self.now + timedelta(days=1),
            "last_attested": self.now - timedelta(days=6),
            "boot": BootCounters(
                reset_count=1, restart_count=1, firmware_version="0x0000000000000001"
            ),
        }
        node = attested_node(holder.cluster, holder.node_name, key=key, **(values | changes))
        return self.store.put_node(node)
