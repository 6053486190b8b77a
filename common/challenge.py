"""The challenge: the annotation that the signer writes to an offer, to the byte.

The node decodes it. The decoder ignores unknown members at the top, with which a later signer asks
for more evidence; it accepts one encoding of all others. It does not interpret the TPM structures
in it. Source: docs/protocol.md sections 3 and 4.
"""

import re
from dataclasses import dataclass
from typing import Final

from common.errors import ChallengeMalformed
from common.formats import strict_json
from common.names import VERSION
from common.tpm.constants import BANKS, PCR_COUNT
from common.tpm.pcrs import PcrSelection

MAX_CHALLENGE: Final = 8 * 1024
"""Characters of a challenge. All PCRs of all banks and the largest keys need less."""

MEMBERS: Final = (
    "credentialBlob",
    "encryptedSecret",
    "eventLog",
    "issuedAt",
    "key",
    "pcrSignatures",
    "pcrs",
    "version",
)
"""The members that a node of this version acts on, sorted. Only the signer interprets `tag`."""

_KNOWN: Final = frozenset({*MEMBERS, "tag"})
_TAG: Final = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The challenge annotation of CSR A. Only the signer interprets `tag`."""

    issued_at: str
    key: str
    credential_blob: bytes
    encrypted_secret: bytes
    pcrs: PcrSelection
    event_log: bool
    """Whether the answer has to have the event log, and `pcr_signatures` those of PCR values."""
    pcr_signatures: bool
    tag: str


def encode_challenge(challenge: Challenge) -> str:
    """Return the text of the challenge annotation."""
    return strict_json.dump(
        {
            "version": VERSION,
            "issuedAt": challenge.issued_at,
            "key": challenge.key,
            "credentialBlob": strict_json.base64_text(challenge.credential_blob),
            "encryptedSecret": strict_json.base64_text(challenge.encrypted_secret),
            "pcrs": {bank: list(indices) for bank, indices in challenge.pcrs.items()},
            "eventLog": challenge.event_log,
            "pcrSignatures": challenge.pcr_signatures,
            "tag": challenge.tag,
        }
    )


def decode_challenge(text: str) -> Challenge:
    """Parse a challenge annotation, without its unknown members.

    Raises `ChallengeMalformed`.
    """
    if len(text) > MAX_CHALLENGE:
        raise ChallengeMalformed("challenge exceeds its size limit")
    try:
        return _decode_challenge(strict_json.load(text.encode("utf-8", errors="surrogatepass")))
    except strict_json.JsonMalformed as error:
        raise ChallengeMalformed(f"challenge: {error}") from None


def take_banks(value: object) -> dict[str, object]:
    """Return an object whose members are PCR banks, at least one. Raises `JsonMalformed`."""
    banks = strict_json.take_object(value)
    if not banks or not banks.keys() <= BANKS.keys():
        raise strict_json.JsonMalformed("pcrs must have at least one bank, and known banks only")
    return banks


def _decode_challenge(document: dict[str, object]) -> Challenge:
    members = strict_json.take_object(document)
    if members.get("version") != VERSION:
        raise strict_json.JsonMalformed(f"the version must be {VERSION}")
    known = {name: value for name, value in members.items() if name in _KNOWN}
    issued_at, key, blob, secret, pcrs, event_log, signatures, tag, _ = strict_json.take_members(
        known,
        "issuedAt",
        "key",
        "credentialBlob",
        "encryptedSecret",
        "pcrs",
        "eventLog",
        "pcrSignatures",
        "tag",
        "version",
    )
    return Challenge(
        issued_at=strict_json.time_text(issued_at),
        key=strict_json.take_str(key, strict_json.KEY_ID),
        credential_blob=strict_json.take_base64(blob),
        encrypted_secret=strict_json.take_base64(secret),
        pcrs={bank: _pcr_indices(indices) for bank, indices in take_banks(pcrs).items()},
        event_log=strict_json.take_bool(event_log),
        pcr_signatures=strict_json.take_bool(signatures),
        tag=strict_json.take_str(tag, _TAG),
    )


def _pcr_indices(value: object) -> tuple[int, ...]:
    indices = [index for index in strict_json.take_array(value) if type(index) is int]
    if (
        not indices
        or indices != sorted(set(indices))
        or len(indices) != len(strict_json.take_array(value))
    ):
        raise strict_json.JsonMalformed(
            "PCR indices must be ascending integers without repetition, at least one"
        )
    if indices[-1] >= PCR_COUNT:
        raise strict_json.JsonMalformed("a PCR index must be at most 23")
    return tuple(indices)
