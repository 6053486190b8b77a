"""The table of settings: each setting's key, value parser and help text.

The command line parser, `--help`, errors and `settings` use it. Secrets are never settings: other
users can read flags and the exec extension.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from authenticator.tpm.device import DEFAULT_TCTI
from common.names import CLIENT_SIGNER, SUPPORTED_VERSIONS
from common.node_identity import require_node_name, require_provider_id

DEFAULT_STATE_DIR: Final = "/var/lib/kubelet-authenticator"
DEFAULT_BOOTSTRAP_KUBECONFIG: Final = "/etc/kubernetes/bootstrap-kubelet.conf"
DEFAULT_PCR_SIGNATURES: Final = "/run/systemd/tpm2-pcr-signature.json"
"""systemd-stub takes it from the image of the kernel, and systemd-tmpfiles puts it here."""
DEFAULT_EVENT_LOG: Final = "/sys/kernel/security/tpm0/binary_bios_measurements"
DEFAULT_TIMEOUT_SECONDS: Final = 60
MIN_EXPIRATION_SECONDS: Final = 600
"""The API server accepts no less (certificates.k8s.io/v1)."""

MAX_SECONDS: Final = 2**31 - 1
MAX_TIMEOUT_SECONDS: Final = 900
"""A pending exchange is discarded after this time (docs/protocol.md section 3)."""

_WORD_START: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PROVIDER: Final = re.compile(r"[a-z0-9][a-z0-9._-]*(?::[!-~]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: its key in the exec extension, its value parser, and its help text."""

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
        raise ValueError("must be a non-empty string")
    return value


def _provider(value: object) -> str:
    text = _text(value)
    if _PROVIDER.fullmatch(text) is None:
        raise ValueError("must be NAME or NAME:OPTION")
    return text


def _absolute(value: object) -> Path:
    path = Path(_text(value))
    if not path.is_absolute():
        raise ValueError("must be an absolute path")
    return path


def _one_of(*words: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in words:
            raise ValueError(f"must be {' or '.join(words)}")
        return str(value)

    return parse


def _seconds(minimum: int, maximum: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if type(number) is not int or not minimum <= number <= maximum:
            raise ValueError(f"must be a number of seconds from {minimum} to {maximum}")
        return number

    return parse


SETTINGS: Final = (
    Setting(
        key="nodeName",
        parse=lambda value: require_node_name(_text(value)),
        help="name of this Node; default: the provider's, or the host name in lower case",
        metavar="NAME",
    ),
    Setting(
        key="providerID",
        parse=lambda value: require_provider_id(_text(value)),
        help="Machine.spec.providerID of this machine",
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
        help="platform to ask for provider ID and node name where they are not set: aws, azure,"
        " equinix, file:PATH, gce, metal3, openstack[:REGION], vsphere, or an installed one",
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
        help=f"directory of this program, mode 0700; default: {DEFAULT_STATE_DIR}",
        metavar="DIRECTORY",
    ),
    Setting(
        key="tcti",
        parse=_text,
        help=f"connection to the TPM, as a TSS2 TCTI name; default: {DEFAULT_TCTI}",
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
        help="file that holds the endorsement hierarchy's password, on machines that have one",
        metavar="FILE",
    ),
    Setting(
        key="eventLogFile",
        parse=_absolute,
        help=f"the firmware's event log; default: {DEFAULT_EVENT_LOG}",
        metavar="FILE",
    ),
    Setting(
        key="pcrSignatureFile",
        parse=_absolute,
        help=f"the image vendor's signatures of PCR values; default: {DEFAULT_PCR_SIGNATURES}",
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
        help=f"name of the signer; default, and the only one: {CLIENT_SIGNER}",
        metavar="NAME",
    ),
    Setting(
        key="minimumVersion",
        parse=_one_of(*SUPPORTED_VERSIONS),
        help=f"oldest protocol version to use; default: {SUPPORTED_VERSIONS[0]}",
        metavar="VERSION",
    ),
    Setting(
        key="expirationSeconds",
        parse=_seconds(MIN_EXPIRATION_SECONDS, MAX_SECONDS),
        help="lifetime to request; default: the signer's",
        metavar="SECONDS",
    ),
)
