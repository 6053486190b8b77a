"""The entry of one node in a credential list, and how it follows the claim of the node.

The claims and the list are in different stores, and each can be restored from a backup alone. So an
entry has an order: the time of the claim that it was made from, which each later claim exceeds. A
claim that is older than the entry shows that the management cluster went back, and changes nothing.
Source: docs/decisions/0060-the-credential-list-does-not-go-back.md.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from signer.model import AttestedNodeObject, EndorsementKeyObject, is_credential_id

_DIGITS: Final = 32
"""Hex digits of a credential ID in the list: 128 bits of the SHA-256. A collision between two
certificates of one node is of no use, and another certificate takes 2^125 hashes."""
_PREFIX: Final = len("X509SHA256=")
_TEXT: Final = re.compile(f"(0|[1-9][0-9]{{0,11}})((?: [0-9a-f]{{{_DIGITS}}}){{0,16}})")


@dataclass(frozen=True, slots=True)
class CredentialEntry:
    """The certificates that a node may write with; without IDs it may write with none."""

    order: int
    """Seconds since 1970 of the claim that the entry was made from."""
    ids: tuple[str, ...]
    """Shortened credential IDs."""

    def names(self, credential_id: str) -> bool:
        """Return whether a node may write with the certificate of this credential ID."""
        return _shortened(credential_id) in self.ids

    def encode(self) -> str:
        """Return the text in the list. The admission policy compares its words with the IDs."""
        return " ".join((str(self.order), *self.ids))


def decode_entry(text: str) -> CredentialEntry:
    """Return an entry of the list. One that no signer wrote names no certificate."""
    match = _TEXT.fullmatch(text)
    return CredentialEntry(int(match[1]), tuple(match[2].split())) if match else _ENDED


_ENDED: Final = CredentialEntry(0, ())


def entry_of(node: AttestedNodeObject) -> CredentialEntry:
    """Return the entry with the certificates of a claim."""
    ids = map(_shortened, filter(is_credential_id, node.credential_ids))
    return CredentialEntry(_order(node), tuple(ids))


def is_older(node: AttestedNodeObject | None, entry: CredentialEntry | None) -> bool:
    """Return whether a claim is missing or older than the entry: the management cluster went back.

    A cache may be older than the entry, too.
    """
    return entry is not None and (node is None or _order(node) < entry.order)


def next_entry(
    entry: CredentialEntry | None,
    node: AttestedNodeObject | None,
    key: Callable[[str], EndorsementKeyObject | None],
) -> CredentialEntry | None:
    """Return the entry that follows this one, `None` for no entry, which restricts nothing.

    A key that an operator banned, or released from this node, ends all certificates; when that is
    over, they are as before. Otherwise only a claim that is newer than the entry changes it.
    Without recorded certificates nothing can be compared.
    """
    if node is None:
        return entry
    claimed = entry_of(node)
    held = key(node.endorsement_key)
    if held is not None and (held.banned or held.is_released_from(node.cluster, node.provider_id)):
        return CredentialEntry(max(claimed.order, 0 if entry is None else entry.order), ())
    is_over = entry is not None and not entry.ids and claimed.order == entry.order
    if entry is None or is_over or claimed.order > entry.order:
        return claimed if claimed.ids else None
    return entry


def _shortened(credential_id: str) -> str:
    return credential_id[_PREFIX : _PREFIX + _DIGITS]


def _order(node: AttestedNodeObject) -> int:
    return max(0, int(node.last_attested.timestamp()))
