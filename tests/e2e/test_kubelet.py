"""The real kubelet and Cluster API's manager, with our plugin and signer."""

import shutil
from datetime import timedelta

import pytest

from tests.e2e.joined_node import WAIT_SECONDS, JoinedNode, LeaseCall, credential_id
from tests.harness import capi
from tests.harness.controlplane import KubectlFailed
from tests.harness.process import wait_until
from tests.integration import csrs
from tests.integration.operator_calls import Operator, cluster_of

PENDING = "attestation.cluster.x-k8s.io/pending-reason"
SHORT = timedelta(seconds=75)
"""Lifetime of a certificate when a test waits for its renewal, which is due after 70 to 80 %."""


def test_node_joins_and_cluster_api_finds_it(joined: JoinedNode) -> None:
    joined.wait_until_ready()
    node, address = joined.object(), ("InternalIP", joined.kubelet.address)
    assert node["spec"]["providerID"] == joined.node.provider_id
    assert address in [(each["type"], each["address"]) for each in node["status"]["addresses"]]
    joined.wait_until_used(joined.certificate())

    def has_node_ref() -> bool:
        status = capi.machine(joined.fleet, joined.node)["status"]
        return bool(status.get("nodeRef") == {"name": joined.node.name})

    wait_until(has_node_ref, what="the Machine has its nodeRef", seconds=WAIT_SECONDS)
    assert capi.machine(joined.fleet, joined.node)["spec"]["providerID"] == joined.node.provider_id


def test_kubelet_has_no_client_certificate_of_its_own(joined: JoinedNode) -> None:
    """With rotateCertificates it would request and use one without attestation."""
    joined.wait_until_ready()
    assert not list(joined.kubelet.certificates.glob("kubelet-client*"))
    requested = {csr["spec"]["signerName"] for csr in joined.admin.list(csrs.CSRS)}
    assert "kubernetes.io/kube-apiserver-client-kubelet" not in requested


def test_serving_request_waits_until_the_machine_has_the_address(joined: JoinedNode) -> None:
    """S2, with the kubelet's own request, and the address from provider to Machine to signer."""
    joined.wait_until_ready()
    name = ("Hostname", joined.node.name)
    report_addresses(joined, [name])
    try:
        before = joined.serving_requests()

        def new_requests() -> set[str]:
            return joined.serving_requests() - before

        joined.kubelet.stop()
        shutil.rmtree(joined.kubelet.certificates)
        joined.start_kubelet()
        wait_until(lambda: bool(new_requests()), what="a serving request is filed")
        request = next(iter(new_requests()))
        assert csrs.annotated(joined.admin, request, PENDING).startswith("AddressNotOfMachine: ")
        assert not joined.answers()
    finally:
        report_addresses(joined, [name, ("InternalIP", joined.kubelet.address)])
    joined.wait_until_answers()
    assert csrs.conditions(joined.admin, request) == {"Approved": "Attested"}


def report_addresses(joined: JoinedNode, addresses: list[tuple[str, str]]) -> None:
    """Let the provider report addresses, and wait until Cluster API has copied them."""
    capi.report_addresses(joined.fleet, joined.node, addresses)

    def is_copied() -> bool:
        listed = capi.machine(joined.fleet, joined.node)["status"].get("addresses", [])
        return [(each["type"], each["address"]) for each in listed] == addresses

    what = f"the Machine has the addresses {addresses}"
    wait_until(is_copied, what=what, seconds=WAIT_SECONDS)


def test_api_server_verifies_the_kubelet_of_a_log_request(joined: JoinedNode) -> None:
    joined.wait_until_ready()
    joined.wait_until_answers()
    assert "<pre>" in joined.ask_kubelet("logs/")
    workload = joined.workload
    workload.reach_kubelets(joined.fleet.second.workload.authority)
    try:
        with pytest.raises(KubectlFailed, match="certificate signed by unknown authority"):
            joined.ask_kubelet("logs/")
    finally:
        workload.reach_kubelets(workload.authority)
    joined.wait_until_answers()
    assert "<pre>" in joined.ask_kubelet("logs/")


def test_kubelet_uses_a_renewed_certificate_while_the_node_stays_ready(joined: JoinedNode) -> None:
    joined.wait_until_ready()
    short = joined.hold_short_certificate(SHORT)
    joined.wait_until_answers()
    since, before = joined.wait_until_ready(), len(joined.lease_calls())
    calls = joined.metric("rest_client_exec_plugin_call_total")
    renewed = joined.renew()
    joined.wait_until_used(renewed)
    assert set(joined.lease_calls(after=before)) == {
        LeaseCall(200, credential_id(short)),
        LeaseCall(200, credential_id(renewed)),
    }
    assert joined.ready_since() == since
    assert joined.metric("rest_client_exec_plugin_call_total") == calls + 1
    assert joined.metric("rest_client_exec_plugin_certificate_rotation_age_count") == 1


def test_node_whose_ban_was_lifted_is_ready_again(joined: JoinedNode) -> None:
    """The kubelet keeps its certificate after a 403: it is restarted after the renewal."""
    joined.wait_until_ready()
    operator = Operator(joined.fleet, joined.fleet.management.admin_config)
    ban = ("ban", f"{cluster_of(joined.node.tenant)}/{joined.node.name}", "--yes")
    banned = operator.call(*ban, "--reason", "stolen", "--now")
    assert banned.status == 0, banned.complaint
    before, ended = len(joined.lease_calls()), credential_id(joined.certificate())
    wait_until(
        lambda: LeaseCall(403, ended) in joined.lease_calls(after=before),
        what="the kubelet cannot write",
        seconds=WAIT_SECONDS,
    )
    lifted = operator.call(*ban, "--lift")
    assert lifted.status == 0, lifted.complaint
    renewed = joined.renew()
    joined.restart_kubelet()
    joined.wait_until_used(renewed)
    joined.wait_until_ready()


def test_unavailable_signer_after_the_renewal_time_changes_nothing(joined: JoinedNode) -> None:
    """The kubelet gets the old certificate, and the renewal follows when the signer is back."""
    joined.wait_until_ready()
    short = joined.hold_short_certificate(SHORT)
    since, known = joined.wait_until_ready(), joined.attested_requests()
    joined.signer.stop()
    try:
        wait_until(
            lambda: bool(joined.filed_beyond(known)),
            what="the renewal is due",
            seconds=WAIT_SECONDS,
        )
        joined.wait_until_used(short)
    finally:
        joined.signer.start()
    wait_until(
        lambda: joined.certificate() != short,
        what="the certificate is renewed",
        seconds=WAIT_SECONDS,
    )
    joined.wait_until_used(joined.certificate())
    assert joined.ready_since() == since


def test_restarted_kubelet_uses_the_cached_certificate(joined: JoinedNode) -> None:
    joined.wait_until_ready()
    certificate, known = joined.certificate(), joined.attested_requests()
    joined.signer.stop()
    try:
        joined.restart_kubelet()
        joined.wait_until_used(certificate)
        joined.wait_until_ready()
    finally:
        joined.signer.start()
    assert not joined.filed_beyond(known)
    assert joined.certificate() == certificate


def test_restarted_api_server_does_not_change_the_node(joined: JoinedNode) -> None:
    since = joined.wait_until_ready()
    certificate, known = joined.certificate(), joined.attested_requests()
    joined.workload.restart_apiserver()
    joined.wait_until_used(certificate)
    assert joined.ready_since() == since
    assert not joined.filed_beyond(known)


def test_node_joins_again_after_a_rotation_of_the_authority(
    joined: JoinedNode,
) -> None:
    """The operator changes authority and kubeconfig Secret, and creates a bootstrap token."""
    joined.wait_until_ready()
    old, before, known = joined.certificate(), len(joined.lease_calls()), joined.attested_requests()
    joined.workload.rotate_client_authority()
    joined.certify_for()
    capi.connect(joined.fleet, joined.node.tenant)
    joined.node.give_token(joined.workload.bootstrap_token())
    # Otherwise it reads the kubeconfig Secret again within a minute.
    joined.signer.stop()
    joined.signer.start()
    wait_until(
        lambda: joined.certificate() != old,
        what="the node has a new certificate",
        seconds=WAIT_SECONDS,
    )
    joined.wait_until_used(joined.certificate())
    joined.certificate().verify_directly_issued_by(joined.workload.client_authority.certificate)
    assert LeaseCall(401, "") in joined.lease_calls(after=before)
    filed = joined.filed_beyond(known)
    assert all(user.startswith("system:bootstrap:") for user in filed.values()), filed
    joined.wait_until_ready()
