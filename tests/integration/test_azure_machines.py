"""Virtual machines of Azure join without a registration: their quotes name them.

In the first Cluster an annotation has the VM ID, in the second one the platform gives it.
"""

import dataclasses
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from authenticator.tpm.open_tpm import open_tpm
from common.names import VM_ID_ANNOTATION
from tests.builders.certificates import Issuer, authority
from tests.builders.virtual_machines import X64
from tests.fakes.api_server import FakeApiServer, api_server
from tests.fakes.azure import FakeAzure, credentials_file
from tests.harness.azure import make_virtual_machine
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.signer import Signer, of_cluster
from tests.integration import csrs
from tests.integration.tpms import seconds

SUBSCRIPTION = "9a3f1c5e-0f7b-4d4c-8b1a-2c9d3e4f5a6b"
COMPUTE = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/team-a/providers/Microsoft.Compute"
    "/virtualMachines"
)


@pytest.fixture(scope="module")
def azure() -> Issuer:
    """Make the authority that certifies attestation keys."""
    now = datetime.now(UTC)
    return authority("Tests Virtual TPM Root", begins=now - timedelta(days=2))


@dataclass(frozen=True, slots=True)
class ResourceManager:
    """The API that knows the IDs of virtual machines."""

    service: FakeAzure
    server: FakeApiServer
    credentials_file: Path


@pytest.fixture(scope="module")
def resource_manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResourceManager]:
    directory, service = tmp_path_factory.mktemp("resource-manager"), FakeAzure()
    with api_server(service.handle, directory) as server:
        yield ResourceManager(service, server, credentials_file(directory, server))


@pytest.fixture(scope="module", autouse=True)
def naming(
    signer: Signer,
    fleet: Fleet,
    azure: Issuer,
    resource_manager: ResourceManager,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Signer]:
    """Let quotes by certified keys name machines."""
    authorities = tmp_path_factory.mktemp("authorities") / "azure.der"
    authorities.write_bytes(azure.der)
    keys = {"certificateAuthorities": [str(authorities)]}
    platform = {
        "type": "azure",
        "credentialsFile": str(resource_manager.credentials_file),
        "locations": [SUBSCRIPTION],
    }
    with signer.with_policies(
        of_cluster(fleet.first, attestationKey=keys),
        of_cluster(fleet.second, attestationKey=keys, endorsementKey={"platform": platform}),
    ) as running:
        yield running


def virtual_machine(  # noqa: PLR0913 - each by name
    machines: Machines,
    issuer: Issuer,
    *,
    provider_id: str = "",
    vm_id: str = "",
    events: tuple[bytes, ...] = (),
    has_policy: bool = False,
) -> Node:
    """Boot a virtual machine of Azure, whose Machine has the VM ID; by default its own one."""
    own = str(uuid.uuid4())
    tpm = machines.tpm(certificates=())
    make_virtual_machine(tpm, issuer, own, more_events=events, has_policy=has_policy)
    node = machines.power_on(tpm=tpm, settings={"provider": "azure"})
    node.provider_id = provider_id or node.provider_id
    annotations = {VM_ID_ANNOTATION: vm_id or own}
    spec = Machine(node.name, provider_id=node.provider_id, annotations=annotations)
    machines.fleet.add_machine(node.tenant, spec)
    return node


def known_to_resource_manager(
    machines: Machines, issuer: Issuer, service: FakeAzure, *, vm_id: str = ""
) -> Node:
    """Boot a virtual machine of Azure whose Machine has no annotation."""
    own = str(uuid.uuid4())
    tpm = machines.tpm(certificates=())
    make_virtual_machine(tpm, issuer, own)
    node = machines.power_on(machines.fleet.second, tpm=tpm, settings={"provider": "azure"})
    node.provider_id = f"azure://{COMPUTE}/{node.name}"
    machines.fleet.add_machine(node.tenant, Machine(node.name, provider_id=node.provider_id))
    service.vm_ids[f"{COMPUTE}/{node.name}"] = vm_id or own
    return node


def test_the_platform_names_the_virtual_machine_of_a_machine(
    machines: Machines, fleet: Fleet, azure: Issuer, resource_manager: ResourceManager
) -> None:
    node = known_to_resource_manager(machines, azure, resource_manager.service)
    call = node.call()
    assert call.status == 0, call.complaint
    assert csrs.held(node, fleet.management.admin)["basis"] == "CertificateName"
    assert node.call("renew", "--kubeconfig", str(node.kubeconfig())).status == 0


def test_another_virtual_machine_than_the_one_of_the_platform_is_denied(
    machines: Machines, azure: Issuer, resource_manager: ResourceManager
) -> None:
    service, other = resource_manager.service, str(uuid.uuid4())
    call = known_to_resource_manager(machines, azure, service, vm_id=other).call()
    assert call.status == 1
    assert "QuoteOfOtherMachine" in call.complaint


@pytest.mark.parametrize(
    ("events", "has_policy"), [((), True), ((X64,), False)], ids=["older", "newer"]
)
def test_a_machine_without_a_registration_joins_renews_and_is_banned(
    machines: Machines,
    fleet: Fleet,
    azure: Issuer,
    events: tuple[bytes, ...],
    has_policy: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    node = virtual_machine(machines, azure, events=events, has_policy=has_policy)
    call = node.call()
    assert call.status == 0, call.complaint
    assert csrs.held(node, fleet.management.admin)["basis"] == "CertificateName"
    assert node.call("renew", "--kubeconfig", str(node.kubeconfig())).status == 0
    ban(node, fleet)
    banned = node.call("renew", "--kubeconfig", str(node.kubeconfig()))
    assert "EndorsementKeyBanned" in banned.complaint


def ban(node: Node, fleet: Fleet) -> None:
    """Ban the key that the node's claim names."""
    key = csrs.claim(node, fleet.management.admin)["endorsementKey"]
    path = f"{csrs.ENDORSEMENT_KEYS}/{key}"
    fleet.management.admin.patch(path, {"spec": {"banned": {"reason": "stolen"}}})


def test_a_ban_reaches_each_endorsement_key_of_the_virtual_machine(
    machines: Machines, fleet: Fleet, azure: Issuer
) -> None:
    node = virtual_machine(machines, azure)
    assert node.call().status == 0
    ban(node, fleet)
    other = dataclasses.replace(
        node,
        directory=node.directory.with_name(f"{node.name}-other"),
        settings={**node.settings, "endorsementKeyType": "ecc"},
    )
    other.give_token(node.tenant.workload.bootstrap_token())
    call = other.call()
    assert call.status == 1
    assert "EndorsementKeyBanned" in call.complaint


@pytest.mark.parametrize(
    ("vm_id", "events"),
    [(str(uuid.uuid4()), ()), ("", (b"resume from hibernation",))],
    ids=["another virtual machine", "something else in PCR 6"],
)
def test_a_quote_that_does_not_name_the_virtual_machine_is_denied(
    machines: Machines, azure: Issuer, vm_id: str, events: tuple[bytes, ...]
) -> None:
    call = virtual_machine(machines, azure, vm_id=vm_id, events=events).call()
    assert call.status == 1
    assert "QuoteOfOtherMachine" in call.complaint


def test_a_virtual_machine_that_was_made_again_joins_with_its_new_tpm(
    machines: Machines, fleet: Fleet, azure: Issuer
) -> None:
    """It has the same name and another VM ID; the Node of the old virtual machine still exists."""
    before = virtual_machine(machines, azure)
    assert before.call().status == 0
    machines.forget(before)
    after = virtual_machine(machines, azure, provider_id=before.provider_id)
    call = after.call()
    assert call.status == 0, call.complaint
    assert csrs.held(after, fleet.management.admin)["basis"] == "CertificateName"


def test_a_key_that_the_certificate_is_not_for_is_left_alone(
    machines: Machines, azure: Issuer
) -> None:
    """Also without the provider: the node makes its own key, and sends no certificate."""
    tpm = machines.tpm()
    with open_tpm(tpm.tcti, deadline=seconds()) as opened:
        own = opened.attestation_key()
    stranger = generate_private_key(65537, 2048).public_key()
    make_virtual_machine(tpm, azure, str(uuid.uuid4()), certified=stranger)
    with open_tpm(tpm.tcti, prefer_certified=True, deadline=seconds()) as opened:
        assert opened.attestation_key() == own
    assert own.certificate is None
