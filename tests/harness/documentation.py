"""The blocks of code in the documentation, and how each is held by a test.

An HTML comment before a block of commands says what runs it. Before YAML, it says who reads it if
our own readers and the API server do not:

- `<!-- run -->`: tests/integration/test_documentation.py runs it as it is, as an operator;
- `<!-- run on a node -->`: the same test runs it with the settings of a node;
- `<!-- run by: tests/FILE.py::TEST -->`: that test runs the same commands;
- `<!-- not run: REASON -->`: no test can.
"""

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
COMMANDS: Final = frozenset({"sh", "console"})
"""Languages of blocks that hold commands. In a `console`, they follow `$ `; the rest is output."""
_BLOCK: Final = re.compile(
    r"^(?:(?P<pad> *)<!-- (?P<marker>[^\n]+) -->\n)?(?P<indent> *)```(?P<language>\w*)\n"
    r"(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_INLINE: Final = re.compile(r"`((?:kubelet-authenticator-tpm|node-attestation-signer) [^`]+)`")
_SEPARATORS: Final = frozenset({"|", "&&", "||", ";", "<", ">"})
_SUBSTITUTION: Final = re.compile(r"<\([^)]*\)")
_PROMPT: Final = "$ "


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    marker: str
    """The text of the HTML comment before it, or nothing."""

    def __str__(self) -> str:
        """Return page and line."""
        return f"{self.page}:{self.line}"

    @property
    def script(self) -> str:
        """The commands, without prompts and output."""
        if self.language != "console":
            return self.text
        lines = self.text.splitlines(keepends=True)
        kept, continued = [], False
        for line in lines:
            if continued or line.startswith(_PROMPT):
                kept.append(line.removeprefix(_PROMPT))
                continued = line.endswith("\\\n")
        return "".join(kept)

    @property
    def commands(self) -> Iterator[list[str]]:
        """The words of each command."""
        yield from split_commands(self.script)


def blocks() -> list[Block]:
    """Return all blocks of all pages."""
    return [block for page in PAGES for block in blocks_of(page)]


def blocks_of(page: Path) -> Iterator[Block]:
    """Return the blocks of a page."""
    text, name = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))
    for match in _BLOCK.finditer(text):
        indent = len(match["indent"])
        yield Block(
            page=name,
            line=text.count("\n", 0, match.start("language")) + 1,
            language=match["language"],
            text="".join(line[indent:] or "\n" for line in match["text"].splitlines(keepends=True)),
            marker=match["marker"] or "",
        )


def inline_commands() -> list[tuple[str, str]]:
    """Return the pages and commands of our programs within sentences, each once."""
    found = {
        (str(page.relative_to(ROOT)), text.replace("\n", " "))
        for page in PAGES
        for text in _INLINE.findall(page.read_text(encoding="utf-8"))
    }
    return sorted(found)


def split_commands(script: str) -> Iterator[list[str]]:
    """Return the words of each command of a script; a process substitution counts as one word."""
    text = _SUBSTITUTION.sub("FILE", script.replace("\\\n", " "))
    # A comment ends with its line, which it swallows: so the next line begins with a separator.
    lexer = shlex.shlex(text.replace("\n", "\n;"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word not in _SEPARATORS:
            words.append(word)
        elif words:
            yield words
            words = []
    if words:
        yield words


def run_commands(
    script: str, directory: Path, environment: Mapping[str, str], *, seconds: float | None = None
) -> str:
    """Run commands in bash, which stops at the first failure; return their output.

    Raises RuntimeError: a command has failed.
    """
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    if done.returncode:
        raise RuntimeError(f"{script}{done.stdout}{done.stderr}")
    return done.stdout
