"""A hint advises what can be typed at a shell; only a mistake in Python code is answered in Python.

Errors reach readers of the command line and of Python alike, and both have the commands. A sentence that advises Python
stands below, with the reason why only Python code can raise it.
"""

import ast
import re
from collections.abc import Iterator

from tests.docs.pages import ROOT
from tests.docs.test_plain_words import sentences

SOURCE = ROOT / "src" / "takeback"
PYTHON = re.compile(
    r"""
      \b(?:tb|db|box|run)\.(?!sh\b)[a-z_]+        # a method of ours
    | \btakeback\.(?:[A-Z]|open\b) | @takeback\.  # our module
    | \bwith\ db\b | \basyncio\.
    | (?<![-\w./])[a-z_]+=(?:True|False|None|["'\d…]|`)  # an argument by its name; not --max-rows=5
    """,
    re.VERBOSE,
)
SHELL = re.compile(r"--\S+=\S*|/\S+=\S*|\blog_bin_\S+=1")  # --set /key=VALUE; a setting of a server
NO_ADVICE = re.compile(
    r"<[!a-z]|viewBox=|application/|select |update |using |case |set |pragma |\(select |'|__takeback",
    re.IGNORECASE,
)

# By module: what only Python code can get wrong, so that no command raises it.
DECLARES = "the declaration of an action or a workflow, when its module is imported"
ARGUMENT = "an argument or a handle of the Python interface, which a command gives soundly"
IN_A_RUN = "a call from a function of the caller, inside of a run or a workflow"
OPENED = "a store that the caller's own process opened, closed or forked"
ONLY_PYTHON = {
    "adapters/call/action.py": DECLARES,
    "adapters/call/adapter.py": DECLARES,
    "adapters/call/functions.py": DECLARES,
    "api/__init__.py": ARGUMENT,
    "api/halts.py": ARGUMENT,
    "api/rehearse.py": ARGUMENT,
    "api/workers.py": ARGUMENT,
    "api/workflows.py": ARGUMENT,
    "audit/rows.py": ARGUMENT,
    "engine/guards.py": ARGUMENT,
    "frontends/cli/commands/submit.py": "the reader's own module of workflows",
    "frontends/cli/commands/worker.py": "the reader's own module of workflows",
    "integrations/claude.py": ARGUMENT,
    "model/functions.py": DECLARES,
    "runs/boxes/box.py": ARGUMENT,
    "runs/boxes/history.py": ARGUMENT,
    "runs/call.py": IN_A_RUN,
    "runs/canary.py": IN_A_RUN,
    "runs/commands/request.py": ARGUMENT,
    "runs/core.py": IN_A_RUN,
    "runs/end.py": IN_A_RUN,
    "runs/run.py": IN_A_RUN,
    "runs/selection.py": ARGUMENT,
    "runs/sql.py": ARGUMENT,
    "runs/undo.py": IN_A_RUN,
    "runs/workflows/durable.py": IN_A_RUN,
    "runs/workflows/function.py": DECLARES,
    "runs/workflows/replay.py": IN_A_RUN,
    "storage/tables.py": OPENED,
}


def advice() -> Iterator[tuple[str, str]]:
    for file in sorted(SOURCE.rglob("*.py")):
        for _, sentence in sentences(ast.parse(file.read_text())):
            if not NO_ADVICE.match(sentence) and PYTHON.search(SHELL.sub("", sentence)):
                yield str(file.relative_to(SOURCE)), sentence


def test_no_hint_advises_python_to_someone_at_a_shell() -> None:
    found = list(advice())
    assert [one for one in found if one[0] not in ONLY_PYTHON] == [], "name the command instead"
    assert ONLY_PYTHON.keys() - {file for file, _ in found} == set(), "these have none any more"


def test_python_advice_is_found_and_a_command_is_not() -> None:
    for text in ("Continue it: tb.resume('k3').", "Use --force (force=True).", "Give a `key=` of its own."):
        assert PYTHON.search(SHELL.sub("", text)), text
    for text in ("Use --max-rows=5.", "Write --set /tls/on=true.", "takeback chmod 755 run.sh"):
        assert not PYTHON.search(SHELL.sub("", text)), text
