"""Reads endorsement keys that operators name or paste, and inventories of many."""

import csv
import json
import re
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any, Final, TextIO

from common.formats import strict_yaml
from common.names import API_GROUP
from signer.inventory.cluster_api.key_annotation import read_key_annotation
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import Registration
from signer.kinds.record import encode
from signer.operator_cli.errors import InputInvalid
from signer.settings.flags import parse_cluster_key

_DIGEST: Final = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")
_DIGEST_PREFIX: Final = "sha256:"
_PUBLIC_KEY: Final = re.compile(
    r"-----BEGIN PUBLIC KEY-----\n[A-Za-z0-9+/=\s]+-----END PUBLIC KEY-----\n?"
)
_MAX_KEY_FILE: Final = 256 << 10
_MAX_INVENTORY: Final = 64 << 20
"""Bytes: a hundred thousand keys with their PEM."""
_REST: Final = ""
"""Where the reader of CSV puts the values that have no column."""
_PASTE: Final = "paste what `kubelet-authenticator-tpm endorsement-key` prints on the node"
_COLUMNS: Final = ("key", "cluster", "machine", "providerID", "node")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicEndorsementKey:
    """An endorsement key: its digest in hex, and its PEM if the operator gave it."""

    name: str
    pem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRegistration:
    """A key and the machine that it is registered for; `None` matches nothing."""

    key: PublicEndorsementKey
    cluster: ClusterKey
    machine: str | None = None
    provider_id: str | None = None
    node: str | None = None
    place: str = field(default="", compare=False)
    """Its row of an inventory."""

    def entry(self) -> dict[str, str]:
        """Return the entry of `EndorsementKey.spec.registeredFor`."""
        machine = Registration.of(
            self.cluster,
            provider_id=self.provider_id,
            machine_name=self.machine,
            node_name=self.node,
        )
        return encode(machine)


def parse_digest(text: str) -> str | None:
    """Return the digest of `sha256:<hex>` or `<hex>` in lower case, `None` for any other text."""
    matched = _DIGEST.fullmatch(text.strip())
    return matched[1].lower() if matched else None


def parse_key(text: str, source: str) -> PublicEndorsementKey:
    """Read one key: a digest, PEM, a manifest, or what `endorsement-key` prints in any format.

    Raises `InputInvalid`: the text has another form, or several keys.
    """
    digest = parse_digest(text)
    if digest is not None:
        return PublicEndorsementKey(name=digest)
    if not text.strip():
        raise InputInvalid(f"{source}: is empty", hint=_PASTE)
    text = _value_of_document(text, source)
    annotation = read_key_annotation(text, source)
    if annotation.error is not None:
        raise InputInvalid(annotation.error, hint=_PASTE)
    if len(annotation.keys) != 1:
        raise InputInvalid(
            f"{source}: must hold one key, not {len(annotation.keys)}",
            hint="register many keys with --inventory",
        )
    pem = _PUBLIC_KEY.search(text)
    name = annotation.keys[0].spki_sha256.hex()
    return PublicEndorsementKey(name=name, pem=pem[0] if pem else None)


def read_key(argument: str, stdin: TextIO) -> PublicEndorsementKey:
    """Read the key that an argument gives: a digest, a file, or `-` for standard input."""
    digest = parse_digest(argument)
    if digest is not None:
        return PublicEndorsementKey(name=digest)
    if argument.startswith(_DIGEST_PREFIX):
        raise InputInvalid(f"{argument}: must have 64 hexadecimal digits after {_DIGEST_PREFIX}")
    if argument == "-":
        return parse_key(stdin.read(_MAX_KEY_FILE), "standard input")
    if not _exists(Path(argument)):
        raise InputInvalid(
            f"the key {argument:.100} must be sha256:HEX with 64 digits, an existing file, or -",
            hint="give what `kubelet-authenticator-tpm endorsement-key` prints on the node",
        )
    return parse_key(read_text(Path(argument)), argument)


def _exists(path: Path) -> bool:
    """Return whether a file exists; the text of a key is too long for the name of one."""
    try:
        return path.exists()
    except OSError:
        return False


def read_inventory(path: Path, default: ClusterKey | None) -> list[KeyRegistration]:
    """Read a CSV or JSON inventory: columns or members `key,cluster,machine,providerID,node`.

    A row without a Cluster gets the default one. Raises `InputInvalid` with every problem, each
    with its row.
    """
    rows = _rows(read_text(path, _MAX_INVENTORY), path)
    problems: list[str] = []
    registrations = []
    for number, row in rows:
        place = f"{path}: row {number}"
        try:
            registrations.append(replace(_registration(row, default), place=place))
        except InputInvalid as error:
            problems.append(f"{place}: {error.message}")
    if not rows:
        problems.append(f"{path}: must hold a row")
    if problems:
        raise InputInvalid("\n".join(problems), hint="nothing was registered")
    return registrations


def parse_cluster(text: str) -> ClusterKey:
    """Read `NAMESPACE/NAME`. Raises `InputInvalid`."""
    try:
        return parse_cluster_key(text)
    except ArgumentTypeError as error:
        raise InputInvalid(f"the Cluster {text!r} {error}") from error


def _value_of_document(text: str, source: str) -> str:
    """Return the key of a manifest, or of `endorsement-key` in JSON; any other text unchanged."""
    if not text.lstrip().startswith(("{", "apiVersion:")):
        return text
    try:
        document = strict_yaml.load_all(text)[0]
    except (ValueError, IndexError) as error:
        raise InputInvalid(f"{source}: cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise InputInvalid(f"{source}: must be an object")
    values = _manifest_values(document) or [document.get("sha256"), document.get("publicKey")]
    texts = [value for value in values if isinstance(value, str) and value]
    digests = [f"sha256:{digest}" for value in texts if (digest := parse_digest(value))]
    return "\n".join([*digests, *(value for value in texts if not parse_digest(value))])


def _manifest_values(document: Mapping[str, Any]) -> list[object]:
    group = str(document.get("apiVersion", "")).partition("/")[0]
    if document.get("kind") != "EndorsementKey" or group != API_GROUP:
        return []
    metadata, spec = document.get("metadata"), document.get("spec")
    return [
        metadata.get("name") if isinstance(metadata, dict) else None,
        spec.get("publicKey") if isinstance(spec, dict) else None,
    ]


def read_text(path: Path, limit: int = _MAX_KEY_FILE) -> str:
    """Read a small file of UTF-8. Raises `InputInvalid`."""
    try:
        return read_bytes(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputInvalid(f"{path}: must be UTF-8") from error


def read_bytes(path: Path, limit: int = _MAX_KEY_FILE) -> bytes:
    """Read a small file. Raises `InputInvalid`."""
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise InputInvalid(f"{path}: {error.strerror}") from error
    if len(content) > limit:
        raise InputInvalid(f"{path}: must not exceed {limit >> 10} KiB")
    return content


def _rows(text: str, path: Path) -> Sequence[tuple[int, Mapping[str, Any]]]:
    """Return each row with its number: the line in a CSV file, the place in a JSON array."""
    if text.lstrip().startswith(("[", "{")):
        return list(enumerate(_json_rows(text, path), 1))
    reader = csv.DictReader(StringIO(text), restkey=_REST)
    columns = reader.fieldnames or ()
    unknown = sorted(set(columns) - set(_COLUMNS))
    if "key" not in columns or unknown:
        raise InputInvalid(
            f"{path}: the first line must be a header with `key` and any of"
            f" {', '.join(_COLUMNS[1:])}, separated by commas"
            + (f", not {', '.join(unknown)}" if unknown else "")
        )
    if len(set(columns)) != len(columns):
        raise InputInvalid(f"{path}: the header must name each column once")
    try:
        return [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise InputInvalid(f"{path}: line {reader.line_num}: {error}") from error


def _json_rows(text: str, path: Path) -> list[Mapping[str, Any]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputInvalid(f"{path}: not JSON: {error}") from error
    rows = document.get("items") if isinstance(document, dict) else document
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputInvalid(f"{path}: must be an array of objects")
    return rows


def _registration(row: Mapping[str, Any], default: ClusterKey | None) -> KeyRegistration:
    unknown = sorted(str(name) for name in row.keys() - set(_COLUMNS))
    if unknown:
        raise InputInvalid(
            "has more values than the header has columns"
            if unknown == [_REST]
            else f"has the unknown columns {', '.join(unknown)}"
        )
    values = {name: _cell(row, name) for name in _COLUMNS}
    if values["key"] is None:
        raise InputInvalid("has no key")
    cluster = default if values["cluster"] is None else parse_cluster(values["cluster"])
    if cluster is None:
        raise InputInvalid("has no cluster, and --cluster gives no default")
    return require_machine(
        KeyRegistration(
            key=parse_key(values["key"], "key"),
            cluster=cluster,
            machine=values["machine"],
            provider_id=values["providerID"],
            node=values["node"],
        )
    )


def require_machine(registration: KeyRegistration) -> KeyRegistration:
    """Return the registration if it names a machine. Raises `InputInvalid`."""
    if (registration.machine, registration.provider_id, registration.node) == (None, None, None):
        raise InputInvalid("must name a machine, a provider ID or a node")
    return registration


def _cell(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise InputInvalid(f"{name} must be a text")
    return (value or "").strip() or None
