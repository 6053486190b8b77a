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

from authenticator.config import exec_info
from authenticator.config.arguments import Arguments, parse
from authenticator.config.settings import DEFAULT_STATE_DIR, Settings, resolve
from authenticator.enroll.enroll import Call, World
from authenticator.model import Clock, Deadline, Phases, Requester, Server
from authenticator.providers.provider import Identity
from authenticator.state.credential import Credential
from authenticator.state.directory import Folder
from authenticator.state.store import FolderStore
from authenticator.tpm.device import Tpm
from common.errors import ExecInfoInvalid, KubeconfigUnusable

if TYPE_CHECKING:
    from authenticator.kube.client import KubernetesApi


def connect(server: Server, requester: Requester, deadline: Deadline) -> "KubernetesApi":
    """Make ready to ask the API server."""
    from authenticator.kube import client

    return client.KubernetesApi(server, requester, deadline)


def load_bootstrap(path: Path) -> Requester:
    """Read the bootstrap credential."""
    from authenticator.config import bootstrap_credential

    return bootstrap_credential.load(path)


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


def ask_provider(setting: str, deadline: Deadline) -> Identity:
    """Ask the platform who this machine is."""
    from authenticator.providers import registry  # noqa: PLC0415 - see above

    return registry.ask(setting, deadline)


def settled(settings: Settings, deadline: Deadline) -> Settings:
    """Return settings with what their provider tells, for commands that have no exchange."""
    return settings.settled(lambda setting: ask_provider(setting, deadline))


def world(settings: Settings, store: FolderStore, clock: Clock, report: Phases) -> World:
    """Wire the real world."""
    return World(
        clock=clock,
        store=store,
        connect=connect,
        open_tpm=lambda deadline: open_tpm(settings, deadline),
        load_bootstrap=load_bootstrap,
        ask_provider=ask_provider,
        event_log=settings.event_log,
        token_hex=lambda: secrets.token_hex(16),
        jitter=secrets.SystemRandom().random,
        phases=report,
    )


def by_hand(parsed: Arguments, raw: bytes | None, clock: Clock) -> Call:
    """Make the call that the kubelet makes, with the flags that were given now."""
    from authenticator.config import invocation

    folder = Path(parsed.flags.get("stateDir", DEFAULT_STATE_DIR))
    found = invocation.find(raw, kept_in(folder, clock), Path(parsed.kubeconfig))
    flags = {**parse(found.arguments).flags, **parsed.flags}
    exec_info = exec_info.parse(found.exec_info)
    settings = resolve(exec_info.settings, flags, os.uname().nodename, parsed.problems)
    return Call(exec_info=exec_info, settings=settings, arguments=found.arguments)


def settings_by_hand(parsed: Arguments, raw: bytes | None, clock: Clock) -> Settings:
    """Return the settings of the kubelet's call, or of the flags alone where none is found.

    A machine's endorsement key can be asked for before there is a kubeconfig.
    """
    try:
        return by_hand(parsed, raw, clock).settings
    except (ExecInfoInvalid, KubeconfigUnusable):
        return resolve({}, parsed.flags, os.uname().nodename, parsed.problems)


def kept_in(path: Path, clock: Clock) -> Credential | None:
    """Look for a credential without making a folder for it."""
    if not path.is_dir():
        return None
    with Folder(path) as folder:
        return FolderStore(folder, clock).load_credential()
