"""The call that the kubelet makes, found when nobody made one: for people and for timers.

From the environment when it is there, else from the credential in the cache, which holds the exec
info and the arguments that it was made for, else from the kubelet's kubeconfig.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from authenticator.config import exec_info, kubeconfig
from authenticator.config.exec_info import ExecInfo
from authenticator.config.settings import Settings
from authenticator.errors import ExecInfoInvalid
from authenticator.state.credential import Credential

EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A call as client-go would make it, and where it was found."""

    origin: str
    exec_info: bytes
    arguments: tuple[str, ...]


def find_invocation(raw: bytes | None, kept: Credential | None, path: Path) -> Found:
    """Find the call. Raises ExecInfoInvalid, KubeconfigUnusable when there is none."""
    if raw is not None:
        return Found(origin=exec_info.EXEC_INFO_ENV, exec_info=raw, arguments=())
    if kept is not None:
        return Found(origin="credential", exec_info=kept.exec_info, arguments=kept.arguments)
    return invocation_from_kubeconfig(kubeconfig.load(path))


def invocation_from_kubeconfig(found: kubeconfig.Kubeconfig) -> Found:
    """Make of a kubeconfig what client-go would. Raises ExecInfoInvalid."""
    stanza = found.user.get("exec")
    if not isinstance(stanza, dict):
        raise ExecInfoInvalid(f"{found.path}: its user has no exec stanza")
    arguments = stanza.get("args") or []
    if not isinstance(arguments, list):
        raise ExecInfoInvalid(f"{found.path}: args of its exec stanza is not a list")
    return Found(
        origin=str(found.path),
        exec_info=exec_info.encode_as_client_go(exec_cluster(found), str(stanza.get("apiVersion"))),
        arguments=tuple(map(str, arguments)),
    )


def exec_cluster(found: kubeconfig.Kubeconfig) -> Mapping[str, object]:
    """Return `spec.cluster`: files are read in, and the exec extension becomes `config`.

    Raises KubeconfigUnusable.
    """
    cluster = dict(found.cluster)
    authority, data = (cluster.get(f"certificate-authority{end}") for end in ("", "-data"))
    if isinstance(data, str) and data:
        cluster["certificate-authority-data"] = "".join(data.splitlines())  # as Go's decoder
    elif isinstance(authority, str) and authority:
        inline = base64.b64encode(found.file(authority)).decode()
        cluster["certificate-authority-data"] = inline
    extensions = cluster.get("extensions")
    for entry in extensions if isinstance(extensions, list) else []:
        if isinstance(entry, dict) and entry.get("name") == EXEC_EXTENSION:
            cluster["config"] = entry.get("extension")
    return cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """What one call asks for."""

    exec_info: ExecInfo
    settings: Settings
    arguments: tuple[str, ...]

    def matches(self, credential: Credential | None) -> Credential | None:
        """Return the credential if it was made for exactly this exec info, and for this node."""
        if (
            credential is not None
            and credential.exec_info == self.exec_info.raw
            and self.settings.matches_node(credential.node_name)
        ):
            return credential
        return None
