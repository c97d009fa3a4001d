"""`shell`: a session in a box, on a terminal or from a script; every command is a step with a way back."""

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from takeback.adapters.protocol import traits_of
from takeback.audit.views import effect_json
from takeback.errors import InDoubt, Misuse, ResourceUnreachable, TakebackError
from takeback.frontends.cli.command import AGENT, NO_NETWORK, OURS, Asked, Command, flag, option
from takeback.frontends.cli.output.differences import changes_json, command_json, say_changes, seconds
from takeback.frontends.cli.output.errors import in_doubt
from takeback.frontends.cli.output.screen import (
    clean,
    complain,
    counted,
    from_here,
    local_time,
    printing,
    put,
    warn,
)
from takeback.frontends.cli.programs.interruption import ctrl_c_is_for_the_command
from takeback.frontends.cli.programs.shell_lines import commands, from_list, from_script, from_terminal
from takeback.frontends.cli.session.store import agent_of, existing, nothing_yet, opened, thrown_away
from takeback.model.ids import short
from takeback.runs.commands.outcome import how_it_ended, in_numbers, why_final
from takeback.runs.lease import shared

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.effect import Effect
    from takeback.runs.boxes.box import Box
    from takeback.runs.boxes.command import BoxOutcome

_WORDS = """\
:undo [N]       take back the last step, or the last N
:redo           bring back what the last :undo took back
:history        the steps so far
:changes        the differences between the box and its base
:branch         continue in a second box from here; the first stays unchanged
:discard        back to where the box began (:undo takes that back)
:commit         merge everything into the base, as one effect
:export TARGET  the whole root filesystem as a tar file, or docker:NAME
:help           this list
exit [N]        leave; what is not committed stays in the box"""


_ARGUMENTS = (
    option("-c", "LINE", "run this line; may be given several times", dest="lines", action="append"),
    option("--base", "DIR", "a root filesystem to be over (else /)", default="/"),
    option("--box", "ID", "continue with this box", default=""),
    flag("--list", "only list the boxes there are"),
    flag("-e, --stop-on-failure", "stop at the first command that fails"),
    flag("--commit", "commit at the end, unless the last command failed"),
    flag("--dry-run", "run the commands in a box that is dropped at the end; list what they would change"),
    NO_NETWORK,
    option("--timeout", "S", "end each command after this many seconds"),
    AGENT,
)


def _shell(asked: Asked) -> int:
    options = asked.options
    if options.list:
        return _list(asked)
    if options.box and options.base != "/":
        raise Misuse("--base is only for a new box.", hint="Give either --box or --base.")
    if options.box and options.dry_run:
        raise Misuse(
            "--dry-run is only for a new box.",
            hint=f"`takeback shell --box {options.box} -c :changes` lists what a commit would merge.",
        )
    limit = seconds(options.timeout)
    # However it ends, what was done stays in the box.
    with (
        thrown_away(asked) if options.dry_run else opened(asked, lambda tb: _known(tb, options.box)) as tb,
        tb.run(f"shell {os.getpid()}", agent_of(asked), on_death="accept") as run,
        run.sandbox(options.base, box=options.box, network=not options.no_network, timeout=limit) as box,
    ):
        session = ShellSession(asked, tb, box)
        code = session.go_on()
        box.settle()
        session.tell_end(code)
    if session.doubt:
        warn(f"takeback: {in_doubt(session.doubt)}")
    return code


def _known(tb: "Takeback", box: str) -> None:
    """The name of a box is judged before anything is settled."""
    found = [one for one in tb.store.layers().boxes() if one.startswith(box)] if box else [""]
    if len(found) != 1 and box not in found:
        raise Misuse(f"There is no box {box!r}.", hint="`takeback shell --list` shows those there are.")


class ShellSession:
    def __init__(self, asked: Asked, tb: "Takeback", box: "Box") -> None:
        self._asked = asked
        self._tb = tb
        self._dry_run: bool = asked.options.dry_run
        self._box = box
        self._boxes = [box]  # branches are opened on top
        self._told: list[dict[str, Any]] = []
        self._committed: dict[str, Any] | None = None
        self._undone: list[tuple[Effect, ...]] = []
        self._code = 0
        self._ends = False
        self.doubt: InDoubt | None = None  # on a terminal the session continues, and ends with 125
        self._terminal = (
            not asked.options.lines and bool(sys.stdin and sys.stdin.isatty()) and not asked.screen.json
        )

    def go_on(self) -> int:
        options = self._asked.options
        if options.lines:
            lines = from_list(options.lines)
        else:
            lines = from_terminal(self._prompt) if self._terminal else from_script()
        if self._box.lost:
            lost = counted(self._box.lost, "step")
            warn(f"The machine stopped before {lost} of this box had been written to the disk: taken back.")
        if self._terminal:
            warn(f"Box {short(self._box.id)} over {clean(self._box.base)}; `:help` lists what else there is.")
            if self._dry_run:
                warn("This is a dry run: the box is dropped at the end, and :commit merges nothing.")
        try:
            for line in commands(lines):
                self._carry_out(line)
                if sys.stdout:
                    with printing():
                        sys.stdout.flush()  # before what the next command prints itself
                if self._ends or (options.stop_on_failure and self._code):
                    break
            if options.commit and not self._code and not self.doubt:
                self._word_commit([])
        finally:
            for branch in self._boxes[1:]:
                branch.close()
        return OURS if self.doubt else self._code

    def _prompt(self) -> str:
        sign = "" if not self._code else f"[{self._code}] "
        return f"{sign}{short(self._box.id)[:4]} {clean(self._box.cwd)} $ "

    def _carry_out(self, line: str) -> None:
        words = line.split()
        try:
            if words[0] == "exit":
                self._leave(words[1:])
            elif line.startswith(":") and words[0] != ":":
                self._word(line)
            else:
                self._run(line)
        except KeyboardInterrupt:
            if not self._terminal:
                raise
            self._code = 130
        except TakebackError as error:
            self._code = OURS
            if not self._terminal:
                raise
            complain(error, False)
            if isinstance(error, InDoubt):
                self.doubt = error
                warn(f"takeback: {in_doubt(error)}")
        finally:
            if self._terminal:
                shared().arrived = 0  # ^C ends the command, not the session

    def _leave(self, words: list[str]) -> None:
        if words and not _is_number(words[0]):
            raise Misuse(f"exit takes a number, not {words[0]!r}.", hint="For example `exit 1`.")
        self._code = int(words[0]) & 0xFF if words else self._code
        self._ends = True

    def _run(self, line: str) -> None:
        capture = self._asked.screen.json
        # A script is read from our standard input, which is not that of its commands.
        with ctrl_c_is_for_the_command():
            outcome = self._box.run(line, capture=capture, stdin=None if self._terminal else b"")
        if outcome.unstarted:
            raise ResourceUnreachable(
                f"No line can be run here: /bin/sh of {self._box.base} could not be started ({outcome.unstarted}).",
                hint="A session needs a root filesystem with a shell; `:undo` takes back what removed it.",
            )
        self._code = outcome.exit_code
        if outcome.effect:
            self._made(outcome.effect)
        if self._dry_run:  # what is named here can neither be applied nor undone later
            text = how_it_ended(outcome.stopped, outcome.exit_code)
            outcome = outcome._replace(effect=None, drop=None, final=None, text=text)
        if capture:
            dropped = outcome.drop if not outcome.held else None
            effect = outcome.drop if outcome.held else outcome.effect
            told = {"command": line, **command_json(self._tb, outcome, dropped, effect)}
            self._told.append(told)
        elif not self._asked.screen.quiet:
            _say(outcome)

    def _made(self, effect: "Effect") -> None:
        self._undone.clear()
        if not self._dry_run:
            self._asked.made.append(effect.id)

    def _word(self, line: str) -> None:
        try:
            name, *words = shlex.split(line[1:])
        except ValueError as error:
            raise Misuse(f"{line!r} cannot be read: {error}.", hint="Close the quotes.") from None
        known = {
            "undo": self._word_undo, "redo": self._word_redo, "history": self._word_history,
            "changes": self._word_changes, "branch": self._word_branch, "discard": self._word_discard,
            "commit": self._word_commit, "export": self._word_export, "help": self._word_help,
        }  # fmt: skip
        if name not in known:
            raise Misuse(f"There is no :{name} here.", hint="`:help` lists what there is.")
        known[name](words)
        self._code = 0

    def _word_undo(self, words: list[str]) -> None:
        if words and not _is_number(words[0]):
            raise Misuse(f":undo takes a number, not {words[0]!r}.", hint="For example `:undo 2`.")
        result = self._box.undo(int(words[0]) if words else 1)
        self._undone.append(result.undo)
        self._say(f"Took back {counted(_steps(result.undo), 'step')}; you are in {clean(self._box.cwd)}.")

    def _word_redo(self, words: list[str]) -> None:
        if not self._undone:
            raise Misuse("Nothing was undone just now.", hint="`takeback redo` brings back any earlier one.")
        self._tb.undo(self._undone[-1])
        count = _steps(self._undone.pop())
        self._say(f"Brought back {counted(count, 'step')}; you are in {clean(self._box.cwd)}.")

    def _word_history(self, words: list[str]) -> None:
        from takeback.api import now

        for step in self._box.history():
            state = "" if step.state == "done" else f"  ({step.state})"
            put(f"{short(step.effect)}  {local_time(step.at, now())}  {clean(step.command)}{state}")

    def _word_changes(self, words: list[str]) -> None:
        changes = self._box.changes()
        signs = {"added": "+", "modified": "~", "deleted": "-"}
        for one in changes:
            put(f"{signs[one.kind]} {clean(one.path)}")
        self._say(in_numbers(changes) or "No changes.")

    def _word_branch(self, words: list[str]) -> None:
        first = self._box
        self._box = first.branch()
        self._undone.clear()
        self._boxes.append(self._box)
        self._say(f"Box {short(self._box.id)} continues from here; {short(first.id)} stays unchanged.")

    def _word_discard(self, words: list[str]) -> None:
        effect = self._box.discard()
        self._undone.clear()
        kept = self._box.discarded
        way = f" `takeback apply {short(kept.id)}` brings it back, or `:undo`." if kept else ""
        way = " `:undo` brings it back." if kept and self._dry_run else way
        self._say(f"Everything was discarded.{way}" if effect else "There is nothing to discard.")

    def _word_commit(self, words: list[str]) -> None:
        if self._dry_run:
            self._say(f"Would merge: {in_numbers(self._box.changes()) or 'nothing'}.")
            return
        outcome = self._box.commit()
        self._undone.clear()
        if outcome.effect:
            self._made(outcome.effect)
            self._committed = effect_json(self._tb.effect(outcome.effect.id))
        self._say(outcome.text)

    def _word_export(self, words: list[str]) -> None:
        if len(words) != 1:
            raise Misuse(
                ":export needs a file name, or docker:NAME.", hint="For example `:export image.tar`."
            )
        if self._dry_run:
            self._say(f"Would export to {clean(words[0])}.")
        else:
            self._say(f"Exported to {clean(self._box.export(words[0]))}.")

    def _word_help(self, words: list[str]) -> None:
        put(_WORDS)

    def _say(self, text: str) -> None:
        if self._asked.screen.speaks:
            warn(f"takeback: {text}", whole=True)  # the directory of the box is not ours

    def tell_end(self, code: int) -> None:
        box = self._box
        if self._dry_run:
            changes = box.changes()
            told = {"dry_run": True, "commands": self._told, "changes": changes_json(changes)}
            self._asked.screen.give(told)
            self._say(f"would change: {in_numbers(changes) or 'nothing'}; nothing was changed.")
            if self._asked.screen.speaks:
                say_changes(changes)
            return
        if self._asked.screen.json:
            told = {"box": box.id, "commands": self._told, "committed": self._committed}
            self._asked.screen.give(told)
            return
        steps = 0  # that are not merged yet
        for step in box.history():
            if step.state == "done":
                steps = 0 if step.kind in ("commit", "discard") else steps + 1
        if steps:
            name = short(box.id)
            self._say(
                f"box {name} has {counted(steps, 'step')} that are not merged: `takeback shell --box {name}` "
                f"continues it, `takeback shell --box {name} -c :commit` merges them."
            )


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) < 10


def _steps(undone: "Sequence[Effect]") -> int:
    """Of a commit what was merged is not counted beside it."""
    return sum(1 for effect in undone if traits_of(effect.change).boxes)


def _say(outcome: "BoxOutcome") -> None:
    """On standard error: standard output is the command's own."""
    if outcome.gone:
        lost = outcome.cwd == outcome.gone
        now = "`cd` with a whole path leads to another" if lost else f"you are in {clean(outcome.cwd)}"
        warn(
            f"takeback: {clean(outcome.gone)} cannot be entered any more, so it ran in an empty directory; {now}.",
            whole=True,
        )
    if outcome.leftover:
        what = "process" if outcome.leftover == 1 else "processes"
        warn(f"takeback: {outcome.leftover} background {what} ended with it.")
    if outcome.stopped:
        warn(f"takeback: it {'took too long' if outcome.stopped == 'time' else 'needed too much memory'}.")
    if outcome.untold and not outcome.dropped:
        warn(f"takeback: {outcome.untold}")
    if outcome.dropped:
        name = short(outcome.drop.id) if outcome.drop else ""
        way = f" `takeback apply {name}` makes it the next step." if name else ""
        if outcome.held:
            way = (
                f" It had read from the terminal, so it is held: `takeback apply {name}` makes it the next step, "
                f"`takeback discard {name}` drops it."
            )
        final = f" This drop is final: {why_final(outcome.final)}." if outcome.final else ""
        warn(f"takeback: it failed (exit code {outcome.exit_code}), so nothing was changed.{way}{final}")


def _only_looks(options: Namespace) -> bool:
    return options.list or options.dry_run


def _list(asked: Asked) -> int:
    told: list[dict[str, Any]] = []
    if not nothing_yet(asked):
        with existing(asked) as tb:
            layers = tb.store.layers()
            for box in layers.boxes():
                base, head = layers.about(box)["base"], layers.head(box)
                told.append({"box": box, "base": base, "cwd": head.cwd, "layers": layers.depth(head.layer)})
    asked.screen.give(told)
    for one in told:
        asked.screen.say(
            f"{short(one['box'])}  over {from_here(one['base'])}, {counted(one['layers'], 'layer')}, "
            f"in {from_here(one['cwd'])}"
        )
    if not told:
        asked.screen.say("There are no boxes.")
    return 0


_USAGE = "takeback shell [options] [-c LINE]… [< script]"
COMMAND = Command(_shell, _ARGUMENTS, _USAGE, only_looks=_only_looks)
