"""`undo`: take effects back; also an undo that recovery has just finished."""

import shlex
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from takeback.api import now, opened_of
from takeback.errors import Blocked, InDoubt, Misuse, Refused, StoreBusy, Stuck, TakebackError
from takeback.frontends.cli.command import (
    AGENT,
    ALL_PROJECTS,
    DRY_RUN,
    YES,
    Asked,
    Command,
    filled,
    flag,
    option,
    positional,
)
from takeback.frontends.cli.output.screen import listed
from takeback.frontends.cli.output.undo_hints import (
    WantedUndo,
    earlier,
    typed,
    unsettled_error,
    with_a_way_out,
)
from takeback.frontends.cli.output.undo_report import tell_refused, tell_result
from takeback.frontends.cli.session.finished_undo import finished_just_now, tell_finished
from takeback.frontends.cli.session.for_a_person import undone_settings
from takeback.frontends.cli.session.project import (
    elsewhere,
    hint_elsewhere,
    hint_unrecorded,
    refuse_other_projects,
)
from takeback.frontends.cli.session.store import (
    agent_of,
    existing,
    known_effects,
    made_since,
    nothing_recorded,
    nothing_yet,
)
from takeback.frontends.cli.session.undo_session import (
    is_of_session,
    named_part,
    wanted_of_session,
    was_finished,
)
from takeback.frontends.cli.session.undo_to import take_back_to
from takeback.model.change import OnConflict
from takeback.model.effect import OPEN_STATES, PERSON, Effect, State
from takeback.model.ids import short
from takeback.model.plan import UndoResult, nothing_to_do
from takeback.model.run import RunInfo
from takeback.runs.boxes.history import is_step, with_commits
from takeback.runs.held import held_error
from takeback.runs.prompt_span import calls_around, is_around
from takeback.runs.prompts import all_of_member
from takeback.runs.selection import latest_first, standing_again
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.api import Takeback


_MOST_LISTED = 10


_CONFLICTS = "what someone changed since"
CONFLICTS = (
    flag(
        "--merge",
        "undo only this edit and keep later changes; refused where they overlap",
        _CONFLICTS,
    ),
    flag(
        "--skip-conflicts",
        "skip targets that others changed; with --merge: skip only conflicts",
        _CONFLICTS,
    ),
    flag("--force", "overwrite later changes; they are captured first, and redo restores them", _CONFLICTS),
)


def on_conflict_of(options: Namespace) -> str:
    if options.force and (options.merge or options.skip_conflicts):
        raise Misuse(
            "--force cannot be combined with --merge or --skip-conflicts.",
            hint="--force overwrites what --merge and --skip-conflicts keep.",
        )
    if options.force:
        return OnConflict.FORCE
    if options.merge:
        return OnConflict.MERGE_OR_SKIP if options.skip_conflicts else OnConflict.MERGE
    return OnConflict.SKIP if options.skip_conflicts else OnConflict.REFUSE


_ARGUMENTS = (
    positional("ids", "ID", "effects, or runs by id or name; none: the newest one", nargs="*"),
    option("--run", "R", "all effects of this run, except those accepted by name"),
    option("--to", "CHECKPOINT", "everything that happened in this project after this point, by any agent"),
    option(
        "--since",
        "TIME",
        "everything in this project since TIME: 10m, 2h, 3d, 2026-11-18, 09:30 (yesterday if later than now)",
        type=filled,
    ),
    option(
        "--prompt",
        "N",
        "what the coding agent did since before prompt N, as `log` counts it; without N: since the last one that left "
        "something to undo",
        nargs="?",
        const="",
    ),
    option(
        "--session",
        "S",
        "the whole session of a coding agent, by its id or the beginning of it; without S: the one that changed "
        "something last. With --prompt: where the prompt is",
        nargs="?",
        const="",
    ),
    ALL_PROJECTS,
    YES,
    flag("--cascade", "also undo later effects that depend on these"),
    flag("--with-needs", "also undo the effects that these need"),
    DRY_RUN,
    AGENT,
    option(
        "--",
        "PATH",
        "only these paths of one effect, or of what the agent did, with everything below them",
        dest="paths",
        nargs="+",
    ),
    *CONFLICTS,
)


def _undo(asked: Asked) -> int:
    options = asked.options
    _refuse_unfit(options)
    of_session = is_of_session(options)
    if nothing_yet(asked) and not (options.ids or options.run or options.to or of_session):
        raise Refused(nothing_recorded(asked), hint="There is nothing to undo.")
    wishes: dict[str, Any] = {
        "dry_run": options.dry_run,
        "cascade": options.cascade,
        "with_needs": options.with_needs,
        "on_conflict": on_conflict_of(options),
        "agent": agent_of(asked),
    }
    with existing(asked, lambda tb: _known(tb, options)) as tb:
        more = bool(options.run or options.to or options.since or of_session)
        if done := finished_just_now(tb, "undo", options.ids, more, options.paths):
            return tell_finished(asked, tb, "undo", done)
        try:
            if options.to or options.since:
                return take_back_to(asked, tb, wishes)
            if of_session:
                return _session_taken_back(asked, tb, wishes)
            if not (options.ids or options.run or options.to):
                return _newest_taken_back(asked, tb, wishes)
            wanted = _wanted(tb, options)
            if counted_back := [tb.effect(name) for name in options.ids if name.startswith("@")]:
                refuse_other_projects(asked, tb, counted_back, "undo")
            return tell_result(asked, tb, wanted, *taken_back(asked, tb, wanted, wishes))
        except (InDoubt, Refused, Stuck, StoreBusy) as error:
            return tell_refused(asked, tb, error)


def _session_taken_back(asked: Asked, tb: "Takeback", wishes: dict[str, Any]) -> int:
    finished = finished_just_now(tb, "undo", ())
    if finished and was_finished(tb, asked.options, finished):
        return tell_finished(asked, tb, "undo", finished)
    if not asked.options.dry_run:
        from takeback.frontends.agents.client import RECORD
        from takeback.storage.daemon_socket import ask

        ask(tb.path, RECORD)  # what its processes did since its last call counts too
    wanted = wanted_of_session(asked, tb, _how(asked.options))._replace(around=calls_around(tb.store.journal))
    return tell_result(asked, tb, wanted, *taken_back(asked, tb, wanted, wishes))


def _refuse_unfit(options: Namespace) -> None:
    """Paths are of one effect. Other effects that cascade and needs would take back have other paths."""
    chosen = bool(options.ids) + bool(options.run and not (options.to or options.since))
    if chosen + bool(options.to) + bool(options.since) + is_of_session(options) > 1:
        raise Misuse(
            "Only one of ID, --run, --prompt, --session, --to and --since can be given; --run narrows --to and "
            "--since, and --session says where the prompt is.",
            hint="`takeback undo --help` shows an example.",
        )
    if options.paths is None:
        return
    if not options.paths:
        raise Misuse("No path was given after --.", hint="Name the paths to take back, or leave -- away.")
    unfit = (
        ("--run", options.run), ("--to", options.to), ("--since", options.since), ("--all", options.all),
        ("--cascade", options.cascade), ("--with-needs", options.with_needs),
    )  # fmt: skip
    for name, given in unfit:
        if given:
            raise Misuse(
                f"Paths cannot be combined with {name}.",
                hint="`takeback undo ID -- PATH…` takes back these paths of one effect.",
            )
    if len(options.ids) != 1 and not is_of_session(options):
        raise Misuse(
            "Paths need exactly one effect.",
            hint="`takeback undo ID -- PATH…`; `takeback log PATH` lists the effects that touched a path.",
        )


def _known(tb: "Takeback", options: Namespace) -> None:
    """Names are judged before anything is settled."""
    known_effects(options.ids)(tb)
    if options.run:
        tb.find_run(options.run)
    if is_of_session(options):
        named_part(tb, options)
    elif options.paths:
        from takeback.runs.scope import effects_with_paths

        scope = opened_of(tb).here() if options.ids[0].startswith("@") else None
        try:
            effects_with_paths(opened_of(tb).parts, options.ids[0], options.paths, scope, more=False)
        except Misuse as error:
            if late := next((one for one in options.paths if one.startswith("-")), ""):
                before = f"put an option such as {late} before it"
                error.hint = f"Nothing was changed. All after -- are paths: {before}."
            raise
    if options.to:
        from takeback.runs.checkpoints import find

        find(tb.store.journal, options.to, scope=None if options.run else opened_of(tb).here())


def _how(options: Namespace) -> str:
    asked = (("--cascade", options.cascade), ("--with-needs", options.with_needs))
    return "".join(f" {option}" for option, given in asked if given)


def _newest_taken_back(asked: Asked, tb: "Takeback", wishes: dict[str, Any]) -> int:
    """Undo the newest effect that still stands; one that someone took back by hand is skipped."""
    passed: list[Effect] = []
    around = calls_around(tb.store.journal)
    for newest in _done_last(tb, passed):
        if newest.is_elsewhere:
            passed.append(newest)
            continue
        whole = with_commits(tb.store.journal, [newest])  # what the commit of a box has merged goes with it
        refuse_other_projects(asked, tb, whole, "undo")
        carry_out = partial(_undo_past, tb, whole, passed)
        words = " ".join(short(one.id) for one in whole) + _how(asked.options)
        wanted = WantedUndo("undo", words, carry_out, newest=newest, around=around)
        result, started = taken_back(asked, tb, wanted, wishes)
        if not nothing_to_do(result.targets):
            code = tell_result(asked, tb, wanted._replace(passed=tuple(passed)), result, started)
            if not asked.options.dry_run:
                hint_unrecorded(asked, tb, newest)
                hint_elsewhere(asked, tb, "undo", whole)
            return code
        passed.append(newest)
    if passed and passed[0].is_elsewhere:
        tb.undo(passed[0])  # it says why there is nothing
    names = listed([short(one.id) for one in passed], _MOST_LISTED)
    already = f": the targets of all effects ({names}) are already in the earlier state" if passed else ""
    where = " in this project" if opened_of(tb).here() else ""
    hint = elsewhere(tb, "undo") or "`takeback log` shows what happened."
    raise Refused(f"There is nothing to undo{where}{already}.", hint=hint)


def _undo_past(
    tb: "Takeback", effects: Sequence[Effect], passed: Sequence[Effect], **wishes: Any
) -> UndoResult:
    """Those that were passed over may stand on these; they are taken back with them, which changes nothing more."""
    try:
        return tb.undo(effects, **wishes)
    except Blocked as error:
        ids = {one.id for one in passed}
        if not ids.issuperset(error.blockers):
            raise
    result = tb.undo([*effects, *passed], **wishes)
    return result._replace(
        effects=tuple(one for one in result.effects if one.id not in ids),
        targets=tuple(one for one in result.targets if one.effect not in ids),
    )


def _wanted(tb: "Takeback", options: Namespace) -> WantedUndo:
    how = _how(options)
    if options.run:
        info = tb.find_run(options.run)
        words = f"--run {typed(options.run, info.id)}{how}"
        runs: list[Any] = list(all_of_member(tb.store.journal, info))
        return WantedUndo("undo", words, partial(tb.undo, runs if runs[1:] else info), _unsettled(tb, *runs))
    named: list[Any] = [opened_of(tb).run_meant(name) or name for name in options.ids]
    words = " ".join(
        typed(name, getattr(one, "id", "")) for name, one in zip(options.ids, named, strict=True)
    )
    journal = tb.store.journal
    named = [
        one
        for name in named
        for one in (all_of_member(journal, name) if isinstance(name, RunInfo) else (name,))
    ]
    left_out = _unsettled(tb, *(one for one in named if isinstance(one, RunInfo)))
    if options.paths:
        paths = " ".join(map(shlex.quote, options.paths))
        return WantedUndo("undo", words, partial(tb.undo, named, paths=options.paths), left_out, paths=paths)
    return WantedUndo("undo", f"{words}{how}", partial(tb.undo, named), left_out)


def _unsettled(tb: "Takeback", *runs: RunInfo) -> tuple[Effect, ...]:
    """Effects of these runs that cannot be undone with the rest, because their state is unknown."""
    queries = (Query(run=one.id, states=OPEN_STATES, newest=True) for one in runs)
    found = (one for query in queries for one in tb.store.journal.effects(query))
    return tuple(one for one in found if one.waits_for != PERSON and not is_around(one))


def taken_back(
    asked: Asked, tb: "Takeback", wanted: WantedUndo, wishes: dict[str, Any]
) -> tuple[UndoResult, float]:
    """The result, and when it was begun."""
    started = time.perf_counter()
    try:
        with _told_if_interrupted(asked, tb):
            return undone_settings(tb, wanted.carry_out, wishes), started
    except TakebackError as error:
        raise with_a_way_out(tb, wanted, wishes, error) from error


@contextmanager
def _told_if_interrupted(asked: Asked, tb: "Takeback") -> Iterator[None]:
    """A signal is handled when the undo is finished: too late to return a result, but not too late to report it."""
    started = now()
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        asked.made[:] = made_since(tb, started)
        raise


def _done_last(tb: "Takeback", passed: Sequence[Effect]) -> Iterator[Effect]:
    """Newest first. One that is still being made, or stuck, must not be passed over."""
    states = (State.DONE, *OPEN_STATES)
    for effect in latest_first(tb.store.journal, Query(states=states, scope=opened_of(tb).here())):
        if is_step(effect):
            continue  # of a box: nothing outside has changed by it
        if effect.state is State.PROPOSED and is_around(effect):
            continue
        if effect.waits_for == PERSON:
            raise held_error(effect, "undone")
        if effect.state is not State.DONE:
            error = unsettled_error(tb, effect, newest=not passed)
            error.hint = f"{error.hint} {earlier(tb, effect)}".strip()
            raise error
        # What others changed beside a command was recorded, and is taken back only by its name.
        if _brings_back_part(tb, effect) if effect.is_undo else not effect.change.facts.others:
            yield effect


def _brings_back_part(tb: "Takeback", redo: Effect) -> bool:
    """A redo of some paths, while the rest of their effect is undone: nothing else stands for them."""
    undo = tb.effect(redo.undoes)
    if not undo.is_undo or undo.undone_by != redo.id:
        return False
    return redo in standing_again(tb.store.journal, tb.effect(undo.undoes))


COMMAND = Command(_undo, _ARGUMENTS, paths=True)
