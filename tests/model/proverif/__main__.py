"""Run ProVerif on exchange.pv, then without each rule, and compare with what docs/model.md says.

python -m tests.model.proverif [PROGRAM]
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

from tests.model.proverif.rules import EXPECTED, MODEL, RULES, Verdict

_RESULT = re.compile(r"^RESULT .* (is true|is false|cannot be proved)\.$", re.MULTILINE)
_VERDICTS = {
    "is true": Verdict.PROVED,
    "is false": Verdict.FOUND,
    "cannot be proved": Verdict.UNDECIDED,
}
_SECONDS = 1800


def prove(program: str, model: str) -> Mapping[str, Verdict]:
    """Run ProVerif on a model, and return its verdict on each query."""
    with tempfile.NamedTemporaryFile("w", suffix=".pv", encoding="utf-8") as file:
        file.write(model)
        file.flush()
        done = subprocess.run(
            [program, file.name], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    verdicts = [_VERDICTS[words] for words in _RESULT.findall(done.stdout)]
    if done.returncode or len(verdicts) != len(EXPECTED):
        sys.exit(f"prove: ProVerif did not decide the queries:\n{done.stdout[-2000:]}{done.stderr}")
    return dict(zip(EXPECTED, verdicts, strict=True))


def main(program: str = "proverif") -> None:
    """Print all verdicts. Exit with 1 if one is not the expected one."""
    if shutil.which(program) is None:
        sys.exit(
            f"prove: there is no program {program}: build ProVerif 2.05 from its source"
            " (https://proverif.inria.fr), and run `make prove PROVERIF=/path/to/proverif`"
        )
    model = MODEL.read_text(encoding="utf-8")
    runs = [("every rule holds", model, frozenset[str]())]
    runs += [(f"without: {rule.name}", rule.break_in(model), rule.lost) for rule in RULES]
    wrong = 0
    for title, text, lost in runs:
        began = time.monotonic()
        found = prove(program, text)
        sys.stdout.write(f"{title} ({time.monotonic() - began:.1f} s)\n")
        for query, verdict in found.items():
            expected = Verdict.FOUND if query in lost else EXPECTED[query]
            wrong += verdict is not expected
            remark = "" if verdict is expected else f", but must be: {expected}"
            if verdict is not EXPECTED[query] or remark or not lost:
                sys.stdout.write(f"  {query}: {verdict}{remark}\n")
    if wrong:
        sys.exit(f"prove: {wrong} verdicts are not those of tests/model/proverif/rules.py")


if __name__ == "__main__":
    main(*sys.argv[1:])
