"""The mutants of a module: every small change of its code that a test should notice.

Comparisons and their bounds, arithmetic, `and` and `or`, negations, constants, arguments in another order, a query
without one of its conditions, and statements, exceptions and results that are left out. Left alone are what people
read (messages, docstrings, sentences), annotations but for limits in them, decorators, assertions, `strict=`, imports.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_COMPARED: dict[type, tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_COMPUTED: dict[type, type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CHAINED = {"where", "order_by", "limit", "with_for_update", "execution_options", "distinct", "strip", "lower", "copy"}
"""Methods that give what they were asked of, a little different."""
_IN_ANY_ORDER = {"min", "max", "or_", "where"}
_WRAPPED = {"sorted", "set", "reversed", "abs", "bool"}

Name = tuple[str, str, str, str]
"""A mutant's module, function, line and changed line."""


@dataclass(frozen=True)
class Mutant:
    """`before` and `after` are the changed lines without their indentation, `lines` the numbers of the statement, and
    `function` is the qualified name of what it is in, empty outside of all."""

    module: str
    function: str
    before: str
    after: str
    lines: tuple[int, ...]
    source: str

    def __str__(self) -> str:
        return f"{self.module} {self.function or '(module)'}: {self.before}  →  {self.after}"

    @property
    def name(self) -> Name:
        return self.module, self.function, self.before, self.after


def mutants_of(source: str, module: str) -> list[Mutant]:
    """All mutants of a module's source, in its order; two with the same text are one."""
    walk = _Walk(source, module)
    walk.body(ast.parse(source).body, "", inside=False)
    return list({mutant.source: mutant for mutant in walk.found}.values())


class _Walk:
    def __init__(self, source: str, module: str) -> None:
        self.found: list[Mutant] = []
        self._source, self._module = source.encode(), module
        self._starts = [0]
        for line in self._source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def body(self, statements: list[ast.stmt], name: str, *, inside: bool) -> None:
        """The mutants of statements in a class or a function of this name; `inside` says that it is a function."""
        for one in statements:
            self._function, self._lines = name if inside else "", _header(one)
            if isinstance(one, ast.ClassDef):
                self.body(one.body, f"{name}.{one.name}".lstrip("."), inside=inside)
            elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                for value in [*one.args.defaults, *filter(None, one.args.kw_defaults)]:
                    self._visit(value)
                own = name if inside else f"{name}.{one.name}".lstrip(".")
                self.body(one.body, own, inside=True)
            elif not _is_left_alone(one):
                self._statement(one)
                for field, value in ast.iter_fields(one):
                    if field in ("body", "orelse", "finalbody"):
                        self.body(value, name, inside=inside)
                    elif field == "handlers":
                        for handler in value:
                            self.body(handler.body, name, inside=inside)
                    elif not isinstance(one, ast.Raise):
                        self._function, self._lines = name if inside else "", _header(one)
                        self._field(one, field, value, outside=not inside)

    def _field(self, statement: ast.stmt, field: str, value: Any, *, outside: bool) -> None:
        """Of an annotation, and of an alias of a type, limits alone are looked at: the calls in it."""
        typed = field == "annotation" or (outside and field == "value" and isinstance(value, ast.Subscript))
        for node in value if isinstance(value, list) else [value]:
            if typed:
                for call in ast.walk(node):
                    if isinstance(call, ast.Call):
                        self._visit(call)
            elif isinstance(node, ast.AST) and not isinstance(node, ast.operator):
                self._visit(node)

    def _statement(self, one: ast.stmt) -> None:
        match one:
            case ast.Expr() | ast.Raise() | ast.Delete() | ast.Continue() | ast.Break():
                self._change(one, "pass")
            case ast.Return(value=None):
                self._change(one, "pass")
            case ast.Return(value=value) if not (isinstance(value, ast.Constant) and value.value is None):
                self._change(one, "return None")
            case ast.AugAssign():
                self._change(one, "pass")
                if other := _COMPUTED.get(type(one.op)):
                    self._change(one, ast.unparse(_with(one, "op", other())))
            case ast.Assign(targets=targets) if self._function and _kept(targets):
                self._change(one, "pass")
            case ast.If(test=test) | ast.While(test=test):
                self._negate(test)
            case _:
                pass

    def _visit(self, node: ast.AST) -> None:
        match node:
            case ast.JoinedStr():
                return
            case ast.Lambda(body=body):
                self._visit(body)
                return
            case ast.Compare(ops=ops):
                for place, op in enumerate(ops):
                    for other in _COMPARED[type(op)]:
                        self._put(node, _with(node, "ops", [*ops[:place], other(), *ops[place + 1 :]]))
            case ast.BoolOp(op=op, values=values):
                self._put(node, _with(node, "op", ast.Or() if isinstance(op, ast.And) else ast.And()))
                for place in range(len(values)):
                    self._put(node, _with(node, "values", values[:place] + values[place + 1 :]))
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                self._put(node, operand)
            case ast.BinOp(op=op, left=left, right=right) if not _is_text(left) and not _is_text(right):
                if other_op := _COMPUTED.get(type(op)):
                    self._put(node, _with(node, "op", other_op()))
            case ast.IfExp(test=test):
                self._negate(test)
            case ast.comprehension(ifs=ifs):
                for test in ifs:
                    self._change(test, "True")
                    self._negate(test)
            case ast.Call():
                self._call(node)
            case ast.Set(elts=elements) if len(elements) > 1:
                for place in range(len(elements)):
                    self._put(node, _with(node, "elts", elements[:place] + elements[place + 1 :]))
            case ast.Constant(value=value):
                for other_value in _others(value):
                    self._change(node, repr(other_value))
            case _:
                pass
        for child in ast.iter_child_nodes(node):
            if not (isinstance(child, ast.keyword) and child.arg == "strict"):
                self._visit(child)

    def _call(self, node: ast.Call) -> None:
        args, name = node.args, ast.unparse(node.func).rpartition(".")[2]
        for place, (one, other) in enumerate(pairwise([] if name in _IN_ANY_ORDER else args)):
            if not isinstance(one, ast.Starred) and not isinstance(other, ast.Starred):
                self._put(node, _with(node, "args", [*args[:place], other, one, *args[place + 2 :]]))
        if isinstance(node.func, ast.Attribute) and node.func.attr in _CHAINED:
            self._put(node, node.func.value)
            for place in range(len(args) if len(args) > 1 else 0):
                self._put(node, _with(node, "args", args[:place] + args[place + 1 :]))
        if isinstance(node.func, ast.Name) and node.func.id in _WRAPPED and len(args) == 1:
            self._put(node, args[0])

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
            self._change(test, f"(not {ast.unparse(test)})")

    def _put(self, node: ast.expr, other: ast.expr) -> None:
        if ast.dump(node) != ast.dump(other):
            self._change(node, f"({ast.unparse(other)})")

    def _change(self, node: ast.stmt | ast.expr, text: str) -> None:
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin, end = self._starts[node.lineno - 1], self._starts[node.end_lineno]
        start, stop = begin + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset
        before, changed = self._source[begin:end], self._source[begin:start] + text.encode() + self._source[stop:end]
        if b" ".join(before.split()) == b" ".join(changed.split()):
            return
        source = (self._source[:begin] + changed + self._source[end:]).decode()
        before_text, after_text = (" ".join(part.decode().split()) for part in (before, changed))
        self.found.append(Mutant(self._module, self._function, before_text, after_text, self._lines, source))


def _header(one: ast.stmt) -> tuple[int, ...]:
    """The lines of a statement without those of its body."""
    body = getattr(one, "body", None)
    last = max(one.lineno, body[0].lineno - 1) if isinstance(body, list) else one.end_lineno or one.lineno
    return tuple(range(one.lineno, last + 1))


def _is_left_alone(one: ast.stmt) -> bool:
    if isinstance(one, ast.Import | ast.ImportFrom | ast.Assert | ast.Global | ast.Nonlocal | ast.Pass):
        return True
    if isinstance(one, ast.Expr):
        return isinstance(one.value, ast.Constant)
    if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING":
        return True
    return isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__all__"


def _kept(targets: list[ast.expr]) -> bool:
    """Whether something outlives the function that is assigned to."""
    parts = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return any(isinstance(part, ast.Attribute | ast.Subscript) for part in parts)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _others(value: object) -> Iterator[object]:
    match value:
        case bool():
            yield not value
        case int():
            yield from (value + 1, value - 1)
        case float():
            yield value * 2 if value else 1.0
        case str() if " " not in value:
            yield value + "XX"
        case bytes():
            yield value + b"XX"
        case _:
            return


def _with(node: Any, field: str, value: object) -> Any:
    """The same node with another value in one field; an `and` of one thing is that thing."""
    if field == "values" and isinstance(value, list) and len(value) == 1:
        return value[0]
    other = copy.copy(node)
    setattr(other, field, value)
    return other
