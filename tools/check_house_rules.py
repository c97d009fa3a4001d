"""What no linter knows: rooms that live on the standard library, the length and number of files, names that stay out,
short functions, one class for one name, composition instead of towers of classes, no crumbs, no circles of imports."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "takeback"

STANDARD_LIBRARY_ONLY = {  # room: the rooms of ours it may still import
    "errors": set[str](),
    "model": {"model", "errors"},
    "policy": {"policy", "model", "errors"},
}
EXCEPT = {("policy", "ruamel")}  # the check of YAML, which says so itself when the parser is missing
LONGEST = 600
LONGEST_FUNCTION = 60
MOST_FILES = 600
CRUMB = 60  # lines: a shorter file with one importer belongs into it
# Files that stay alone: the entry point, which must hear an interrupt before anything else is imported.
ALONE = {"takeback.frontends.cli.main", "takeback.engine.transaction"}  # a program; a door of its own
A_FILE_EACH = "takeback.frontends.cli.commands."  # each command has a file of its name, however short
ADDRESSES = "takeback.model.database"  # knows what an address of each engine means
ENGINES = {"mariadb", "postgres", "redis", "sqlite"}
CHANGES = "takeback.model.change"
NOUNS_IN_ING = {"testing", "setting", "pending", "ruling"}
WORDS_WE_DO_NOT_USE = re.compile(r"(^|_)(manager|handler|helper|utils?|common|base)s?$")
# Whoever installs this uses the registry that their own machine is set up for.
HOSTS = re.compile(r"\b(?:pypi|npmjs|debian|pythonhosted)\.(?:org|com|net)\b")


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module


def foreign_imports(room: str, ours: set[str]) -> Iterator[str]:
    for file in sorted([*PACKAGE.glob(f"{room}.py"), *PACKAGE.glob(f"{room}/**/*.py")]):
        for line, name in imported(ast.parse(file.read_text())):
            top, _, rest = name.partition(".")
            if top in sys.stdlib_module_names or (top == "takeback" and rest.partition(".")[0] in ours):
                continue
            if (room, top) in EXCEPT:
                continue
            yield f"{file.relative_to(ROOT)}:{line}: {room} lives on the standard library, not on {name}."


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def about_files(files: list[Path]) -> Iterator[str]:
    for file in files:
        name = file.relative_to(ROOT)
        if file.suffix not in (".py", ".md", ".sql", ".toml", "") or file.is_symlink():
            continue
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue  # a golden store or another binary
        if file.suffix == ".py" and (lines := text.count("\n")) > LONGEST:
            yield f"{name}: {lines} lines; {LONGEST} are the most."
        if file.suffix == ".py" and any(
            WORDS_WE_DO_NOT_USE.search(part) for part in name.with_suffix("").parts
        ):
            yield f"{name}: this name explains nothing; say what is in it."
        if file != Path(__file__).resolve() and (host := HOSTS.search(text)):
            yield f"{name}: names {host.group()}; name the package, the machine knows where from."


class Module(NamedTuple):
    name: str
    lines: int
    tree: ast.Module
    is_package: bool

    @property
    def leaf(self) -> str:
        return self.name.rpartition(".")[2]


def modules() -> dict[str, Module]:
    found = (read_module(file) for file in sorted(PACKAGE.rglob("*.py")))
    return {module.name: module for module in found}


def read_module(file: Path) -> Module:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    text = file.read_text()
    name = ".".join(parts[:-1] if is_package else parts)
    return Module(name, text.count("\n"), ast.parse(text), is_package)


def importers(known: Mapping[str, Module]) -> dict[str, set[str]]:
    """Who imports each module, at the top, inside a function or only for types."""
    users: dict[str, set[str]] = defaultdict(set)
    for module in known.values():
        for target in targets(module.tree, known):
            if target != module.name:
                users[target].add(module.name)
    return users


def targets(tree: ast.Module, known: Mapping[str, Module]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)


def about_modules(known: Mapping[str, Module]) -> Iterator[str]:
    if len(known) > MOST_FILES:
        yield f"src: {len(known)} files; {MOST_FILES} are the most. Fold what belongs together."
    users, typed = importers(known), typed_keys(known)
    for name, module in known.items():
        if module.leaf.endswith("ing") and module.leaf not in NOUNS_IN_ING:
            yield f"{name}: name the noun, not what is being done."
        alone = name in ALONE or name.startswith(A_FILE_EACH)
        if module.lines < CRUMB and not (module.is_package or alone) and len(users[name]) == 1:
            yield f"{name}: {module.lines} lines for {next(iter(users[name]))} alone; put them there."
        yield from adapters_by_name(module)
        yield from terms_by_key(module, typed)
        yield from long_functions(module)
    yield from names_used_twice(known)
    yield from towers(known)
    yield from circles(known)


def adapters_by_name(module: Module) -> Iterator[str]:
    """A decision outside an adapter asks its traits, or a method of it."""
    if module.name.startswith(("takeback.adapters.", "takeback.testing.")) or module.name == ADDRESSES:
        return
    for node in ast.walk(module.tree):
        asked: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            asked = node.args[1:]
        for side in asked:
            by_name = isinstance(side, ast.Attribute) and side.attr == "adapter"
            by_engine = isinstance(side, ast.Constant) and side.value in ENGINES
            if by_name or by_engine or (isinstance(side, ast.Name) and side.id.endswith("Adapter")):
                yield f"{module.name}:{side.lineno}: ask `traits_of(change)`, not for an adapter's name."


def typed_keys(known: Mapping[str, Module]) -> set[str]:
    """What a record has among the arguments of a change, and a change has as fields."""
    classes = known[CHANGES].tree.body if CHANGES in known else ()
    return {"receipt"} | {
        field.target.id
        for node in classes
        if isinstance(node, ast.ClassDef) and node.name in ("Phase", "UndoTerms", "Facts")
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


def terms_by_key(module: Module, typed: Collection[str]) -> Iterator[str]:
    """`x.args["partial"]`, `x.args.get(PARTIAL)`, `"partial" in x.args`: a change says that by a field."""
    for node in ast.walk(module.tree):
        asked: tuple[ast.expr, ast.expr] | None = None  # of what, by which key
        if isinstance(node, ast.Subscript):
            asked = node.value, node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            asked = node.func.value, node.args[0]
        elif isinstance(node, ast.Compare):
            asked = node.comparators[0], node.left
        if asked is None or not (isinstance(asked[0], ast.Attribute) and asked[0].attr == "args"):
            continue
        key = asked[1]
        name = (
            key.value
            if isinstance(key, ast.Constant)
            else key.id.lower()
            if isinstance(key, ast.Name)
            else ""
        )
        if name in typed:
            yield f"{module.name}:{key.lineno}: {name!r} is a field of a change, not one of its arguments."


def names_used_twice(known: Mapping[str, Module]) -> Iterator[str]:
    homes: dict[str, list[str]] = defaultdict(list)
    for name, module in known.items():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    for word, places in homes.items():
        if len(places) > 1:
            yield f"class {word} means several things: {', '.join(places)}."


def long_functions(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > LONGEST_FUNCTION:
                yield f"{module.name}:{node.lineno}: {node.name} has {lines} lines; {LONGEST_FUNCTION} are the most."


def towers(known: Mapping[str, Module]) -> Iterator[str]:
    """A class stands on one of ours at most; a run and an open store are put together from parts (decision 0031)."""
    bases = {
        node.name: (name, [base.id for base in node.bases if isinstance(base, ast.Name)])
        for name, module in known.items()
        if not name.startswith(("takeback.errors", "takeback.testing"))
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    }
    for word, (name, direct) in bases.items():
        ours = [base for base in direct if base in bases]
        if len(ours) > 1 or any(base in bases for one in ours for base in bases[one][1]):
            yield f"{name}: class {word} stands on {' and '.join(ours)}; put it together from parts."


def circles(known: Mapping[str, Module]) -> Iterator[str]:
    """Imports inside functions and for types count: who waits for whom is hidden there, not gone."""
    below = {
        name: {target for target in targets(module.tree, known) if target != name}
        for name, module in known.items()
    }
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        yield f"import circle: {' → '.join(reversed(error.args[1]))}."


def main() -> int:
    found = [line for room, ours in STANDARD_LIBRARY_ONLY.items() for line in foreign_imports(room, ours)]
    found += about_files(tracked())
    found += about_modules(modules())
    for line in found:
        print(line, file=sys.stderr)
    print(f"House rules: {len(found)} broken." if found else "House rules: kept.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
