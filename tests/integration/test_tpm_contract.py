"""The node's TPM interface over the fake and over swtpm: both meet one contract.

The signer's own checks judge the results. They know neither implementation.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import pytest

from authenticator.errors import (
    CredentialNotForThisTpm,
    PcrBankNotAllocated,
    PcrSelectionUnsupported,
)
from authenticator.tpm.device import Tpm
from authenticator.tpm.open_tpm import open_tpm
from common.tpm.public import PublicArea
from signer.issue.make_credential import make_credential
from signer.policy.policy import Policy
from signer.verify.attestation.attestation_key import verify_attestation_key
from signer.verify.attestation.endorsement_key import verify_endorsement_key
from signer.verify.attestation.quote import verify_quote
from tests.fakes.tpm import FakeTpm
from tests.harness.tpm import EndorsementKey, SoftwareTpm, TrustDomain
from tests.integration.tpms import left_in, seconds

SECRET = bytes(range(32))
EXTRA = hashlib.sha256(b"extra").digest()
SCHEMES = Policy(name="contract").attestation_key.schemes

Open = Callable[[], AbstractContextManager[Tpm]]


@pytest.fixture(scope="module")
def domain(tmp_path_factory: pytest.TempPathFactory) -> TrustDomain:
    return TrustDomain(tmp_path_factory.mktemp("domain"))


@pytest.fixture(scope="module")
def stranger() -> FakeTpm:
    return FakeTpm("stranger")


def fake(domain: TrustDomain, **settings: object) -> Iterator[Open]:
    """Yield a TPM in memory."""
    del domain
    tpm = FakeTpm("subject", **settings)  # type: ignore[arg-type]
    yield lambda: nullcontext(tpm)


def real(domain: TrustDomain, key: EndorsementKey, *, persistent: bool) -> Iterator[Open]:
    """Yield a software TPM whose only certificate is that of `key`."""
    persistent_keys = (key,) if persistent else ()
    with SoftwareTpm(
        domain, seed="subject", persistent=persistent_keys, certificates=(key,)
    ) as tpm:
        yield lambda: open_tpm(tpm.tcti, deadline=seconds())
        assert left_in(tpm) == []


SUBJECTS: dict[str, Callable[[TrustDomain], Iterator[Open]]] = {
    "fake-rsa": lambda domain: fake(domain, endorsement="L-1"),
    "fake-p256": lambda domain: fake(domain, endorsement="L-2"),
    "fake-p384": lambda domain: fake(domain, endorsement="H-3"),
    "fake-rsa-high": lambda domain: fake(domain, endorsement="H-1", attestation="rsa"),
    "swtpm-rsa": lambda domain: real(domain, EndorsementKey.RSA_2048, persistent=True),
    "swtpm-p256": lambda domain: real(domain, EndorsementKey.P_256, persistent=False),
    "swtpm-p384": lambda domain: real(domain, EndorsementKey.P_384, persistent=True),
}


@pytest.fixture(scope="module", params=SUBJECTS)
def subject(request: pytest.FixtureRequest, domain: TrustDomain) -> Iterator[Open]:
    yield from SUBJECTS[request.param](domain)


@pytest.fixture
def tpm(subject: Open) -> Iterator[Tpm]:
    with subject() as opened:
        yield opened


def challenge(ek: bytes, ak: bytes) -> tuple[bytes, bytes]:
    """Wrap SECRET as the signer does."""
    name = PublicArea.from_tpm2b(ak).name()
    return make_credential(
        PublicArea.from_tpm2b(ek), name, SECRET, random=lambda size: b"\x05" * size
    )


def test_endorsement_key_has_a_strong_template_and_is_stable(subject: Open) -> None:
    with subject() as tpm:
        first = tpm.endorsement_key()
    with subject() as tpm:
        assert tpm.endorsement_key() == first
    verify_endorsement_key(first.public)


def test_attestation_key_is_accepted_by_the_signer_and_is_stable(subject: Open) -> None:
    with subject() as tpm:
        first = tpm.attestation_key().public
    with subject() as tpm:
        assert tpm.attestation_key().public == first
    verify_attestation_key(first, SCHEMES)


def test_secret_is_recovered(tpm: Tpm) -> None:
    sent_challenge = challenge(tpm.endorsement_key().public, tpm.attestation_key().public)
    assert tpm.activate_credential(*sent_challenge) == SECRET


def test_secret_for_another_attestation_key_is_refused(tpm: Tpm, stranger: FakeTpm) -> None:
    sent_challenge = challenge(tpm.endorsement_key().public, stranger.attestation_key().public)
    with pytest.raises(CredentialNotForThisTpm):
        tpm.activate_credential(*sent_challenge)


def test_secret_for_another_tpm_is_refused(tpm: Tpm, stranger: FakeTpm) -> None:
    sent_challenge = challenge(stranger.endorsement_key().public, tpm.attestation_key().public)
    with pytest.raises(CredentialNotForThisTpm):
        tpm.activate_credential(*sent_challenge)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    "mutate",
    [
        pytest.param(lambda data: data[:-1] + bytes([data[-1] ^ 1]), id="bit flipped"),
        pytest.param(lambda data: data[:-1], id="cut short"),
        pytest.param(lambda data: data + b"\0", id="byte added"),
        pytest.param(lambda _: b"", id="empty"),
        pytest.param(lambda _: b"\xff\xff" + bytes(0xFFFF), id="huge"),
    ],
)
def test_changed_challenge_is_refused(
    tpm: Tpm, which: int, mutate: Callable[[bytes], bytes]
) -> None:
    sent_challenge = list(challenge(tpm.endorsement_key().public, tpm.attestation_key().public))
    sent_challenge[which] = mutate(sent_challenge[which])
    with pytest.raises(CredentialNotForThisTpm):
        tpm.activate_credential(sent_challenge[0], sent_challenge[1])


@pytest.mark.parametrize(
    "indices", [(0,), (23,), tuple(range(8)), tuple(range(24))], ids=["first", "last", "8", "all"]
)
def test_quote_verifies_and_agrees_with_its_values(tpm: Tpm, indices: tuple[int, ...]) -> None:
    key = verify_attestation_key(tpm.attestation_key().public, SCHEMES)
    quote = tpm.quote({"sha256": indices}, EXTRA)
    attest = verify_quote(quote.attest, quote.signature, key, EXTRA)
    assert attest.selection == {"sha256": indices}
    assert {bank: tuple(values) for bank, values in quote.pcrs.items()} == attest.selection
    values = b"".join(quote.pcrs["sha256"].values())
    assert attest.pcr_digest == hashlib.sha256(values).digest()


def test_selection_is_quoted_in_canonical_order(tpm: Tpm) -> None:
    quote = tpm.quote({"sha256": (7, 0, 7, 3)}, EXTRA)
    assert list(quote.pcrs["sha256"]) == [0, 3, 7]


def test_quote_of_a_bank_that_is_not_allocated_is_refused(tpm: Tpm) -> None:
    with pytest.raises(PcrBankNotAllocated):
        tpm.quote({"sha256": (0,), "sha384": (0,)}, EXTRA)


@pytest.mark.parametrize(
    "selection",
    [{}, {"sha256": ()}, {"sha256": (24,)}, {"sha256": (-1,)}, {"md5": (0,)}],
    ids=["nothing", "empty bank", "PCR 24", "PCR -1", "MD5"],
)
def test_unknown_or_empty_selection_is_refused(
    tpm: Tpm, selection: dict[str, tuple[int, ...]]
) -> None:
    with pytest.raises(PcrSelectionUnsupported):
        tpm.quote(selection, EXTRA)
