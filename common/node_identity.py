"""Grammars of what identifies a node: its name, its Machine's provider ID, and its group.

Imports nothing slow: the node reads its settings with these before each call of the kubelet.
"""

import re
from typing import Final

from common.errors import NodeNameInvalid, ProviderIDMalformed

_DNS_NAME: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)
_MAX_DNS_NAME: Final = 253
_LOCAL_HOST: Final = re.compile(r"(?:.+\.)?localhost[46]?(?:\..+)?")
"""What every host calls itself (RFC 6761 section 6.3), and what a host without a name is called,
such as `localhost.localdomain` and `localhost6`."""
_PROVIDER_ID_TEXT: Final = re.compile(r"[!-~]{1,512}")
KEY_DIGITS: Final = 32
"""Hex digits of a key's digest in a group. X.520 limits an organization to 64 characters."""
MAX_TERM: Final = 999_999_999
_GROUP: Final = re.compile(f"attested:[0-9a-f]{{{KEY_DIGITS}}}\\.[1-9][0-9]{{0,8}}")


def require_node_name(name: str) -> str:
    """Return the name if it is a DNS name of one machine (P4). Raises `NodeNameInvalid`."""
    if _LOCAL_HOST.fullmatch(require_dns_name(name)):
        raise NodeNameInvalid("node name is localhost, which every machine has")
    return name


def require_dns_name(name: str) -> str:
    """Return the name if it is a lower-case DNS-1123 subdomain, as Kubernetes defines it.

    Raises `NodeNameInvalid`.
    """
    if len(name) > _MAX_DNS_NAME or _DNS_NAME.fullmatch(name) is None:
        raise NodeNameInvalid("node name is not a lower-case DNS-1123 subdomain")
    return name


def require_provider_id(text: str) -> str:
    """Return the provider ID if it is 1 to 512 printable ASCII characters without spaces (P5).

    `Machine.spec.providerID` holds 1 to 512 characters. Raises `ProviderIDMalformed`.
    """
    if _PROVIDER_ID_TEXT.fullmatch(text) is None:
        raise ProviderIDMalformed("provider ID is not 1 to 512 printable ASCII characters")
    return text


def attested_group(key_name: str, term: int) -> str:
    """Return the group of a node: the key that it was attested with, and the term from 1.

    It is an organization of the client certificate (docs/protocol.md section 6).
    """
    return f"attested:{key_name[:KEY_DIGITS]}.{term}"


def is_attested_group(text: str) -> bool:
    """Return whether a text has the form of `attested_group`."""
    return _GROUP.fullmatch(text) is not None


def is_group_of_key(text: str, key_name: str) -> bool:
    """Return whether a text is the `attested_group` of a key in any term."""
    return is_attested_group(text) and text.startswith(attested_group(key_name, 1)[:-1])
