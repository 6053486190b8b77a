"""KUBERNETES_EXEC_INFO: what client-go tells a plugin about the call and its API server.

Trusted: it comes from the kubeconfig that starts this program. Settings in the cluster's exec
extension arrive as `spec.cluster.config` and are read by `config`. Source: the documentation of
client.authentication.k8s.io/v1 (v1beta1 differs in its name alone).
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from authenticator.errors import ExecInfoInvalid
from authenticator.model import Server

EXEC_INFO_ENV: Final = "KUBERNETES_EXEC_INFO"
API_VERSIONS: Final = frozenset(
    f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1")
)

CLUSTER_KEYS: Final = (
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority-data",
    "proxy-url",
    "disable-compression",
    "config",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecInfo:
    """One call of client-go: how to answer it, whom to ask, and the settings that came along."""

    raw: bytes
    """As it was given: a cached credential is for exactly these bytes."""
    api_version: str
    server: Server
    settings: Mapping[str, object]


def parse_exec_info(raw: bytes | None) -> ExecInfo:
    """Read the variable's value. Raises ExecInfoInvalid, with the remedy."""
    if raw is None:
        raise ExecInfoInvalid(
            f"{EXEC_INFO_ENV} is not set: this program is run by client-go from a kubeconfig's exec"
            " stanza; for use by hand see --help"
        )
    document = _object(_json(raw), "it")
    api_version = document.get("apiVersion")
    known = isinstance(api_version, str) and api_version in API_VERSIONS
    if document.get("kind") != "ExecCredential" or not known:
        versions = " or ".join(sorted(API_VERSIONS))
        raise ExecInfoInvalid(
            f"{EXEC_INFO_ENV} is no ExecCredential of {versions}: set it in kubeconfig"
        )
    cluster = _object(document.get("spec"), "spec").get("cluster")
    if cluster is None:
        raise ExecInfoInvalid(
            f"{EXEC_INFO_ENV} has no spec.cluster: set provideClusterInfo: true in kubeconfig"
        )
    return from_cluster(raw, str(api_version), _object(cluster, "spec.cluster"))


def from_cluster(raw: bytes, api_version: str, cluster: Mapping[str, object]) -> ExecInfo:
    """Read `spec.cluster`. Raises ExecInfoInvalid."""
    if cluster.get("insecure-skip-tls-verify", False) is not False:
        raise ExecInfoInvalid("insecure-skip-tls-verify is refused: give the cluster's CA instead")
    config = cluster.get("config")
    return ExecInfo(
        raw=raw,
        api_version=api_version,
        server=Server(
            url=_https(cluster.get("server")),
            ca=_certificates(cluster.get("certificate-authority-data")),
            tls_server_name=_text(cluster, "tls-server-name"),
            proxy=_proxy(_text(cluster, "proxy-url")),
        ),
        settings={} if config is None else _object(config, "the exec extension"),
    )


def _json(raw: bytes) -> object:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise ExecInfoInvalid(f"{EXEC_INFO_ENV} is not JSON") from None


def _object(value: object, name: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ExecInfoInvalid(f"{EXEC_INFO_ENV}: {name} is not an object")
    return value


def _text(cluster: Mapping[str, object], key: str) -> str | None:
    value = cluster.get(key)
    if value is not None and not isinstance(value, str):
        raise ExecInfoInvalid(f"{EXEC_INFO_ENV}: {key} is not a string")
    return value or None


def _https(value: object) -> str:
    url = value if isinstance(value, str) else ""
    parts = _split(url)
    if parts is None or parts.scheme != "https" or parts.query or parts.fragment:
        raise ExecInfoInvalid("the cluster's server is not an https address: correct kubeconfig")
    return url.rstrip("/")


def _proxy(value: str | None) -> str | None:
    if value is None:
        return None
    parts = _split(value)
    if parts is None or parts.scheme not in {"http", "https"}:
        raise ExecInfoInvalid("proxy-url is neither http nor https: correct kubeconfig")
    return value


def _split(url: str) -> SplitResult | None:
    """Take an address apart; None when it has no host, a port that is none, or blanks.

    `urlsplit` drops blanks without a word, and others read them in other ways.
    """
    if " " in url or not url.isprintable():
        return None
    try:
        parts = urlsplit(url)
        usable = parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if usable else None


def _certificates(value: object) -> str:
    try:
        pem = base64.b64decode(value, validate=True).decode() if isinstance(value, str) else ""
    except (binascii.Error, ValueError):
        raise ExecInfoInvalid("certificate-authority-data is not base64 of PEM") from None
    if "-----BEGIN CERTIFICATE-----" not in pem:
        raise ExecInfoInvalid(
            "the cluster has no CA: set certificate-authority or certificate-authority-data"
        )
    return pem


def encode_as_client_go(cluster: Mapping[str, object], api_version: str) -> bytes:
    """Return the variable's value as client-go makes it of `spec.cluster`, to the byte.

    Its encoder keeps the order of the fields, leaves out what is empty, and escapes what HTML
    would take amiss.
    """
    kept = {key: cluster[key] for key in CLUSTER_KEYS if cluster.get(key)}
    if "config" in kept:
        # Go's YAML makes texts of all keys, before its JSON sorts them.
        config = json.loads(json.dumps(kept["config"]))
        kept["config"] = json.loads(json.dumps(config, sort_keys=True))
    document = {
        "kind": "ExecCredential",
        "apiVersion": api_version,
        "spec": {"cluster": kept, "interactive": False},
    }
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode() + b"\n"
