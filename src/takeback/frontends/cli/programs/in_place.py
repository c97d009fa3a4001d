"""`run --in-place`: the command changes the files themselves, and what it changed is found by comparing."""

import os
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from takeback.errors import Conflict, InDoubt, Misuse, TakebackError, Unavailable
from takeback.frontends.cli.command import OURS, Asked
from takeback.frontends.cli.output.differences import (
    hint_at_shell,
    outcome_json,
    say_changes,
    say_made,
    seconds,
    until,
)
from takeback.frontends.cli.output.screen import clean, here, listed, say_first, warn
from takeback.frontends.cli.output.screen import shown as shown_path
from takeback.frontends.cli.programs.interruption import taken_back
from takeback.frontends.cli.programs.process import Gate
from takeback.frontends.cli.session.store import agent_of, opened, own_directory, store_path
from takeback.model.effect import DropReason
from takeback.model.ids import new_id, short
from takeback.model.plan import Outcome, way_to_both
from takeback.model.resource import file_resource
from takeback.runs.commands.outcome import CommandOutcome, in_numbers, in_words, why_final
from takeback.runs.commands.request import Pipes, TerminalUse, directory_of, shown, told, words_of
from takeback.storage.sqlite.store import exists

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.runs.run import Run
    from takeback.runs.watch import Watch

_LISTED = 10
_BACK = (Outcome.UNDONE, Outcome.ALREADY)


def carry_out_in_place(asked: Asked, argv: list[str]) -> int:
    from takeback.adapters.watch.processes import MARK

    options = asked.options
    _refuse_unfit(asked)
    words = words_of(argv)
    directory_of(None)
    roots: list[str] = options.root or ["."]
    _refuse_early(asked, roots)
    mark = new_id()
    with ExitStack() as stack:
        captured = stack.enter_context(Pipes()) if asked.screen.json else None
        stdio = (0, *captured.stdio[1:]) if captured else (0, 1, 2)
        # Before the store is opened: a process with threads and connections is not to be forked.
        gate = stack.enter_context(Gate(words, {**os.environ, MARK: mark}, stdio))
        if captured:
            captured.listen()
        with opened(asked) as tb:
            outcome, code = _carried_out(asked, tb, gate, words, roots, mark)
            if captured:
                captured.close()
                outcome = outcome._replace(stdout=captured.stdout, stderr=captured.stderr)
                asked.screen.give(outcome_json(tb, outcome))
    return code


def _refuse_unfit(asked: Asked) -> None:
    options = asked.options
    for given, name in (
        (options.hold or options.on_failure == "hold", "--hold"),
        (options.ask, "--ask"),
        (options.dry_run, "--dry-run"),
        (options.no_network, "--no-network"),
    ):
        if given:
            raise Misuse(
                f"{name} needs the sandbox, and in place there is none.",
                hint="Nothing was run. In place a command changes the files themselves; `takeback undo` takes it back.",
            )


def _refuse_early(asked: Asked, roots: list[str]) -> None:
    """Report errors that need no store before one is made."""
    from takeback.adapters.watch.roots import refuse_dangerous, refuse_large, roots_of
    from takeback.model.settings import Settings

    found = roots_of(roots)
    refuse_dangerous(found, os.fsencode(os.path.realpath(own_directory(asked))), asked.options.any_root)
    if not asked.options.any_root and not exists(store_path(asked)):
        refuse_large(found, Settings().watch_entries)


def _carried_out(
    asked: Asked, tb: "Takeback", gate: Gate, argv: tuple[str, ...], roots: list[str], mark: str
) -> tuple[CommandOutcome, int]:
    with tb.run(asked.options.name or shown(argv) or "command", agent_of(asked)) as run:
        exit_code = -1
        try:
            watch = _watched(asked, run, gate, argv, roots, mark)
            with TerminalUse((0, 1, 2)) as use:
                exit_code = _ran(asked, run, gate, argv)
            outcome = _finished(asked, watch, gate, exit_code, mark)._replace(used_terminal=use.happened)
        except TakebackError as error:
            # There may be no room even for saying that it is over: then the next command settles it.
            with suppress(TakebackError):
                if exit_code < 0:
                    taken_back(tb, run, error, "nothing was changed")
            with suppress(TakebackError):
                run.leave()
            ran = exit_code >= 0
            error.hint = (
                _not_recorded(error.way_on, exit_code) if ran else f"Nothing was run. {error.way_on}".rstrip()
            )
            raise
        except BaseException as error:
            taken_back(tb, run, error, "nothing was changed")
            raise
        reason = DropReason.INTERRUPTED if gate.interrupted else DropReason.FAILED
        outcome, code = _settled(asked, tb, run, outcome, watch, reason)
        return outcome, _told_of_stop(tb, run) if gate.stopped else code


def _told_of_stop(tb: "Takeback", run: "Run") -> int:
    from takeback.api import opened_of
    from takeback.engine.stop import in_words, stop_of, way_out

    if stop := stop_of(opened_of(tb).parts, run.agent, run.id):
        warn(f"takeback: {clean(in_words(stop))}. {clean(way_out(stop))}")
    return OURS


def _not_recorded(hint: str, exit_code: int) -> str:
    """The world is changed, and how it was is in the store: so much must be said, whatever went wrong."""
    return (
        f"The command has ended with exit code {exit_code}, and what it changed stays; how it was before is in the "
        f"store. {hint} Then `takeback recover` records it, and `takeback undo` "
        "takes it back."
    )


def _watched(
    asked: Asked, run: "Run", gate: Gate, argv: tuple[str, ...], roots: list[str], mark: str
) -> "Watch":
    from takeback.adapters.watch.processes import identity

    about: dict[str, Any] = {
        "argv": told(argv),
        "cwd": file_resource(os.getcwd()),
        "process": identity(gate.pid, mark),
    }
    watch = run.watch(*roots, any_root=asked.options.any_root, about=about, summary=shown(argv))
    watch.begin()
    if watch.left_out:
        named = listed([shown_path(hole.path, here()) for hole in watch.left_out])
        asked.screen.remark(f"not captured, and never touched by undo: {named}.")
    return watch


def _ran(asked: Asked, run: "Run", gate: Gate, argv: tuple[str, ...]) -> int:
    from takeback.runs.run import core_of
    from takeback.runs.stopped import ended_by_stop

    try:
        with ended_by_stop(core_of(run), gate.end):
            return gate.run(seconds(asked.options.timeout))
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        warn(f"takeback: {clean(argv[0])}: {'command not found' if missing else error.strerror}")
        if hint := hint_at_shell(argv, 127 if missing else 126):
            warn(f"hint: {clean(hint)}")
        return 127 if missing else 126


def _finished(asked: Asked, watch: "Watch", gate: Gate, exit_code: int, mark: str) -> CommandOutcome:
    from takeback.adapters.watch.processes import named

    left = named(gate.leftover, mark)
    more: dict[str, Any] = {"exit_code": exit_code}
    if left:
        more["leftover"] = [str(process) for process in left]
        names = ", ".join(map(str, left[:5]))
        are, change = ("is", "it changes") if len(left) == 1 else ("are", "they change")
        warn(
            f"takeback: {clean(names)} {are} still running, and what {change} from now on is not part of this."
        )
    effect = watch.finish(more)
    stopped = "stop" if gate.stopped else "time" if gate.timed_out else ""
    more_to_say = (watch.told_of_databases, watch.others, watch.turned_back, watch.not_covered)
    for sentence in filter(None, more_to_say):
        asked.screen.remark(clean(sentence))
    asked.made.extend(one.id for one in watch.databases)
    coverage = " ".join(filter(None, (watch.coverage, watch.shared, *more_to_say)))
    return CommandOutcome(exit_code, b"", b"", effect, watch.changes, coverage, stopped=stopped)


def _settled(
    asked: Asked, tb: "Takeback", run: "Run", outcome: CommandOutcome, watch: "Watch", reason: DropReason
) -> tuple[CommandOutcome, int]:
    was_stopped = outcome.stopped == "stop"
    failed, code = outcome.exit_code != 0 or was_stopped, outcome.exit_code
    if outcome.effect is None:
        outcome = outcome._replace(text=_tell_nothing_recorded(asked, outcome, watch))
        if failed:
            run.close(failed="it was stopped" if was_stopped else f"exit code {outcome.exit_code}")
    elif was_stopped or (failed and asked.options.on_failure == "undo"):
        try:
            outcome, code = _taken_back(asked, tb, run, outcome, reason)
        except InDoubt as error:
            asked.made.append(outcome.effect.id)
            error.effect = error.effect or outcome.effect.id
            error.hint = f"The command failed ({_why(outcome)}). {error.hint}"
            raise
    else:
        asked.made.append(outcome.effect.id)
        if asked.screen.speaks:
            say_made(asked, outcome, _why(outcome))
            if shared := outcome.effect.change.args.get("shared", ""):
                warn(f"takeback: {clean(shared)}")
    return outcome._replace(text=outcome.text or in_words(outcome)), code


def _tell_nothing_recorded(asked: Asked, outcome: CommandOutcome, watch: "Watch") -> str:
    """What --json says of it; empty where that is said already."""
    undone_elsewhere = bool(watch.turned_back or watch.databases)
    ended = f"The command ended with exit code {outcome.exit_code}"
    what = _not_its_own(watch.elsewhere) if watch.elsewhere else f"and changed nothing below {_where(watch)}"
    if undone_elsewhere:
        what = "and nothing was taken back"
    if outcome.exit_code:
        asked.screen.remark(f"it failed ({_why(outcome)}), {what}.")
    elif not undone_elsewhere:
        asked.screen.remark(_nothing_recorded(watch))
    if not (watch.elsewhere or undone_elsewhere):
        nothing = f"Nothing below {_where(watch)} was changed, so nothing was recorded."
        return f"{ended}. {nothing} {watch.not_covered}".rstrip()
    if outcome.exit_code and (watch.elsewhere or watch.turned_back):
        return f"{ended}, {what}."
    return outcome.text


def _where(watch: "Watch") -> str:
    named = [shown_path(root, here()) for root in watch.roots[:5]]
    return ", ".join("the current directory" if one == "." else one for one in named)


def _nothing_recorded(watch: "Watch") -> str:
    """Else a bare `undo` would be taken for the undo of this."""
    nothing = f"no change by this command was seen below {_where(watch)}, so none was recorded"
    if watch.elsewhere:
        return f"{nothing}; other effects changed files there at the same time."
    return f"{nothing}. Changes elsewhere are not covered." if not watch.outside else f"{nothing}."


def _not_its_own(elsewhere: tuple[str, ...]) -> str:
    """Who changed it cannot be known: it may have been the command."""
    names = listed([shown_path(one, here()) for one in elsewhere])
    return (
        f"and nothing was taken back: what changed there is recorded with other effects ({names}); "
        "`takeback log` shows them"
    )


def _taken_back(
    asked: Asked, tb: "Takeback", run: "Run", outcome: CommandOutcome, reason: DropReason
) -> tuple[CommandOutcome, int]:
    from takeback.runs.run import core_of
    from takeback.runs.undo import drop_undone

    assert outcome.effect
    effect = outcome.effect
    try:
        result = run.undo(effect)
    except InDoubt:
        raise
    except TakebackError as error:
        asked.made.append(effect.id)
        both = way_to_both(effect, {one.resource for one in effect.targets})
        name = short(effect.id)
        could, again = "could not be", f"`takeback undo {name}` tries again, or says what to do."
        if isinstance(error, Unavailable):  # also of a store that went away after the undo was made
            could, again = "may not have been", f"`takeback show {name}` says how it stands."
        way_on = again if isinstance(error, Conflict) else both or again
        warn(
            f"takeback: it failed ({_why(outcome)}), but what it changed {could} taken back: {clean(str(error))} "
            f"{way_on}"
        )
        return outcome, OURS
    dropped, final = drop_undone(core_of(run), effect, result, outcome.used_terminal, reason)
    # Told is what was seen to be back: what others changed after the command stays with them.
    stay = {one.resource: one.detail for one in result.targets if one.outcome not in _BACK}
    back = outcome._replace(changes=tuple(one for one in outcome.changes if one.resource not in stay))
    numbers = in_numbers(back.changes) or "nothing"
    if asked.screen.speaks:
        warn(
            f"takeback: it failed ({_why(outcome)}), so the changes made there while it ran were taken back: {numbers}."
        )
        say_changes(back.changes)
        stays = [f"not taken back: {shown_path(one, here())}: {clean(why)}" for one, why in stay.items()]
        say_first(asked.screen.remark, stays, _LISTED)
        if both := way_to_both(effect, stay):
            warn(f"takeback: {both}")
        undone = result.undo[0].id if result.undo else effect.id
        _say_way_back(back._replace(dropped=dropped, final=final), undone)
        if effect.remedy and effect.remedy.residue:
            warn(f"takeback: this is left behind: {clean(effect.remedy.residue)}")
    text = f"The command ended with exit code {outcome.exit_code}. Its changes were taken back: {numbers}."
    if dropped:
        text += f" `takeback apply {short(dropped.id)}` makes it again."
    told = outcome._replace(effect=tb.effect(effect.id), text=text, dropped=dropped)
    return told, outcome.exit_code


def _say_way_back(outcome: CommandOutcome, undo: str) -> None:
    """Where the store cannot hold it as a drop, the undo that took it back can be taken back itself."""
    if outcome.dropped:
        name = short(outcome.dropped.id)
        if outcome.dropped.waits_for:
            warn(
                f"takeback: it read from the terminal, so what it did is held: `takeback apply {name}` makes it again, "
                f"`takeback discard {name}` drops it."
            )
            return
        warn(f"takeback: `takeback apply {name}` makes it again{until(outcome.dropped)}.")
        return
    why = ""
    if outcome.final:  # the undo has saved it, whatever the settings of drops say
        off = outcome.final.value == "off"
        why = f" It is not listed as a drop: {'`dropped_seconds` is 0' if off else why_final(outcome.final)}."
    warn(f"takeback: `takeback redo {short(undo)}` brings it back.{why}")


def _why(outcome: CommandOutcome) -> str:
    if outcome.stopped:
        return "it was stopped" if outcome.stopped == "stop" else "it took too long"
    return f"exit code {outcome.exit_code}"
