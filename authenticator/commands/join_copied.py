"""join on a node that has joined: notices a disk that was copied from another machine.

An image made from a running node holds the key of that node, and its kubeconfig. Each machine that
starts from the image would act as that node. Only a new answer about this machine counts: that of
the provider, or the file with the provider ID. A setting in the kubeconfig was copied with it.
"""

import logging
from pathlib import Path
from typing import Final

from authenticator import wiring
from authenticator.clock import SystemClock
from authenticator.commands.run import obtain_and_record, watchdog
from authenticator.config import invocation, kubeconfig
from authenticator.config.command_line import Arguments
from authenticator.config.invocation import Invocation
from authenticator.enroll.enroll import Trigger
from authenticator.enroll.serving import serving_directory
from authenticator.model import Clock, Deadline
from authenticator.state.directory import StateDirectory
from authenticator.state.store import FileStore
from common.errors import AttestationError

PROVIDER_SECONDS: Final = 5
"""The start of the kubelet waits no longer for a provider."""

_logger = logging.getLogger(__name__)


def rejoin_if_copied(path: Path) -> None:
    """Discard the credential if another machine obtained it, and get one for this machine.

    `path` is the kubeconfig of the kubelet. Raises leaves of the error tree when this machine is
    another one and gets no certificate.
    """
    clock = SystemClock()
    try:
        call = wiring.build_invocation(
            Arguments(), invocation.call_of_kubeconfig(kubeconfig.load(path))
        )
        other = _find_other_machine(call, clock)
    except AttestationError as error:
        _logger.warning("join cannot tell whether this disk was copied: %s", error.message)
        return
    if other is None:
        return
    _logger.warning(
        "the certificate is of another machine (%s), from which this disk was copied: it is"
        " discarded. Never make an image from a node that has joined",
        other,
    )
    deadline = Deadline(clock, call.settings.timeout_seconds)
    with watchdog(deadline), StateDirectory(call.settings.state_dir) as directory:
        store = FileStore(directory, clock)
        with store.lock(deadline):
            store.discard_credential()
            serving = serving_directory(directory.path)
            if serving.is_dir():
                with StateDirectory(serving) as serving_state:
                    FileStore(serving_state, clock).discard_credential()
            obtain_and_record(call, store, deadline, Trigger.JOIN)


def _find_other_machine(call: Invocation, clock: Clock) -> str | None:
    """Return node and provider ID of the machine that obtained the credential, if not this one."""
    if call.settings.provider_id is not None:
        return None
    cached = wiring.load_credential_from(call.settings.state_dir, clock)
    if cached is None or cached.provider_id is None:
        return None
    deadline = Deadline(clock, PROVIDER_SECONDS)
    with watchdog(deadline):
        settings = wiring.with_provider_identity(call.settings, deadline)
    if settings.required_provider_id() == cached.provider_id:
        return None
    return f"node {cached.node_name}, provider ID {cached.provider_id}"
