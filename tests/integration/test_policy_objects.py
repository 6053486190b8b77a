"""Policies of the management cluster, read by a running signer."""

from collections.abc import Iterator

import pytest

from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.process import wait_until
from tests.harness.signer import Signer, of_cluster
from tests.integration.operator_calls import Operator, call_operator, cluster_of
from tests.integration.policies import stored_policy
from tests.integration.scripted_node import Script


@pytest.fixture(scope="module")
def running(signer: Signer) -> Iterator[Signer]:
    """Run the signer without any policy, for two Clusters that have opted in."""
    with signer.with_policies() as running:
        yield running


def logged(signer: Signer, event: str, **fields: object) -> bool:
    """Return whether the log has a line with this event and these fields."""
    return any(line["event"] == event and fields.items() <= line.items() for line in signer.lines)


@pytest.mark.usefixtures("running")
def test_policy_object_is_in_force_and_shows_its_clusters(fleet: Fleet, machines: Machines) -> None:
    tenant = fleet.first
    with stored_policy(fleet, "objects-good", of_cluster(tenant)) as policy:
        assert policy.wait_for("Ready", "True", "InForce") == "the policy is in force"
        policy.wait_for("ClustersServed", "True", "AllServed")
        status = policy.status
        assert (status["selectedClusters"], status["servedClusters"]) == (1, 1)
        policy.wait_for_state(tenant, "Served")
        assert status["activeGeneration"] == status["observedGeneration"] == 1
        # The client certificate of the test's kubeconfig is valid for two days.
        command = f"kubectl attestation kubeconfig {cluster_of(tenant)}"
        wait_until(
            lambda: ("Expiring", command) in problems(fleet), what="the kubeconfig is a problem"
        )
        node = machines.registered(tenant)
        assert node.call().status == 0
        shown = fleet.management.kubectl("get", "kap", "objects-good").splitlines()
        assert shown[0].split() == ["NAME", "READY", "REASON", "CLUSTERS", "SERVED", "AGE"]
        assert shown[1].split()[:5] == ["objects-good", "True", "InForce", "1", "1"]


def test_invalid_change_leaves_the_last_valid_version_in_force(
    fleet: Fleet, running: Signer
) -> None:
    tenant = fleet.first
    with stored_policy(fleet, "objects-changed", of_cluster(tenant)) as policy:
        policy.wait_for("Ready", "True", "InForce")
        policy.replace(of_cluster(tenant, nameReuse="AfterCertificate"))
        policy.wait_for("Ready", "True", "InForce")
        assert policy.status["activeGeneration"] == 2
        # The API server stores an unknown key, for the signer to refuse.
        policy.replace(of_cluster(tenant, nameReuse="AfterMachine", certficate={}))
        message = policy.wait_for("Ready", "False", "PolicyInvalid")
        assert message == "spec.certficate: unknown key; generation 2 stays in force"
        assert policy.status["activeGeneration"] == 2
        policy.wait_for_state(tenant, "Served")
        assert logged(running, "policy is invalid", policy="objects-changed", alarm=True)
        policy.replace(of_cluster(tenant))
        policy.wait_for("Ready", "True", "InForce")
        assert policy.status["activeGeneration"] == 4


def problems(fleet: Fleet) -> list[tuple[str, str]]:
    """Return what `problems` lists, with the next command."""
    items = call_operator(fleet.management.admin_config, "problems", "-o", "json").items
    return [(item["problem"], item["nextStep"]) for item in items]


def refused_policies(fleet: Fleet) -> set[str]:
    """Return the objects of the problems with policies that `doctor` finds."""
    items = call_operator(fleet.management.admin_config, "doctor", "-o", "json").items
    wrong = [i for i in items if (i["check"], i["result"]) == ("policies", "problem")]
    return {item["object"] for item in wrong}


def has_no_policy(signer: Signer) -> bool:
    """Return whether the signer has noticed that no policy exists, also that of an earlier test."""
    events = ("policies in force", "no policy in force")
    last = [line for line in signer.lines if line["event"] in events][-1:]
    return any(line["policies"] == line["refused"] == [] for line in last)


def test_commands_read_the_policy_objects(
    fleet: Fleet, machines: Machines, running: Signer
) -> None:
    wait_until(lambda: has_no_policy(running), what="no policy is in force")
    node = machines.known()
    cluster = cluster_of(node.tenant)
    offer = Script(node)
    operator = Operator(fleet, fleet.management.admin_config)
    explain = ("explain", offer.offer, "--cluster", cluster)
    offer.waiting_for("PolicyMissing")
    assert "would wait: PolicyMissing" in operator.call(*explain).output
    with stored_policy(fleet, "everything", {}) as policy:
        policy.wait_for("Ready", "True", "InForce")
        assert "would wait: EndorsementKeyNotRegistered" in operator.call(*explain).output
        reference = {"namespace": node.tenant.namespace, "name": node.tenant.name}
        misspelt = {"clusterRef": reference, "trsut": "Certified"}
        with stored_policy(fleet, "misspelt", misspelt) as wrong:
            wrong.wait_for("Ready", "False", "PolicyInvalid")
            check, explained = operator.call("policy", "check"), operator.call(*explain)
            assert refused_policies(fleet) == {"misspelt"}
    assert check.status == 1
    assert "is invalid: spec.trsut" in check.output
    assert f"Cluster {cluster} gets no certificate: PolicyInvalid" in check.complaint
    assert explained.status == 3
    assert "PolicyInvalid" in explained.output


@pytest.mark.usefixtures("running")
def test_policy_with_missing_authorities_is_refused_and_read_again(
    fleet: Fleet, machines: Machines
) -> None:
    file = machines.directory / "vendors.pem"
    trust = {"trust": "Certified", "certificateAuthorities": [str(file)]}
    spec = of_cluster(fleet.first, endorsementKey=trust)
    with stored_policy(fleet, "objects-certified", spec) as policy:
        message = policy.wait_for("Ready", "False", "PolicyInvalid")
        assert message == f"{file}: No such file or directory; its Clusters wait"
        policy.wait_for_state(fleet.first, "PolicyInvalid")
        assert "activeGeneration" not in policy.status
        file.write_bytes(machines.vendor.root)
        policy.wait_for("Ready", "True", "InForce")


@pytest.mark.usefixtures("running")
def test_two_policies_for_one_cluster_are_a_conflict_that_both_show(fleet: Fleet) -> None:
    first, second = fleet.tenants
    namespaces = [first.namespace, second.namespace]
    selector = {"clusterSelector": {"namespaces": namespaces}}
    with stored_policy(fleet, "objects-all", selector) as wide:
        wide.wait_for("ClustersServed", "True", "AllServed")
        with stored_policy(fleet, "objects-one", of_cluster(first)) as narrow:
            for policy in (wide, narrow):
                message = policy.wait_for("Ready", "False", "PolicyConflict")
                assert message == (
                    f"{first.namespace}/{first.name}: the policies objects-all, objects-one"
                    " are for this Cluster: change all but one"
                )
                policy.wait_for_state(first, "PolicyConflict")
            wide.wait_for_state(second, "Served")
        wide.wait_for("Ready", "True", "InForce")


@pytest.mark.usefixtures("running")
def test_label_selects_a_policy_only_in_its_namespaces(fleet: Fleet) -> None:
    """The tenant of the second Cluster gives it the label of a policy that is not for it."""
    first, second = fleet.tenants
    paths = [
        f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{t.namespace}/clusters/{t.name}"
        for t in (first, second)
    ]
    selector = {"namespaces": [first.namespace], "matchLabels": {"stage": "objects"}}
    with stored_policy(fleet, "objects-label", {"clusterSelector": selector}) as policy:
        policy.wait_for("Ready", "True", "InForce")
        assert policy.states == {}
        for path in paths:
            fleet.management.admin.patch(path, {"metadata": {"labels": {"stage": "objects"}}})
        selected = {(first.namespace, first.name): "Served"}
        wait_until(lambda: policy.states == selected, what="the label selects the policy")
        for path in paths:
            fleet.management.admin.patch(path, {"metadata": {"labels": {"stage": None}}})
        wait_until(lambda: not policy.states, what="the policy selects no Cluster")


@pytest.mark.usefixtures("running")
def test_policy_for_a_cluster_that_does_not_exist_says_so(fleet: Fleet) -> None:
    reference = {"clusterRef": {"namespace": fleet.first.namespace, "name": "wrkload"}}
    with stored_policy(fleet, "objects-typo", reference) as policy:
        message = policy.wait_for("Ready", "False", "ClusterNotFound")
        assert message == "no Cluster team-a/wrkload exists: correct clusterRef"


def test_signer_names_its_version_at_the_start(running: Signer) -> None:
    started = next(line for line in running.lines if line["event"] == "signer started")
    assert started["version"]
