"""No line of the source compares a text with a sentence, with the words of an error, or with the words of a record.

`test_reworded.py` plays scenes with other English; this reads every comparison. Format 1 has no fields for what its
sentences say, so the one module that reads it may compare."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.reworded import is_sentence

SOURCE = Path(__file__).parents[2] / "src" / "takeback"
MAY = ("model/format_1.py", "testing/")
# Words of a server or a library that gives no number for it, and the one word that a trigger of ours can say.
FOREIGN = {
    ("adapters/postgres/connection.py", "_TOO_MANY in said"),
    ("adapters/postgres/install.py", "'if not exists' in statement"),
    ("storage/sqlite/database.py", "str(error) == tables.SAID"),
    ("adapters/redis/connection.py", "'index' in str(error)"),
    ("adapters/redis/connection.py", "'out of range' in str(error)"),
    ("storage/sqlite/database.py", "'closed' in str(error)"),
}
# Fields that hold prose, in records, plans, reports and errors.
PROSE = {"note", "detail", "why", "hint", "residue", "reason", "says"}
ASKS = {"startswith", "endswith", "find", "index", "count"}


def constants(tree: ast.Module) -> dict[str, str]:
    """The texts that a module binds to a name at its top."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }


def names(tree: ast.Module, modules: dict[str, dict[str, str]]) -> dict[str, str]:
    """What a module calls its own constants and those of others: `NAME`, or `module.NAME`."""
    known = constants(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        for one in node.names:
            name, inside = one.asname or one.name, modules.get(f"{node.module}.{one.name}", {})
            known |= {f"{name}.{constant}": text for constant, text in inside.items()}
            if one.name in modules.get(node.module, {}):
                known[name] = modules[node.module][one.name]
    return known


def texts(node: ast.expr, known: dict[str, str]) -> Iterator[str]:
    """Each text that a side of a comparison may be: written there, by its name, or in a tuple of them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
        name = node.id if isinstance(node, ast.Name) else ast.unparse(node)
        yield from [known[name]] if name in known else []
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for part in node.elts:
            yield from texts(part, known)
    elif isinstance(node, ast.JoinedStr):
        yield " ".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))


def is_prose(node: ast.expr) -> bool:
    """A field of prose, or the words of an error."""
    if isinstance(node, ast.Call):
        named = isinstance(node.func, ast.Name) and node.func.id == "str" and bool(node.args)
        return named and isinstance(node.args[0], ast.Name) and node.args[0].id in ("error", "problem")
    return isinstance(node, ast.Attribute) and node.attr in PROSE


def compared(tree: ast.Module, known: dict[str, str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ASKS:
            sides = [node.func.value, *node.args]
        elif isinstance(node, ast.Match):
            sides = [
                node.subject,
                *(case.pattern.value for case in node.cases if isinstance(case.pattern, ast.MatchValue)),
            ]
        else:
            continue
        said = [text for side in sides for text in texts(side, known)]
        against_words = any(map(is_prose, sides)) and any(said)
        if against_words or any(map(is_sentence, said)):
            yield node.lineno, ast.unparse(node)


def test_finding_10_no_comparison_with_a_sentence() -> None:
    trees = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    modules = {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): constants(tree)
        for path, tree in trees.items()
    }
    found = [
        (str(path.relative_to(SOURCE)), what)
        for path, tree in trees.items()
        for _, what in compared(tree, names(tree, modules))
    ]
    assert {one for one in found if not one[0].startswith(MAY)} == FOREIGN


@pytest.mark.parametrize(
    "line",
    [
        'a == "The run was taken back."',
        'one.note.endswith("back")',
        '"closed" in str(error)',
        "WORDS in a.b",
        'one.detail == f"the {verb} was finished"',
        'match a.why:\n    case "gone": pass',
    ],
)
def test_finding_10_each_form_of_it_is_found(line: str) -> None:
    assert list(compared(ast.parse(line), {"WORDS": "is being taken back"}))


@pytest.mark.parametrize(
    "line", ['a.kind == "write"', "not one.note", "one.why == two.why", 'name.startswith("/proc")']
)
def test_finding_10_data_may_be_compared(line: str) -> None:
    assert not list(compared(ast.parse(line), {}))
