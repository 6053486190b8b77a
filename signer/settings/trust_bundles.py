"""The trust anchors of each policy, loaded from files and reloaded while the signer runs.

An invalid bundle never replaces a valid one: the last valid trust anchors stay in use, and an alarm
is logged. A change counts only after two equal reads, so that neither a half-written file nor a
directory whose links are being replaced is loaded.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from signer.policy.policy import Policy
from signer.verify.x509.trust_anchors import NO_ANCHORS, TrustAnchors, load_trust_anchors

_logger = logging.getLogger(__name__)

_INVALID: Final = "TrustBundleInvalid"
_UNMATCHED: Final = "RevocationListUnmatched"
"""Reasons of the alarms in the log."""


class TrustBundleInvalid(Exception):
    """The files of a policy are not a valid trust bundle; the text has every problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileContents:
    """The files of a policy by name, or the problem that kept them from being read."""

    authorities: Mapping[str, bytes] = field(default_factory=dict)
    revocation_lists: Mapping[str, bytes] = field(default_factory=dict)
    problem: str = ""


def load_trust_bundle(policy: Policy) -> TrustAnchors:
    """Return the trust anchors of a policy; without authorities, they trust no certificate.

    Raises `TrustBundleInvalid` with every problem.
    """
    return _parse(_read(policy)) if policy.certificate_authorities else NO_ANCHORS


class TrustBundleFiles:
    """The last valid trust anchors of all policies; only one thread may call `reload`."""

    def __init__(self, policies: Iterable[Policy], loaded: Mapping[str, TrustAnchors]) -> None:
        self.current = dict(loaded)
        """The trust anchors by policy name; a changed bundle replaces its value."""
        self.invalid: set[str] = set()
        """Names of the policies whose files are invalid now."""
        self._policies = [p for p in policies if p.certificate_authorities]
        self._last_read: dict[str, _FileContents] = {}
        self._last_parsed: dict[str, _FileContents] = {}

    def reload(self) -> bool:
        """Read all files once and use what changed; return whether any trust anchors changed."""
        before = dict(self.current)
        for policy in self._policies:
            name, contents = policy.name, _read(policy)
            stable = contents == self._last_read.get(name)
            self._last_read[name] = contents
            if stable and contents != self._last_parsed.get(name):
                self._last_parsed[name] = contents
                self._use(name, contents)
        return self.current != before

    def _use(self, name: str, contents: _FileContents) -> None:
        try:
            anchors = _parse(contents)
        except TrustBundleInvalid as error:
            self.invalid.add(name)
            _alarm("trust bundle is invalid", name, _INVALID, str(error))
            return
        self.current[name] = anchors
        self.invalid.discard(name)
        counts = {
            "roots": len(anchors.roots),
            "intermediates": len(anchors.intermediates),
            "revocationLists": len(anchors.revocation_lists),
        }
        _logger.info("trust bundle loaded", extra={"fields": {"policy": name, **counts}})
        if anchors.unreadable:
            fields = {"policy": name, "detail": "; ".join(anchors.unreadable)}
            _logger.warning("authorities left out", extra={"fields": fields})
        if anchors.unmatched_lists:
            # Certificates that such a list was meant to revoke would be accepted.
            sources = ", ".join(anchors.unmatched_lists)
            _alarm("revocation lists match no authority", name, _UNMATCHED, sources)


def _alarm(event: str, policy: str, reason: str, detail: str) -> None:
    fields = {"policy": policy, "reason": reason, "detail": detail, "alarm": True}
    _logger.warning(event, extra={"fields": fields})


def _parse(contents: _FileContents) -> TrustAnchors:
    if contents.problem:
        raise TrustBundleInvalid(contents.problem)
    try:
        return load_trust_anchors(contents.authorities, contents.revocation_lists)
    except ValueError as error:
        raise TrustBundleInvalid(str(error)) from error


def _read(policy: Policy) -> _FileContents:
    try:
        authorities = dict(_files(policy.certificate_authorities))
        lists = dict(_files(policy.endorsement_key.certificate_revocation_lists))
    except OSError as error:
        return _FileContents(problem=f"{error.filename}: {error.strerror}")
    if policy.endorsement_key.certificate_revocation_lists and not lists:
        # No list would mean that nothing is revoked.
        return _FileContents(
            problem="certificateRevocationLists must name at least one revocation list"
        )
    return _FileContents(authorities=authorities, revocation_lists=lists)


def _files(paths: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file, and of each file in a directory that is not hidden."""
    for path in map(Path, paths):
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in files:
            # A mounted ConfigMap keeps its versions in hidden directories next to the files.
            if file == path or (file.is_file() and not file.name.startswith(".")):
                yield str(file), file.read_bytes()
