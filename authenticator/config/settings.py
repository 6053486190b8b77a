"""Settings: from flags first, then from the cluster's exec extension, then defaults.

One table says for each setting how it is called in both places, what it takes and what it is for;
parser, `--help` and errors are made from it. Unknown settings are errors, and all problems are told
at once. Secrets are never settings: flags and the exec extension are readable by others.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from authenticator.errors import ConfigurationInvalid
from authenticator.providers.provider import Identity
from authenticator.tpm.device import DEFAULT_TCTI, KeyType
from common.errors import AttestationError
from common.names import CLIENT_SIGNER
from common.node_identity import require_node_name, require_provider_id

DEFAULT_STATE_DIR: Final = "/var/lib/kubelet-authenticator"
DEFAULT_BOOTSTRAP_KUBECONFIG: Final = "/etc/kubernetes/bootstrap-kubelet.conf"
DEFAULT_EVENT_LOG: Final = "/sys/kernel/security/tpm0/binary_bios_measurements"
DEFAULT_TIMEOUT_SECONDS: Final = 60
MIN_EXPIRATION_SECONDS: Final = 600
"""What the API server takes (certificates.k8s.io/v1)."""

MAX_SECONDS: Final = 2**31 - 1
MAX_TIMEOUT_SECONDS: Final = 900
"""A pending exchange lives no longer (docs/protocol.md section 3)."""

PROVIDER_ID_SIZE_LIMIT: Final = 4096
_WORD_START: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PROVIDER: Final = re.compile(r"[a-z0-9][a-z0-9._-]*(?::[!-~]+)?")
_PROVIDER_ID_KEYS: Final = ("providerID", "providerIDFile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that this program can be told."""

    node_name: str
    node_name_explicit: bool
    """Not only taken from the host name, so a provider is not asked for it."""
    provider_id: str | None
    provider_id_file: Path | None
    provider: str | None
    bootstrap_kubeconfig: Path
    state_dir: Path
    tcti: str
    endorsement_key_type: KeyType
    endorsement_password_file: Path | None
    event_log_file: Path
    timeout_seconds: int
    signer_name: str
    expiration_seconds: int | None

    def matches_node(self, node_name: str) -> bool:
        """Tell whether this is the node's name, as far as is known without asking a provider."""
        name_is_open = self.provider is not None and not self.node_name_explicit
        return name_is_open or node_name == self.node_name

    def with_provider_identity(self, ask: Callable[[str], Identity]) -> "Settings":
        """Return settings that need no provider: it is asked for what is not set, if anything.

        Raises what `ask` raises.
        """
        has_provider_id = self.provider_id is not None or self.provider_id_file is not None
        if self.provider is None or (has_provider_id and self.node_name_explicit):
            return replace(self, provider=None)
        told = ask(self.provider)
        name = None if self.node_name_explicit else told.node_name
        return replace(
            self,
            node_name=name or self.node_name,
            provider_id=self.provider_id if has_provider_id else told.provider_id,
            provider=None,
        )

    def required_provider_id(self) -> str:
        """Return the provider ID, from its file if one is named. Raises ConfigurationInvalid."""
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

        Raises ConfigurationInvalid.
        """
        if self.endorsement_password_file is None:
            return b""
        try:
            return self.endorsement_password_file.read_bytes().rstrip(b"\n")
        except OSError as error:
            raise ConfigurationInvalid(f"{self.endorsement_password_file}: {error}") from error

    def event_log(self) -> bytes | None:
        """Return the firmware's event log, None when there is none: the signer judges that."""
        # Imported here: the module loads `cryptography`, which a cached credential does not need.
        from common.evidence import MAX_EVENT_LOG  # noqa: PLC0415

        try:
            with self.event_log_file.open("rb") as file:
                return file.read(MAX_EVENT_LOG + 1)
        except OSError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: its name in the exec extension, what it takes, and what it is for."""

    key: str
    parse: Callable[[object], object]
    help: str
    metavar: str

    @property
    def flag(self) -> str:
        """Return the flag's name: `nodeName` is `--node-name`, `providerID` is `--provider-id`."""
        return "--" + _WORD_START.sub("-", self.key).lower()


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("is not a string that says something")
    return value


def _provider(value: object) -> str:
    text = _text(value)
    if _PROVIDER.fullmatch(text) is None:
        raise ValueError("is not NAME or NAME:OPTION")
    return text


def _absolute(value: object) -> Path:
    path = Path(_text(value))
    if not path.is_absolute():
        raise ValueError("is not an absolute path")
    return path


def _one_of(*words: str) -> Callable[[object], str]:
    def take(value: object) -> str:
        if value not in words:
            raise ValueError(f"is not {' or '.join(words)}")
        return str(value)

    return take


def _seconds(least: int, most: int) -> Callable[[object], int]:
    def take(value: object) -> int:
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if type(number) is not int or not least <= number <= most:
            raise ValueError(f"is not a number of seconds from {least} to {most}")
        return number

    return take


SETTINGS: Final = (
    Setting(
        key="nodeName",
        parse=lambda value: require_node_name(_text(value)),
        help="name of this Node; default: what the provider tells, or the host name in lower case",
        metavar="NAME",
    ),
    Setting(
        key="providerID",
        parse=lambda value: require_provider_id(_text(value)),
        help="what Machine.spec.providerID holds for this machine",
        metavar="ID",
    ),
    Setting(
        key="providerIDFile",
        parse=_absolute,
        help="file that holds the provider ID",
        metavar="FILE",
    ),
    Setting(
        key="provider",
        parse=_provider,
        help="platform that tells provider ID and node name where they are not set: aws, azure,"
        " equinix, file:PATH, gce, metal3, openstack[:REGION], vsphere, or one that was added",
        metavar="NAME[:OPTION]",
    ),
    Setting(
        key="bootstrapKubeconfig",
        parse=_absolute,
        help="kubeconfig whose user is the bootstrap credential;"
        f" default: {DEFAULT_BOOTSTRAP_KUBECONFIG}",
        metavar="FILE",
    ),
    Setting(
        key="stateDir",
        parse=_absolute,
        help=f"folder of this program's own, mode 0700; default: {DEFAULT_STATE_DIR}",
        metavar="FOLDER",
    ),
    Setting(
        key="tcti",
        parse=_text,
        help=f"how the TPM is reached, as the TSS2 libraries name it; default: {DEFAULT_TCTI}",
        metavar="TCTI",
    ),
    Setting(
        key="endorsementKeyType",
        parse=_one_of("auto", "rsa", "ecc"),
        help="endorsement key to use: rsa, ecc or auto (RSA first); default: auto",
        metavar="TYPE",
    ),
    Setting(
        key="endorsementPasswordFile",
        parse=_absolute,
        help="file that holds the endorsement hierarchy's password, on the few machines with one",
        metavar="FILE",
    ),
    Setting(
        key="eventLogFile",
        parse=_absolute,
        help=f"the firmware's event log; default: {DEFAULT_EVENT_LOG}",
        metavar="FILE",
    ),
    Setting(
        key="timeoutSeconds",
        parse=_seconds(1, MAX_TIMEOUT_SECONDS),
        help=f"time for one call without a certificate; default: {DEFAULT_TIMEOUT_SECONDS}",
        metavar="SECONDS",
    ),
    Setting(
        key="signerName",
        parse=_one_of(CLIENT_SIGNER),
        help=f"signer to ask; default, and the only one: {CLIENT_SIGNER}",
        metavar="NAME",
    ),
    Setting(
        key="expirationSeconds",
        parse=_seconds(MIN_EXPIRATION_SECONDS, MAX_SECONDS),
        help="lifetime to ask for; default: the signer's",
        metavar="SECONDS",
    ),
)


def resolve(
    extension: Mapping[str, object],
    flags: Mapping[str, str],
    hostname: str,
    problems: tuple[str, ...] = (),
) -> Settings:
    """Make the settings of a call; `flags` by the keys of the table.

    `problems` are those that were found before; they are told together with those found here.
    Raises ConfigurationInvalid.
    """
    found, wrong = _take(extension, flags)
    told = [*problems, *wrong]
    told += [f"unknown setting {key!r}" for key in extension if key not in _BY_KEY]
    if any(key in flags for key in _PROVIDER_ID_KEYS):
        found = {k: v for k, v in found.items() if k in flags or k not in _PROVIDER_ID_KEYS}
    if all(key in found for key in _PROVIDER_ID_KEYS):
        told.append("providerID and providerIDFile exclude each other")
    is_given = "nodeName" in extension or "nodeName" in flags
    if not is_given:
        found["nodeName"] = _node_name_of(hostname, told)
    if told:
        raise ConfigurationInvalid("; ".join(told))
    return Settings(
        node_name=str(found["nodeName"]),
        node_name_explicit=is_given,
        provider_id=cast("str | None", found.get("providerID")),
        provider_id_file=cast("Path | None", found.get("providerIDFile")),
        provider=cast("str | None", found.get("provider")),
        bootstrap_kubeconfig=_path(found, "bootstrapKubeconfig", DEFAULT_BOOTSTRAP_KUBECONFIG),
        state_dir=_path(found, "stateDir", DEFAULT_STATE_DIR),
        tcti=str(found.get("tcti", DEFAULT_TCTI)),
        endorsement_key_type=cast("KeyType", found.get("endorsementKeyType", "auto")),
        endorsement_password_file=cast("Path | None", found.get("endorsementPasswordFile")),
        event_log_file=_path(found, "eventLogFile", DEFAULT_EVENT_LOG),
        timeout_seconds=cast("int", found.get("timeoutSeconds", DEFAULT_TIMEOUT_SECONDS)),
        signer_name=CLIENT_SIGNER,
        expiration_seconds=cast("int | None", found.get("expirationSeconds")),
    )


_BY_KEY: Final = {setting.key: setting for setting in SETTINGS}


def _take(
    extension: Mapping[str, object], flags: Mapping[str, str]
) -> tuple[dict[str, object], list[str]]:
    found: dict[str, object] = {}
    wrong = []
    for setting in SETTINGS:
        named = [(setting.key, extension), (setting.flag, flags)]
        for name, source in named:
            if setting.key not in source:
                continue
            try:
                found[setting.key] = setting.parse(source[setting.key])
            except (ValueError, AttestationError) as error:
                wrong.append(f"{name} {error}")
    return found, wrong


def _node_name_of(hostname: str, told: list[str]) -> str:
    name = hostname.strip().lower()
    try:
        return require_node_name(name)
    except AttestationError:
        told.append(f"the host name {name!r} is no node name: set nodeName (--node-name)")
        return name


def _path(found: Mapping[str, object], key: str, default: str) -> Path:
    return cast("Path", found.get(key, Path(default)))
