"""Builds the real dependencies of `cli` and the commands.

The TPM stack, the HTTP library and YAML load slowly and may be broken, so functions here import
them on first use.
"""

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from authenticator.config import invocation
from authenticator.config.command_line import PROGRAM, Arguments, parse_arguments
from authenticator.config.exec_info import parse_exec_info
from authenticator.config.invocation import Invocation, PluginCall
from authenticator.config.setting_table import DEFAULT_STATE_DIR
from authenticator.config.settings import Settings, resolve, resolve_valid
from authenticator.enroll.enroll_dependencies import EnrollDependencies
from authenticator.errors import (
    ExecInfoInvalid,
    KubeconfigUnusable,
    StateDirectoryUnsafe,
    StateDirectoryUnwritable,
)
from authenticator.late_imports import late_imports
from authenticator.model import ApiCredential, Clock, Deadline, Server
from authenticator.providers.provider import Identity
from authenticator.state.credential import Credential
from authenticator.state.directory import StateDirectory
from authenticator.state.run_record import RunRecorder
from authenticator.state.store import FileStore
from authenticator.tpm.device import Tpm

if TYPE_CHECKING:
    from authenticator.kube.client import KubernetesApi

_logger = logging.getLogger(__name__)

_CERTIFYING_PROVIDER: Final = "azure"
"""The provider whose platform certifies attestation keys."""


def connect(server: Server, requester: ApiCredential, deadline: Deadline) -> "KubernetesApi":
    """Return a client of the API server."""
    with late_imports():
        from authenticator.kube import client  # noqa: PLC0415 - see above
    return client.KubernetesApi(server, requester, deadline)


def load_bootstrap(path: Path) -> ApiCredential:
    """Read the bootstrap credential."""
    from authenticator.config import bootstrap_credential  # noqa: PLC0415 - see above

    return bootstrap_credential.load_bootstrap_credential(path)


@contextlib.contextmanager
def open_tpm(settings: Settings, deadline: Deadline) -> Iterator[Tpm]:
    """Open this machine's TPM."""
    with late_imports():
        from authenticator.tpm import open_tpm as opening  # noqa: PLC0415 - see above
    with opening.open_tpm(
        settings.tcti,
        key_type=settings.endorsement_key_type,
        endorsement_auth=settings.endorsement_password(),
        prefer_certified=settings.provider == _CERTIFYING_PROVIDER,
        deadline=deadline,
    ) as tpm:
        yield tpm


def query_provider(setting: str, deadline: Deadline) -> Identity:
    """Return what the platform says about the identity of this machine."""
    from authenticator.providers import registry  # noqa: PLC0415 - see above

    return registry.query_provider(setting, deadline)


def with_provider_identity(
    settings: Settings, deadline: Deadline, current: Credential | None = None
) -> Settings:
    """Return settings with the identity from their provider, for commands without an exchange."""
    return settings.with_provider_identity(
        lambda setting: query_provider(setting, deadline), current
    )


def build_dependencies(
    settings: Settings, store: FileStore, clock: Clock, phases: RunRecorder
) -> EnrollDependencies:
    """Return the real dependencies of an exchange."""
    return EnrollDependencies(
        clock=clock,
        store=store,
        connect=connect,
        open_tpm=lambda deadline: open_tpm(settings, deadline),
        load_bootstrap=load_bootstrap,
        query_provider=query_provider,
        event_log=settings.event_log,
        pcr_signatures=settings.pcr_signatures,
        token_hex=lambda: secrets.token_hex(16),
        jitter=secrets.SystemRandom().random,
        phases=phases,
    )


def resolve_invocation(parsed: Arguments, environment: bytes | None, clock: Clock) -> Invocation:
    """Return the call that the kubelet makes, with the flags that were given now.

    Logs where the call of the cached credential differs. Raises `ExecInfoInvalid`,
    `KubeconfigUnusable`, `ConfigurationInvalid`.
    """
    call = find_call(parsed, environment, clock)
    resolved, differences = compare_with_cache(call, build_invocation(parsed, call), clock)
    if differences:
        _logger.warning(
            "the cached certificate was obtained before a change of %s; differences: %s",
            call.origin,
            ", ".join(differences),
        )
    return resolved


def compare_with_cache(
    call: PluginCall, resolved: Invocation, clock: Clock
) -> tuple[Invocation, tuple[str, ...]]:
    """Return the call, and the names of the settings in which the cached call differs.

    If nothing differs, the call gets the bytes of the cached exec info: client-go passed these, and
    bytes that are made from a kubeconfig may differ from them in form.
    """
    cached = load_credential_or_none(resolved.settings.state_dir, clock)
    if cached is None:
        return resolved, ()
    differences = invocation.differences(call, cached)
    if differences:
        return resolved, differences
    exec_info = replace(resolved.exec_info, raw=cached.exec_info)
    return replace(resolved, exec_info=exec_info), ()


def find_call(parsed: Arguments, environment: bytes | None, clock: Clock) -> PluginCall:
    """Find the call that the kubelet makes. Raises `ExecInfoInvalid`, `KubeconfigUnusable`."""
    cached = load_credential_or_none(Path(parsed.flags.get("stateDir", DEFAULT_STATE_DIR)), clock)
    try:
        return invocation.find_call(
            environment, cached, parsed.kubeconfig, explicit=parsed.kubeconfig_explicit
        )
    except KubeconfigUnusable as error:
        raise KubeconfigUnusable(
            f"{error.message}; run {PROGRAM} join if this node has not joined, else"
            f" {PROGRAM} doctor"
        ) from error


def build_invocation(parsed: Arguments, call: PluginCall) -> Invocation:
    """Resolve the settings of a call. Raises `ExecInfoInvalid`, `ConfigurationInvalid`."""
    flags = {**parse_arguments(call.arguments).flags, **parsed.flags}
    exec_info = parse_exec_info(call.exec_info)
    settings = resolve(exec_info.settings, flags, os.uname().nodename, parsed.problems)
    return Invocation(exec_info=exec_info, settings=settings, arguments=call.arguments)


def resolve_settings(parsed: Arguments, environment: bytes | None, clock: Clock) -> Settings:
    """Return the settings of the kubelet's call, or those of the flags if there is no call.

    The endorsement key is needed before there is a kubeconfig. Raises `ConfigurationInvalid`.
    """
    try:
        return build_invocation(parsed, find_call(parsed, environment, clock)).settings
    except (ExecInfoInvalid, KubeconfigUnusable):
        return resolve({}, parsed.flags, os.uname().nodename, parsed.problems)


def find_state_dir(parsed: Arguments, environment: bytes | None, clock: Clock) -> Path:
    """Return the state directory of the kubelet's call, also if its other settings are wrong.

    Raises `ExecInfoInvalid`, `KubeconfigUnusable`, `ConfigurationInvalid`: there is no such call.
    """
    call = find_call(parsed, environment, clock)
    flags = {**parse_arguments(call.arguments).flags, **parsed.flags}
    extension = parse_exec_info(call.exec_info).settings
    settings, _ = resolve_valid(extension, flags, os.uname().nodename)
    return settings.state_dir


def load_credential_or_none(state_dir: Path, clock: Clock) -> Credential | None:
    """Return the credential in a state directory, None also if the directory cannot be used."""
    try:
        return load_credential_from(state_dir, clock)
    except (StateDirectoryUnsafe, StateDirectoryUnwritable):
        return None  # a run opens the directory again, and raises this


def state_directory_exists(path: Path) -> bool:
    """Return whether something is at the path of a state directory.

    Raises `StateDirectoryUnwritable` if this user may not look it up.
    """
    try:
        return path.exists()
    except OSError as error:
        raise StateDirectoryUnwritable(f"state directory {path}: {error.strerror}") from error


def load_credential_from(path: Path, clock: Clock) -> Credential | None:
    """Return the credential in a state directory. Does not create the directory.

    Raises `StateDirectoryUnsafe`, `StateDirectoryUnwritable`.
    """
    if not state_directory_exists(path):
        return None
    with StateDirectory(path) as directory:
        return FileStore(directory, clock).load_credential()
