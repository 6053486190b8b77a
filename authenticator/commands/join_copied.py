"""join on a node that has joined: notices a disk that was copied from another machine.

An image made from a running node holds the key of that node, and its kubeconfig. Each machine that
starts from the image would act as that node. The first sign is another provider ID, in a new answer
of the provider or in the file with the provider ID; a setting in the kubeconfig was copied with it.
But that answer also changes when a platform or a release corrects it. So the TPM decides: the
certificate names the endorsement key that it was issued for. Nothing is deleted: the certificate of
another machine is set aside until this machine has its own.
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
from authenticator.config.settings import Settings
from authenticator.enroll.enroll import Trigger
from authenticator.enroll.serving import serving_directory
from authenticator.late_imports import late_imports
from authenticator.model import Clock, Deadline
from authenticator.state.credential import Credential
from authenticator.state.directory import StateDirectory
from authenticator.state.store import FileStore
from common.errors import AttestationError

PROVIDER_SECONDS: Final = 5
"""The start of the kubelet waits no longer for a provider."""

_logger = logging.getLogger(__name__)


def rejoin_if_copied(path: Path) -> None:
    """Set the credential aside if another machine obtained it, and get one for this machine.

    `path` is the kubeconfig of the kubelet. Raises leaves of the error tree when this machine is
    another one and gets no certificate.
    """
    clock = SystemClock()
    try:
        call = wiring.build_invocation(
            Arguments(), invocation.call_of_kubeconfig(kubeconfig.load(path))
        )
        other = _find_other_machine(call, clock)
    except (AttestationError, ValueError) as error:
        _logger.warning("join cannot tell whether this disk was copied: %s", error)
        return
    if other is None:
        return
    _logger.warning(
        "the certificate is of another machine (node %s, provider ID %s), from which this disk was"
        " copied: it is set aside. Never make an image from a node that has joined",
        other.node_name,
        other.provider_id,
    )
    deadline = Deadline(clock, call.settings.timeout_seconds)
    with watchdog(deadline), StateDirectory(call.settings.state_dir) as directory:
        store = FileStore(directory, clock)
        with store.lock(deadline):
            store.set_credential_aside()
            serving = serving_directory(directory.path)
            if serving.is_dir():
                with StateDirectory(serving) as serving_state:
                    FileStore(serving_state, clock).set_credential_aside()
            obtain_and_record(call, store, deadline, Trigger.JOIN)


def _find_other_machine(call: Invocation, clock: Clock) -> Credential | None:
    """Return the credential if it is of another machine. Raises an error if that is not known."""
    if call.settings.provider_id is not None:
        return None
    cached = wiring.load_credential_from(call.settings.state_dir, clock)
    if cached is None:
        return None
    deadline = Deadline(clock, PROVIDER_SECONDS)
    with watchdog(deadline):
        settings = wiring.with_provider_identity(call.settings, deadline, cached)
    provider_id = settings.required_provider_id()
    if provider_id == cached.provider_id:
        return None
    if not _is_of_this_tpm(cached, settings, clock):
        return cached
    _logger.warning(
        "the provider ID of this machine is now %s, and was %s: the TPM is the same, so the"
        " certificate stays in use. The next renewal asks for the new provider ID, which must be"
        " that of the Machine",
        provider_id,
        cached.provider_id,
    )
    return None


def _is_of_this_tpm(credential: Credential, settings: Settings, clock: Clock) -> bool:
    """Return whether a certificate names this machine's endorsement key."""
    with late_imports():
        from authenticator.commands import endorsement_key  # noqa: PLC0415 - they load slowly
        from authenticator.enroll import issued_certificate  # noqa: PLC0415
    deadline = Deadline(clock, settings.timeout_seconds)
    with watchdog(deadline), wiring.open_tpm(settings, deadline) as tpm:
        key = endorsement_key.collect(tpm.endorsement_key())
    return issued_certificate.is_of_key(credential.key_pair.certificate, key["sha256"])
