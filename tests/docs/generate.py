"""Print the parts of the documents that come from the code: `python -m tests.docs.generate`.

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`; a test compares every one of them.
"""

import ast
import re
from argparse import SUPPRESS, Action, ArgumentParser
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.docs import databases, picture, site
from tests.docs.pages import ROOT, generated, name_of, pages, rows, with_generated

SOURCE = ROOT / "src" / "takeback"
API = "api/__init__.py"
# Methods of a run that have a chapter of their own.
CALLS = ("call", "call_all", "fork")
LASTING = ("remember", "sleep", "wait")
COMMANDS = ("command", "watch")
DATABASES = ("sql", "program")
DECISIONS = ("pending", "approve", "deny", "settle")
WORKFLOWS = ("submit", "signal", "result", "work", "resume")
ELSEWHERE = (*DECISIONS, *WORKFLOWS, *CALLS, *LASTING, *COMMANDS, *DATABASES, "sandbox")


# -- the life of an effect


def transitions() -> str:
    from takeback.model.effect import TRANSITIONS

    body = (
        (f"`{state.value}`" if state else "(none)", str(event), f"`{after.value}`")
        for (state, event), after in TRANSITIONS.items()
    )
    return rows(("state", "then", "state after"), body)


def recovery() -> str:
    from takeback.engine.recover import RECOVERY
    from takeback.model.plan import Standing

    def cell(row: str, standing: Standing) -> str:
        step = RECOVERY.get((row, standing))
        if step is None:
            return "stays stuck"
        acts = [step.act] if step.act else []
        if step.record != "stick" and step.act != "tidy":
            acts.append("tidy")
        return ", ".join([*acts, step.record])

    kinds = list(dict.fromkeys(row for row, _ in RECOVERY))
    return rows(
        ("open effect", *(standing.value for standing in Standing)),
        ((f"**{row}**", *(cell(row, standing) for standing in Standing)) for row in kinds),
    )


# -- the store


def tables() -> str:
    return _tables(SOURCE / "storage" / "sqlite" / "schema")


def postgres_tables() -> str:
    return _tables(SOURCE / "storage" / "postgres" / "schema")


def _tables(schemas: Path) -> str:
    found: list[tuple[str, str, str]] = []
    for file in sorted(schemas.glob("*.sql")):
        text = file.read_text().replace("CREATE TABLE takeback_store.", "CREATE TABLE ")
        meanings = dict(re.findall(r"^-- (\w+): (.+)$", text, re.MULTILINE))
        for name, body in re.findall(r"^CREATE TABLE (\w+) \((.*?)^\)", text, re.MULTILINE | re.DOTALL):
            words = re.findall(r"^  (\w+)", body, re.MULTILINE)
            columns = [word for word in words if word not in ("PRIMARY", "FOREIGN")]
            found.append((f"`{name}`", ", ".join(f"`{column}`" for column in columns), meanings[name]))
    return rows(("table", "columns", "what"), found)


# -- errors


def errors() -> str:
    from takeback.errors import TakebackError

    def below(kind: type[TakebackError], depth: int) -> Iterable[tuple[str, str, str]]:
        indent = "&emsp;" * depth
        yield f"{indent}`{kind.__name__}`", str(kind.exit_code), (kind.__doc__ or "").split("\n")[0]
        for inner in kind.__subclasses__():
            if inner.__module__ == "takeback.errors":
                yield from below(inner, depth + 1)

    return rows(("error", "exit code", "what we know"), below(TakebackError, 0))


# -- the command line


def cli() -> str:
    from takeback.frontends.cli.command import COMMANDS, command_named, parser_of

    text: list[str] = []
    group = ""
    for name, entry in COMMANDS.items():
        if not entry.group:
            continue
        if entry.group != group:
            group = entry.group
            text.append(f"## {group}\n")
        command = command_named(name)
        if not command.parts:
            text.append(_command(parser_of(name, command), entry.help, entry.example, name))
        for part, told in command.parts.items():
            whole = f"{name} {part}"
            text.append(_command(parser_of(whole, command), told.help, told.example, whole))
    return "\n".join(text)


def _command(parser: ArgumentParser, help: str, example: str, name: str) -> str:
    own = [action for action in _actions(parser) if not _is_global(action)]
    usage = " ".join([f"takeback {name}", *(_usage(action) for action in own)])
    sentence = f"{help[:1].upper()}{help[1:]}" + ("" if help.endswith("?") else ".")
    lines = [f"### takeback {name}\n", f"{sentence}\n", f"```text\n{usage}\n```\n"]
    if own:
        lines.append(rows(("option", "meaning"), ((_spelled(action), action.help or "") for action in own)))
    lines.append(f"Example: `{example}`\n")
    return "\n".join(lines)


def global_options() -> str:
    from takeback.frontends.cli.command import COMMANDS, command_named, parser_of

    first = next(iter(COMMANDS))
    shared = [action for action in _actions(parser_of(first, command_named(first))) if _is_global(action)]
    return rows(("option", "meaning"), ((_spelled(action), action.help or "") for action in shared))


_GLOBAL = ("--store", "--json", "--quiet", "--color", "--no-color", "--no-pager")


def _actions(parser: ArgumentParser) -> list[Action]:
    return [
        action
        for action in parser._actions  # argparse has no other way to ask
        if action.dest != "help" and action.help != SUPPRESS
    ]


def _is_global(action: Action) -> bool:
    return any(name in action.option_strings for name in _GLOBAL)


def _value(action: Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    metavar = action.metavar or action.dest.upper()
    return metavar if isinstance(metavar, str) else " ".join(metavar)


def _spelled(action: Action) -> str:
    value = _value(action)
    if not action.option_strings:
        return f"`{value}`"
    return ", ".join(f"`{option} {value}`" if value else f"`{option}`" for option in action.option_strings)


def _usage(action: Action) -> str:
    value = _value(action)
    if action.option_strings:
        longest = max(action.option_strings, key=len)
        word = f"{longest} {value}" if value else longest
        word += "…" if type(action).__name__ in ("_AppendAction", "_ExtendAction") else ""
        return word if action.required else f"[{word}]"
    many = {"?": f"[{value}]", "*": f"[{value}…]", "+": f"{value}…", "...": f"-- {value} [ARGUMENT…]"}
    return many.get(str(action.nargs), value)


# -- Python


def python_takeback() -> str:
    return _methods(API, "Takeback", *(name for name in _names(API, "Takeback") if name not in ELSEWHERE))


def python_run() -> str:
    return _run(*(name for name in _names("runs/run.py", "Run") if name not in ELSEWHERE))


def run_transitions() -> str:
    from takeback.errors import RecordInvalid
    from takeback.model.record import Kind
    from takeback.model.run import RunState, run_state_after

    body: list[list[str]] = []
    for state in (None, *RunState):
        for kind, outcome in ((Kind.OPEN, ""), *((Kind.CLOSE, one.value) for one in RunState)):
            try:
                after = run_state_after(state, kind, outcome, "")
            except RecordInvalid:
                continue
            if kind is Kind.CLOSE and after is RunState.OPEN:
                continue  # nobody ends a run so
            said = f"{kind.value} ({outcome})" if outcome else kind.value
            body.append([f"`{state.value}`" if state else "(none)", said, f"`{after.value}`"])
    return rows(("state", "then", "state after"), body)


def python_actions() -> str:
    tree = _tree("adapters/call/action.py")
    decorator = [node for node in tree.body if _named(node, "action")][-1]
    return (
        _function(decorator)
        + _methods("adapters/call/action.py", "Action")
        + _run(*CALLS)
        + _methods(API, "Takeback", *DECISIONS)
    )


def python_workflows() -> str:
    decorator = [node for node in _tree("runs/workflows/function.py").body if _named(node, "workflow")][-1]
    return _function(decorator) + _methods(API, "Takeback", *WORKFLOWS) + _run(*LASTING)


def python_commands() -> str:
    return _run(*COMMANDS)


def python_box() -> str:
    return _methods("runs/boxes/box.py", "Box")


def regenerable() -> str:
    """Directories that a watch leaves out where the project's ignore rules name them too."""
    from takeback.adapters.watch.roots import REGENERABLE_NAMES

    return ", ".join(f"`{name}`" for name in REGENERABLE_NAMES) + "\n"


def python_databases() -> str:
    return _run(*DATABASES)


def python_sql() -> str:
    return _methods("runs/sql.py", "Sql")


def outcome_fields() -> str:
    return _fields("runs/commands/outcome.py", "CommandOutcome")


def box_outcome_fields() -> str:
    return _fields("runs/boxes/command.py", "BoxOutcome")


def _fields(file: str, name: str) -> str:
    """What a tuple has, each with the words the code has for it."""
    source = (SOURCE / file).read_text().splitlines()
    found = next(node for node in _tree(file).body if _named(node, name))
    assert isinstance(found, ast.ClassDef)
    body: list[tuple[str, str]] = []
    for node in found.body:
        if isinstance(node, ast.AnnAssign):
            told = source[node.lineno - 1].partition("  # ")[2]
            body.append((f"`{ast.unparse(node.target)}: {ast.unparse(node.annotation)}`", told))
    return rows(("field", "meaning"), body)


def python_open() -> str:
    return "".join(_function(node) for node in _tree(API).body if _named(node, "open"))


def python_claude() -> str:
    tree = _tree("integrations/claude.py")
    return "".join(_function(node) for node in tree.body if _named(node, "with_takeback"))


def python_checks() -> str:
    public = [node for node in _tree("policy/checks.py").body if isinstance(node, ast.FunctionDef)]
    asked = [node for node in public if node.returns is not None and ast.unparse(node.returns) == "Check"]
    return "".join(_function(node) for node in asked if not node.name.startswith("_"))


def _tree(file: str) -> ast.Module:
    return ast.parse((SOURCE / file).read_text())


def _named(node: ast.stmt, name: str) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name


def _run(*names: str) -> str:
    return _methods("runs/run.py", "Run", *names)


def _methods(file: str, name: str, *chosen: str) -> str:
    """All that are for users, or those that are chosen."""
    names = chosen or _names(file, name)
    return "".join(_function(node) for node in _functions(file, name) if node.name in names)


def _names(file: str, name: str) -> tuple[str, ...]:
    found = (node.name for node in _functions(file, name) if not _abstract(node))
    return tuple(one for one in found if not one.startswith("_"))


def _functions(file: str, name: str) -> list[ast.FunctionDef]:
    found = next(node for node in _tree(file).body if _named(node, name))
    assert isinstance(found, ast.ClassDef)
    functions = [one for node in found.body if (one := _written(node, file))]
    return [
        one for one in functions if not any(".setter" in ast.unparse(mark) for mark in one.decorator_list)
    ]


def _module_of(file: str, name: str) -> str:
    """The module that a file imports by this name, perhaps as another one."""
    imports = [one for node in _tree(file).body if isinstance(node, ast.ImportFrom) for one in node.names]
    return next((one.name for one in imports if (one.asname or one.name) == name), name)


def _written(node: ast.stmt, file: str) -> ast.FunctionDef | None:
    """A method as it stands, or the function of another file that `name = _handed(module.name)` hands over to."""
    if isinstance(node, ast.FunctionDef):
        return node
    match node:
        case ast.Assign(
            [ast.Name(name)], ast.Call(ast.Name("_handed"), [ast.Attribute(ast.Name(owner), known)])
        ):
            place = "store" if owner == "OpenStore" else _module_of(file, owner)
            tree = _tree(f"{Path(file).parent}/{place}.py")
            holder = next((one for one in tree.body if _named(one, owner)), tree)
            found = next(one for one in holder.body if _named(one, known))
            assert isinstance(found, ast.FunctionDef)
            found.args.args[0].arg, found.args.args[0].annotation = "self", None
            found.name = name
            return found
        case _:
            return None


def _abstract(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(mark) == "abstractmethod" for mark in node.decorator_list)


class _Unquoted(ast.NodeTransformer):
    """`"Effect | str"` is written `Effect | str`."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = _unquoted(node.annotation)
        return node


def _unquoted(annotation: ast.expr | None) -> ast.expr | None:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return ast.parse(annotation.value, mode="eval").body
    return annotation


def _function(node: ast.stmt) -> str:
    assert isinstance(node, ast.FunctionDef)
    is_property = any(ast.unparse(mark) == "property" for mark in node.decorator_list)
    arguments = ast.unparse(_Unquoted().visit(node.args)).removeprefix("self").removeprefix(", ")
    returns = ast.unparse(result) if (result := _unquoted(node.returns)) else "None"
    head = f"{node.name}: {returns}" if is_property else f"{node.name}({arguments}) -> {returns}"
    meaning = " ".join((ast.get_docstring(node) or "").split())
    return f"- `{head}`" + (f"  \n  {meaning}" if meaning else "") + "\n"


def public_names() -> str:
    import takeback

    listed = [f"`{name}`" for name in takeback.__all__ if not _is_error(name)]
    return ", ".join(listed) + ", and every [error](errors.md).\n"


def _is_error(name: str) -> bool:
    import takeback

    found = getattr(takeback, name)
    return isinstance(found, type) and issubclass(found, takeback.TakebackError)


PARTS: dict[str, Callable[[], str]] = {
    "transitions": transitions,
    "recovery": recovery,
    "tables": tables,
    "postgres-tables": postgres_tables,
    "errors": errors,
    "cli": cli,
    "global-options": global_options,
    "python-open": python_open,
    "python-takeback": python_takeback,
    "python-run": python_run,
    "python-actions": python_actions,
    "run-transitions": run_transitions,
    "python-workflows": python_workflows,
    "python-commands": python_commands,
    "python-databases": python_databases,
    "python-sql": python_sql,
    "python-outcome": outcome_fields,
    "python-box": python_box,
    "python-box-outcome": box_outcome_fields,
    "regenerable": regenerable,
    "python-checks": python_checks,
    "python-claude": python_claude,
    "python-names": public_names,
    "database-cases": databases.how_many,
    "postgres-cases": databases.postgres_cases,
    "sqlite-cases": databases.sqlite_cases,
    "mariadb-cases": databases.mariadb_cases,
    "mariadb-definitions": databases.mariadb_definitions,
    "redis-commands": databases.redis_commands,
    "redis-refusals": databases.redis_refusals,
}


MANUAL = ROOT / "docs" / "man" / "share" / "man" / "man1"  # below docs/man as the wheel installs it


def manual() -> dict[str, str]:
    """By name of the file: the manual pages."""
    from takeback.frontends.cli import help

    return {f"{'-'.join(['takeback', *name.split()])}.1": help.page(name) for name in help.names()}


def write_manual() -> None:
    MANUAL.mkdir(parents=True, exist_ok=True)
    wanted = manual()
    for old in MANUAL.iterdir():
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        if not (MANUAL / name).exists() or (MANUAL / name).read_text() != text:
            (MANUAL / name).write_text(text)


def main() -> None:
    write_manual()
    site.write()
    for page in pages():
        wanted = [name for name, _ in generated(page)]
        if not wanted:
            continue
        old = page.read_text()
        new = with_generated(old, {name: PARTS[name]() for name in wanted})
        if new != old:
            page.write_text(new)
            print(f"wrote {name_of(page)}")  # noqa: T201
    picture.draw()  # last: it changes the directory and the environment of this process


if __name__ == "__main__":
    main()
