"""When a provider is queried. Cache and settings have priority."""

import pytest

from authenticator.config.settings import Settings, resolve
from authenticator.enroll.enroll import Trigger
from authenticator.errors import ConfigurationInvalid, ProviderUnavailable
from authenticator.model import Token
from authenticator.providers.provider import Identity
from common.requests.csr import decode_request
from common.requests.pkcs10 import parse_pkcs10
from tests.fakes.csr_api import BOOTSTRAP_USER
from tests.fakes.node import NODE_NAME, FakeNode

IDENTITY = Identity(provider_id="aws:///eu-1a/i-0", node_name="from-provider")
HOST = "Host"


def settled(identity: Identity = IDENTITY, **given: str) -> Settings:
    """Return settings, completed by the provider."""
    return resolve({"provider": "aws", **given}, {}, HOST).with_provider_identity(
        lambda _: identity
    )


def test_provider_supplies_missing_settings() -> None:
    settings = settled()
    assert (settings.required_provider_id(), settings.node_name) == (
        "aws:///eu-1a/i-0",
        "from-provider",
    )
    assert settings.provider is None


def test_node_name_of_the_settings_wins() -> None:
    settings = settled(nodeName="mine")
    assert (settings.required_provider_id(), settings.node_name) == ("aws:///eu-1a/i-0", "mine")


def test_provider_id_of_the_settings_wins() -> None:
    settings = settled(providerID="mine://1")
    assert (settings.required_provider_id(), settings.node_name) == ("mine://1", "from-provider")


def test_provider_id_file_of_the_settings_wins() -> None:
    settings = settled(providerIDFile="/missing")
    assert settings.provider_id is None
    with pytest.raises(ConfigurationInvalid, match="/missing"):
        settings.required_provider_id()


def test_host_name_is_used_last() -> None:
    assert settled(Identity(provider_id="a://1", node_name=None)).node_name == "host"


def refuse(setting: str) -> Identity:
    raise AssertionError(setting)


def test_provider_is_not_queried_when_everything_is_set() -> None:
    given = {"provider": "aws", "nodeName": "mine", "providerID": "mine://1"}
    assert resolve(given, {}, HOST).with_provider_identity(refuse).node_name == "mine"


def test_without_provider_none_is_queried() -> None:
    assert resolve({}, {}, HOST).with_provider_identity(refuse).node_name == "host"


@pytest.mark.parametrize("setting", ["aws", "openstack:RegionOne", "file:/etc/x.yaml", "my-rack.2"])
def test_setting_is_a_name_with_or_without_option(setting: str) -> None:
    assert resolve({"provider": setting}, {}, HOST).provider == setting


@pytest.mark.parametrize("setting", ["", "aws:", ":x", "AWS", "aws x", "-aws", "openstack:a b"])
def test_setting_of_another_form_is_refused(setting: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="provider"):
        resolve({"provider": setting}, {}, HOST)


def unset() -> FakeNode:
    """Return a node for which only the provider is set."""
    given: dict[str, object] = {"provider": "aws", "nodeName": None, "providerID": None}
    return FakeNode(settings=given, identity=IDENTITY)


def test_request_has_the_identity_of_the_provider() -> None:
    node = unset()
    assert node.obtain().node_name == "from-provider"
    for csr in node.cluster.csrs.values():
        request = parse_pkcs10(decode_request(csr.spec.request)[0])
        assert (request.node_name, request.provider_id) == ("from-provider", "aws:///eu-1a/i-0")
    assert node.queried_providers == ["aws"]


def test_provider_is_not_queried_for_a_cached_certificate() -> None:
    """The kubelet waits for the call and holds a lock."""
    node = unset()
    node.obtain()
    node.identity = None
    served = node.call().matches(node.store.credential)
    assert served == node.store.credential == node.obtain()
    assert node.queried_providers == ["aws"]


def test_certificate_of_another_name_is_not_served_when_the_name_is_set() -> None:
    node = unset()
    node.obtain()
    node.settings["nodeName"] = NODE_NAME
    assert node.call().matches(node.store.credential) is None


def test_renewal_queries_the_provider_again() -> None:
    node = unset()
    node.obtain()
    node.obtain(Trigger.FORCED)
    assert node.queried_providers == ["aws", "aws"]


@pytest.mark.parametrize("bootstrap", [Token(token="abcdef.0123456789abcdef"), None])
def test_provider_that_only_renames_the_node_ends_no_certificate(
    bootstrap: Token | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A renewal said that there was no certificate, and needed a bootstrap token."""
    node = unset()
    node.obtain()
    node.identity = Identity(provider_id="aws:///eu-1a/i-0", node_name="renamed")
    node.bootstrap = bootstrap
    assert node.obtain(Trigger.FORCED).node_name == "from-provider"
    assert list(node.cluster.filed_by.values())[-1] == "system:node:from-provider"
    assert "the provider calls this node renamed: it stays from-provider" in caplog.text


def test_bootstrap_credential_requests_the_certificate_of_another_machine() -> None:
    """The signer would deny it to the certificate of the other one (M5)."""
    node = unset()
    node.obtain()
    node.identity = Identity(provider_id="aws:///eu-1a/i-1", node_name="renamed")
    assert node.obtain(Trigger.FORCED).node_name == "renamed"
    assert list(node.cluster.filed_by.values())[-1] == BOOTSTRAP_USER


def test_unavailable_provider_costs_no_request_and_no_certificate() -> None:
    node = unset()
    before = node.obtain()
    filed = len(node.cluster.filed_by)
    node.identity = None
    node.bootstrap = Token(token="other")
    with pytest.raises(ProviderUnavailable):
        node.obtain(Trigger.FORCED)
    assert node.store.credential == before
    assert len(node.cluster.filed_by) == filed
    assert node.store.cooldown is None
