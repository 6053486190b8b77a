"""Writes explanations as text or JSON, and chooses the exit status."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from common.errors import AttestationError
from signer.explain.descriptions import describe_result
from signer.explain.replay import CheckResult, Explanation, Outcome, Verdict
from signer.verify.checks import CHECKS
from signer.verify.requests.parse import ParsedAnswer, ParsedOffer

EXIT_ALLOWED: Final = 0
"""Every request would be challenged, certified or approved."""
EXIT_DENIED: Final = 1
"""A request would be denied."""
EXIT_UNDECIDED: Final = 3
"""A request would wait or be ignored, or cannot be decided; 2 is for invalid arguments."""

_EXIT_STATUS: Final[Mapping[Verdict, int]] = {
    Verdict.CHALLENGED: EXIT_ALLOWED,
    Verdict.CERTIFIED: EXIT_ALLOWED,
    Verdict.APPROVED: EXIT_ALLOWED,
    Verdict.DENIED: EXIT_DENIED,
    Verdict.WAITING: EXIT_UNDECIDED,
    Verdict.UNDECIDED: EXIT_UNDECIDED,
    Verdict.IGNORED: EXIT_UNDECIDED,
}
_FINAL_CONDITIONS: Final = ("Denied", "Failed")


def exit_status(explanations: Sequence[Explanation]) -> int:
    """Return the exit status of the worst verdict.

    Ignored requests count only if there are no others: a List of all CSRs also has those of other
    signers.
    """
    verdicts = [e.verdict for e in explanations if e.verdict is not Verdict.IGNORED]
    statuses = {_EXIT_STATUS[verdict] for verdict in verdicts} or {EXIT_UNDECIDED}
    return next(s for s in (EXIT_DENIED, EXIT_UNDECIDED, EXIT_ALLOWED) if s in statuses)


def as_text(explanations: Sequence[Explanation], object_counts: Mapping[str, int]) -> str:
    """Return the report as text, with one line for each check."""
    counts = ", ".join(f"{count or 'no'} {kind}" for kind, count in object_counts.items())
    return "".join((f"objects: {counts}\n", *map(_text, explanations)))


def _text(explanation: Explanation) -> str:
    lines = [f"\n{explanation.csr.name}: {_subject(explanation)}\n"]
    lines += [f"  decided already: {decision}\n" for decision in _decisions(explanation)]
    if explanation.recorded is not None:
        lines.append(f"  recorded: {explanation.recorded.reason}: {explanation.recorded.message}\n")
    lines += map(_line, explanation.results)
    lines.append(f"  {explanation.verdict.value}{_reason(explanation)}\n")
    return "".join(lines)


def _subject(explanation: Explanation) -> str:
    parsed = explanation.parsed
    if parsed is None:
        return explanation.csr.signer_name
    return f"{_kind(explanation)} of {parsed.request.node_name} to {explanation.csr.signer_name}"


def _kind(explanation: Explanation) -> str:
    match explanation.parsed:
        case ParsedOffer():
            return "offer"
        case ParsedAnswer():
            return "answer"
        case _:
            return "request"


def _decisions(explanation: Explanation) -> Iterable[str]:
    csr = explanation.csr
    if csr.certificate is not None:
        yield "it has a certificate"
    for kind in _FINAL_CONDITIONS:
        if kind in csr.conditions:
            condition = csr.conditions[kind]
            yield f"{kind}, {condition.reason}: {condition.message}"


def _line(result: CheckResult) -> str:
    error = result.error
    text = describe_result(result) if error is None else f"{error.reason}: {error.message}"
    line = f"  {result.check:3} {result.outcome.value:13} {CHECKS[result.check]}"
    if text:
        line += f": {text}"
    if error is not None and error.detail:
        line += f"\n{'':19}for the operator: {error.detail}"
    return line.rstrip() + "\n"


def _reason(explanation: Explanation) -> str:
    error = explanation.error
    if explanation.verdict is Verdict.UNDECIDED and error is None:
        undecided = [r.check for r in explanation.results if r.outcome is Outcome.UNDECIDED]
        if undecided == ["R4"]:
            return ": the policy requires an access review, which the workload cluster decides"
        return ": the challenge keys are needed, see --help"
    return "" if error is None else f": {error.reason}"


def as_json(explanations: Sequence[Explanation], object_counts: Mapping[str, int]) -> str:
    """Return the report as JSON."""
    document = {
        "objects": dict(object_counts),
        "requests": [_document(explanation) for explanation in explanations],
        "status": exit_status(explanations),
    }
    return json.dumps(document, indent=2) + "\n"


def _document(explanation: Explanation) -> dict[str, Any]:
    error = explanation.error
    document: dict[str, Any] = {
        "name": explanation.csr.name,
        "signerName": explanation.csr.signer_name,
        "decided": list(_decisions(explanation)),
        "checks": [_check(result) for result in explanation.results],
        "verdict": explanation.verdict.value,
    }
    if explanation.recorded is not None:
        document["recorded"] = {
            "reason": explanation.recorded.reason,
            "message": explanation.recorded.message,
        }
    if explanation.parsed is not None:
        document["kind"] = _kind(explanation)
        document["nodeName"] = explanation.parsed.request.node_name
    return document if error is None else document | _error_fields(error)


def _check(result: CheckResult) -> dict[str, Any]:
    document = {
        "check": result.check,
        "about": CHECKS[result.check],
        "outcome": result.outcome.value,
    }
    if result.outcome is Outcome.PASSED:
        document["proved"] = describe_result(result)
    return document if result.error is None else document | _error_fields(result.error)


def _error_fields(error: AttestationError) -> dict[str, str]:
    return {"reason": error.reason, "message": error.message, "detail": error.detail}
