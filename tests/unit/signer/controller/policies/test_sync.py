"""Policies stay as they are while it is unknown what one says, or for which Cluster it is."""

from typing import Any, cast

import pytest

from common.errors import ApiServerUnavailable
from signer.controller.policies.sync import PolicySync
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.inventory.custom_resources.policy_object import PolicyObject, read_policy
from signer.inventory.unreadable_kinds import UNREADABLE
from signer.kube.unreadable import Unreadable
from signer.kube.watches.cache import Cache
from tests.builders.kube_objects import HOME

DEEP = Unreadable(key="strict", problem="nested too deeply")


class Management:
    """The caches that the sync reads."""

    def __init__(self) -> None:
        self.clusters: Cache[ClusterObject] = Cache("Clusters")
        self.policies: Cache[PolicyObject] = Cache(
            "policies", unreadable=UNREADABLE["KubeletAttestationPolicies"]
        )
        self.clusters.replace({})
        self.sync = PolicySync(cast("Any", self))

    def put(self, name: str) -> None:
        metadata = {"name": name, "uid": name, "resourceVersion": "1", "generation": 1}
        body = {"metadata": metadata, "spec": {"clusters": {"namespaces": [name]}}}
        self.policies.upsert(name, read_policy(body))

    def in_force(self) -> set[str]:
        policies = self.sync.active.policies
        return {p.name for p in policies.accepted} | {p.name for p in policies.refused}


def test_policies_in_force_stay_while_one_cannot_be_read() -> None:
    """Without it, its Clusters would get the policy of all others, which may demand less."""
    management = Management()
    management.policies.replace({})
    management.put("strict")
    assert management.sync.sync()
    management.policies.refuse("strict", DEEP)
    management.put("new")
    assert not management.sync.sync()
    assert management.in_force() == {"strict"}
    management.policies.delete("strict")
    assert management.sync.sync()
    assert management.in_force() == {"new"}


def test_no_policy_is_in_force_after_a_start_with_one_that_cannot_be_read() -> None:
    management = Management()
    management.policies.replace({})
    management.put("new")
    management.policies.refuse("strict", DEEP)
    assert not management.sync.sync()
    with pytest.raises(ApiServerUnavailable, match="the policies are not known yet"):
        management.in_force()


def test_cluster_whose_labels_cannot_be_read_has_no_policy() -> None:
    """A policy selects by labels."""
    management = Management()
    management.policies.replace({})
    management.put("all")
    management.sync.sync()
    management.clusters.refuse(str(HOME), DEEP)
    with pytest.raises(ApiServerUnavailable, match="Clusters: team-a/blue cannot be read"):
        management.sync.active.policy_of(HOME)
