"""The tree of the errors of an exchange.

A family (`Denied`, `Waiting`, `Ignored`, `Unavailable`, `StartOver`, `Fatal`) fixes what happens
next. A leaf is one way to fail: its class name is the `reason`, which goes unchanged into the CSR
condition, the Event, the audit record, the metric label and the node's report, so renaming a leaf
breaks its users. `check` is the number of the check in docs/protocol.md section 5.

Messages are shown to the node and to every reader of CSRs: they contain no secret, no expected
value and no names of another cluster. `detail` goes only to the operator's log.

An exception outside this tree is a bug: it is logged with its traceback and retried. It is never a
verdict.
"""

from enum import Enum
from typing import ClassVar


class Consequence(Enum):
    """What happens next, fixed by the family of the error."""

    DENY = "deny"
    WAIT = "wait"
    IGNORE = "ignore"
    RETRY = "retry"
    START_OVER = "start over"
    FATAL = "fatal"


class AttestationError(Exception):
    """Root of the tree; only leaves are raised."""

    consequence: ClassVar[Consequence]
    reason: ClassVar[str]
    check: ClassVar[str] = ""
    alarm: ClassVar[bool] = False
    """An operator should act, even if the node only waits."""
    of_answers: ClassVar[bool] = False
    """Only answers can get this reason. `explain` needs the challenge keys for them."""
    by_reason: ClassVar[dict[str, type["AttestationError"]]] = {}
    """The classes by their reasons, as far as their modules are imported."""

    def __init_subclass__(cls, *, check: str = "", alarm: bool = False, **kwargs: object) -> None:
        """Set the reason to the name of the class; set check number and alarm if given."""
        super().__init_subclass__(**kwargs)
        cls.reason = cls.__name__
        cls.check = check or cls.check
        cls.alarm = alarm or cls.alarm
        cls.of_answers = cls.check[:1] in {"C", "Q"}
        cls.by_reason[cls.reason] = cls

    def __init__(self, message: str, *, detail: str = "") -> None:
        """Set the public `message` and the `detail` that only an operator may see."""
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.further: tuple[AttestationError, ...] = ()
        """What later checks refused, for operators alone; it decides nothing."""


class Denied(AttestationError):
    """This CSR can never be accepted: it is denied. Other CSRs are not affected."""

    consequence = Consequence.DENY


class Waiting(AttestationError):
    """The CSR may be accepted later: it stays pending, and is verified again."""

    consequence = Consequence.WAIT


class Ignored(AttestationError):
    """The CSR is not for this signer: nothing is written."""

    consequence = Consequence.IGNORE


class Unavailable(AttestationError):
    """Cannot be decided now (a server, the TPM, a conflict): retried with backoff."""

    consequence = Consequence.RETRY


class StartOver(AttestationError):
    """This exchange has ended for the node; the next one starts after the backoff."""

    consequence = Consequence.START_OVER


class Fatal(AttestationError):
    """An operator has to correct the configuration, permissions or hardware first."""

    consequence = Consequence.FATAL


# P: parsing


class TooLarge(Denied, check="P1"):
    """The request, or the data in it, is over a size limit."""


class PemNotCanonical(Denied, check="P2"):
    """The text is not the canonical encoding of its PEM blocks."""


class PemBlocksUnexpected(Denied, check="P2"):
    """Not exactly the PEM blocks that are expected, in their order."""


class ProviderUnknown(Denied, check="P2"):
    """The attestation provider is not `tpm`."""


class RequestMalformed(Denied, check="P3"):
    """The PKCS#10 request is not strict DER of the profile."""


class RequestSignatureInvalid(Denied, check="P3"):
    """The PKCS#10 request is not signed by its own key."""


class RequestKeyNotAllowed(Denied, check="P3"):
    """The kubelet's key has a type, size or exponent that is not accepted."""


class SubjectNotAllowed(Denied, check="P4"):
    """The subject is not exactly O=system:nodes and CN=system:node:<name>."""


class NodeNameInvalid(Denied, check="P4"):
    """The node name is not a lower-case DNS-1123 subdomain."""


class AttributeNotAllowed(Denied, check="P5"):
    """The request has an attribute other than one extensionRequest."""


class ExtensionNotAllowed(Denied, check="P5"):
    """The request has an extension that is not accepted, or an extension twice."""


class ProviderIDMalformed(Denied, check="P5"):
    """The provider ID extension is critical, not a DER UTF8String, or not a provider ID."""


class AttestationDataMalformed(Denied, check="P6"):
    """The attestation data is not strict JSON of its kind."""


class UnsupportedVersion(Denied, check="P6"):
    """The attestation data has a version that this program does not support."""


# Temporary failures: they are retried


class ApiServerUnavailable(Unavailable):
    """The API server cannot be reached, or answers with a server error."""

    status: int = 0
    """The HTTP status of an answer that was not expected; 0 without an answer."""


# Raised on the node: its exchange


class ChallengeMalformed(StartOver):
    """The challenge cannot be read."""
