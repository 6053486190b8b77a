"""What a worker lists as ended before it releases a certificate, and when the node waits."""

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from common.names import PENDING_REASON_ANNOTATION
from common.node_identity import KEY_DIGITS, attested_group
from signer.claims.ended_entry import EndedEntry
from signer.inventory.ended_certificates import EndedCertificatesClient
from signer.kinds.csr import Csr
from signer.kinds.endorsement_key import LiftedBan, Release
from signer.kube.transport.client import Request
from tests.builders.reconciler import ReconcilerFixture
from tests.builders.renewing_node import KNOWN, alarms, claim_of, of_a_node
from tests.builders.scenario import HOME, NODE, NOW, key_name
from tests.builders.software_tpm import endorsement_key
from tests.fakes.cluster_clients import FakeClient

OTHER = key_name(endorsement_key(0))
SINCE = NOW - timedelta(hours=1)
UNTIL = NOW + timedelta(days=1)


def renewing() -> ReconcilerFixture:
    """Return a node that has a client certificate of term 1."""
    fixture = of_a_node(KNOWN)
    fixture.scenario.change_claim(term=1, since=NOW - timedelta(days=3))
    return fixture


def put_entry(fixture: ReconcilerFixture, key: str, *, is_ban: bool) -> None:
    entry = EndedEntry(key=key[:KEY_DIGITS], term=1, is_ban=is_ban, since=SINCE, until=UNTIL)
    lists(fixture).change(lambda _: {NODE: entry})
    fixture.workload.requests.clear()


def lists(fixture: ReconcilerFixture) -> EndedCertificatesClient:
    return EndedCertificatesClient(FakeClient(fixture.workload))


def answered(fixture: ReconcilerFixture) -> Csr:
    return fixture.result(fixture.file(fixture.scenario.answer_csr()))


def group_of(csr: Csr) -> str:
    """Return the second organization of the certificate that was released."""
    assert csr.certificate is not None
    subject = x509.load_pem_x509_certificate(csr.certificate).subject
    _, group = (str(o.value) for o in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    return group


def own_group(fixture: ReconcilerFixture, term: int) -> str:
    return attested_group(key_name(fixture.scenario.ek), term)


def test_renewal_ends_nothing_and_reads_the_list_once() -> None:
    fixture = renewing()
    assert group_of(answered(fixture)) == own_group(fixture, 1)
    assert [request.method for request in fixture.workload.requests] == ["GET"]
    assert claim_of(fixture).others_end_at is None


def test_other_key_ends_the_certificates_of_the_former_one_before_the_release() -> None:
    fixture = renewing()
    fixture.scenario.change_claim(endorsement_key=OTHER, not_after=NOW + timedelta(days=30))
    released: list[bool] = []

    def note(_: Request) -> None:
        released.append(bool(fixture.csrs.writes))

    fixture.workload.intercept(note, "PATCH", times=2)
    assert group_of(answered(fixture)) == own_group(fixture, 1)
    assert released == [False, False]
    entry = lists(fixture).entry(NODE)
    assert entry is not None
    assert entry.encode().startswith(own_group(fixture, 1) + " ")
    assert entry.until == NOW + timedelta(days=30), "the former certificate is the longest"


def test_node_that_cannot_be_listed_waits_with_an_alarm(caplog: pytest.LogCaptureFixture) -> None:
    fixture = renewing()
    fixture.scenario.change_claim(endorsement_key=OTHER)
    fixture.workload.intercept(403, "PATCH", times=99)
    csr = answered(fixture)
    assert csr.certificate is None
    assert "EndedCertificatesNotListed" in csr.annotations[PENDING_REASON_ANNOTATION]
    assert alarms(caplog, "EndedCertificatesNotListed")
    fixture.workload.interceptions.clear()
    assert answered(fixture).certificate is not None


@pytest.mark.parametrize("serving", [False, True])
def test_ban_that_the_management_cluster_has_lost_lets_the_node_wait(*, serving: bool) -> None:
    """Else a banned key gets certificates again."""
    fixture = renewing()
    if serving:
        fixture.scenario.for_serving(NODE)
    put_entry(fixture, key_name(fixture.scenario.ek), is_ban=True)
    csr = answered(fixture)
    assert csr.certificate is None
    assert "BanNotRecorded" in csr.annotations[PENDING_REASON_ANNOTATION]


def test_name_that_the_list_gives_to_another_key_lets_the_node_wait() -> None:
    """Else the banned key, after a restore, throws the good one out."""
    fixture = renewing()
    put_entry(fixture, OTHER, is_ban=False)
    csr = answered(fixture)
    assert csr.certificate is None
    assert "NodeNameHolderNotRecorded" in csr.annotations[PENDING_REASON_ANNOTATION]


@pytest.mark.parametrize(("too", "term"), [(False, 2), (True, 1)])
def test_lifted_ban_gives_the_next_term_unless_the_certificates_stay(
    *, too: bool, term: int
) -> None:
    """A restore of the management cluster has lost the term that the lift added."""
    fixture = renewing()
    put_entry(fixture, key_name(fixture.scenario.ek), is_ban=True)
    fixture.scenario.change_key(ban_lifted=LiftedBan(at=NOW, certificates_too=too))
    assert group_of(answered(fixture)) == own_group(fixture, term)
    assert claim_of(fixture).term == term


def test_higher_term_of_key_and_claim_counts() -> None:
    for of_key, of_claim in ((3, 1), (1, 3)):
        fixture = renewing()
        fixture.scenario.change_key(term=of_key)
        fixture.scenario.change_claim(term=of_claim)
        assert group_of(answered(fixture)) == own_group(fixture, 3)


def test_first_client_certificate_of_a_claim_ends_none() -> None:
    """The node may have the one that kubeadm made, and its claim was for serving only."""
    fixture = renewing()
    fixture.scenario.change_claim(term=0, since=None)
    answered(fixture)
    assert (claim_of(fixture).term, claim_of(fixture).others_end_at) == (1, None)


def test_released_key_gets_the_next_term_on_another_machine() -> None:
    """The old operating system of the same hardware may have its key."""
    fixture = renewing()
    scenario = fixture.scenario
    scenario.change_claim(provider_id="test://former", machine_name="former")
    former = scenario.holder().replace(provider_id="test://former")
    released = Release.of(HOME, provider_id="test://former")
    scenario.change_key(held_by=former, released_from=(released,))
    assert group_of(answered(fixture)) == own_group(fixture, 2)
    assert claim_of(fixture).others_end_at is not None
