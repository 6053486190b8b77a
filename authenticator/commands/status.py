"""status: shows what is in the state directory. It makes no request and changes nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from authenticator import wiring
from authenticator.checks import kubelet_process
from authenticator.clock import SystemClock
from authenticator.commands import kubelet_unit
from authenticator.commands.run import CommandContext, watchdog
from authenticator.config.setting_table import DEFAULT_STATE_DIR
from authenticator.enroll.serving import SERVING_DIRECTORY, serving_directory
from authenticator.errors import StateCorrupted, StateDirectoryUnwritable
from authenticator.model import Clock, Deadline
from authenticator.state.cooldown import remaining
from authenticator.state.credential import Credential, freshness, overdue_seconds, rfc3339
from authenticator.state.directory import StateDirectory
from authenticator.state.run_record import DONE, STARTED
from authenticator.state.store import FileStore
from common.errors import AttestationError
from common.printed_command import printed_command

TIMEOUT_SECONDS: Final = 30

Document = dict[str, Any]


def run(context: CommandContext) -> int:
    """Print the state. Raises leaves of the error tree."""
    context.require_valid_arguments()
    clock = SystemClock()
    with watchdog(Deadline(clock, TIMEOUT_SECONDS)):
        path = _state_dir(context)
        if not wiring.state_directory_exists(path):
            raise StateDirectoryUnwritable(
                f"the state directory {path} does not exist yet: the first call or join creates it"
            )
        with StateDirectory(path) as directory:
            serving = wiring.load_credential_from(serving_directory(path), clock)
            is_presented = path.name != SERVING_DIRECTORY and not kubelet_unit.is_hidden(
                kubelet_unit.HIDING_LINK
            )
            document = collect(
                FileStore(directory, clock), serving, clock, is_presented=is_presented
            )
    context.print_document(document, format_text(document))
    return 0


def _state_dir(context: CommandContext) -> Path:
    """Return the state directory of the kubelet's call, or the default when there is no call."""
    flags = context.arguments.flags
    if "stateDir" in flags:
        return Path(flags["stateDir"])
    try:
        return wiring.find_state_dir(context.arguments, context.exec_info, SystemClock())
    except AttestationError:
        return Path(DEFAULT_STATE_DIR)


def collect(
    store: FileStore, serving: Credential | None, clock: Clock, *, is_presented: bool
) -> Document:
    """Return certificates, exchange, cooldown and last runs; None for each that does not exist.

    `is_presented` says whether the kubelet authenticates with the certificate of the store: not
    with a serving certificate, and not on a node that has left.
    """
    runs, credential = store.run_records(), store.load_credential()
    ended = runs[:-1] if runs and runs[-1].get("result") == STARTED else runs
    return {
        "certificate": _certificate(credential, clock),
        "olderCertificate": _older_certificate(credential, store, clock) if is_presented else None,
        "servingCertificate": _certificate(serving, clock),
        "exchange": _exchange(store, clock),
        "cooldown": _cooldown(store, clock),
        "lastRun": runs[-1] if runs else None,
        "lastFailure": next((run for run in reversed(ended) if run.get("result") != DONE), None),
    }


def format_text(document: Document) -> str:
    """Return the document as lines."""
    lines = _certificate_lines(document["certificate"])
    if document["olderCertificate"] is not None:
        lines.append(f"kubelet      {document['olderCertificate']}")
    serving = document["servingCertificate"]
    if serving is not None:
        lines.append(f"serving      {serving['state']}, until {serving['notAfter']}")
    lines += _exchange_lines(document["exchange"])
    cooldown = document["cooldown"]
    if cooldown is not None:
        lines.append(
            f"cooldown     {cooldown['secondsLeft']} s until the next attempt, after"
            f" {cooldown['reason']}: {cooldown['message']}"
        )
    lines += _run_lines("last run", document["lastRun"])
    if document["lastFailure"] is not None and document["lastFailure"] != document["lastRun"]:
        lines += _run_lines("last failure", document["lastFailure"])
    return "\n".join(lines) + "\n"


def _certificate(credential: Credential | None, clock: Clock) -> Document | None:
    if credential is None:
        return None
    now = clock.now()
    return {
        "node": credential.node_name,
        "state": freshness(credential, now).value,
        "received": rfc3339(credential.received_at),
        "renewAt": rfc3339(credential.renew_at),
        "notAfter": rfc3339(credential.not_after),
        "secondsLeft": max(0, round(credential.not_after - now)),
        "secondsOverdue": round(overdue_seconds(credential, now)),
    }


def _older_certificate(credential: Credential | None, store: FileStore, clock: Clock) -> str | None:
    """Return what it means if the kubelet holds an older certificate than the cached one."""
    try:
        pid = kubelet_process.find_older_holder(credential, store.served_processes(), clock)
    except StateCorrupted:
        return None  # it is not known whom the certificate was given to
    return None if pid is None else kubelet_process.explain(pid)


def _exchange(store: FileStore, clock: Clock) -> Document | None:
    live = [pending for pending in store.pending_exchanges() if pending.is_live(clock)]
    if not live:
        return None
    pending = live[-1]
    stage = "answer" if pending.answer else "challenge" if pending.challenge else "offer"
    return {
        "offer": pending.offer_name,
        "answer": pending.answer_name,
        "stage": stage,
        "seconds": round(clock.boottime() - pending.started_at),
    }


def _cooldown(store: FileStore, clock: Clock) -> Document | None:
    left, cooldown = max(
        ((remaining(cooldown, clock), cooldown) for cooldown in store.cooldowns()),
        key=lambda entry: entry[0],
        default=(0.0, None),
    )
    if cooldown is None or left <= 0:
        return None
    return {
        "secondsLeft": round(left),
        "failures": cooldown.failures + 1,
        "reason": cooldown.reason,
        "message": cooldown.message,
    }


def _certificate_lines(certificate: Document | None) -> list[str]:
    if certificate is None:
        return ["certificate  none"]
    seconds = certificate["secondsOverdue"]
    late = f": overdue for {seconds / 3600:.1f} h" if seconds else ""
    return [
        f"node         {certificate['node']}",
        f"certificate  {certificate['state']}, until {certificate['notAfter']}",
        f"renewal      from {certificate['renewAt']}" + late,
    ]


def _exchange_lines(exchange: Document | None) -> list[str]:
    if exchange is None:
        return []
    names = printed_command("kubectl get csr", exchange["offer"], exchange["answer"])
    return [
        f"exchange     in stage {exchange['stage']}, started {exchange['seconds']} s ago: {names}"
    ]


def _run_lines(title: str, run: Mapping[str, Any] | None) -> list[str]:
    if run is None:
        return []
    head = f"{title:<12} {run.get('time')}: {run.get('purpose')}: {run.get('result')}"
    if "reason" in run:
        head += f": {run['reason']}: {run.get('message')}"
    phases = run.get("phases")
    phases = phases if isinstance(phases, list) else []
    return [head, *(f"{'':<12} {p['seconds']:>8.3f} s  {p['name']}" for p in phases)]
