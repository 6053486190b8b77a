"""The steps of a rehearsal in their order, with progress lines and times."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.demo.narration import Narrator
from tests.release.rehearsal.stage import Stage

ALWAYS: Final = "release"
"""The subject that every rehearsal has: the files that all others publish."""
PHASES: Final = ("build", "publish", "install", "upgrade", "go back")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A part of the rehearsal: what it does with one kind of artifact in one phase."""

    phase: str
    subject: str
    """The kind of artifact: image, chart, apt ..."""
    run: Callable[[Stage], str]
    """Returns what the step has seen, in a few lines. Raises an exception when the step fails."""


def ordered(steps: Sequence[Step], subjects: Sequence[str]) -> list[Step]:
    """Return the steps of some subjects and of `ALWAYS`, phase by phase.

    Steps of one phase keep their order.
    """
    wanted = [step for step in steps if step.subject in (ALWAYS, *subjects)]
    return sorted(wanted, key=lambda step: PHASES.index(step.phase))


def rehearse(directory: Path, steps: Sequence[Step], *, as_built: bool) -> None:
    """Run steps. Print a line when each starts, what it has seen, and how long all took."""
    shutil.rmtree(directory / "work", ignore_errors=True)
    story, table = Narrator(), []
    with ExitStack() as stack:
        stage = Stage(directory, stack, as_built=as_built)
        for number, step in enumerate(steps, 1):
            started_at = story.elapsed
            with story.timed(f"{number}/{len(steps)} {step.phase}: {step.subject}"):
                seen = step.run(stage)
                story.quote(seen)
            seconds = story.elapsed - started_at
            table.append(f"{seconds:6.1f} s  {step.phase}: {step.subject}: {seen.splitlines()[0]}")
    story.step(f"all {len(steps)} steps have passed")
    story.quote("\n".join(table))
