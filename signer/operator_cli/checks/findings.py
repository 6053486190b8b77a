"""The results of `doctor`."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum

from signer.operator_cli.errors import EXIT_NEGATIVE, EXIT_OK, EXIT_UNDECIDED


class Result(Enum):
    """The result of one check."""

    OK = "ok"
    WARNING = "warning"
    """It may be intended: an operator decides."""
    PROBLEM = "problem"
    UNKNOWN = "unknown"
    """The check could not be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check of one object; `next_step` is empty if all is well."""

    result: Result
    check: str
    object: str
    message: str = ""
    next_step: str = ""

    def document(self) -> dict[str, str]:
        """Return the finding for the output."""
        fields = asdict(self)
        return {**fields, "result": self.result.value, "nextStep": fields.pop("next_step")}


def permissions_finding(
    check: str, name: str, missing: Sequence[str], *, next_step: str
) -> Finding:
    """Return the result of a check of permissions, each of which reads `verb resource`."""
    if not missing:
        return Finding(result=Result.OK, check=check, object=name)
    return Finding(
        result=Result.PROBLEM,
        check=check,
        object=name,
        message=f"missing: {', '.join(missing)}",
        next_step=next_step,
    )


def exit_status(findings: Iterable[Finding]) -> int:
    """Return the exit status: a problem outranks what could not be checked."""
    results = {finding.result for finding in findings}
    if Result.PROBLEM in results:
        return EXIT_NEGATIVE
    return EXIT_UNDECIDED if Result.UNKNOWN in results else EXIT_OK
