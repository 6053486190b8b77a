"""The provider `openstack` against Nova's metadata service."""

import json

import pytest

from authenticator.errors import ProviderAnswerInvalid
from authenticator.model import Deadline
from authenticator.providers.openstack import OpenStack
from authenticator.providers.provider import Identity
from tests.fakes.metadata_server import Exchange, Recorded

META_DATA = "GET /openstack/latest/meta_data.json"
UUID = "6e23324d-315a-4d75-85a9-350fd1705ab6"
SERVER = {
    "uuid": UUID,
    "name": "Fleet-MD-0-x7k2p",
    "hostname": "Fleet-MD-0-x7k2p.novalocal",
    "availability_zone": "nova",
    "project_id": "f7ac731cc11f40efbc03a9f9e1d1d21f",
    "launch_index": 0,
    "meta": {"role": "worker"},
    "public_keys": {"mykey": "ssh-ed25519 AAAA\n"},
    "devices": [],
}


def identity(answer: Exchange, deadline: Deadline, region: str = "") -> Identity:
    with Recorded({META_DATA: answer}).running() as url:
        return OpenStack(region, base_url=url).identity(deadline)


def served(**changed: object) -> Exchange:
    return Exchange(body=json.dumps({**SERVER, **changed}).encode())


def test_identity_has_uuid_and_first_label_of_the_host_name(
    deadline: Deadline,
) -> None:
    assert identity(served(), deadline) == Identity(
        provider_id=f"openstack:///{UUID}", node_name="fleet-md-0-x7k2p"
    )


def test_provider_id_has_the_region_of_the_setting_before_the_uuid(deadline: Deadline) -> None:
    result = identity(served(), deadline, region="RegionOne")
    assert result.provider_id == f"openstack://RegionOne/{UUID}"


@pytest.mark.parametrize(
    "changed",
    [
        {"uuid": UUID.upper()},
        {"uuid": f"{UUID}\n"},
        {"uuid": None},
        {"uuid": 7},
        {"hostname": ""},
        {"hostname": ["a"]},
    ],
)
def test_metadata_of_another_form_is_refused(
    deadline: Deadline, changed: dict[str, object]
) -> None:
    with pytest.raises(ProviderAnswerInvalid):
        identity(served(**changed), deadline)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 100_000, b"<html></html>"])
def test_response_that_is_not_a_json_object_is_refused(deadline: Deadline, body: bytes) -> None:
    with pytest.raises(ProviderAnswerInvalid, match="JSON"):
        identity(Exchange(body=body), deadline)
