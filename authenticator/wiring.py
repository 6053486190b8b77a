"""Connects the interfaces of `enroll` with their implementations, for `cli` and its commands.

The TPM stack, the HTTP library and YAML load slowly, and may be broken: they are imported on first
use.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from authenticator.config.arguments import Arguments, parse_arguments
from authenticator.config.exec_info import parse_exec_info
from authenticator.config.invocation import Invocation
from authenticator.config.settings import DEFAULT_STATE_DIR, Settings, resolve
from authenticator.enroll.enroll import EnrollDependencies
from authenticator.errors import ExecInfoInvalid, KubeconfigUnusable
from authenticator.model import ApiCredential, Clock, Deadline, PhaseTimer, Server
from authenticator.providers.provider import Identity
from authenticator.state.credential import Credential
from authenticator.state.directory import StateDirectory
from authenticator.state.store import FileStore
from authenticator.tpm.device import Tpm

if TYPE_CHECKING:
    from authenticator.kube.client import KubernetesApi


def connect(server: Server, requester: ApiCredential, deadline: Deadline) -> "KubernetesApi":
    """Return a client of the API server; it connects with its first request."""
    from authenticator.kube import client  # noqa: PLC0415 - see above

    return client.KubernetesApi(server, requester, deadline)


def load_bootstrap(path: Path) -> ApiCredential:
    """Return the bootstrap credential."""
    from authenticator.config import bootstrap_credential  # noqa: PLC0415 - see above

    return bootstrap_credential.load_bootstrap_credential(path)


@contextlib.contextmanager
def open_tpm(settings: Settings, deadline: Deadline) -> Iterator[Tpm]:
    """Open this machine's TPM."""
    from authenticator.tpm import esapi  # noqa: PLC0415 - see above

    with esapi.open_tpm(
        settings.tcti,
        key_type=settings.endorsement_key_type,
        endorsement_auth=settings.endorsement_password(),
        deadline=deadline,
    ) as tpm:
        yield tpm


def query_provider(setting: str, deadline: Deadline) -> Identity:
    """Return this machine's identity from its platform."""
    from authenticator.providers import registry  # noqa: PLC0415 - see above

    return registry.query_provider(setting, deadline)


def with_provider_identity(settings: Settings, deadline: Deadline) -> Settings:
    """Return settings with the provider's identity, for commands that run no exchange."""
    return settings.with_provider_identity(lambda setting: query_provider(setting, deadline))


def build_dependencies(
    settings: Settings, store: FileStore, clock: Clock, phases: PhaseTimer
) -> EnrollDependencies:
    """Return the real dependencies."""
    return EnrollDependencies(
        clock=clock,
        store=store,
        connect=connect,
        open_tpm=lambda deadline: open_tpm(settings, deadline),
        load_bootstrap=load_bootstrap,
        query_provider=query_provider,
        event_log=settings.event_log,
        token_hex=lambda: secrets.token_hex(16),
        jitter=secrets.SystemRandom().random,
        phases=phases,
    )


def resolve_invocation(parsed: Arguments, raw: bytes | None, clock: Clock) -> Invocation:
    """Return the kubelet's call; flags of this command line take precedence."""
    from authenticator.config import invocation  # noqa: PLC0415 - see above

    directory = Path(parsed.flags.get("stateDir", DEFAULT_STATE_DIR))
    source = invocation.find_invocation(
        raw, load_credential_from(directory, clock), Path(parsed.kubeconfig)
    )
    flags = {**parse_arguments(source.arguments).flags, **parsed.flags}
    exec_info = parse_exec_info(source.exec_info)
    settings = resolve(exec_info.settings, flags, os.uname().nodename, parsed.problems)
    return Invocation(exec_info=exec_info, settings=settings, arguments=source.arguments)


def resolve_settings(parsed: Arguments, raw: bytes | None, clock: Clock) -> Settings:
    """Return the settings of the kubelet's call, or of the flags when no call is found.

    The endorsement key can be printed before there is a kubeconfig.
    """
    try:
        return resolve_invocation(parsed, raw, clock).settings
    except (ExecInfoInvalid, KubeconfigUnusable):
        return resolve({}, parsed.flags, os.uname().nodename, parsed.problems)


def load_credential_from(path: Path, clock: Clock) -> Credential | None:
    """Return the credential in a state directory, without creating the directory."""
    if not path.is_dir():
        return None
    with StateDirectory(path) as directory:
        return FileStore(directory, clock).load_credential()
