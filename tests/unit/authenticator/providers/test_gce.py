"""The provider `gce` against the metadata server."""

from ipaddress import ip_address

import pytest

from authenticator.errors import ProviderAnswerInvalid
from authenticator.model import Deadline
from authenticator.providers.gce import FLAVOR, Gce
from authenticator.providers.provider import Identity
from tests.fakes.metadata_server import Exchange, Recorded

KEY = "GET /computeMetadata/v1/"
PROJECT, ZONE, NAME = KEY + "project/project-id", KEY + "instance/zone", KEY + "instance/name"
ADDRESS = KEY + "instance/network-interfaces/0/ip"


def answer(body: str) -> Exchange:
    """Return a response with Google's header to a request with Google's header."""
    return Exchange(body=body.encode(), headers=FLAVOR, asks=FLAVOR)


INSTANCE = {
    PROJECT: answer("fleet-west-1"),
    ZONE: answer("projects/123456789012/zones/europe-west3-b"),
    NAME: answer("fleet-md-0-x7k2p"),
    ADDRESS: answer("10.2.0.8"),
}


def identity(exchanges: dict[str, Exchange], deadline: Deadline) -> Identity:
    with Recorded(exchanges).running() as url:
        return Gce("", base_url=url).identity(deadline)


def test_identity_has_project_zone_and_name(deadline: Deadline) -> None:
    assert identity(INSTANCE, deadline) == Identity(
        provider_id="gce://fleet-west-1/europe-west3-b/fleet-md-0-x7k2p",
        node_name="fleet-md-0-x7k2p",
        addresses=(ip_address("10.2.0.8"),),
    )


def test_project_keeps_its_domain(deadline: Deadline) -> None:
    result = identity({**INSTANCE, PROJECT: answer("example.com:fleet-west")}, deadline)
    assert result.provider_id.startswith("gce://example.com:fleet-west/europe-west3-b/")


def test_instance_without_ipv4_address_has_none(deadline: Deadline) -> None:
    assert identity({**INSTANCE, ADDRESS: Exchange(status=404)}, deadline).addresses == ()


@pytest.mark.parametrize("headers", [{}, {"Metadata-Flavor": "Other"}])
@pytest.mark.parametrize("path", [PROJECT, ZONE, NAME])
def test_answer_without_googles_header_is_refused(
    deadline: Deadline, path: str, headers: dict[str, str]
) -> None:
    answered = Exchange(body=INSTANCE[path].body, headers=headers)
    with pytest.raises(ProviderAnswerInvalid, match="Google"):
        identity({**INSTANCE, path: answered}, deadline)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (PROJECT, "fleet/west"),
        (PROJECT, "Fleet-West"),
        (PROJECT, ""),
        (ZONE, "europe-west3-b"),
        (ZONE, "projects/123456789012/zones/europe-west3-b/x"),
        (ZONE, "projects/123456789012/regions/europe-west3"),
        (NAME, "fleet-md-0.example"),
        (NAME, "fleet-md-0\n"),
        (NAME, "x" * 64),
        (ADDRESS, "fe80::1%eth0"),
    ],
)
def test_answer_of_another_form_is_refused(deadline: Deadline, path: str, body: str) -> None:
    with pytest.raises(ProviderAnswerInvalid):
        identity({**INSTANCE, path: answer(body)}, deadline)
