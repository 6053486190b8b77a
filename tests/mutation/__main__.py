"""Run the mutants of the checks, print the survivors, and compare with an earlier run.

python -m tests.mutation --output build/mutants.json
python -m tests.mutation signer.verify.machines.claims common.requests.binding
python -m tests.mutation --compare build/mutants.json
python -m tests.mutation --every 12 common.requests.binding signer.issue signer.verify
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutation.changes import Mutant, find_mutants
from tests.mutation.results import Result, find_lost
from tests.mutation.run import run_mutants

ROOT: Final = Path(__file__).parents[2]
TARGETS: Final = (
    "common/requests/binding.py",
    "signer/claims/*.py",
    "signer/issue/*.py",
    "signer/inventory/caches.py",
    "signer/verify/**/*.py",
    "signer/controller/**/answers.py",
    "signer/controller/**/claim_cleanup.py",
    "signer/controller/**/management_rounds.py",
    "signer/controller/**/live_leases.py",
    "signer/controller/**/replicas.py",
)
"""What makes verdicts, and the parts of the controller where the order or the time matters."""
NO_VERDICTS: Final = frozenset({"checks.py", "trace.py"})
"""Modules that describe the checks."""
TESTS: Final = (
    "tests/attacks",
    "tests/model/test_ended.py",
    "tests/unit/common",
    *(
        f"tests/unit/signer/{name}"
        for name in ("claims", "controller", "explain", "inventory", "issue", "verify")
    ),
)


def main() -> int:
    """Run the mutants. The exit status is 1 if one survives that was caught earlier."""
    arguments = _arguments()
    before = json.loads(arguments.compare.read_text()) if arguments.compare else {}
    mutants = find_targets(arguments.only)[:: arguments.every]
    results: dict[str, Result] = {}

    def report(mutant: Mutant, caught_by: str) -> None:
        results[mutant.name] = {"change": mutant.change, "caught_by": caught_by}
        if not caught_by:
            _print(f"survived: {mutant.name}  {mutant.change}")

    product = tuple(f"{ROOT}/{package}/" for package in ("common", "signer"))
    first = {name: result["caught_by"] for name, result in before.items()}
    if not run_mutants(mutants, TESTS, product=product, report=report, first=first):
        return 2
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")
    survivors = sum(not result["caught_by"] for result in results.values())
    _print(f"{len(results)} mutants, {len(results) - survivors} caught, {survivors} survived")
    lost = list(find_lost(before, results))
    for name in lost:
        _print(f"was caught before: {name}  {results[name]['change']}")
    return int(bool(lost))


def find_targets(only: Sequence[str]) -> list[Mutant]:
    """Return the mutants whose names start with one of `only`; all if there is none."""
    paths = sorted({path for pattern in TARGETS for path in ROOT.glob(pattern)})
    return [
        mutant
        for path in paths
        if path.name not in NO_VERDICTS
        for mutant in find_mutants(path, ".".join(path.relative_to(ROOT).with_suffix("").parts))
        if mutant.name.startswith(tuple(only or [""]))
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=main.__doc__)
    parser.add_argument("only", nargs="*", help="prefixes of mutants: module:owner:kind:ordinal")
    parser.add_argument("--every", type=int, default=1, help="run only each n-th of the mutants")
    parser.add_argument("--output", type=Path, help="file to write the results to, as JSON")
    parser.add_argument("--compare", type=Path, help="results of an earlier run")
    return parser.parse_args()


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
