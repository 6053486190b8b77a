"""serving: gets a serving certificate for the kubelet if it has none or its renewal is due.

The certificate has a separate state directory, lock and run records.
"""

from dataclasses import replace

from authenticator import wiring
from authenticator.clock import SystemClock
from authenticator.commands.run import RESOLVE_SECONDS, CommandContext, run_recorded, watchdog
from authenticator.enroll import serving
from authenticator.model import Deadline
from authenticator.state.directory import StateDirectory
from authenticator.state.store import FileStore


def run(context: CommandContext) -> int:
    """Get the certificate with the client certificate of the node. Raises leaves of the tree."""
    clock = SystemClock()
    arguments = context.arguments
    names, problems = serving.parse_names(arguments.addresses, arguments.dns)
    arguments = replace(arguments, problems=arguments.problems + problems)
    with watchdog(Deadline(clock, RESOLVE_SECONDS)):
        call = wiring.resolve_invocation(arguments, context.exec_info, clock)
    deadline = Deadline(clock, call.settings.timeout_seconds)
    with watchdog(deadline), StateDirectory(call.settings.state_dir) as directory:
        current = FileStore(directory, clock).load_credential()
        with StateDirectory(serving.serving_directory(directory.path)) as serving_directory:
            store = FileStore(serving_directory, clock)
            if arguments.if_missing:
                usable = serving.find_usable_certificate(call, current, store, clock)
                if usable is not None:
                    context.print_certificate(usable)
                    return 0
            with store.lock(deadline):
                credential = run_recorded(
                    call.settings,
                    store,
                    arguments.command,
                    lambda deps: serving.obtain_serving_certificate(
                        call, names, current, deps, deadline
                    ),
                )
    context.print_certificate(credential)
    return 0
