"""The signatures of PCR values by the vendor of the boot image, as systemd stores them.

The file has entries for each bank, key and phase of the boot. Only those for the PCRs that a
challenge asks for are sent: an answer has room for few.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from authenticator.errors import PcrSignaturesUnusable
from common.evidence import MAX_PCR_SIGNATURES

FILE_LIMIT: Final = 1024 * 1024
Pcrs = Mapping[str, Sequence[int]]


def load_for(path: Path, pcrs: Pcrs) -> bytes | None:
    """Return the signatures for PCRs of this selection (bank to indices); None without a file.

    The signer decides whether the policy needs them. Raises `PcrSignaturesUnusable`.
    """
    document = _load(path)
    if document is None:
        return None
    wanted = {
        bank: [entry for entry in document[bank] if {*_pcrs_of(entry)} <= {*indices}]
        for bank, indices in pcrs.items()
        if bank in document
    }
    content = json.dumps(wanted, separators=(",", ":")).encode()
    if len(content) > MAX_PCR_SIGNATURES:
        raise PcrSignaturesUnusable(
            f"{path}: the signatures for the PCRs {dict(pcrs)} have {len(content)} bytes, and an"
            f" answer has room for {MAX_PCR_SIGNATURES}: sign with fewer keys, or for fewer phases"
        )
    return content


def require_usable(path: Path) -> int | None:
    """Require that each selection in the file can be sent; return their number, None without one.

    Raises `PcrSignaturesUnusable`.
    """
    document = _load(path)
    if document is None:
        return None
    selections = {(bank, (*_pcrs_of(e),)) for bank, entries in document.items() for e in entries}
    for bank, indices in selections:
        load_for(path, {bank: indices})
    return len(selections)


def _load(path: Path) -> dict[str, list[dict[str, Any]]] | None:
    """Return the entries by their bank. Raises `PcrSignaturesUnusable`."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_LIMIT + 1)
    except OSError:
        return None
    if len(content) > FILE_LIMIT:
        raise PcrSignaturesUnusable(f"{path}: over {FILE_LIMIT} bytes")
    try:
        document = json.loads(content)
        for entries in document.values():
            for entry in entries:
                [*_pcrs_of(entry)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise PcrSignaturesUnusable(f"{path} is not a file of systemd-measure") from None
    return dict(document)


def _pcrs_of(entry: Mapping[str, Any]) -> Iterator[int]:
    return map(int, entry["pcrs"])
