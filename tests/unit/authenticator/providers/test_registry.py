"""From the setting to a validated identity. Third-party providers are installed as by pip."""

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import pytest

from authenticator.errors import ConfigurationInvalid, ProviderAnswerInvalid, ProviderUnavailable
from authenticator.model import Deadline
from authenticator.providers import registry
from authenticator.providers.provider import Identity

BUILT_IN: Final = {
    "aws": "",
    "azure": "",
    "equinix": "",
    "file": "/etc/kubernetes/node-identity.yaml",
    "gce": "",
    "metal3": "uuid",
    "openstack": "RegionOne",
    "vsphere": "",
}
MODULE: Final = """\
from authenticator.providers.provider import Identity
from authenticator.errors import ProviderUnavailable

class Rack:
    def __init__(self, option):
        self._option = option

    def identity(self, deadline):
        if self._option == "away":
            raise ProviderUnavailable("the rack is away")
        return Identity(**eval(self._option or "{}"))
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory on the Python path for modules and their metadata."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "example_rack.py").write_text(MODULE)
    return tmp_path


def distribute(directory: Path, name: str, providers: Mapping[str, str]) -> None:
    """Write the files that pip installs for a package with these entry points."""
    info = directory / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    entries = "".join(f"{key} = {value}\n" for key, value in providers.items())
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{entries}")


def rack(directory: Path) -> None:
    distribute(directory, "example-rack", {"rack": "example_rack:Rack"})


@pytest.mark.parametrize(("name", "option"), BUILT_IN.items())
def test_built_in_provider_is_found_by_its_name(name: str, option: str) -> None:
    provider = registry.load(f"{name}:{option}" if option else name)
    assert type(provider).__name__.lower() == name


@pytest.mark.parametrize(
    "setting",
    [
        "aws:eu-central-1",
        "azure:westeurope",
        "equinix:other",
        "file",
        "file:identity.yaml",
        "gce:europe-west3",
        "metal3:other",
        "openstack:a/b",
        "openstack:a b",
        "openstack:/",
        "openstack:é",
        "vsphere:datacenter",
    ],
)
def test_option_of_another_form_is_refused(setting: str) -> None:
    name = setting.partition(":")[0]
    with pytest.raises(ConfigurationInvalid, match=f"provider {name}"):
        registry.load(setting)


def test_third_party_provider_is_found_and_gets_its_option(
    install: Path, deadline: Deadline
) -> None:
    rack(install)
    result = registry.query_provider(
        "rack:{'provider_id': 'rack://a:1', 'node_name': 'n1'}", deadline
    )
    assert result == Identity(provider_id="rack://a:1", node_name="n1")


def test_error_for_an_unknown_provider_lists_the_installed_ones() -> None:
    with pytest.raises(ConfigurationInvalid, match=r"'rack' is not installed.* aws, azure"):
        registry.load("rack")


@pytest.mark.parametrize("setting", ["", ":x", "AWS", "aws "])
def test_name_is_exact(setting: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="not installed"):
        registry.load(setting)


def test_built_in_provider_cannot_be_replaced(install: Path) -> None:
    distribute(install, "evil", {"aws": "example_rack:Rack"})
    with pytest.raises(
        ConfigurationInvalid, match=r"more than once.*aws:Aws and example_rack:Rack"
    ):
        registry.load("aws")


@pytest.mark.parametrize("value", ["no_such_module:Rack", "example_rack:Missing"])
def test_provider_that_cannot_be_loaded_is_an_error(install: Path, value: str) -> None:
    distribute(install, "example-rack", {"rack": value})
    with pytest.raises(ConfigurationInvalid, match="cannot be loaded"):
        registry.load("rack")


GOOD: Final = {
    "provider_id": "rack://a",
    "node_name": "n1",
    "addresses": ("n1.example",),
}


@pytest.mark.parametrize(
    "changed",
    [
        {"provider_id": ""},
        {"provider_id": "rack://a b"},
        {"provider_id": "rack://" + "a" * 512},
        {"provider_id": None},
        {"node_name": "N1"},
        {"node_name": ""},
        {"node_name": "ip-10-0-0-1.one.example ip-10-0-0-1.two.example"},
        {"node_name": 7},
        {"addresses": ("*.example",)},
        {"addresses": ("n1.example.",)},
        {"addresses": ("10.0.0.1",)},
        {"addresses": (7,)},
    ],
)
def test_identity_that_does_not_fit_into_a_request_is_refused(
    install: Path, deadline: Deadline, changed: dict[str, object]
) -> None:
    rack(install)
    assert registry.query_provider(f"rack:{GOOD}", deadline).addresses == ("n1.example",)
    with pytest.raises(ProviderAnswerInvalid, match="set providerID"):
        registry.query_provider(f"rack:{GOOD | changed}", deadline)


def test_ip_addresses_are_accepted(tmp_path: Path, deadline: Deadline) -> None:
    path = tmp_path / "identity.yaml"
    path.write_text("{providerID: 'rack://a', addresses: [10.0.0.1]}")
    assert registry.query_provider(f"file:{path}", deadline).addresses == (ip_address("10.0.0.1"),)


def test_error_names_the_provider_and_the_next_step_in_one_line(
    install: Path, deadline: Deadline
) -> None:
    rack(install)
    with pytest.raises(ProviderUnavailable) as caught:
        registry.query_provider("rack:away", deadline)
    assert caught.value.message == (
        "provider rack:away: the rack is away"
        " (or set providerID, --provider-id, and nodeName, --node-name, instead)"
    )
