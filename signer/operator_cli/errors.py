"""Why a command ends without success, and with which exit status."""

from typing import ClassVar, Final

EXIT_OK: Final = 0
"""The command did what it was asked, or everything that it checked is as it must be."""
EXIT_NEGATIVE: Final = 1
"""The answer is no: a problem was found, an object does not exist, or a request is denied."""
EXIT_MISUSED: Final = 2
"""The arguments or files are invalid; nothing was changed."""
EXIT_UNDECIDED: Final = 3
"""It could not be decided or done now: a server, a credential or a permission is missing."""


class CommandError(Exception):
    """Root of the tree; `status` is the exit status, `hint` the operator's next step."""

    status: ClassVar[int]

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Keep the message and the next step."""
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputInvalid(CommandError):
    """An argument or a file is invalid."""

    status = EXIT_MISUSED


class Rejected(CommandError):
    """The objects of the cluster, or the operator, rule the command out."""

    status = EXIT_NEGATIVE


class ServerUnavailable(CommandError):
    """An API server cannot be reached, or does not accept the request."""

    status = EXIT_UNDECIDED
