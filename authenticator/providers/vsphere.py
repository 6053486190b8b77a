"""vSphere: the BIOS UUID from DMI, the node name from guestinfo.

`product_serial` has the bytes of the UUID in the order of vCenter. `product_uuid` is not read: from
virtual hardware 13 on, the bytes of its first three fields may be swapped
(kubernetes/kubernetes#58927, vmware/pyvmomi#688).
cluster-api-provider-vsphere writes `vsphere://<uuid>` from vCenter's `config.uuid`, and puts the
node's name as `local-hostname` into `guestinfo.metadata`, which VMware's tools read.
"""

import re
import subprocess
import zlib
from base64 import b64decode
from pathlib import Path
from typing import Final

from authenticator.errors import ProviderAnswerInvalid, ProviderUnavailable
from authenticator.model import Deadline
from authenticator.providers.provider import Identity, reject_option, require_match
from common.formats import strict_yaml

DMI: Final = Path("/sys/class/dmi/id")
TOOLS: Final = tuple(
    Path(directory, name)
    for name in ("vmware-rpctool", "vmtoolsd")
    for directory in ("/usr/bin", "/usr/share/oem/bin")
)
"""Paths of the VMware tools; the second directory is that of Flatcar."""

TOOL_SECONDS: Final = 5.0
METADATA_LIMIT: Final = 1024 * 1024
"""Bytes: the maximum of one guestinfo key."""

_SERIAL: Final = re.compile(
    r"VMware-(?:[0-9A-Fa-f]{2} ){7}[0-9A-Fa-f]{2}-(?:[0-9A-Fa-f]{2} ){7}[0-9A-Fa-f]{2}"
)
_GZIP: Final = zlib.MAX_WBITS | 16


class VSphere:
    """The provider `vsphere`."""

    def __init__(self, option: str, *, dmi: Path = DMI, tools: tuple[Path, ...] = TOOLS) -> None:
        reject_option("vsphere", option)
        self._dmi = dmi
        self._tools = tools

    def identity(self, deadline: Deadline) -> Identity:
        """See `Provider`."""
        return Identity(
            provider_id=f"vsphere://{_bios_uuid(self._dmi / 'product_serial')}",
            node_name=self._node_name(deadline),
        )

    def _node_name(self, deadline: Deadline) -> str | None:
        """Return the name from guestinfo, None without tools or after a cleanup of guestinfo."""
        tool = next((tool for tool in self._tools if tool.exists()), None)
        if tool is None:
            return None
        encoded = _guestinfo(tool, "guestinfo.metadata", deadline)
        encoding = _guestinfo(tool, "guestinfo.metadata.encoding", deadline)
        try:
            metadata = strict_yaml.load(_decode(encoded, encoding.decode()))
        except (ValueError, zlib.error):
            raise ProviderAnswerInvalid("guestinfo.metadata cannot be read") from None
        name = metadata.get("local-hostname") if isinstance(metadata, dict) else None
        return name.lower() if isinstance(name, str) else None


def _bios_uuid(path: Path) -> str:
    try:
        serial = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ProviderUnavailable(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        serial = ""
    require_match(_SERIAL, serial, f"{path} of a VMware virtual machine")
    digits = re.sub(r"[ -]", "", serial.removeprefix("VMware-")).lower()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _guestinfo(tool: Path, key: str, deadline: Deadline) -> bytes:
    """Return the value of a key, empty if it does not exist: the tools then exit with 1."""
    arguments = ("--cmd",) if tool.name == "vmtoolsd" else ()
    try:
        done = subprocess.run(  # noqa: S603 - fixed path and arguments
            [tool, *arguments, f"info-get {key}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={"LC_ALL": "C"},
            timeout=max(0.0, min(TOOL_SECONDS, deadline.remaining())),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ProviderUnavailable(f"{tool} did not end in time") from None
    except OSError as error:
        raise ProviderUnavailable(f"{tool}: {error.strerror}") from error
    return done.stdout.strip() if done.returncode == 0 else b""


def _decode(value: bytes, encoding: str) -> bytes:
    """Decode as cloud-init does. Raises `ValueError`, zlib.error."""
    without_blanks = b"".join(value.split())
    match encoding:
        case "gzip+base64" | "gz+b64":
            decompressor = zlib.decompressobj(_GZIP)
            text = decompressor.decompress(b64decode(without_blanks, validate=True), METADATA_LIMIT)
            if not decompressor.eof:
                raise ValueError(encoding)
            return text
        case "base64" | "b64":
            return b64decode(without_blanks, validate=True)
        case _:
            return value
