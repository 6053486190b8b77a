"""Reads kubeconfigs: one https server, its CA, and a client certificate or a token.

Tenants can write the kubeconfig Secrets of their clusters, and must gain nothing in the signer.
The usual loaders run the `exec` command of a kubeconfig, read files that it names, and connect
through its proxy. This one accepts only keys that are known to be harmless, and names any other.
"""

import base64
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml
from cryptography import x509

from signer.errors import KubeconfigRefused

_MAX_SIZE: Final = 128 << 10
"""Bytes: for a file of the operator's, with many contexts. Secrets have a smaller limit."""
_MAX_DEPTH: Final = 32
_MAX_HOST: Final = 253
"""Characters that DNS can hold. Python encodes other names as IDNA, which takes quadratic time, on
the thread of all watches."""
_Parser: Final = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""libyaml's parser where PyYAML has it: 50 times faster on hostile text."""
_FRAME_EVENTS: Final = (
    yaml.StreamStartEvent,
    yaml.StreamEndEvent,
    yaml.DocumentStartEvent,
    yaml.DocumentEndEvent,
)

_TOP_KEYS: Final = frozenset(
    {"apiVersion", "kind", "clusters", "contexts", "users", "current-context", "preferences"}
)
_CONTEXT_KEYS: Final = frozenset({"cluster", "user", "namespace", "extensions"})
_CLUSTER_KEYS: Final = frozenset(
    {
        "server",
        "certificate-authority-data",
        "tls-server-name",
        "insecure-skip-tls-verify",
        "disable-compression",
        "extensions",
    }
)
_USER_KEYS: Final = frozenset({"client-certificate-data", "client-key-data", "token", "extensions"})
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificate:
    """A client certificate with its chain, and its private key; both PEM."""

    certificate: str
    key: str = field(repr=False)

    def not_after(self) -> datetime | None:
        """Return when the certificate expires, `None` if that cannot be read."""
        try:
            return x509.load_pem_x509_certificate(self.certificate.encode()).not_valid_after_utc
        except (ValueError, x509.InvalidVersion):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One API server's URL and CA, and a credential for it."""

    server: str
    """`https://host[:port][/path]`, without a final slash."""
    ca: str
    """PEM certificates; no others are trusted for this server."""
    server_name: str | None = None
    """The name in the server's certificate, where it differs from the host of `server`."""
    certificate: ClientCertificate | None = None
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    """The pod's service account token; each request reads it, since it is renewed."""
    read_again: "Callable[[], Connection] | None" = field(default=None, repr=False, compare=False)
    """Reads the files again that this was read from, before each handshake; `None` for a Secret,
    of which each version makes another connection."""

    @property
    def host(self) -> str:
        """Return the host name or address of the server."""
        return urlsplit(self.server).hostname or ""


def parse_kubeconfig(data: bytes) -> Connection:
    """Read the current context of a kubeconfig.

    Raises `KubeconfigRefused`, whose message names the key that is not accepted, never a value.
    """
    document = _mapping(_load(data), "the kubeconfig")
    _require_known_keys(document, _TOP_KEYS, "the kubeconfig")
    if document.get("kind", "Config") != "Config" or document.get("apiVersion", "v1") != "v1":
        raise KubeconfigRefused("it must be a Config of version v1")
    context = _named(document, "contexts", "context", _text(document, "current-context"))
    _require_known_keys(context, _CONTEXT_KEYS, "the context")
    cluster = _named(document, "clusters", "cluster", _text(context, "cluster"))
    _require_known_keys(cluster, _CLUSTER_KEYS, "the cluster")
    user = _named(document, "users", "user", _text(context, "user"))
    _require_known_keys(user, _USER_KEYS, "the user")
    if cluster.get("insecure-skip-tls-verify", "false") != "false":
        raise KubeconfigRefused("insecure-skip-tls-verify is not accepted")
    certificate, token = _client_certificate(user), _token(user)
    if certificate is None and token is None:
        raise KubeconfigRefused("the user must have an inline certificate and key, or a token")
    return Connection(
        server=_server(_text(cluster, "server")),
        ca=_pem(cluster, "certificate-authority-data"),
        server_name=_server_name(cluster),
        certificate=certificate,
        token=token,
    )


def in_cluster(host: str, port: str, account: Path) -> Connection:
    """Return the connection of a pod to its API server, from its service account's directory.

    Raises `KubeconfigRefused` when its files cannot be read.
    """
    try:
        ca = (account / "ca.crt").read_text(encoding="ascii")
        (account / "token").read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise KubeconfigRefused("the service account's files cannot be read") from error
    address = f"[{host}]" if ":" in host else host
    server = _server(f"https://{address}:{port}")
    return Connection(server=server, ca=ca, token_file=account / "token")


def _load(data: bytes) -> object:
    """Return the one YAML document; every scalar is a text."""
    if len(data) > _MAX_SIZE:
        raise KubeconfigRefused("it must not exceed 128 KiB")
    try:
        # Events only: no node graph, and no constructor that a tag could choose.
        events = yaml.parse(data.decode(), Loader=_Parser)
        return _build(event for event in events if not isinstance(event, _FRAME_EVENTS))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        # PyYAML's own parser raises ValueError for escapes such as "\UFFFFFFFF", and OverflowError
        # for the number of a %YAML directive.
        raise KubeconfigRefused("it is not readable YAML") from error


def _build(events: Iterator[yaml.Event]) -> object:
    document = _build_node(events, next(events, None), depth=0)
    if next(events, None) is not None:
        raise KubeconfigRefused("it must be one YAML document")
    return document


def _build_node(events: Iterator[yaml.Event], event: yaml.Event | None, depth: int) -> object:
    if depth > _MAX_DEPTH:
        raise KubeconfigRefused("it is nested too deeply")
    match event:
        case None:
            return None
        case yaml.ScalarEvent():
            return str(event.value)
        case yaml.SequenceStartEvent():
            entries = takewhile(lambda e: not isinstance(e, yaml.SequenceEndEvent), events)
            return [_build_node(events, entry, depth + 1) for entry in entries]
        case yaml.MappingStartEvent():
            return _build_mapping(events, depth + 1)
        case _:
            raise KubeconfigRefused("YAML aliases are not accepted")


def _build_mapping(events: Iterator[yaml.Event], depth: int) -> dict[str, object]:
    mapping: dict[str, object] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        key = _build_node(events, event, depth)
        if not isinstance(key, str):
            raise KubeconfigRefused("every key must be a text")
        if key in mapping:
            # Of two equal keys, each reader takes another.
            raise KubeconfigRefused("a key occurs twice")
        mapping[key] = _build_node(events, next(events), depth)
    return mapping


def _mapping(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise KubeconfigRefused(f"{what} must be a mapping")
    return value


def _require_known_keys(mapping: dict[str, object], known: frozenset[str], what: str) -> None:
    unknown = sorted(key[:64] for key in mapping.keys() - known)
    if unknown:
        raise KubeconfigRefused(f"{what} has {', '.join(unknown)}, which is not accepted")


def _text(mapping: dict[str, object], key: str) -> str:
    value = mapping.get(key)
    if not isinstance(value, str) or not value:
        raise KubeconfigRefused(f"{key} is missing")
    return value


def _named(document: dict[str, object], key: str, inner: str, name: str) -> dict[str, object]:
    """Return the inner mapping of the one entry with this name in the list under `key`."""
    entries = document.get(key)
    if not isinstance(entries, list):
        raise KubeconfigRefused(f"{key} must be a list")
    matching = [e for e in (_mapping(entry, key) for entry in entries) if e.get("name") == name]
    if len(matching) != 1:
        raise KubeconfigRefused(f"exactly one of {key} must have the name that refers to it")
    _require_known_keys(matching[0], frozenset({"name", inner}), f"an entry of {key}")
    return _mapping(matching[0].get(inner), inner)


def _server(text: str) -> str:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        raise KubeconfigRefused("server must be a URL") from error
    if not text.startswith("https://"):
        raise KubeconfigRefused("server must start with https://")
    if not url.hostname or port == 0 or any(c.isspace() or not c.isprintable() for c in text):
        raise KubeconfigRefused("server must be a URL")
    if not url.hostname.isascii() or len(url.hostname) > _MAX_HOST:
        raise KubeconfigRefused(
            f"the host of server must be at most {_MAX_HOST} ASCII characters: write other letters"
            " as punycode"
        )
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise KubeconfigRefused("server must have no user, query or fragment")
    return text.rstrip("/")


def _server_name(cluster: dict[str, object]) -> str | None:
    if "tls-server-name" not in cluster:
        return None
    name = _text(cluster, "tls-server-name")
    if not _HOST_NAME.fullmatch(name):
        raise KubeconfigRefused("tls-server-name must be a host name")
    return name


def _client_certificate(user: dict[str, object]) -> ClientCertificate | None:
    if "client-certificate-data" not in user and "client-key-data" not in user:
        return None
    return ClientCertificate(
        certificate=_pem(user, "client-certificate-data"), key=_pem(user, "client-key-data")
    )


def _token(user: dict[str, object]) -> str | None:
    if "token" not in user:
        return None
    token = _text(user, "token")
    if not _TOKEN.fullmatch(token):
        raise KubeconfigRefused("token must be printable ASCII without spaces")
    return token


def _pem(mapping: dict[str, object], key: str) -> str:
    try:
        text = base64.b64decode(_text(mapping, key), validate=True).decode("ascii")
    except ValueError as error:
        raise KubeconfigRefused(f"{key} must be PEM in base64") from error
    if "-----BEGIN " not in text:
        raise KubeconfigRefused(f"{key} must be PEM in base64")
    return text
