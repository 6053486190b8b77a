"""Runs each mutant in a process that is forked after pytest has collected the tests.

A mutant replaces the code of functions that exist already, so nothing is imported again. Only the
tests that call a changed function run, and those of the same files, which may share what one made.
"""

import functools
import gc
import json
import os
import resource
import sys
import tempfile
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, zip_longest
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.mutation.changes import Mutant

_MEMORY: Final = 4 << 30
"""Bytes of address space of a process: a mutant may remove a limit."""
settings.register_profile(
    "mutation",
    deadline=None,
    derandomize=True,
    max_examples=25,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
_ARGUMENTS: Final = (
    *("-p", "no:cacheprovider", "--hypothesis-profile=mutation", "--timeout=60"),
    *("-qq", "--randomly-dont-reorganize", "--randomly-seed=1"),
    "-Wignore:Module already imported:pytest.PytestAssertRewriteWarning",
)

Report = Callable[[Mutant, str], None]
"""Receives a mutant and the test that caught it; the name is empty if the mutant survived."""


def run_mutants(
    mutants: Sequence[Mutant],
    tests: Sequence[str],
    *,
    product: tuple[str, ...],
    report: Report,
    first: Mapping[str, str],
) -> bool:
    """Run the mutants of the files below `product`; return `False` if a test fails without them.

    `first` has the test to run first for a mutant: the one that caught it in an earlier run.
    """
    runner = _Runner(mutants, product, report, first)
    with tempfile.TemporaryDirectory() as temporary:
        pytest.main([*_ARGUMENTS, f"--basetemp={temporary}", *tests], plugins=[runner])
    return runner.is_complete


class _Runner:
    """A pytest plugin that runs mutants in place of the tests."""

    def __init__(
        self,
        mutants: Sequence[Mutant],
        product: tuple[str, ...],
        report: Report,
        first: Mapping[str, str],
    ) -> None:
        self.is_complete = False
        self._mutants = mutants
        self._product = product
        self._report = report
        self._first = first
        self._failed = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self) -> tuple[str, str, str]:
        """Print nothing about a single test."""
        return "", "", ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the first test that fails."""
        if report.failed and not self._failed:
            self._failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Find out which functions each test calls, then run the mutants."""
        if session.testsfailed:  # to be collected; pytest says why
            return True
        program = _Program(self._product)
        calls = _in_child(lambda: self._trace(program, session.items))
        if not isinstance(calls, list):
            sys.stdout.write(f"without a mutant, a test fails: {calls}\n")
            return True
        for mutant in self._mutants:
            tests = _select(session.items, calls, program.places(mutant))
            tests.sort(key=lambda item: item.nodeid != self._first.get(mutant.name))
            caught_by = _in_child(functools.partial(self._catch, program, mutant, tests))
            self._report(mutant, "the process ended" if caught_by is None else caught_by)
        self.is_complete = True
        return True

    def _trace(self, program: "_Program", items: Sequence[pytest.Item]) -> list[list[str]] | str:
        """Run the tests; return the functions that each one calls, or the test that fails."""
        calls: list[set[str]] = []

        def trace(frame: FrameType, *_: object) -> None:
            if frame.f_code.co_filename.startswith(self._product):
                calls[-1].add(_place(frame.f_code))

        def before() -> None:
            program.clear_caches()
            calls.append(set())
            sys.settrace(trace)

        threading.settrace(trace)
        return self._run(items, before) or [sorted(each) for each in calls]

    def _catch(self, program: "_Program", mutant: Mutant, items: Sequence[pytest.Item]) -> str:
        program.change(mutant)
        return self._run(items, lambda: None)

    def _run(self, items: Sequence[pytest.Item], before: Callable[[], None]) -> str:
        """Run tests until one fails; return its name, empty if all pass."""
        for item, following in zip_longest(items, items[1:]):
            before()
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                break
        return self._failed


def _select(
    items: Sequence[pytest.Item], calls: Sequence[Sequence[str]], places: set[str]
) -> list[pytest.Item]:
    """Return the tests that call one of the functions, the smallest first, then their neighbors."""
    callers = sorted((len(c), i) for i, c in enumerate(calls) if not places.isdisjoint(c))
    first = [items[index] for _, index in callers]
    files, names = {item.path for item in first}, {item.nodeid for item in first}
    return first + [i for i in items if i.path in files and i.nodeid not in names]


def _in_child(work: Callable[[], object]) -> Any:  # noqa: ANN401 - what `work` returns
    """Return the result of `work` in a forked process, `None` if a signal ended the process."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for stream in range(2):
                os.dup2(null, stream)
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            with os.fdopen(writer, "w") as pipe:
                pipe.write(json.dumps(work()))
            status = 0
        except BaseException:  # noqa: BLE001 - this process ends here
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        result = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise RuntimeError("the mutant could not run")
    return json.loads(result) if result else None


class _Program:
    """The functions of the product in this process, and its caches of results."""

    def __init__(self, product: tuple[str, ...]) -> None:
        self._functions: dict[str, list[FunctionType]] = defaultdict(list)
        self._caches: list[functools._lru_cache_wrapper[object]] = []
        gc.unfreeze()  # tests/conftest.py froze all objects; frozen ones are not listed.
        for item in gc.get_objects():
            if isinstance(item, functools._lru_cache_wrapper):
                if _file(item.__wrapped__).startswith(product):
                    self._caches.append(item)
            elif isinstance(item, FunctionType) and _file(item).startswith(product):
                self._functions[_place(item.__code__)].append(item)
        gc.freeze()

    def places(self, mutant: Mutant) -> set[str]:
        """Return the function that the mutant changes, or the functions that use its constant."""
        if not mutant.owner.isupper():
            return {f"{mutant.path}:{mutant.owner}"}
        value = vars(sys.modules[mutant.module])[mutant.owner]
        return {
            place
            for place, functions in self._functions.items()
            for function in functions
            if function.__globals__.get(mutant.owner) is value
            and any(mutant.owner in code.co_names for code in _codes(function.__code__))
        }

    def change(self, mutant: Mutant) -> None:
        """Replace the code of a function, or a constant in all modules that import it."""
        changed = mutant.compile()
        if mutant.owner.isupper():
            scratch = {"__name__": mutant.module}
            exec(changed, scratch)  # noqa: S102 - a module of the product, with one change
            old = vars(sys.modules[mutant.module])[mutant.owner]
            for module in list(sys.modules.values()):
                if vars(module).get(mutant.owner) is old:
                    vars(module)[mutant.owner] = scratch[mutant.owner]
        # A function inside another one is part of the code of the outer one.
        owners = set(accumulate(mutant.owner.split(".<locals>."), "{}.<locals>.{}".format))
        for code in _codes(changed):
            for function in self._functions[_place(code)] if code.co_qualname in owners else []:
                if function.__code__.co_firstlineno == code.co_firstlineno:
                    function.__code__ = code
        self.clear_caches()

    def clear_caches(self) -> None:
        """Forget the results of functions that ran before."""
        for cache in self._caches:
            cache.cache_clear()


def _file(function: object) -> str:
    """Return the file of a function; it is empty if the function is not written in Python."""
    return function.__code__.co_filename if isinstance(function, FunctionType) else ""


def _place(code: CodeType) -> str:
    return f"{code.co_filename}:{code.co_qualname}"


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
