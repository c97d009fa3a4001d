"""`run --sql`: a program with a database driver of its own, and all that it changes there as one effect."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from takeback.api import opened_of
from takeback.errors import InDoubt, Misuse, Stopped, TakebackError
from takeback.frontends.cli.command import OURS, Asked
from takeback.frontends.cli.output.screen import clean, warn
from takeback.model.database import engine_of, resource_of
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.runs.commands.outcome import CommandOutcome
from takeback.runs.commands.request import shown

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.runs.run import Run

_PARENT_DEATH_SIGNAL = 1  # prctl
_AT_ONCE = (
    "Changes in a database are committed at once; `takeback undo` reverts them. To hold a single statement: "
    "`takeback sql exec --hold`."
)
_SENTENCES = 20  # about the schema, at most
_DIRECT = "rows of the databases named: exactly; files: not at all, because {}"


def refuse_unfit(asked: Asked) -> None:
    options = asked.options
    for given, name, instead in (
        (options.hold, "--hold", _AT_ONCE),
        (
            options.on_failure == "hold",
            "--on-failure hold",
            "`--on-failure undo`, which is the default, takes back what it did; `--on-failure leave` leaves it.",
        ),
        (options.ask, "--ask", _AT_ONCE),
        (
            options.dry_run,
            "--dry-run",
            "Changes in a database are committed at once. `takeback sql exec --dry-run` shows what a single statement "
            "would change.",
        ),
        (options.in_place, "--in-place", "Use one of the two: --in-place records files, --sql databases."),
        (
            options.no_network,
            "--no-network",
            "Use one of the two: without a network the command cannot reach a database server, and with a SQLite "
            "file it runs outside a sandbox.",
        ),
    ):
        if given:
            raise Misuse(f"{name} does not go with --sql.", hint=f"Nothing was run. {instead}")
    for address in options.sql:
        if not address.startswith("env:"):
            engine_of(address)  # refuses one that is unknown before anything is opened


class ProgramEnd(NamedTuple):
    """The outcome of a command, and its effects on databases."""

    outcome: CommandOutcome
    effects: tuple[Effect, ...]  # that still stand
    taken_back: tuple[Effect, ...]
    unchanged: tuple[str, ...]  # databases where no change of it was seen


def carried_out(asked: Asked, tb: "Takeback", run: "Run", argv: list[str], limit: float) -> ProgramEnd:
    addresses: list[str] = asked.options.sql
    direct = next((why for one in addresses if (why := _out_of_reach(tb, one))), "")
    _warn_of_held(tb, addresses)
    stopped: Stopped | None = None
    outcome = CommandOutcome(OURS)
    with run.program(*addresses, summary=shown(tuple(argv)), tell=_tell) as seen:
        environment = {**os.environ, **seen.environment}
        try:
            if direct:
                warn(
                    f"takeback: it runs outside a sandbox, because {direct}. Its changes to files are not recorded."
                )
                outcome = _directly(run, argv, environment, limit, capture=asked.screen.json)
                outcome = outcome._replace(coverage=_DIRECT.format(direct), files_recorded=False)
            else:
                outcome = run.command(
                    argv,
                    env=environment,
                    timeout=limit,
                    on_failure=asked.options.on_failure,
                    capture=asked.screen.json,
                )
        except Stopped as error:
            stopped = error
    if stopped:
        if left := _taken_back(run, seen.effects):
            named = ", ".join(short(one.id) for one in left)
            stopped.hint = f"Not taken back: {named}; `takeback undo ID` tries again. {stopped.way_on}"
        raise stopped
    failed = (outcome.exit_code and asked.options.on_failure == "undo") or outcome.conflicts
    left = _taken_back(run, seen.effects) if failed else tuple(seen.effects)
    gone = tuple(one for one in seen.effects if one not in left)
    return ProgramEnd(outcome, left, gone, tuple(seen.unchanged))


def _warn_of_held(tb: "Takeback", addresses: list[str]) -> None:
    """The program has connections of its own: they wait as long as its driver and the server let them."""
    from takeback.engine.parts import held_in

    for address in addresses:
        for effect in held_in(opened_of(tb).parts, resource_of(opened_of(tb).parts.named(address))):
            name = short(effect.id)
            warn(
                f"takeback: effect {name} is held in this database: if the program wants the same rows it waits until "
                f"`takeback apply {name}` or `takeback discard {name}`."
            )


def _tell(sentence: str, hint: str) -> None:
    warn(f"takeback: {clean(sentence)}")
    if hint:
        warn(f"hint: {clean(hint)}")


def _out_of_reach(tb: "Takeback", address: str) -> str:
    from takeback.adapters.database import Programs
    from takeback.engine.parts import adapter_of

    parts = opened_of(tb).parts
    database = parts.named(address)
    adapter = adapter_of(parts, database.engine)
    return adapter.out_of_reach(database) if isinstance(adapter, Programs) else ""


def _directly(
    run: "Run", argv: list[str], environment: dict[str, str], limit: float, capture: bool
) -> CommandOutcome:
    """Its exit code as a shell tells it; what it printed only where that must not mix with our answer. It ends with
    this process, however that ends, because its later changes would not be recorded."""
    import subprocess

    from takeback.engine.stop import refuse_stopped
    from takeback.runs.run import core_of
    from takeback.runs.stopped import ended_by_stop

    core, pipe = core_of(run), subprocess.PIPE if capture else None
    try:
        # What it is tied with is one call of the kernel, ready before: no lock can be in its way.
        program = subprocess.Popen(
            argv,
            env=environment,
            stdout=pipe,
            stderr=pipe,
            preexec_fn=_ending_with_us(),  # noqa: PLW1509
        )
    except FileNotFoundError:
        return CommandOutcome(127)
    except OSError:  # no right to run it, or no program at all
        return CommandOutcome(126)
    with program:
        try:
            with ended_by_stop(core, program.kill):
                out, err = program.communicate(timeout=limit or None)
        except subprocess.TimeoutExpired:
            program.kill()
            out, err = program.communicate()
            return CommandOutcome(124, stdout=out or b"", stderr=err or b"")
        except BaseException:
            program.kill()
            raise
    refuse_stopped(core.parts, core.agent, core.id)
    code = program.returncode if program.returncode >= 0 else 128 - program.returncode
    return CommandOutcome(code, stdout=out or b"", stderr=err or b"")


def _ending_with_us() -> Callable[[], None]:
    """To be called by the program's process before it is the program."""
    import signal
    from ctypes import CDLL

    us, control, kill = os.getpid(), CDLL(None).prctl, int(signal.SIGKILL)

    def tie() -> None:
        control(_PARENT_DEATH_SIGNAL, kill, 0, 0, 0)
        if os.getppid() != us:
            os._exit(1)  # we are gone already

    return tie


def _taken_back(run: "Run", effects: list[Effect]) -> tuple[Effect, ...]:
    left: list[Effect] = []
    doubts: list[InDoubt] = []
    for effect in reversed(effects):
        try:
            run.undo(effect)
        except TakebackError as error:
            warn(f"takeback: not taken back: {clean(str(error))}")
            left.append(effect)
            if isinstance(error, InDoubt):
                error.effect = error.effect or effect.id
                doubts.append(error)
    if doubts:
        doubts[0].others = tuple(one.effect for one in doubts[1:] if one.effect)
        raise doubts[0]
    return tuple(left)


def say_effects(tb: "Takeback", ended: ProgramEnd) -> None:
    """Only what was seen: a program may have sessions that are not recognised."""
    from takeback.audit.rows import no_way_back

    for effect in ended.effects:
        said = _in_words(tb.effect(effect.id))
        warn(f"takeback: {clean(effect.change.resource)}: {clean(said)}: {short(effect.id)}")
        for sentence in (*effect.receipt.get("notes", ()), *no_way_back(effect)):
            warn(f"takeback: {clean(sentence)}")
        if no_way_back(effect):
            warn(f"hint: `takeback undo {short(effect.id)}` says what you can do.")
    for effect in ended.taken_back:
        said = _in_words(tb.effect(effect.id))
        warn(f"takeback: {clean(effect.change.resource)}: taken back: {clean(said)}")
        for sentence in effect.receipt.get("notes", ()):
            warn(f"takeback: {clean(sentence)}")
    for resource in ended.unchanged:
        warn(f"takeback: {clean(resource)}: no change of it was seen.")


def _in_words(effect: Effect) -> str:
    """The schema first: rows that were changed must not hide a table that was dropped."""
    from takeback.audit.rows import counts_of

    schema: list[str] = effect.receipt.get("schema", [])
    more = [f"{len(schema) - _SENTENCES} more changes of the schema"] if len(schema) > _SENTENCES else []
    counts = [f"{table}: {words}" for table, words in counts_of(effect)]
    return "; ".join([*schema[:_SENTENCES], *more, *counts]) or "changed"


def after_failure(why: str, effects: tuple[Effect, ...], outcome: CommandOutcome) -> str:
    """No claim about what was not looked at."""
    if effects:
        return f"it failed ({why}), and what it changed stays."
    if not outcome.files_recorded:
        return f"it failed ({why}); its changes to files were not recorded."
    return f"it failed ({why}), so no file was changed."
