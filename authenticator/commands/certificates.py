"""Commands that fetch certificates while somebody waits: renew, join, serving.

Each holds the lock of the folder that its certificate goes to, and keeps a record of its run there.
"""

import os
from dataclasses import replace
from typing import TextIO

from authenticator import wiring
from authenticator.clock import SystemClock
from authenticator.commands import join
from authenticator.commands.run import obtain_and_record, run_recorded, watchdog
from authenticator.config.arguments import PROGRAM, Arguments
from authenticator.enroll import serving
from authenticator.enroll.enroll import Trigger
from authenticator.errors import StateDirectoryUnwritable
from authenticator.model import Deadline
from authenticator.state.credential import Credential, rfc3339
from authenticator.state.directory import StateDirectory
from authenticator.state.store import FileStore


def run_command(parsed: Arguments, raw: bytes | None, program: str, out: TextIO) -> int:
    """Run the command; return the exit code. `program` is argv[0]. Raises common/errors leaves."""
    match parsed.command:
        case "renew":
            credential = _renew(parsed, raw)
        case "join":
            made = join.plan_join(parsed, join.launcher_path(program), os.uname().nodename)
            if made is None:
                out.write(f"{parsed.kubeconfig} runs {PROGRAM} already\n")
                return 0
            credential = _join(parsed, made)
        case _:
            credential = _serving(parsed, raw)
    out.write(f"{credential.node_name}: certificate until {rfc3339(credential.not_after)}\n")
    return 0


def _renew(parsed: Arguments, raw: bytes | None) -> Credential:
    """Get a new certificate for the call that the kubelet makes.

    Nobody is served it here, so one that is not kept is a failure.
    """
    clock = SystemClock()
    call = wiring.resolve_invocation(parsed, raw, clock)
    deadline = Deadline(clock, call.settings.timeout_seconds)
    occasion = Trigger.RENEWAL_DUE if parsed.if_due else Trigger.FORCED
    with StateDirectory(call.settings.state_dir) as folder, watchdog(deadline):
        store = FileStore(folder, clock)
        with store.lock(deadline):
            credential = obtain_and_record(call, store, deadline, occasion)
            if store.load_credential() != credential:
                raise StateDirectoryUnwritable(f"the new certificate is not kept in {folder.path}")
    return credential


def _join(parsed: Arguments, made: join.JoinPlan) -> Credential:
    """Get the first certificate, then write the kubeconfig that asks for the next ones."""
    clock = SystemClock()
    deadline = Deadline(clock, made.call.settings.timeout_seconds)
    with StateDirectory(made.call.settings.state_dir) as folder, watchdog(deadline):
        store = FileStore(folder, clock)
        with store.lock(deadline):
            credential = obtain_and_record(made.call, store, deadline, Trigger.REQUIRED)
            join.write_kubeconfig(made, may_replace=parsed.replace)
    return credential


def _serving(parsed: Arguments, raw: bytes | None) -> Credential:
    """Get a serving certificate for the node of the call that the kubelet makes, if one is due."""
    clock = SystemClock()
    names, problems = serving.parse_names(parsed.addresses, parsed.dns)
    call = wiring.resolve_invocation(
        replace(parsed, problems=parsed.problems + problems), raw, clock
    )
    deadline = Deadline(clock, call.settings.timeout_seconds)
    with watchdog(deadline), StateDirectory(call.settings.state_dir) as folder:
        current = FileStore(folder, clock).load_credential()
        with StateDirectory(serving.serving_directory(folder.path)) as own:
            store = FileStore(own, clock)
            if parsed.if_missing:
                usable = serving.find_usable_certificate(call, store, clock)
                if usable is not None:
                    return usable
            with store.lock(deadline):
                return run_recorded(
                    call.settings,
                    store,
                    parsed.command,
                    lambda world: serving.obtain_serving_certificate(
                        call, names, current, world, deadline
                    ),
                )
