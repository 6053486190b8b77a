"""Calls the command that the arguments name."""

from collections.abc import Callable, Mapping
from typing import Final

from common.errors import AttestationError
from signer.operator_cli.commands import (
    approve,
    ban,
    check,
    clusters,
    entry_credential,
    explain,
    kubeconfig,
    learn,
    nodes,
    pending,
    policy_check,
    register,
    release,
    replace,
    status,
)
from signer.operator_cli.errors import ServerUnavailable
from signer.operator_cli.session import Session

COMMANDS: Final[Mapping[str, Callable[[Session], int]]] = {
    "status": status.run,
    "clusters": clusters.run,
    "nodes": nodes.run,
    "pending": pending.run,
    "approve": approve.run,
    "register": register.run,
    "replace": replace.run,
    "ban": ban.run_ban,
    "unban": ban.run_unban,
    "release": release.run,
    "kubeconfig": kubeconfig.run,
    "entry-credential": entry_credential.run,
    "explain": explain.run,
    "policy": policy_check.run,
    "learn": learn.run,
    "check": check.run,
}


def run(session: Session) -> int:
    """Run the command and return the exit status. Raises `CommandError`."""
    try:
        return COMMANDS[session.arguments.command](session)
    except AttestationError as e:
        # A reader of the signer's could not read an answer of the management cluster.
        raise ServerUnavailable(f"{e.message} {e.detail}".strip()) from e
