"""`worker`: carry out runs of workflows."""

import os
import sys
from argparse import ArgumentTypeError
from collections import Counter
from typing import TYPE_CHECKING, Any

from takeback.api import opened_of
from takeback.api.store import now
from takeback.api.workers import worker_for
from takeback.errors import Misuse
from takeback.frontends.cli.command import Asked, Command, Does, flag, option, positional
from takeback.frontends.cli.output.screen import clean, counted, warn
from takeback.frontends.cli.session.store import dry_store, give, opened
from takeback.model.ids import short
from takeback.model.run import OnDeath, is_due

if TYPE_CHECKING:
    from takeback.runs.workflows.function import Workflow


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 1_000:
        raise ArgumentTypeError(f"{text!r} is not a number from 1 to 1000")
    return int(text)


def _worker(asked: Asked) -> int:
    from takeback.runs.workflows.worker import stopped_by_signals

    known: dict[str, Workflow] = {}
    for name in asked.options.modules:
        for key, one in workflows_in(name).items():
            if known.setdefault(key, one) is not one:
                raise Misuse(
                    f"Two of these modules have a workflow {key!r}.", hint="Give each a name of its own."
                )
    if asked.options.dry_run:
        return _tell_due(asked, known)
    with opened(asked) as tb:
        worker = worker_for(opened_of(tb), known, asked.options.concurrency)
        names = ", ".join(sorted(known))
        with stopped_by_signals(worker, lambda number: os._exit(128 + number)):
            asked.screen.say(f"Working on {names}; Ctrl-C stops at the next step.")
            sys.stdout.flush()
            _tell_unknown(tb, known, asked.options.modules)
            worker.work(until_idle=asked.options.until_idle)
        give(asked, tb, {"worked": worker.worked})
        asked.screen.say(f"{counted(worker.worked, 'run')} continued.")
    return 0


def _tell_due(asked: Asked, known: "dict[str, Workflow]") -> int:
    from takeback.audit.views import run_info_json

    with dry_store(asked) as tb:
        at = now()
        due = [
            one
            for one in tb.store.journal.runs(unfinished=True)
            if one.workflow in known and is_due(one, at) and tb.store.leases.free(one.id, at)
        ]
        _tell_unknown(tb, known, asked.options.modules)
    lines = [f"  {short(one.id)}  {clean(one.name)} ({clean(one.workflow)})" for one in due]
    said = "\n".join([f"Would continue {counted(len(due), 'run')}{':' if due else '.'}", *lines])
    return asked.would({"runs": [run_info_json(one) for one in due]}, said)


def _tell_unknown(tb: Any, known: "dict[str, Workflow]", modules: list[str]) -> None:
    """Of runs whose function is no longer in these modules: they would wait in silence."""
    left = [one.workflow for one in tb.store.journal.runs(unfinished=True) if one.on_death is OnDeath.RESUME]
    gone = Counter(one for one in left if one.partition(":")[0] in modules and one not in known)
    for name, count in gone.items():
        warn(
            f"takeback: needs attention: {counted(count, 'run')} of {clean(name)} cannot continue, because "
            "the workflow no longer exists."
        )


def workflows_in(name: str) -> "dict[str, Workflow]":
    """Of the module, which is imported with the current directory on the path."""
    from takeback.runs.workflows.function import found_in

    module = imported(name)
    known = found_in(module)
    if not known:
        raise Misuse(
            f"The module {name} has no workflow.", hint="Write @takeback.workflow over a function in it."
        )
    return known


def imported(name: str) -> Any:
    import importlib

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if name.endswith(".py") or "/" in name or not all(part.isidentifier() for part in name.split(".")):
        raise Misuse(
            f"{name!r} is no name of a Python module.",
            hint="Give it as in an import, without .py: `takeback worker app.flows`.",
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if name == missing or name.startswith(f"{missing}."):
            raise Misuse(
                f"There is no Python module {missing!r} here.",
                hint="Call this in the directory that holds it, or put that on PYTHONPATH.",
            ) from error
        raise _broken(name, error) from error
    # User code: report its errors as a message, without a traceback.
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> Misuse:
    return Misuse(
        f"The module {name} cannot be imported: {type(error).__name__}: {error}.",
        hint=f"`python -c 'import {name}'` shows where.",
    )


_ARGUMENTS = (
    positional("modules", "MODULE", "Python modules with workflows, such as app.flows", nargs="+"),
    option("--concurrency", "N", "runs that are worked on at a time (1)", type=_number, default=1),
    flag("--until-idle", "end when nothing is due; runs that sleep or wait do not count"),
    flag("--dry-run", "only list the runs that are due"),
)
COMMAND = Command(_worker, _ARGUMENTS, does=Does.SETTLES)
