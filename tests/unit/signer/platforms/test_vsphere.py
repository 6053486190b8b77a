"""Endorsement keys from vSphere, against a server that answers as the reference of its API says."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.errors import PlatformLocationNotAllowed, PlatformQueryFailed, PlatformUnavailable
from signer.platforms import vsphere
from signer.platforms.vsphere import Vsphere
from signer.platforms.vsphere_api.vsphere_session import VcenterSessions
from tests.builders.software_tpm import rsa_key
from tests.fakes import vcenter
from tests.fakes.api_server import HOST, Answering, FakeApiServer, Handler, api_server
from tests.fakes.platforms import with_file
from tests.fakes.vcenter import PASSWORD, TOKEN, USERNAME, FakeVcenter, VirtualMachine, give_fault
from tests.harness import pki

UUID = "42180cbd-9d43-7b1c-6a0c-0f8a7c5a1e01"
PROVIDER_ID = f"vsphere://{UUID}"
FOLDER = "/dc-1/vm/team-a"
RETRIEVE = "RetrievePropertiesEx"


def certified(key: pki.PrivateKey) -> tuple[bytes, bytes]:
    """Return a certificate and the key that it certifies, both as DER."""
    certificate = pki.Authority.make("vTPM", key).certificate.public_bytes(Encoding.DER)
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return certificate, public


RSA_CERTIFICATE, RSA = certified(rsa_key())
ECC_CERTIFICATE, ECC = certified(ec.generate_private_key(ec.SECP256R1()))
VERSION_3, VERSION_8 = (bytes([0xA0, 3, 2, 1, number - 1]) for number in (3, 8))
UNKNOWN_VERSION = base64.b64encode(ECC_CERTIFICATE.replace(VERSION_3, VERSION_8, 1)).decode()


@pytest.fixture
def vms() -> FakeVcenter:
    machine = VirtualMachine(UUID, FOLDER, [RSA_CERTIFICATE, ECC_CERTIFICATE])
    return FakeVcenter(machines=[machine])


@pytest.fixture
def service(vms: FakeVcenter, tmp_path: Path) -> Iterator[FakeApiServer]:
    with api_server(vms.handle, tmp_path) as server:
        (tmp_path / "ca.crt").write_bytes(server.authority.pair.certificate)
        yield server


@pytest.fixture
def platform(
    service: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Vsphere]:
    """Return a function that makes the platform of a policy with these locations."""
    # Sessions of other tests could have the same port and password.
    monkeypatch.setattr(vsphere, "_SESSIONS", VcenterSessions())
    rules = with_file(credentials_file(service, tmp_path))
    return lambda *locations: Vsphere(replace(rules, locations=frozenset(locations or (FOLDER,))))


def credentials_file(service: FakeApiServer, directory: Path, **changes: object) -> Path:
    file = directory / "vsphere.json"
    fields = {
        "server": f"{HOST}:{service.server_port}",
        "username": USERNAME,
        "password": PASSWORD,
        "caFile": str(directory / "ca.crt"),
        **changes,
    }
    file.write_text(json.dumps(fields), encoding="utf-8")
    return file


Make = Callable[..., Vsphere]


def test_keys_of_all_certificates_are_read(platform: Make) -> None:
    assert platform().endorsement_keys(PROVIDER_ID) == [RSA, ECC]


@pytest.mark.parametrize("certificates", [None, []])
def test_vm_without_endorsement_certificates_has_no_keys(
    certificates: Sequence[bytes] | None, platform: Make, vms: FakeVcenter
) -> None:
    vms.machines[0].certificates = certificates
    assert platform().endorsement_keys(PROVIDER_ID) == []


def test_vm_that_does_not_exist_has_no_keys(platform: Make) -> None:
    assert platform().endorsement_keys(PROVIDER_ID.replace("42180", "52180")) == []


def test_answer_without_content_says_that_there_is_no_vm(platform: Make, vms: FakeVcenter) -> None:
    vms.overrides["FindAllByUuid"] = lambda a: a.give(b"", 204)
    assert platform().endorsement_keys(PROVIDER_ID) == []


@pytest.mark.parametrize("location", ["/dc-1", "/dc-1/vm", FOLDER])
def test_location_is_the_folder_of_the_vm_or_one_above(location: str, platform: Make) -> None:
    assert platform("/elsewhere", location).endorsement_keys(PROVIDER_ID) == [RSA, ECC]


@pytest.mark.parametrize("location", ["/dc", "/dc-2", "/dc-1/vm/team", FOLDER + "/pool", "/", "vm"])
def test_vm_in_another_location_is_not_used(location: str, platform: Make) -> None:
    with pytest.raises(PlatformLocationNotAllowed) as caught:
        platform(location).endorsement_keys(PROVIDER_ID)
    assert caught.value.detail == FOLDER


def test_copied_uuid_in_another_location_changes_nothing(platform: Make, vms: FakeVcenter) -> None:
    """The owner of a VM may set its UUID."""
    vms.machines.insert(0, VirtualMachine(UUID, "/dc-1/vm/team-b", [ECC_CERTIFICATE]))
    vms.machines[1].certificates = [RSA_CERTIFICATE]
    assert platform().endorsement_keys(PROVIDER_ID) == [RSA]


def test_many_copies_of_a_uuid_with_many_devices_change_nothing(
    platform: Make, vms: FakeVcenter
) -> None:
    """Seventeen VMs with the UUID, or a few with many devices, kept the machine out."""
    large = [bytes(400_000)] * 3
    vms.machines += [VirtualMachine(UUID, "/dc-1/vm/team-b", large) for _ in range(100)]
    assert platform().endorsement_keys(PROVIDER_ID) == [RSA, ECC]


def test_many_copies_of_a_uuid_do_not_fill_the_log(platform: Make, vms: FakeVcenter) -> None:
    vms.machines = [VirtualMachine(UUID, "/dc-1/vm/team-b") for _ in range(500)]
    with pytest.raises(PlatformLocationNotAllowed) as caught:
        platform().endorsement_keys(PROVIDER_ID)
    assert len(caught.value.detail) == 1000


def test_vm_that_leaves_the_allowed_location_meanwhile_is_not_used(
    platform: Make, vms: FakeVcenter
) -> None:
    """Where several VMs have the UUID, the folders are read again with the devices."""
    vms.machines.append(VirtualMachine(UUID, "/dc-1/vm/team-b"))

    def move(answering: Answering) -> None:
        del vms.overrides[RETRIEVE]
        vms.calls.pop()
        vms.handle(answering)
        vms.machines[0].folder = "/dc-1/vm/team-b"

    vms.overrides[RETRIEVE] = move
    with pytest.raises(PlatformLocationNotAllowed):
        platform().endorsement_keys(PROVIDER_ID)


def test_copied_uuid_in_an_allowed_location_decides_nothing(
    platform: Make, vms: FakeVcenter
) -> None:
    vms.machines.append(VirtualMachine(UUID, FOLDER, [ECC_CERTIFICATE]))
    with pytest.raises(PlatformQueryFailed, match="several VMs"):
        platform().endorsement_keys(PROVIDER_ID)


def test_number_of_vms_with_one_uuid_is_bounded(platform: Make, vms: FakeVcenter) -> None:
    vms.machines *= 501
    with pytest.raises(PlatformQueryFailed, match="too many VMs"):
        platform().endorsement_keys(PROVIDER_ID)
    assert RETRIEVE not in vms.calls


MACHINE = vcenter.reference("VirtualMachine", "vm-0")


def test_vm_without_a_folder_is_not_used(platform: Make, vms: FakeVcenter) -> None:
    """A VM in a vApp has no parent."""
    vms.overrides[RETRIEVE] = lambda a: a.give({"objects": [vcenter.content(MACHINE, {})]})
    with pytest.raises(PlatformLocationNotAllowed) as caught:
        platform().endorsement_keys(PROVIDER_ID)
    assert "needs System.View" in caught.value.detail


def test_folders_that_contain_each_other_are_no_location(platform: Make, vms: FakeVcenter) -> None:
    folder = vcenter.reference("Folder", "group-v3")
    properties = {"name": vcenter.text("dc-1"), "parent": folder}
    objects = [vcenter.content(MACHINE, properties), vcenter.content(folder, properties)]
    vms.overrides[RETRIEVE] = lambda a: a.give({"objects": objects})
    with pytest.raises(PlatformLocationNotAllowed):
        platform("/dc-1").endorsement_keys(PROVIDER_ID)


ROOT = vcenter.reference("Folder", "group-d1")
BELOW_ROOT = {"parent": ROOT}
UUID_TEXT = vcenter.text(UUID)


def devices(*listed: object) -> dict[str, object]:
    return {"_typeName": "ArrayOfVirtualDevice", "_value": list(listed)}


def about(
    properties: Mapping[str, object], above_folder: Mapping[str, object] = BELOW_ROOT
) -> Handler:
    """Answer about a VM in `/dc-1`, if that is below the root folder."""
    complete = {"config.uuid": UUID_TEXT, "config.hardware.device": devices(), **properties}
    folder = vcenter.reference("Datacenter", "datacenter-2")
    objects = [
        vcenter.content(MACHINE, {"parent": folder, **complete}),
        vcenter.content(folder, {"name": vcenter.text("dc-1"), **above_folder}),
    ]
    return lambda a: a.give({"objects": objects})


def tpm(*encoded: object) -> dict[str, object]:
    return {"_typeName": "VirtualTPM", "endorsementKeyCertificate": list(encoded)}


def test_answer_about_the_vm_is_used(platform: Make, vms: FakeVcenter) -> None:
    """The good case of the answers below."""
    vms.overrides[RETRIEVE] = about({})
    assert platform("/dc-1").endorsement_keys(PROVIDER_ID) == []


@pytest.mark.parametrize("above", [{}, {"parent": vcenter.reference("Folder", "group-d9")}])
def test_path_that_does_not_lead_to_the_root_is_no_location(
    above: dict[str, object], platform: Make, vms: FakeVcenter
) -> None:
    """The account lacks a right on a folder above `dc-1`, which may be in any place."""
    vms.overrides[RETRIEVE] = about({}, above)
    with pytest.raises(PlatformLocationNotAllowed) as caught:
        platform("/dc-1").endorsement_keys(PROVIDER_ID)
    assert "needs System.View" in caught.value.detail


def with_devices(*listed: object) -> Handler:
    """Answer about a VM with these devices."""
    return about({"config.hardware.device": devices(*listed)})


FAILED: dict[str, Handler] = {
    "another VM": about({"config.uuid": vcenter.text("0" * 36)}),
    "no devices": about({"config.hardware.device": None}),
    "devices of another form": with_devices(1),
    "certificate that is no base64": with_devices(tpm("!")),
    "certificate that is no certificate": with_devices(tpm("MAA=")),
    "certificate of an unknown version": with_devices(tpm(UNKNOWN_VERSION)),
    "certificate that is no text": with_devices(tpm({"a": 1})),
    "first part of an answer": lambda a: a.give({"token": "1"}),
    "no JSON": lambda a: a.give(b"<html>"),
    "deep JSON": lambda a: a.give(b"[" * 100_000),
    "no object": lambda a: a.give([]),
    "object without a reference": lambda a: a.give({"objects": [{}]}),
    "objects of another form": lambda a: a.give({"objects": {}}),
    "too large": lambda a: a.give(b" " * (2 << 20)),
    "no permission": lambda a: give_fault(a, "NoPermission"),
    "redirect": lambda a: a.give(b"", 302, Location="https://example.org"),
}
UNAVAILABLE: dict[str, Handler] = {
    "fault without a name": lambda a: a.give(b"{}", 500),
    "error of a proxy": lambda a: a.give(b"<html>", 500),
    "outage": lambda a: a.give(b"no healthy upstream", 503),
    "throttled": lambda a: a.give(b"", 429),
}


@pytest.mark.parametrize("name", [*FAILED, *UNAVAILABLE])
def test_other_answers_are_not_used(name: str, platform: Make, vms: FakeVcenter) -> None:
    vms.overrides[RETRIEVE] = {**FAILED, **UNAVAILABLE}[name]
    with pytest.raises(PlatformQueryFailed if name in FAILED else PlatformUnavailable):
        platform("/dc-1").endorsement_keys(PROVIDER_ID)


def test_one_session_serves_several_queries(platform: Make, vms: FakeVcenter) -> None:
    for _ in range(3):
        platform().endorsement_keys(PROVIDER_ID)
    assert vms.calls.count("Login") == 1


def test_queries_at_the_same_time_log_in_once(platform: Make, vms: FakeVcenter) -> None:
    threads = 4
    barrier = Barrier(threads)

    def query(_: int) -> object:
        barrier.wait()
        return platform().endorsement_keys(PROVIDER_ID)

    with ThreadPoolExecutor(threads) as executor:
        assert list(executor.map(query, range(threads))) == [[RSA, ECC]] * threads
    assert vms.calls.count("Login") == 1


def test_session_that_vcenter_has_ended_is_replaced(platform: Make, vms: FakeVcenter) -> None:
    platform().endorsement_keys(PROVIDER_ID)
    vms.sessions.clear()
    assert platform().endorsement_keys(PROVIDER_ID) == [RSA, ECC]
    assert vms.calls.count("Login") == 2


def test_session_that_ends_with_status_401_is_replaced(platform: Make, vms: FakeVcenter) -> None:
    """A proxy in front of vCenter answers so."""
    statuses = iter([401, 200])
    vms.overrides["FindAllByUuid"] = lambda a: a.give([], next(statuses))
    assert platform().endorsement_keys(PROVIDER_ID) == []
    assert vms.calls.count("Login") == 2


def test_session_that_never_works_is_replaced_once(platform: Make, vms: FakeVcenter) -> None:
    vms.overrides["FindAllByUuid"] = lambda a: give_fault(a, "NotAuthenticated")
    with pytest.raises(PlatformQueryFailed, match="refuses the query"):
        platform().endorsement_keys(PROVIDER_ID)
    assert vms.calls.count("Login") == 2


def test_changed_credentials_are_used_at_once_and_end_the_session(
    platform: Make, vms: FakeVcenter, service: FakeApiServer, tmp_path: Path
) -> None:
    platform().endorsement_keys(PROVIDER_ID)
    (before,) = vms.sessions
    vms.password = "rotated"
    credentials_file(service, tmp_path, password=vms.password)
    assert platform().endorsement_keys(PROVIDER_ID) == [RSA, ECC]
    assert len(vms.sessions) == 1
    assert before not in vms.sessions


def test_refused_login_is_not_repeated_with_the_same_password(
    platform: Make, vms: FakeVcenter, service: FakeApiServer, tmp_path: Path
) -> None:
    """VCenter would lock the account."""
    vms.password = "changed"
    with pytest.raises(PlatformQueryFailed, match="credentials"):
        platform().endorsement_keys(PROVIDER_ID)
    with pytest.raises(PlatformQueryFailed, match="credentials") as caught:
        platform().endorsement_keys(PROVIDER_ID)
    assert "5 minutes" in caught.value.detail
    assert vms.calls == ["Login"]
    credentials_file(service, tmp_path, password=vms.password)
    assert platform().endorsement_keys(PROVIDER_ID) == [RSA, ECC]


def test_outage_at_login_is_no_refused_login(platform: Make, vms: FakeVcenter) -> None:
    vms.overrides["Login"] = lambda a: a.give(b"", 503)
    with pytest.raises(PlatformUnavailable):
        platform().endorsement_keys(PROVIDER_ID)
    del vms.overrides["Login"]
    assert platform().endorsement_keys(PROVIDER_ID) == [RSA, ECC]


@pytest.mark.parametrize("headers", [{}, {TOKEN: "short"}, {TOKEN: "with a space"}])
def test_login_without_a_session_is_reported(
    headers: dict[str, str], platform: Make, vms: FakeVcenter
) -> None:
    vms.overrides["Login"] = lambda a: a.give({}, 200, **headers)
    with pytest.raises(PlatformQueryFailed, match="answer to a login"):
        platform().endorsement_keys(PROVIDER_ID)


def test_server_of_another_authority_does_not_get_the_password(
    service: FakeApiServer, platform: Make, tmp_path: Path
) -> None:
    stranger = pki.Authority.make("stranger", pki.ec_key())
    (tmp_path / "ca.crt").write_bytes(stranger.pair.certificate)
    with pytest.raises(PlatformUnavailable):
        platform().endorsement_keys(PROVIDER_ID)
    assert service.requests == []


@pytest.mark.parametrize(
    "changes",
    [
        {"server": "https://vcenter.example.org"},
        {"server": "vcenter.example.org/path"},
        {"server": "user@vcenter.example.org"},
        {"password": ""},
        {"password": 1},
        {"insecure": "true"},
    ],
)
def test_credentials_that_cannot_be_used_are_reported_without_the_password(
    changes: dict[str, object], platform: Make, service: FakeApiServer, tmp_path: Path
) -> None:
    credentials_file(service, tmp_path, **changes)
    with pytest.raises(PlatformQueryFailed, match="credentials") as caught:
        platform().endorsement_keys(PROVIDER_ID)
    assert PASSWORD not in caught.value.detail
    assert service.requests == []


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_file_without_credentials_is_reported(
    content: bytes, platform: Make, tmp_path: Path
) -> None:
    (tmp_path / "vsphere.json").write_bytes(content)
    with pytest.raises(PlatformQueryFailed) as caught:
        platform().endorsement_keys(PROVIDER_ID)
    assert "must be JSON with the texts" in caught.value.detail


def test_provider_id_names_no_location(platform: Make) -> None:
    assert platform().location(PROVIDER_ID) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    "provider_id",
    [
        "vsphere://",
        f"vsphere:///{UUID}",
        f"vsphere://{UUID.upper()}",
        f"vsphere://{UUID}\n",
        f"vsphere://{UUID[:-1]}",
        f"aws://{UUID}",
    ],
)
def test_provider_id_of_another_form_is_not_queried(platform: Make, provider_id: str) -> None:
    with pytest.raises(ValueError, match="vsphere://"):
        platform().location(provider_id)
