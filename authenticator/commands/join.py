"""join: gets the first certificate, then writes the kubeconfig that the kubelet uses.

It replaces the TLS bootstrap of the kubelet. Server and CA come from `bootstrap-kubelet.conf`; its
credential requests the certificate. Then join writes `kubelet.conf`, complete and private. A crash
at any moment leaves no kubelet.conf or a working one, and the next run continues. A certificate
that is cached already is used only if this machine obtained it: the host may have been reset, or
its disk copied.

The certificate is obtained for the exec info that client-go derives from the new kubeconfig, so the
cache answers the first call of the kubelet. The file is JSON, which is also YAML: client-go reads
YAML 1.1, where a plain `n` is a boolean.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from authenticator.clock import SystemClock
from authenticator.commands import join_copied, kubelet_unit
from authenticator.commands.run import (
    RESOLVE_SECONDS,
    CommandContext,
    obtain_and_record,
    watchdog,
)
from authenticator.config import invocation, kubeconfig
from authenticator.config.command_line import PROGRAM, Arguments
from authenticator.config.exec_info import CLUSTER_KEYS, ExecInfo, from_cluster, parse_exec_info
from authenticator.config.invocation import Invocation
from authenticator.config.kubeconfig import Kubeconfig
from authenticator.config.setting_table import SETTINGS
from authenticator.config.settings import Settings, resolve
from authenticator.enroll.enroll import Trigger
from authenticator.errors import (
    BootstrapCredentialUnusable,
    ConfigurationInvalid,
    ExecInfoInvalid,
    KubeconfigNotOurs,
    KubeconfigUnusable,
    KubeconfigUnwritable,
)
from authenticator.model import Deadline, Server
from authenticator.state.credential import Credential
from authenticator.state.directory import StateDirectory, write_file_atomic
from authenticator.state.store import FileStore

FULL_PROGRAM_SUFFIX: Final = "-full"
"""The name of the full program is that of the launcher with this suffix (see `launcher`)."""

ADMIN_KUBECONFIG: Final = "admin.conf"
"""kubeadm writes it to the directory of kubelet.conf, on control plane nodes only."""

KEPT_SUFFIX: Final = ".attested"
"""`leave` adds it to the name of the kubeconfig, until the kubelet has another."""

_API_VERSION: Final = "client.authentication.k8s.io/v1"
_COPIED_KEYS: Final = tuple(key for key in CLUSTER_KEYS if key != "config")
_NAME: Final = "kubernetes"
_USER: Final = "kubelet"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinPlan:
    """The kubeconfig to write, and the call that gets the certificate for it."""

    path: Path
    content: bytes
    call: Invocation


def run(context: CommandContext) -> int:
    """Join, unless the kubeconfig runs this program already. Raises leaves of the error tree.

    A leave that was interrupted ends with that; it may have left a kubeconfig of the kubelet.
    """
    arguments = context.arguments
    kept = kept_path(arguments.kubeconfig)
    arguments = replace(arguments, replace=arguments.replace or kept.exists())
    with watchdog(Deadline(SystemClock(), RESOLVE_SECONDS)):
        plan = plan_join(arguments, launcher_path(context.program), os.uname().nodename)
    if plan is not None:
        context.print_certificate(_join(plan, may_replace=arguments.replace))
    kubelet_unit.show_drop_in(kubelet_unit.HIDING_LINK)  # `leave` has hidden it
    if kept.exists():  # the file system may be read-only
        kept.unlink(missing_ok=True)
    if plan is None:
        context.out.write(f"{arguments.kubeconfig} runs {PROGRAM} already\n")
        join_copied.rejoin_if_copied(arguments.kubeconfig)
    return 0


def _join(plan: JoinPlan, *, may_replace: bool) -> Credential:
    clock = SystemClock()
    deadline = Deadline(clock, plan.call.settings.timeout_seconds)
    with watchdog(deadline), StateDirectory(plan.call.settings.state_dir) as directory:
        store = FileStore(directory, clock)
        with store.lock(deadline):
            credential = obtain_and_record(plan.call, store, deadline, Trigger.JOIN)
            write_kubeconfig(plan, may_replace=may_replace)
    return credential


def kept_path(path: Path) -> Path:
    """Return where `leave` keeps the kubeconfig `path` until the kubelet has another."""
    return path.with_name(path.name + KEPT_SUFFIX)


def launcher_path(program: str) -> Path:
    """Return the launcher in the directory of the full program, whose path is `program`.

    Raises `ConfigurationInvalid` if the program was started in a way that does not show it.
    """
    path = Path(program).resolve()
    launcher = path.with_name(path.name.removesuffix(FULL_PROGRAM_SUFFIX))
    if launcher == path or not os.access(launcher, os.X_OK):
        raise ConfigurationInvalid(f"join must be run as {PROGRAM}, by the path of its launcher")
    return launcher


def plan_join(arguments: Arguments, launcher: Path, hostname: str) -> JoinPlan | None:
    """Return what to do; None if the kubeconfig runs this program already.

    Raises `ConfigurationInvalid`, `KubeconfigNotOurs`, `KubeconfigUnusable`,
    `BootstrapCredentialUnusable`.
    """
    settings = resolve({}, arguments.flags, hostname, arguments.problems)
    path = arguments.kubeconfig
    if _is_already_ours(path, may_replace=arguments.replace):
        return None
    source = _load_source(settings, path if arguments.replace else None)
    cluster = _cluster(source, arguments.proxy_url, _extension(arguments.flags))
    user = {
        "exec": {
            "apiVersion": _API_VERSION,
            "command": str(launcher),
            "interactiveMode": "Never",
            "provideClusterInfo": True,
        }
    }
    call = invocation.call_of_kubeconfig(Kubeconfig(path=path, cluster=cluster, user=user))
    try:
        exec_info = parse_exec_info(call.exec_info)
    except ExecInfoInvalid as error:
        raise KubeconfigUnusable(f"{source.path}: {error.message}") from error
    return JoinPlan(
        path=path,
        content=_document(cluster, user),
        call=Invocation(
            exec_info=replace(exec_info, server=_reachable_server(exec_info, path)),
            settings=replace(
                resolve(exec_info.settings, {}, hostname), bootstrap_kubeconfig=source.path
            ),
            arguments=call.arguments,
        ),
    )


def _reachable_server(exec_info: ExecInfo, path: Path) -> Server:
    """Return the server of admin.conf if its CA is that of the kubeconfig, else the kubeconfig's.

    With kubeadm's ControlPlaneKubeletLocalMode (always on since 1.35) the bootstrap kubeconfig of a
    joining control plane node names the API server of this very node. That is a static pod, which
    only a kubelet with a kubeconfig starts. Only the address comes from admin.conf; no credential.
    """
    try:
        admin = kubeconfig.load(path.with_name(ADMIN_KUBECONFIG))
        server = from_cluster(b"", _API_VERSION, invocation.exec_cluster(admin)).server
    except (KubeconfigUnusable, ExecInfoInvalid):
        return exec_info.server
    if server.ca != exec_info.server.ca:
        return exec_info.server
    return replace(server, proxy=server.proxy or exec_info.server.proxy)


def write_kubeconfig(plan: JoinPlan, *, may_replace: bool) -> None:
    """Write the kubeconfig, unless another run has written it.

    Raises `KubeconfigNotOurs`, `KubeconfigUnwritable`.
    """
    if _is_already_ours(plan.path, may_replace=may_replace):
        return
    try:
        write_file_atomic(plan.path, plan.content)
    except OSError as error:
        raise KubeconfigUnwritable(f"{plan.path}: {error.strerror}") from error


def _is_already_ours(path: Path, *, may_replace: bool) -> bool:
    """Return whether the kubeconfig runs this program; False if a new one may be written.

    Raises `KubeconfigNotOurs` if another credential would be lost without `may_replace`.
    """
    if not path.exists():
        return False
    try:
        user = kubeconfig.load(path).user
    except KubeconfigUnusable as error:
        user, problem = {}, error.message
    else:
        problem = f"{path} has {', '.join(sorted(user)) or 'no credential'} for its user"
    if _runs_this_program(user):
        return True
    if not may_replace:
        raise KubeconfigNotOurs(f"{problem}, and is kept; join --replace replaces it")
    return False


def runs_this_program(path: Path) -> bool:
    """Return whether a kubeconfig runs this program, and has no other credential.

    Raises `KubeconfigUnusable`.
    """
    return _runs_this_program(kubeconfig.load(path).user)


def _runs_this_program(user: Mapping[str, object]) -> bool:
    stanza = user.get("exec")
    command = stanza.get("command") if isinstance(stanza, dict) else None
    return len(user) == 1 and isinstance(command, str) and Path(command).name == PROGRAM


def _load_source(settings: Settings, replaced: Path | None) -> Kubeconfig:
    """Return the bootstrap kubeconfig; if it does not exist, the one to replace."""
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
    """Return the settings that the flags give, for the exec extension; numbers as numbers."""
    extension: dict[str, object] = {}
    for setting in SETTINGS:
        if setting.key in flags:
            value = setting.parse(flags[setting.key])
            extension[setting.key] = value if isinstance(value, int) else flags[setting.key]
    return extension


def _cluster(
    source: Kubeconfig, proxy: str | None, extension: dict[str, object]
) -> dict[str, object]:
    """Return the cluster of the source, its CA inline, with the proxy and our settings."""
    given = dict(invocation.exec_cluster(source))
    if proxy is not None:
        given["proxy-url"] = proxy
    cluster = {key: given[key] for key in _COPIED_KEYS if given.get(key)}
    if extension:
        cluster["extensions"] = [{"name": invocation.EXEC_EXTENSION, "extension": extension}]
    return cluster


def _document(cluster: Mapping[str, object], user: Mapping[str, object]) -> bytes:
    """Return the kubeconfig as JSON; characters that YAML does not allow are escaped as in YAML."""
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
