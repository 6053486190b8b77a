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
from authenticator.model import Deadline
from authenticator.state.directory import StateDirectory
from authenticator.state.store import FileStore


def run(context: CommandContext) -> int:
    """Renew. Raises leaves of the error tree."""
    clock = SystemClock()
    with watchdog(Deadline(clock, RESOLVE_SECONDS)):
        call = wiring.resolve_invocation(context.arguments, context.exec_info, clock)
    deadline = Deadline(clock, call.settings.timeout_seconds)
    with watchdog(deadline), StateDirectory(call.settings.state_dir) as directory:
        store = FileStore(directory, clock)
        with store.lock(deadline):
            credential = obtain_and_record(call, store, deadline, Trigger.FORCED)
    context.print_certificate(credential)
    return 0
