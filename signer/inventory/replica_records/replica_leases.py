"""The Leases with which replicas of the signer show that they serve Clusters."""

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

from common.names import ANNOTATION_PREFIX
from signer.kinds.decode import MAX_TEXT

SETTINGS_LABEL: Final = ANNOTATION_PREFIX + "signer-settings"
"""On the Lease of each replica: only replicas with the same value share the Clusters."""
NAMESPACE_LABEL: Final = ANNOTATION_PREFIX + "watched-namespace"
"""The only namespace whose Clusters a replica serves; empty for all."""
SOURCE_LABEL: Final = ANNOTATION_PREFIX + "policy-source"
"""Where a replica has its policies: a `PolicySource`."""
STATES_ANNOTATION: Final = ANNOTATION_PREFIX + "cluster-states"
"""What a replica with a policy file says of its Clusters; empty with policy objects, whose status
says it. It is a part of the status of a policy: `selectedClusters`, `clusters` only with those that
are not served or have a message, and `clustersLeftOut`, for how many of them there is no space."""
LEASE_SECONDS: Final = 15
"""How long a Lease counts after its last renewal. It is enough while no request takes over 5
seconds: two renewals are written 10 seconds apart at most, and each is seen 5 seconds later."""


class PolicySource(Enum):
    """Where a replica reads its policies."""

    OBJECTS = "Objects"
    FILE = "File"
    INVALID_FILE = "InvalidFile"
    """The present file is invalid: the policies of an earlier content are in force."""


def encode_states(entries: Sequence[Mapping[str, str]], selected: int) -> str:
    """Return the annotation about `selected` Clusters; `entries` are those that are listed."""
    counts = {"selectedClusters": selected, "clustersLeftOut": len(entries)}
    text = json.dumps({**counts, "clusters": []})
    for number in range(1, len(entries) + 1):
        counts["clustersLeftOut"] = len(entries) - number
        longer = json.dumps({**counts, "clusters": entries[:number]})
        if len(longer) > MAX_TEXT:
            break
        text = longer
    return text


def decode_states(text: str) -> Mapping[str, Any]:
    """Return the annotation as a part of the status of a policy; nothing for another text."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
