"""Names of hosts: the one form that is compared, and all forms in which a certificate has a name.

Upper case, letters beyond ASCII, and an address that is written as a name all have several forms.
What is compared is folded first. Source: RFC 3492 and RFC 5890 (IDNA), RFC 4291 section 2.5.5.2
(IPv4-mapped addresses).
"""

import unicodedata
from ipaddress import IPv4Address, IPv6Address

HostName = str | IPv4Address | IPv6Address
"""A name in the one form that is compared: a lower-case DNS name, or an address."""


def fold_case(name: str) -> str:
    """Fold case, and strip the root's dot (talos-cloud-controller-manager PR #360)."""
    return name.casefold().removesuffix(".")


def as_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address that is written here, `None` for none; IPv4-mapped ones are IPv4."""
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


def equivalent_names(text: str) -> frozenset[HostName]:
    """Return every form of a name in certificates: one with letters beyond ASCII has several."""
    if text.isascii():
        return frozenset({normalize(text)})
    return frozenset(map(normalize, (text, _idna(text.lower()), _idna(text.casefold()))))


def _idna(text: str) -> str:
    """Return a host name in its DNS form; IDNA 2003 folds more characters than IDNA 2008."""
    labels = unicodedata.normalize("NFKC", text).replace("\u3002", ".").split(".")
    return ".".join(
        label if label.isascii() else "xn--" + label.encode("punycode").decode("ascii")
        for label in labels
    )
