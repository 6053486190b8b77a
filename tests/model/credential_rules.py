"""The rules of a node's record of certificates, and what breaks each in the signer."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final

from signer.controller.reconcile import answers
from signer.errors import RequesterCredentialUnknown
from signer.verify.machines import claim_writes
from signer.verify.requests.credentials import credential_ids_after_issue, verify_known_credential


class Rule(StrEnum):
    """The rules. An exploration runs with some of them broken, by default none."""

    RECORD_FIRST = "a certificate is recorded before it is released"
    RESOURCE_VERSIONS = "the record is written under the resourceVersion that was read"
    PRESENTED_STAYS = "the certificate that filed the request stays recorded"
    LATER_STAY = "certificates that were recorded after it stay"
    MORE_THAN_TWO = "the record is not limited to two certificates"
    EARLIER_END = "certificates that were recorded before it end"
    EMPTY_PASSES = "without a recorded certificate, K4 refuses none"
    CLAIM_READ_LAST = "the claim is read in the call before the release"


Recorded = tuple[str, ...]
Replacement = tuple[object, str, object]


def _recording(
    change: Callable[[Recorded, Recorded, str, str], Recorded],
) -> Sequence[Replacement]:
    """Let K2 record what `change` makes of old record, new record and both certificates."""

    def after_issue(
        node: Any,  # noqa: ANN401 - passed on
        key: str,
        *,
        presented: str,
        issued: str,
    ) -> Recorded:
        new = credential_ids_after_issue(node, key, presented=presented, issued=issued)
        return change(node.credential_ids, new, presented, issued)

    return ((claim_writes, "credential_ids_after_issue", after_issue),)


def _without_later(old: Recorded, new: Recorded, presented: str, issued: str) -> Recorded:
    return (presented, issued) if presented in old else new


def _known(presented: str, node: Any) -> None:  # noqa: ANN401 - passed on
    if presented and not node.credential_ids:
        raise RequesterCredentialUnknown("nothing is recorded")
    verify_known_credential(presented, node)


REPLACED: Final[dict[Rule, Sequence[Replacement]]] = {
    Rule.PRESENTED_STAYS: _recording(lambda _, new, used, __: tuple(i for i in new if i != used)),
    Rule.LATER_STAY: _recording(_without_later),
    Rule.MORE_THAN_TWO: _recording(lambda _, new, __, ___: new[-2:]),
    Rule.EARLIER_END: _recording(lambda old, _, __, issued: (*old, issued)),
    Rule.EMPTY_PASSES: ((claim_writes, "verify_known_credential", _known),),
    Rule.CLAIM_READ_LAST: ((answers, "verify_unchanged_claim", lambda *_: None),),
}
"""What replaces the signer's functions. The model itself breaks the other rules."""
