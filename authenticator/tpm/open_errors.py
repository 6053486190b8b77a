"""Why a TPM cannot be opened: the TSS2 libraries only say that it failed."""

import errno
import os
from typing import Final

from authenticator.errors import TpmConfigurationInvalid, TpmPermissionDenied, TpmUnavailable
from authenticator.tpm.device import DEFAULT_TCTI

_TCTI_NOT_SUPPORTED: Final = 0xA0015
"""No library has this TCTI name (TSS 2.0 Overview and Common Structures, section 3.12)."""
_DEVICE: Final = "device"
_DEVICE_PATH: Final = "/dev/tpmrm0"
"""The first path that the libraries try for `device` without a path."""


class DeviceBusy(Exception):
    """Another program holds a device that only one can open; it may be free in a moment."""


def open_error(tcti: str, code: int) -> Exception:
    """Return why opening `tcti` gave the response code: a leaf of the error tree, or DeviceBusy."""
    name, _, path = tcti.partition(":")
    if code == _TCTI_NOT_SUPPORTED:
        return TpmConfigurationInvalid(
            f"there is no TCTI {name!r}: correct the setting tcti (usually {DEFAULT_TCTI}),"
            f" or install the library libtss2-tcti-{name}"
        )
    if name != _DEVICE:
        return TpmUnavailable(f"no TPM answers at {tcti}")
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
            f"there is no TPM at {path} ({error.strerror}): enable it in the firmware settings,"
            " or attach one to the virtual machine, and load its driver"
        )
    return TpmUnavailable(f"{path} can be opened, but is not a TPM 2.0 device")
