"""doctor: looks for everything that could be wrong on this node, each with its remedy.

Each check returns what it found when all is well and raises `Problem` when not; one that fails
does not keep the others from being made. Nothing is changed, and no CSR is filed.
"""

from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import Final

from authenticator.commands import doctor_kubelet
from authenticator.commands.doctor_check import CheckFailed, CheckSkipped, DoctorContext, Finding
from authenticator.config import bootstrap_credential
from authenticator.config.invocation import Invocation
from authenticator.errors import BootstrapCredentialUnusable
from authenticator.model import ApiCredential, Deadline
from authenticator.state.credential import Freshness, freshness, rfc3339
from authenticator.state.directory import StateDirectory
from authenticator.state.store import FileStore
from common.errors import AttestationError

CLOCK_TOLERANCE_SECONDS: Final = 60


def run_checks(around: DoctorContext) -> list[Finding]:
    """Make every check."""
    return [_finding(name, remedy, check, around) for name, remedy, check in _CHECKS]


def format_text(findings: Sequence[Finding]) -> str:
    """Write the findings in lines."""
    lines = []
    for finding in findings:
        lines.append(f"{'wrong' if finding.remedy else 'ok':<6} {finding.check}: {finding.detail}")
        if finding.remedy:
            lines.append(f"{'':<6} remedy: {finding.remedy}")
    return "\n".join(lines) + "\n"


def _finding(
    name: str, remedy: str, check: Callable[[DoctorContext], str], around: DoctorContext
) -> Finding:
    try:
        return Finding(check=name, detail=check(around))
    except AttestationError as error:
        return Finding(check=name, detail=f"{error.reason}: {error.message}", remedy=remedy)
    except CheckSkipped as error:
        return Finding(check=name, detail=str(error), remedy="correct the settings first")
    except (CheckFailed, OSError) as error:
        return Finding(check=name, detail=str(error), remedy=remedy)


def _settings(around: DoctorContext) -> str:
    if isinstance(around.call, AttestationError):
        raise around.call
    settings = around.call.settings
    return f"node {settings.node_name}, provider ID {settings.required_provider_id()}"


def _state(around: DoctorContext) -> str:
    path = around.invocation().settings.state_dir
    with StateDirectory(path) as folder, FileStore(folder, around.clock).lock(_soon(around, 60)):
        folder.write_atomic("doctor", b"")
        folder.remove("doctor")
    return f"{path} is private and can be written"


def _certificate(around: DoctorContext) -> str:
    call = around.invocation()
    with StateDirectory(call.settings.state_dir) as folder:
        credential = call.matches(FileStore(folder, around.clock).load_credential())
    if credential is None:
        raise CheckFailed("there is no certificate for this exec info and node name")
    if freshness(credential, around.clock.now()) is Freshness.EXPIRED:
        raise CheckFailed(f"it ended at {rfc3339(credential.not_after)}")
    return f"until {rfc3339(credential.not_after)}, renewed from {rfc3339(credential.renew_at)}"


def _tpm(around: DoctorContext) -> str:
    with around.open_tpm(around.invocation(), _soon(around, 30)) as tpm:
        key = tpm.endorsement_key()
        tpm.attestation_key()
    return f"endorsement key with {len(key.certificates)} certificates, attestation key"


def _clock(around: DoctorContext) -> str:
    call = around.invocation()
    date = around.probe(call, _requester(around, call), _soon(around, 15)).server_date()
    if date is None:
        raise CheckFailed("the API server tells no time")
    ahead = around.clock.now() - parsedate_to_datetime(date).timestamp()
    if abs(ahead) > CLOCK_TOLERANCE_SECONDS:
        raise CheckFailed(f"this machine's clock is {ahead:+.0f} s off the API server's")
    return f"{ahead:+.0f} s off the API server's"


def _permission(around: DoctorContext) -> str:
    call = around.invocation()
    if not around.probe(call, _requester(around, call), _soon(around, 15)).can_create_csrs():
        raise CheckFailed("this credential may not create CertificateSigningRequests")
    return "the API server accepts the credential, which may create requests"


def _bootstrap(around: DoctorContext) -> str:
    path = around.invocation().settings.bootstrap_kubeconfig
    try:
        bootstrap_credential.load_bootstrap_credential(path)
    except BootstrapCredentialUnusable as error:
        with_certificate = _certificate(around)
        return f"{error.message}; not needed: certificate {with_certificate}"
    return f"{path} has one"


def _requester(around: DoctorContext, call: Invocation) -> ApiCredential:
    with StateDirectory(call.settings.state_dir) as folder:
        credential = call.matches(FileStore(folder, around.clock).load_credential())
    if credential is None or freshness(credential, around.clock.now()) is Freshness.EXPIRED:
        return bootstrap_credential.load_bootstrap_credential(call.settings.bootstrap_kubeconfig)
    return credential.key_pair


def _soon(around: DoctorContext, seconds: float) -> Deadline:
    return Deadline(around.clock, seconds)


_CHECKS: Final[tuple[tuple[str, str, Callable[[DoctorContext], str]], ...]] = (
    (
        "kubeconfig",
        (
            "give the kubelet's user an exec stanza with apiVersion"
            " client.authentication.k8s.io/v1, an absolute command, interactiveMode: Never and"
            " provideClusterInfo: true, and no other credential (client-go prefers any other)"
        ),
        doctor_kubelet.check_exec_stanza,
    ),
    ("program", "install it where the kubeconfig's command says", doctor_kubelet.check_program),
    (
        "rotateCertificates",
        (
            "start the kubelet with --rotate-certificates=false (kubeadm writes true into its"
            " configuration): with true it files its own requests and drops this program"
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
    ("settings", "correct the exec extension of the kubeconfig's cluster", _settings),
    ("state folder", "make it a folder of root's with mode 0700 on a disk with room", _state),
    (
        "TPM",
        ("load its driver, and let this user open the device; see docs/node.md, The TPM"),
        _tpm,
    ),
    ("bootstrap credential", "put a kubeconfig with a bootstrap token there", _bootstrap),
    ("clock", "let NTP set this machine's clock", _clock),
    (
        "API server",
        "correct server and CA in kubeconfig; bind the requester to system:node-bootstrapper",
        _permission,
    ),
    (
        "certificate",
        "run kubelet-authenticator-tpm renew, which says what is missing",
        _certificate,
    ),
)
