"""The table of all targets."""

from tests.fuzz import (
    node_targets,
    platform_targets,
    record_targets,
    running_targets,
    shared_targets,
    verify_targets,
)
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *shared_targets.TARGETS,
        *verify_targets.TARGETS,
        *record_targets.TARGETS,
        *running_targets.TARGETS,
        *platform_targets.TARGETS,
        *node_targets.TARGETS,
    )
}
