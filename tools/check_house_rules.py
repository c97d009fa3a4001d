"""What no linter knows: rooms that live on the standard library, the length of files, names that stay out."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "takeback"

STANDARD_LIBRARY_ONLY = {  # room: the rooms of ours it may still import
    "errors": set[str](),
    "model": {"model", "errors"},
    "policy": {"policy", "model", "errors"},
}
EXCEPT = {("policy", "ruamel")}  # the check of YAML, which says so itself when the parser is missing
LONGEST = 600
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


def main() -> int:
    found = [line for room, ours in STANDARD_LIBRARY_ONLY.items() for line in foreign_imports(room, ours)]
    found += about_files(tracked())
    for line in found:
        print(line, file=sys.stderr)
    print(f"House rules: {len(found)} broken." if found else "House rules: kept.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
