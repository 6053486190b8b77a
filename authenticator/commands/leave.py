"""leave: reverses join. The kubelet gets its certificates from the cluster again, without a TPM.

The bootstrap kubeconfig needs a new token, as for `kubeadm join`. leave tries it first. Then it
moves the kubeconfig away, hides the packaged drop-in, restarts the kubelet, and waits until the API
server accepts the certificate in the kubelet's own kubeconfig: the kubelet writes that file before
it asks for a certificate. Otherwise leave puts everything back. When the machine stops in the
middle, the moved kubeconfig is still there, and leave or join continues.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

from authenticator import wiring
from authenticator.clock import SystemClock
from authenticator.commands import kubelet_unit
from authenticator.commands.join import kept_path, runs_this_program
from authenticator.commands.run import EXIT_RETRY, RESOLVE_SECONDS, CommandContext, watchdog
from authenticator.config import kubeconfig
from authenticator.config.bootstrap_credential import load_bootstrap_credential
from authenticator.config.invocation import Invocation, call_of_kubeconfig
from authenticator.enroll import trial
from authenticator.enroll.serving import serving_directory
from authenticator.errors import (
    ConfigurationInvalid,
    Forbidden,
    KubeconfigNotOurs,
    KubeconfigUnusable,
    KubeconfigUnwritable,
    KubeletNotBootstrapped,
)
from authenticator.model import Clock, Deadline
from common.errors import AttestationError

KUBELET_CONFIG: Final = Path("/var/lib/kubelet/config.yaml")
POLL_SECONDS: Final = 0.5
ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(context: CommandContext) -> int:
    """Leave. Raises leaves of the error tree; then the node is as before."""
    context.require_valid_arguments()
    clock = SystemClock()
    path = context.arguments.kubeconfig
    source = attested_kubeconfig(path)
    deadline = Deadline(clock, RESOLVE_SECONDS)
    with watchdog(deadline):
        call = wiring.build_invocation(
            context.arguments, call_of_kubeconfig(kubeconfig.load(source))
        )
        state_dir = call.settings.state_dir
        _require_no_serving_certificate(state_dir)
        _require_bootstrap(call, deadline)
        current = wiring.load_credential_or_none(state_dir, clock)
        settings = wiring.with_provider_identity(call.settings, deadline, current)
    call = replace(call, settings=settings)
    leave(path, call, clock, Deadline(clock, settings.timeout_seconds))
    context.out.write(
        f"the kubelet has a certificate of its own; {state_dir} keeps the attested one, which works"
        " until it expires\n"
    )
    return 0


def attested_kubeconfig(path: Path) -> Path:
    """Return the kubeconfig that runs this program: `path`, or the one of an interrupted leave.

    Raises `KubeconfigNotOurs`, `KubeconfigUnusable`.
    """
    kept = kept_path(path)
    source = kept if kept.exists() and not _is_ours(path) else path
    if not runs_this_program(source):
        raise KubeconfigNotOurs(f"{source} does not run this program: there is nothing to leave")
    return source


def _is_ours(path: Path) -> bool:
    try:
        return runs_this_program(path)
    except KubeconfigUnusable:
        return False


def _require_no_serving_certificate(state_dir: Path) -> None:
    """Require that the kubelet does not read its serving certificate from the state directory."""
    directory = str(serving_directory(state_dir))
    if KUBELET_CONFIG.exists() and directory in KUBELET_CONFIG.read_text(encoding="utf-8"):
        raise ConfigurationInvalid(
            f"{KUBELET_CONFIG} names a serving certificate in {directory}: remove tlsCertFile and"
            " tlsPrivateKeyFile, set serverTLSBootstrap: true, and remove the link to"
            " zz-30-kubelet-authenticator-tpm-serving.conf first"
        )


def _require_bootstrap(call: Invocation, deadline: Deadline) -> None:
    """Require a bootstrap credential that may request certificates."""
    credential = load_bootstrap_credential(call.settings.bootstrap_kubeconfig)
    if not wiring.connect(call.exec_info.server, credential, deadline).can_create_csrs():
        raise Forbidden(
            f"the credential of {call.settings.bootstrap_kubeconfig} may not create"
            " CertificateSigningRequests"
        )


def leave(path: Path, call: Invocation, clock: Clock, deadline: Deadline) -> None:
    """Let the kubelet replace the kubeconfig `path` by its own. `call` names server and node.

    Raises `KubeletNotBootstrapped`, `KubeletUnitUnchangeable`, `KubeconfigUnwritable`.
    """
    kept = kept_path(path)
    with _ended_by_signals():
        try:
            if _is_ours(path):  # else an earlier leave was interrupted
                _rename(path, kept)
            kubelet_unit.hide_drop_in(kubelet_unit.HIDING_LINK)
            kubelet_unit.restart_kubelet()
            _await_certificate(path, call, clock, deadline)
        except BaseException:
            for number in ENDING_SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            # First, because with it hidden the kubelet would overwrite this program's kubeconfig.
            kubelet_unit.show_drop_in(kubelet_unit.HIDING_LINK)
            _rename(kept, path)
            kubelet_unit.restart_kubelet()
            raise
        kept.unlink(missing_ok=True)


def _await_certificate(path: Path, call: Invocation, clock: Clock, deadline: Deadline) -> None:
    """Wait until the API server accepts the kubelet's certificate as this node's.

    Raises `KubeletNotBootstrapped`.
    """
    while True:
        try:
            pair = load_bootstrap_credential(path)
            api = wiring.connect(call.exec_info.server, pair, deadline)
            trial.require_accepted(api, call.settings.node_name, not_before=0)
        except AttestationError as error:  # not yet
            if deadline.remaining() <= 0:
                raise KubeletNotBootstrapped(
                    "the kubelet has not got a certificate of its own in time (journalctl -u"
                    " kubelet says why; --timeout-seconds waits longer): the node uses its attested"
                    " certificate again"
                ) from error
        else:
            return
        clock.sleep(POLL_SECONDS)


def _rename(path: Path, new: Path) -> None:
    try:
        with contextlib.suppress(FileNotFoundError):  # join has ended the leave
            os.replace(path, new)  # noqa: PTH105 - as a call of the system
    except OSError as error:
        raise KubeconfigUnwritable(f"{path}: {error.strerror}") from error


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let signals that end a process raise, so that what was changed is put back."""

    def stop(*_: object) -> NoReturn:
        raise SystemExit(EXIT_RETRY)

    before = {number: signal.signal(number, stop) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
