"""Run a script as a release would that has other English: every sentence in the source of takeback reads differently.

    python -m tests.crash.reworded SCRIPT [ARGUMENT …]

A sentence is a text, or the text of an f-string, with three words or more. SQL, values of enums and what only the
reader of old records knows are none."""

import ast
import marshal
import os
import re
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

# Data of another language than English, and what old stores said in theirs.
LEFT = ("takeback.model.format_1", "takeback.sandbox", "takeback.testing")
CACHE = Path(os.environ.get("REWORDED", "/nonexistent"))
_WORDS = re.compile(r"(?<!\S)[A-Za-z`']{2,}[.:;?]?(?!\S)")  # a list of names has commas
_SQL = (
    "SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|WHERE|FROM|PRAGMA|BEGIN|TABLE|JOIN|ORDER|AND|SET|LOCK|VALUES|IN|OR|NOT"
    "|LIMIT|ON|AS|DESC|UNION|IS|BY"
)
_DATA = re.compile(rf"\b({_SQL})\b|\n|^takeback store format|^[\w.:/-]+$")


def is_sentence(text: str) -> bool:
    return len(_WORDS.findall(text)) >= 3 and not _DATA.search(text)


def reworded(text: str) -> str:
    return f"In other words: {text} (so it is said now)"


class Rewording(ast.NodeTransformer):
    """Docstrings stay, since nobody compares them and some are printed as help."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if any(isinstance(base, ast.Name) and base.id.endswith("Enum") for base in node.bases):
            return node
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and is_sentence(node.value):
            return ast.copy_location(ast.Constant(reworded(node.value)), node)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        text = " ".join(
            one.value for one in node.values if isinstance(one, ast.Constant) and isinstance(one.value, str)
        )
        values = [one if isinstance(one, ast.Constant) else self.visit(one) for one in node.values]
        if is_sentence(text):
            before, after = reworded("\0").split("\0")
            values = [ast.Constant(before), *values, ast.Constant(after)]
        return ast.copy_location(ast.JoinedStr(values), node)


class Loader(SourceFileLoader):
    def source_to_code(self, data: object, path: object, *, _optimize: int = -1) -> object:  # type: ignore[override]
        tree = ast.fix_missing_locations(Rewording().visit(ast.parse(data)))  # type: ignore[arg-type]
        return compile(tree, str(path), "exec", dont_inherit=True, optimize=_optimize)

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        """From a cache of its own, that of the session: each module is read by many processes of a scene."""
        cached = CACHE / fullname
        if CACHE.is_dir() and cached.exists():
            return marshal.loads(cached.read_bytes())
        path = self.get_filename(fullname)
        code: Any = self.source_to_code(self.get_data(path), path)
        if CACHE.is_dir():
            written = CACHE / f"{fullname}.{os.getpid()}"
            written.write_bytes(marshal.dumps(code))
            written.replace(cached)
        return code


class Finder:
    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("takeback.") or name.startswith(LEFT):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec and isinstance(spec.loader, SourceFileLoader | SourceLoader) and spec.origin:
            spec.loader = Loader(name, spec.origin)
        return spec


if __name__ == "__main__":
    if any(name.startswith("takeback.") for name in sys.modules):
        sys.exit("takeback is loaded already: no word of it would read differently")
    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
