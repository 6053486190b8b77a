"""Providers that read files: `equinix` and `metal3` those of cloud-init, `file` any file."""

import json
from ipaddress import ip_address
from pathlib import Path

import pytest

from authenticator.errors import ConfigurationInvalid, ProviderAnswerInvalid, ProviderUnavailable
from authenticator.model import Deadline
from authenticator.providers.cloud_init import INSTANCE_DATA, SIZE_LIMIT, Equinix, Metal3
from authenticator.providers.file import File
from authenticator.providers.provider import Identity

DEVICE = "2885032e-61a8-4786-bd26-7b2e2e6ba1ea"
HOST = "43527d4d-5bb4-4b1c-9d3a-6f0c1b1f9a3e"


def instance_data(path: Path, *, v1: object = None, meta_data: object = None) -> Path:
    written = {"ds": {"_doc": "EXPERIMENTAL", "meta_data": meta_data}, "v1": v1, "merged_cfg": {}}
    path /= "instance-data.json"
    path.write_text(json.dumps(written))
    return path


def test_instance_data_is_at_the_path_of_cloud_init() -> None:
    assert Path("/run/cloud-init/instance-data.json") == INSTANCE_DATA


def test_equinix_device_is_the_instance_of_cloud_init(tmp_path: Path, deadline: Deadline) -> None:
    path = instance_data(tmp_path, v1={"instance_id": DEVICE, "local_hostname": "Fleet-MD-0"})
    assert Equinix("", path=path).identity(deadline) == Identity(
        provider_id=f"equinixmetal://{DEVICE}", node_name="fleet-md-0"
    )


@pytest.mark.parametrize("name", [None, "", 7])
def test_equinix_device_may_have_no_name(tmp_path: Path, deadline: Deadline, name: object) -> None:
    path = instance_data(tmp_path, v1={"instance_id": DEVICE, "local_hostname": name})
    assert Equinix("", path=path).identity(deadline).node_name is None


@pytest.mark.parametrize("v1", [None, [], {}, {"instance_id": "i-0abcdef1234567890"}])
def test_equinix_refuses_the_instance_of_another_platform(
    tmp_path: Path, deadline: Deadline, v1: object
) -> None:
    with pytest.raises(ProviderAnswerInvalid, match="instance_id"):
        Equinix("", path=instance_data(tmp_path, v1=v1)).identity(deadline)


def test_metal3_identity_is_that_of_the_metadata(tmp_path: Path, deadline: Deadline) -> None:
    known = {"providerid": "metal3/node-1/fleet-md-0-x7k2p", "uuid": HOST, "name": "fleet-md-0"}
    path = instance_data(tmp_path, meta_data=known)
    assert Metal3("", path=path).identity(deadline) == Identity(
        provider_id="metal3://metal3/node-1/fleet-md-0-x7k2p", node_name=None
    )
    assert Metal3("uuid", path=path).identity(deadline).provider_id == f"metal3://{HOST}"


@pytest.mark.parametrize(
    "found", [None, 7, "", HOST, "a/b", "a/b/c/d", "a//c", "a/B/c", "a/b/c\n", "metal3://a/b/c"]
)
def test_metal3_refuses_metadata_of_another_form(
    tmp_path: Path, deadline: Deadline, found: object
) -> None:
    path = instance_data(tmp_path, meta_data={"providerid": found, "uuid": HOST})
    with pytest.raises(ProviderAnswerInvalid, match="providerid"):
        Metal3("", path=path).identity(deadline)


def test_metal3_does_not_fall_back_to_the_old_form(tmp_path: Path, deadline: Deadline) -> None:
    path = instance_data(tmp_path, meta_data={"uuid": HOST})
    with pytest.raises(ProviderAnswerInvalid):
        Metal3("", path=path).identity(deadline)


def test_machine_without_cloud_init_is_unavailable(tmp_path: Path, deadline: Deadline) -> None:
    with pytest.raises(ProviderUnavailable, match="has cloud-init run"):
        Equinix("", path=tmp_path / "instance-data.json").identity(deadline)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "[" * 100_000, "{}" + " " * SIZE_LIMIT],
    ids=["empty", "cut off", "a list", "nested", "too large"],
)
def test_instance_data_that_cannot_be_read_is_refused(
    tmp_path: Path, deadline: Deadline, content: str
) -> None:
    path = tmp_path / "instance-data.json"
    path.write_text(content)
    with pytest.raises(ProviderAnswerInvalid, match=r"instance-data\.json"):
        Metal3("", path=path).identity(deadline)


def identity(path: Path, text: str, deadline: Deadline) -> Identity:
    path /= "identity.yaml"
    path.write_text(text)
    return File(str(path)).identity(deadline)


def test_file_has_all_fields(tmp_path: Path, deadline: Deadline) -> None:
    text = (
        "{providerID: 'mine://1', nodeName: n1, addresses: [10.0.0.1, '2001:db8::1', n1.example]}"
    )
    assert identity(tmp_path, text, deadline) == Identity(
        provider_id="mine://1",
        node_name="n1",
        addresses=(ip_address("10.0.0.1"), ip_address("2001:db8::1"), "n1.example"),
    )


def test_file_needs_only_the_provider_id(tmp_path: Path, deadline: Deadline) -> None:
    found = identity(tmp_path, "providerID: mine://1\n", deadline)
    assert found == Identity(provider_id="mine://1", node_name=None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: [",
        "[" * 600,
        "mine://1",
        "nodeName: n1",
        "{providerID: 7}",
        "{providerID: 'mine://1', nodeName: 7}",
        "{providerID: 'mine://1', addresses: 10.0.0.1}",
        "{providerID: 'mine://1', nodename: n1}",
        "{providerID: 'mine://1', 7: n1}",
    ],
)
def test_file_of_another_form_is_refused(tmp_path: Path, deadline: Deadline, text: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=r"identity\.yaml"):
        identity(tmp_path, text, deadline)


def test_missing_file_is_an_error(tmp_path: Path, deadline: Deadline) -> None:
    with pytest.raises(ConfigurationInvalid, match="No such file"):
        File(str(tmp_path / "missing")).identity(deadline)
