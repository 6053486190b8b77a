"""Machines without a registration join because their endorsement certificate names them.

In the first Cluster, hypervisors name domains of libvirt, and in the second one, Google names
instances. Each test runs for both.
"""

import secrets
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.builders.certificates import Issuer, authority
from tests.builders.machine_names import PROJECT, ZONE, gce_extension, gce_members, named_leaf
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.signer import Signer, of_cluster
from tests.harness.tpm import EndorsementKey, TrustDomain
from tests.integration import csrs
from tests.integration.operator_calls import key_of
from tests.integration.scripted_node import Script


@pytest.fixture(scope="module")
def google() -> Issuer:
    """Make the authority that certifies the TPMs of instances."""
    return authority("Tests EK Root", begins=datetime.now(UTC) - timedelta(days=30))


@pytest.fixture(scope="module", autouse=True)
def naming(
    signer: Signer,
    fleet: Fleet,
    vendor: TrustDomain,
    google: Issuer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Signer]:
    directory = tmp_path_factory.mktemp("authorities")
    hypervisors, cloud = directory / "hypervisors.pem", directory / "google.der"
    hypervisors.write_bytes(vendor.root + vendor.intermediate)
    cloud.write_bytes(google.der)
    domains = {
        "certificateAuthorities": [str(hypervisors)],
        "certificateNames": {"domainUUID": {"schemes": ["openstack"]}},
    }
    instances = {
        "certificateAuthorities": [str(cloud)],
        "certificateNames": {"gce": {"projects": [PROJECT]}},
    }
    with signer.with_policies(
        of_cluster(fleet.first, endorsementKey={"trust": "Certified", **domains}),
        of_cluster(fleet.second, endorsementKey={"trust": "Certified", **instances}),
    ) as running:
        yield running


Make = Callable[[Machines, Issuer, str, str], Node]
"""Boots a virtual machine of this name, whose TPM was made for the one of the other name."""


def domain(machines: Machines, _: Issuer, name: str, named: str) -> Node:
    """Boot a server of OpenStack; swtpm_localca certifies its TPM."""
    tpm = machines.tpm(seed=f"instance-0000002a:{named}")
    node = machines.power_on(tpm=tpm)
    node.provider_id = f"openstack:///{name}"
    machines.fleet.add_machine(node.tenant, Machine(node.name, provider_id=node.provider_id))
    return node


def instance(
    machines: Machines, google: Issuer, name: str, named: str, project: str = PROJECT
) -> Node:
    """Boot an instance of Google; its TPM has a certificate as Google writes it."""
    tpm = machines.tpm(certificates=())
    kind = EndorsementKey.RSA_2048
    extension = gce_extension(gce_members(project=project, instance=f"vm-{named}"))
    certificate = named_leaf(google, tpm.endorsement_public_key(kind), extension=extension)
    tpm.write_nv(kind.value.certificate, certificate)
    node = machines.power_on(machines.fleet.second, tpm=tpm)
    node.provider_id = f"gce://{project}/{ZONE}/vm-{name}"
    machines.fleet.add_machine(node.tenant, Machine(node.name, provider_id=node.provider_id))
    return node


def unnamed(machines: Machines, authority: Issuer, make: Make) -> Node:
    """Boot a machine whose TPM has a certificate of the same authority that names nothing."""
    name = str(uuid.uuid4())
    if make is domain:
        return domain(machines, authority, name, name.upper())
    tpm = machines.tpm(certificates=())
    kind = EndorsementKey.RSA_2048
    public = tpm.endorsement_public_key(kind)
    tpm.write_nv(kind.value.certificate, named_leaf(authority, public))
    node = machines.power_on(machines.fleet.second, tpm=tpm)
    node.provider_id = f"gce://{PROJECT}/{ZONE}/vm-{name}"
    machines.fleet.add_machine(node.tenant, Machine(node.name, provider_id=node.provider_id))
    return node


both = pytest.mark.parametrize("make", [domain, instance])


@both
def test_a_machine_without_a_registration_joins_and_renews(
    machines: Machines, fleet: Fleet, google: Issuer, make: Make
) -> None:
    name = str(uuid.uuid4())
    node = make(machines, google, name, name)
    call = node.call()
    assert call.status == 0, call.complaint
    assert csrs.held(node, fleet.management.admin)["basis"] == "CertificateName"
    assert node.call("renew", "--kubeconfig", str(node.kubeconfig())).status == 0


@both
def test_the_tpm_of_another_machine_is_denied(
    machines: Machines, google: Issuer, make: Make
) -> None:
    call = make(machines, google, str(uuid.uuid4()), str(uuid.uuid4())).call()
    assert call.status == 1
    assert "EndorsementCertificateOfOtherMachine" in call.complaint


@both
def test_a_certificate_that_names_no_machine_waits(
    machines: Machines, google: Issuer, make: Make
) -> None:
    Script(unnamed(machines, google, make)).waiting_for("EndorsementCertificateUnnamed")


def test_an_instance_of_a_project_that_the_policy_does_not_list_is_denied(
    machines: Machines, google: Issuer
) -> None:
    name = secrets.token_hex(4)
    call = instance(machines, google, name, name, project="example.com:team-b").call()
    assert call.status == 1
    assert "EndorsementCertificateNameNotAllowed" in call.complaint


@both
def test_a_ban_ends_what_a_certificate_says(
    machines: Machines, fleet: Fleet, google: Issuer, make: Make
) -> None:
    name = str(uuid.uuid4())
    node = make(machines, google, name, name)
    assert node.call().status == 0
    path = f"{csrs.ENDORSEMENT_KEYS}/{key_of(node)}"
    fleet.management.admin.patch(path, {"spec": {"banned": {"reason": "stolen"}}})
    call = node.call("renew", "--kubeconfig", str(node.kubeconfig()))
    assert "EndorsementKeyBanned" in call.complaint


@both
def test_a_machine_that_was_made_again_joins_with_its_new_tpm(
    machines: Machines, fleet: Fleet, google: Issuer, make: Make
) -> None:
    """The server was rebuilt: same name, another TPM, and the Node of the old one still exists."""
    name = str(uuid.uuid4())
    before = make(machines, google, name, name)
    assert before.call().status == 0
    machines.forget(before)
    after = make(machines, google, name, name)
    assert after.call().status == 0
    assert csrs.held(after, fleet.management.admin)["basis"] == "CertificateName"
