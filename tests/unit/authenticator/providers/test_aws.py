"""The provider `aws` against EC2's instance metadata service, version 2."""

from ipaddress import ip_address

import pytest

from authenticator.errors import ProviderAnswerInvalid
from authenticator.model import Deadline
from authenticator.providers.aws import Aws
from authenticator.providers.provider import Identity
from tests.fakes.metadata_server import Exchange, Recorded

TOKEN = "AQAEAKvtVnQ1eY0jR-s_4Zz2uDLP0hHbqGQxYtTGm8Xr0MTbvUqWxA=="
SESSION = {"X-aws-ec2-metadata-token": TOKEN}
TTL = "X-aws-ec2-metadata-token-ttl-seconds"
OPEN = "PUT /latest/api/token"
KEY = "GET /latest/meta-data/"


def key(value: str) -> Exchange:
    """Return a response of the service to a request with a session token."""
    return Exchange(body=value.encode(), asks=SESSION)


def instance(**changed: Exchange) -> Recorded:
    """Return the service of an instance. `changed` names keys by their last word."""
    exchanges = {
        OPEN: Exchange(body=TOKEN.encode(), headers={TTL: "30"}, asks={TTL: "30"}),
        KEY + "placement/availability-zone": key("eu-central-1b"),
        KEY + "instance-id": key("i-0abcdef1234567890"),
        KEY + "local-hostname": key("ip-10-0-1-23.eu-central-1.compute.internal"),
        KEY + "local-ipv4": key("10.0.1.23"),
    }
    for word, exchange in changed.items():
        (name,) = [n for n in exchanges if n.endswith(word)] or [KEY + word]
        exchanges[name] = exchange
    return Recorded(exchanges)


def identity(recorded: Recorded, deadline: Deadline) -> Identity:
    with recorded.running() as url:
        return Aws("", base_url=url).identity(deadline)


def test_identity_has_zone_id_and_private_name(deadline: Deadline) -> None:
    name = "ip-10-0-1-23.eu-central-1.compute.internal"
    assert identity(instance(), deadline) == Identity(
        provider_id="aws:///eu-central-1b/i-0abcdef1234567890",
        node_name=name,
        addresses=(ip_address("10.0.1.23"), name),
    )


def test_name_becomes_a_valid_node_name(deadline: Deadline) -> None:
    result = identity(instance(hostname=key("IP-10-0-1-23.Example")), deadline)
    assert result.node_name == "ip-10-0-1-23.example"


def test_ipv6_address_comes_after_the_ipv4_one(deadline: Deadline) -> None:
    result = identity(instance(ipv6=key("2001:db8::23")), deadline)
    assert result.addresses[:2] == (ip_address("10.0.1.23"), ip_address("2001:db8::23"))


def test_local_zones_and_short_ids_are_accepted(deadline: Deadline) -> None:
    recorded = instance(zone=key("us-west-2-lax-1a"), id=key("i-1234abcd"))
    assert identity(recorded, deadline).provider_id == "aws:///us-west-2-lax-1a/i-1234abcd"


@pytest.mark.parametrize(
    "version_1",
    [
        Exchange(status=404),
        Exchange(status=405),
        Exchange(body=b"i-0abcdef1234567890"),
        Exchange(body=TOKEN.encode(), headers={TTL: "soon"}),
    ],
    ids=["unknown path", "no PUT", "any answer to anything", "no lifetime"],
)
def test_service_without_sessions_is_refused_without_more_requests(
    deadline: Deadline, version_1: Exchange
) -> None:
    """IMDSv1 would answer through any open proxy on the machine."""
    recorded = instance(token=version_1)
    with pytest.raises(ProviderAnswerInvalid):
        identity(recorded, deadline)
    assert recorded.asked == [OPEN]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("token", "<html>"),
        ("zone", "eu-central-1b/../x"),
        ("zone", "EU"),
        ("zone", ""),
        ("id", "i-0ABCDEF1234567890"),
        ("id", "i-0abcdef1234567890\n"),
        ("id", "vm-1"),
        ("ipv4", "10.0.1"),
    ],
)
def test_answer_of_another_form_is_refused(deadline: Deadline, word: str, value: str) -> None:
    answer = Exchange(body=value.encode(), headers={TTL: "30"})
    with pytest.raises(ProviderAnswerInvalid):
        identity(instance(**{word: answer}), deadline)
