"""Command line of the rehearsal of a release.

    python -m tests.release.rehearsal
    python -m tests.release.rehearsal --only image,chart --as-built

The two versions are built once for each commit, and used again by later rehearsals.
"""

import argparse
import sys
from pathlib import Path
from typing import Final

from tests.release.rehearsal import (
    build,
    chart,
    manifests,
    newcomer,
    operator_commands,
    provider,
    registry,
    site,
)
from tests.release.rehearsal.packages import changes, refusals, repositories
from tests.release.rehearsal.story import ALWAYS, Step, ordered, rehearse

ROOT: Final = Path(__file__).parents[3]
DIRECTORY: Final = ROOT / "build/rehearsal"
# Each module lists the steps of its subjects.
STEPS: Final[tuple[Step, ...]] = (
    *build.STEPS,
    *site.STEPS,
    *registry.STEPS,
    *chart.STEPS,
    *manifests.STEPS,
    *provider.STEPS,
    *newcomer.STEPS,
    *repositories.STEPS,
    *refusals.STEPS,
    *changes.STEPS,
    *operator_commands.STEPS,
)


def main() -> int:
    """Rehearse all steps, or those that the command line names."""
    subjects = list(dict.fromkeys(step.subject for step in STEPS if step.subject != ALWAYS))
    parser = argparse.ArgumentParser(prog="python -m tests.release.rehearsal")
    parser.add_argument(
        "--only", metavar="SUBJECT,...", default=",".join(subjects), help="default: %(default)s"
    )
    parser.add_argument("--list", action="store_true", help="print the steps, and run none")
    parser.add_argument(
        "--as-built", action="store_true", help="use versions that an earlier commit has built"
    )
    arguments = parser.parse_args()
    wanted = arguments.only.split(",") if arguments.only else []
    if unknown := set(wanted) - set(subjects):
        parser.error(f"{', '.join(sorted(unknown))}: must be among {', '.join(subjects)}")
    steps = ordered(STEPS, wanted)
    if arguments.list:
        sys.stdout.writelines(f"{step.phase}: {step.subject}\n" for step in steps)
        return 0
    rehearse(DIRECTORY, steps, as_built=arguments.as_built)
    return 0


if __name__ == "__main__":
    sys.exit(main())
