"""The fields of objects that a bug report contains, and the form that each value must have.

A field that is not listed is left out, and so is a value of another form. Texts that somebody wrote
freely, such as messages, can repeat anything, so no such field is listed. A name with 40
hexadecimal digits in a row may be the digest of a key.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from signer.inventory.replica_records.replica_leases import (
    NAMESPACE_LABEL,
    SETTINGS_LABEL,
)

Check = Callable[[object], bool]
Fields = Check | Mapping[str, "Fields"] | Sequence["Fields"]
"""What is allowed of a value: a scalar of a form, keys of an object, or the items of a list."""


def select(value: object, fields: Fields) -> Any:  # noqa: ANN401 - any JSON
    """Return what is allowed of a JSON value; `None` for nothing."""
    if isinstance(fields, Mapping):
        present = value if isinstance(value, dict) else {}
        chosen = {key: select(present[key], fields[key]) for key in fields if key in present}
        return {key: each for key, each in chosen.items() if each is not None}
    if isinstance(fields, Sequence):
        [of_items] = fields
        return [select(each, of_items) for each in value] if isinstance(value, list) else None
    return value if fields(value) else None


def _form(pattern: str) -> Check:
    compiled = re.compile(rf"(?!.*[0-9A-Fa-f]{{40}}){pattern}", re.ASCII)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def is_number(value: object) -> bool:
    """Return whether the value is a finite number, or true or false."""
    return isinstance(value, int | float) and math.isfinite(value)


NAME: Final = _form(r"[a-z0-9]([-a-z0-9._]{0,251}[a-z0-9])?")
WORD: Final = _form(r"[A-Z][A-Za-z0-9]{0,63}")
"""A reason, a kind, or a value of an enumeration."""
TIME: Final = _form(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,18}(Z|\+00:00)")
DURATION: Final = _form(r"([0-9]{1,6}[hms]){1,3}")
VERSION: Final = _form(r"v?[0-9][-+.0-9A-Za-z]{0,63}")
_CLUSTER_NAME: Final = _form(r"([-a-z0-9.]{1,63}/)?[-a-z0-9.]{1,253}")
_CHECK_NUMBER: Final = _form(r"[A-Z][0-9]{1,2}")
_SCHEME: Final = _form(r"[a-z]{5,6}(-[a-z0-9]{2,7}){2}")
_SIGNER: Final = _form(r"(cluster\.x-k8s\.io|kubernetes\.io)/[-a-z]{1,64}")
_NODE_USER: Final = _form(r"system:node:[-a-z0-9.]{1,253}")
_CONDITIONS: Final[Fields] = [
    {
        "type": WORD,
        "status": WORD,
        "reason": WORD,
        "observedGeneration": is_number,
        "lastTransitionTime": TIME,
        "lastUpdateTime": TIME,
    }
]
_META: Final[Mapping[str, Fields]] = {
    "name": NAME,
    "namespace": NAME,
    "generation": is_number,
    "creationTimestamp": TIME,
    "deletionTimestamp": TIME,
}
CLUSTER: Final[Fields] = {
    "metadata": _META,
    "spec": {"paused": is_number},
    "status": {"phase": WORD, "conditions": _CONDITIONS},
}
MACHINE: Final[Fields] = {
    "metadata": _META,
    "spec": {"clusterName": NAME, "version": VERSION},
    "status": {"phase": WORD, "nodeRef": {"name": NAME}, "conditions": _CONDITIONS},
}
ATTESTED_NODE: Final[Fields] = {
    "metadata": _META,
    "spec": {
        "clusterName": NAME,
        "nodeName": NAME,
        "machineName": NAME,
        "notAfter": TIME,
        "lastAttested": TIME,
        "renewalDeadline": TIME,
        "lastRefusal": {"reason": WORD, "time": TIME, "request": NAME},
        "policy": NAME,
        "basis": WORD,
        "bootState": WORD,
        "term": is_number,
        "since": TIME,
        "othersEndAt": TIME,
    },
}
ENDORSEMENT_KEY: Final[Fields] = {
    "spec": {
        "registeredFor": [{"clusterNamespace": NAME, "clusterName": NAME, "nodeName": NAME}],
        "releasedFrom": [{"clusterNamespace": NAME, "clusterName": NAME}],
        "banned": {"since": TIME},
        "banLifted": {"at": TIME, "certificatesToo": is_number},
        "term": is_number,
        "heldBy": {
            "clusterNamespace": NAME,
            "clusterName": NAME,
            "nodeName": NAME,
            "basis": WORD,
            "since": TIME,
            "lastClaimed": TIME,
        },
    }
}
KEY_REQUEST: Final[Fields] = {
    "metadata": _META,
    "spec": {
        "clusterName": NAME,
        "keys": [{"nodeName": NAME, "firstSeen": TIME, "certificate": {"status": WORD}}],
    },
}
POLICY: Final[Fields] = {
    "metadata": _META,
    "spec": {
        "clusterRef": {"namespace": NAME, "name": NAME},
        "clusterSelector": {"namespaces": [NAME]},
        "mode": WORD,
        "approval": WORD,
        "minimumVersion": VERSION,
        "endorsementKey": {
            "trust": WORD,
            "allowCertificatesWithoutUsage": is_number,
            "platform": {"type": NAME},
        },
        "attestationKey": {"schemes": [_SCHEME]},
        "pcrs": {
            "selection": {bank: [is_number] for bank in ("sha256", "sha384", "sha512")},
            "mode": WORD,
        },
        "eventLog": {"secureBoot": is_number},
        "nodeNames": {"machineName": is_number},
        "firstJoin": {"within": DURATION},
        "certificate": {"lifetime": DURATION, "allowSharedAuthority": is_number},
        "nameReuse": WORD,
        "renewals": {
            "unknownCredential": WORD,
            "taintUnattested": is_number,
        },
        "autoApproveBindings": WORD,
        "nodeLabels": WORD,
        "accessReview": WORD,
        "serving": {"builtin": WORD, "nodeRefFallback": is_number},
    },
    "status": {
        "observedGeneration": is_number,
        "activeGeneration": is_number,
        "selectedClusters": is_number,
        "servedClusters": is_number,
        "clusters": [{"namespace": NAME, "name": NAME, "state": WORD}],
        "conditions": _CONDITIONS,
    },
}
EVENT: Final[Fields] = {
    "type": WORD,
    "reason": WORD,
    "count": is_number,
    "firstTimestamp": TIME,
    "lastTimestamp": TIME,
    "involvedObject": {"kind": WORD, "namespace": NAME, "name": NAME},
}
LEASE: Final[Fields] = {
    "metadata": {
        "name": NAME,
        "labels": {
            SETTINGS_LABEL: NAME,
            NAMESPACE_LABEL: NAME,
        },
    },
    "spec": {"holderIdentity": NAME, "leaseDurationSeconds": is_number, "renewTime": TIME},
}
_STARTED: Final[Fields] = {"startedAt": TIME}
_ENDED: Final[Fields] = {
    "reason": WORD,
    "exitCode": is_number,
    "startedAt": TIME,
    "finishedAt": TIME,
}
_STATE: Final[Fields] = {"running": _STARTED, "waiting": {"reason": WORD}, "terminated": _ENDED}
POD: Final[Fields] = {
    "metadata": {**_META, "labels": {"app.kubernetes.io/version": VERSION}},
    "status": {
        "phase": WORD,
        "conditions": _CONDITIONS,
        "containerStatuses": [
            {
                "name": NAME,
                "ready": is_number,
                "restartCount": is_number,
                "state": _STATE,
                "lastState": _STATE,
            }
        ],
    },
}
CSR: Final[Fields] = {
    "metadata": _META,
    "spec": {"signerName": _SIGNER, "username": _NODE_USER, "expirationSeconds": is_number},
    "status": {"conditions": _CONDITIONS},
}
LOG_LINE: Final[Fields] = {
    "time": TIME,
    "level": NAME,
    "event": _form(r"[A-Za-z][A-Za-z ':]{0,99}"),
    "logger": _form(r"signer(\.[a-z_]{1,32}){0,6}"),
    "cluster": _CLUSTER_NAME,
    "namespace": NAME,
    "node": NAME,
    "machine": NAME,
    "csr": NAME,
    "signer": _SIGNER,
    "policy": NAME,
    "kind": NAME,
    "outcome": NAME,
    "check": _CHECK_NUMBER,
    "reason": WORD,
    "basis": WORD,
    "alarm": is_number,
    "alarms": [WORD],
    "milliseconds": is_number,
    "notAfter": TIME,
    "replica": NAME,
    "version": VERSION,
}
METRIC: Final[Fields] = {
    "name": _form(r"(node_attestation|process)_[a-z_]{1,64}"),
    "labels": {
        "namespace": NAME,
        "cluster": _CLUSTER_NAME,
        "kind": NAME,
        "outcome": NAME,
        "policy": NAME,
        "reason": WORD,
        "renewal": WORD,
        "check": _CHECK_NUMBER,
        "version": VERSION,
        "le": _form(r"\+Inf|[0-9.e-]{1,20}"),
    },
    "value": is_number,
}
