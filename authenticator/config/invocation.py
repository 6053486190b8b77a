"""The call that the kubelet makes, for commands that an operator or a timer runs.

Its kubeconfig says what the kubelet's next call will be, so it counts before the cache, which says
what the last successful call was.
"""

import base64
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from authenticator.config import exec_info, kubeconfig
from authenticator.config.exec_info import ExecInfo
from authenticator.config.settings import Settings
from authenticator.errors import ExecInfoInvalid, KubeconfigUnusable
from authenticator.state.credential import Credential

_logger = logging.getLogger(__name__)

EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCall:
    """A call as client-go makes it: what it passes to the plugin, and where that is written."""

    origin: str
    exec_info: bytes
    arguments: tuple[str, ...]


def find_call(
    environment: bytes | None, cached: Credential | None, path: Path, *, explicit: bool
) -> PluginCall:
    """Return the call of the kubeconfig, of the environment, or of the cached credential.

    A kubeconfig that is named explicitly comes first and has no fallback. Else the environment
    comes first, as client-go sets it, then the kubeconfig, and then the cache.
    Raises `ExecInfoInvalid`, `KubeconfigUnusable`.
    """
    if environment is not None and not explicit:
        return PluginCall(origin=exec_info.EXEC_INFO_ENV, exec_info=environment, arguments=())
    try:
        return call_of_kubeconfig(kubeconfig.load(path))
    except (ExecInfoInvalid, KubeconfigUnusable):
        if explicit or cached is None:
            raise
        return PluginCall(
            origin="the cached credential",
            exec_info=cached.exec_info,
            arguments=cached.arguments,
        )


def differences(call: PluginCall, cached: Credential) -> tuple[str, ...]:
    """Return what the call has otherwise than that of the cached credential.

    These are members of `spec.cluster` and of its `config`, or "arguments". The environment does
    not hold the arguments, so they are not compared for a call from there.
    """
    before, after = _members(cached.exec_info), _members(call.exec_info)
    names = [key for key in sorted({**before, **after}) if before.get(key) != after.get(key)]
    if call.origin != exec_info.EXEC_INFO_ENV and call.arguments != cached.arguments:
        names.append("arguments")
    return tuple(names)


def _members(raw: bytes) -> Mapping[str, object]:
    """Return the members of `spec.cluster`, those of `config` by their own names."""
    try:
        cluster = dict(json.loads(raw)["spec"]["cluster"])
        return cluster | dict(cluster.pop("config", None) or {})
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def call_of_kubeconfig(source: kubeconfig.Kubeconfig) -> PluginCall:
    """Return the call that client-go makes with a kubeconfig. Raises `ExecInfoInvalid`."""
    stanza = source.user.get("exec")
    if not isinstance(stanza, dict):
        raise ExecInfoInvalid(f"{source.path}: its user has no exec stanza")
    arguments = stanza.get("args") or []
    if not isinstance(arguments, list):
        raise ExecInfoInvalid(f"{source.path}: args of its exec stanza must be a list")
    raw = exec_info.encode_as_client_go(exec_cluster(source), str(stanza.get("apiVersion")))
    return PluginCall(origin=str(source.path), exec_info=raw, arguments=tuple(map(str, arguments)))


def exec_cluster(source: kubeconfig.Kubeconfig) -> Mapping[str, object]:
    """Return `spec.cluster`, with the CA inline and the exec extension as `config`.

    Raises `KubeconfigUnusable`.
    """
    cluster = dict(source.cluster)
    authority, data = (cluster.get(f"certificate-authority{end}") for end in ("", "-data"))
    if isinstance(data, str) and data:
        cluster["certificate-authority-data"] = "".join(data.splitlines())  # as Go decodes it
    elif isinstance(authority, str) and authority:
        inline = base64.b64encode(source.file(authority)).decode()
        cluster["certificate-authority-data"] = inline
    extensions = cluster.get("extensions")
    for entry in extensions if isinstance(extensions, list) else []:
        if isinstance(entry, dict) and entry.get("name") == EXEC_EXTENSION:
            cluster["config"] = entry.get("extension")
    return cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One call with its settings."""

    exec_info: ExecInfo
    settings: Settings
    arguments: tuple[str, ...]

    def matches(self, credential: Credential | None) -> Credential | None:
        """Return the credential if it is this node's, and for this API server or under its CA.

        Everything else about the call may differ: a certificate that works is better than a new
        one. If the node name comes from the host name, a difference only causes a warning, since
        the host name may change while the certificate has the right name.
        """
        if (
            credential is None
            or not self.settings.matches_node(credential.node_name)
            or not self._is_for_this_cluster(credential)
        ):
            return None
        if self.settings.provider is None and credential.node_name != self.settings.node_name:
            _logger.warning(
                "the host name is %r, and the certificate is of node %s: set nodeName if the host"
                " name does not become the node's again",
                self.settings.node_name,
                credential.node_name,
            )
        return credential

    def is_known_to(self, credential: Credential) -> bool:
        """Return whether this or an earlier certificate was obtained for this exec info.

        Two kubeconfigs of one node cause one renewal each, and then share the certificate.
        """
        return self.digest in credential.known_calls

    @property
    def digest(self) -> str:
        """Return a digest of the exec info, for `Credential.known_calls`."""
        return sha256(self.exec_info.raw).hexdigest()[:32]

    def _is_for_this_cluster(self, credential: Credential) -> bool:
        if credential.exec_info == self.exec_info.raw:
            return True
        try:
            server = exec_info.parse_exec_info(credential.exec_info).server
        except ExecInfoInvalid:
            return False
        return exec_info.is_same_cluster(server, self.exec_info.server)
