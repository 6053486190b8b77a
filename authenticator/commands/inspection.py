"""Commands for people: status, doctor, endorsement-key. Each prints text, or one JSON document."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

from authenticator import wiring
from authenticator.clock import SystemClock
from authenticator.commands import doctor, endorsement_key, status
from authenticator.commands.doctor_check import DoctorContext
from authenticator.config.arguments import Arguments
from authenticator.config.invocation import Invocation
from authenticator.config.settings import DEFAULT_STATE_DIR
from authenticator.enroll.serving import serving_directory
from authenticator.errors import ConfigurationInvalid, StateDirectoryUnwritable
from authenticator.model import Deadline
from authenticator.state.directory import StateDirectory
from authenticator.state.store import FileStore
from common.errors import AttestationError

TPM_SECONDS = 60
PROVIDER_SECONDS = 30
EXIT_CHECK_FAILED = 1


def run_command(parsed: Arguments, raw: bytes | None, out: TextIO) -> int:
    """Run the command; return the exit code. Raises leaves of common/errors."""
    if parsed.problems:
        raise ConfigurationInvalid("; ".join(parsed.problems))
    match parsed.command:
        case "status":
            return _status(parsed, raw, out)
        case "doctor":
            return _doctor(parsed, raw, out)
        case _:
            return _endorsement_key(parsed, raw, out)


def _status(parsed: Arguments, raw: bytes | None, out: TextIO) -> int:
    clock = SystemClock()
    path = _state_dir(parsed, raw)
    if not path.is_dir():
        raise StateDirectoryUnwritable(f"state folder {path}: there is none yet")
    serving = wiring.load_credential_from(serving_directory(path), clock)
    with StateDirectory(path) as folder:
        document = status.collect(FileStore(folder, clock), serving, clock)
    out.write(_json(document) if parsed.json else status.format_text(document))
    return 0


def _state_dir(parsed: Arguments, raw: bytes | None) -> Path:
    """Return where the state is; without a call to be found it is where it usually is."""
    call = _kubelets_call(parsed, raw)
    if "stateDir" in parsed.flags or isinstance(call, AttestationError):
        return Path(parsed.flags.get("stateDir", DEFAULT_STATE_DIR))
    return call.settings.state_dir


def _doctor(parsed: Arguments, raw: bytes | None, out: TextIO) -> int:
    clock = SystemClock()
    around = DoctorContext(
        kubeconfig=Path(parsed.kubeconfig),
        root=Path("/"),
        clock=clock,
        call=_settled(_kubelets_call(parsed, raw), Deadline(clock, PROVIDER_SECONDS)),
        open_tpm=lambda call, deadline: wiring.open_tpm(call.settings, deadline),
        probe=lambda call, who, deadline: wiring.connect(call.exec_info.server, who, deadline),
    )
    findings = doctor.run_checks(around)
    listed = {"findings": [asdict(finding) for finding in findings]}
    out.write(_json(listed) if parsed.json else doctor.format_text(findings))
    return EXIT_CHECK_FAILED if any(finding.remedy for finding in findings) else 0


def _kubelets_call(parsed: Arguments, raw: bytes | None) -> Invocation | AttestationError:
    try:
        return wiring.resolve_invocation(parsed, raw, SystemClock())
    except AttestationError as error:
        return error


def _settled(
    call: Invocation | AttestationError, deadline: Deadline
) -> Invocation | AttestationError:
    """Return the call with what its provider tells, if it names one, or why it tells nothing."""
    if isinstance(call, AttestationError):
        return call
    try:
        return replace(call, settings=wiring.with_provider_identity(call.settings, deadline))
    except AttestationError as error:
        return error


def _endorsement_key(parsed: Arguments, raw: bytes | None, out: TextIO) -> int:
    clock = SystemClock()
    settings = wiring.resolve_settings(parsed, raw, clock)
    with wiring.open_tpm(settings, Deadline(clock, TPM_SECONDS)) as tpm:
        document = endorsement_key.collect(tpm.endorsement_key())
    if parsed.cluster is not None:
        settings = wiring.with_provider_identity(settings, Deadline(clock, PROVIDER_SECONDS))
    if parsed.manifest:
        document = endorsement_key.manifest(document, settings, parsed.cluster)
        out.write(_json(document) if parsed.json else endorsement_key.to_yaml(document))
    else:
        out.write(_json(document) if parsed.json else endorsement_key.format_text(document))
    return 0


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"
