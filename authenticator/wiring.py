"""What `cli` and its commands wire together: the real world behind the seams.

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
    """Make ready to ask the API server."""
    from authenticator.kube import client

    return client.KubernetesApi(server, requester, deadline)


def load_bootstrap(path: Path) -> ApiCredential:
    """Read the bootstrap credential."""
    from authenticator.config import bootstrap_credential

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
    """Ask the platform who this machine is."""
    from authenticator.providers import registry  # noqa: PLC0415 - see above

    return registry.query_provider(setting, deadline)


def with_provider_identity(settings: Settings, deadline: Deadline) -> Settings:
    """Return settings with what their provider tells, for commands that have no exchange."""
    return settings.with_provider_identity(lambda setting: query_provider(setting, deadline))


def build_dependencies(
    settings: Settings, store: FileStore, clock: Clock, report: PhaseTimer
) -> EnrollDependencies:
    """Wire the real world."""
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
        phases=report,
    )


def resolve_invocation(parsed: Arguments, raw: bytes | None, clock: Clock) -> Invocation:
    """Make the call that the kubelet makes, with the flags that were given now."""
    from authenticator.config import invocation

    folder = Path(parsed.flags.get("stateDir", DEFAULT_STATE_DIR))
    found = invocation.find_invocation(
        raw, load_credential_from(folder, clock), Path(parsed.kubeconfig)
    )
    flags = {**parse_arguments(found.arguments).flags, **parsed.flags}
    exec_info = parse_exec_info(found.exec_info)
    settings = resolve(exec_info.settings, flags, os.uname().nodename, parsed.problems)
    return Invocation(exec_info=exec_info, settings=settings, arguments=found.arguments)


def resolve_settings(parsed: Arguments, raw: bytes | None, clock: Clock) -> Settings:
    """Return the settings of the kubelet's call, or of the flags alone where none is found.

    A machine's endorsement key can be asked for before there is a kubeconfig.
    """
    try:
        return resolve_invocation(parsed, raw, clock).settings
    except (ExecInfoInvalid, KubeconfigUnusable):
        return resolve({}, parsed.flags, os.uname().nodename, parsed.problems)


def load_credential_from(path: Path, clock: Clock) -> Credential | None:
    """Look for a credential without making a folder for it."""
    if not path.is_dir():
        return None
    with StateDirectory(path) as folder:
        return FileStore(folder, clock).load_credential()
