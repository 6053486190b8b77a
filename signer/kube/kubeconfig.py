"""What a kubeconfig Secret may say: one https server, its CA, a client certificate or a token.

Whoever can write the Secret of one workload cluster must not gain anything in the signer: the
usual loaders run its `exec` command, read files that it names and go through its proxy. So
everything that is not known to be harmless is refused by name, and nothing is guessed.
"""

import base64
import binascii
import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from signer.errors import KubeconfigRefused

_MAX_SIZE: Final = 128 << 10
"""Bytes; real ones have a few thousand, and reading hostile YAML takes a second per 128 KiB."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to reach one API server, and as whom."""

    server: str
    """`https://host[:port][/path]`, without a final slash."""
    ca: str
    """PEM certificates; the only ones that are trusted for this server."""
    server_name: str | None = None
    """The name in the server's certificate, where it is not the host of `server`."""
    certificate: ClientCertificate | None = None
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    """The pod's own service account token, read again as it is renewed; never from a Secret."""

    @property
    def host(self) -> str:
        """Return the host name or address of the server."""
        return urlsplit(self.server).hostname or ""


def parse_kubeconfig(data: bytes) -> Connection:
    """Read the current context of a kubeconfig.

    Raises `KubeconfigRefused`, whose message names the key that is not taken, never a value.
    """
    document = _mapping(_load(data), "the kubeconfig")
    _only(document, _TOP_KEYS, "the kubeconfig")
    if document.get("kind", "Config") != "Config" or document.get("apiVersion", "v1") != "v1":
        raise KubeconfigRefused("it is not a Config of version v1")
    context = _named(document, "contexts", "context", _text(document, "current-context"))
    _only(context, _CONTEXT_KEYS, "the context")
    cluster = _named(document, "clusters", "cluster", _text(context, "cluster"))
    _only(cluster, _CLUSTER_KEYS, "the cluster")
    user = _named(document, "users", "user", _text(context, "user"))
    _only(user, _USER_KEYS, "the user")
    if cluster.get("insecure-skip-tls-verify", "false") != "false":
        raise KubeconfigRefused("insecure-skip-tls-verify is not taken")
    certificate, token = _client_certificate(user), _token(user)
    if certificate is None and token is None:
        raise KubeconfigRefused("the user has neither an inline certificate and key nor a token")
    return Connection(
        server=_server(_text(cluster, "server")),
        ca=_pem(cluster, "certificate-authority-data"),
        server_name=_server_name(cluster),
        certificate=certificate,
        token=token,
    )


def in_cluster(host: str, port: str, account: Path) -> Connection:
    """Return the pod's own way to its API server, from the folder of its service account.

    Raises `KubeconfigRefused` when there is none.
    """
    try:
        ca = (account / "ca.crt").read_text(encoding="ascii")
        (account / "token").read_text(encoding="ascii")
    except (OSError, ValueError) as e:
        raise KubeconfigRefused("the service account's files cannot be read") from e
    named = f"[{host}]" if ":" in host else host
    server = _server(f"https://{named}:{port}")
    return Connection(server=server, ca=ca, token_file=account / "token")


class _StrictLoader(yaml.BaseLoader):
    """YAML in which every scalar is text, every key unique, and nothing refers elsewhere."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise KubeconfigRefused("YAML aliases are not taken")
        node: yaml.Node | None = super().compose_node(parent, index)
        return node

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002 # theirs
    ) -> dict[Hashable, Any]:
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        if len(mapping) != len(node.value):
            raise KubeconfigRefused("a key occurs twice")
        return mapping


def _load(data: bytes) -> object:
    if len(data) > _MAX_SIZE:
        raise KubeconfigRefused("it is larger than 128 KiB")
    try:
        return yaml.load(data.decode(), Loader=_StrictLoader)  # noqa: S506 # makes text only
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as e:
        raise KubeconfigRefused("it is not readable YAML") from e


def _mapping(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise KubeconfigRefused(f"{what} is not a mapping")
    return value


def _only(mapping: dict[str, object], known: frozenset[str], what: str) -> None:
    unknown = sorted(key[:64] for key in mapping.keys() - known)
    if unknown:
        raise KubeconfigRefused(f"{what} has {', '.join(unknown)}, which is not taken")


def _text(mapping: dict[str, object], key: str) -> str:
    value = mapping.get(key)
    if not isinstance(value, str) or not value:
        raise KubeconfigRefused(f"{key} is missing")
    return value


def _named(document: dict[str, object], key: str, inner: str, name: str) -> dict[str, object]:
    """Return what exactly one entry of the list under `key` holds for `name`."""
    entries = document.get(key)
    if not isinstance(entries, list):
        raise KubeconfigRefused(f"{key} is not a list")
    named = [_mapping(entry, key) for entry in entries]
    found = [entry for entry in named if entry.get("name") == name]
    if len(found) != 1:
        raise KubeconfigRefused(f"not exactly one of {key} has the name that is asked for")
    _only(found[0], frozenset({"name", inner}), f"an entry of {key}")
    return _mapping(found[0].get(inner), inner)


def _server(text: str) -> str:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as e:
        raise KubeconfigRefused("server is not a URL") from e
    if not text.startswith("https://"):
        raise KubeconfigRefused("server is not https")
    if not url.hostname or port == 0 or any(c.isspace() or not c.isprintable() for c in text):
        raise KubeconfigRefused("server is not a URL")
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise KubeconfigRefused("server has a user, a query or a fragment")
    return text.rstrip("/")


def _server_name(cluster: dict[str, object]) -> str | None:
    if "tls-server-name" not in cluster:
        return None
    name = _text(cluster, "tls-server-name")
    if not _HOST_NAME.fullmatch(name):
        raise KubeconfigRefused("tls-server-name is not a host name")
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
        raise KubeconfigRefused("token has characters that no token has")
    return token


def _pem(mapping: dict[str, object], key: str) -> str:
    try:
        text = base64.b64decode(_text(mapping, key), validate=True).decode("ascii")
    except (binascii.Error, ValueError) as e:
        raise KubeconfigRefused(f"{key} is not PEM in base64") from e
    if "-----BEGIN " not in text:
        raise KubeconfigRefused(f"{key} is not PEM in base64")
    return text
