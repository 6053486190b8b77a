"""Judgements in words and in JSON, and the exit status that tells their verdicts."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from common.errors import AttestationError
from signer.explain.descriptions import describe_result
from signer.explain.replay import CheckResult, Explanation, Outcome, Verdict
from signer.verify.checks import CHECKS
from signer.verify.parse import ParsedAnswer, ParsedOffer

YES, NO, NOT_NOW = 0, 1, 3
"""Exit statuses: certified, challenged or approved; denied; waiting, undecided or left alone."""

_STATUS: Final[Mapping[Verdict, int]] = {
    Verdict.CHALLENGED: YES,
    Verdict.CERTIFIED: YES,
    Verdict.APPROVED: YES,
    Verdict.DENIED: NO,
    Verdict.WAITING: NOT_NOW,
    Verdict.UNDECIDED: NOT_NOW,
    Verdict.IGNORED: NOT_NOW,
}
_SETTLED: Final = ("Denied", "Failed")


def status_of(judgements: Sequence[Explanation]) -> int:
    """Return the exit status: of several requests, the worst one's.

    Requests that the signer leaves alone count only where there are no others: a List of all CSRs
    holds those of other signers.
    """
    ours = [j.verdict for j in judgements if j.verdict is not Verdict.IGNORED]
    statuses = {_STATUS[verdict] for verdict in ours} or {NOT_NOW}
    return next(status for status in (NO, NOT_NOW, YES) if status in statuses)


def as_text(judgements: Sequence[Explanation], found: Mapping[str, int]) -> str:
    """Write the judgements for people: a line for each check."""
    counted = ", ".join(f"{count or 'no'} {kind}" for kind, count in found.items())
    return "".join((f"records: {counted}\n", *map(_text, judgements)))


def _text(judgement: Explanation) -> str:
    lines = [f"\n{judgement.csr.name}: {_subject(judgement)}\n"]
    lines += [f"  decided already: {decided}\n" for decided in _decided(judgement)]
    lines += map(_line, judgement.steps)
    lines.append(f"  {judgement.verdict.value}{_reason(judgement)}\n")
    return "".join(lines)


def _subject(judgement: Explanation) -> str:
    parsed = judgement.parsed
    if parsed is None:
        return judgement.csr.signer_name
    return f"{_kind(judgement)} of {parsed.request.node_name} to {judgement.csr.signer_name}"


def _kind(judgement: Explanation) -> str:
    match judgement.parsed:
        case ParsedOffer():
            return "offer"
        case ParsedAnswer():
            return "answer"
        case _:
            return "request"


def _decided(judgement: Explanation) -> Iterable[str]:
    csr = judgement.csr
    if csr.certificate is not None:
        yield "it has a certificate"
    for kind in _SETTLED:
        if kind in csr.conditions:
            condition = csr.conditions[kind]
            yield f"{kind}, {condition.reason}: {condition.message}"


def _line(step: CheckResult) -> str:
    error = step.error
    said = describe_result(step) if error is None else f"{error.reason}: {error.message}"
    line = f"  {step.check:3} {step.outcome.value:13} {CHECKS[step.check].title}"
    if said:
        line += f": {said}"
    if error is not None and error.detail:
        line += f"\n{'':19}for the operator: {error.detail}"
    return line.rstrip() + "\n"


def _reason(judgement: Explanation) -> str:
    error = judgement.error
    if judgement.verdict is Verdict.UNDECIDED and error is None:
        return ": it takes the master key (--master)"
    return "" if error is None else f": {error.reason}"


def as_json(judgements: Sequence[Explanation], found: Mapping[str, int]) -> str:
    """Write the judgements for programs."""
    document = {
        "records": dict(found),
        "requests": [_document(judgement) for judgement in judgements],
        "status": status_of(judgements),
    }
    return json.dumps(document, indent=2) + "\n"


def _document(judgement: Explanation) -> dict[str, Any]:
    error = judgement.error
    document: dict[str, Any] = {
        "name": judgement.csr.name,
        "signerName": judgement.csr.signer_name,
        "decided": list(_decided(judgement)),
        "checks": [_check(step) for step in judgement.steps],
        "verdict": judgement.verdict.value,
    }
    if judgement.parsed is not None:
        document["kind"] = _kind(judgement)
        document["nodeName"] = judgement.parsed.request.node_name
    return document if error is None else document | _told(error)


def _check(step: CheckResult) -> dict[str, Any]:
    document = {
        "check": step.check,
        "about": CHECKS[step.check].title,
        "outcome": step.outcome.value,
    }
    if step.outcome is Outcome.PASSED:
        document["proved"] = describe_result(step)
    return document if step.error is None else document | _told(step.error)


def _told(error: AttestationError) -> dict[str, str]:
    return {"reason": error.reason, "message": error.message, "detail": error.detail}
