"""TPMs as in the field: every use ends with a result or one clear error, and nothing leaks.

swtpm shows how a TPM behaves. A relay in front of it adds the faults that swtpm does not have.
"""

import hashlib
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from authenticator import errors
from authenticator.clock import SystemClock
from authenticator.model import Deadline
from authenticator.tpm.device import KeyType, Quote, Tpm
from authenticator.tpm.open_tpm import open_tpm
from authenticator.tpm.templates import ENDORSEMENT_TEMPLATES
from common.errors import AttestationError
from common.public_keys import spki_sha256
from common.tpm.attest import Attest
from common.tpm.public import EccParameters, PublicArea, RsaParameters
from signer.issue.make_credential import make_credential
from signer.verify.attestation.endorsement_key import verify_endorsement_key
from tests.harness import tpm_relay as relayed
from tests.harness.documentation import blocks
from tests.harness.tpm import EndorsementKey, SoftwareTpm, TrustDomain
from tests.harness.tpm_relay import TpmRelay
from tests.integration.tpms import left_in, seconds

SECRET = b"a secret of a challenge"
EXTRA = hashlib.sha256(b"extra").digest()
RSA, P256, P384 = EndorsementKey.RSA_2048, EndorsementKey.P_256, EndorsementKey.P_384
ALWAYS = 10**9
ENOUGH = 5
"""Seconds for all commands before the failing one, on a busy machine."""
LATE = 15
"""Seconds after a deadline within which a busy machine notices it.

Without a deadline it never ends.
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def domain(tmp_path_factory: pytest.TempPathFactory) -> TrustDomain:
    return TrustDomain(tmp_path_factory.mktemp("domain"))


@pytest.fixture(scope="module")
def usual(domain: TrustDomain) -> Iterator[SoftwareTpm]:
    """Run a TPM that no test changes."""
    with SoftwareTpm(domain, seed="usual") as tpm:
        # The first use of an algorithm starts a self test, and the TPM asks for a retry.
        with opened(tpm) as warm:
            exchange(warm)
        yield tpm


@pytest.fixture
def changeable(domain: TrustDomain) -> Iterator[SoftwareTpm]:
    """Run a TPM that the test may change."""
    with SoftwareTpm(domain, seed="own") as tpm:
        yield tpm


@pytest.fixture
def relay(usual: SoftwareTpm) -> Iterator[TpmRelay]:
    with TpmRelay(usual) as between:
        yield between
    assert left_in(usual) == []


def opened(
    way: SoftwareTpm | TpmRelay,
    key_type: KeyType = "auto",
    *,
    auth: bytes = b"",
    seconds: float = 90,
) -> AbstractContextManager[Tpm]:
    return open_tpm(
        way.tcti,
        key_type=key_type,
        endorsement_auth=auth,
        deadline=Deadline(SystemClock(), seconds),
    )


def exchange(tpm: Tpm) -> tuple[PublicArea, PublicArea, Quote]:
    """Use a TPM for everything that one exchange needs."""
    ek = PublicArea.from_tpm2b(tpm.endorsement_key().public)
    ak = PublicArea.from_tpm2b(tpm.attestation_key().public)
    credential = make_credential(ek, ak.name(), SECRET, random=os.urandom)
    assert tpm.activate_credential(*credential) == SECRET
    return ek, ak, tpm.quote({"sha256": range(8)}, EXTRA)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def is_flush(code: int) -> bool:
    return code == relayed.TPM2_FLUSH_CONTEXT


# Busy, slow, broken


@pytest.mark.parametrize(
    "code", [relayed.RC_RETRY, relayed.RC_YIELDED, relayed.RC_TESTING], ids=hex
)
def test_every_command_is_repeated_while_the_tpm_is_busy(relay: TpmRelay, code: int) -> None:
    with opened(relay) as tpm:
        exchange(tpm)
        commands = sorted(set(relay.commands))
        for command in commands:
            # The libraries retry five times; the program retries the other times.
            relay.on(command, relayed.refuse(code), times=12)
        exchange(tpm)
    assert all(relay.commands.count(command) > 12 for command in commands)


def test_busy_tpm_is_an_error_at_the_deadline(relay: TpmRelay) -> None:
    deadline = seconds(ENOUGH)
    relay.on(relayed.TPM2_QUOTE, relayed.refuse(relayed.RC_RETRY), times=ALWAYS)
    relay.on(relayed.TPM2_FLUSH_CONTEXT, relayed.refuse(relayed.RC_RETRY), times=12)
    with (
        open_tpm(relay.tcti, deadline=deadline) as tpm,
        pytest.raises(errors.TpmBusy, match="stays busy"),
    ):
        tpm.quote({"sha256": (0,)}, EXTRA)
    assert -LATE < deadline.remaining() < 1


def test_silent_tpm_is_an_error_at_the_deadline(changeable: SoftwareTpm) -> None:
    deadline = seconds(ENOUGH)
    with TpmRelay(changeable) as relay:
        relay.on(relayed.TPM2_QUOTE, relay.hang)
        with open_tpm(relay.tcti, deadline=deadline) as tpm:
            with pytest.raises(errors.TpmBusy, match="did not answer"):
                tpm.quote({"sha256": (0,)}, EXTRA)
            with pytest.raises(errors.TpmBusy):
                tpm.attestation_key()
    assert -LATE < deadline.remaining() < 1


def test_slow_endorsement_key_names_the_remedy_which_works(domain: TrustDomain) -> None:
    """Each attempt makes the key again, so a node with this TPM never joined."""
    with SoftwareTpm(domain, seed="slow", persistent=()) as slow:
        with TpmRelay(slow) as relay:
            relay.on(relayed.TPM2_CREATE_PRIMARY, relay.hang, when=is_rsa)
            with (
                opened(relay, "rsa", seconds=ENOUGH) as tpm,
                pytest.raises(errors.TpmBusy, match="persistent once, at 0x81010001"),
            ):
                tpm.endorsement_key()
        [remedy] = [block.script for block in blocks() if "tpm2_createek" in block.script]
        program, *arguments = shlex.split(remedy)
        slow.run(program.removeprefix("tpm2_"), *arguments)
        with TpmRelay(slow) as relay:
            relay.on(relayed.TPM2_CREATE_PRIMARY, relay.hang, when=is_rsa)
            with opened(relay, "rsa") as tpm:
                exchange(tpm)


STUCK = """
import sys
from authenticator.tpm.open_tpm import open_tpm
from authenticator.errors import TpmBusy
from tests.integration.tpms import seconds
try:
    with open_tpm(sys.argv[1], deadline=seconds(1)) as tpm:
        tpm.attestation_key()
except TpmBusy:
    print("busy")
"""


def test_tpm_that_is_stuck_does_not_keep_the_process_alive(changeable: SoftwareTpm) -> None:
    assert changeable._process
    os.kill(changeable._process.pid, signal.SIGSTOP)
    try:
        command = [sys.executable, "-c", STUCK, changeable.tcti]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=60, cwd=ROOT
        )
    finally:
        os.kill(changeable._process.pid, signal.SIGCONT)
    assert (done.returncode, done.stdout) == (0, "busy\n")


def test_broken_connection_is_an_error(changeable: SoftwareTpm) -> None:
    with TpmRelay(changeable) as relay:
        relay.on(relayed.TPM2_QUOTE, relayed.hang_up)
        with (
            opened(relay) as tpm,
            pytest.raises(errors.TpmUnavailable, match="connection to the TPM broke"),
        ):
            tpm.quote({"sha256": (0,)}, EXTRA)


@pytest.mark.parametrize(
    ("code", "leaf"),
    [
        (relayed.RC_INITIALIZE, errors.TpmUnavailable),
        (relayed.RC_LOCKOUT, errors.TpmLockedOut),
        (0x902, errors.TpmOutOfMemory),
        (0x155, errors.TpmFailed),
        (0xB0143, errors.TpmFailed),
    ],
)
def test_error_at_any_step_is_raised_and_leaks_nothing(
    usual: SoftwareTpm, relay: TpmRelay, code: int, leaf: type[AttestationError]
) -> None:
    with opened(relay) as tpm:
        exchange(tpm)
    steps = list(relay.commands)
    for step in range(len(steps)):
        if is_flush(steps[step]):
            continue
        relay.clear()
        relay.on(None, lambda command, send: send(command), times=step)
        # A key that could not be flushed stays loaded, as expected.
        relay.on(None, relayed.refuse(code), when=lambda c: not is_flush(relayed.command_code(c)))
        with opened(relay) as tpm, pytest.raises(leaf) as caught:
            exchange(tpm)
        assert hex(code) in caught.value.detail
        assert "\n" not in caught.value.message
    assert left_in(usual) == []


def test_failure_mode_at_any_step_is_an_error(changeable: SoftwareTpm) -> None:
    with TpmRelay(changeable) as relay:
        with opened(relay) as tpm:
            exchange(tpm)
        for step in range(len(relay.commands) - 1):
            relay.clear()
            relay.on(None, lambda command, send: send(command), times=step)
            relay.on(None, relayed.refuse(relayed.RC_FAILURE), times=ALWAYS)
            with opened(relay) as tpm, pytest.raises(errors.TpmInFailureMode):
                exchange(tpm)
            # A TPM in failure mode flushes nothing, so the test flushes it for the next step.
            changeable.power_cycle()


def test_two_hundred_exchanges_leak_nothing(usual: SoftwareTpm) -> None:
    with opened(usual) as tpm:
        exchange(tpm)
        files, threads = open_files(), threading.active_count()
    for _ in range(200):
        with opened(usual) as tpm:
            exchange(tpm)
    assert left_in(usual) == []
    assert open_files() <= files
    assert threading.active_count() <= threads


# Locked, disabled, shared


def test_lockout_by_another_program_does_not_stop_an_exchange(changeable: SoftwareTpm) -> None:
    """The attestation key has noDA, and a policy authorizes the endorsement key."""
    changeable.run("dictionarylockout", "-s", "-n", "1", "-t", "1000", "-l", "1000")
    changeable.run(
        "nvdefine", "0x1500001", "-C", "o", "-s", "1", "-a", "authread|authwrite", "-p", "x"
    )
    with pytest.raises(RuntimeError):
        changeable.run("nvread", "0x1500001", "-C", "0x1500001", "-P", "wrong")
    with pytest.raises(RuntimeError, match="lockout"):
        changeable.run("nvread", "0x1500001", "-C", "0x1500001", "-P", "x")
    with opened(changeable) as tpm:
        exchange(tpm)


def test_endorsement_password_is_used(changeable: SoftwareTpm) -> None:
    with opened(changeable) as tpm:
        first_exchange = exchange(tpm)[:2]
    changeable.run("changeauth", "-c", "endorsement", "password")
    with opened(changeable, auth=b"password") as tpm:
        assert exchange(tpm)[:2] == first_exchange


@pytest.mark.parametrize("auth", [b"", b"wrong"])
def test_missing_endorsement_password_is_an_error(changeable: SoftwareTpm, auth: bytes) -> None:
    changeable.run("changeauth", "-c", "endorsement", "password")
    with (
        opened(changeable, auth=auth) as tpm,
        pytest.raises(errors.EndorsementAuthorizationRequired) as caught,
    ):
        exchange(tpm)
    assert "wrong" not in caught.value.message + caught.value.detail
    assert left_in(changeable) == []


def test_disabled_endorsement_hierarchy_is_an_error(changeable: SoftwareTpm) -> None:
    changeable.run("hierarchycontrol", "-C", "platform", "ehEnable", "clear")
    with opened(changeable) as tpm, pytest.raises(errors.EndorsementHierarchyDisabled):
        tpm.endorsement_key()


def test_cleared_tpm_with_a_configured_password_names_the_remedy(changeable: SoftwareTpm) -> None:
    changeable.clear()
    with (
        opened(changeable, auth=b"password") as tpm,
        pytest.raises(errors.EndorsementAuthorizationRequired, match="TPM2_Clear removes"),
    ):
        exchange(tpm)


def test_disabled_storage_hierarchy_is_not_the_endorsement_hierarchy(
    changeable: SoftwareTpm,
) -> None:
    """It hides certificates that its owner reads, and no key."""
    changeable.run("hierarchycontrol", "-C", "platform", "shEnable", "clear")
    with opened(changeable) as tpm:
        exchange(tpm)


def test_owner_password_does_not_matter(changeable: SoftwareTpm) -> None:
    changeable.run("changeauth", "-c", "owner", "password")
    with opened(changeable) as tpm:
        exchange(tpm)
        assert tpm.endorsement_key().certificates


def test_full_tpm_without_resource_manager_is_an_error_and_unchanged(
    changeable: SoftwareTpm,
) -> None:
    for _ in range(3):
        changeable.run("createprimary", "-c", "/dev/null")
    loaded_before = left_in(changeable)
    assert len(loaded_before) == 3
    with opened(changeable) as tpm, pytest.raises(errors.TpmOutOfMemory, match="tpmrm0"):
        tpm.attestation_key()
    assert left_in(changeable) == loaded_before


def test_two_free_slots_are_enough(changeable: SoftwareTpm) -> None:
    changeable.run("createprimary", "-c", "/dev/null")
    loaded_before = left_in(changeable)
    with opened(changeable) as tpm:
        exchange(tpm)
    assert left_in(changeable) == loaded_before


# Cleared, reset, replaced


def test_cleared_tpm_keeps_both_keys(changeable: SoftwareTpm) -> None:
    with opened(changeable) as tpm:
        first_exchange = exchange(tpm)[:2]
        certificates = tpm.endorsement_key().certificates
    changeable.clear()
    with opened(changeable) as tpm:
        assert exchange(tpm)[:2] == first_exchange
        assert tpm.endorsement_key().certificates == certificates


@pytest.mark.parametrize("orderly", [True, False])
def test_reset_while_in_use_fails_only_one_call(changeable: SoftwareTpm, *, orderly: bool) -> None:
    with opened(changeable) as tpm:
        first_exchange = exchange(tpm)[:2]
    with TpmRelay(changeable) as relay, opened(relay) as tpm:
        tpm.attestation_key()
        relay.on(None, relayed.hang_up, times=ALWAYS)
        with pytest.raises(errors.TpmUnavailable):
            tpm.attestation_key()
    changeable.power_cycle(orderly=orderly)
    with opened(changeable) as tpm:
        assert exchange(tpm)[:2] == first_exchange


def test_power_failures_after_use_do_not_lock_the_tpm(changeable: SoftwareTpm) -> None:
    """A swtpm allows three failed authorizations.

    A TPM counts one at each startup without a shutdown before it, if a key without noDA was used.
    """
    for _ in range(4):
        with opened(changeable) as tpm:
            exchange(tpm)
        changeable.power_cycle(orderly=False)
    with opened(changeable) as tpm:
        exchange(tpm)


def test_new_endorsement_seed_is_another_tpm(changeable: SoftwareTpm) -> None:
    with opened(changeable) as tpm:
        ek, ak, _ = exchange(tpm)
    changeable.run("clear", "--auth-hierarchy", "platform")
    changeable.run("changeeps")
    credential = make_credential(ek, ak.name(), SECRET, random=os.urandom)
    with opened(changeable) as tpm:
        with pytest.raises(errors.CredentialNotForThisTpm):
            tpm.activate_credential(*credential)
        new_ek, new_ak, _ = exchange(tpm)
    assert new_ek != ek
    assert new_ak != ak


# Which key


@pytest.mark.parametrize("persistent", [(), (RSA, P256, P384)], ids=["made", "persistent"])
@pytest.mark.parametrize(
    ("certificates", "key_type", "expected"),
    [
        ((), "auto", "L-1"),
        ((RSA, P256, P384), "auto", "L-1"),
        ((P256,), "auto", "L-2"),
        ((P384,), "auto", "H-3"),
        ((P256, P384), "auto", "L-2"),
        ((P384,), "rsa", "L-1"),
        ((RSA,), "ecc", "L-2"),
        ((RSA, P384), "ecc", "H-3"),
    ],
)
def test_key_is_chosen_only_by_type_and_certificate(
    domain: TrustDomain,
    persistent: tuple[EndorsementKey, ...],
    certificates: tuple[EndorsementKey, ...],
    key_type: KeyType,
    expected: str,
) -> None:
    template = next(t for t in ENDORSEMENT_TEMPLATES["auto"] if t.name == expected)
    with SoftwareTpm(
        domain, seed="choice", persistent=persistent, certificates=certificates
    ) as software:
        with opened(software, key_type) as tpm:
            exchange(tpm)
            selected = tpm.endorsement_key()
        assert template.matches(selected.public)
        owned = [k for k in certificates if k.value.certificate == template.certificate_index]
        assert selected.certificates == tuple(software.certificate(key) for key in owned)


@pytest.mark.parametrize("key", list(EndorsementKey), ids=lambda key: key.name)
def test_created_key_equals_the_persistent_one(domain: TrustDomain, key: EndorsementKey) -> None:
    with SoftwareTpm(domain, seed="same", persistent=(key,), certificates=(key,)) as software:
        expected = spki_sha256(software.endorsement_public_key(key))
        with opened(software) as tpm:
            persistent_key = tpm.endorsement_key()
        software.remove_persistent(key)
        with opened(software) as tpm:
            assert tpm.endorsement_key() == persistent_key
    assert verify_endorsement_key(persistent_key.public).spki_sha256 == expected


@pytest.mark.parametrize("name", ["H-1", "H-6", "H-2"])
def test_templates_without_a_persistent_key_work_as_well(
    changeable: SoftwareTpm, name: str
) -> None:
    template = next(t for t in ENDORSEMENT_TEMPLATES["auto"] if t.name == name)
    changeable.remove_nv(RSA.value.certificate)
    changeable.write_nv(template.certificate_index, b"certificate")
    with opened(changeable) as tpm:
        ek, _, _ = exchange(tpm)
        assert template.matches(ek.to_tpm2b())
        assert tpm.endorsement_key().certificates == (b"certificate",)


def is_ecc(command: bytes) -> bool:
    """Return whether this TPM2_CreatePrimary requests an ECC key."""
    return command[10 + 4 + 4 + 9 + 6 + 2 :][:2] == b"\0\x23"


def is_rsa(command: bytes) -> bool:
    """Return whether this TPM2_CreatePrimary requests an RSA key."""
    return command[10 + 4 + 4 + 9 + 6 + 2 :][:2] == b"\0\x01"


UNSUPPORTED = relayed.refuse(relayed.RC_VALUE_OF_PARAMETER_2)


def test_tpm_without_ecc_attests_with_rsa(relay: TpmRelay) -> None:
    relay.on(relayed.TPM2_CREATE_PRIMARY, UNSUPPORTED, times=ALWAYS, when=is_ecc)
    with opened(relay) as tpm:
        ek, ak, quote = exchange(tpm)
    assert isinstance(ek.parameters, RsaParameters)
    assert isinstance(ak.parameters, RsaParameters)
    assert len(quote.signature) == 2 + 2 + 2 + 256


def test_tpm_without_rsa_uses_its_ecc_key(relay: TpmRelay) -> None:
    relay.on(relayed.TPM2_CREATE_PRIMARY, UNSUPPORTED, times=ALWAYS, when=is_rsa)
    with opened(relay, "ecc") as tpm:
        ek, _, _ = exchange(tpm)
    assert isinstance(ek.parameters, EccParameters)


def test_unsupported_key_type_is_an_error(relay: TpmRelay) -> None:
    relay.on(relayed.TPM2_CREATE_PRIMARY, UNSUPPORTED, times=ALWAYS, when=is_ecc)
    with opened(relay, "ecc") as tpm, pytest.raises(errors.EndorsementKeyUnavailable):
        tpm.endorsement_key()


def test_tpm_without_signing_keys_is_an_error(relay: TpmRelay) -> None:
    relay.on(relayed.TPM2_CREATE_PRIMARY, UNSUPPORTED, times=ALWAYS)
    with opened(relay) as tpm, pytest.raises(errors.AttestationKeyUnavailable):
        tpm.attestation_key()


@pytest.mark.parametrize("hierarchy", ["owner", "endorsement"])
def test_unrelated_key_at_the_endorsement_handle_is_ignored(
    changeable: SoftwareTpm, tmp_path: Path, hierarchy: str
) -> None:
    """In the owner hierarchy it has the same template, in the endorsement hierarchy another."""
    with opened(changeable) as tpm:
        expected = tpm.endorsement_key()
    changeable.remove_persistent(RSA)
    context, policy = tmp_path / "context", tmp_path / "policy"
    policy.write_bytes(ENDORSEMENT_TEMPLATES["rsa"][0].public.auth_policy)
    attributes = "fixedtpm|fixedparent|sensitivedataorigin|restricted|decrypt"
    of_template = (
        ("-a", f"{attributes}|adminwithpolicy", "-L", policy)
        if hierarchy == "owner"
        else ("-a", f"{attributes}|userwithauth")
    )
    changeable.run(
        "createprimary",
        "-C",
        hierarchy,
        "-G",
        "rsa2048:null:aes128cfb",
        "-c",
        context,
        *of_template,
    )
    changeable.run("evictcontrol", "-C", "owner", "-c", context, hex(RSA.value.persistent))
    changeable.run("flushcontext", "--transient-object")
    with opened(changeable) as tpm:
        assert tpm.endorsement_key() == expected
        exchange(tpm)


# Certificates in NV


def test_chain_is_read_in_pieces_and_split_into_certificates(changeable: SoftwareTpm) -> None:
    first, second, third = (
        b"\x30\x82" + n.to_bytes(2, "big") + bytes([n % 251]) * n for n in (1500, 700, 2600)
    )
    stored = first + second + third
    for number, start in enumerate(range(0, len(stored), 2000)):
        changeable.write_nv(0x01C00100 + number, stored[start : start + 2000])
    with opened(changeable) as tpm:
        certificates = tpm.endorsement_key().certificates
    assert certificates == (changeable.certificate(RSA), first, second, third)


def test_unreadable_indices_are_ignored(changeable: SoftwareTpm, tmp_path: Path) -> None:
    data = tmp_path / "data"
    changeable.run(
        "nvdefine",
        "0x1c00100",
        "-C",
        "platform",
        "-s",
        "8",
        "-a",
        "ppread|ppwrite|ownerread|platformcreate",
    )
    changeable.run("nvdefine", "0x1c00101", "-C", "o", "-s", "8", "-a", "policyread|ownerwrite")
    data.write_bytes(bytes(8))
    changeable.run("nvwrite", "0x1c00101", "-C", "o", "-i", data)
    with opened(changeable) as tpm:
        assert tpm.endorsement_key().certificates == (changeable.certificate(RSA),)


# PCRs that change


def test_pcr_that_changes_before_the_quote_is_read_again(relay: TpmRelay) -> None:
    relay.on(relayed.TPM2_QUOTE, relayed.after_extending(23), times=2)
    with opened(relay) as tpm:
        quote = tpm.quote({"sha256": (22, 23)}, EXTRA)
    values = b"".join(quote.pcrs["sha256"].values())
    assert Attest.parse(quote.attest).pcr_digest == hashlib.sha256(values).digest()
    assert relay.commands.count(relayed.TPM2_QUOTE) == 3


def test_pcrs_that_keep_changing_are_an_error(relay: TpmRelay) -> None:
    relay.on(relayed.TPM2_QUOTE, relayed.after_extending(23), times=ALWAYS)
    with opened(relay) as tpm, pytest.raises(errors.PcrsUnstable):
        tpm.quote({"sha256": (23,)}, EXTRA)
    assert relay.commands.count(relayed.TPM2_QUOTE) == 10
