"""The list of ended certificates of a workload cluster: a ValidatingAdmissionPolicy of the signer.

It exists only while something is ended. Its expression holds, for a node by its name, the group
that a write in that name must have, or one that nobody has (`signer.claims.ended_entry`). Where it
is full, there is a second one, and so on.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec

from common.errors import ApiServerUnavailable
from common.names import API_GROUP, CLIENT_SIGNER, NODE_USER_PREFIX
from signer.claims.ended_entry import EndedEntry, decode_entry
from signer.errors import ClaimConflict, EndedCertificatesNotListed
from signer.kinds.decode import Fields, Source, Text, decode
from signer.kinds.resources import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS, CSRS
from signer.kube.transport.client import MAY_BE_ABSENT, MAY_HAVE_CHANGED, ApiClient

POLICY_NAMES: Final = (f"ended.{API_GROUP}", *(f"ended-{n}.{API_GROUP}" for n in range(2, 9)))
_MANAGER: Final = "node-attestation-signer"
_MAX_EXPRESSION: Final = 95_000
"""Characters of one expression. An API server evaluates 100,000; entries may become longer."""
_MAX_ATTEMPTS: Final = 5
_EMPTY_FOR: Final = 10.0
"""Seconds for which a list that did not exist counts as empty, unless something that it follows
from changes.

The claims say themselves whom they end. An entry says more only if the management cluster forgot
something, as after a restore.
"""
_VARIABLE: Final = "ended"
_ENTRY: Final = re.compile("'([a-z0-9.-]{1,253})': '([^']{1,100})'")
_APPLIED: Final = frozenset({HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.CONFLICT})
_LASTING: Final = frozenset(
    {
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)
"""Answers after which only a change of the cluster helps."""

_Expression = Annotated[str, msgspec.Meta(max_length=100_000)]
Following = Callable[["EndedCertificates"], Mapping[str, EndedEntry | None]]
"""Returns what entries must become, `None` for those that go."""


class _Variable(Fields):
    name: Text
    expression: _Expression


class _Meta(Fields):
    uid: Text
    resource_version: Text


class _Spec(Fields):
    variables: Annotated[list[_Variable], msgspec.Meta(max_length=16)] = msgspec.field(
        default_factory=list
    )


class _Policy(Fields):
    metadata: _Meta
    spec: _Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One policy as it was read; without a version it does not exist."""

    uid: str = ""
    resource_version: str = ""
    entries: Mapping[str, EndedEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndedCertificates:
    """The list as it was read."""

    parts: Sequence[_Part] = ()

    def entry(self, node_name: str) -> EndedEntry | None:
        """Return the entry of a node, `None` if nothing of it is ended."""
        return next((p.entries[node_name] for p in self.parts if node_name in p.entries), None)

    @property
    def names(self) -> frozenset[str]:
        """The names of the nodes with an entry."""
        return frozenset(name for part in self.parts for name in part.entries)


class EndedCertificatesClient:
    """Reads and writes the list of one workload cluster."""

    def __init__(self, api: ApiClient, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._monotonic = monotonic
        self._changes = 0
        self._empty = (0, 0.0)
        """After how many changes the list did not exist, and until when that counts."""

    def note_change(self) -> None:
        """Read the list again, because it or what it follows from changes."""
        self._changes += 1

    def read(self) -> EndedCertificates:
        """Read the list. Raises `ApiServerUnavailable`, `EndedCertificatesNotListed`."""
        try:
            return EndedCertificates(tuple(self._parts()))
        except ApiServerUnavailable as error:
            raise _lasting(error) from error

    def entry(self, node_name: str) -> EndedEntry | None:
        """Return the entry of a node, and hold one policy at a time. Raises as `read`.

        Most clusters have no list, so this costs most certificates no request.
        """
        changes, empty_until = self._empty
        if changes == self._changes and self._monotonic() < empty_until:
            return None
        try:
            found = (part.entries.get(node_name) for part in self._parts())
            return next((entry for entry in found if entry is not None), None)
        except ApiServerUnavailable as error:
            raise _lasting(error) from error

    def change(self, following: Following) -> EndedCertificates | None:
        """Write what follows from the list as it is, until no other writer came in between.

        Returns the list if nothing had to be written.

        Raises:
            EndedCertificatesNotListed: they cannot be written before the cluster is changed.
            ClaimConflict: others wrote at the same time.
            ApiServerUnavailable: from the API server.

        """
        for _ in range(_MAX_ATTEMPTS):
            listed = self.read()
            changes = {
                name: entry
                for name, entry in following(listed).items()
                if entry != listed.entry(name)
            }
            if not changes:
                return listed
            if self.write(listed, changes):
                return None
        raise ClaimConflict("others list ended certificates of the cluster at the same time")

    def write(self, listed: EndedCertificates, changes: Mapping[str, EndedEntry | None]) -> bool:
        """Write all policies of the list with these changes; return whether nobody else wrote.

        Without a change, it repairs what others changed in the policies. Raises as `change`.
        """
        after = _distributed(listed.parts, changes)
        try:
            for number, entries in enumerate(after):
                before = listed.parts[number] if number < len(listed.parts) else _Part()
                if not self._write_part(number, before, entries):
                    return False
            # From the last one: the list is read up to the first that does not exist.
            return all(
                self._delete_part(number, listed.parts[number])
                for number in reversed(range(len(after), len(listed.parts)))
            )
        except ApiServerUnavailable as error:
            raise _lasting(error) from error

    def _parts(self) -> Iterator[_Part]:
        changes, asked_at = self._changes, self._monotonic()
        for name in POLICY_NAMES:
            response = self._api.find(ADMISSION_POLICIES.object_path(name))
            if response is None:
                if name == POLICY_NAMES[0]:
                    self._empty = (changes, asked_at + _EMPTY_FOR)
                return
            yield response.read(_read_part)

    def _write_part(self, number: int, before: _Part, entries: Mapping[str, EndedEntry]) -> bool:
        name = POLICY_NAMES[number]
        version = before.resource_version
        metadata = {"name": name} | ({"resourceVersion": version} if version else {})
        policy = ADMISSION_POLICIES.manifest(metadata=metadata, spec=_policy_spec(entries))
        spec = {"policyName": name, "validationActions": ["Deny", "Audit"]}
        binding = ADMISSION_POLICY_BINDINGS.manifest(metadata={"name": name}, spec=spec)
        for resource, body in ((ADMISSION_POLICIES, policy), (ADMISSION_POLICY_BINDINGS, binding)):
            path = resource.object_path(name)
            try:
                response = self._api.apply(path, body, manager=_MANAGER, accepted=_APPLIED)
            finally:
                self.note_change()
            if not response.succeeded:
                return False
        return True

    def _delete_part(self, number: int, part: _Part) -> bool:
        name = POLICY_NAMES[number]
        preconditions = {"uid": part.uid, "resourceVersion": part.resource_version}
        path = ADMISSION_POLICIES.object_path(name)
        deleted = self._api.delete(path, preconditions, accepted=MAY_HAVE_CHANGED)
        if deleted.status == HTTPStatus.CONFLICT:
            return False
        # Without its policy, a binding does nothing.
        self._api.delete(ADMISSION_POLICY_BINDINGS.object_path(name), {}, accepted=MAY_BE_ABSENT)
        return True


def _distributed(
    parts: Sequence[_Part], changes: Mapping[str, EndedEntry | None]
) -> list[dict[str, EndedEntry]]:
    """Return the entries of each policy. An entry stays where it is, so that it never disappears.

    Raises `EndedCertificatesNotListed`: no policy has space for an entry.
    """
    rest = dict(changes)
    after: list[dict[str, EndedEntry]] = []
    seen: set[str] = set()
    for part in parts:
        entries = {n: rest.pop(n, e) for n, e in part.entries.items() if n not in seen}
        seen |= entries.keys()
        after.append({name: entry for name, entry in entries.items() if entry is not None})
    sizes = [len(_expression(entries)) for entries in after]
    for name, entry in sorted(rest.items()):
        if entry is None:
            continue
        size = len(_literal(name, entry)) + 2
        number = next((n for n, used in enumerate(sizes) if used + size <= _MAX_EXPRESSION), None)
        if number is None:
            if len(after) == len(POLICY_NAMES):
                raise EndedCertificatesNotListed("the policies of the signer have no more space")
            number = len(after)
            after.append({})
            sizes.append(0)
        after[number][name] = entry
        sizes[number] += size
    while after and not after[-1]:
        after.pop()
    return after


def _read_part(source: Source) -> _Part:
    policy = decode(source, _Policy)
    expression = next((v.expression for v in policy.spec.variables if v.name == _VARIABLE), "")
    found = ((name, decode_entry(text)) for name, text in _ENTRY.findall(expression))
    return _Part(
        uid=policy.metadata.uid,
        resource_version=policy.metadata.resource_version,
        entries={name: entry for name, entry in found if entry is not None},
    )


def _expression(entries: Mapping[str, EndedEntry]) -> str:
    return "{" + ", ".join(_literal(*each) for each in sorted(entries.items())) + "}"


def _literal(name: str, entry: EndedEntry) -> str:
    """Return an entry of the expression: a checked name, hex digits and numbers."""
    return f"'{name}': '{entry.encode()}'"


def _policy_spec(entries: Mapping[str, EndedEntry]) -> dict[str, Any]:
    resource = "request.resource"
    own_request = (
        f"{resource}.group == '{CSRS.group}' && {resource}.resource == '{CSRS.plural}'"
        f" && request.operation == 'CREATE' && object.spec.signerName == '{CLIENT_SIGNER}'"
    )
    node = f"request.userInfo.username.substring({len(NODE_USER_PREFIX)})"
    group = "variables.ended[variables.node].split(' ')[0]"
    every = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [every]},
        "matchConditions": [
            {
                "name": "nodes",
                "expression": f"request.userInfo.username.startsWith('{NODE_USER_PREFIX}')",
            },
            # The signer judges these itself, or a lifted node could not renew.
            {"name": "no-requests-to-the-signer", "expression": f"!({own_request})"},
        ],
        "variables": [
            {"name": "node", "expression": node},
            {"name": _VARIABLE, "expression": _expression(entries)},
        ],
        "validations": [
            {
                "expression": (
                    f"!(variables.node in variables.ended) || {group} in request.userInfo.groups"
                ),
                "reason": "Forbidden",
                "message": "the client certificate has ended",
            }
        ],
    }


def _lasting(error: ApiServerUnavailable) -> ApiServerUnavailable | EndedCertificatesNotListed:
    """Return the error that says what the operator of the workload cluster has to change."""
    if error.status not in _LASTING:
        return error
    return EndedCertificatesNotListed(
        "the workload cluster does not let the signer list ended certificates: apply"
        " workload-rbac.yaml there",
        detail=error.detail or error.message,
    )
