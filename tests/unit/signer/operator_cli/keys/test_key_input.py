"""Keys and inventories as operators give them."""

import io
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from authenticator.commands.endorsement_key import format_text
from common.formats.yaml_text import to_yaml
from common.public_keys import spki_sha256
from signer.kinds.cluster import ClusterKey
from signer.operator_cli.errors import InputInvalid
from signer.operator_cli.keys.key_input import (
    KeyRegistration,
    PublicEndorsementKey,
    parse_key,
    read_inventory,
    read_key,
)

KEY = ec.derive_private_key(7, ec.SECP256R1()).public_key()
PEM = KEY.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
DIGEST = spki_sha256(KEY).hex()
CLUSTER = ClusterKey(namespace="team-a", name="c1")
DOCUMENT = {"publicKey": PEM, "sha256": DIGEST, "certificates": []}
MANIFEST = {
    "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
    "kind": "EndorsementKey",
    "metadata": {"name": DIGEST},
    "spec": {"publicKey": PEM},
}


@pytest.mark.parametrize(
    ("text", "pem"),
    [
        (DIGEST, None),
        (f"sha256:{DIGEST.upper()}\n", None),
        (PEM, PEM),
        (format_text(DOCUMENT), PEM),
        (json.dumps(DOCUMENT), PEM),
        (to_yaml(MANIFEST), PEM),
    ],
    ids=["digest", "prefix", "PEM", "text of the node", "JSON of the node", "manifest"],
)
def test_every_form_of_a_key_is_read(text: str, pem: str | None) -> None:
    assert parse_key(text, "it") == PublicEndorsementKey(name=DIGEST, pem=pem)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it: is empty"),
        (DIGEST[:-1], "every entry must be"),
        (f"sha256:{DIGEST}\nsha256:{'0' * 64}\n", "must hold one key, not 2"),
        (PEM.replace("A", "B"), "a PUBLIC KEY cannot be read"),
        (json.dumps({**DOCUMENT, "sha256": "0" * 64}), "must hold one key, not 2"),
        (json.dumps(["sha256"]), "every entry must be"),
        ('{"sha256": ', "cannot be read"),
    ],
    ids=["empty", "short", "two keys", "damaged", "contradiction", "array", "not JSON"],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputInvalid, match=message):
        parse_key(text, "it")


@pytest.mark.parametrize("text", [f"sha256:{DIGEST[:-1]}", "sha256:xyz"])
def test_incomplete_digest_is_not_taken_for_a_file(text: str) -> None:
    """The message was `No such file or directory`."""
    with pytest.raises(InputInvalid, match="must have 64 hexadecimal digits after sha256:"):
        read_key(text, io.StringIO())


def test_key_is_read_from_an_argument_a_file_and_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_text(PEM, encoding="utf-8")
    assert read_key(DIGEST, io.StringIO()).name == DIGEST
    assert read_key(str(file), io.StringIO()).name == DIGEST
    assert read_key("-", io.StringIO(PEM)).name == DIGEST
    for other in (str(tmp_path / "none"), json.dumps({"certificates": [PEM] * 40})):
        with pytest.raises(
            InputInvalid, match="must be sha256:HEX with 64 digits, an existing file, or -"
        ):
            read_key(other, io.StringIO())


CSV = f"""key,cluster,machine,providerID,node
sha256:{DIGEST},team-b/c2,,metal3://host,
{DIGEST},,machine-1,,node-1
"""
JSON_ROWS = [
    {"key": f"sha256:{DIGEST}", "cluster": "team-b/c2", "providerID": "metal3://host"},
    {"key": PEM, "machine": "machine-1", "node": "node-1"},
]
EXPECTED = [
    {"clusterNamespace": "team-b", "clusterName": "c2", "providerID": "metal3://host"},
    {
        "clusterNamespace": "team-a",
        "clusterName": "c1",
        "machineName": "machine-1",
        "nodeName": "node-1",
    },
]


@pytest.mark.parametrize(
    "text",
    [CSV, f"\ufeff{CSV}", json.dumps(JSON_ROWS), json.dumps({"items": JSON_ROWS})],
    ids=["CSV", "CSV with a byte order mark", "JSON", "JSON list"],
)
def test_inventory_is_read(tmp_path: Path, text: str) -> None:
    file = tmp_path / "inventory"
    file.write_text(text, encoding="utf-8")
    registrations = read_inventory(file, CLUSTER)
    assert [r.entry() for r in registrations] == EXPECTED
    assert {r.key.name for r in registrations} == {DIGEST}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CSV.replace("machine-1", "").replace("node-1", ""), "row 3: must name a machine"),
        (CSV.replace("team-b/c2", "c2"), "row 2: the Cluster 'c2' must be NAMESPACE/NAME"),
        (CSV.replace(f"sha256:{DIGEST}", ""), "row 2: has no key"),
        (CSV.replace("machine,", "host,", 1), "not host"),
        (CSV + "a,b,c,d,e,f\n", "row 4: has more values than the header has columns"),
        (CSV.replace("machine,", "machine,machine,", 1), "must name each column once"),
        (CSV.replace(",", ";"), "separated by commas, not key;cluster"),
        (CSV.splitlines()[0], "must hold a row"),
        (json.dumps([{"key": DIGEST, "machine": 1}]), "row 1: machine must be a text"),
        (json.dumps([DIGEST]), "must be an array of objects"),
        ("", "the first line must be a header"),
    ],
    ids=[
        "no machine",
        "no namespace",
        "no key",
        "other column",
        "more cells",
        "column twice",
        "semicolons",
        "no row",
        "number",
        "texts",
        "empty",
    ],
)
def test_invalid_inventory_is_refused_with_its_row(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "inventory"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputInvalid, match=message):
        read_inventory(file, CLUSTER)


def test_row_without_a_cluster_needs_a_default(tmp_path: Path) -> None:
    file = tmp_path / "inventory.csv"
    file.write_text(CSV, encoding="utf-8")
    with pytest.raises(InputInvalid, match="row 3: has no cluster"):
        read_inventory(file, None)


def test_entry_has_only_the_given_fields() -> None:
    key = PublicEndorsementKey(name=DIGEST)
    registration = KeyRegistration(key=key, cluster=CLUSTER, machine="m")
    assert registration.entry() == {
        "clusterNamespace": "team-a",
        "clusterName": "c1",
        "machineName": "m",
    }
