"""Quota of the EndorsementKeys that the claims of a namespace create."""

from datetime import datetime
from typing import Any

import pytest

from signer.controller import key_quota
from signer.controller.key_quota import EndorsementKeyQuota, LimitedClaimStore
from signer.errors import EndorsementKeyQuotaExceeded
from signer.inventory.caches import ManagementCaches
from signer.inventory.machine import InfrastructureObject, Reference
from signer.model import ClusterKey, EndorsementKeyObject, KeyHolder, Registration, TrustBasis

BLUE = ClusterKey(namespace="tenants", name="blue")
GREEN = ClusterKey(namespace="tenants", name="green")
OTHER = ClusterKey(namespace="other", name="blue")


class Caches(ManagementCaches):
    """Caches that the test fills."""

    def infrastructure(self, reference: Reference) -> InfrastructureObject | None:
        raise AssertionError(reference)


def holder(cluster: ClusterKey) -> KeyHolder:
    return KeyHolder(
        cluster=cluster, node_name="n", provider_id="metal://1", basis=TrustBasis.RECORD
    )


def key(number: int, cluster: ClusterKey, **changes: Any) -> EndorsementKeyObject:  # noqa: ANN401 # of any field
    return EndorsementKeyObject(
        **{
            "name": str(number),
            "resource_version": "1",
            "registered_for": (),
            "released_from": (),
            "banned": False,
            "held_by": holder(cluster),
            **changes,
        }
    )


@pytest.fixture
def caches(monkeypatch: pytest.MonkeyPatch) -> Caches:
    monkeypatch.setattr(key_quota, "MIN_QUOTA", 3)
    empty = Caches()
    empty.machines.replace({})
    empty.pools.replace({})
    return empty


def put(caches: Caches, *keys: EndorsementKeyObject) -> EndorsementKeyQuota:
    caches.keys.replace({each.name: each for each in keys})
    return EndorsementKeyQuota(caches)


def test_a_namespace_with_too_many_claimed_keys_claims_no_more(caches: Caches) -> None:
    """One Machine that was edited again and again made any number of EndorsementKeys."""
    quota = put(caches, key(1, BLUE), key(2, GREEN), key(3, BLUE))
    with pytest.raises(EndorsementKeyQuotaExceeded) as caught:
        quota.verify_quota("tenants")
    assert caught.value.detail == "tenants has 3"
    assert "tenants" not in caught.value.message
    quota.verify_quota("other")


def test_keys_of_other_namespaces_and_registered_keys_do_not_count(caches: Caches) -> None:
    registered = Registration(cluster=BLUE, provider_id="x", machine_name=None, node_name=None)
    put(
        caches,
        key(1, BLUE),
        key(2, OTHER),
        key(3, BLUE, registered_for=(registered,)),
        key(4, BLUE, held_by=None),
    ).verify_quota("tenants")


def test_a_key_is_not_created_above_the_quota(caches: Caches) -> None:
    class Api:
        def create(self, *_: object, **__: object) -> None:
            raise AssertionError("created")

    quota = put(caches, key(1, BLUE), key(2, BLUE), key(3, BLUE))
    store = LimitedClaimStore(Api(), quota)  # type: ignore[arg-type] # nothing else is called
    with pytest.raises(EndorsementKeyQuotaExceeded):
        store.create_endorsement_key("4", "", holder(BLUE), datetime.now().astimezone())
