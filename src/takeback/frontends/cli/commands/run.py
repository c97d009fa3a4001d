"""`run`: one command as one effect."""

import errno
import os
import re
from argparse import Namespace
from typing import TYPE_CHECKING

from takeback.api import opened_of
from takeback.audit.diff import difference
from takeback.audit.views import effect_json
from takeback.errors import Misuse
from takeback.frontends.cli.command import (
    AGENT,
    NO_NETWORK,
    OURS,
    TIMEOUT,
    Asked,
    Command,
    flag,
    option,
    positional,
    repeated,
)
from takeback.frontends.cli.output.differences import (
    hint_at_shell,
    numbers_of,
    outcome_json,
    say_changes_of,
    say_made,
    say_parts,
    seconds,
    until,
)
from takeback.frontends.cli.output.screen import answered, clean, here, listed, say_first, warn
from takeback.frontends.cli.output.screen import shown as shown_path
from takeback.frontends.cli.programs.interruption import ctrl_c_is_for_the_command, taken_back, unanswered
from takeback.frontends.cli.session.project import refuse_unaskable
from takeback.frontends.cli.session.store import agent_of, dry_store, opened, own_directory
from takeback.model.ids import short
from takeback.model.plan import TargetOutcome
from takeback.runs.commands.outcome import CommandOutcome, left_behind, why_final
from takeback.runs.commands.request import (
    ON_FAILURE,
    CommandRequest,
    directory_of,
    refuse_keep,
    refuse_unfit,
    shown,
    words_of,
)

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.effect import Effect
    from takeback.runs.run import Run


_LISTED = 10

_FEW = 4

_ANSWERS = {
    "y": "apply", "yes": "apply", "a": "apply", "apply": "apply",
    "n": "discard", "no": "discard", "d": "discard", "discard": "discard",
    "s": "show", "show": "show", "diff": "show",
}  # fmt: skip


def _on_failure(said: str) -> str:
    refuse_keep(said)
    return said


_IN_PLACE = "without a sandbox"
_ARGUMENTS = (
    option("--name", "N", "what to call the run (else the command line)"),
    AGENT,
    flag("--hold", "hold its changes for `apply` or `discard`"),
    flag("--ask", "show its changes and ask whether to apply them"),
    option(
        "--on-failure",
        "WHAT",
        "what to do with its changes if it fails (default: undo)",
        type=_on_failure,
        choices=ON_FAILURE,
        default="undo",
    ),
    flag("--dry-run", "run it, say what it would change, change nothing"),
    NO_NETWORK,
    TIMEOUT,
    repeated(
        "--sql",
        "URL",
        "record what the command changes in this database as one effect (env:NAME hides the address)",
    ),
    flag("--in-place", "let it change the files themselves, and watch", _IN_PLACE),
    repeated("--root", "DIR", "what to watch (else the current directory)", _IN_PLACE),
    flag("--any-root", "allow roots that are refused otherwise: home, /, very large trees", _IN_PLACE),
    positional("command", "COMMAND", "the command, after --", nargs="..."),
)


def command_in(words: list[str], verb: str = "run") -> list[str]:
    """What follows `--`."""
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        raise Misuse("No command was given.", hint=f"For example `takeback {verb} -- make install`.")
    return command


def refuse_stray_root(options: Namespace) -> None:
    if options.root and not options.in_place:
        raise Misuse("--root is for --in-place.", hint="In a sandbox everything is covered.")


def _run(asked: Asked) -> int:
    options = asked.options
    argv = command_in(options.command)
    limit = seconds(options.timeout)
    refuse_stray_root(options)
    if options.sql:
        return _with_databases(asked, argv, limit)
    refuse_unaskable(options)
    if options.in_place:
        return _in_place(asked, argv)
    request = CommandRequest(
        words_of(argv), directory_of(None), dict(os.environ), network=not options.no_network, timeout=limit
    )
    # Before a run is opened, which would stay in the list.
    refuse_unfit(request._replace(hold=options.hold or options.ask, dry_run=options.dry_run))
    with dry_store(asked) if options.dry_run else opened(asked) as tb:
        from takeback.sandbox.ability import ability

        able = ability(tb.path)
        if not able.engine:
            warn(
                f"takeback: no sandbox here ({clean(able.why)}); running in place instead, watching "
                f"{clean(here().directory) or 'nothing'} only."
            )
            tb.close()
            return _in_place(asked, argv)
        if not options.dry_run and _place(asked, tb, argv) == "in place":
            tb.close()
            return _in_place(asked, argv)
        outcome = _carried_out(asked, tb, argv, limit, request)
        return _told(asked, tb, outcome)


def _place(asked: Asked, tb: "Takeback", argv: list[str]) -> str:
    """Where a rule wants it to run; empty without one."""
    from takeback.engine.guards import policy_says
    from takeback.model.change import Change
    from takeback.model.resource import file_resource

    here_now = file_resource(directory_of(None))
    change = Change("command", "run", here_now, shown(tuple(argv)), {"argv": list(argv)})
    return policy_says(opened_of(tb).parts, "", agent_of(asked), change).place


def _with_databases(asked: Asked, argv: list[str], limit: float) -> int:
    from takeback.frontends.cli.programs.databases import carried_out, refuse_unfit, say_effects

    options = asked.options
    refuse_unfit(asked)
    with opened(asked) as tb:
        with tb.run(options.name or shown(tuple(argv)) or "command", agent_of(asked)) as run:
            ended = carried_out(asked, tb, run, argv, limit)
            if ended.outcome.exit_code and not ended.effects:
                run.close(failed=f"exit code {ended.outcome.exit_code}")
        asked.made.extend(effect.id for effect in ended.effects)
        if asked.screen.speaks:
            say_effects(tb, ended)
        return _told(asked, tb, ended.outcome, tuple(tb.effect(effect.id) for effect in ended.effects))


def _in_place(asked: Asked, argv: list[str]) -> int:
    from takeback.frontends.cli.programs.in_place import carry_out_in_place

    return carry_out_in_place(asked, argv)


def _carried_out(
    asked: Asked, tb: "Takeback", argv: list[str], limit: float, request: CommandRequest
) -> CommandOutcome:
    options = asked.options
    if options.dry_run:
        from takeback.runs.commands.execute import tried

        with ctrl_c_is_for_the_command():
            return tried(opened_of(tb).parts, request, asked.screen.json)
    with tb.run(options.name or shown(tuple(argv)) or "command", agent_of(asked)) as run:
        try:
            with ctrl_c_is_for_the_command():
                outcome = run.command(
                    argv,
                    network=not options.no_network,
                    timeout=limit,
                    hold=options.hold or options.ask,
                    on_failure=options.on_failure,
                    capture=asked.screen.json,
                )
        except BaseException as error:
            taken_back(tb, run, error, "what the command had changed is dropped; nothing was changed")
            raise
        if options.ask and outcome.held and outcome.effect:
            try:
                outcome = _asked_for(asked, tb, run, outcome)
            except (KeyboardInterrupt, SystemExit) as error:
                unanswered(tb, run, outcome.effect.id, error)
                raise
        if outcome.exit_code and (outcome.held or not outcome.effect):
            run.close(failed=f"exit code {outcome.exit_code}")
    return outcome


def _asked_for(asked: Asked, tb: "Takeback", run: "Run", outcome: CommandOutcome) -> CommandOutcome:
    assert outcome.effect
    name = outcome.effect.id
    while True:
        say_changes_of(outcome)
        answer = answered("Apply it? [y: apply, n: discard, s: show it, Enter: leave it held]", _ANSWERS, "")
        if answer == "apply":
            run.apply(name)
            return outcome._replace(effect=tb.effect(name))
        if answer == "discard":
            run.discard(name)
            return outcome._replace(effect=None, dropped=tb.effect(name))
        if not answer:
            return outcome
        effect = tb.effect(name)
        say_parts(asked.screen, difference(tb.store.blobs, effect), effect)


def _told(asked: Asked, tb: "Takeback", outcome: CommandOutcome, rows: "tuple[Effect, ...]" = ()) -> int:
    """`rows`: the effects in databases."""
    if outcome.effect:
        asked.made.append(outcome.effect.id)
    if asked.screen.json:
        databases = {"databases": [effect_json(one) for one in rows]} if asked.options.sql else {}
        asked.screen.give(outcome_json(tb, outcome) | databases)
    elif not asked.screen.quiet:
        _say(asked, outcome, rows)
    elif outcome.conflicts:
        # Nothing was merged though the command succeeded: that is no mere information.
        _say_conflicts(outcome.conflicts)
        _say_held(outcome)
    if outcome.conflicts or any(one.receipt.get("lost") or one.receipt.get("one_way") for one in rows):
        return OURS
    return outcome.exit_code


def _say(asked: Asked, outcome: CommandOutcome, rows: "tuple[Effect, ...]" = ()) -> None:
    """On standard error: standard output is the command's own."""
    failed = _why(asked, outcome)
    if outcome.leftover:
        warn(f"takeback: {left_behind(outcome.leftover)}")
    if outcome.conflicts:
        _say_conflicts(outcome.conflicts)
    if asked.options.dry_run:
        _say_what_if(asked, outcome, failed)
    elif outcome.held and outcome.effect:
        _say_held(outcome, failed)
    elif outcome.effect:
        say_made(asked, outcome, failed)
    elif outcome.exit_code and asked.options.sql:
        from takeback.frontends.cli.programs.databases import after_failure

        warn(f"takeback: {after_failure(failed, rows, outcome)}")
    elif outcome.exit_code:
        _say_failed(asked, outcome, failed)
    elif asked.options.ask and outcome.changes:
        warn(f"takeback: discarded; nothing was changed.{way_to_apply(outcome)}")
    elif not rows:
        warn("takeback: No changes.")


def _say_what_if(asked: Asked, outcome: CommandOutcome, failed: str) -> None:
    what = numbers_of(outcome) or "nothing"
    if outcome.exit_code and asked.options.on_failure == "undo":
        warn(f"takeback: it failed ({failed}), so its changes would be dropped: {what}; nothing was changed.")
    else:
        warn(f"takeback: would change: {what}; nothing was changed.")
    say_changes_of(outcome)


def _say_failed(asked: Asked, outcome: CommandOutcome, failed: str) -> None:
    from takeback.sandbox.ability import git_links

    dropped = f"; dropped: {numbers_of(outcome)}" if outcome.changes else ""
    warn(f"takeback: it failed ({failed}), so nothing was changed{dropped}.{way_to_apply(outcome)}")
    if hint := hint_at_shell(command_in(asked.options.command), outcome.exit_code):
        warn(f"hint: {clean(hint)}")
    elif outcome.exit_code not in (126, 127) and not outcome.stopped:
        _hint_at_owners()
        _hint_at_read_only(asked, outcome)
        if hint := git_links(command_in(asked.options.command)):
            warn(f"hint: {hint}")


def way_to_apply(outcome: CommandOutcome) -> str:
    """A sentence: how to make what was dropped after all, or that it cannot be."""
    if outcome.final:
        return f" This drop is final: {why_final(outcome.final)}."
    if outcome.dropped is None or outcome.dropped.dropped is None:
        return ""
    return f" `takeback apply {short(outcome.dropped.id)}` makes it after all{until(outcome.dropped)}."


def _say_held(outcome: CommandOutcome, failed: str = "") -> None:
    if outcome.effect is None:
        return
    if outcome.exit_code and failed:
        why = " It read from the terminal, so what it did waits for you." if outcome.used_terminal else ""
        warn(f"takeback: it failed ({failed}), so nothing was changed.{why}")
    name = short(outcome.effect.id)
    apply = f"apply --force {name}" if outcome.conflicts else f"apply {name}"
    warn(f"takeback: held {name}: {numbers_of(outcome)}. `takeback diff {name}` shows it, "
         f"`takeback {apply}` makes it, `takeback discard {name}` drops it.")  # fmt: skip


def _hint_at_owners() -> None:
    """Its output went to the terminal and is unknown, so the hint is given wherever this may be the reason."""
    from takeback.sandbox.ability import OVERFLOW, unmapped

    path, whose = unmapped(".")
    if path:
        warn(
            f'hint: If it said "{OVERFLOW}": in a sandbox an ordinary user cannot change files of other users '
            f"or groups ({clean(os.path.normpath(path))} {whose}). Use `takeback run --in-place`."
        )


def _hint_at_read_only(asked: Asked, outcome: CommandOutcome) -> None:
    """takeback made these read-only, and only it can say so. Told where the command names one of them, or was heard to
    meet one."""
    from takeback.sandbox.ability import ability

    able = ability(own_directory(asked))
    heard = os.strerror(errno.EROFS).encode() in outcome.stdout + outcome.stderr
    named = " ".join((os.getcwd(), *command_in(asked.options.command)))
    places = [
        path
        for path, _ in able.not_covered
        if path.startswith("/") and (heard or re.search(rf"{re.escape(path)}(?![\w.-])", named))
    ]
    if places:
        warn(
            f'hint: If it said "Read-only file system": {clean(listed(places, _FEW))} cannot be written in '
            "this sandbox (`takeback explain` says why). `takeback run --in-place` can."
        )


def _why(asked: Asked, outcome: CommandOutcome) -> str:
    if outcome.stopped:
        return "it took too long" if outcome.stopped == "time" else "it needed too much memory"
    program = clean(command_in(asked.options.command)[0])
    named = {126: f": {program} could not be run", 127: f": there is no program {program}"}
    return f"exit code {outcome.exit_code}{named.get(outcome.exit_code, '')}"


def _say_conflicts(conflicts: tuple[TargetOutcome, ...]) -> None:
    warn("takeback: others changed the same while it ran, so nothing was merged:")
    lines = [f"! {shown_path(one.resource, here())}: {clean(one.detail)}" for one in conflicts]
    say_first(warn, lines, _LISTED, "  ")


COMMAND = Command(_run, _ARGUMENTS, "takeback run [options] -- COMMAND [ARGUMENT…]")
