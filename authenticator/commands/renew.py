"""renew: gets a new client certificate now, for the call that the kubelet makes."""

from typing import Final

from authenticator import wiring
from authenticator.clock import SystemClock
from authenticator.commands.run import (
    EXIT_RETRY,
    RESOLVE_SECONDS,
    CommandContext,
    obtain_and_record,
    watchdog,
)
from authenticator.config.invocation import Invocation
from authenticator.enroll.enroll import Trigger
from authenticator.model import Clock, Deadline
from authenticator.state.credential import Credential
from authenticator.state.directory import StateDirectory
from authenticator.state.store import FileStore

REPLACE_AGAIN_SECONDS: Final = 30 * 60
"""A certificate that is younger is not replaced: a signer whose list does not follow would get a
request from each node at each run of the timer."""


def run(context: CommandContext) -> int:
    """Renew; with --if-due or --if-refused only if necessary. Raises leaves of the error tree."""
    clock = SystemClock()
    with watchdog(Deadline(clock, RESOLVE_SECONDS)):
        call = wiring.resolve_invocation(context.arguments, context.exec_info, clock)
    deadline = Deadline(clock, call.settings.timeout_seconds)
    trigger = Trigger.RENEWAL_DUE if context.arguments.if_due else Trigger.FORCED
    with watchdog(deadline), StateDirectory(call.settings.state_dir) as directory:
        store = FileStore(directory, clock)
        if context.arguments.if_refused:
            trigger = Trigger.WRITES_REFUSED
            current = call.matches(store.load_credential())
            if current is None or not _is_ended_for_writes(call, current, clock, deadline):
                context.out.write("the certificate was not replaced\n")
                return EXIT_RETRY
        with store.lock(deadline):
            credential = obtain_and_record(call, store, deadline, trigger)
    context.print_certificate(credential)
    return 0


def _is_ended_for_writes(
    call: Invocation, current: Credential, clock: Clock, deadline: Deadline
) -> bool:
    """Return whether the kubelet cannot write with the certificate, which is not new."""
    if 0 <= clock.now() - current.received_at < REPLACE_AGAIN_SECONDS:
        return False
    api = wiring.connect(call.exec_info.server, current.key_pair, deadline)
    return api.is_ended_for_writes(current.node_name)
