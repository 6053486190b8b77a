"""Records the demo as a picture of a terminal: `make recording`.

The picture in the documentation is what the programs print, and is never edited.
"""

import io
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parents[2] / "docs/images/demo.svg"
_WIDTH = 132


def record(lines: list[str]) -> str:
    """Return the lines as an SVG; equal lines give equal bytes."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO())
    for line in lines:
        console.print(Text(line), soft_wrap=False)
    return console.export_svg(title="make demo", unique_id="demo")


def main() -> int:
    """Run the demo, show its output, and write the picture if it succeeded."""
    lines = []
    with subprocess.Popen(
        [sys.executable, "-m", "tests.demo"], stdout=subprocess.PIPE, text=True
    ) as demo:
        for line in demo.stdout or ():
            sys.stdout.write(line)
            lines.append(line.rstrip("\n"))
    if demo.returncode == 0:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(record(lines), encoding="utf-8")
    return demo.returncode


if __name__ == "__main__":
    sys.exit(main())
