"""X.500 names as text, for operators."""

from typing import Final

from signer.verify.x509.lenient_der import Element, children, oid, single_element

_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
}
"""Attribute types of RFC 4514, section 3. Others are shown as OID."""


def describe_name(name: bytes) -> str:
    """Return a name in a readable form; empty if it cannot be parsed."""
    try:
        relative_names = [children(part) for part in children(single_element(name))]
        parts = [children(attribute) for relative in relative_names for attribute in relative]
        return ", ".join(_attribute(kind, value) for kind, value, *_ in parts)
    except ValueError:
        return ""


def _attribute(kind: Element, value: Element) -> str:
    _, content, _ = value
    return f"{_NAMES.get(oid(kind), oid(kind))}={content.decode('utf-8', errors='replace')}"
