"""Clusters: whether they opted in (R0), and which names are the control plane's."""

from ipaddress import ip_address, ip_network

import pytest

from common.names import CLIENT_SIGNER
from signer.inventory.cluster_api.cluster import (
    CLIENT_SIGNER_ANNOTATION,
    ClusterCondition,
    build_cluster,
    client_signers,
    read_cluster,
)
from signer.inventory.cluster_api.references import Reference
from tests.builders.kube_objects import HOME, INFRASTRUCTURE, INSECURE_CLIENT_SIGNER, cluster


def test_opt_in_annotation_has_its_documented_name() -> None:
    assert CLIENT_SIGNER_ANNOTATION == "attestation.cluster.x-k8s.io/client-signer"


def annotated(value: str) -> dict[str, str]:
    return {CLIENT_SIGNER_ANNOTATION: value}


@pytest.mark.parametrize(
    ("value", "signers"),
    [
        (CLIENT_SIGNER, {CLIENT_SIGNER}),
        (f" {CLIENT_SIGNER} ", {CLIENT_SIGNER}),
        (f"{CLIENT_SIGNER}, ,", {CLIENT_SIGNER}),
        (f"{CLIENT_SIGNER},{INSECURE_CLIENT_SIGNER}", {CLIENT_SIGNER, INSECURE_CLIENT_SIGNER}),
        ("", set()),
        (",", set()),
    ],
)
def test_annotation_opts_in(value: str, signers: set[str]) -> None:
    read = read_cluster(cluster(**annotated(value)))
    assert client_signers(read, None) == signers


def test_cluster_without_annotation_or_field_has_not_opted_in() -> None:
    assert client_signers(read_cluster(cluster()), None) == frozenset()


def test_false_field_opts_out_in_spite_of_the_annotation() -> None:
    body = cluster(**annotated(CLIENT_SIGNER))
    body["spec"]["security"] = {"kubeletAuthentication": False}
    assert client_signers(read_cluster(body), CLIENT_SIGNER) == frozenset()


def test_infrastructure_names_the_signer_where_the_field_asks_for_one() -> None:
    body = cluster()
    body["spec"]["security"] = {"kubeletAuthentication": True}
    assert client_signers(read_cluster(body), CLIENT_SIGNER) == {CLIENT_SIGNER}
    assert client_signers(read_cluster(body), None) == frozenset()
    both = cluster(**annotated(INSECURE_CLIENT_SIGNER))
    both["spec"]["security"] = {"kubeletAuthentication": True}
    assert len(client_signers(read_cluster(both), CLIENT_SIGNER)) == 2


def test_field_that_is_no_truth_value_makes_the_cluster_unreadable() -> None:
    body = cluster()
    body["spec"]["security"] = {"kubeletAuthentication": "true"}
    with pytest.raises(ValueError, match="kubeletAuthentication"):
        read_cluster(body)


def test_infrastructure_reference_is_read() -> None:
    body = cluster()
    assert read_cluster(body).infrastructure == Reference(
        group=INFRASTRUCTURE, kind="TestCluster", namespace="team-a", name="blue"
    )
    del body["spec"]["infrastructureRef"]
    assert read_cluster(body).infrastructure is None


def test_infrastructure_alone_does_not_opt_in() -> None:
    assert client_signers(read_cluster(cluster()), CLIENT_SIGNER) == frozenset()


def test_cluster_is_paused_by_field_or_annotation() -> None:
    body = cluster()
    assert not read_cluster(body).paused
    body["spec"]["paused"] = True
    assert read_cluster(body).paused
    assert read_cluster(cluster(**{"cluster.x-k8s.io/paused": ""})).paused


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_condition_about_bindings_is_read_among_those_of_others(version: str) -> None:
    body = cluster()
    others = {"type": "Available", "status": "True", "message": "x" * 30_000}
    own = {
        "type": "AutoApproveBindingsRemoved",
        "status": "False",
        "reason": "NodesNotAttested",
        "message": "they stay",
        "lastTransitionTime": "2026-11-22T12:00:00Z",
    }
    status = {"conditions": [others, own]}
    body["status"] = {"v1beta2": status} if version == "v1beta1" else status
    assert read_cluster(body).bindings == ClusterCondition(
        removed=False, reason="NodesNotAttested", message="they stay"
    )


@pytest.mark.parametrize(
    ("block", "address"),
    [
        ("10.96.0.1/32", "10.96.0.1"),
        ("fd00::1/128", "fd00::1"),
        # A network by one of its addresses, which net.ParseCIDR takes
        ("10.96.7.7/12", "10.96.0.1"),
    ],
)
def test_first_address_of_a_service_block_is_a_control_plane_host(block: str, address: str) -> None:
    body = cluster()
    body["spec"]["clusterNetwork"] = {"services": {"cidrBlocks": [block]}}
    result = build_cluster(read_cluster(body), None, hosts=[], auto_approve_bindings=[])
    assert ip_address(address) in result.control_plane_hosts


def test_all_names_of_the_control_plane_are_collected() -> None:
    body = cluster()
    body["spec"]["clusterNetwork"] = {
        "serviceDomain": "corp.example",
        "services": {"cidrBlocks": ["10.96.0.0/12", "fd00::/108"]},
    }
    result = build_cluster(
        read_cluster(body), None, hosts=[ip_address("192.0.2.1")], auto_approve_bindings=["x"]
    )
    assert result.control_plane_hosts == {
        "api.example",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.corp.example",
        *map(ip_address, ("10.96.0.1", "fd00::1", "192.0.2.1")),
    }
    assert result.service_networks == (ip_network("10.96.0.0/12"), ip_network("fd00::/108"))
    assert result.service_domain == "corp.example"
    assert (result.key, result.uid) == (HOME, "uid-blue")
    assert result.auto_approve_bindings == {"x"}


def test_default_names_are_used_without_fields() -> None:
    body = cluster()
    del body["spec"]["controlPlaneEndpoint"]
    assert read_cluster(body).hosts == {
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    }
