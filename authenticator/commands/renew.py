"""renew: gets a new client certificate now, for the call that the kubelet makes."""

from authenticator import wiring
from authenticator.clock import SystemClock
from authenticator.commands.run import (
    RESOLVE_SECONDS,
    CommandContext,
    obtain_and_record,
    watchdog,
)
from authenticator.enroll.enroll import Trigger
from authenticator.errors import StateDirectoryUnwritable
from authenticator.model import Deadline
from authenticator.state.directory import StateDirectory
from authenticator.state.store import FileStore


def run(context: CommandContext) -> int:
    """Renew, or with --if-due only when that is due. Raises leaves of the error tree.

    A certificate that cannot be stored is a failure here: no kubelet waits for it on stdout.
    """
    clock = SystemClock()
    with watchdog(Deadline(clock, RESOLVE_SECONDS)):
        call = wiring.resolve_invocation(context.arguments, context.exec_info, clock)
    deadline = Deadline(clock, call.settings.timeout_seconds)
    trigger = Trigger.RENEWAL_DUE if context.arguments.if_due else Trigger.FORCED
    with watchdog(deadline), StateDirectory(call.settings.state_dir) as directory:
        store = FileStore(directory, clock)
        with store.lock(deadline):
            credential = obtain_and_record(call, store, deadline, trigger)
            if store.load_credential() != credential:
                raise StateDirectoryUnwritable(
                    f"the new certificate cannot be stored in {directory.path}: see the log above"
                )
    context.print_certificate(credential)
    return 0
