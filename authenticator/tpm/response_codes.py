"""Response codes of a TPM (TPM_RC) as leaves of the error tree, with one clear message each.

Source: TPM 2.0 Part 2, section 6.6, and the TSS 2.0 Overview and Common
Structures, section 3.12 (layers; a resource manager answers in a separate layer).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from authenticator.errors import (
    EndorsementAuthorizationRequired,
    EndorsementHierarchyDisabled,
    TpmBusy,
    TpmFailed,
    TpmInFailureMode,
    TpmLockedOut,
    TpmOutOfMemory,
    TpmUnavailable,
)
from common.errors import AttestationError

RC_FAILURE: Final = 0x101
RC_BAD_AUTH: Final = 0x0A2
RC_AUTH_FAIL: Final = 0x08E
RC_HIERARCHY: Final = 0x085
RC_HANDLE: Final = 0x08B
RC_NV_AUTHORIZATION: Final = 0x149
RC_NV_UNINITIALIZED: Final = 0x14A
RC_NV_LOCKED: Final = 0x148

_FORMAT_ONE: Final = 0x080
_PARAMETER: Final = 0x040
_LAYER: Final = 0xFF0000
_LAYERS_TPM: Final = frozenset({0x000000, 0x0B0000})
"""Layers with codes of the TPM: its own, and that of a resource manager that passes them on."""
_LAYER_TCTI: Final = 0x0A0000
"""The connection to the TPM."""

_UNSUPPORTED: Final = frozenset(
    {
        0x081,  # ASYMMETRIC
        0x082,  # ATTRIBUTES
        0x083,  # HASH
        0x084,  # VALUE
        0x087,  # KEY_SIZE
        0x089,  # MODE
        0x08A,  # TYPE
        0x08C,  # KDF
        0x092,  # SCHEME
        0x096,  # SYMMETRIC
        0x0A6,  # CURVE
    }
)
"""TPMs return one of these for a template with an unsupported algorithm, size or curve."""

_Meaning = tuple[type[AttestationError], str]

_BUSY: Final[_Meaning] = (
    TpmBusy,
    (
        "the TPM stays busy with other work: the next call tries again; another program that uses"
        " the TPM, or its self test after a start, may be the cause"
    ),
)
_FULL: Final[_Meaning] = (
    TpmOutOfMemory,
    (
        "the TPM has no free slot for a key or a session: use the kernel's resource manager"
        " (device:/dev/tpmrm0), or flush what other programs left loaded (tpm2_flushcontext)"
    ),
)
_PASSWORD: Final[_Meaning] = (
    EndorsementAuthorizationRequired,
    (
        "the password of the endorsement hierarchy is not that of endorsementPasswordFile: correct"
        " it. TPM2_Clear removes the password; after it, remove the setting"
    ),
)
_PASSWORD_NOT_CONFIGURED: Final[_Meaning] = (
    EndorsementAuthorizationRequired,
    "the endorsement hierarchy has a password: set endorsementPasswordFile to a file that holds it",
)

_MEANINGS: Final[Mapping[int, _Meaning]] = MappingProxyType(
    {
        RC_HIERARCHY: (
            EndorsementHierarchyDisabled,
            "the endorsement hierarchy of the TPM is disabled: enable it in the firmware settings",
        ),
        RC_AUTH_FAIL: _PASSWORD,
        RC_BAD_AUTH: _PASSWORD,
        0x100: (  # INITIALIZE
            TpmUnavailable,
            "the TPM was reset and not started since: reboot the machine",
        ),
        RC_FAILURE: (
            TpmInFailureMode,
            (
                "the TPM is in failure mode after a failed self test: power the machine off and on,"
                " and replace the TPM if that does not help"
            ),
        ),
        0x902: _FULL,  # OBJECT_MEMORY
        0x903: _FULL,  # SESSION_MEMORY
        0x904: _FULL,  # MEMORY
        0x905: _FULL,  # SESSION_HANDLES
        0x906: _FULL,  # OBJECT_HANDLES
        0x908: _BUSY,  # YIELDED
        0x909: _BUSY,  # CANCELED
        0x90A: _BUSY,  # TESTING
        0x920: _BUSY,  # NV_RATE
        0x921: (  # LOCKOUT
            TpmLockedOut,
            (
                "the TPM is locked out after failed authorizations: wait for its recovery time, or"
                " run tpm2_dictionarylockout --clear-lockout"
            ),
        ),
        0x922: _BUSY,  # RETRY
        0x923: _BUSY,  # NV_UNAVAILABLE
    }
)


def base_code(code: int) -> int:
    """Return the code of a TPM without handle, session or parameter number; 0 for other layers."""
    if code & _LAYER not in _LAYERS_TPM:
        return 0
    return code & (_FORMAT_ONE | 0x3F) if code & _FORMAT_ONE else code & 0xFFF


def is_parameter_error(code: int) -> bool:
    """Return whether the TPM rejected a parameter of the command."""
    return base_code(code) != 0 and code & _FORMAT_ONE != 0 and code & _PARAMETER != 0


def is_unsupported(code: int) -> bool:
    """Return whether the TPM cannot make the key that a template describes."""
    return is_parameter_error(code) and base_code(code) in _UNSUPPORTED


def is_retryable(code: int) -> bool:
    """Return whether the same command may succeed a moment later."""
    return _MEANINGS.get(base_code(code)) is _BUSY


def error_for_code(code: int, command: str, *, has_password: bool = True) -> AttestationError:
    """Return the error of a command that gave the code; its `detail` has the number.

    `has_password` says whether a password of the endorsement hierarchy is configured.
    """
    detail = f"{command} returned {code:#x}"
    if code & _LAYER == _LAYER_TCTI:
        return TpmUnavailable(
            "the connection to the TPM broke: check the kernel log for TPM errors",
            detail=detail,
        )
    if meaning := _MEANINGS.get(base_code(code)):
        is_missing = meaning is _PASSWORD and not has_password
        leaf, message = _PASSWORD_NOT_CONFIGURED if is_missing else meaning
        return leaf(message, detail=detail)
    return TpmFailed(
        f"{command} failed: tpm2_rc_decode {code:#x} explains the error",
        detail=detail,
    )
