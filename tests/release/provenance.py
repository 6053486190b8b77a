"""Makes the provenance statement of a release: in-toto Statement v1 with SLSA Provenance v1.

The statement is not signed. The release workflow makes a signed one with the platform's identity,
which a build cannot forge. This one says which inputs give the same bytes again.
Specifications: https://in-toto.io/Statement/v1 and https://slsa.dev/spec/v1.0/provenance.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

Json = dict[str, object]
BUILD_TYPE: Final = "urn:x-node-attestation:make-dist:v1"
"""`make dist` in a clean clone: docs/releasing.md describes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What a build depends on. `locks` maps the path of each lock to its SHA-256.

    `image` is the name of the container image that the chart and the manifests pull.
    """

    commit: str
    source_date_epoch: int
    targets: tuple[str, ...]
    image: str
    locks: Mapping[str, str]
    builder_id: str


def make_statement(subjects: Mapping[str, str], build: Build) -> Json:
    """Return the statement for files, given as name and SHA-256."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": digest}} for name, digest in subjects.items()
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"targets": list(build.targets), "IMAGE": build.image},
                "internalParameters": {"SOURCE_DATE_EPOCH": build.source_date_epoch},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": build.commit}},
                    *({"name": path, "digest": {"sha256": h}} for path, h in build.locks.items()),
                ],
            },
            "runDetails": {"builder": {"id": build.builder_id}},
        },
    }
