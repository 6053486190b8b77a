"""VMware's simulator and the fake vCenter Server give the platform `vsphere` the same answers.

The simulator decodes each request and encodes each answer with VMware's own types, and has VMware's
idea of folders, references and properties. Its sessions are those of the test program.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.errors import PlatformLocationNotAllowed, PlatformQueryFailed
from signer.platforms.vsphere import Vsphere
from signer.policy.policy import PlatformRules
from tests.fakes import vcenter
from tests.fakes.api_server import HOST, api_server
from tests.fakes.vcenter import FakeVcenter, VirtualMachine
from tests.harness import pki, vcenter_simulator

RSA_KEY, ECC_KEY = pki.rsa_key(), ec.generate_private_key(ec.SECP256R1())
KEYS = [
    key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    for key in (RSA_KEY, ECC_KEY)
]
CERTIFICATES = [
    pki.Authority.make("vTPM", key).certificate.public_bytes(Encoding.DER)
    for key in (RSA_KEY, ECC_KEY)
]
WITH_TPM = "42180cbd-9d43-7b1c-6a0c-0f8a7c5a1e01"
WITHOUT_TPM = "42180cbd-9d43-7b1c-6a0c-0f8a7c5a1e02"
NO_CERTIFICATE = "42180cbd-9d43-7b1c-6a0c-0f8a7c5a1e03"
ABSENT = "42180cbd-9d43-7b1c-6a0c-0f8a7c5a1e04"
MACHINES = [
    VirtualMachine(WITH_TPM, "/DC0/vm/team-a", CERTIFICATES),
    VirtualMachine(WITHOUT_TPM, "/DC0/vm/team-a"),
    VirtualMachine(NO_CERTIFICATE, "/DC0/vm/team-a", []),
    VirtualMachine(WITH_TPM, "/DC1/vm/team-b", CERTIFICATES[1:]),
]


@pytest.fixture(scope="module", params=["fake", "simulator"])
def account(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Return the credentials of the account of a server."""
    if request.param == "simulator":
        with vcenter_simulator.vcenter_simulator(MACHINES) as simulator:
            yield {
                "server": simulator.server,
                "username": vcenter_simulator.USERNAME,
                "password": vcenter_simulator.PASSWORD,
                "caFile": str(simulator.ca_file),
            }
        return
    directory = tmp_path_factory.mktemp("vcenter")
    with api_server(FakeVcenter(machines=MACHINES).handle, directory) as server:
        bundle = directory / "ca.crt"
        bundle.write_bytes(server.authority.pair.certificate)
        yield {
            "server": f"{HOST}:{server.server_port}",
            "username": vcenter.USERNAME,
            "password": vcenter.PASSWORD,
            "caFile": str(bundle),
        }


def platform(account: dict[str, str], directory: Path, *locations: str) -> Vsphere:
    file = directory / "vsphere.json"
    file.write_text(json.dumps(account), encoding="utf-8")
    return Vsphere(
        PlatformRules(
            type="vsphere", credentials_file=str(file), locations=frozenset(locations or ("/DC0",))
        )
    )


def test_keys_of_both_certificates_are_read(account: dict[str, str], tmp_path: Path) -> None:
    keys = platform(account, tmp_path).endorsement_keys(f"vsphere://{WITH_TPM}")
    assert keys == KEYS


@pytest.mark.parametrize("uuid", [WITHOUT_TPM, NO_CERTIFICATE, ABSENT])
def test_vm_without_a_key_has_none(account: dict[str, str], tmp_path: Path, uuid: str) -> None:
    assert platform(account, tmp_path).endorsement_keys(f"vsphere://{uuid}") == []


def test_copy_of_a_uuid_is_known_by_its_folder(account: dict[str, str], tmp_path: Path) -> None:
    vsphere = platform(account, tmp_path, "/DC1/vm")
    assert vsphere.endorsement_keys(f"vsphere://{WITH_TPM}") == KEYS[1:]


def test_two_vms_in_the_allowed_folders_decide_nothing(
    account: dict[str, str], tmp_path: Path
) -> None:
    vsphere = platform(account, tmp_path, "/DC0", "/DC1")
    with pytest.raises(PlatformQueryFailed, match="several VMs"):
        vsphere.endorsement_keys(f"vsphere://{WITH_TPM}")


def test_vm_in_another_folder_is_not_used(account: dict[str, str], tmp_path: Path) -> None:
    vsphere = platform(account, tmp_path, "/DC0/vm/team-b")
    with pytest.raises(PlatformLocationNotAllowed) as caught:
        vsphere.endorsement_keys(f"vsphere://{WITH_TPM}")
    assert set(caught.value.detail.split(", ")) == {"/DC0/vm/team-a", "/DC1/vm/team-b"}


def test_wrong_password_is_refused(account: dict[str, str], tmp_path: Path) -> None:
    vsphere = platform({**account, "password": "wrong"}, tmp_path)
    with pytest.raises(PlatformQueryFailed) as caught:
        vsphere.endorsement_keys(f"vsphere://{WITH_TPM}")
    assert caught.value.detail.startswith("InvalidLogin")
