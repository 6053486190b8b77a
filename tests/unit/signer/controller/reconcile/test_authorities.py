"""Certificate authorities of clusters: how often they are parsed, and which Secrets count."""

from dataclasses import dataclass, field

import pytest

from common.errors import ApiServerUnavailable
from signer.controller.reconcile import authorities as module
from signer.controller.reconcile.authorities import ClusterAuthorities
from signer.errors import AuthorityShared, AuthorityUnavailable, PolicyMissing
from signer.inventory.replica_records.authority_leases import AuthorityLeases
from signer.kinds.cluster import ClusterKey
from signer.kube.leases import LeaseClient
from signer.kube.secrets import SecretClient
from signer.kube.transport.client import Request
from signer.policy.policy import CertificateRules, Policy
from tests.builders.kube_objects import secret
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.cluster_objects import Object
from tests.harness import pki

BLUE = ClusterKey(namespace="team-a", name="blue")
GREEN = ClusterKey(namespace="team-b", name="green")
BLUE_CA = "/api/v1/namespaces/team-a/secrets/blue-ca"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/own/leases"
STRICT = Policy(name="strict")
MAX_AGE = module._MAX_AGE
SHARING = Policy(name="sharing", certificate=CertificateRules(allow_shared_authority=True))


def pair(key: pki.PrivateKey | None = None) -> dict[str, bytes]:
    created = pki.Authority.make("workload", key or pki.ec_key()).pair
    return {"tls.crt": created.certificate, "tls.key": created.key}


@dataclass(slots=True)
class Clusters:
    """Two Clusters with their Secrets and policies."""

    cluster: FakeCluster = field(default_factory=FakeCluster)
    policies: dict[ClusterKey, Policy] = field(
        default_factory=lambda: {BLUE: STRICT, GREEN: STRICT}
    )
    authorities: ClusterAuthorities = field(init=False)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.authorities = self.replica()

    def replica(self) -> ClusterAuthorities:
        """Return the authorities as another replica of the signer keeps them."""
        return ClusterAuthorities(
            SecretClient(FakeClient(self.cluster)),
            AuthorityLeases(LeaseClient(FakeClient(self.cluster), "own")),
            self.policy_of,
            monotonic=lambda: self.now,
        )

    def expire(self) -> None:
        """Let everything that was read be too old."""
        self.now += MAX_AGE

    def policy_of(self, key: ClusterKey) -> Policy:
        if key not in self.policies:
            raise PolicyMissing("none")
        return self.policies[key]

    def put(
        self,
        cluster: ClusterKey,
        data: dict[str, bytes],
        *,
        kind: str = "cluster.x-k8s.io/secret",
        label: str = "",
    ) -> None:
        body = secret(f"{cluster.name}-ca", data, of=label or cluster.name, type=kind)
        self.cluster.put(f"/api/v1/namespaces/{cluster.namespace}/secrets", body)

    def leases(self) -> list[Object]:
        """Return the stored Leases."""
        found = self.cluster.objects.items()
        return [body for path, body in found if path.startswith(LEASES)]


@pytest.fixture
def clusters() -> Clusters:
    return Clusters()


def test_each_cluster_has_its_own_authority(clusters: Clusters) -> None:
    clusters.put(BLUE, pair())
    clusters.put(GREEN, pair())
    blue = clusters.authorities.authority(BLUE)
    assert blue.certificate != clusters.authorities.authority(GREEN).certificate
    with pytest.raises(AuthorityUnavailable, match="missing"):
        clusters.authorities.authority(ClusterKey(namespace="team-c", name="blue"))


def test_an_authority_is_parsed_once_for_each_version_of_its_secret(clusters: Clusters) -> None:
    """Each certificate cost all threads 0.35 s, with an RSA key of 4096 bits."""
    clusters.put(BLUE, pair())
    first = clusters.authorities.authority(BLUE)
    clusters.now += MAX_AGE
    assert clusters.authorities.authority(BLUE) is first
    clusters.put(BLUE, pair())
    clusters.now += MAX_AGE
    assert clusters.authorities.authority(BLUE).certificate != first.certificate


def test_a_secret_is_read_once_in_some_seconds(clusters: Clusters) -> None:
    """A storm of joins in one cluster read it for each certificate."""
    clusters.put(BLUE, pair())
    for _ in range(3):
        clusters.authorities.authority(BLUE)
    assert [r.path for r in clusters.cluster.reads].count(BLUE_CA) == 1
    clusters.now += MAX_AGE
    del clusters.cluster.objects[BLUE_CA]
    with pytest.raises(AuthorityUnavailable):
        clusters.authorities.authority(BLUE)


def test_a_secret_that_was_made_again_is_parsed_again(clusters: Clusters) -> None:
    """In another etcd a resource version may come twice, a UID does not."""
    clusters.put(BLUE, pair())
    first = clusters.authorities.authority(BLUE)
    version = clusters.cluster.objects[BLUE_CA]["metadata"]["resourceVersion"]
    clusters.put(BLUE, pair())
    metadata = {"resourceVersion": version, "uid": "made again"}
    clusters.cluster.objects[BLUE_CA]["metadata"] |= metadata
    clusters.now += MAX_AGE
    assert clusters.authorities.authority(BLUE).certificate != first.certificate


def test_no_more_than_a_bounded_number_of_authorities_stays_in_memory(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_CACHED", 1)
    clusters.put(BLUE, pair())
    clusters.put(GREEN, pair())
    first = clusters.authorities.authority(BLUE)
    clusters.authorities.authority(GREEN)
    assert clusters.authorities.authority(BLUE) is not first


def test_types_of_cluster_api_and_of_its_documentation_are_accepted(clusters: Clusters) -> None:
    clusters.put(BLUE, pair(), kind="kubernetes.io/tls")
    clusters.authorities.authority(BLUE)


@pytest.mark.parametrize("kind", ["", "Opaque"])
def test_an_authority_secret_of_another_type_is_refused(clusters: Clusters, kind: str) -> None:
    clusters.put(BLUE, pair(), kind=kind)
    with pytest.raises(AuthorityUnavailable, match="its type must be"):
        clusters.authorities.authority(BLUE)


def test_an_authority_secret_labelled_with_another_cluster_is_refused(clusters: Clusters) -> None:
    clusters.put(BLUE, pair(), label="green")
    with pytest.raises(AuthorityUnavailable, match=r"its label .* must name the Cluster"):
        clusters.authorities.authority(BLUE)


def require_refused(
    authorities: ClusterAuthorities, cluster: ClusterKey, other: ClusterKey
) -> None:
    with pytest.raises(AuthorityShared) as caught:
        authorities.authority(cluster)
    assert caught.value.alarm
    assert other.name not in caught.value.message
    assert caught.value.detail == f"{other.namespace}/{other.name}"


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_authority_of_two_clusters_is_refused_to_both(clusters: Clusters, replicas: int) -> None:
    """A certificate of one would be accepted by the API server of the other.

    Each replica compared only the Clusters that it served.
    """
    key = pki.ec_key()
    clusters.put(BLUE, pair(key))
    clusters.put(GREEN, pair(key))
    blue, green = (
        clusters.authorities,
        clusters.replica() if replicas == 2 else clusters.authorities,
    )
    blue.authority(BLUE)
    require_refused(green, GREEN, BLUE)
    clusters.expire()
    require_refused(blue, BLUE, GREEN)


def test_a_replica_that_starts_knows_the_authorities_of_all_clusters(clusters: Clusters) -> None:
    """It refuses the first certificate, before anything has asked for one of the other Cluster."""
    key = pki.ec_key()
    clusters.put(BLUE, pair(key))
    clusters.put(GREEN, pair(key))
    clusters.authorities.authority(BLUE)
    with pytest.raises(AuthorityShared):
        clusters.authorities.authority(GREEN)
    require_refused(clusters.replica(), BLUE, GREEN)


def test_two_replicas_that_compare_at_the_same_time_do_not_both_miss_the_other(
    clusters: Clusters,
) -> None:
    """The other replica reads and writes between the first read of this one and its write."""
    key = pki.ec_key()
    clusters.put(BLUE, pair(key))
    clusters.put(GREEN, pair(key))
    other = clusters.replica()

    def read_green(_: Request) -> None:
        other.authority(GREEN)

    clusters.cluster.intercept(read_green, "PATCH", LEASES)
    require_refused(clusters.authorities, BLUE, GREEN)
    clusters.expire()
    require_refused(other, GREEN, BLUE)


def test_an_authority_is_not_used_while_it_cannot_be_compared(clusters: Clusters) -> None:
    clusters.put(BLUE, pair())
    clusters.cluster.intercept(ApiServerUnavailable("away"), path=LEASES)
    with pytest.raises(ApiServerUnavailable):
        clusters.authorities.authority(BLUE)


def test_the_lease_of_a_cluster_that_was_deleted_or_changed_is_written_again(
    clusters: Clusters,
) -> None:
    clusters.put(BLUE, pair())
    clusters.authorities.authority(BLUE)
    [written] = clusters.leases()
    path = f"{LEASES}/{written['metadata']['name']}"
    for change in (lambda: clusters.cluster.objects.pop(path), lambda: clusters.put(BLUE, pair())):
        change()
        clusters.expire()
        clusters.authorities.authority(BLUE)
    [again] = clusters.leases()
    assert again["metadata"]["name"] == written["metadata"]["name"]
    assert again["spec"]["holderIdentity"] == "team-a/blue"
    assert again["metadata"]["labels"] != written["metadata"]["labels"]


def test_a_lease_that_the_signer_did_not_write_names_no_cluster(clusters: Clusters) -> None:
    """A person may write one, with the right to write in the signer's namespace."""
    key = pki.ec_key()
    clusters.put(BLUE, pair(key))
    clusters.put(GREEN, pair(key))
    clusters.authorities.authority(BLUE)
    [written] = clusters.leases()
    del clusters.cluster.objects[f"{LEASES}/{written['metadata']['name']}"]
    written["metadata"]["name"] = "another-name"
    clusters.cluster.put(LEASES, written)
    clusters.authorities.authority(GREEN)


@pytest.mark.parametrize(
    ("blue", "green", "shared"),
    [(SHARING, SHARING, True), (SHARING, STRICT, False), (STRICT, SHARING, False)],
)
def test_an_authority_is_shared_where_the_policies_of_both_clusters_allow_it(
    blue: Policy, green: Policy, *, shared: bool
) -> None:
    clusters = Clusters(policies={BLUE: blue, GREEN: green})
    key = pki.ec_key()
    clusters.put(BLUE, pair(key))
    clusters.put(GREEN, pair(key))
    clusters.authorities.authority(BLUE)
    clusters.expire()
    for cluster in (GREEN, BLUE):
        if shared:
            clusters.authorities.authority(cluster)
        else:
            with pytest.raises(AuthorityShared):
                clusters.authorities.authority(cluster)


def test_a_cluster_without_a_policy_does_not_share_its_authority() -> None:
    clusters = Clusters(policies={BLUE: SHARING})
    key = pki.ec_key()
    clusters.put(BLUE, pair(key))
    clusters.put(GREEN, pair(key))
    clusters.authorities.authority(GREEN)
    require_refused(clusters.authorities, BLUE, GREEN)


@pytest.mark.parametrize("change", ["deleted", "replaced"])
def test_an_authority_that_the_other_cluster_has_no_longer_is_not_shared(
    clusters: Clusters, change: str
) -> None:
    key = pki.ec_key()
    clusters.put(BLUE, pair(key))
    clusters.put(GREEN, pair(key))
    clusters.authorities.authority(BLUE)
    if change == "deleted":
        del clusters.cluster.objects[BLUE_CA]
    else:
        clusters.put(BLUE, pair())
    clusters.authorities.authority(GREEN)


def test_an_authority_is_not_used_while_the_other_cluster_cannot_be_read(
    clusters: Clusters,
) -> None:
    """Whether both Clusters have it is then unknown."""
    key = pki.ec_key()
    clusters.put(BLUE, pair(key))
    clusters.put(GREEN, pair(key))
    clusters.authorities.authority(BLUE)
    clusters.cluster.intercept(ApiServerUnavailable("away"), path=BLUE_CA)
    with pytest.raises(ApiServerUnavailable):
        clusters.authorities.authority(GREEN)
