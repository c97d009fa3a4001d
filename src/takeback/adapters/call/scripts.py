"""A script that somebody ran: whether it can be imported to find its functions, or would do everything again."""

import os

from takeback.errors import ActionMissing


def refuse_busy(module: str, where: str) -> None:
    """`ActionMissing` if the script does things at its top level."""
    path = _path(module, where)
    if line := busy_line(module, where):
        raise ActionMissing(
            f"{path} would do everything again if it were imported (line {line}).",
            hint='Put what it does when it is run below `if __name__ == "__main__":`, or the actions into a module '
            "of their own; nothing was called.",
        )


def busy_line(module: str, where: str) -> int:
    """Of the first thing that it would do; 0: nothing."""
    import ast

    try:
        with open(_path(module, where), "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return 0  # importing it says what is wrong
    return next((node.lineno for node in tree.body if _acts(node)), 0)


def _path(module: str, where: str) -> str:
    return os.path.join(where, *module.split(".")) + ".py"


def _acts(node: object) -> bool:
    import ast

    quiet = (
        ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef,
        ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Pass,
    )  # fmt: skip
    if isinstance(node, quiet):
        return False
    if isinstance(node, ast.Expr):
        return not (isinstance(node.value, ast.Constant) or _is_declaration(node.value))
    if isinstance(node, ast.If):
        return not _is_guard(node.test) and any(_acts(one) for one in (*node.body, *node.orelse))
    if isinstance(node, ast.Try):
        return any(_acts(one) for one in (*node.body, *node.orelse, *node.finalbody))
    return True


def _is_guard(test: object) -> bool:
    import ast

    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _is_declaration(value: object) -> bool:
    """`pay.undo(give_back)`, `sys.path.insert(…)`."""
    import ast

    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    return value.func.attr == "undo" or ast.unparse(value.func).startswith("sys.path.")
