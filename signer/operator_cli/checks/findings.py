"""The results of `doctor`."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum

from signer.operator_cli.errors import EXIT_NEGATIVE, EXIT_OK, EXIT_UNDECIDED


class FindingResult(Enum):
    """The result of one check."""

    OK = "ok"
    WARNING = "warning"
    """It may be intended: an operator decides."""
    PROBLEM = "problem"
    UNKNOWN = "unknown"
    """The check could not be made."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of one object; `next_step` is empty if all is well."""

    result: FindingResult
    check: str
    object: str
    message: str = ""
    next_step: str = ""

    def document(self) -> dict[str, str]:
        """Return the finding for the output."""
        fields = asdict(self)
        step = fields.pop("next_step")
        return {**fields, "result": self.result.value, "nextStep": step}


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One check of one object, which makes its findings."""

    title: str
    object: str

    def ok(self, message: str = "") -> Finding:
        """Say that all is well."""
        return Finding(FindingResult.OK, self.title, self.object, message)

    def warning(self, message: str, next_step: str) -> Finding:
        """Say what may be intended, or a problem."""
        return Finding(FindingResult.WARNING, self.title, self.object, message, next_step)

    def problem(self, message: str, next_step: str) -> Finding:
        """Say what is wrong."""
        return Finding(FindingResult.PROBLEM, self.title, self.object, message, next_step)

    def unknown(self, message: str, next_step: str = "") -> Finding:
        """Say why the check could not be made."""
        return Finding(FindingResult.UNKNOWN, self.title, self.object, message, next_step)

    def permissions(self, missing: Sequence[str], next_step: str) -> Finding:
        """Return the finding about permissions, each of which reads `verb resource`."""
        return self.problem(f"missing: {', '.join(missing)}", next_step) if missing else self.ok()


def exit_status(findings: Iterable[Finding]) -> int:
    """Return the exit status: a problem outranks what could not be checked."""
    results = {finding.result for finding in findings}
    if FindingResult.PROBLEM in results:
        return EXIT_NEGATIVE
    return EXIT_UNDECIDED if FindingResult.UNKNOWN in results else EXIT_OK
