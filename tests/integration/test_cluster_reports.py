"""A Cluster that is not served says so: by an Event, in its policy, as a metric, and in the log."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from prometheus_client.parser import text_string_to_metric_families

from common.names import CLIENT_SIGNER
from tests.harness import pki
from tests.harness.client import Object
from tests.harness.controlplane import HOST
from tests.harness.fleet import Fleet
from tests.harness.process import free_port, wait_until
from tests.harness.signer import OPT_IN, Signer
from tests.integration.operator_calls import Operator
from tests.integration.policies import StoredPolicy, stored_policy

CLUSTERS = "/apis/cluster.x-k8s.io/v1beta2"
[ANNOTATION] = OPT_IN


@dataclass(frozen=True, slots=True)
class NewCluster:
    """A Cluster in a namespace of its own, and the policy that selects it."""

    fleet: Fleet
    signer: Signer
    policy: StoredPolicy
    namespace: str
    name: str = "young"

    @property
    def path(self) -> str:
        """Return the path of the Cluster."""
        return f"{CLUSTERS}/namespaces/{self.namespace}/clusters/{self.name}"

    def annotate(self, value: str) -> None:
        """Write the opt-in."""
        metadata = {"annotations": {ANNOTATION: value}}
        self.fleet.management.admin.patch(self.path, {"metadata": metadata})

    def connect(self, *, server: str = "", allowed: bool = True) -> None:
        """Create the kubeconfig Secret, for the first tenant's workload cluster."""
        workload = self.fleet.first.workload
        text = (
            workload.signer_kubeconfig() if allowed else workload.bootstrap_kubeconfig("no.token")
        )
        text = text.replace(workload.url, server or workload.url)
        self.fleet.management.store_kubeconfig(self.namespace, self.name, text)

    def sign(self) -> None:
        """Create the Secret with a certificate authority."""
        pair = pki.Authority.make("young", pki.ec_key()).pair
        self.fleet.management.store_authority(self.namespace, self.name, pair)

    def events(self) -> list[Object]:
        """Return the Events on the Cluster."""
        path = f"/api/v1/namespaces/{self.namespace}/events"
        selector = f"involvedObject.kind=Cluster,involvedObject.name={self.name}"
        return self.fleet.management.admin.list(path, fieldSelector=selector)

    def metric(self, name: str) -> float | None:
        """Return the value of a metric for this Cluster."""
        for family in text_string_to_metric_families(self.signer.ask("/metrics").text):
            for sample in family.samples:
                if (
                    sample.name == f"node_attestation_{name}"
                    and sample.labels["cluster"] == f"{self.namespace}/{self.name}"
                ):
                    return sample.value
        return None

    def expect(self, state: str, message: str, *, reachable: bool = False) -> None:
        """Wait until every place says why the Cluster is not served."""
        served = state == "Served"
        wait_until(
            lambda: self.policy.states.get((self.namespace, self.name)) == state,
            what=f"the policy's status has the state {state}",
        )
        assert self.policy.condition("ClustersServed")[0] == str(served)
        operator = Operator(self.fleet, self.fleet.management.admin_config)
        [row] = operator.list("clusters", "-n", self.namespace)
        assert row["state"] == (state if row["optedIn"] != "no" else None)
        assert self.metric("cluster_served") == float(served)
        assert self.metric("cluster_reachable") == float(reachable)
        reason = "ClusterServed" if served else state
        wait_until(
            lambda: any(
                event["reason"] == reason and message in event["message"] for event in self.events()
            ),
            what=f"the Event {reason}",
        )
        if not served:
            assert self.logged(lambda line: message in line.get("message", ""))

    def logged(self, condition: Callable[[Object], bool]) -> bool:
        """Return whether a log line about this Cluster is as expected."""
        own = f"{self.namespace}/{self.name}"
        return any(line.get("cluster") == own and condition(line) for line in self.signer.lines)


@pytest.fixture
def young(fleet: Fleet, signer: Signer) -> Iterator[NewCluster]:
    """Make a Cluster that has neither opted in nor any Secret, and a policy for it."""
    with new_cluster(fleet, signer) as cluster:
        yield cluster


@contextmanager
def new_cluster(fleet: Fleet, signer: Signer) -> Iterator[NewCluster]:
    """Make a Cluster that has neither opted in nor any Secret, and a policy for it."""
    namespace = f"young-{secrets.token_hex(4)}"
    fleet.management.create_namespace(namespace)
    endpoint = fleet.first.workload.url
    fleet.management.create_cluster(namespace, "young", endpoint=endpoint)
    reference = {"clusterRef": {"namespace": namespace, "name": "young"}}
    with stored_policy(fleet, namespace, reference) as policy:
        cluster = NewCluster(fleet, signer, policy, namespace)
        try:
            yield cluster
        finally:
            fleet.management.admin.delete(cluster.path)


def test_every_step_to_a_served_cluster_names_the_next_one(young: NewCluster) -> None:
    """As a new operator finds them: 30 minutes of silence, before."""
    opt_in = f"set the annotation {ANNOTATION}: {CLIENT_SIGNER}"
    young.expect("NotOptedIn", opt_in)
    young.annotate("cluster.x-k8s.io/kube-apiserver-client-kublet-tpm")
    young.expect("ClientSignerUnknown", "kublet-tpm is unknown")
    young.annotate(CLIENT_SIGNER)
    young.expect("KubeconfigRefused", "Secret young-kubeconfig: ")
    young.connect()
    young.expect("AuthorityUnavailable", "Secret young-ca: ", reachable=True)
    young.sign()
    # The client certificate of the test's kubeconfig is valid for two days.
    young.expect("Served", "kubeconfig Secret expires on", reachable=True)


def test_unreachable_api_server_is_reported(young: NewCluster) -> None:
    young.annotate(CLIENT_SIGNER)
    young.connect(server=f"https://{HOST}:{free_port()}")
    young.expect("ApiServerUnavailable", "check the server in the kubeconfig Secret")


def test_missing_permission_in_the_workload_cluster_is_reported(young: NewCluster) -> None:
    young.annotate(CLIENT_SIGNER)
    young.connect(allowed=False)
    young.expect("Forbidden", "forbids the signer to list and watch", reachable=True)


def test_namespace_that_is_being_deleted_silences_no_other(
    fleet: Fleet, signer: Signer, young: NewCluster
) -> None:
    """It refuses Events, and its Cluster, which a finalizer kept, ended each round of reports."""
    admin = fleet.management.admin
    young.expect("NotOptedIn", "set the annotation")
    # No controller deletes the Cluster.
    admin.delete(f"/api/v1/namespaces/{young.namespace}")
    young.annotate(CLIENT_SIGNER)
    refused = f"/namespaces/{young.namespace}/events: "
    wait_until(
        lambda: any(refused in line.get("detail", "") for line in signer.lines),
        what="the namespace refuses an Event",
    )
    with new_cluster(fleet, signer) as neighbor:
        neighbor.annotate("cluster.x-k8s.io/kube-apiserver-client-kublet-tpm")
        neighbor.expect("ClientSignerUnknown", "kublet-tpm is unknown")
    assert {event["reason"] for event in young.events()} == {"NotOptedIn"}
    assert young.logged(lambda line: line.get("reason") == "KubeconfigRefused")


def test_missing_permission_for_secrets_is_reported(young: NewCluster) -> None:
    """The role of the packaging allows all Secrets; an operator may have narrowed it."""
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/node-attestation-signer"
    admin = young.fleet.management.admin
    before = admin.get(role)
    rules = [rule for rule in before["rules"] if rule["resources"] != ["secrets"]]
    assert len(rules) == len(before["rules"]) - 1
    admin.patch(role, {"rules": rules})
    try:
        young.annotate(CLIENT_SIGNER)
        young.expect("Forbidden", "the signer may not read this Secret")
    finally:
        admin.patch(role, {"rules": before["rules"]})
