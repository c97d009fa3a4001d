"""`worker submit signal resume`: durable workflows from the command line."""

import json
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING, Any

from takeback.errors import Misuse
from takeback.frontends.cli.commands import Asked, Command, Does
from takeback.frontends.cli.output.screen import clean, counted, warn
from takeback.frontends.cli.session.store import agent_of, existing, give, opened
from takeback.model.ids import short
from takeback.model.run import UNFINISHED, OnDeath

if TYPE_CHECKING:
    from takeback.runs.workflows.function import Workflow


def _worker_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "modules", metavar="MODULE", nargs="+", help="Python modules with workflows, such as app.flows"
    )
    parser.add_argument(
        "--concurrency", type=_number, default=1, metavar="N", help="runs that are worked on at a time (1)"
    )
    parser.add_argument(
        "--until-idle",
        action="store_true",
        help="end when nothing is due; runs that sleep or wait do not count",
    )


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
    with opened(asked) as tb:
        worker = tb.worker(known, asked.options.concurrency, lambda words: warn(f"takeback: {clean(words)}"))
        names = ", ".join(sorted(known))
        with stopped_by_signals(worker, lambda number: os._exit(128 + number)):
            asked.screen.say(f"Working on {names}; Ctrl-C stops at the next step.")
            sys.stdout.flush()
            _tell_unknown(tb, known, asked.options.modules)
            worker.work(until_idle=asked.options.until_idle)
        give(asked, tb, {"worked": worker.worked})
        asked.screen.say(f"{counted(worker.worked, 'run')} continued.")
    return 0


def _tell_unknown(tb: Any, known: "dict[str, Workflow]", modules: list[str]) -> None:
    """Of runs whose function is no longer in these modules: they would wait in silence."""
    gone: dict[str, int] = {}
    for info in tb.store.journal.runs(unfinished=True):
        if (
            info.on_death is OnDeath.RESUME
            and info.workflow.partition(":")[0] in modules
            and info.workflow not in known
        ):
            gone[info.workflow] = gone.get(info.workflow, 0) + 1
    for name, count in gone.items():
        warn(
            f"takeback: needs attention: {counted(count, 'run')} of {clean(name)} cannot continue, because the workflow "
            "no longer exists."
        )


def workflows_in(name: str) -> "dict[str, Workflow]":
    """Of the module, which is imported with the current directory on the path."""
    from takeback.runs.workflows.function import found_in

    module = _imported(name)
    known = found_in(module)
    if not known:
        raise Misuse(
            f"The module {name} has no workflow.", hint="Write @takeback.workflow over a function in it."
        )
    return known


def _imported(name: str) -> Any:
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
    # Somebody's code: whatever it raises is told, not thrown at a person.
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> Misuse:
    return Misuse(
        f"The module {name} cannot be imported: {type(error).__name__}: {error}.",
        hint=f"`python -c 'import {name}'` shows where.",
    )


def _submit_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("workflow", metavar="MODULE:FUNCTION", help="a workflow")
    parser.add_argument(
        "arguments", metavar="ARG", nargs="*", default=[], help="what it is called with: JSON, or NAME=JSON"
    )
    parser.add_argument("--key", metavar="K", help="submitted once: the same key again is the same run")
    parser.add_argument("--agent", metavar="A", help="who asks for it (else TAKEBACK_AGENT, else cli)")
    parser.add_argument("--name", metavar="NAME", default="", help="of the run (else that of the function)")


def _submit(asked: Asked) -> int:
    from takeback.audit.views import run_info_json

    options = asked.options
    module, _, function = options.workflow.partition(":")
    if not module or not function:
        raise Misuse(
            f"{options.workflow!r} is not MODULE:FUNCTION.",
            hint="For example `takeback submit app.flows:deploy`.",
        )
    found = getattr(_imported(module), function, None)
    from takeback.runs.workflows.function import Workflow

    if not isinstance(found, Workflow):
        raise Misuse(
            f"The module {module} has no workflow {function!r}.",
            hint="Write @takeback.workflow over the function.",
        )
    args, kwargs = _given(options.arguments)
    with opened(asked) as tb:
        info = tb.submit(
            found, *args, key=options.key or "", agent=agent_of(asked), name=options.name, **kwargs
        )
        give(asked, tb, run_info_json(info))
        name = asked.screen.paint(short(info.id), "cyan")
        if info.state in UNFINISHED:
            asked.screen.say(f"Submitted {clean(found.name)} as run {name}.")
            asked.screen.hint(f"`takeback worker {module}` carries it out.")
        else:
            asked.screen.say(
                f"Run {name} with this key has ended ({info.state.value}); nothing was submitted."
            )
    return 0


def _given(words: list[str]) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name.isidentifier():
            if name in kwargs:
                raise Misuse(f"The argument {name} is given twice.", hint="Give it once.")
            kwargs[name] = _json(value)
        else:
            args.append(_json(word))
    return args, kwargs


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise Misuse(
            f"{text!r} is not JSON.", hint="""Text stands in quotes: '"v42"'; also 3, true, '{"a": 1}'."""
        ) from None


def _signal_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run: its name, id, or the beginning of its id")
    parser.add_argument("event", metavar="EVENT", help="what it waits for")
    parser.add_argument("data", metavar="JSON", nargs="?", default="null", help="what comes with it")


def _signal(asked: Asked) -> int:
    options = asked.options
    data = _json(options.data)
    with existing(asked, lambda tb: tb.find_run(options.run)) as tb:
        info = tb.find_run(options.run)
        tb.signal(info, options.event, data)
        give(asked, tb, {"run": info.id, "event": options.event})
        waits = info.awaits == options.event
        later = "" if waits else " It does not wait for it yet; the signal is kept until it does."
        asked.screen.say(f"Sent {clean(options.event)!r} to run {short(info.id)}.{later}")
    return 0


def _resume_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", help="a run of a workflow: its name, id, or the beginning of its id"
    )
    parser.add_argument(
        "--from-checkpoint",
        metavar="C",
        help="undo later effects than this checkpoint, and continue from there",
    )


def _known(tb: Any, options: Namespace) -> None:
    """Names are judged before anything is settled."""
    info = tb.find_run(options.run)
    if options.from_checkpoint:
        from takeback.runs.checkpoints import find

        find(tb.store.journal, options.from_checkpoint, info.id)


def _resume(asked: Asked) -> int:
    from takeback.audit.views import run_info_json

    options = asked.options
    with existing(asked, lambda tb: _known(tb, options)) as tb:
        info = tb.find_run(options.run)
        if info.on_death is not OnDeath.RESUME:
            raise Misuse(
                f"Run {short(info.id)} ({info.name}) is no workflow: only its own program can continue it.",
                hint="`tb.resume(run)` does that; `takeback undo --to CHECKPOINT` only takes back.",
            )
        tb.resume(info, from_checkpoint=options.from_checkpoint)
        give(asked, tb, run_info_json(tb.find_run(info.id)))
        where = f" from checkpoint '{clean(options.from_checkpoint)}'" if options.from_checkpoint else ""
        asked.screen.say(f"Run {short(info.id)} goes on{where} as soon as a worker is there.")
        asked.screen.hint(f"`takeback worker {info.workflow.partition(':')[0]}` is one.")
    return 0


COMMANDS = {
    "worker": Command(_worker_arguments, _worker, does=Does.SETTLES),
    "submit": Command(_submit_arguments, _submit, mixed=True),
    "signal": Command(_signal_arguments, _signal),
    "resume": Command(_resume_arguments, _resume),
}
