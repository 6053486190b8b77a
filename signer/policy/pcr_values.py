"""Reads lists of PCR numbers and digests of a policy, and until when digests count."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from common.formats.strict_json import JsonMalformed, parse_time
from common.tpm.constants import BANKS as BANK_ALGORITHMS
from common.tpm.constants import DIGEST_SIZES, PCR_COUNT
from signer.policy.policy import BANKS
from signer.policy.section import Section

_SIZES: Final = frozenset(DIGEST_SIZES[BANK_ALGORITHMS[bank]] for bank in BANKS)


def read_indices(section: Section, bank: str) -> tuple[int, ...]:
    """Load a non-empty list of different PCRs."""
    indices = section.value(bank)
    if not isinstance(indices, list) or not indices:
        section.add_problem("must be a non-empty list", bank)
    elif not all(type(i) is int and 0 <= i < PCR_COUNT for i in indices):
        section.add_problem(f"must hold PCR numbers from 0 to {PCR_COUNT - 1}", bank)
    elif len(set(indices)) != len(indices):
        section.add_problem("must not repeat a PCR", bank)
    else:
        return tuple(sorted(indices))
    return ()


def read_digests(section: Section, key: str, sizes: frozenset[int]) -> frozenset[bytes]:
    """Load a non-empty list of digests in hex, each with one of these numbers of bytes."""
    digests: set[bytes] = set()
    for entry, text in section.entries(key):
        digest = _digest(text)
        if len(digest) in sizes:
            digests.add(digest)
        else:
            section.add_problem("must be a digest in hex, of the size of the bank", entry)
    return frozenset(digests)


def read_ends(pcrs: Section, key: str) -> Mapping[bytes, datetime]:
    """Load a list of different digests, each with the time from which it counts no more."""
    ends: dict[bytes, datetime] = {}
    texts = set()
    for section in pcrs.items(key):
        text = section.text("value")
        digest = _digest(text)
        if len(digest) not in _SIZES:
            section.add_problem("must be a digest in hex", "value")
        elif text in texts:
            section.add_problem("must not be repeated", "value")
        texts.add(text)
        try:
            end = parse_time(section.value("time"))
        except JsonMalformed:
            section.add_problem("must be a time like 2026-12-31T00:00:00Z", "time")
        else:
            ends[digest] = min(end, ends.get(digest, end))
    return ends


def _digest(text: str) -> bytes:
    """Return a digest in hex without other characters; nothing for other texts."""
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        return b""
    return digest if digest.hex() == text.lower() else b""
