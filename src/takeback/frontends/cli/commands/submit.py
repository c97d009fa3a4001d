"""`submit`: a new run of a workflow."""

import json
from typing import Any

from takeback.errors import Misuse
from takeback.frontends.cli.command import AGENT, DRY_RUN, Asked, Command, option, positional
from takeback.frontends.cli.commands.worker import imported
from takeback.frontends.cli.output.screen import clean
from takeback.frontends.cli.session.store import agent_of, give, opened
from takeback.model.run import UNFINISHED

_ARGUMENTS = (
    positional("workflow", "MODULE:FUNCTION", "a workflow"),
    positional("arguments", "ARG", "an argument: JSON, or NAME=JSON", nargs="*", default=[]),
    option("--key", "K", "submitted once: the same key again is the same run"),
    AGENT,
    option("--name", "N", "what to call the run (else as the function)", default=""),
    DRY_RUN,
)


def _submit(asked: Asked) -> int:
    from takeback.audit.views import run_info_json

    options = asked.options
    module, _, function = options.workflow.partition(":")
    if not module or not function:
        raise Misuse(
            f"{options.workflow!r} is not MODULE:FUNCTION.",
            hint="For example `takeback submit app.flows:deploy`.",
        )
    found = getattr(imported(module), function, None)
    from takeback.runs.workflows.function import Workflow

    if not isinstance(found, Workflow):
        raise Misuse(
            f"The module {module} has no workflow {function!r}.",
            hint="Write @takeback.workflow over the function.",
        )
    args, kwargs = _given(options.arguments)
    if options.dry_run:
        return asked.would({"workflow": found.name}, f"Would submit {clean(found.name)}.")
    with opened(asked) as tb:
        info = tb.submit(
            found, *args, key=options.key or "", agent=agent_of(asked), name=options.name, **kwargs
        )
        give(asked, tb, run_info_json(info))
        name = asked.screen.id(info.id)
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
            kwargs[name] = from_json(value)
        else:
            args.append(from_json(word))
    return args, kwargs


def from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise Misuse(
            f"{text!r} is not JSON.", hint="""Text stands in quotes: '"v42"'; also 3, true, '{"a": 1}'."""
        ) from None


COMMAND = Command(_submit, _ARGUMENTS, mixed=True)
