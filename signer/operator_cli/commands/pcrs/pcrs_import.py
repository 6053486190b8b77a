"""`pcrs import`: adds the values that a vendor predicts and signs to a policy.

An annotation of the policy has the values that it has because of imports, by the vendor's key. So
the next import of the same key ends those that the vendor no longer predicts, and no others.
"""

import base64
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

from common.names import IMPORTED_PCRS_ANNOTATION
from signer.operator_cli.commands.pcrs.changes import change_policy, require_later
from signer.operator_cli.commands.pcrs.reviews import StoredPolicy, read_policies, stored_policy
from signer.operator_cli.errors import EXIT_OK, InputInvalid, Rejected
from signer.operator_cli.keys.key_input import read_bytes, read_text
from signer.operator_cli.session import Session
from signer.policy.changes.edits import Value
from signer.policy.changes.pcr_predictions import (
    Import,
    PredictionsInvalid,
    Values,
    import_values,
    read_predictions,
)
from signer.policy.policy import describe_clusters
from signer.policy.signed_pcr_rules import fingerprint, read_vendor_key
from signer.verify.attestation.signed_pcrs import is_signed_by

_FORMER: Final = timedelta(days=30)
"""How long values that the vendor no longer predicts count by default."""
_SIGN: Final = (
    "the vendor signs with `cosign sign-blob --key`, or with `openssl dgst -sha256 -sign KEY FILE |"
    " base64`"
)


def run(session: Session) -> int:
    """Verify the signature, show what changes, ask, and change the policy."""
    require_later(session)
    until = session.arguments.until or session.now.replace(microsecond=0) + _FORMER
    predicted, vendor = _read_signed(session)
    stored = _choose_policy(session)
    annotations = stored.body["metadata"].get("annotations", {})
    imports = _read_imports(annotations.get(IMPORTED_PCRS_ANNOTATION, "{}"))
    others = (values for key, values in imports.items() if key != vendor)
    try:
        done = import_values(
            stored.reviewed,
            imports.get(vendor, frozenset()),
            predicted,
            others=frozenset().union(*others),
            now=session.now,
            until=until,
        )
    except PredictionsInvalid as error:
        raise Rejected(f"KubeletAttestationPolicy {stored.name}: {error}") from error
    recorded = _dump({**imports, vendor: done.recorded})
    clusters = describe_clusters(stored.reviewed.policy.clusters)
    change_policy(
        session,
        stored,
        done.spec,
        f"{_describe_left_out(done)}These values are for: {clusters}.",
        annotations={IMPORTED_PCRS_ANNOTATION: recorded},
    )
    return EXIT_OK


def _read_signed(session: Session) -> tuple[Values, str]:
    """Return the predicted values, and the fingerprint of the key that signed them."""
    file: Path = session.arguments.file
    content, key = read_bytes(file), read_vendor_key(read_text(session.arguments.key))
    if key is None:
        raise InputInvalid(f"{session.arguments.key}: must be a public key as PEM: RSA or EC")
    signed = session.arguments.signature or file.with_name(f"{file.name}.sig")
    try:
        signature = base64.b64decode("".join(read_text(signed).split()), validate=True)
    except ValueError as error:
        raise InputInvalid(f"{signed}: must be base64", hint=_SIGN) from error
    if not is_signed_by(key, signature, content):
        raise Rejected(f"{signed} is no signature of {file} by this key", hint=_SIGN)
    try:
        return read_predictions(content), fingerprint(key)
    except PredictionsInvalid as error:
        raise InputInvalid(f"{file}: {error}") from error


def _choose_policy(session: Session) -> StoredPolicy:
    """Return the policy that the operator names, or the only one with lists of PCR values."""
    name: str | None = session.arguments.policy
    policies, bodies = read_policies(session)
    found = [
        policy
        for policy in policies.accepted
        if (policy.pcrs.allowed if name is None else policy.name == name)
    ]
    if len(found) != 1:
        raise Rejected(
            f"{len(found)} valid KubeletAttestationPolicies"
            f" {'have lists of PCR values' if name is None else f'have the name {name}'}",
            hint="name one with --policy; `policy check` shows the problems of invalid ones",
        )
    return stored_policy(found[0], bodies)


def _read_imports(annotation: str) -> dict[str, Values]:
    """Read the values of all imports, by the fingerprint of the vendor's key."""
    try:
        return {
            vendor: frozenset(
                Value((bank, index), str(digest))
                for bank, by_index in banks.items()
                for index, digests in by_index.items()
                for digest in digests
            )
            for vendor, banks in json.loads(annotation).items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Rejected(
            f"the annotation {IMPORTED_PCRS_ANNOTATION} of the policy cannot be read",
            hint="remove it: values of former imports then get no end",
        ) from error


def _dump(imports: Mapping[str, Values]) -> str:
    """Return imports in the form of `pcrs.allowed`, by the fingerprint of the vendor's key."""
    document: dict[str, dict[str, dict[str, list[str]]]] = {}
    for vendor, values in imports.items():
        for (bank, index), digest in sorted(values):
            lists = document.setdefault(vendor, {}).setdefault(bank, {})
            lists.setdefault(index, []).append(digest)
    return json.dumps(document, sort_keys=True)


def _describe_left_out(done: Import) -> str:
    if not done.left_out:
        return ""
    places = ", ".join(sorted(map(":".join, done.left_out)))
    return f"  left out, since the policy has no list for it: {places}\n"
