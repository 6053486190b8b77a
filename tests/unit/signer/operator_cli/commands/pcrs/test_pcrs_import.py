"""`pcrs import`: whose predictions are imported, into which policy, and what is remembered."""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from common.names import IMPORTED_PCRS_ANNOTATION
from signer.kinds.policy import POLICIES
from signer.operator_cli.commands.pcrs import pcrs_import
from signer.operator_cli.errors import InputInvalid, Rejected
from signer.policy.signed_pcr_rules import fingerprint
from tests.builders.boot_signatures import VendorKey
from tests.builders.software_tpm import rsa_key
from tests.fakes.cluster import FakeCluster
from tests.fakes.management_api import Console

OWN, FIRST, SECOND = "0a" * 32, "aa" * 32, "bb" * 32
VENDOR = ec.generate_private_key(ec.SECP256R1())
NAME = fingerprint(VENDOR.public_key())
SPKI = PublicFormat.SubjectPublicKeyInfo
ED25519 = ed25519.Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.PEM, SPKI)
MONTH_LATER = "2026-12-22T00:00:00Z"


def put_policy(management: FakeCluster, name: str = "p", **changes: object) -> None:
    allowed = {"sha256": {"4": [OWN]}}
    pcrs = {"mode": "Warn", "selection": {"sha256": [4]}, "allowed": allowed, **changes}
    metadata = {"name": name, "uid": "u", "generation": 1}
    body = {"metadata": metadata, "spec": {"pcrs": pcrs}}
    management.put(POLICIES.collection_path(), body)


@pytest.fixture
def management() -> FakeCluster:
    cluster = FakeCluster()
    put_policy(cluster)
    return cluster


def sign(key: VendorKey, content: bytes) -> str:
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(content, padding.PKCS1v15(), hashes.SHA256())
    else:
        signature = key.sign(content, ec.ECDSA(hashes.SHA256()))
    return base64.b64encode(signature).decode()


def console(
    management: FakeCluster,
    directory: Path,
    value: str = FIRST,
    *,
    key: VendorKey = VENDOR,
    **arguments: object,
) -> Console:
    """Return a console with the predictions that a vendor signed, for PCR 4 and PCR 9."""
    file, public = directory / "predictions.json", directory / "vendor.pub"
    predictions = {"pcrs": {"4": {"sha256": [value]}, "9": {"sha256": [value]}}}
    file.write_text(json.dumps(predictions), encoding="utf-8")
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, SPKI))
    (directory / "predictions.json.sig").write_text(sign(key, file.read_bytes()) + "\n", "ascii")
    fixed = {"signature": None, "policy": None, "until": None, "dry_run": "none"}
    named = {"file": file, "key": public, "yes": True}
    return Console(management, {**fixed, **named, **arguments})


def stored(management: FakeCluster) -> tuple[dict[str, Any], Any]:
    body = management.objects[POLICIES.object_path("p")]
    annotations = body["metadata"].get("annotations", {})
    return body["spec"]["pcrs"], json.loads(annotations.get(IMPORTED_PCRS_ANNOTATION, "null"))


@pytest.mark.parametrize("key", [VENDOR, rsa_key()], ids=["EC", "RSA"])
def test_predictions_are_imported_and_remembered(
    management: FakeCluster, tmp_path: Path, key: VendorKey
) -> None:
    shown = console(management, tmp_path, key=key)
    assert pcrs_import.run(shown.session()) == 0
    pcrs, imports = stored(management)
    assert pcrs["allowed"] == {"sha256": {"4": [OWN, FIRST]}}
    assert imports == {fingerprint(key.public_key()): {"sha256": {"4": [FIRST]}}}
    assert f"  added: sha256:4 {FIRST}\n" in shown.complaint
    assert "no list for it: sha256:9\n" in shown.complaint
    assert "These values are for: every other Cluster.\n" in shown.complaint


def test_later_import_of_a_vendor_supersedes_only_its_own(
    management: FakeCluster, tmp_path: Path
) -> None:
    other = ec.generate_private_key(ec.SECP384R1())
    pcrs_import.run(console(management, tmp_path, "cc" * 32, key=other).session())
    pcrs_import.run(console(management, tmp_path).session())
    shown = console(management, tmp_path, SECOND)
    pcrs_import.run(shown.session())
    pcrs, imports = stored(management)
    assert pcrs["allowed"] == {"sha256": {"4": [OWN, FIRST, SECOND, "cc" * 32]}}
    assert pcrs["until"] == [{"value": FIRST, "time": MONTH_LATER}]
    assert imports[NAME] == {"sha256": {"4": [FIRST, SECOND]}}
    assert imports[fingerprint(other.public_key())] == {"sha256": {"4": ["cc" * 32]}}
    assert f"  counts until {MONTH_LATER}: sha256:4 {FIRST}\n" in shown.complaint


@pytest.mark.parametrize("end", ["2026-11-01T00:00:00Z", "2026-12-31T00:00:00Z"])
def test_value_that_counts_again_is_shown(
    management: FakeCluster, tmp_path: Path, end: str
) -> None:
    """An old file, with its signature, gave a value back that an operator had let end."""
    allowed = {"sha256": {"4": [OWN, FIRST]}}
    put_policy(management, allowed=allowed, until=[{"value": FIRST, "time": end}])
    shown = console(management, tmp_path)
    pcrs_import.run(shown.session())
    assert "until" not in stored(management)[0]
    assert f"  counts without the end that it had: sha256:4 {FIRST}\n" in shown.complaint


def test_nothing_is_written_without_a_confirmation(management: FakeCluster, tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="not confirmed"):
        pcrs_import.run(console(management, tmp_path, yes=False).session())
    assert stored(management) == (
        {"mode": "Warn", "selection": {"sha256": [4]}, "allowed": {"sha256": {"4": [OWN]}}},
        None,
    )


@pytest.mark.parametrize("what", ["predictions.json", "predictions.json.sig", "vendor.pub"])
def test_predictions_that_the_key_did_not_sign_are_refused(
    management: FakeCluster, tmp_path: Path, what: str
) -> None:
    shown = console(management, tmp_path)
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    console(management, stranger, SECOND, key=ec.generate_private_key(ec.SECP256R1()))
    (tmp_path / what).write_bytes((stranger / what).read_bytes())
    with pytest.raises(Rejected, match=r"is no signature of .*predictions\.json by this key"):
        pcrs_import.run(shown.session())
    assert stored(management)[1] is None


@pytest.mark.parametrize(
    ("what", "content", "problem"),
    [
        ("predictions.json.sig", b"?", "must be base64"),
        ("predictions.json.sig", None, "No such file"),
        ("vendor.pub", b"-----BEGIN PUBLIC KEY-----", "must be a public key as PEM: RSA or EC"),
        ("vendor.pub", ED25519, "must be a public key as PEM: RSA or EC"),
        ("predictions.json", b"x" * (256 << 10) + b"x", "must not exceed 256 KiB"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    management: FakeCluster, tmp_path: Path, what: str, content: bytes | None, problem: str
) -> None:
    shown = console(management, tmp_path)
    (tmp_path / what).unlink()
    if content is not None:
        (tmp_path / what).write_bytes(content)
    with pytest.raises(InputInvalid, match=problem) as caught:
        pcrs_import.run(shown.session())
    assert what in caught.value.message


def test_signed_file_of_another_form_is_refused(management: FakeCluster, tmp_path: Path) -> None:
    shown = console(management, tmp_path)
    (tmp_path / "predictions.json").write_bytes(b"{}")
    (tmp_path / "predictions.json.sig").write_text(sign(VENDOR, b"{}"), "ascii")
    with pytest.raises(InputInvalid, match="no value is in it"):
        pcrs_import.run(shown.session())


def test_one_of_several_policies_is_named(management: FakeCluster, tmp_path: Path) -> None:
    put_policy(management, "q")
    with pytest.raises(Rejected, match="2 valid KubeletAttestationPolicies have lists"):
        pcrs_import.run(console(management, tmp_path).session())
    with pytest.raises(Rejected, match="0 valid KubeletAttestationPolicies have the name r"):
        pcrs_import.run(console(management, tmp_path, policy="r").session())
    assert pcrs_import.run(console(management, tmp_path, policy="p").session()) == 0
    assert stored(management)[1] is not None


def test_policy_without_a_list_of_the_pcrs_is_refused(
    management: FakeCluster, tmp_path: Path
) -> None:
    put_policy(management, selection={"sha256": [7]}, allowed={"sha256": {"7": [OWN]}})
    with pytest.raises(Rejected, match="KubeletAttestationPolicy p: the policy allows no values"):
        pcrs_import.run(console(management, tmp_path).session())


def test_end_must_not_have_passed(management: FakeCluster, tmp_path: Path) -> None:
    shown = console(management, tmp_path, until=datetime(2026, 11, 22, tzinfo=UTC))
    with pytest.raises(InputInvalid, match="--until must be today or later"):
        pcrs_import.run(shown.session())


def test_annotation_that_cannot_be_read_is_named(management: FakeCluster, tmp_path: Path) -> None:
    body = management.objects[POLICIES.object_path("p")]
    body["metadata"]["annotations"] = {IMPORTED_PCRS_ANNOTATION: "[]"}
    with pytest.raises(Rejected, match=f"annotation {IMPORTED_PCRS_ANNOTATION} of the policy"):
        pcrs_import.run(console(management, tmp_path).session())
