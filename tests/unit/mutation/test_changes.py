"""Each kind of change is found, under a name that does not depend on lines."""

from pathlib import Path

import pytest

from tests.mutation.changes import find_mutants


def changes(path: Path, source: str) -> dict[str, str]:
    """Return the changes of a module by their names, without the name of the module."""
    path.write_text(source)
    found = {mutant.name.removeprefix("m:"): mutant.change for mutant in find_mutants(path, "m")}
    for mutant in find_mutants(path, "m"):
        assert mutant.compile() != compile(source, str(path), "exec")
    return found


@pytest.mark.parametrize(
    ("body", "kind", "change"),
    [
        ("if a == b: pass", "negate", "a == b -> a != b"),
        ("if a: pass", "negate", "a -> not a"),
        ("return not a", "negate", "not a -> a"),
        ("return [x for x in b if f(x)]", "negate", "f(x) -> not f(x)"),
        ("return a < b <= c", "negate", "a < b <= c -> not a < b <= c"),
        ("return a < b <= c", "boundary", "a < b <= c -> a <= b <= c"),
        ("return a and b", "operator", "a and b -> a or b"),
        ("return a + b", "operator", "a + b -> a - b"),
        ("return any(a)", "function", "any(a) -> all(a)"),
        ("raise E('text')", "raise", "raise E('text') -> pass"),
        ("require(a)", "call", "require(a) -> pass"),
        ("require(a); verify(b)", "order", "require(a); verify(b) -> verify(b); require(a)"),
        ("return a[:8]", "constant", "8 -> 9"),
        ("return f(critical=True)", "constant", "True -> False"),
        ("return (a.x, a.y) == (b.x, b.y)", "drop", "(a.x, a.y) == (b.x, b.y) -> (a.y,) == (b.y,)"),
        ("return a in {b, c}", "drop", "{b, c} -> {c}"),
        ("return {1: a, 2: b}", "drop", "{1: a, 2: b} -> {2: b}"),
        ("for x in (a, b): pass", "swap", "(a, b) -> (b, a)"),
        ("return f(a.x, a.y)", "swap", "f(a.x, a.y) -> f(a.y, a.x)"),
        ("return f(x=a.x, y=a.y)", "swap", "f(x=a.x, y=a.y) -> f(x=a.y, y=a.x)"),
        ("return encode_fields(a, 'b')", "drop", "encode_fields(a, 'b') -> encode_fields('b')"),
        ("return encode_fields(a, 'b')", "swap", "encode_fields(a, 'b') -> encode_fields('b', a)"),
        ("t = self.now(); wait(); return t", "reread", "t -> self.now()"),
    ],
)
def test_change_is_found(tmp_path: Path, body: str, kind: str, change: str) -> None:
    found = changes(tmp_path / "m.py", f"class C:\n  def f(self, a, b, c):\n    {body}\n")
    assert found[f"C.f:{kind}:1"] == change


@pytest.mark.parametrize(
    "body",
    [
        "raise E('text' if a == b else 'other', detail=1 + 2)",
        "return f'{a + 1}'",
        "trace('E1', verify(a, 1 + 2)); trace('E2', b)",
        "_logger.info('verdict', extra={'a': 1, 'b': 2})",
        "return a, b",
        "a, b = b, a",
    ],
)
def test_text_and_description_are_not_changed(tmp_path: Path, body: str) -> None:
    found = changes(tmp_path / "m.py", f"def f(a: 'int' = 1) -> list[int, str]:\n  {body}\n")
    assert found.keys() <= {"f:raise:1"}


def test_order_of_a_set_is_not_changed(tmp_path: Path) -> None:
    source = (
        "def f(a, b, c):\n  try:\n    return a in (b, c), {b, c}\n  except (E, F):\n    raise\n"
    )
    found = changes(tmp_path / "m.py", source)
    assert [change for change in found.values() if change.startswith("(E, F)")] == [
        "(E, F) -> (F,)",
        "(E, F) -> (E,)",
    ]
    assert not [name for name in found if ":swap:" in name]


def test_each_field_of_a_tuple_that_an_hmac_covers_is_dropped_and_swapped(tmp_path: Path) -> None:
    source = "class T:\n  a: str\n  b: str\ndef f(t: T):\n  return encode_fields(*t)\n"
    found = changes(tmp_path / "m.py", source)
    assert {found["f:drop:2"], found["f:drop:3"], found["f:swap:1"]} == {
        "*t -> *(t.b,)",
        "*t -> *(t.a,)",
        "*t -> *(t.b, t.a)",
    }


def test_constants_of_a_module_are_changed(tmp_path: Path) -> None:
    source = "MAX: Final = 15\nNAMES = {'a', 'b'}\nAlias = tuple[int, str]\n"
    assert changes(tmp_path / "m.py", source) == {
        "MAX:constant:1": "15 -> 16",
        "NAMES:drop:1": "{'a', 'b'} -> {'b'}",
        "NAMES:drop:2": "{'a', 'b'} -> {'a'}",
    }


def test_names_stay_when_lines_move(tmp_path: Path) -> None:
    source = "def f(a, b):\n  return a == b\n"
    moved = f"import os\n\n\ndef e():\n  return 1\n\n\n{source}"
    before, after = (changes(tmp_path / "m.py", each) for each in (source, moved))
    assert before.items() < after.items()
