"""Certificate authorities of clusters: how often they are parsed, and which Secrets count."""

from dataclasses import dataclass, field

import pytest

from common.errors import ApiServerUnavailable
from signer.controller import authorities as module
from signer.controller.authorities import ClusterAuthorities
from signer.errors import AuthorityShared, AuthorityUnavailable, PolicyMissing
from signer.model import ClusterKey
from signer.policy import Policy
from tests.fakes.secrets import FakeSecrets
from tests.harness import pki

BLUE = ClusterKey(namespace="team-a", name="blue")
GREEN = ClusterKey(namespace="team-b", name="green")
STRICT = Policy(name="strict")
MAX_AGE = module._MAX_AGE
SHARING = Policy(name="sharing", allow_shared_authority=True)


def pair(key: pki.PrivateKey | None = None) -> dict[str, bytes]:
    created = pki.Authority.make("workload", key or pki.ec_key()).pair
    return {"tls.crt": created.certificate, "tls.key": created.key}


@dataclass(slots=True)
class Clusters:
    """Two Clusters with their Secrets and policies."""

    secrets: FakeSecrets = field(default_factory=FakeSecrets)
    policies: dict[ClusterKey, Policy] = field(
        default_factory=lambda: {BLUE: STRICT, GREEN: STRICT}
    )
    authorities: ClusterAuthorities = field(init=False)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.authorities = ClusterAuthorities(
            self.secrets, self.policy_of, monotonic=lambda: self.now
        )

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
        labels = {"cluster.x-k8s.io/cluster-name": label or cluster.name}
        name = f"{cluster.name}-ca"
        self.secrets.put(cluster.namespace, name, data, type=kind, labels=labels)


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
    assert clusters.secrets.reads == 1
    clusters.now += MAX_AGE
    del clusters.secrets.stored["team-a", "blue-ca"]
    with pytest.raises(AuthorityUnavailable):
        clusters.authorities.authority(BLUE)


def test_a_secret_that_was_made_again_is_parsed_again(clusters: Clusters) -> None:
    """In another etcd a resource version may come twice, a UID does not."""
    clusters.put(BLUE, pair())
    first = clusters.authorities.authority(BLUE)
    clusters.secrets.version = 0
    clusters.secrets.incarnation += 1
    clusters.put(BLUE, pair())
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


def test_an_authority_of_two_clusters_is_refused_to_both(clusters: Clusters) -> None:
    """A certificate of one would be accepted by the API server of the other."""
    key = pki.ec_key()
    clusters.put(BLUE, pair(key))
    clusters.put(GREEN, pair(key))
    clusters.authorities.authority(BLUE)
    for cluster, other in ((GREEN, BLUE), (BLUE, GREEN)):
        with pytest.raises(AuthorityShared) as caught:
            clusters.authorities.authority(cluster)
        assert caught.value.alarm
        assert other.name not in caught.value.message
        assert caught.value.detail == f"{other.namespace}/{other.name}"


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
    with pytest.raises(AuthorityShared):
        clusters.authorities.authority(BLUE)


@pytest.mark.parametrize("change", ["deleted", "replaced"])
def test_an_authority_that_the_other_cluster_has_no_longer_is_not_shared(
    clusters: Clusters, change: str
) -> None:
    key = pki.ec_key()
    clusters.put(BLUE, pair(key))
    clusters.put(GREEN, pair(key))
    clusters.authorities.authority(BLUE)
    if change == "deleted":
        del clusters.secrets.stored["team-a", "blue-ca"]
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
    clusters.secrets.meanwhile = lambda: setattr(clusters.secrets, "away", True)
    with pytest.raises(ApiServerUnavailable):
        clusters.authorities.authority(GREEN)
