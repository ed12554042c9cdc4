"""Tries mutants: runs the tests that run a mutant's line, in a fork of a process that has everything loaded.

The tests are collected once. A mutant is a fork of that process in which a function has other code; one outside of all
functions (a constant, a default) is a fork from before the package was imported.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.machinery import ModuleSpec, SourceFileLoader
from itertools import groupby
from pathlib import Path
from typing import Any

import coverage
import pytest
from _pytest.runner import runtestprotocol

from mutant_changes import Mutant, mutants_of

KILLED, SURVIVED, ENDLESS, UNTRIED = "killed", "survived", "endless", "untried"
_ENDS = {0: SURVIVED, 1: KILLED}
MOST_SECONDS = 4.0
"""Where tests take longer than this together, without a mutant, only the cheapest of them are tried on one."""
PROBES = 8
"""So many of the cheapest tests come first; then the others, file by file, so that they share their fixtures."""
WAITS, LEAST_BUSY = 60.0, 15.0
"""A process that twice in so many seconds neither computes nor waits for a processor for this long is ended."""


@dataclass(frozen=True)
class Plan:
    """Which modules, by their paths below `source`, and which tests; `first` are tests by module, of which the start
    of their names is enough: they come first, and also try what is outside of functions."""

    root: Path
    source: str
    tests: list[str]
    modules: list[str]
    first: dict[str, list[str]] = field(default_factory=dict)

    def file(self, module: str) -> Path:
        return self.root / self.source / module

    @property
    def package(self) -> str:
        return Path(self.source).name

    def name(self, module: str) -> str:
        """What Python imports it as."""
        return ".".join((self.package, *Path(module).with_suffix("").parts))

    def mutants(self) -> list[Mutant]:
        return [one for name in self.modules for one in mutants_of(self.file(name).read_text(encoding="utf-8"), name)]


@dataclass(frozen=True)
class Baseline:
    """What the tests do without a mutant: the seconds of each, those of the fixtures of a file, and which tests run a
    line, by module and line. A file of tests stands there for all of its tests, where their fixtures run the line."""

    seconds: dict[str, float]
    fixtures: dict[str, float]
    lines: dict[str, dict[str, list[str]]]
    imported: list[str]

    @cached_property
    def _tests_of(self) -> dict[str, list[str]]:
        return {file: list(tests) for file, tests in groupby(sorted(self.seconds, key=_file), _file)}

    @cached_property
    def _places(self) -> dict[str, int]:
        return {test: place for place, test in enumerate(self.seconds)}

    def tests(self, mutant: Mutant, first: Sequence[str]) -> list[str]:
        """The tests of the mutant's lines: the cheapest, then the others, each as they stand in their files."""
        of = self.lines.get(mutant.module, {})
        at = map(str, mutant.lines) if mutant.function else of
        found = {test for line in at for one in of.get(line, ()) for test in self._tests_of.get(one, [one])}
        early = {test for test in self.seconds if test.startswith(tuple(first))}
        found |= set() if mutant.function else early
        spent, chosen, files = 0.0, list[str](), set[str]()
        for test in sorted(found, key=lambda test: (test not in early, self.seconds[test])):
            spent += self.seconds[test] + (0.0 if _file(test) in files else self.fixtures[_file(test)])
            if chosen and spent > MOST_SECONDS:
                break
            chosen.append(test)
            files.add(_file(test))
        return [test for part in (chosen[:PROBES], chosen[PROBES:]) for test in sorted(part, key=self._places.get)]  # type: ignore[arg-type]

    def limit(self, tests: Iterable[str]) -> float:
        """The seconds of computing after which a mutant does not end any more."""
        return 60 + 5 * sum(self.seconds[test] for test in tests)


def _file(test: str) -> str:
    return test.partition("::")[0]


def tried(plan: Plan, mutants: Sequence[Mutant], tell: Callable[[Mutant, str], None]) -> None:
    """Tells how the tests end with each mutant, as soon as that is known."""
    baseline = _measured(plan)
    _import_others(plan, baseline.imported)
    for module, group in groupby((one for one in mutants if not one.function), lambda one: one.module):
        source = plan.file(module).read_text(encoding="utf-8")
        control, fair = Mutant(module, "", "", "", (), source), None
        for mutant in (control, *group):
            tests = baseline.tests(mutant, plan.first.get(module, ()))
            end = _forked(lambda mutant=mutant, tests=tests: _outside(plan, mutant, tests), baseline.limit(tests))  # type: ignore[misc]
            if mutant is control:
                fair = end == SURVIVED
            else:
                tell(mutant, SURVIVED if not tests else end if fair else _unfair(tests))
    if inside := [mutant for mutant in mutants if mutant.function]:
        _with_tests(plan, plan.tests, lambda session: _inside(plan, baseline, session, inside, tell))


def _unfair(tests: Sequence[str]) -> str:
    return f"{UNTRIED}, as the {len(tests)} tests up to {tests[-1]} fail without a mutant, too"


def _forked(work: Callable[[], int], seconds: float = 0.0) -> str:
    """How a process ends that does this work. One that computes longer than `seconds`, or only waits, is ended; without
    a number it may take its time."""
    child = os.fork()
    if not child:
        code = 3
        try:
            if seconds:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
                _end_where_it_waits()
            code = work()
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return ENDLESS if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL) else KILLED
    return _ENDS.get(os.WEXITSTATUS(status), UNTRIED)


def _busy() -> float:
    """The seconds of this process's threads, with those in which others had the processor, where the system tells."""
    total = 0
    for thread in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError):  # it has ended meanwhile
            computed, queued, _ = thread.read_text().split()
            total += int(computed) + int(queued)
    return total / 1e9 or time.process_time()


def _end_where_it_waits() -> None:
    """Time in which somebody stopped the process, or the whole machine, does not count."""
    busy, looked, quiet = _busy(), time.monotonic(), 0

    def look(*_: object) -> None:
        nonlocal busy, looked, quiet
        last, busy, since, looked = busy, _busy(), looked, time.monotonic()
        stopped = looked - since > 1.5 * WAITS
        quiet = 0 if stopped or busy - last >= LEAST_BUSY else quiet + 1
        if quiet == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, WAITS, WAITS)


class _Collected:
    """A plugin that does `then` with the collected tests, in place of running them."""

    def __init__(self, then: Callable[[pytest.Session], None]) -> None:
        self._then = then

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Examples that fail are not made smaller: that one fails is enough."""
        if "hypothesis" in sys.modules:
            from hypothesis import Phase, settings

            settings.register_profile("mutants", settings(), phases=[Phase.explicit, Phase.generate])
            settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._then(session)
        return True


def _with_tests(plan: Plan, tests: Iterable[str], then: Callable[[pytest.Session], None]) -> None:
    fast = ["-m", "not process and not slow and not browser"]
    more = ["-p", "no:terminal", "-p", "no:cacheprovider", "--rootdir", str(plan.root)]
    more += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins have been imported before
    if pytest.main([*fast, *more, *tests], plugins=[_Collected(then)]):
        raise RuntimeError(f"the tests cannot be collected: run `pytest {' '.join(tests)}`")


def _failing(items: Sequence[pytest.Item], last: Any = None) -> pytest.Item | None:
    """Runs tests up to the first that fails. Fixtures of the session stay where it is `last`."""
    for item, after in zip(items, [*items[1:], last], strict=True):
        if any(report.failed for report in runtestprotocol(item, nextitem=after, log=False)):
            return item
    return None


def _measured(plan: Plan) -> Baseline:
    """Runs every test once, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "baseline.json"

        def work() -> int:
            _with_tests(plan, plan.tests, lambda session: _measure(plan, session, target))
            return 0

        if _forked(work) != SURVIVED or not target.exists():
            sys.exit("the tests fail without a mutant, too: mend them first")
        return Baseline(**json.loads(target.read_text(encoding="utf-8")))


class _Contexts:
    """Tells what a test runs from what its fixtures run, which others may share."""

    def __init__(self, traced: coverage.Coverage) -> None:
        self._traced = traced

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self._traced.switch_context(item.nodeid)


def _measure(plan: Plan, session: pytest.Session, target: Path) -> None:
    files = {str(plan.file(module)): module for module in plan.modules}
    traced = coverage.Coverage(data_file=None, include=list(files), config_file=False)
    session.config.pluginmanager.register(_Contexts(traced))
    traced.start()
    seconds, fixtures = dict[str, float](), defaultdict[str, float](float)
    for item, after in zip(session.items, [*session.items[1:], None], strict=True):
        traced.switch_context(_file(item.nodeid))
        begin = time.process_time()
        reports = runtestprotocol(item, nextitem=after, log=False)
        if failed := [report.longreprtext for report in reports if report.failed]:
            sys.exit(f"{item.nodeid} fails without a mutant: {failed[0]}")
        took, setup = time.process_time() - begin, reports[0].duration
        seconds[item.nodeid] = max(0.001, took - setup)
        fixtures[_file(item.nodeid)] = max(fixtures[_file(item.nodeid)], min(took, setup))
    traced.stop()
    data = traced.get_data()
    lines = {
        module: {str(line): sorted(filter(None, who)) for line, who in data.contexts_by_lineno(path).items()}
        for path, module in files.items()
    }
    found = {"seconds": seconds, "fixtures": fixtures, "lines": lines, "imported": sorted(sys.modules)}
    target.write_text(json.dumps(found), encoding="utf-8")


def _import_others(plan: Plan, names: Iterable[str]) -> None:
    """Imports what the tests import of installed packages, but for those that pytest must import itself."""
    for name in names:
        if name in sys.modules or name.startswith((plan.package, "hypothesis")) or "pytest" in name:
            continue
        try:
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.origin and Path(spec.origin).is_relative_to(sys.prefix):
                importlib.import_module(name)
        except Exception:  # what only another module can import
            continue
    gc.freeze()


class _Finder:
    """Imports one module from another source."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name, self._path, self._code = name, path, compile(source, str(path), "exec", dont_inherit=True)

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name != self._name:
            return None
        loader = SourceFileLoader(name, str(self._path))
        setattr(loader, "get_code", lambda _: self._code)  # noqa: B010
        return importlib.util.spec_from_file_location(name, self._path, loader=loader)


def _outside(plan: Plan, mutant: Mutant, tests: list[str]) -> int:
    """Imports a mutant, and runs tests: 1 where one fails, or where it cannot be imported."""
    sys.meta_path.insert(0, _Finder(plan.name(mutant.module), plan.file(mutant.module), mutant.source))
    try:
        _with_tests(plan, tests, lambda session: os._exit(int(_failing(session.items) is not None)))
    except BaseException:
        return 1
    return 1


def _inside(
    plan: Plan,
    baseline: Baseline,
    session: pytest.Session,
    mutants: Sequence[Mutant],
    tell: Callable[[Mutant, str], None],
) -> None:
    """Tries mutants of functions, in forks of this process. What has killed one of a function comes first for more. A
    test kills only if it holds without the mutant, after the same tests."""
    items = {item.nodeid: item for item in session.items}
    for name in baseline.imported:
        if name.startswith(plan.package):
            importlib.import_module(name)
    folders = groupby(sorted(items), lambda test: Path(_file(test)).parent)
    for _, group in folders:  # one of each folder sets up what the session has
        _failing([items[min(group, key=baseline.seconds.__getitem__)]], session)
    base = Path(session.config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined]
    kept, note, killers = {*base.rglob("*")}, base / "killer", defaultdict[tuple[str, str], list[str]](list)
    functions = _functions(plan)

    def run(tests: Sequence[str], change: Callable[[], None] = lambda: None) -> tuple[str, str]:
        """How tests end after a change, and the test that failed."""

        def work() -> int:
            change()
            failed = _failing([items[test] for test in tests], session)
            if failed is not None:
                note.write_text(failed.nodeid, encoding="utf-8")
            return int(failed is not None)

        end = _forked(work, baseline.limit(tests))
        killer = note.read_text(encoding="utf-8") if note.exists() else ""
        for new in sorted({*base.rglob("*")} - kept):
            shutil.rmtree(new) if new.is_dir() and not new.is_symlink() else new.unlink(missing_ok=True)
        return end, killer

    @cache
    def hold(*tests: str) -> bool:
        return run(tests)[0] == SURVIVED

    for mutant in mutants:
        place, path = (mutant.module, mutant.function), str(plan.file(mutant.module))
        tests = baseline.tests(mutant, plan.first.get(mutant.module, ()))
        tests.sort(key=lambda test: test not in killers[place])

        def change() -> None:
            code = code_of(mutant.source, path, mutant.function)  # noqa: B023
            for function in functions[path, mutant.function]:  # noqa: B023
                function.__code__ = code

        end, killer = run(tests, change) if tests and functions[path, mutant.function] else (SURVIVED, "")
        asked = tests[: tests.index(killer) + 1] if killer else tests
        if end in (KILLED, ENDLESS) and not hold(*asked):
            end = _unfair(asked)
        elif killer:
            killers[place] = [killer, *(one for one in killers[place] if one != killer)][:3]
        tell(mutant, end)


def _functions(plan: Plan) -> dict[tuple[str, str], list[types.FunctionType]]:
    """All functions of the modules by file and name, however they are wrapped."""
    gc.unfreeze()
    files, found = {str(plan.file(module)) for module in plan.modules}, defaultdict(list)
    for one in gc.get_objects():
        if type(one) is types.FunctionType and one.__code__.co_filename in files:
            found[one.__code__.co_filename, one.__code__.co_qualname].append(one)
    gc.collect()
    gc.freeze()
    return found


def code_of(source: str, path: str, function: str) -> types.CodeType:
    """The code of a function of a module, by its qualified name; of several the last, as for overloads."""
    codes, found = [compile(source, path, "exec", dont_inherit=True)], list[types.CodeType]()
    for code in codes:
        found += [code] if code.co_qualname == function else []
        codes += [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return found[-1]
