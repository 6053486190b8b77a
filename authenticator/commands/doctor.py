"""doctor: checks everything that could be wrong on this node, and shows a remedy for each problem.

It checks the call that the kubelet makes next, not the one that the cache answers: that of the
kubeconfig, or before a join that of the flags and the bootstrap kubeconfig. A check returns what it
found if all is well, and raises if not; a failed check does not stop the others. Doctor changes
nothing, creates no CSR and takes no lock.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from authenticator import wiring
from authenticator.checks import doctor_kubelet, doctor_node
from authenticator.checks.doctor_check import CheckFailed, CheckSkipped, DoctorContext, Finding
from authenticator.clock import SystemClock
from authenticator.commands import join
from authenticator.commands.run import CommandContext, escape_unprintable, watchdog
from authenticator.config import invocation
from authenticator.config.command_line import PROGRAM, Arguments
from authenticator.config.exec_info import ExecInfo
from authenticator.config.settings import Settings, resolve
from authenticator.errors import ExecInfoInvalid, KubeconfigUnusable
from authenticator.model import Clock, Deadline
from common.errors import AttestationError

TIMEOUT_SECONDS: Final = 120
PROVIDER_SECONDS: Final = 30
EXIT_CHECK_FAILED: Final = 1

Check = Callable[[DoctorContext], str]


class _Call(NamedTuple):
    """The call that the kubelet makes next; the fields are those of `DoctorContext`."""

    origin: str
    settings: Settings | AttestationError
    exec_info: ExecInfo | AttestationError
    differences: tuple[str, ...] = ()


def run(context: CommandContext) -> int:
    """Make every check and print the findings; return EXIT_CHECK_FAILED if any has a remedy.

    The text of a finding is printed before the next check begins: some checks take half a minute.
    """
    context.require_valid_arguments()
    clock, findings = SystemClock(), []
    with watchdog(Deadline(clock, TIMEOUT_SECONDS)):
        for finding in run_checks(_doctor_context(context, clock)):
            findings.append(finding)
            if not context.arguments.json:
                context.out.write(escape_unprintable(format_text(finding)))
                context.out.flush()
    context.print_document({"items": [finding.document() for finding in findings]}, "")
    return EXIT_CHECK_FAILED if any(finding.remedy for finding in findings) else 0


def _doctor_context(context: CommandContext, clock: Clock) -> DoctorContext:
    call = _find_call(context.arguments, context.exec_info, clock)
    return DoctorContext(
        kubeconfig=context.arguments.kubeconfig,
        root=Path("/"),
        clock=clock,
        origin=call.origin,
        settings=_with_provider_identity(call.settings, clock),
        exec_info=call.exec_info,
        differences=call.differences,
        open_tpm=wiring.open_tpm,
        probe=wiring.connect,
    )


def _find_call(arguments: Arguments, environment: bytes | None, clock: Clock) -> _Call:
    """Return the call that the kubelet makes next. The cache is never its source."""
    try:
        call = invocation.find_call(
            environment,
            None,
            arguments.kubeconfig,
            explicit=arguments.kubeconfig_explicit,
        )
    except (ExecInfoInvalid, KubeconfigUnusable) as error:
        return _before_join(arguments, error)
    try:
        built = wiring.build_invocation(arguments, call)
    except AttestationError as error:
        return _Call(call.origin, error, error)
    built, differences = wiring.compare_with_cache(call, built, clock)
    return _Call(call.origin, built.settings, built.exec_info, differences)


def _before_join(arguments: Arguments, missing: AttestationError) -> _Call:
    """Return the call that join would make, as far as there is one."""
    origin, hostname = "flags and bootstrap kubeconfig", os.uname().nodename
    try:
        settings = resolve({}, arguments.flags, hostname, arguments.problems)
    except AttestationError as error:
        return _Call(origin, error, error)
    try:
        plan = join.plan_join(replace(arguments, replace=True), Path("/", PROGRAM), hostname)
    except AttestationError as error:
        return _Call(origin, settings, error)
    if plan is None:
        return _Call(origin, settings, missing)
    return _Call(origin, plan.call.settings, plan.call.exec_info)


def _with_provider_identity(
    settings: Settings | AttestationError, clock: Clock
) -> Settings | AttestationError:
    """Return the settings with what their provider says, or why it says nothing."""
    if isinstance(settings, AttestationError):
        return settings
    current = wiring.load_credential_or_none(settings.state_dir, clock)
    try:
        return wiring.with_provider_identity(settings, Deadline(clock, PROVIDER_SECONDS), current)
    except AttestationError as error:
        return error


def run_checks(context: DoctorContext) -> Iterator[Finding]:
    """Make one check after the other."""
    return (_finding(name, remedy, check, context) for name, remedy, check in _CHECKS)


def format_text(finding: Finding) -> str:
    """Return the lines of a finding."""
    line = f"{'wrong' if finding.remedy else 'ok':<6} {finding.check}: {finding.detail}\n"
    return f"{line}{'':<6} remedy: {finding.remedy}\n" if finding.remedy else line


def _finding(name: str, remedy: str, check: Check, context: DoctorContext) -> Finding:
    try:
        return Finding(check=name, detail=check(context))
    except AttestationError as error:
        return Finding(check=name, detail=f"{error.reason}: {error.message}", remedy=remedy)
    except CheckSkipped as error:
        return Finding(check=name, detail=str(error), remedy=_OTHERS_FIRST, is_skipped=True)
    except (CheckFailed, OSError) as error:
        return Finding(check=name, detail=str(error), remedy=remedy)


_OTHERS_FIRST: Final = "do first what the other checks say"
_RENEW: Final = f"run {PROGRAM} renew, or join where the node has not joined"
_CHECKS: Final[tuple[tuple[str, str, Check], ...]] = (
    (
        "kubeconfig",
        (
            "before a join: run join. Else give the kubelet's user an exec stanza with apiVersion"
            " client.authentication.k8s.io/v1, an absolute command, interactiveMode: Never and"
            " provideClusterInfo: true, and no other credential (client-go prefers any other)"
        ),
        doctor_kubelet.check_exec_stanza,
    ),
    (
        "program",
        "install it where the command of the kubeconfig says",
        doctor_kubelet.check_program,
    ),
    (
        "rotateCertificates",
        (
            "start the kubelet with --rotate-certificates=false (kubeadm writes true into its"
            " configuration): with true it creates its own CSRs and bypasses this program"
        ),
        doctor_kubelet.check_rotation,
    ),
    (
        "bootstrap flags",
        (
            "override KUBELET_KUBECONFIG_ARGS in a later drop-in with --kubeconfig alone: with"
            " --bootstrap-kubeconfig the kubelet overwrites a kubeconfig that has an exec stanza"
        ),
        doctor_kubelet.check_bootstrap_flag,
    ),
    (
        "settings",
        "correct the exec extension of the kubeconfig's cluster; before a join: the flags",
        doctor_node.check_settings,
    ),
    (
        "identity",
        (
            "if this host was reset, or its disk is a copy of another machine's: remove the state"
            " directory and join again (docs/node.md, Reset and copied hosts). If only the host"
            " name has changed: set nodeName"
        ),
        doctor_node.check_identity,
    ),
    (
        "state directory",
        "make it a directory of root with mode 0700 on a writable disk with free space",
        doctor_node.check_state_directory,
    ),
    (
        "TPM",
        (
            "load its driver, and let this user open the device. A PCR bank is allocated in the"
            " settings of the firmware. If the TPM has failed: power the"
            " machine off and on; if that does not help, replace the TPM, and let an operator run"
            " kubectl attestation replace with its new key. See docs/node.md, The TPM"
        ),
        doctor_node.check_tpm,
    ),
    (
        "PCR signatures",
        "sign with fewer keys, or let systemd-stub provide the file again",
        doctor_node.check_pcr_signatures,
    ),
    (
        "bootstrap credential",
        "put a kubeconfig with a bootstrap token there (kubeadm token create)",
        doctor_node.check_bootstrap_credential,
    ),
    ("clock", "let NTP set the clock of this machine", doctor_node.check_clock),
    (
        "API server",
        (
            "correct server, CA and proxy-url in the kubeconfig (HTTPS_PROXY is not used); bind the"
            " requester to the ClusterRole system:node-bootstrapper"
        ),
        doctor_node.check_permission,
    ),
    ("certificate", _RENEW, doctor_node.check_certificate),
    ("cache", _RENEW, doctor_node.check_cache),
    (
        "last run",
        (
            "do what the message says; docs/reasons.md has a row for each reason, also for those of"
            f" the signer. Then {_RENEW}"
        ),
        doctor_node.check_last_run,
    ),
    (
        "kubelet's certificate",
        "run systemctl restart kubelet: it then gets the certificate in the cache",
        doctor_node.check_kubelet_process,
    ),
)
