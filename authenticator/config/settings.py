"""Settings: from flags first, then from the cluster's exec extension, then defaults.

Unknown settings are errors, and one error reports all problems (see `setting_table`).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from authenticator.config.setting_table import (
    DEFAULT_BOOTSTRAP_KUBECONFIG,
    DEFAULT_EVENT_LOG,
    DEFAULT_PCR_SIGNATURES,
    DEFAULT_STATE_DIR,
    DEFAULT_TIMEOUT_SECONDS,
    SETTINGS,
)
from authenticator.errors import ConfigurationInvalid
from authenticator.providers.provider import Identity
from authenticator.state.credential import Credential
from authenticator.tpm.device import DEFAULT_TCTI, KeyType
from common.errors import AttestationError
from common.names import CLIENT_SIGNER
from common.node_identity import require_node_name, require_provider_id

PROVIDER_ID_SIZE_LIMIT: Final = 4096
ENTRY_KUBECONFIG: Final = "entry-kubelet.conf"
_PROVIDER_ID_KEYS: Final = ("providerID", "providerIDFile")
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one call, resolved."""

    node_name: str
    node_name_explicit: bool
    """The name is from a setting or the provider. Otherwise it is the host name, unchecked."""
    provider_id: str | None
    provider_id_file: Path | None
    provider: str | None
    bootstrap_kubeconfig: Path
    state_dir: Path
    tcti: str
    endorsement_key_type: KeyType
    endorsement_password_file: Path | None
    event_log_file: Path
    pcr_signature_file: Path
    timeout_seconds: int
    signer_name: str
    expiration_seconds: int | None

    @property
    def entry_kubeconfig(self) -> Path:
        """The kubeconfig with the entry credential of the cluster; it may not exist."""
        return self.bootstrap_kubeconfig.with_name(ENTRY_KUBECONFIG)

    def matches_node(self, node_name: str) -> bool:
        """Return whether this may be the node's name: only a name that was set excludes others."""
        return not self.node_name_explicit or node_name == self.node_name

    def with_provider_identity(
        self, query: Callable[[str], Identity], current: Credential | None = None
    ) -> "Settings":
        """Return complete settings: what is not set comes from `query`, the provider.

        Without a name in the settings, a node keeps the name in its `current` certificate while the
        provider gives the same provider ID, or gives no name. Else it gets the provider's name, or
        the host name. Raises what `query` raises, and ConfigurationInvalid when the host name is
        not a node name.
        """
        has_provider_id = self.provider_id is not None or self.provider_id_file is not None
        if self.provider is None or (has_provider_id and self.node_name_explicit):
            return _with_valid_name(replace(self, provider=None), current)
        identity = query(self.provider)
        settings = replace(
            self,
            provider_id=self.provider_id if has_provider_id else identity.provider_id,
            provider=None,
        )
        name = None if self.node_name_explicit else identity.node_name
        if name is None:
            return _with_valid_name(settings, current)
        if (
            current is not None
            and current.node_name != name
            and current.provider_id == settings.required_provider_id()
        ):
            _logger.warning(
                "the provider calls this node %s: it stays %s, the name in its certificate, while"
                " the provider ID is the same",
                name,
                current.node_name,
            )
            name = current.node_name
        return replace(settings, node_name=name, node_name_explicit=True)

    def required_provider_id(self) -> str:
        """Return the provider ID, from its file if one is named. Raises `ConfigurationInvalid`."""
        if self.provider_id is not None:
            return self.provider_id
        if self.provider_id_file is None:
            raise ConfigurationInvalid(
                "no provider ID: set provider (--provider), or providerID (--provider-id) or"
                " providerIDFile (--provider-id-file) to what Machine.spec.providerID holds"
            )
        try:
            with self.provider_id_file.open(encoding="ascii") as file:
                return require_provider_id(file.read(PROVIDER_ID_SIZE_LIMIT).strip())
        except (OSError, ValueError, AttestationError) as error:
            raise ConfigurationInvalid(f"{self.provider_id_file}: {error}") from error

    def endorsement_password(self) -> bytes:
        """Return the endorsement hierarchy's password, empty when no file is named.

        Raises `ConfigurationInvalid`.
        """
        if self.endorsement_password_file is None:
            return b""
        try:
            return self.endorsement_password_file.read_bytes().rstrip(b"\n")
        except OSError as error:
            raise ConfigurationInvalid(f"{self.endorsement_password_file}: {error}") from error

    def event_log(self) -> bytes | None:
        """Return the firmware's event log; `None` if the file is empty or cannot be read.

        The signer decides whether the policy needs one.
        """
        # Imported here: the module loads `cryptography`, which a cached credential does not need.
        from common.evidence import MAX_EVENT_LOG  # noqa: PLC0415

        return _read_optional(self.event_log_file, MAX_EVENT_LOG)

    def pcr_signatures(self, pcrs: Mapping[str, Sequence[int]]) -> bytes | None:
        """Return the vendor's signatures of values of these PCRs: see `pcr_signatures.load_for`."""
        from authenticator.config import pcr_signatures  # noqa: PLC0415 - as above

        return pcr_signatures.load_for(self.pcr_signature_file, pcrs)


def _read_optional(path: Path, limit: int) -> bytes | None:
    """Return a file, cut one byte above the limit; `None` if it is empty or cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(limit + 1) or None
    except OSError:
        return None


def _with_valid_name(settings: Settings, current: Credential | None) -> Settings:
    if settings.node_name_explicit:
        return settings
    if current is not None:
        return replace(settings, node_name=current.node_name)
    try:
        require_node_name(settings.node_name)
    except AttestationError as error:
        raise ConfigurationInvalid(
            f"the host name {settings.node_name!r} is not a node name: set nodeName (--node-name)"
        ) from error
    return settings


def resolve(
    extension: Mapping[str, object],
    flags: Mapping[str, str],
    hostname: str,
    problems: tuple[str, ...] = (),
) -> Settings:
    """Return the settings of a call; `flags` has the keys of the table.

    `problems` of the command line are reported together with those of the settings. The host name
    is not checked here: a cached certificate is served with any value. Raises
    `ConfigurationInvalid`.
    """
    settings, wrong = resolve_valid(extension, flags, hostname)
    if problems or wrong:
        raise ConfigurationInvalid("; ".join((*problems, *wrong)))
    return settings


def resolve_valid(
    extension: Mapping[str, object], flags: Mapping[str, str], hostname: str
) -> tuple[Settings, list[str]]:
    """Return the settings without those that are wrong, and what is wrong.

    They are good enough to find a cached certificate, and not to request one.
    """
    values, wrong = _parse_values(extension, flags)
    wrong += [f"unknown setting {key!r}" for key in extension if key not in _BY_KEY]
    if any(key in flags for key in _PROVIDER_ID_KEYS):
        values = {k: v for k, v in values.items() if k in flags or k not in _PROVIDER_ID_KEYS}
    if all(key in values for key in _PROVIDER_ID_KEYS):
        wrong.append("providerID and providerIDFile exclude each other")
    settings = Settings(
        node_name=str(values.get("nodeName", hostname.strip().lower())),
        node_name_explicit="nodeName" in values,
        provider_id=cast("str | None", values.get("providerID")),
        provider_id_file=cast("Path | None", values.get("providerIDFile")),
        provider=cast("str | None", values.get("provider")),
        bootstrap_kubeconfig=_path(values, "bootstrapKubeconfig", DEFAULT_BOOTSTRAP_KUBECONFIG),
        state_dir=_path(values, "stateDir", DEFAULT_STATE_DIR),
        tcti=str(values.get("tcti", DEFAULT_TCTI)),
        endorsement_key_type=cast("KeyType", values.get("endorsementKeyType", "auto")),
        endorsement_password_file=cast("Path | None", values.get("endorsementPasswordFile")),
        event_log_file=_path(values, "eventLogFile", DEFAULT_EVENT_LOG),
        pcr_signature_file=_path(values, "pcrSignatureFile", DEFAULT_PCR_SIGNATURES),
        timeout_seconds=cast("int", values.get("timeoutSeconds", DEFAULT_TIMEOUT_SECONDS)),
        signer_name=CLIENT_SIGNER,
        expiration_seconds=cast("int | None", values.get("expirationSeconds")),
    )
    return settings, wrong


_BY_KEY: Final = {setting.key: setting for setting in SETTINGS}


def _parse_values(
    extension: Mapping[str, object], flags: Mapping[str, str]
) -> tuple[dict[str, object], list[str]]:
    values: dict[str, object] = {}
    problems = []
    for setting in SETTINGS:
        for name, source in ((setting.key, extension), (setting.flag, flags)):
            if setting.key not in source:
                continue
            try:
                values[setting.key] = setting.parse(source[setting.key])
            except (ValueError, AttestationError) as error:
                problems.append(f"{name} {error}")
    return values, problems


def _path(values: Mapping[str, object], key: str, default: str) -> Path:
    return cast("Path", values.get(key, Path(default)))
