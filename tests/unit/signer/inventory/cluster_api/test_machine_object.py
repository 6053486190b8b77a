"""Machines, pools and what they refer to, in both versions of Cluster API."""

import json
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from common.names import VM_ID_ANNOTATION
from signer.inventory.cluster_api.machine_object import (
    AttestedCondition,
    build_machine,
    build_pool_member,
    read_machine,
    read_pool,
)
from signer.inventory.cluster_api.references import (
    UNKNOWN_TOKEN,
    BootstrapObject,
    InfrastructureObject,
    Reference,
    read_bootstrap,
    read_infrastructure,
)
from signer.kinds.machine import Address
from tests.builders.kube_objects import (
    DIGEST,
    HOME,
    INFRASTRUCTURE,
    PROVIDER_ID,
    RECORD,
    bootstrap,
    infrastructure,
    machine,
    old_machine,
    pool,
)

NOTHING = read_infrastructure(infrastructure("infra"))
TOKEN = BootstrapObject(token_id="abcdef")


@pytest.mark.parametrize("body", [machine(), old_machine()])
def test_both_api_versions_are_read_alike(body: dict[str, Any]) -> None:
    read = read_machine(body)
    assert (read.cluster, read.name, read.uid) == (HOME, "machine-1", "uid-machine-1")
    assert (read.provider_id, read.deleting, read.bootstrap_ready) == (PROVIDER_ID, False, True)
    assert read.addresses == (Address(type="Hostname", address="node-1"),)
    assert read.infrastructure == Reference(
        group=INFRASTRUCTURE, kind="TestMachine", namespace="team-a", name="infra-machine-1"
    )
    assert read.bootstrap is not None
    assert read.bootstrap.key == "team-a/config-machine-1"


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({}, False),
        ({"initialization": {"bootstrapDataSecretCreated": False}}, False),
        ({"bootstrapReady": False}, False),
        ({"conditions": [{"type": "BootstrapConfigReady", "status": "True"}]}, True),
        ({"conditions": [{"type": "BootstrapReady", "status": "True"}]}, True),
        ({"conditions": [{"type": "BootstrapReady", "status": "Unknown"}]}, False),
        ({"conditions": [{"type": "InfrastructureReady", "status": "True"}]}, False),
    ],
)
def test_bootstrap_is_ready_by_the_field_of_any_version(
    status: dict[str, Any], *, ready: bool
) -> None:
    body = machine()
    body["status"] = status
    assert read_machine(body).bootstrap_ready is ready


@pytest.mark.parametrize("old", [True, False])
def test_condition_of_the_signer_is_read_where_it_is_written(*, old: bool) -> None:
    condition = {
        "type": "KubeletAttested",
        "status": "False",
        "reason": "MachineNotFound",
        "lastTransitionTime": "2026-11-22T12:00:00Z",
    }
    conditions = [{"type": "Ready", "status": "True"}, condition]
    body = old_machine() if old else machine()
    assert read_machine(body).attested is None
    body["status"] |= {"v1beta2": {"conditions": conditions}} if old else {"conditions": conditions}
    read = read_machine(body).attested
    assert read == AttestedCondition("False", "MachineNotFound", "2026-11-22T12:00:00Z")


def test_no_text_that_a_tenant_wrote_is_interned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 never freed it: each change of a label took memory, without any budget."""
    interned: list[str] = []

    def intern(text: str) -> str:
        interned.append(text)
        return text

    monkeypatch.setattr(sys, "intern", intern)
    body = machine()
    body["metadata"]["labels"] = {"rack": "a"}
    assert read_machine(body).labels == {"rack": "a"}
    assert interned == []


def test_node_ref_and_deletion_are_read() -> None:
    body = machine()
    body["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z"
    body["status"]["nodeRef"] = {"name": "node-1"}
    read = read_machine(body)
    assert (read.deleting, read.node_ref) == (True, "node-1")


def test_creation_is_read_and_kept() -> None:
    body = machine()
    body["metadata"]["creationTimestamp"] = "2026-11-21T09:30:00Z"
    read = read_machine(body)
    assert read.created == datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
    assert build_machine(read, None, None).created == read.created


REFERENCE = {"apiGroup": INFRASTRUCTURE, "kind": "TestMachine", "name": "infra"}


@pytest.mark.parametrize(
    "changes",
    [
        {"apiGroup": ""},
        {"apiGroup": None},
        {"apiGroup": None, "apiVersion": "/v1beta1"},
        {"kind": ""},
        {"kind": None},
        {"name": ""},
        {"name": None},
    ],
    ids=str,
)
def test_incomplete_reference_is_none(changes: dict[str, Any]) -> None:
    body = machine()
    body["spec"]["infrastructureRef"] = REFERENCE
    assert read_machine(body).infrastructure is not None
    body["spec"]["infrastructureRef"] = {**REFERENCE, **changes}
    assert read_machine(body).infrastructure is None


def test_machine_without_a_provider_id_has_an_empty_one() -> None:
    body = machine()
    del body["spec"]["providerID"]
    assert read_machine(body).provider_id == ""


@pytest.mark.parametrize("key", ["annotations", "labels"])
def test_machine_with_metadata_that_are_no_texts_is_unreadable(key: str) -> None:
    """An annotation that cannot be read must not count as absent."""
    body = machine()
    body["metadata"][key] = {"cluster-x-k8s-io/tpm-endorsement-key": True}
    with pytest.raises(ValueError, match=key):
        read_machine(body)


def test_machine_without_a_cluster_name_is_unreadable() -> None:
    body = machine()
    del body["spec"]["clusterName"]
    with pytest.raises(ValueError, match="clusterName"):
        read_machine(body)


def test_keys_of_machine_and_infrastructure_are_joined() -> None:
    body = machine()
    body["metadata"]["annotations"] = RECORD
    other = {next(iter(RECORD)): f"sha256:{'cd' * 32}"}
    infra = read_infrastructure(infrastructure("infra", **other))
    result = build_machine(read_machine(body), infra, TOKEN)
    assert [(r.source, r.spki_sha256.hex()) for r in result.registered_keys] == [
        ("Machine annotation", DIGEST),
        ("TestMachine annotation", "cd" * 32),
    ]
    assert result.registered_keys_error is None


@pytest.mark.parametrize("where", ["machine", "infrastructure"])
def test_annotation_that_cannot_be_read_is_an_error(where: str) -> None:
    broken = {next(iter(RECORD)): "broken"}
    body = machine()
    body["metadata"]["annotations"] = broken if where == "machine" else RECORD
    on_infrastructure = broken if where == "infrastructure" else RECORD
    infra = read_infrastructure(infrastructure("infra", **on_infrastructure))
    assert build_machine(read_machine(body), infra, TOKEN).registered_keys_error is not None


@pytest.mark.parametrize(
    ("value", "vm_id"),
    [
        ("390CBCF5-6C67-4d9b-98ef-c3f1699cc8fc", "390cbcf5-6c67-4d9b-98ef-c3f1699cc8fc"),
        ("{0}", None),
    ],
)
def test_vm_id_is_a_uuid_in_lower_case_or_an_error(value: str, vm_id: str | None) -> None:
    body = machine()
    body["metadata"]["annotations"] = {**RECORD, VM_ID_ANNOTATION: value}
    result = build_machine(read_machine(body), read_infrastructure(infrastructure("infra")), TOKEN)
    assert result.vm_id == vm_id
    assert (result.registered_keys_error is None) == (vm_id is not None)
    assert len(result.registered_keys) == 1


def test_missing_infrastructure_object_does_not_prove_that_no_key_is_registered() -> None:
    """By policy, the first TPM may claim a Machine without a registered key."""
    result = build_machine(read_machine(machine()), None, TOKEN)
    assert result.registered_keys_error == (
        "the infrastructure object does not exist, or its API group is not configured"
    )


def test_machine_without_infrastructure_reference_has_no_error() -> None:
    body = machine()
    del body["spec"]["infrastructureRef"]
    assert build_machine(read_machine(body), None, TOKEN).registered_keys_error is None


@pytest.mark.parametrize(
    ("bootstrap_object", "token_id"),
    [
        (TOKEN, "abcdef"),
        (BootstrapObject(token_id=None), None),
        (None, UNKNOWN_TOKEN),
    ],
)
def test_token_is_that_of_the_bootstrap_configuration(
    bootstrap_object: BootstrapObject | None, token_id: str | None
) -> None:
    """A missing configuration must not make every token valid for the Machine."""
    result = build_machine(read_machine(machine()), NOTHING, bootstrap_object)
    assert result.bootstrap_token_id == token_id


def test_other_bootstrap_provider_has_no_token() -> None:
    body = machine()
    body["spec"]["bootstrap"]["configRef"]["kind"] = "TalosConfig"
    assert build_machine(read_machine(body), NOTHING, None).bootstrap_token_id is None


@pytest.mark.parametrize(
    ("token", "token_id"),
    [
        ("abcdef.0123456789abcdef", "abcdef"),
        (None, None),
        ("abcdef.short", UNKNOWN_TOKEN),
        ("abcdef.0123456789abcdef0", UNKNOWN_TOKEN),
        ("0abcdef.0123456789abcdef", UNKNOWN_TOKEN),
        ("ABCDEF.0123456789abcdef", UNKNOWN_TOKEN),
    ],
)
def test_only_the_id_of_a_token_is_kept(token: str | None, token_id: str | None) -> None:
    read = read_bootstrap(bootstrap("config", token))
    assert read == BootstrapObject(token_id=token_id)
    assert "0123456789abcdef" not in repr(read)


DISCOVERIES = {
    "file": {"file": {"kubeConfigPath": "/etc/kubernetes/discovery.conf"}},
    "another token": {"bootstrapToken": {"token": "zzzzzz.0123456789abcdef"}},
}


@pytest.mark.parametrize("discovery", DISCOVERIES.values(), ids=DISCOVERIES)
def test_tls_bootstrap_token_is_the_token_of_the_machine(discovery: dict[str, Any]) -> None:
    """With file discovery it is the only one; kubeadm prefers it to the discovery's own token."""
    body = bootstrap("config", None)
    discovery = discovery | {"tlsBootstrapToken": "abcdef.0123456789abcdef"}
    body["spec"]["joinConfiguration"]["discovery"] = discovery
    assert read_bootstrap(body) == BootstrapObject(token_id="abcdef")


def test_file_discovery_without_token_owns_none() -> None:
    body = bootstrap("config", None)
    body["spec"]["joinConfiguration"]["discovery"] = DISCOVERIES["file"]
    assert read_bootstrap(body) == BootstrapObject(token_id=None)


def test_client_signer_of_an_infrastructure_cluster_is_read() -> None:
    body = infrastructure("infra")
    body["status"] = {"kubeletClientCertificateSigner": "cluster.x-k8s.io/x"}
    assert read_infrastructure(body) == InfrastructureObject(
        registered_keys=NOTHING.registered_keys, client_signer="cluster.x-k8s.io/x"
    )


def test_pool_member_has_only_a_provider_id() -> None:
    read = read_pool(pool("pool-1", "metal://1", "metal://2"))
    assert read.provider_ids == ("metal://1", "metal://2")
    member = build_pool_member(read, "metal://2")
    assert (member.name, member.provider_id, member.is_pool_member) == ("pool-1", "metal://2", True)
    assert (member.registered_keys, member.registered_keys_error, member.addresses) == (
        (),
        None,
        (),
    )
    assert member.bootstrap_token_id is None
    assert not member.deleting


def test_member_of_a_deleted_pool_is_deleting() -> None:
    body = pool("pool-1", "metal://1")
    body["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z"
    assert build_pool_member(read_pool(body), "metal://1").deleting


def test_empty_provider_ids_are_left_out() -> None:
    body = pool("pool-1", "metal://1", "")
    body["spec"]["providerIDList"] += [None]
    assert read_pool(body).provider_ids == ("metal://1",)


@pytest.mark.parametrize(
    "changes",
    [
        {"providerID": 1},
        {"providerID": "x" * 5000},
        {"infrastructureRef": "infra"},
        {"infrastructureRef": {"apiGroup": 1}},
        {"bootstrap": []},
    ],
    ids=str,
)
def test_field_of_another_type_or_size_makes_the_machine_unreadable(
    changes: dict[str, Any],
) -> None:
    """An API server with the schema stores no such object; *absent* would be a statement."""
    body = machine()
    body["spec"] |= changes
    for source in (body, json.dumps(body).encode()):
        with pytest.raises(ValueError, match=next(iter(changes))):
            read_machine(source)


@pytest.mark.parametrize("body", [machine(), old_machine()])
def test_wire_and_values_are_read_alike(body: dict[str, Any]) -> None:
    """The signer reads the wire, and `explain` reads values out of files."""
    assert read_machine(json.dumps(body).encode()) == read_machine(body)
