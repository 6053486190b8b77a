"""Checks of `doctor`: this program's own settings, state, TPM, credentials and API server."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from authenticator import wiring
from authenticator.checks import kubelet_process
from authenticator.checks.doctor_check import CheckFailed, CheckSkipped, DoctorContext
from authenticator.config import bootstrap_credential, pcr_signatures
from authenticator.enroll.serving import serving_directory
from authenticator.errors import BootstrapCredentialUnusable, PcrBankNotAllocated
from authenticator.model import EXCHANGE_TTL_SECONDS, ApiCredential, CsrApi, Deadline
from authenticator.state.credential import Freshness, freshness, overdue_seconds, rfc3339
from authenticator.state.directory import StateDirectory
from authenticator.state.run_record import DONE, STARTED
from authenticator.state.store import FileStore
from authenticator.tpm.device import Tpm
from common.challenge import decode_challenge
from common.errors import AttestationError
from common.tpm.constants import BANKS

CLOCK_TOLERANCE_SECONDS: Final = 60
TPM_SECONDS: Final = 30
REQUEST_SECONDS: Final = 15
MIN_FREE_BYTES: Final = 16 * 1024 * 1024


def check_settings(context: DoctorContext) -> str:
    """Resolve the settings and the exec info."""
    for part in (context.settings, context.exec_info):
        if isinstance(part, AttestationError):
            raise part
    settings = context.required_settings()
    return (
        f"of {context.origin}: node {settings.node_name},"
        f" provider ID {settings.required_provider_id()}"
    )


def check_identity(context: DoctorContext) -> str:
    """Compare the identity of this machine with that of the machine that got the certificate."""
    settings = context.required_settings()
    provider_id = settings.required_provider_id()
    identity = f"node {settings.node_name}, provider ID {provider_id}"
    credential = wiring.load_credential_from(settings.state_dir, context.clock)
    if credential is not None and not credential.is_of(settings.node_name, provider_id):
        raise CheckFailed(
            f"this machine is {identity}, and the certificate is of node {credential.node_name},"
            f" provider ID {credential.provider_id}"
        )
    return identity


def check_state_directory(context: DoctorContext) -> str:
    """Check owner, mode and free space. Does not create the directory."""
    path = context.required_settings().state_dir
    if not os.path.lexists(path):
        _require_writable(path.parent)
        return f"{path} does not exist yet: the first call creates it"
    with StateDirectory(path) as directory:
        directory.require_own()
        mode = directory.mode()
    if mode & 0o077:
        raise CheckFailed(f"other users can read or write {path} (mode {mode:04o})")
    _require_writable(path)
    return f"{path} is private and writable"


def _require_writable(path: Path) -> None:
    if not os.access(path, os.W_OK | os.X_OK):
        raise CheckFailed(f"{path} does not exist or is not writable")
    disk = os.statvfs(path)
    if disk.f_bavail * disk.f_frsize < MIN_FREE_BYTES:
        raise CheckFailed(f"less than {MIN_FREE_BYTES // 1024**2} MiB are free in {path}")


def check_tpm(context: DoctorContext) -> str:
    """Create both keys, and quote what the last challenge asks for, else any allocated bank."""
    settings = context.required_settings()
    challenged = _challenged_pcrs(settings.state_dir, context)
    selections = [challenged] if challenged else [{bank: (0,)} for bank in BANKS]
    with context.open_tpm(settings, Deadline(context.clock, TPM_SECONDS)) as tpm:
        key = tpm.endorsement_key()
        tpm.attestation_key()
        selection = _quote_first(tpm, selections)
    return (
        f"endorsement key with {len(key.certificates)} certificates, attestation key, PCRs of"
        f" {', '.join(selection)}"
    )


def _quote_first(
    tpm: Tpm, selections: Sequence[Mapping[str, Sequence[int]]]
) -> Mapping[str, Sequence[int]]:
    """Quote the first selection whose banks are allocated, and return it."""
    for selection in selections[:-1]:
        with contextlib.suppress(PcrBankNotAllocated):
            tpm.quote(selection, b"doctor")
            return selection
    tpm.quote(selections[-1], b"doctor")
    return selections[-1]


def _challenged_pcrs(state_dir: Path, context: DoctorContext) -> Mapping[str, Sequence[int]] | None:
    """Return the PCRs that the last challenge asks for; None without an exchange."""
    if not state_dir.is_dir():
        return None
    with StateDirectory(state_dir) as directory:
        exchanges = FileStore(directory, context.clock).pending_exchanges()
    challenges = [exchange.challenge for exchange in exchanges if exchange.challenge]
    return decode_challenge(challenges[-1]).pcrs if challenges else None


def check_pcr_signatures(context: DoctorContext) -> str:
    """Check that the signatures of PCR values fit into an answer."""
    path = context.required_settings().pcr_signature_file
    selections = pcr_signatures.require_usable(path)
    if selections is None:
        return f"{path} does not exist; only some policies need it"
    return f"{path} has signatures for {selections} selections of PCRs"


def check_bootstrap_credential(context: DoctorContext) -> str:
    """Load the bootstrap credential; without one, a certificate is good enough."""
    try:
        path, _ = bootstrap_credential.find_bootstrap_credential(context.required_settings())
    except BootstrapCredentialUnusable as error:
        try:
            return f"{error.message}; not needed: certificate {_check_certificate(context)}"
        except CheckFailed as no_certificate:
            raise CheckFailed(f"{error.message}; {no_certificate}") from error
    return f"{path} has one"


def check_clock(context: DoctorContext) -> str:
    """Compare the clock with that of the API server."""
    try:
        server_time = _probe(context).server_time()
    except AttestationError as error:
        raise CheckSkipped(f"not checked: {error.message}") from error
    if server_time is None:
        raise CheckFailed("the API server's response has no valid Date header")
    ahead = context.clock.now() - server_time
    if abs(ahead) > CLOCK_TOLERANCE_SECONDS:
        raise CheckFailed(f"the clock of this machine is {ahead:+.0f} s off the API server's")
    return f"{ahead:+.0f} s off the API server's"


def check_permission(context: DoctorContext) -> str:
    """Ask the API server whether the requester may create CSRs."""
    if not _probe(context).can_create_csrs():
        raise CheckFailed("this credential may not create CertificateSigningRequests")
    return "the API server accepts the credential, which may create CSRs"


def check_certificate(context: DoctorContext) -> str:
    """Check that the cache holds a certificate for this call that has not expired."""
    if context.is_before_join():
        return "none yet: join gets it"
    return _check_certificate(context)


def _check_certificate(context: DoctorContext) -> str:
    call = context.invocation()
    credential = call.matches(wiring.load_credential_from(call.settings.state_dir, context.clock))
    if credential is None:
        raise CheckFailed("there is no certificate for this call")
    now = context.clock.now()
    if freshness(credential, now) is Freshness.EXPIRED:
        raise CheckFailed(f"it expired at {rfc3339(credential.not_after)}")
    if overdue_seconds(credential, now):
        raise CheckFailed(
            f"its renewal is overdue since {rfc3339(credential.renew_at)}, and it ends at"
            f" {rfc3339(credential.not_after)}"
        )
    return f"until {rfc3339(credential.not_after)}, renewed from {rfc3339(credential.renew_at)}"


def check_cache(context: DoctorContext) -> str:
    """Check that the cached certificate was obtained with what the kubeconfig says now."""
    if context.differences:
        raise CheckFailed(
            f"the cached certificate was obtained before a change of {context.origin};"
            f" differences: {', '.join(context.differences)}"
        )
    return f"no difference from {context.origin}"


def check_last_run(context: DoctorContext) -> str:
    """Check that the last run of each kind succeeded."""
    state_dir = context.required_settings().state_dir
    running = rfc3339(context.clock.now() - EXCHANGE_TTL_SECONDS)
    failures = []
    for run in map(_last_run, (state_dir, serving_directory(state_dir)), (context,) * 2):
        if run is None or run.get("result") == DONE:
            continue
        what = f"{run.get('time')}: {run.get('purpose')}: "
        if run.get("result") != STARTED:
            failures.append(f"failed at {what}{run.get('reason')}: {run.get('message')}")
        elif str(run.get("time")) < running:
            failures.append(f"started at {what}it was killed, because it has no result")
    if failures:
        raise CheckFailed("; ".join(failures))
    return "no failure"


def check_kubelet_process(context: DoctorContext) -> str:
    """Check that a running kubelet has asked for the certificate in the cache."""
    state_dir = context.required_settings().state_dir
    if not state_dir.is_dir():
        return "there is no certificate yet"
    with StateDirectory(state_dir) as directory:
        store = FileStore(directory, context.clock)
        pid = kubelet_process.find_older_holder(
            store.load_credential(), store.served_processes(), context.clock, context.host_path
        )
    if pid is not None:
        raise CheckFailed(kubelet_process.explain(pid))
    return "it has asked for the certificate in the cache, or it does not run"


def _last_run(path: Path, context: DoctorContext) -> dict[str, object] | None:
    if not path.is_dir():
        return None
    with StateDirectory(path) as directory:
        records = FileStore(directory, context.clock).run_records()
    return records[-1] if records else None


def _probe(context: DoctorContext) -> CsrApi:
    """Connect to the API server with the credential of the next call."""
    call = context.invocation()
    credential = call.matches(wiring.load_credential_from(call.settings.state_dir, context.clock))
    requester: ApiCredential
    if credential is None or freshness(credential, context.clock.now()) is Freshness.EXPIRED:
        requester = bootstrap_credential.find_bootstrap_credential(call.settings)[1]
    else:
        requester = credential.key_pair
    deadline = Deadline(context.clock, REQUEST_SECONDS)
    return context.probe(call.exec_info.server, requester, deadline)
