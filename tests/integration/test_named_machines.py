"""Machines without a registration join because their endorsement certificate names them."""

import uuid
from collections.abc import Iterator

import pytest

from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.signer import Signer, of_cluster
from tests.harness.tpm import TrustDomain
from tests.integration import csrs


@pytest.fixture(scope="module", autouse=True)
def naming(
    signer: Signer, fleet: Fleet, vendor: TrustDomain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Signer]:
    """Let certificates name machines in one cluster, and only certify TPMs in the other."""
    authorities = tmp_path_factory.mktemp("authorities") / "hypervisors.pem"
    authorities.write_bytes(vendor.root + vendor.intermediate)
    certified = {"trust": "Certified", "certificateAuthorities": [str(authorities)]}
    names = {"domainUUID": {"schemes": ["openstack"]}}
    with signer.with_policies(
        of_cluster(fleet.first, endorsementKey={**certified, "certificateNames": names}),
        of_cluster(fleet.second, endorsementKey=certified),
    ) as running:
        yield running


def virtual_machine(machines: Machines, server: str = "", *, domain: str = "") -> Node:
    """Boot a server of OpenStack whose TPM was made for a domain; by default its own one."""
    server = server or str(uuid.uuid4())
    tpm = machines.tpm(seed=f"instance-0000002a:{domain or server}")
    node = machines.power_on(tpm=tpm)
    node.provider_id = f"openstack:///{server}"
    machines.fleet.add_machine(node.tenant, Machine(node.name, provider_id=node.provider_id))
    return node


def test_a_machine_without_a_registration_joins_and_renews(
    machines: Machines, fleet: Fleet
) -> None:
    node = virtual_machine(machines)
    assert node.call().status == 0
    assert csrs.held(node, fleet.management.admin)["basis"] == "CertificateName"
    assert node.call("renew", "--kubeconfig", str(node.kubeconfig())).status == 0


def test_the_tpm_of_another_machine_is_denied(machines: Machines) -> None:
    node = virtual_machine(machines, domain=str(uuid.uuid4()))
    call = node.call()
    assert call.status == 1
    assert "EndorsementCertificateOfOtherMachine" in call.complaint


def test_a_machine_that_was_made_again_joins_with_its_new_tpm(
    machines: Machines, fleet: Fleet
) -> None:
    """The server was rebuilt: same UUID, another TPM, and the Node of the old one still exists."""
    server = str(uuid.uuid4())
    before = virtual_machine(machines, server)
    assert before.call().status == 0
    machines.forget(before)
    after = virtual_machine(machines, server)
    assert after.call().status == 0
    assert csrs.held(after, fleet.management.admin)["basis"] == "CertificateName"
