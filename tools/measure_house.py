"""How large the house is, and how far one value walks in it. A report, not a gate: `python tools/measure_house.py`.

Calls are counted with `sys.setprofile`, in this package only, without comprehensions, generators and lambdas.
"""

import ast
import importlib
import inspect
import os
import pkgutil
import sqlite3
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import takeback

PACKAGE = Path(takeback.__file__).parent
ANONYMOUS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>", "<lambda>")


def sources() -> dict[str, str]:
    return {str(file.relative_to(PACKAGE)): file.read_text() for file in sorted(PACKAGE.rglob("*.py"))}


def report_files() -> None:
    lines = {name: text.count("\n") for name, text in sources().items()}
    sql = sum(file.read_text().count("\n") for file in PACKAGE.rglob("*.sql"))
    largest = max(lines, key=lambda name: lines[name])
    print(f"files                   {len(lines)}")
    print(f"lines                   {sum(lines.values()) + sql} ({sql} of them SQL)")
    print(f"median file             {statistics.median(lines.values()):.0f} lines")
    print(f"largest file            {lines[largest]} lines ({largest})")


def report_names() -> None:
    classes: dict[str, int] = Counter()
    functions: dict[str, int] = Counter()
    for text in sources().values():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name] += 1
            elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                functions[node.name] += 1
    modules = [name.removesuffix(".py").rpartition("/")[2] for name in sources()]
    print(f"class names used twice  {sum(count > 1 for count in classes.values())}")
    print(f"function names in 5+    {sum(count >= 5 for count in functions.values())}")
    print(f"modules in -ing         {sum(name.endswith('ing') for name in modules)}")


def report_classes() -> None:
    for name in ("Run", "Takeback", "Box"):
        found = next(walked(name))
        public = [attribute for attribute in dir(found) if not attribute.startswith("_")]
        print(f"{name:23} {len(found.__mro__) - 1} classes in its MRO, {len(public)} public names")


def walked(name: str) -> Iterator[type]:
    for module in pkgutil.walk_packages([str(PACKAGE / "runs")], "takeback.runs."):
        found = getattr(importlib.import_module(module.name), name, None)
        if inspect.isclass(found):
            yield found
    yield takeback.Takeback


def imported(text: str, known: set[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module


def report_importers() -> None:
    modules = {
        "takeback." + name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): text
        for name, text in sources().items()
    }
    users: dict[str, set[str]] = defaultdict(set)
    for name, text in modules.items():
        for target in imported(text, set(modules)):
            users[target].add(name)
    single = [name for name in modules if len(users[name]) == 1]
    small = [name for name in single if modules[name].count("\n") < 60]
    print(f"files with one importer {len(single)}, {len(small)} of them under 60 lines")


Report = Callable[[str, Callable[[], Any]], Any]


class Walk:
    """The calls between `with` and its end."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def _saw(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            if not any(part in code.co_qualname for part in ANONYMOUS):
                self.calls.append((os.path.relpath(code.co_filename, PACKAGE), code.co_qualname))

    def __enter__(self) -> "Walk":
        sys.setprofile(self._saw)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def report_walk(name: str, act: Callable[[], Any]) -> Any:
    with Walk() as walk:
        answer = act()
    files = {file for file, _ in walk.calls}
    moves = sum(one != next_one for (one, _), (next_one, _) in zip(walk.calls, walk.calls[1:], strict=False))
    counted = f"{len(walk.calls)} calls of {len(set(walk.calls))} functions in {len(files)} files"
    print(f"{name:23} {counted}, {moves} moves between files")
    return answer


def report_verbs(directory: str) -> None:
    payments: dict[str, dict[str, int]] = {}

    def ask(key: str, **_: object) -> dict[str, int] | None:
        return payments.get(key)

    def pay(amount: int, *, key: str) -> dict[str, int]:
        return payments.setdefault(key, {"id": len(payments), "amount": amount})

    def refund(receipt: dict[str, int], amount: int) -> None:
        payments.clear()

    charge = takeback.action(verify=ask, undo=refund)(pay)
    database = f"{directory}/a.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
        connection.executemany("INSERT INTO t (v) VALUES (?)", [("x",)] * 5)
    connection.close()
    tb = takeback.open(f"{directory}/store")
    walk_through(tb, "warm", f"sqlite:///{database}", charge, lambda _, act: act())
    walk_through(tb, "measured", f"sqlite:///{database}", charge, report_walk)


def walk_through(tb: takeback.Takeback, name: str, url: str, charge: object, said: Report) -> None:
    """Each verb once; the first time is not measured, since it loads modules."""
    with tb.run(name) as run:
        said("run.write, new file", lambda: run.write(f"{name}.txt", "one"))
        written = said("run.write, over a file", lambda: run.write(f"{name}.txt", "two"))
        said("run.call", lambda: run.call(charge, amount=5))
        db = run.sql(url)
        updated = said("db.execute (SQLite)", lambda: db.execute("UPDATE t SET v = ? WHERE id = 2", [name]))
        db.close()
        with run.sandbox() as box:
            said("box.run", lambda: box.run("echo hi > box.txt"))
    said("undo of a write", lambda: tb.undo(written))
    said("undo of an UPDATE", lambda: tb.undo(updated.effect))


def main() -> None:
    report_files()
    report_names()
    report_importers()
    report_classes()
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="house-") as directory:
        os.chdir(directory)
        report_verbs(directory)
        os.chdir(before)


if __name__ == "__main__":
    main()
