"""The rules of the credential list, and what breaks each in the signer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, cast
from unittest.mock import patch

from signer.claims.credential_entry import CredentialEntry, is_older, next_entry
from signer.controller.maintenance import credential_list_sync
from signer.controller.maintenance.credential_list_sync import sync_credential_list
from signer.controller.reconcile import answers
from signer.inventory import credential_list
from signer.inventory.credential_list import ClaimReader, CredentialListClient
from signer.model import AttestedNodeObject, EndorsementKeyObject
from signer.verify.machines import claim_writes
from signer.verify.requests.credentials import credential_ids_after_issue, verify_known_credential
from tests.model import listing_tasks
from tests.model.replay import Replay

_publish = answers._publish
_release = answers._release


class Rule(StrEnum):
    """The rules. An exploration runs with some of them broken, by default none."""

    LISTED_FIRST = "the list has a certificate before its release"
    READ_AGAIN = "the claims are read after each write of the list"
    LIVE_READS = "maintenance changes an entry to what the API server has, not a cache"
    LATER_TIME = "a claim with other certificates has a later time"
    OLDER_CLAIM = "a claim that is older than the entry does not change it"
    OLDER_BAN = "a ban ends all certificates, also under an older claim"
    BAN_OVER = "the end of a ban brings the certificates back"
    ENTRY_KNOWN = "K4 compares with the entry while the claim is older"
    ENTRY_STAYS = "K2 records what filed the request while the claim is older"


Recorded = tuple[str, ...]
Entry = CredentialEntry | None
Node = AttestedNodeObject | None
ReadKey = Callable[[str], EndorsementKeyObject | None]


def _release_first(current: Any, claimed: Any) -> None:  # noqa: ANN401 - passed on
    _release(current, claimed)
    _publish(current, current.listed, claimed)


def _note_list(current: Any, listed: Any, _: object) -> None:  # noqa: ANN401 - passed on
    current.listed = listed


def _write_once(lists: CredentialListClient, entries: Mapping[str, Entry], _: object) -> None:
    lists.publish(entries)


def _maintain_from_caches(api: Replay) -> object:
    reader = ClaimReader(node=api.cached_node, key=api.cached_key)
    lists = cast("CredentialListClient", api)
    return sync_credential_list(lists, lambda: [listing_tasks.NODE], cached=reader, live=reader)


def _follow_any_claim(entry: Entry, node: Node, key: ReadKey) -> Entry:
    following = next_entry(entry, node, key)
    return following if following is None or not following.ids else next_entry(None, node, key)


def _follow_newer_claims_only(entry: Entry, node: Node, key: ReadKey) -> Entry:
    return entry if is_older(node, entry) else next_entry(entry, node, key)


def _never_restore(entry: Entry, node: Node, key: ReadKey) -> Entry:
    return entry if entry is not None and not entry.ids else next_entry(entry, node, key)


def _known(presented: str, node: Node, _: Entry = None) -> None:
    verify_known_credential(presented, node)


def _recorded(node: Node, key: str, *, presented: str, issued: str, entry: Entry) -> Recorded:
    del entry
    return credential_ids_after_issue(node, key, presented=presented, issued=issued)


_REPLACED: Final[dict[Rule, Sequence[tuple[object, str, object]]]] = {
    Rule.LISTED_FIRST: ((answers, "_publish", _note_list), (answers, "_release", _release_first)),
    Rule.READ_AGAIN: (
        (answers, "publish_entries", _write_once),
        (credential_list_sync, "publish_entries", _write_once),
    ),
    Rule.LIVE_READS: ((listing_tasks, "_maintain", _maintain_from_caches),),
    Rule.LATER_TIME: ((claim_writes, "_SECOND", timedelta(0)),),
    Rule.OLDER_CLAIM: ((credential_list, "next_entry", _follow_any_claim),),
    Rule.OLDER_BAN: ((credential_list, "next_entry", _follow_newer_claims_only),),
    Rule.BAN_OVER: ((credential_list, "next_entry", _never_restore),),
    Rule.ENTRY_KNOWN: ((claim_writes, "verify_known_credential", _known),),
    Rule.ENTRY_STAYS: ((claim_writes, "credential_ids_after_issue", _recorded),),
}


@contextmanager
def running(broken: frozenset[Rule]) -> Iterator[None]:
    """Replace the functions of the signer that follow these rules."""
    with listing_tasks.checked(), ExitStack() as stack:
        for rule in broken:
            for target, name, value in _REPLACED[rule]:
                stack.enter_context(patch.object(target, name, value))
        yield
