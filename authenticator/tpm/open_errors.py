"""Why a TPM cannot be opened: the TSS2 libraries only tell that it failed."""

import errno
import os
from typing import Final

from authenticator.errors import TpmConfigurationInvalid, TpmPermissionDenied, TpmUnavailable
from authenticator.tpm.device import DEFAULT_TCTI

_TCTI_NOT_SUPPORTED: Final = 0xA0015
"""No library for this name of a TCTI (TSS 2.0 Overview and Common Structures, section 3.12)."""
_DEVICE: Final = "device"
_DEVICE_PATH: Final = "/dev/tpmrm0"
"""What the libraries try first when `device` comes without a path."""


class DeviceBusy(Exception):
    """Another program has opened a device that takes one at a time; it may be free in a moment."""


def open_error(tcti: str, code: int) -> Exception:
    """Name the reason why opening `tcti` gave the response code: a leaf, or DeviceInUse."""
    name, _, path = tcti.partition(":")
    if code == _TCTI_NOT_SUPPORTED:
        return TpmConfigurationInvalid(
            f"there is no TCTI {name!r}: correct the TPM setting (the usual one is {DEFAULT_TCTI}),"
            f" or install the library libtss2-tcti-{name}"
        )
    if name != _DEVICE:
        return TpmUnavailable(f"nothing answers as a TPM at {tcti}")
    return _why_no_device(path or _DEVICE_PATH)


def _why_no_device(path: str) -> Exception:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except PermissionError:
        return TpmPermissionDenied(
            f"this user may not open {path}: run as root, or as a member of the device's group"
        )
    except OSError as error:
        if error.errno == errno.EBUSY:
            return DeviceBusy(path)
        return TpmUnavailable(
            f"there is no TPM at {path} ({error.strerror}): switch it on in the firmware's"
            " settings, or attach one to the virtual machine, and load its driver"
        )
    return TpmUnavailable(f"{path} opens, but is no TPM 2.0 device")
