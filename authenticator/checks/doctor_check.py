"""What a check of `doctor` gets, returns and raises."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from authenticator import wiring
from authenticator.config.exec_info import ExecInfo
from authenticator.config.invocation import Invocation
from authenticator.config.settings import Settings
from authenticator.model import ApiCredential, Clock, CsrApi, Deadline, Server
from authenticator.tpm.device import Tpm
from common.errors import AttestationError


class CheckFailed(Exception):
    """Something is wrong; the message says what."""


class CheckSkipped(CheckFailed):
    """The check needs a kubeconfig, settings or a server that another check finds wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check; `remedy` is empty if all is well."""

    check: str
    detail: str
    remedy: str = ""
    is_skipped: bool = False
    """Whether the check could not be made."""

    def document(self) -> dict[str, str]:
        """Return the finding as `kubectl attestation doctor` writes its own in JSON."""
        result = "unknown" if self.is_skipped else "problem" if self.remedy else "ok"
        return {
            "result": result,
            "check": self.check,
            "message": self.detail,
            "nextStep": self.remedy,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorContext:
    """What the checks read."""

    kubeconfig: Path
    root: Path
    """Where the files of the machine are; `/` except in tests."""
    clock: Clock
    origin: str
    """Where the call is written: a kubeconfig, the environment, or what join would use."""
    settings: Settings | AttestationError
    """Settings of the kubelet's call, or the error that prevents them."""
    exec_info: ExecInfo | AttestationError
    """Exec info of the kubelet's call, or the error that prevents it."""
    differences: tuple[str, ...]
    """How the kubelet's call differs from the call that obtained the cached credential."""
    open_tpm: Callable[[Settings, Deadline], AbstractContextManager[Tpm]]
    probe: Callable[[Server, ApiCredential, Deadline], CsrApi]

    def is_before_join(self) -> bool:
        """Return whether this machine has neither a kubeconfig nor a certificate yet."""
        if self.host_path(self.kubeconfig).exists() or isinstance(self.settings, AttestationError):
            return False
        return wiring.load_credential_or_none(self.settings.state_dir, self.clock) is None

    def required_settings(self) -> Settings:
        """Return the settings. Raises `CheckSkipped`."""
        if isinstance(self.settings, AttestationError):
            raise CheckSkipped("not checked: the settings are wrong")
        return self.settings

    def invocation(self) -> Invocation:
        """Return the kubelet's call. Raises `CheckSkipped`."""
        settings = self.required_settings()
        if isinstance(self.exec_info, AttestationError):
            raise CheckSkipped("not checked: the API server is not known")
        return Invocation(exec_info=self.exec_info, settings=settings, arguments=())

    def host_path(self, path: Path) -> Path:
        """Return a path of the machine that is checked."""
        return self.root / Path("/", path).relative_to("/")
