"""What a write in the name of a node must have, where certificates of this name have ended.

An entry names the group of a key and its term, or that no certificate of the name may write. The
entries are in the workload cluster and the claims in the management cluster, and each can be
restored from a backup alone. So an entry knows its key and the time of the change that it follows:
docs/decisions/0074-what-is-ended-is-listed.md has the rules, tests/model/test_ended.py random
histories.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from common.node_identity import KEY_DIGITS, MAX_TERM, attested_group
from signer.errors import BanNotRecorded, NodeNameHolderNotRecorded
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.endorsement_key import EndorsementKeyObject, LiftedBan

_TEXT: Final = re.compile(
    f"(attested|none):([0-9a-f]{{{KEY_DIGITS}}})\\.([1-9][0-9]{{0,8}})"
    r" ([0-9]{1,11}) ([0-9]{1,11})"
)
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_LAST: Final = datetime(2999, 12, 31, tzinfo=UTC)
"""The latest time that the CRDs allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedEntry:
    """Writes in the name of a node need the group of this key and term; after a ban, none has."""

    key: str
    """The first digits of its digest, as in the group."""
    term: int
    """After a ban, the last term that has ended."""
    is_ban: bool
    since: datetime
    """When the key was banned, or got the name."""
    until: datetime
    """When the last certificate that may not write has expired."""

    def encode(self) -> str:
        """Return the text in the policy. The policy compares its first word with whole groups."""
        group = attested_group(self.key, self.term)
        # No group has this first word: the API server gets groups with `attested:` only.
        word = group.replace("attested", "none", 1) if self.is_ban else group
        return f"{word} {int(self.since.timestamp())} {int(self.until.timestamp())}"


def decode_entry(text: str) -> EndedEntry | None:
    """Return an entry of the policy, `None` for a text that no signer wrote."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    since, until = (datetime.fromtimestamp(int(match[group]), UTC) for group in (4, 5))
    return EndedEntry(
        key=match[2], term=int(match[3]), is_ban=match[1] == "none", since=since, until=until
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NameClaims:
    """What the management cluster says about one node name."""

    node: AttestedNodeObject | None
    key: EndorsementKeyObject | None
    """The key that the AttestedNode names."""
    banned: Sequence[EndorsementKeyObject] = ()
    """Other banned keys whose last claim, or whose ban, names the node."""


def wanted_entry(claims: NameClaims, lifetime: timedelta, now: datetime) -> EndedEntry | None:
    """Return what the claims say that a write in the name must have, `None` for nothing.

    `lifetime` is that of the longest certificate that the policy allows.
    """
    node, key = claims.node, claims.key
    bans = [_ban(each, node, each.banned_since, lifetime) for each in claims.banned]
    if node is None:
        return max(bans, key=lambda each: each.since, default=None)
    if key is not None and key.banned:
        return _ban(key, node, key.banned_since, lifetime)
    if key is not None and key.is_released_from(node.cluster, node.provider_id):
        # The release has no time. Since then the node has attested no more.
        return _ban(key, node, node.last_attested, lifetime)
    if not node.term:
        # The signer has issued no client certificate for this key, so none has its group.
        return None
    term, since, until = node.term, node.since or _EPOCH, node.others_end_at or _EPOCH
    if key is not None and key.ban_lifted is not None and key.term > node.term:
        term, since = key.term, key.ban_lifted.at
        until = max(until, _after(since, lifetime), node.not_after)
    for ban in bans:
        since, until = max(since, ban.since), max(until, ban.until)
    if until <= now:
        return None
    name = node.endorsement_key[:KEY_DIGITS]
    return EndedEntry(key=name, term=term, is_ban=False, since=since, until=_whole(until))


def next_entry(
    entry: EndedEntry | None,
    claims: NameClaims,
    lifted: LiftedBan | None,
    *,
    lifetime: timedelta,
    now: datetime,
) -> EndedEntry | None:
    """Return the entry that follows this one; `lifted` is the last lifted ban of its key.

    A ban that stands and is of the entry's key counts at any time, and otherwise the later change.
    A ban that is merely absent removes nothing: the claims may have been restored.
    """
    wanted = wanted_entry(claims, lifetime, now)
    if entry is None:
        return wanted
    lifted = lifted if lifted is not None and entry.is_ban and lifted.at > entry.since else None
    if wanted is None:
        if entry.until <= now or lifted is None:
            return None if entry.until <= now else entry
        return _after_lift(entry, claims.node, lifted)
    if wanted.key == entry.key:
        return _of_same_key(entry, wanted, lifted)
    return wanted if lifted is not None or wanted.since > entry.since else entry


def _after_lift(
    entry: EndedEntry, node: AttestedNodeObject | None, lifted: LiftedBan
) -> EndedEntry | None:
    """Return what follows a ban whose lift no claim shows; what it ended stays ended."""
    key, term = entry.key, _next(entry.term)
    if node is not None and node.endorsement_key[:KEY_DIGITS] != key:
        key, term = node.endorsement_key[:KEY_DIGITS], node.term
    # Without a client certificate of the signer, the node could get no group.
    if lifted.certificates_too or (node is not None and not node.term):
        return None
    return replace(entry, key=key, term=term, is_ban=False, since=lifted.at)


def _of_same_key(entry: EndedEntry, wanted: EndedEntry, lifted: LiftedBan | None) -> EndedEntry:
    is_over = entry.is_ban and not wanted.is_ban
    if is_over and lifted is None and wanted.since <= entry.since:
        return entry
    adds = is_over and not _leaves_term(lifted)
    return replace(
        wanted,
        term=max(wanted.term, _next(entry.term) if adds else entry.term),
        since=max(wanted.since, entry.since),
        until=max(wanted.until, entry.until),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NameTerm:
    """What a claim must say about its name before the next client certificate is released."""

    term: int
    since: datetime
    others_end_at: datetime | None


def next_term(  # noqa: PLR0913 - what the management cluster and the list say of one name
    key_name: str,
    key: EndorsementKeyObject | None,
    node: AttestedNodeObject | None,
    entry: EndedEntry | None,
    *,
    lifetime: timedelta,
    now: datetime,
) -> NameTerm:
    """Return the term of the next client certificate, and when those end that it replaces.

    `key` may have the certificate, as E3 has verified, and `node` is the claim that K2 replaces.

    Raises:
        BanNotRecorded: the entry is a ban of this key that the management cluster does not know.
        NodeNameHolderNotRecorded: the entry is of a key that is not that of the claim.

    """
    entry = entry if entry is not None and entry.until > now else None
    now = now.replace(microsecond=0)
    lifted = None if key is None else key.ban_lifted
    own = node if node is not None and node.endorsement_key == key_name else None
    was_released = (
        own is not None and key is not None and key.is_released_from(own.cluster, own.provider_id)
    )
    if entry is not None:
        _require_explained(entry, key_name, node, lifted, was_released=was_released)
    former = 0 if own is None else own.term
    term = max(1, 1 if key is None else key.term, _next(former) if was_released else former)
    listed = entry if entry is not None and entry.key == key_name[:KEY_DIGITS] else None
    if listed is not None:
        adds = listed.is_ban and not _leaves_term(lifted)
        term = max(term, _next(listed.term) if adds else listed.term)
    since = _latest(own and own.since, listed and listed.since)
    until = _latest(node and node.others_end_at, entry and entry.until)
    is_same = node is None if own is None else own.term in {0, term}
    if is_same and (entry is None or (listed is not None and not listed.is_ban)):
        ends = until if until is not None and until > now else None
        return NameTerm(term=term, since=since or now, others_end_at=ends)
    until = _latest(_after(now, lifetime), until, node and node.not_after)
    return NameTerm(term=term, since=now, others_end_at=until and _whole(until))


def _require_explained(
    entry: EndedEntry,
    key_name: str,
    node: AttestedNodeObject | None,
    lifted: LiftedBan | None,
    *,
    was_released: bool,
) -> None:
    """Raise if only a management cluster that went back explains the entry."""
    is_own = entry.key == key_name[:KEY_DIGITS]
    is_lifted = lifted is not None and lifted.at > entry.since
    if entry.is_ban and is_own and not is_lifted and not was_released:
        raise BanNotRecorded(
            "the workload cluster lists a ban of the key that the management cluster does not have:"
            " ban the key again, or lift the ban"
        )
    is_claimed = node is not None and node.endorsement_key[:KEY_DIGITS] == entry.key
    if not entry.is_ban and not is_own and not is_claimed:
        raise NodeNameHolderNotRecorded(
            "the workload cluster lists another key as the holder of the node name, and the"
            " management cluster has no such claim: ban that key, or wait until it has attested"
        )


def _ban(
    key: EndorsementKeyObject,
    node: AttestedNodeObject | None,
    since: datetime | None,
    lifetime: timedelta,
) -> EndedEntry:
    """Return that no certificate of a key may write.

    A ban without a time is as old as the last claim, which no certificate of it is later than.
    """
    lifted = _EPOCH if key.ban_lifted is None else key.ban_lifted.at
    since = max(since or key.last_claimed or _EPOCH, lifted)
    since = min(since, _LAST).replace(microsecond=0)
    claimed = node is not None and node.endorsement_key == key.name
    ends = node.not_after if node is not None and claimed else _EPOCH
    return EndedEntry(
        key=key.name[:KEY_DIGITS],
        term=max(1, key.term, node.term if node is not None and claimed else 0),
        is_ban=True,
        since=since,
        until=_whole(max(_after(since, lifetime), ends)),
    )


def _latest(*times: object) -> datetime | None:
    """Return the latest of those that are times."""
    return max((time for time in times if isinstance(time, datetime)), default=None)


def _leaves_term(lifted: LiftedBan | None) -> bool:
    return lifted is not None and lifted.certificates_too


def _next(term: int) -> int:
    return min(term + 1, MAX_TERM)


def _after(time: datetime, lifetime: timedelta) -> datetime:
    try:
        return min(time + lifetime, _LAST)
    except OverflowError:
        return _LAST


def _whole(time: datetime) -> datetime:
    """Return the next whole second, the precision of the list and of the claims."""
    return time if not time.microsecond else time.replace(microsecond=0) + timedelta(seconds=1)
