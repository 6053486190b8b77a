"""Reloads the file of `--policy` when it changes: the whole file, or nothing of it."""

import logging
from pathlib import Path

from signer.controller.policies.active import ActivePolicies
from signer.errors import PolicyInvalid
from signer.settings.config import ConfigError, PolicyFileContents, load_policy_file

_logger = logging.getLogger(__name__)


class PolicyFile:
    """The policy file; only one thread may call `reload`."""

    def __init__(self, contents: PolicyFileContents, active: ActivePolicies) -> None:
        """Put the policies in force that the file had at the start."""
        self.digest = contents.digest
        """Digest of the file whose policies are in force."""
        self.is_valid = True
        """Whether the policies in force are those of the present file."""
        self._path = contents.path
        self._active = active
        self._last_read: bytes | None = None
        self._last_loaded: bytes | None = None
        active.replace(contents.policies, contents.anchors)

    def reload(self) -> bool:
        """Read the file; if it has changed and two reads are equal, use it. Return whether it is.

        Two equal reads: a half-written file is not loaded. An invalid file leaves the policies that
        are in force.
        """
        content = _read(self._path)
        stable, self._last_read = content == self._last_read, content
        if not stable or content == self._last_loaded:
            return False
        self._last_loaded = content
        try:
            contents = load_policy_file(self._path)
        except ConfigError as error:
            self.is_valid = False
            fields = {
                "reason": PolicyInvalid.reason,
                "detail": "; ".join(error.problems),
                "alarm": True,
            }
            fields["message"] = "the earlier policies stay in force: correct the file"
            _logger.warning("policy file is invalid", extra={"fields": fields})
            return False
        self.digest, self.is_valid = contents.digest, True
        if contents.policies == self._active.policies:
            return False
        self._active.replace(contents.policies, contents.anchors)
        return True


def _read(path: Path) -> bytes | None:
    """Return the content of the file, `None` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None
