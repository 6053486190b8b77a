"""Quota of the EndorsementKeys that the claims of a namespace create."""

from datetime import datetime
from typing import Any

import pytest

from signer.controller.reconcile import limits
from signer.controller.reconcile.limits import LimitedClaimStore
from signer.errors import EndorsementKeyQuotaExceeded
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import EndorsementKeyObject
from tests.builders.endorsement_keys import endorsement_key, key_holder, registration
from tests.fakes.caches import FakeCaches
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

BLUE = ClusterKey(namespace="tenants", name="blue")
GREEN = ClusterKey(namespace="tenants", name="green")
OTHER = ClusterKey(namespace="other", name="blue")


def key(number: int, cluster: ClusterKey, **changes: Any) -> EndorsementKeyObject:  # noqa: ANN401 # of any field
    return endorsement_key(str(number), **{"held_by": key_holder(cluster), **changes})


@pytest.fixture
def caches(monkeypatch: pytest.MonkeyPatch) -> FakeCaches:
    monkeypatch.setattr(limits, "MIN_QUOTA", 3)
    empty = FakeCaches()
    empty.machines.replace({})
    empty.pools.replace({})
    return empty


def store(caches: FakeCaches, *keys: EndorsementKeyObject) -> tuple[LimitedClaimStore, FakeCluster]:
    caches.keys.replace({each.name: each for each in keys})
    cluster = FakeCluster()
    return LimitedClaimStore(FakeClient(cluster), caches), cluster


def create(claims: LimitedClaimStore, cluster: ClusterKey) -> None:
    claims.create_endorsement_key("5", "", key_holder(cluster), datetime.now().astimezone())


def test_a_namespace_with_too_many_claimed_keys_claims_no_more(caches: FakeCaches) -> None:
    """One Machine that was edited again and again made any number of EndorsementKeys."""
    claims, cluster = store(caches, key(1, BLUE), key(2, GREEN), key(3, BLUE))
    with pytest.raises(EndorsementKeyQuotaExceeded) as caught:
        create(claims, GREEN)
    assert caught.value.detail == "tenants has 3"
    assert "tenants" not in caught.value.message
    assert not cluster.writes
    create(claims, OTHER)


def test_keys_of_other_namespaces_and_registered_keys_do_not_count(caches: FakeCaches) -> None:
    registered = registration(BLUE, provider_id="x")
    claims, cluster = store(
        caches,
        key(1, BLUE),
        key(2, OTHER),
        key(3, BLUE, registered_for=(registered,)),
        key(4, BLUE, held_by=None),
    )
    create(claims, BLUE)
    assert len(cluster.writes) == 1
