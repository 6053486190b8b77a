"""A reconciler with fakes and a scenario."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cache
from random import Random

from cryptography.hazmat.primitives.asymmetric import ec

from signer.controller.observability.metrics import VERDICTS, cluster_label
from signer.controller.queue.workqueue import RETRY, Result
from signer.controller.reconcile.authorities import ClusterAuthorities
from signer.controller.reconcile.dependencies import ClusterContext, Dependencies
from signer.controller.reconcile.limits import ChallengeRateLimiter, RequesterShares
from signer.controller.reconcile.reconciler import CsrReconciler
from signer.controller.reconcile.withheld_certificates import WithheldCertificates
from signer.controller.recording_writer import RecordingCsrWriter
from signer.errors import AuthorityUnavailable, TooManyChallenges
from signer.inventory.cluster_api.machine_status import MachineCondition
from signer.inventory.ended_certificates import EndedCertificatesClient
from signer.inventory.replica_records.challenge_keys import ChallengeKeyStore
from signer.issue.authority import CertificateAuthority
from signer.kinds.attested_node import AttestedNodeObject, Refusal
from signer.kinds.cluster import ClusterKey
from signer.kinds.csr import Csr
from signer.kinds.key_request import OfferedKey
from signer.kinds.machine import Machine
from signer.seams import ChallengeKeys
from tests.builders import certificates
from tests.builders.scenario import ABROAD, HOME, Scenario
from tests.fakes.claims import FakeClaimStore
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.csrs import FakeCsrs
from tests.fakes.policies import FixedPolicies


@cache
def authority() -> CertificateAuthority:
    """Make the cluster's certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = certificates.authority("kubernetes", key=key)
    return CertificateAuthority(certificate=made.certificate, private_key=key)


@dataclass(slots=True)
class Keys(ChallengeKeyStore):
    """Challenge keys: the cached ones, and those that the Secret holds."""

    known: ChallengeKeys
    live: ChallengeKeys
    reads: int = 0

    def cached(self) -> ChallengeKeys:
        return self.known

    def refresh(self) -> ChallengeKeys:
        self.reads += 1
        return self.live


@dataclass(slots=True)
class Authorities(ClusterAuthorities):
    """Authorities, which can be made unavailable."""

    away: bool = False
    calls: int = 0

    def authority(self, cluster: ClusterKey) -> CertificateAuthority:
        assert cluster in {HOME, ABROAD}
        self.calls += 1
        if self.away:
            raise AuthorityUnavailable("no key")
        return authority()


@dataclass(slots=True)
class Rate(ChallengeRateLimiter):
    """A number of challenges that are left."""

    left: int = 100

    def acquire(self, requester: Hashable) -> None:
        assert isinstance(requester, tuple)
        assert requester[0] in {HOME, ABROAD}
        if not self.left:
            raise TooManyChallenges("slow down")
        self.left -= 1


@dataclass(slots=True)
class ReconcilerFixture:
    """A reconciler, its fakes and a scenario."""

    scenario: Scenario = field(default_factory=Scenario)
    csrs: FakeCsrs = field(default_factory=FakeCsrs)
    claims: FakeClaimStore = field(init=False)
    keys: Keys = field(init=False)
    authorities: Authorities = field(default_factory=Authorities)
    rate: Rate = field(default_factory=Rate)
    machines: list[MachineCondition] = field(default_factory=list)
    offered_keys: list[tuple[str, OfferedKey]] = field(default_factory=list)
    """Unregistered keys, each with the name of its Machine."""
    refusals: list[tuple[AttestedNodeObject, Refusal]] = field(default_factory=list)
    """Refusals, each with the claim of its node."""
    authority_failures: list[ClusterKey] = field(default_factory=list)
    workload: FakeCluster = field(default_factory=FakeCluster)
    """Has the list of ended certificates."""
    withheld: WithheldCertificates = field(default_factory=WithheldCertificates)
    shares: RequesterShares = field(default_factory=RequesterShares)
    random: Callable[[int], bytes] = field(default_factory=lambda: Random(7).randbytes)

    def __post_init__(self) -> None:
        self.claims = FakeClaimStore(store=self.scenario.store)
        self.keys = Keys(known=self.scenario.challenge_keys, live=self.scenario.challenge_keys)

    @property
    def cluster(self) -> ClusterContext:
        return ClusterContext(
            key=self.scenario.cluster.key,
            inventory=self.scenario.inventory,
            csrs=RecordingCsrWriter(self.csrs, lambda: 0.0),
            ended=EndedCertificatesClient(FakeClient(self.workload)),
            shares=self.shares,
            withheld=self.withheld,
            on_authority_failure=lambda: self.authority_failures.append(HOME),
        )

    def dependencies(self) -> Dependencies:
        policy = self.scenario.policy
        return Dependencies(
            policies=FixedPolicies.for_all(policy, self.scenario.anchors),
            claims=self.claims,
            challenge_keys=self.keys,
            authorities=self.authorities,
            rate_limiter=self.rate,
            platforms=self.scenario.platforms,
            enqueue_condition=self.machines.append,
            enqueue_refusal=lambda node, refusal: self.refusals.append((node, refusal)),
            enqueue_key_request=self.enqueue_key_request,
            now=lambda: self.scenario.now,
            monotonic=lambda: 0.0,
            random=self.random,
        )

    def enqueue_key_request(
        self, cluster: ClusterKey, machine: Machine, name: str, describe: Callable[[], OfferedKey]
    ) -> None:
        key = describe()
        assert (cluster, name) == (self.scenario.cluster.key, key.sha256)
        self.offered_keys.append((machine.name, key))

    def reconcile(self, csr: Csr) -> Result:
        """Reconcile a CSR once, as the cache has it."""
        return CsrReconciler(self.dependencies()).reconcile(csr, self.cluster)

    def forget_unreleased(self, csr: Csr) -> None:
        """Do what a worker does when the watch has delivered that a CSR waits no longer."""
        CsrReconciler(self.dependencies()).forget_unreleased(csr.name, self.cluster)

    def file(self, csr: Csr) -> Csr:
        """File a CSR."""
        return self.csrs.put(csr)

    def result(self, csr: Csr) -> Csr:
        """Reconcile until the result is not a retry; return the CSR."""
        result = RETRY
        for _ in range(5):
            result = self.reconcile(self.csrs.stored[csr.name])
            if result != RETRY:
                break
        return self.csrs.stored[csr.name]

    @staticmethod
    def count_of(outcome: str, reason: str) -> float:
        """Return how many answers were counted with this outcome and reason of Q4."""
        labels = (cluster_label(HOME), "answer", outcome, reason, "Q4")
        return float(VERDICTS.labels(*labels)._value.get())

    def reason(self, csr: Csr) -> str:
        """Reconcile; return type and reason of the condition Denied or Failed."""
        conditions = self.result(csr).conditions
        (refusal,) = [c for kind, c in conditions.items() if kind != "Approved"]
        return f"{refusal.type} {refusal.reason}"
