"""The software TPMs of the other tests have the promised features. Other tools check it."""

import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import Encoding

from tests.harness.tpm import MEASURED_PCRS, EndorsementKey, SoftwareTpm, TrustDomain

ALL_KEYS = tuple(EndorsementKey)


@pytest.fixture(scope="module")
def domain(tmp_path_factory: pytest.TempPathFactory) -> TrustDomain:
    return TrustDomain(tmp_path_factory.mktemp("domain"))


@pytest.fixture(scope="module")
def full_tpm(domain: TrustDomain) -> Iterator[SoftwareTpm]:
    """Make a TPM with every optional feature. No test changes it."""
    with SoftwareTpm(
        domain, seed="full", persistent=ALL_KEYS, certificates=ALL_KEYS, banks=("sha1", "sha256")
    ) as tpm:
        yield tpm


def handles(tpm: SoftwareTpm, kind: str) -> set[int]:
    """Return the handles of a kind that the TPM itself lists."""
    return {int(line.removeprefix("- "), 16) for line in tpm.run("getcap", kind).splitlines()}


def read_pcrs(tpm: SoftwareTpm, bank: str) -> dict[int, bytes]:
    """Return the measured PCRs of a bank, as the TPM itself reports them."""
    lines = tpm.run("pcrread", f"{bank}:" + ",".join(map(str, MEASURED_PCRS))).splitlines()[1:]
    pairs = (line.split(":") for line in lines)
    return {int(index): bytes.fromhex(value.strip().removeprefix("0x")) for index, value in pairs}


def is_signed_by(domain: TrustDomain, der: bytes, directory: Path) -> bool:
    """Check with openssl whether a certificate leads to the root of a domain."""
    root, intermediate, leaf = (directory / name for name in ("root", "intermediate", "leaf"))
    root.write_bytes(domain.root)
    intermediate.write_bytes(domain.intermediate)
    leaf.write_text(x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM).decode())
    # The subject alternative name of endorsement certificates is critical and unknown to openssl.
    command = ["openssl", "verify", "-ignore_critical"]
    files: list[str | Path] = ["-CAfile", root, "-untrusted", intermediate, leaf]
    return not subprocess.run([*command, *files], check=False).returncode


@pytest.mark.parametrize("bank", ["sha1", "sha256"])
def test_every_pcr_differs_and_has_the_expected_value(full_tpm: SoftwareTpm, bank: str) -> None:
    values = read_pcrs(full_tpm, bank)
    assert values == full_tpm.pcrs[bank]
    assert len(set(values.values())) == len(MEASURED_PCRS)


def test_quote_is_over_those_pcrs(full_tpm: SoftwareTpm, tmp_path: Path) -> None:
    key, public, attest, signature = (str(tmp_path / name) for name in ("ak", "pem", "a", "s"))
    endorsement_key = hex(EndorsementKey.RSA_2048.value.persistent)
    full_tpm.run(
        "createak", "-C", endorsement_key, "-c", key, "-G", "ecc", "-u", public, "-f", "pem"
    )
    selection = "sha256:" + ",".join(map(str, MEASURED_PCRS))
    full_tpm.run("quote", "-c", key, "-l", selection, "-q", "abcd", "-m", attest, "-s", signature)
    digest = hashlib.sha256(b"".join(full_tpm.pcrs["sha256"].values())).digest()
    assert digest in Path(attest).read_bytes()
    full_tpm.run("checkquote", "-u", public, "-m", attest, "-s", signature, "-q", "abcd")
    full_tpm.run("flushcontext", "--transient-object")


@pytest.mark.parametrize("key", ALL_KEYS)
def test_certificate_is_for_this_key_and_of_this_domain(
    full_tpm: SoftwareTpm, domain: TrustDomain, tmp_path: Path, key: EndorsementKey
) -> None:
    der = full_tpm.certificate(key)
    certified = x509.load_der_x509_certificate(der).public_key()
    assert certified == full_tpm.endorsement_public_key(key)
    assert is_signed_by(domain, der, tmp_path)


def test_trust_domains_do_not_trust_each_other(
    full_tpm: SoftwareTpm, domain: TrustDomain, tmp_path: Path
) -> None:
    other = TrustDomain(tmp_path / "other")
    with SoftwareTpm(other, seed="full") as stranger:
        der = stranger.certificate(EndorsementKey.RSA_2048)
        key = stranger.endorsement_public_key(EndorsementKey.RSA_2048)
    assert key != full_tpm.endorsement_public_key(EndorsementKey.RSA_2048)
    assert is_signed_by(other, der, tmp_path)
    assert not is_signed_by(domain, der, tmp_path)


def test_p256_key_has_the_template_of_the_profile(full_tpm: SoftwareTpm) -> None:
    key = full_tpm.endorsement_public_key(EndorsementKey.P_256)
    assert isinstance(key, EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"


@pytest.mark.parametrize("persistent", [(), (EndorsementKey.P_256,), ALL_KEYS])
@pytest.mark.parametrize("certificates", [(), (EndorsementKey.P_256,), (EndorsementKey.P_384,)])
def test_tpm_has_exactly_the_requested_keys_and_certificates(
    domain: TrustDomain,
    persistent: tuple[EndorsementKey, ...],
    certificates: tuple[EndorsementKey, ...],
) -> None:
    with SoftwareTpm(domain, seed="n", persistent=persistent, certificates=certificates) as tpm:
        matches = handles(tpm, "handles-persistent")
        assert matches == {key.value.persistent for key in persistent}
        indices = handles(tpm, "handles-nv-index")
        assert indices == {key.value.certificate for key in certificates}
        assert not handles(tpm, "handles-transient")


def test_boot_is_repeated_by_a_power_cycle_and_changed_by_a_new_seed(domain: TrustDomain) -> None:
    with SoftwareTpm(domain, seed="good") as tpm:
        key = tpm.endorsement_public_key(EndorsementKey.RSA_2048)
        booted = read_pcrs(tpm, "sha256")
        tpm.extend(4, b"an unknown boot loader")
        changed = read_pcrs(tpm, "sha256")
        assert {i for i in MEASURED_PCRS if changed[i] != booted[i]} == {4}
        assert changed == tpm.pcrs["sha256"]

        tpm.power_cycle()
        assert read_pcrs(tpm, "sha256") == booted
        tpm.power_cycle(seed="evil", orderly=False)
        assert not set(read_pcrs(tpm, "sha256").values()) & set(booted.values())
        assert tpm.endorsement_public_key(EndorsementKey.RSA_2048) == key


def test_clear_takes_persistent_keys_and_leaves_certificates(domain: TrustDomain) -> None:
    with SoftwareTpm(domain, seed="n") as tpm:
        earlier = tpm.certificate(EndorsementKey.RSA_2048)
        tpm.clear()
        assert not handles(tpm, "handles-persistent")
        assert tpm.certificate(EndorsementKey.RSA_2048) == earlier


def test_nv_holds_what_was_written(domain: TrustDomain) -> None:
    index = EndorsementKey.RSA_2048.value.certificate
    with SoftwareTpm(domain, seed="n") as tpm:
        tpm.remove_nv(index)
        tpm.write_nv(index, b"no certificate")
        assert tpm.certificate(EndorsementKey.RSA_2048) == b"no certificate"


def test_failing_tool_is_an_error_with_its_output(full_tpm: SoftwareTpm) -> None:
    with pytest.raises(RuntimeError, match="0x1c0ffff"):
        full_tpm.remove_nv(0x1C0FFFF)


def test_no_process_or_file_remains(domain: TrustDomain) -> None:
    with SoftwareTpm(domain, seed="n") as tpm:
        directory = tpm.tcti.removeprefix("swtpm:path=").removesuffix("/sock")
        assert commands_with(directory)
    assert not commands_with(directory)
    assert not Path(directory).exists()


def commands_with(text: str) -> list[str]:
    """Return the command lines of running programs that mention something."""
    matches = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # The process ended meanwhile
            matches.append(path.read_text(encoding="utf-8", errors="replace"))
    return [command for command in matches if text in command]
