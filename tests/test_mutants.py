"""The mutation tests themselves, on a toy: which mutants there are, which are killed, and what is said of survivors."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mutant_changes import Mutant, mutants_of
from mutant_runs import UNTRIED

ROOT = Path(__file__).parents[1]
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "mutants.py"))

TOY = '''"""A toy."""

from __future__ import annotations

LIMIT = 3
WORDS = "a sentence is left alone"


class Till:
    """Holds coins."""

    coins: int = 0

    def take(self, amount: int, *, by: str = "anybody") -> int:
        """Takes coins, not too many."""
        if not 0 < amount <= LIMIT:
            raise ValueError(f"{amount} cannot be taken")
        self.coins += amount
        return self.coins


def idle(few: int) -> int:
    return abs(few)
'''
MORE = """from threading import Event


def waits(few: int) -> None:
    Event().wait(None if few > 9 else 0.0)


def more(few: int) -> int:
    return few + 7
"""
"""What ends by itself no more, and what only a test looks at that needs another one before it."""
TESTS = """from toy.till import LIMIT, Till, idle
import pytest


def test_till():
    till = Till()
    assert LIMIT == 3 and till.coins == 0
    assert [till.take(1), till.take(3)] == [1, 4]
    for wrong in (0, -1, 4):
        with pytest.raises(ValueError):
            till.take(wrong)
    assert till.coins == 4


def test_idle():
    assert idle(2) == 2
"""
MORE_TESTS = """from toy.more import more, waits
import pytest


@pytest.fixture(scope="module")
def box():
    return []


def test_fills_the_box(box):
    box.append(1)


def test_more(box):
    assert box and more(2) == 9


def test_waits():
    waits(1)
"""


def changes(source: str) -> dict[str, list[str]]:
    """The changed lines by the line that they were."""
    found: dict[str, list[str]] = {}
    for mutant in mutants_of(source, "toy.py"):
        compile(mutant.source, "toy.py", "exec")
        found.setdefault(mutant.before, []).append(mutant.after)
    return found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = a < b", {"x = (a <= b)", "x = (a >= b)"}),
        ("x = a == 7", {"x = (a != 7)", "x = a == 8", "x = a == 6"}),
        ("x = a in b is not c", {"x = (a not in b is not c)", "x = (a in b is c)"}),
        ("x = a and b", {"x = (a or b)", "x = (a)", "x = (b)"}),
        ("x = not a", {"x = (a)"}),
        ("x = a + b", {"x = (a - b)"}),
        ("x = a if b else c", {"x = a if (not b) else c"}),
        ("x = f(a, b, a)", {"x = (f(b, a, a))", "x = (f(a, a, b))"}),
        ("x = min(a, b)", set()),
        ("x = True", {"x = False"}),
        ("x = 'word'", {"x = 'wordXX'"}),
        ("x = 'two words'", set()),
        ("x = f'{a} + {b}'", set()),
        ("x = {a, b}", {"x = ({b})", "x = ({a})"}),
        ("x = q.where(a, b)", {"x = (q)", "x = (q.where(b))", "x = (q.where(a))"}),
        ("x = [a for a in b if c]", {"x = [a for a in b if True]", "x = [a for a in b if (not c)]"}),
        ("x = zip(a, b, strict=True)", {"x = (zip(b, a, strict=True))"}),
        ("x: Annotated[int, Field(ge=1)] = 5", {
            "x: Annotated[int, Field(ge=2)] = 5", "x: Annotated[int, Field(ge=0)] = 5",
            "x: Annotated[int, Field(ge=1)] = 6", "x: Annotated[int, Field(ge=1)] = 4",
        }),
        ("x += a", {"pass", "x -= a"}),
        ("del x", {"pass"}),
        ("assert x", set()),
        ("raise Error(1 + 1)", {"pass"}),
        ("call()", {"pass"}),
        ("import x", set()),
        ("__all__ = ['x']", set()),
    ],
)  # fmt: skip
def test_the_mutants_of_a_line(line: str, expected: set[str]) -> None:
    assert set(changes(line).get(line, [])) == expected


def test_the_mutants_of_a_module_and_where_they_are() -> None:
    mutants = mutants_of(TOY, "till.py")
    assert {(mutant.function, mutant.before) for mutant in mutants} == {
        ("", "LIMIT = 3"),
        ("", "coins: int = 0"),
        ("", 'def take(self, amount: int, *, by: str = "anybody") -> int:'),
        ("Till.take", "if not 0 < amount <= LIMIT:"),
        ("Till.take", 'raise ValueError(f"{amount} cannot be taken")'),
        ("Till.take", "self.coins += amount"),
        ("Till.take", "return self.coins"),
        ("idle", "return abs(few)"),
    }
    lines = TOY.splitlines()
    assert all(mutant.before in lines[mutant.lines[0] - 1] for mutant in mutants)
    assert all(mutant.source != TOY for mutant in mutants)


def mutant(name: str, module: str = "a.py") -> Mutant:
    return Mutant(module, "f", name, name + "!", (1,), name)


def test_every_survivor_must_be_named_and_most_must_be_killed() -> None:
    ends = {mutant(str(number)): "killed" for number in range(38)} | {mutant("38"): "endless", mutant("39"): "survived"}
    lines, enough = SCRIPT["report"](ends, set(), 40)
    assert not enough and "survived: a.py f: 39  →  39!" in lines
    known = SCRIPT["named"]([{"reason": "the same", "mutants": [["a.py", "f", "39", "39!"]]}])
    lines, enough = SCRIPT["report"](ends, known, 40)
    assert enough and "39 of 40 mutants are killed: 97.50%" in lines
    more = known | {("a.py", "f", "38", "38!")}
    assert "named, and no survivor: a.py | f | 38 | 38!" in SCRIPT["report"](ends, more, 40)[0]
    few = {mutant("1"): "killed", mutant("39"): "survived"}
    assert not SCRIPT["report"](few, known, 2)[1]
    lines, _ = SCRIPT["report"](few, known, 40)
    assert "1 of 2 mutants are killed: 50.00% of a sample of all 40 (95 % interval: 9.5% to 90.5%)" in lines
    with pytest.raises(AssertionError):
        SCRIPT["named"]([{"reason": " ", "mutants": []}])


def test_a_sample_has_some_of_each_module_and_is_repeated_by_its_seed() -> None:
    several = [mutant(str(number), module) for module in ("a.py", "b.py") for number in range(10)]
    chosen = SCRIPT["sampled"](several, 3, 5)
    assert [one.module for one in chosen] == ["a.py"] * 3 + ["b.py"] * 3 and chosen == SCRIPT["sampled"](several, 3, 5)
    assert SCRIPT["sampled"](several, 99, 5) == several


def test_the_settings_name_modules_that_are_there() -> None:
    plan = SCRIPT["plan_of"]()[0]
    assert all(plan.file(module).is_file() for module in plan.modules)
    assert all((ROOT / test).exists() for test in [*plan.tests, *(one for few in plan.first.values() for one in few)])


@pytest.mark.process
def test_mutants_of_a_toy_are_tried(tmp_path: Path) -> None:
    """Inside and outside of functions. What equals the original survives, and what no test looks at. A process that
    only waits is ended, and a test that fails without a mutant, too, kills none."""
    (tmp_path / "src" / "toy").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    files = {"src/toy/__init__.py": "", "src/toy/till.py": TOY, "src/toy/more.py": MORE}
    for path, text in (files | {"tests/test_till.py": TESTS, "tests/test_more.py": MORE_TESTS}).items():
        (tmp_path / path).write_text(text, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = src\nmarkers =\n  process\n  slow\n  browser\n")
    program = (
        f"import sys, json; sys.path.insert(0, {str(ROOT / 'tests' / 'helpers')!r})\n"
        "from pathlib import Path\nimport mutant_runs\nfrom mutant_runs import Plan, tried\n"
        "mutant_runs.WAITS, mutant_runs.LEAST_BUSY = 2.0, 0.2\n"
        "plan, ends = Plan(Path.cwd(), 'src/toy', ['tests'], ['till.py', 'more.py']), {}\n"
        "tried(plan, plan.mutants(), lambda mutant, end: ends.update({f'{mutant.function}: {mutant.after}': end}))\n"
        "Path('ends.json').write_text(json.dumps(ends))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    ends = json.loads((tmp_path / "ends.json").read_text(encoding="utf-8"))
    untried = f"{UNTRIED}, as the 1 tests up to tests/test_more.py::test_more fail without a mutant, too"
    assert {after: end for after, end in ends.items() if end != "killed"} == {
        "idle: return (few)": "survived",
        ": def take(self, amount: int, *, by: str = 'anybodyXX') -> int:": "survived",
        "waits: pass": "survived",
        "waits: Event().wait(None if (few >= 9) else 0.0)": "survived",
        "waits: Event().wait(None if few > 8 else 0.0)": "survived",
        "waits: Event().wait(None if few > 10 else 0.0)": "survived",
        "waits: Event().wait(None if few > 9 else 1.0)": "survived",
        "waits: Event().wait(None if (few <= 9) else 0.0)": "endless",
        "more: return None": untried,
        "more: return (few - 7)": untried,
        "more: return few + 8": untried,
        "more: return few + 6": untried,
    }
    assert len(ends) > 20
