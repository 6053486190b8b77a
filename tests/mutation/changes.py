"""The mutants of a module: one change each that may change a verdict, never a text of an error."""

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any, Final


def _both_ways(*pairs: tuple[Any, Any]) -> Mapping[Any, Any]:
    return {one: other for a, b in pairs for one, other in ((a, b), (b, a))}


_NEGATED: Final = _both_ways(
    (ast.Eq, ast.NotEq),
    (ast.In, ast.NotIn),
    (ast.Is, ast.IsNot),
    (ast.Lt, ast.GtE),
    (ast.LtE, ast.Gt),
)
_BOUNDARY: Final = _both_ways((ast.Lt, ast.LtE), (ast.Gt, ast.GtE))
_OPERATOR: Final = _both_ways((ast.And, ast.Or), (ast.Add, ast.Sub), (ast.BitAnd, ast.BitOr))
_FUNCTION: Final = _both_ways(("any", "all"), ("min", "max"))
_CLOCKS: Final = ("now()", "monotonic()")
_DESCRIBES: Final = ("trace(", "_logger.")
"""Statements that describe a verdict are not changed."""
_CLOSED: Final = (ast.Raise, ast.JoinedStr, ast.FunctionDef, ast.ClassDef, ast.arguments)
"""Their content is not changed: texts of errors, inner functions, and defaults of arguments."""

_Change = tuple[str, Any]
"""The kind of a change, and the node or the statements that replace the original."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of a function, or of a constant of a module."""

    name: str
    """`module:owner:kind:ordinal`, without lines, which move. The owner is what is changed."""
    change: str
    path: Path
    compile: Callable[[], CodeType]
    """Compiles the changed module."""

    @property
    def module(self) -> str:
        """Return the name of the module."""
        return self.name.split(":")[0]

    @property
    def owner(self) -> str:
        """Return the qualified name of the function, or the name of the constant."""
        return self.name.split(":")[1]


def find_mutants(path: Path, module: str) -> Iterator[Mutant]:
    """Yield the mutants of a module, in the order of its source."""
    tree = ast.parse(path.read_text())
    ordinals: Counter[str] = Counter()
    for owner, node in _owners(tree.body):
        for place, key, (kind, new) in _changes_of(node, tree):
            if owner.isupper() and kind not in {"constant", "drop"}:
                continue
            group = f"{module}:{owner}:{kind}"
            ordinals[group] += 1
            yield Mutant(
                name=f"{group}:{ordinals[group]}",
                change=f"{_text(place[key])} -> {_text(new)}",
                path=path,
                compile=partial(_compile, tree, path, place, key, new),
            )


def _compile(tree: ast.Module, path: Path, place: Any, key: Any, new: object) -> CodeType:  # noqa: ANN401 - a list or a dictionary
    old, place[key] = place[key], new
    try:
        return compile(ast.fix_missing_locations(tree), str(path), "exec")
    finally:
        place[key] = old


def _text(code: ast.AST | list[ast.AST]) -> str:
    return "; ".join(map(ast.unparse, code)) if isinstance(code, list) else ast.unparse(code)


def _owners(body: Sequence[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """Yield all functions, and the assignments of the module's constants."""
    for node in body:
        match node:
            case ast.FunctionDef():
                yield prefix + node.name, node
                yield from _owners(node.body, f"{prefix}{node.name}.<locals>.")
            case ast.ClassDef():
                yield from _owners(node.body, f"{prefix}{node.name}.")
            case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
                if name.isupper() and not prefix:
                    yield name, node


def _changes_of(owner: ast.stmt, tree: ast.Module) -> Iterator[tuple[Any, Any, _Change]]:
    """Yield each change below a function or assignment, with place and key of the original."""
    times, tuples = _times(owner), _named_tuples(owner, tree)
    for place, key, node, parent in _nodes(owner):
        changes = _statements if isinstance(node, ast.stmt) else _expressions
        yield from ((place, key, change) for change in changes(node, parent))
        match node:
            case ast.Name(name, ast.Load()) if name in times:
                yield place, key, ("reread", times[name])
            case ast.Starred(ast.Name(name)) if name in tuples:
                for kind, fields in _drops_and_swaps(tuples[name]):
                    items = ast.parse("".join(f"{name}.{field}," for field in fields), mode="eval")
                    yield place, key, (kind, ast.Starred(items.body, ast.Load()))
            case ast.Expr(ast.Call()) if isinstance(place, list):
                match place[key + 1 : key + 2]:
                    case [ast.Expr(ast.Call()) as following] if not _describes(following):
                        yield place, slice(key, key + 2), ("order", [following, node])


def _nodes(parent: ast.AST) -> Iterator[tuple[Any, Any, ast.AST, ast.AST]]:
    """Yield each node below a node: the list or dictionary with it, its key, itself, its parent."""
    for field, value in ast.iter_fields(parent):
        if field in {"decorator_list", "returns", "annotation"}:
            continue
        places = enumerate(value) if isinstance(value, list) else [(field, value)]
        for key, node in places:
            if not isinstance(node, ast.AST) or _describes(node):
                continue
            yield value if isinstance(value, list) else vars(parent), key, node, parent
            if not isinstance(node, _CLOSED):
                yield from _nodes(node)


def _describes(node: ast.AST) -> bool:
    return ast.unparse(node).startswith(_DESCRIBES)


def _times(owner: ast.stmt) -> Mapping[str, ast.expr]:
    """Return the variables of a function that hold a time, with the call that reads the clock."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    for node in ast.walk(owner):
        match node:
            case ast.Assign([ast.Tuple(names)], ast.Tuple(values)):
                pairs += zip(names, values, strict=True)
            case ast.Assign([target], value):
                pairs.append((target, value))
    return {ast.unparse(a): b for a, b in pairs if ast.unparse(b).endswith(_CLOCKS)}


def _named_tuples(owner: ast.stmt, tree: ast.Module) -> Mapping[str, list[str]]:
    """Return the fields of each argument of a function that has a class of the module."""
    classes = {
        node.name: [ast.unparse(e.target) for e in node.body if isinstance(e, ast.AnnAssign)]
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    arguments = owner.args.args if isinstance(owner, ast.FunctionDef) else []
    types = {each.arg: ast.unparse(each.annotation) for each in arguments if each.annotation}
    return {name: classes[kind] for name, kind in types.items() if kind in classes}


def _drops_and_swaps(items: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the list without each item, and with each two neighbors swapped."""
    yield from (("drop", [*items[:i], *items[i + 1 :]]) for i in range(len(items)))
    for i in range(len(items) - 1):
        yield "swap", [*items[:i], items[i + 1], items[i], *items[i + 2 :]]


def _with(node: ast.AST, **fields: object) -> ast.AST:
    new = copy(node)
    vars(new).update(fields)
    return new


def _statements(node: ast.AST, _: ast.AST) -> Iterator[_Change]:
    match node:
        case ast.Raise():
            yield "raise", ast.Pass()
        case ast.Expr(ast.Call()):
            yield "call", ast.Pass()


def _expressions(node: ast.AST, parent: ast.AST) -> Iterator[_Change]:
    match node:
        case ast.Constant(bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield "constant", ast.Constant(value + 1)
        case ast.UnaryOp(ast.Not(), operand):
            yield "negate", operand
        case ast.BoolOp() | ast.BinOp() if type(node.op) in _OPERATOR:
            yield "operator", _with(node, op=_OPERATOR[type(node.op)]())
        case ast.Compare():
            yield from _comparisons(node)
        case ast.Call():
            yield from _calls(node)
        case ast.Tuple() | ast.List() | ast.Set() | ast.Dict():
            yield from _displays(node, parent)
    conditions = [getattr(parent, "test", None), *getattr(parent, "ifs", [])]
    is_condition = node in conditions or isinstance(parent, ast.BoolOp)
    if is_condition and isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.NamedExpr)):
        yield "negate", ast.UnaryOp(ast.Not(), node)


def _comparisons(node: ast.Compare) -> Iterator[_Change]:
    match node:
        case ast.Compare(_, [operator]):
            yield "negate", _with(node, ops=[_NEGATED[type(operator)]()])
        case _:
            yield "negate", ast.UnaryOp(ast.Not(), node)
    for i, operator in enumerate(node.ops):
        if other := _BOUNDARY.get(type(operator)):
            yield "boundary", _with(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
    match node:
        case ast.Compare(ast.Tuple(left), _, [ast.Tuple(right)]):
            sides = zip(_drops_and_swaps(left), _drops_and_swaps(right), strict=True)
            for (kind, one), (_, other) in sides:
                if kind == "drop":
                    pair = [ast.Tuple(elements, ast.Load()) for elements in (one, other)]
                    yield kind, _with(node, left=pair[0], comparators=pair[1:])


def _calls(node: ast.Call) -> Iterator[_Change]:
    """Swap neighbors that are fields of one object; swap and drop each input of an HMAC."""
    match node.func:
        case ast.Name(name) if name in _FUNCTION:
            yield "function", _with(node, func=ast.Name(_FUNCTION[name], ast.Load()))
        case ast.Name("encode_fields"):
            yield from (
                (kind, _with(node, args=args)) for kind, args in _drops_and_swaps(node.args)
            )
            return
    for i, neighbors in enumerate(zip(node.args, node.args[1:], strict=False)):
        match neighbors:
            case ast.Attribute(one), ast.Attribute(other) if ast.dump(one) == ast.dump(other):
                yield (
                    "swap",
                    _with(node, args=[*node.args[:i], *neighbors[::-1], *node.args[i + 2 :]]),
                )
    for i, (a, b) in enumerate(zip(node.keywords, node.keywords[1:], strict=False)):
        match a.value, b.value:
            case ast.Attribute(one), ast.Attribute(other) if ast.dump(one) == ast.dump(other):
                swapped = [ast.keyword(a.arg, b.value), ast.keyword(b.arg, a.value)]
                keywords = [*node.keywords[:i], *swapped, *node.keywords[i + 2 :]]
                yield "swap", _with(node, keywords=keywords)


def _displays(
    node: ast.Tuple | ast.List | ast.Set | ast.Dict, parent: ast.AST
) -> Iterator[_Change]:
    """Drop each item, and swap neighbors where their order may matter."""
    match parent, node:
        case _, ast.Dict(keys, values):
            for i in range(len(keys)):
                kept = [j for j in range(len(keys)) if j != i]
                yield (
                    "drop",
                    _with(node, keys=[keys[j] for j in kept], values=[values[j] for j in kept]),
                )
        case (ast.Compare(ast.Tuple()) | ast.Return() | ast.Subscript(), ast.Tuple()):
            return  # The first is changed with its other side. The others would be type errors.
        case (ast.Assign([ast.Tuple()]), ast.Tuple()) | (_, ast.Tuple(ctx=ast.Store())):
            return
        case _, (ast.Tuple(elements) | ast.List(elements) | ast.Set(elements)):
            unordered = isinstance(node, ast.Set) or isinstance(
                parent, (ast.Compare, ast.ExceptHandler)
            )
            for kind, rest in _drops_and_swaps(elements):
                if len(elements) > 1 and not (unordered and kind == "swap"):
                    yield kind, _with(node, elts=rest)
