"""The provider `azure` against the instance metadata service."""

import json
from ipaddress import ip_address

import pytest

from authenticator.errors import ProviderAnswerInvalid
from authenticator.model import Deadline
from authenticator.providers.azure import Azure
from authenticator.providers.provider import Identity
from tests.fakes.metadata_server import Exchange, Recorded

SUBSCRIPTION = "8D10DA13-8125-4BA9-A717-BF7490507B3D"
COMPUTE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/Fleet-West/providers/Microsoft.Compute"
LOWER = COMPUTE.replace(SUBSCRIPTION, SUBSCRIPTION.lower()).replace("Fleet-West", "fleet-west")
RESOURCE = "GET /metadata/instance/compute/resourceId?api-version=2021-10-01&format=text"
NAME = "GET /metadata/instance/compute/osProfile/computerName?api-version=2021-10-01&format=text"
NETWORK = "GET /metadata/instance/network/interface/0?api-version=2021-10-01&format=json"
INTERFACE = {
    "ipv4": {
        "ipAddress": [
            {"privateIpAddress": "10.1.0.4", "publicIpAddress": "192.0.2.7"},
            {"privateIpAddress": "10.1.0.5", "publicIpAddress": ""},
        ],
        "subnet": [{"address": "10.1.0.0", "prefix": "16"}],
    },
    "ipv6": {"ipAddress": [{"privateIpAddress": "2001:db8::4"}]},
    "macAddress": "0022484F21AA",
}


def answer(body: str) -> Exchange:
    """Return a response to a request with the header `Metadata`."""
    return Exchange(body=body.encode(), asks={"Metadata": "true"})


def machine(resource: str) -> dict[str, Exchange]:
    """Return the responses of the service of a virtual machine."""
    return {
        RESOURCE: answer(resource),
        NAME: answer("Fleet-MD-0-x7k2p"),
        NETWORK: answer(json.dumps(INTERFACE)),
    }


VM = machine(COMPUTE + "/virtualMachines/Fleet-md-0-x7k2p")


def identity(exchanges: dict[str, Exchange], deadline: Deadline) -> Identity:
    with Recorded(exchanges).running() as url:
        return Azure("", base_url=url).identity(deadline)


def test_identity_has_resource_name_and_private_addresses(deadline: Deadline) -> None:
    """The resource group and the subscription are in lower case; the name is unchanged."""
    assert identity(VM, deadline) == Identity(
        provider_id=f"azure://{LOWER}/virtualMachines/Fleet-md-0-x7k2p",
        node_name="fleet-md-0-x7k2p",
        addresses=(ip_address("10.1.0.4"), ip_address("2001:db8::4")),
    )


def test_provider_id_of_a_scale_set_member_has_its_number(deadline: Deadline) -> None:
    member = "/virtualMachineScaleSets/Fleet-mp-0/virtualMachines/17"
    assert identity(machine(COMPUTE + member), deadline).provider_id == f"azure://{LOWER}{member}"


@pytest.mark.parametrize("name", [answer(""), Exchange(status=404)])
def test_machine_without_os_profile_has_no_name(deadline: Deadline, name: Exchange) -> None:
    assert identity({**VM, NAME: name}, deadline).node_name is None


@pytest.mark.parametrize(
    "network", [Exchange(status=404), answer("{}"), answer('{"ipv4": {"ipAddress": []}}')]
)
def test_machine_without_addresses_has_none(deadline: Deadline, network: Exchange) -> None:
    assert identity({**VM, NETWORK: network}, deadline).addresses == ()


@pytest.mark.parametrize(
    "resource",
    [
        "",
        "null",
        COMPUTE + "/virtualMachines/",
        COMPUTE + "/virtualMachines/a/b",
        COMPUTE + "/virtualMachines/a\n",
        COMPUTE + "/disks/a",
        COMPUTE + "/virtualMachineScaleSets/mp/virtualMachines/x",
        COMPUTE.replace("Fleet-West", "Fleet/West") + "/virtualMachines/a",
        COMPUTE.replace(SUBSCRIPTION, "mine") + "/virtualMachines/a",
    ],
)
def test_resource_of_another_form_is_refused(deadline: Deadline, resource: str) -> None:
    with pytest.raises(ProviderAnswerInvalid):
        identity(machine(resource), deadline)


@pytest.mark.parametrize(
    "network",
    [
        "[]",
        "{",
        '{"ipv4": {"ipAddress": [{}]}}',
        '{"ipv4": {"ipAddress": [{"privateIpAddress": 4}]}}',
    ],
)
def test_network_of_another_form_is_refused(deadline: Deadline, network: str) -> None:
    with pytest.raises(ProviderAnswerInvalid):
        identity({**VM, NETWORK: answer(network)}, deadline)
