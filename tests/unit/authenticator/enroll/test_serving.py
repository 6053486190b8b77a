"""Serving certificates in memory: when they are requested, their names, and refusals.

Whole exchanges with the signer are in integration.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from ipaddress import ip_address
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from authenticator.config.settings import resolve
from authenticator.enroll import issued_certificate, serving
from authenticator.enroll.enroll import Trigger
from authenticator.errors import (
    CertificateMismatch,
    CertificateNotAccepted,
    ClientCertificateMissing,
    ConfigurationInvalid,
    CoolingDown,
    ProviderUnavailable,
    RequestDenied,
    StateDirectoryUnwritable,
    Unauthorized,
)
from authenticator.model import Address, Deadline
from authenticator.providers.provider import Identity
from authenticator.state.credential import Credential
from authenticator.state.store import FileStore
from common.errors import AttestationError
from common.names import SERVING_SIGNER
from common.requests.csr import decode_request
from common.requests.pkcs10 import parse_pkcs10
from tests.fakes import csr_api
from tests.fakes.csr_api import CLIENT_AUTH, SERVER_AUTH, FakeWorkload, Issuance
from tests.fakes.node import NODE_NAME, FakeNode
from tests.fakes.store import FakeStore
from tests.harness.pki import Authority, ec_key

NAMES: tuple[Address, ...] = (
    "worker-1.example",
    ip_address("192.0.2.1"),
    ip_address("2001:db8::1"),
)


@dataclass
class ServingNode:
    """A node that has joined."""

    node: FakeNode = field(default_factory=FakeNode)
    store: FakeStore = field(default_factory=FakeStore)
    names: tuple[Address, ...] = NAMES
    client: Credential | None = None

    def __post_init__(self) -> None:
        self.client = self.node.obtain()
        self.cluster.csrs.clear()
        self.cluster.issuance = Issuance(usage=SERVER_AUTH)

    @property
    def cluster(self) -> FakeWorkload:
        return self.node.cluster

    def obtain(self) -> Credential:
        deps = replace(self.node.deps(), store=cast("FileStore", self.store))
        deadline = Deadline(self.node.clock, 60)
        return serving.obtain_serving_certificate(
            self.node.call(), self.names, self.client, deps, deadline
        )

    def due(self, credential: Credential) -> None:
        self.node.clock.pass_time(credential.renew_at - self.node.clock.now())


@pytest.fixture
def node() -> ServingNode:
    return ServingNode()


def test_node_requests_a_certificate_for_its_names(node: ServingNode) -> None:
    credential = node.obtain()
    offer, answer = node.cluster.csrs.values()
    assert {node.cluster.filed_by[csr.spec.name] for csr in (offer, answer)} == {
        f"system:node:{NODE_NAME}"
    }
    assert {csr.spec.signer_name for csr in (offer, answer)} == {SERVING_SIGNER}
    assert {csr.spec.usages for csr in (offer, answer)} == {("digital signature", "server auth")}
    request = parse_pkcs10(decode_request(offer.spec.request)[0])
    assert set(request.subject_alt_names or ()) == set(NAMES)
    assert (request.node_name, request.provider_id) == (NODE_NAME, "test:///1")
    assert credential == node.store.credential
    leaf = x509.load_pem_x509_certificate(credential.key_pair.certificate)
    assert leaf.public_key() == load_pem_private_key(credential.key_pair.key, None).public_key()


def test_nothing_is_requested_before_renewal_is_due(node: ServingNode) -> None:
    first = node.obtain()
    assert node.obtain() == first
    assert len(node.cluster.csrs) == 2
    node.due(first)
    renewed = node.obtain()
    assert renewed.key_pair.key != first.key_pair.key
    assert node.store.credential == renewed


CHANGES: dict[str, Callable[[ServingNode], object]] = {
    "one address more": lambda n: setattr(n, "names", (*NAMES, ip_address("192.0.2.2"))),
    "another cluster": lambda n: vars(n.node).update(
        url="https://another.example", ca=n.cluster.authority()
    ),
    "a damaged file": lambda n: setattr(n.store, "credential", None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_certificate_is_replaced_after_a_change(node: ServingNode, change: str) -> None:
    first = node.obtain()
    CHANGES[change](node)
    assert node.obtain().key_pair.key != first.key_pair.key


def test_order_of_names_does_not_matter(node: ServingNode) -> None:
    first = node.obtain()
    node.names = (*reversed(NAMES), NAMES[0])
    assert node.obtain() == first


def test_addresses_come_from_the_provider_without_a_flag() -> None:
    node = ServingNode(names=())
    node.node.settings = {"provider": "file:/x", "nodeName": None, "providerID": None}
    node.node.identity = Identity(provider_id="test:///1", node_name=NODE_NAME, addresses=NAMES)
    first = node.obtain()
    assert set(first.arguments) == set(map(str, NAMES))
    node.node.identity = replace(node.node.identity, addresses=NAMES[:1])
    assert node.obtain().arguments == (str(NAMES[0]),)


def test_flags_win_over_the_provider() -> None:
    node = ServingNode(names=NAMES[:1])
    node.node.settings = {"provider": "file:/x"}
    node.node.identity = Identity(provider_id="test:///2", node_name="x", addresses=NAMES)
    assert node.obtain().arguments == (str(NAMES[0]),)
    assert node.node.queried_providers == [], "the flags set all that it could return"


def expired(node: ServingNode) -> None:
    """Move the clock past the end of the client certificate."""
    node.node.clock.pass_time(timedelta(days=8).total_seconds())


def provider_away(node: ServingNode) -> None:
    """Configure a provider that does not answer, and no names."""
    node.names = ()
    node.node.settings = {"provider": "aws"}


REFUSED: dict[str, tuple[Callable[[ServingNode], object], type[AttestationError]]] = {
    "no names": (lambda n: setattr(n, "names", ()), ConfigurationInvalid),
    "no client certificate": (lambda n: setattr(n, "client", None), ClientCertificateMissing),
    "expired client certificate": (expired, ClientCertificateMissing),
    "another node's client certificate": (
        lambda n: n.node.settings.update(nodeName="worker-2"),
        ClientCertificateMissing,
    ),
    "unavailable provider": (provider_away, ProviderUnavailable),
}


@pytest.mark.parametrize("case", REFUSED)
def test_no_csr_is_created_that_cannot_succeed(node: ServingNode, case: str) -> None:
    change, error = REFUSED[case]
    change(node)
    with pytest.raises(error):
        node.obtain()
    assert not node.cluster.csrs
    assert node.store.credential is None


def issuance(**change: Any) -> Callable[[ServingNode], None]:  # noqa: ANN401
    return lambda node: setattr(
        node.cluster, "issuance", Issuance(**{"usage": SERVER_AUTH} | change)
    )


WRONG: dict[str, Callable[[ServingNode], None]] = {
    "for clients": issuance(usage=CLIENT_AUTH),
    "without names": issuance(names=()),
    "one name less": issuance(names=(x509.DNSName("worker-1.example"),)),
    "another's name": issuance(node_name="worker-2"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_certificate_does_not_replace_the_current_one(node: ServingNode, case: str) -> None:
    works = node.obtain()
    node.due(works)
    WRONG[case](node)
    with pytest.raises(CertificateMismatch):
        node.obtain()
    assert node.store.credential == works


def test_certificate_of_another_authority_does_not_replace_the_current_one(
    node: ServingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = node.obtain()
    node.due(works)
    monkeypatch.setattr(csr_api, "AUTHORITY", x509.Name.from_rfc4514_string("CN=another"))
    node.node.ca = Authority.make("cluster CA", ec_key()).pair.certificate.decode()
    with pytest.raises(CertificateNotAccepted, match="kubeconfig's CA"):
        node.obtain()
    assert node.store.credential == works


def test_serving_certificates_never_pass_where_a_load_balancer_terminates_tls() -> None:
    """Issue 11, point 25: the kubeconfig's CA is the load balancer's; 12 CSRs an hour."""
    node = ServingNode()
    node.node.ca = Authority.make("public CA", ec_key()).pair.certificate.decode()
    assert node.obtain() == node.store.credential


def test_kubelet_start_waits_for_the_signer_with_a_good_serving_certificate() -> None:
    """Issue 11, point 25: 60 s, with 50 h left."""
    node = ServingNode()
    first = node.obtain()
    node.due(first)
    node.cluster.signer_is_away = True
    node.cluster.calls.clear()
    call, clock = node.node.call(), node.node.clock
    store = cast("FileStore", node.store)
    for current in (node.client, None):
        assert serving.find_usable_certificate(call, current, store, clock) == first
    assert node.cluster.calls == []
    clock.pass_time(first.not_after - clock.now())
    assert serving.find_usable_certificate(call, node.client, store, clock) is None


def test_kubelet_of_a_reset_host_does_not_start_with_the_certificate_of_its_former_name() -> None:
    node = ServingNode()
    first = node.obtain()
    call, clock = node.node.call(), node.node.clock
    store, renamed = cast("FileStore", node.store), replace(first, node_name="worker-2")
    assert serving.find_usable_certificate(call, renamed, store, clock) is None


def test_chain_may_have_intermediates() -> None:
    root, middle, other = (Authority.make(name, ec_key()) for name in ("root", "middle", "other"))
    leaf, above = middle.server("worker-1").certificate, certified(middle, root)
    anchor = [root.pair.certificate.decode()]
    issued_certificate.verify_chain(leaf + above, anchor)
    issued_certificate.verify_chain(
        leaf, [other.pair.certificate.decode(), middle.pair.certificate.decode()]
    )
    for chain in (leaf, leaf + other.pair.certificate + above):
        with pytest.raises(CertificateNotAccepted, match="leads neither to the kubeconfig's CA"):
            issued_certificate.verify_chain(chain, anchor)
    upper = Authority.make("upper", ec_key())
    issued_certificate.verify_chain(
        leaf + certified(middle, upper) + certified(upper, root), anchor
    )
    for chain in (
        other.pair.certificate + above,
        other.pair.certificate + leaf + above,
        other.server("worker-1").certificate + other.pair.certificate + above,
        leaf + certified(other, root) + above,
    ):
        with pytest.raises(CertificateNotAccepted, match="leads neither to the kubeconfig's CA"):
            issued_certificate.verify_chain(chain, anchor)
    unreadable = [pem.replace("MII", "AAA") for pem in anchor]
    issued_certificate.verify_chain(leaf + above, unreadable + anchor)
    with pytest.raises(CertificateNotAccepted, match="cannot be read"):
        issued_certificate.verify_chain(leaf + above, unreadable)


def certified(authority: Authority, above: Authority) -> bytes:
    certificate = authority.certificate
    builder = (
        x509.CertificateBuilder()
        .subject_name(certificate.subject)
        .issuer_name(above.certificate.subject)
        .public_key(certificate.public_key())
        .serial_number(2)
        .not_valid_before(certificate.not_valid_before_utc)
        .not_valid_after(certificate.not_valid_after_utc)
    )
    return builder.sign(above.key, hashes.SHA256()).public_bytes(Encoding.PEM)


def test_denial_starts_a_cooldown(node: ServingNode) -> None:
    node.cluster.deny["answer"] = ("AddressOfControlPlane", "not yours")
    with pytest.raises(RequestDenied, match="AddressOfControlPlane"):
        node.obtain()
    with pytest.raises(CoolingDown, match="AddressOfControlPlane"):
        node.obtain()
    node.names = NAMES[:1]
    del node.cluster.deny["answer"]
    node.obtain()
    assert node.store.cooldown is None


def renewed(node: ServingNode) -> None:
    node.cluster.issuance = Issuance()
    node.client = node.node.obtain(Trigger.FORCED)
    node.cluster.issuance = Issuance(usage=SERVER_AUTH)


ENDINGS: dict[str, Callable[[ServingNode], object]] = {
    "provider ID": lambda n: n.node.settings.update(providerID="test:///2"),
    "lifetime": lambda n: n.node.settings.update(expirationSeconds=3600),
    "names": lambda n: setattr(n, "names", NAMES[:1]),
    "server": lambda n: setattr(n.node, "url", "https://another.example"),
    "client certificate": renewed,
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_cooldown_ends_when_its_input_changes(node: ServingNode, ending: str) -> None:
    node.cluster.deny["answer"] = ("AddressOfControlPlane", "not yours")
    with pytest.raises(RequestDenied):
        node.obtain()
    node.cluster.deny.clear()
    with pytest.raises(CoolingDown):
        node.obtain()
    ENDINGS[ending](node)
    node.obtain()


def test_names_are_sorted(node: ServingNode) -> None:
    """Addresses come last, and each kind is sorted, so that no certificate is requested twice."""
    node.names = (ip_address("192.0.2.1"), "b.example", ip_address("192.0.2.0"), "a.example")
    assert node.obtain().arguments == ("a.example", "b.example", "192.0.2.0", "192.0.2.1")


def test_refused_client_certificate_names_the_next_step(node: ServingNode) -> None:
    assert node.client is not None
    node.cluster.revoked.add(node.client.key_pair.certificate)
    with pytest.raises(Unauthorized, match=r"kubelet-authenticator-tpm renew"):
        node.obtain()


def test_full_disk_is_an_error(node: ServingNode) -> None:
    node.store.is_full = True
    with pytest.raises(StateDirectoryUnwritable):
        node.obtain()


def test_flags_are_parsed_strictly() -> None:
    names, problems = serving.parse_names(["192.0.2.1", "::1"], ["Worker-1.Example"])
    assert names == (ip_address("192.0.2.1"), ip_address("::1"), "worker-1.example")
    assert problems == ()
    for addresses, dns in (
        (["worker"], []),
        ([], ["*.example"]),
        ([], ["192.0.2.1"]),
        ([], ["a b"]),
    ):
        names, problems = serving.parse_names(addresses, dns)
        assert len(problems) == 1, (addresses, dns)


def test_serving_directory_is_in_the_state_directory() -> None:
    state = resolve({}, {}, "x").state_dir
    assert serving.serving_directory(state).parent == state
