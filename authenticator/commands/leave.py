"""leave: reverses join. The kubelet gets its certificates from the cluster again, without a TPM.

The bootstrap kubeconfig needs a new token, as for `kubeadm join`. leave tries it first. Then it
hides the packaged drop-in, moves the kubeconfig away, restarts the kubelet, and waits until the
kubelet has written a kubeconfig with its own certificate. Otherwise it puts everything back. A
machine that stops in the middle is in one of two states, from which leave or join continues.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

from authenticator import wiring
from authenticator.clock import SystemClock
from authenticator.commands import kubelet_unit
from authenticator.commands.join import runs_this_program
from authenticator.commands.run import EXIT_RETRY, RESOLVE_SECONDS, CommandContext, watchdog
from authenticator.config import kubeconfig
from authenticator.config.bootstrap_credential import load_bootstrap_credential
from authenticator.config.invocation import Invocation, call_of_kubeconfig
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

KEPT_SUFFIX: Final = ".attested"
"""The former kubeconfig, until the kubelet has another."""

KUBELET_CONFIG: Final = Path("/var/lib/kubelet/config.yaml")
POLL_SECONDS: Final = 0.5


def run(context: CommandContext) -> int:
    """Leave. Raises leaves of the error tree; then the node is as before."""
    context.require_valid_arguments()
    clock = SystemClock()
    path = context.arguments.kubeconfig
    kept = path.with_name(path.name + KEPT_SUFFIX)
    source = kept if kept.exists() and not path.exists() else path
    if not runs_this_program(source):
        raise KubeconfigNotOurs(f"{source} does not run this program: there is nothing to leave")
    with watchdog(Deadline(clock, RESOLVE_SECONDS)):
        call = call_of_kubeconfig(kubeconfig.load(source))
        built = wiring.build_invocation(context.arguments, call)
        _require_no_serving_certificate(built.settings.state_dir)
        _require_bootstrap(built, Deadline(clock, RESOLVE_SECONDS))
    leave(path, kept, clock, Deadline(clock, built.settings.timeout_seconds))
    context.out.write(
        f"the kubelet has a certificate of its own; {built.settings.state_dir} keeps the attested"
        " one, which works until it expires\n"
    )
    return 0


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


def leave(path: Path, kept: Path, clock: Clock, deadline: Deadline) -> None:
    """Let the kubelet replace the kubeconfig `path` by its own; `kept` is its name meanwhile.

    Raises `KubeletNotBootstrapped`, `KubeletUnitUnchangeable`, `KubeconfigUnwritable`.
    """
    with _ended_by_signals():
        try:
            _rename(path, kept)
            kubelet_unit.hide_drop_in(kubelet_unit.HIDING_LINK)
            kubelet_unit.restart_kubelet()
            _await_certificate(path, clock, deadline)
        except BaseException:
            _rename(kept, path)
            kubelet_unit.show_drop_in(kubelet_unit.HIDING_LINK)
            kubelet_unit.restart_kubelet()
            raise
        kept.unlink(missing_ok=True)


def _await_certificate(path: Path, clock: Clock, deadline: Deadline) -> None:
    """Wait until the kubelet has written its kubeconfig. Raises `KubeletNotBootstrapped`."""
    while not _has_certificate(path):
        if deadline.remaining() <= 0:
            raise KubeletNotBootstrapped(
                "the kubelet has not got a certificate of its own in time (journalctl -u kubelet"
                " says why; --timeout-seconds waits longer): the node uses its attested certificate"
                " again"
            )
        clock.sleep(POLL_SECONDS)


def _has_certificate(path: Path) -> bool:
    """Return whether a kubeconfig is one that the kubelet has written."""
    try:
        user = kubeconfig.load(path).user
    except KubeconfigUnusable:
        return False
    return "client-certificate" in user or "client-certificate-data" in user


def _rename(path: Path, new: Path) -> None:
    try:
        with contextlib.suppress(FileNotFoundError):  # an earlier leave was interrupted
            os.replace(path, new)  # noqa: PTH105 - as a call of the system
    except OSError as error:
        raise KubeconfigUnwritable(f"{path}: {error.strerror}") from error


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let signals that end a process raise, so that what was changed is put back."""

    def stop(*_: object) -> NoReturn:
        raise SystemExit(EXIT_RETRY)

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
