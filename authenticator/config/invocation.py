"""The call that client-go makes, and how commands without one find it.

Operators and timers run commands without KUBERNETES_EXEC_INFO. The call then comes from the cached
credential, which holds its exec info and arguments, else from the kubelet's kubeconfig.
"""

import base64
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from authenticator.config import exec_info, kubeconfig
from authenticator.config.exec_info import ExecInfo
from authenticator.config.settings import Settings
from authenticator.errors import ExecInfoInvalid
from authenticator.state.credential import Credential

_logger = logging.getLogger(__name__)

EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A call as client-go would make it, and its source."""

    origin: str
    exec_info: bytes
    arguments: tuple[str, ...]


def find_invocation(raw: bytes | None, cached: Credential | None, path: Path) -> Found:
    """Find the call. Raises ExecInfoInvalid, KubeconfigUnusable when there is none."""
    if raw is not None:
        return Found(origin=exec_info.EXEC_INFO_ENV, exec_info=raw, arguments=())
    if cached is not None:
        return Found(origin="credential", exec_info=cached.exec_info, arguments=cached.arguments)
    return invocation_from_kubeconfig(kubeconfig.load(path))


def invocation_from_kubeconfig(config: kubeconfig.Kubeconfig) -> Found:
    """Return the call that client-go would make of a kubeconfig. Raises ExecInfoInvalid."""
    stanza = config.user.get("exec")
    if not isinstance(stanza, dict):
        raise ExecInfoInvalid(f"{config.path}: its user has no exec stanza")
    arguments = stanza.get("args") or []
    if not isinstance(arguments, list):
        raise ExecInfoInvalid(f"{config.path}: args of its exec stanza must be a list")
    api_version = str(stanza.get("apiVersion"))
    return Found(
        origin=str(config.path),
        exec_info=exec_info.encode_as_client_go(exec_cluster(config), api_version),
        arguments=tuple(map(str, arguments)),
    )


def exec_cluster(config: kubeconfig.Kubeconfig) -> Mapping[str, object]:
    """Return `spec.cluster`: named files are read, and the exec extension becomes `config`.

    Raises KubeconfigUnusable.
    """
    cluster = dict(config.cluster)
    authority, data = (cluster.get(f"certificate-authority{end}") for end in ("", "-data"))
    if isinstance(data, str) and data:
        cluster["certificate-authority-data"] = "".join(data.splitlines())  # as Go decodes it
    elif isinstance(authority, str) and authority:
        inline = base64.b64encode(config.file(authority)).decode()
        cluster["certificate-authority-data"] = inline
    extensions = cluster.get("extensions")
    for entry in extensions if isinstance(extensions, list) else []:
        if isinstance(entry, dict) and entry.get("name") == EXEC_EXTENSION:
            cluster["config"] = entry.get("extension")
    return cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One call: exec info, settings and arguments."""

    exec_info: ExecInfo
    settings: Settings
    arguments: tuple[str, ...]

    def matches(self, credential: Credential | None) -> Credential | None:
        """Return the credential if it is this node's, and for this API server or under its CA.

        Everything else about the call may differ: a certificate that works is worth more than a
        new one. A node name that nobody configured only causes a warning, since a host name may
        change while the certificate's name is the node's.
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
