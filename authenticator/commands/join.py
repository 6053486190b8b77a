"""join: the first certificate, then the kubeconfig with which the kubelet asks for the next ones.

What the kubelet's own TLS bootstrap would do, for a kubelet that has none: server and CA come from
`bootstrap-kubelet.conf`, a certificate is obtained with its credential, and only then kubelet.conf
appears, whole and private. A kill at any moment leaves either no kubelet.conf or one that works,
and the next run goes on where this one was.

The certificate is made for the very exec info that client-go makes of the new kubeconfig, so the
kubelet's first call is answered from the cache. The file is JSON, which is YAML without its traps:
client-go reads YAML 1.1, where a plain `n` is a boolean.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from authenticator.config import invocation, kubeconfig
from authenticator.config.arguments import PROGRAM, Arguments
from authenticator.config.exec_info import CLUSTER_KEYS, parse_exec_info
from authenticator.config.invocation import Invocation
from authenticator.config.kubeconfig import Kubeconfig
from authenticator.config.settings import SETTINGS, Settings, resolve
from authenticator.errors import (
    BootstrapCredentialUnusable,
    ConfigurationInvalid,
    ExecInfoInvalid,
    KubeconfigNotOurs,
    KubeconfigUnusable,
    KubeconfigUnwritable,
)
from authenticator.state.directory import write_file_atomic

FULL_PROGRAM_SUFFIX: Final = "-full"
"""What distinguishes the full program's name from the launcher's (see `launcher`)."""

_API_VERSION: Final = "client.authentication.k8s.io/v1"
_COPIED_KEYS: Final = tuple(key for key in CLUSTER_KEYS if key != "config")
_NAME: Final = "kubernetes"
_USER: Final = "kubelet"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinPlan:
    """The kubeconfig to write, and the call that a kubelet with it makes."""

    path: Path
    content: bytes
    call: Invocation


def launcher_path(program: str) -> Path:
    """Return the launcher that belongs to the full program's own path.

    Raises ConfigurationInvalid when it was started in another way, so that nobody knows.
    """
    path = Path(program).resolve()
    launcher = path.with_name(path.name.removesuffix(FULL_PROGRAM_SUFFIX))
    if launcher == path or not os.access(launcher, os.X_OK):
        raise ConfigurationInvalid(f"join has to be run as {PROGRAM}, by the path of its launcher")
    return launcher


def plan_join(parsed: Arguments, launcher: Path, hostname: str) -> JoinPlan | None:
    """Say what is to be done; None when the kubeconfig runs this program already.

    Raises ConfigurationInvalid, KubeconfigNotOurs, KubeconfigUnusable, BootstrapCredentialUnusable.
    """
    settings = resolve({}, parsed.flags, hostname, parsed.problems)
    path = Path(parsed.kubeconfig)
    if _is_already_ours(path, may_go=parsed.replace):
        return None
    source = _load_source(settings, path if parsed.replace else None)
    cluster = _cluster(source, _extension(parsed.flags))
    user = {
        "exec": {
            "apiVersion": _API_VERSION,
            "command": str(launcher),
            "interactiveMode": "Never",
            "provideClusterInfo": True,
        }
    }
    found = invocation.invocation_from_kubeconfig(Kubeconfig(path=path, cluster=cluster, user=user))
    try:
        exec_info = parse_exec_info(found.exec_info)
    except ExecInfoInvalid as error:
        raise KubeconfigUnusable(f"{source.path}: {error.message}") from error
    call = Invocation(
        exec_info=exec_info,
        settings=replace(
            resolve(exec_info.settings, {}, hostname), bootstrap_kubeconfig=source.path
        ),
        arguments=found.arguments,
    )
    return JoinPlan(path=path, content=_document(cluster, user), call=call)


def write_kubeconfig(made: JoinPlan, *, may_replace: bool) -> None:
    """Put the kubeconfig in its place. Raises KubeconfigNotOurs, KubeconfigUnwritable."""
    if _is_already_ours(made.path, may_go=may_replace):
        return  # another run of this program was faster
    try:
        write_file_atomic(made.path, made.content)
    except OSError as error:
        raise KubeconfigUnwritable(f"{made.path}: {error.strerror}") from error


def _is_already_ours(path: Path, *, may_go: bool) -> bool:
    """Tell whether this program is what the kubeconfig runs; False when there is room for one.

    Raises KubeconfigNotOurs when another credential would be lost, and may not be.
    """
    if not path.exists():
        return False
    try:
        user = kubeconfig.load(path).user
    except KubeconfigUnusable as error:
        user, told = {}, error.message
    else:
        told = f"{path} has {', '.join(sorted(user)) or 'no credential'} for its user"
    stanza = user.get("exec")
    command = stanza.get("command") if isinstance(stanza, dict) else None
    if len(user) == 1 and isinstance(command, str) and Path(command).name == PROGRAM:
        return True
    if not may_go:
        raise KubeconfigNotOurs(f"{told}, and is left as it is; join --replace puts ours there")
    return False


def _load_source(settings: Settings, replaced: Path | None) -> Kubeconfig:
    """Return the bootstrap kubeconfig, or without one that which is to be replaced."""
    path = settings.bootstrap_kubeconfig
    if replaced is not None and replaced.exists() and not path.exists():
        path = replaced
    try:
        return kubeconfig.load(path)
    except KubeconfigUnusable as error:
        raise BootstrapCredentialUnusable(
            f"{error.message}; put a kubeconfig there with the cluster's address, its CA and a"
            " bootstrap token, as kubeadm join does"
        ) from error


def _extension(flags: Mapping[str, str]) -> dict[str, object]:
    """Return the settings that were given, for the exec extension; numbers as numbers."""
    extension: dict[str, object] = {}
    for setting in SETTINGS:
        if setting.key in flags:
            taken = setting.parse(flags[setting.key])
            extension[setting.key] = taken if isinstance(taken, int) else flags[setting.key]
    return extension


def _cluster(source: Kubeconfig, extension: dict[str, object]) -> dict[str, object]:
    """Return the cluster of the source, its CA inline, with our settings."""
    told = invocation.exec_cluster(source)
    cluster = {key: told[key] for key in _COPIED_KEYS if told.get(key)}
    if extension:
        cluster["extensions"] = [{"name": invocation.EXEC_EXTENSION, "extension": extension}]
    return cluster


def _document(cluster: Mapping[str, object], user: Mapping[str, object]) -> bytes:
    """Write the kubeconfig. What YAML would not take as it stands is escaped, as YAML does."""
    context = f"{_USER}@{_NAME}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": _USER, "user": user}],
        "contexts": [{"name": context, "context": {"cluster": _NAME, "user": _USER}}],
        "current-context": context,
    }
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    return "".join(
        each if each.isprintable() or each == "\n" else f"\\U{ord(each):08x}" for each in text
    ).encode()
