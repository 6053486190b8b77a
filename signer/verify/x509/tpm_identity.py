"""What an endorsement certificate says about its TPM: manufacturer, model and firmware.

It is for operators, and no check uses it: a certificate that no authority signed can say anything.
Source: TCG EK Credential Profile 2.5, section 3.2.9 (subject alternative name); TCG TPM Vendor ID
Registry.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from signer.verify.x509.fields import CertificateFields
from signer.verify.x509.lenient_der import CertificateMalformed, children, oid, single_element

_SUBJECT_ALT_NAME: Final = "2.5.29.17"
_DIRECTORY_NAME: Final = 0xA4
"""GeneralName, explicitly tagged [4]."""
_MANUFACTURER: Final = "2.23.133.2.1"
_MODEL: Final = "2.23.133.2.2"
_VERSION: Final = "2.23.133.2.3"
_VENDOR_ID: Final = re.compile("id:([0-9A-Fa-f]{8})")
_MAX_TEXT: Final = 64
"""Characters of one value. Manufacturer and version have 11; a model is a short name."""
_MAX_ATTRIBUTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmIdentity:
    """What an endorsement certificate says about its TPM; empty where it says nothing readable."""

    manufacturer: str = ""
    model: str = ""
    firmware: str = ""


def read_tpm_identity(fields: CertificateFields) -> TpmIdentity:
    """Return what the certificate says; a certificate that cannot be read says nothing."""
    try:
        values = dict(_attributes(fields))
    except (CertificateMalformed, ValueError):
        # `ValueError`: an attribute has more or fewer than two parts.
        return TpmIdentity()
    return TpmIdentity(
        manufacturer=_vendor(values.get(_MANUFACTURER, "")),
        model=values.get(_MODEL, ""),
        firmware=values.get(_VERSION, ""),
    )


def _attributes(fields: CertificateFields) -> Iterator[tuple[str, str]]:
    """Yield OID and value of each attribute of the directory names."""
    extension = fields.extensions.get(_SUBJECT_ALT_NAME)
    if extension is None:
        return
    count = 0
    for tag, content, _ in children(single_element(extension.value)):
        if tag != _DIRECTORY_NAME:
            continue
        for relative_name in children(single_element(content)):
            for attribute in children(relative_name):
                count += 1
                if count > _MAX_ATTRIBUTES:
                    return
                name, value = children(attribute)
                yield oid(name), _printable(value[1])


def _printable(content: bytes) -> str:
    """Return a value as ASCII without control characters, empty if it is not such a text."""
    text = content[: _MAX_TEXT + 1].decode("ascii", errors="replace")
    return text if len(text) <= _MAX_TEXT and text.isascii() and text.isprintable() else ""


def _vendor(text: str) -> str:
    """Return the four letters of a vendor ID such as `id:494E5443`; any other text unchanged."""
    matched = _VENDOR_ID.fullmatch(text)
    if matched is None:
        return text
    letters = bytes.fromhex(matched[1]).rstrip(b"\0 ").decode("ascii", errors="replace")
    return letters if letters.isascii() and letters.isprintable() else text
