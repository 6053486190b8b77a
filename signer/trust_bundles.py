"""Trust anchors from files and folders, read again while the signer runs.

A bundle that is no bundle never takes the place of one that was: what counted goes on counting, and
an alarm says so. What has changed is believed once it reads the same twice, so that neither a file
that is half written nor a folder whose links are being swapped is taken for an operator's word.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from signer.policy import Policy
from signer.verify.x509.endorsement_certificate import NO_ANCHORS, TrustAnchors, load_trust_anchors

_logger = logging.getLogger(__name__)

_REASON = "TrustBundleInvalid"


class TrustBundleInvalid(Exception):
    """The files of a policy are no trust anchors; the text says all that is wrong with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bundle:
    """What the files of a policy hold, by their names; or why they cannot be read."""

    authorities: Mapping[str, bytes] = field(default_factory=dict)
    revocation_lists: Mapping[str, bytes] = field(default_factory=dict)
    problem: str = ""


def load_trust_bundle(policy: Policy) -> TrustAnchors:
    """Read the authorities and revocation lists of a policy; one without is for no certificate.

    Raises `TrustBundleInvalid`.
    """
    return _load(_read(policy)) if policy.certificate_authorities else NO_ANCHORS


class TrustBundleFiles:
    """The trust anchors of all policies as their files last were any; `tend` is for one thread."""

    def __init__(self, policies: Iterable[Policy], loaded: Mapping[str, TrustAnchors]) -> None:
        self.current = dict(loaded)
        """By the policy's name; a value is replaced when its files have changed."""
        self.invalid: set[str] = set()
        """Names of the policies whose files are no anchors now, so that older ones count."""
        self._policies = [p for p in policies if p.certificate_authorities]
        self._seen: dict[str, _Bundle] = {}
        self._judged: dict[str, _Bundle] = {}

    def reload(self) -> bool:
        """Look at all files once, and take what has changed; tell whether anything was taken."""
        before = dict(self.current)
        for policy in self._policies:
            found, seen = _read(policy), self._seen.get(policy.name)
            self._seen[policy.name] = found
            if found == seen and found != self._judged.get(policy.name):
                self._judged[policy.name] = found
                self._take(policy.name, found)
        return self.current != before

    def _take(self, name: str, found: _Bundle) -> None:
        try:
            self.current[name] = loaded = _load(found)
        except TrustBundleInvalid as e:
            self.invalid.add(name)
            fields = {"policy": name, "reason": _REASON, "detail": str(e), "alarm": True}
            _logger.warning("trust anchors not taken", extra={"fields": fields})
            return
        self.invalid.discard(name)
        counts = {
            "roots": len(loaded.roots),
            "intermediates": len(loaded.intermediates),
            "revocationLists": len(loaded.revocation_lists),
        }
        _logger.info("trust anchors taken", extra={"fields": {"policy": name, **counts}})
        if loaded.unreadable:
            fields = {"policy": name, "detail": "; ".join(loaded.unreadable)}
            _logger.warning("authorities left out", extra={"fields": fields})


def _load(bundle: _Bundle) -> TrustAnchors:
    if bundle.problem:
        raise TrustBundleInvalid(bundle.problem)
    try:
        return load_trust_anchors(bundle.authorities, bundle.revocation_lists)
    except ValueError as e:
        raise TrustBundleInvalid(str(e)) from e


def _read(policy: Policy) -> _Bundle:
    try:
        authorities = dict(_files(policy.certificate_authorities))
        lists = dict(_files(policy.certificate_revocation_lists))
    except OSError as e:
        return _Bundle(problem=f"{e.filename}: {e.strerror}")
    if policy.certificate_revocation_lists and not lists:
        # None would mean that nothing is revoked.
        return _Bundle(problem="certificateRevocationLists must name a revocation list at least")
    return _Bundle(authorities=authorities, revocation_lists=lists)


def _files(paths: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file; of a folder, those in it that are not hidden."""
    for path in map(Path, paths):
        found = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in found:
            # A mounted ConfigMap keeps its versions in hidden folders beside the files.
            if file == path or (file.is_file() and not file.name.startswith(".")):
                yield str(file), file.read_bytes()
