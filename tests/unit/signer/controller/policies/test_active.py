"""Policies in force: replaced whole, the last valid one is kept."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from common.errors import ApiServerUnavailable
from signer.controller.policies.active import ActivePolicies
from signer.controller.policies.object_reader import PolicyObjects, PolicyState
from signer.errors import PolicyInvalid, PolicyMissing
from signer.inventory.custom_resources.policy_object import PolicyObject, read_policy
from signer.policy.policy import NameReuse, NodeNameRules, Policy, PolicySet
from signer.settings.trust_bundles import TrustBundleInvalid
from signer.verify.x509.trust_anchors import NO_ANCHORS, TrustAnchors
from tests.builders.kube_objects import HOME

REFERENCE = {"clusterRef": {"namespace": HOME.namespace, "name": HOME.name}}
OTHER_ANCHORS = replace(NO_ANCHORS, unmatched_lists=("list.pem",))


def stored(name: str, generation: int, spec: object, uid: str = "") -> PolicyObject:
    metadata = {
        "name": name,
        "uid": uid or name,
        "resourceVersion": "1",
        "generation": generation,
    }
    return read_policy({"metadata": metadata, "spec": spec})


@dataclass(slots=True)
class Objects:
    """Policies from objects, whose trust anchors can be absent."""

    active: ActivePolicies = field(default_factory=lambda: ActivePolicies(lambda _: {}))
    missing: str = ""
    objects: PolicyObjects = field(init=False)

    def __post_init__(self) -> None:
        self.objects = PolicyObjects(self.active, self.load)

    def load(self, _: Policy) -> TrustAnchors:
        if self.missing:
            raise TrustBundleInvalid(self.missing)
        return NO_ANCHORS

    def sync(self, *objects: PolicyObject) -> bool:
        return self.objects.sync(objects)

    def states(self) -> dict[str, PolicyState]:
        return {policy.uid: state for policy, state in self.objects.synced}

    def name_reuse(self) -> NameReuse:
        return self.active.policy_of(HOME).name_reuse


def test_before_policies_are_read_nothing_is_decided() -> None:
    with pytest.raises(ApiServerUnavailable):
        ActivePolicies(lambda _: {}).for_cluster(HOME)


@pytest.mark.parametrize(
    ("specs", "serving_only"),
    [([], False), ([{}], False), ([{"mode": "ServingOnly"}], True), ([{"mode": "Off"}], False)],
)
def test_serving_only_is_a_valid_policy_of_that_mode(
    specs: list[object], *, serving_only: bool
) -> None:
    at = Objects()
    at.sync(*(stored(f"policy-{n}", 1, spec) for n, spec in enumerate(specs)))
    assert at.active.is_serving_only(HOME) is serving_only


def test_version_is_not_shown_before_it_is_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """A status said so, and the next request was decided by the version before."""
    at = Objects()
    at.sync(stored("a", 1, {}))
    before, replace_policies = at.objects.synced, at.active.replace

    def look(*arguments: Any) -> None:  # noqa: ANN401 # of `replace`
        assert at.objects.synced is before
        replace_policies(*arguments)

    monkeypatch.setattr(at.active, "replace", look)
    assert at.sync(stored("a", 2, {"nameReuse": "AfterCertificate"}))
    assert [policy.generation for policy, _ in at.objects.synced] == [2]


def test_valid_change_of_an_object_is_in_force_at_once() -> None:
    at = Objects()
    assert at.sync(stored("a", 1, {}))
    assert at.name_reuse() is NameReuse.AFTER_MACHINE
    assert not at.sync(stored("a", 1, {}))
    assert at.sync(stored("a", 2, {"nameReuse": "AfterCertificate"}))
    assert at.name_reuse() is NameReuse.AFTER_CERTIFICATE
    assert at.states() == {"a": PolicyState(problems=(), in_force=2)}


def test_invalid_change_keeps_the_last_valid_version(caplog: pytest.LogCaptureFixture) -> None:
    at = Objects()
    at.sync(stored("a", 1, {"nameReuse": "AfterCertificate"}))
    for _ in range(2):
        assert not at.sync(stored("a", 2, {"nameReuse": "Never", "pcr": {}}))
    assert at.name_reuse() is NameReuse.AFTER_CERTIFICATE
    state = at.states()["a"]
    assert len(state.problems) == 2
    assert state.in_force == 1
    assert [r.message for r in caplog.records if r.levelname == "WARNING"] == ["policy is invalid"]


def test_invalid_object_holds_up_the_clusters_that_it_selects() -> None:
    """After a restart, too: the policy for all others may demand less."""
    at = Objects()
    at.sync(stored("strict", 2, {**REFERENCE, "pcr": {}}), stored("default", 1, {}))
    with pytest.raises(PolicyInvalid):
        at.active.for_cluster(HOME)


def test_object_that_is_created_again_does_not_get_the_version_of_the_old_one() -> None:
    at = Objects()
    at.sync(stored("a", 1, REFERENCE))
    at.sync(stored("a", 1, {**REFERENCE, "pcr": {}}, uid="new"))
    with pytest.raises(PolicyInvalid):
        at.active.for_cluster(HOME)


def test_deleted_object_is_no_longer_in_force() -> None:
    at = Objects()
    at.sync(stored("a", 1, {}))
    assert at.sync()
    with pytest.raises(PolicyMissing):
        at.active.for_cluster(HOME)
    assert at.states() == {}


def test_object_with_an_invalid_trust_bundle_is_read_again_until_it_is_valid() -> None:
    """The files may be mounted after the object is created."""
    at = Objects(missing="no such file")
    at.sync(stored("a", 1, {}))
    assert at.states()["a"] == PolicyState(problems=("no such file",), in_force=None)
    with pytest.raises(PolicyInvalid):
        at.active.for_cluster(HOME)
    at.missing = ""
    assert at.sync(stored("a", 1, {}))
    assert at.active.for_cluster(HOME).anchors is NO_ANCHORS


def test_unchanged_policy_keeps_its_reloaded_trust_anchors() -> None:
    """A change of one policy must not bring back an older revocation list of another one."""
    active = ActivePolicies(lambda _: {})
    kept, changed = Policy(name="kept"), Policy(name="changed")
    active.replace(PolicySet(accepted=(kept, changed)), {"kept": NO_ANCHORS, "changed": NO_ANCHORS})
    assert active.bundles is not None
    active.bundles.current |= {"kept": OTHER_ANCHORS, "changed": OTHER_ANCHORS}
    later = Policy(name="changed", node_names=NodeNameRules(machine_name=True))
    active.replace(PolicySet(accepted=(kept, later)), {"kept": NO_ANCHORS, "changed": NO_ANCHORS})
    assert active.bundles.current == {"kept": OTHER_ANCHORS, "changed": NO_ANCHORS}


def test_no_policy_is_an_alarm_with_the_next_step(caplog: pytest.LogCaptureFixture) -> None:
    Objects().sync()
    [record] = caplog.records
    assert record.message == "no policy in force"
    assert "create a KubeletAttestationPolicy" in vars(record)["fields"]["message"]
