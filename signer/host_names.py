"""Names of hosts: folded as they are written, and the one form that all spellings of a name share.

Upper case, letters beyond ASCII, and an address that is written as a name all have several forms.
What is compared is folded first. Source: RFC 3492 and RFC 5890 (IDNA), RFC 4291 section 2.5.5.2
(IPv4-mapped addresses).
"""

import re
import unicodedata
from ipaddress import IPv4Address, IPv6Address
from typing import Final

HostName = str | IPv4Address | IPv6Address
"""A name in the one form that is compared: a lower-case DNS name, or an address."""

_MAX_NAME: Final = 253
"""Characters of a name that DNS can hold (RFC 1035 section 2.3.4)."""
_MAX_LABEL: Final = 63
_DOTS: Final = re.compile("[.\u3002\uff0e\uff61]")
"""What IDNA reads as a dot (RFC 3490 section 3.1)."""
_PUNYCODE: Final = "xn--"


def fold_case(name: str) -> str:
    """Fold case, and strip the root's dot (talos-cloud-controller-manager PR #360)."""
    return name.casefold().removesuffix(".")


def as_address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an IP address; `None` for other texts. An IPv4-mapped IPv6 address becomes IPv4."""
    try:
        if ":" in text:
            address = IPv6Address(text)
            return address.ipv4_mapped or address
        # Most names are found not to be an address without the cost of an exception.
        return IPv4Address(text) if text[:1].isdigit() else None
    except ValueError:
        return None


def normalize(text: str) -> HostName:
    """Return the name as it is written, folded."""
    name = fold_case(text)
    address = as_address(name)
    return name if address is None else address


def canonical_name(text: str) -> HostName:
    """Return the one form that all spellings of a name share, in Unicode and in punycode.

    IDNA 2003 folds more characters than IDNA 2008: here both are folded. Decoding punycode and
    folding take quadratic time, so a name and a label that DNS cannot hold stay as they are: no
    client looks them up.
    """
    name = text.casefold()
    if len(text) <= _MAX_NAME and (not name.isascii() or _PUNYCODE in name):
        name = ".".join(map(_canonical_label, _DOTS.split(text)))
    return normalize(name)


def _canonical_label(label: str) -> str:
    if len(label) > _MAX_LABEL:
        return label
    folded = _fold_compatible(label)
    if not folded.startswith(_PUNYCODE) or len(folded) > _MAX_LABEL:
        return folded
    try:
        return _fold_compatible(folded.removeprefix(_PUNYCODE).encode("ascii").decode("punycode"))
    except ValueError:
        return folded


def _fold_compatible(text: str) -> str:
    """Fold case and compatible characters: NFKC_Casefold (Unicode Standard, section 3.13)."""
    for form in ("NFD", "NFKC", "NFKC"):
        text = unicodedata.normalize(form, text).casefold()
    return text
