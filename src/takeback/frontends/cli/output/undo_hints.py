"""Ways out if an undo or redo cannot be done as asked. Only ways that work are offered: each is tried first, without
changing anything."""

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.adapters.protocol import traits_of
from takeback.api import now, opened_of
from takeback.errors import Blocked, Conflict, InDoubt, Refused, StoreBusy, Stuck, TakebackError
from takeback.frontends.cli.output.screen import listed
from takeback.model.change import OnConflict
from takeback.model.database import is_of_database
from takeback.model.effect import COMMAND, Effect, State
from takeback.model.ids import short
from takeback.model.plan import (
    FORCE_MOVES,
    Obstacle,
    Outcome,
    UndoResult,
    by_name,
    directory_of,
    out_of_the_way,
    went_over,
)
from takeback.model.remedy import doubt_of
from takeback.model.resource import SCHEME, function_in, path_of
from takeback.runs.selection import latest_first
from takeback.storage.protocols import Blobs, Query

if TYPE_CHECKING:
    from takeback.api import Takeback

_MOST_TRIED = 20
_MOST_READ = 64 << 20  # bytes
_MANY = 5_000  # paths; trying every way takes longer than a hint is worth, so one that works must do
_OFFERS = (
    ("merge", "--merge", "keeps both"),
    ("merge-or-skip", "--merge --skip-conflicts", "merges what it can and does the rest"),
    ("skip", "--skip-conflicts", "does the rest"),
    ("force", "--force", ""),  # depends on what is in the way
)


class WantedUndo(NamedTuple):
    verb: str  # undo · redo
    words: str  # as it would be typed again
    carry_out: Callable[..., UndoResult]
    left_out: tuple[Effect, ...] = ()  # belongs to it, and cannot be taken back: stuck, or in the making
    newest: Effect | None = None  # when nothing was named: what was chosen
    passed: tuple[Effect, ...] = ()  # newer ones, which someone took back by hand
    around: tuple[Effect, ...] = ()  # the call of an agent that this command is part of
    listed: bool = False  # its effects were shown already
    paths: str = ""  # if only these are to be taken back; as they would be typed
    title: str = ""  # a line before the answer
    of: Mapping[str, Any] = {}  # what the title tells, for a program

    def command(self, option: str = "") -> str:
        """To be typed again, perhaps with an option more."""
        words = ("takeback", self.verb, self.words, option, f"-- {self.paths}" if self.paths else "")
        return " ".join(filter(None, words))


def typed(name: str, id: str = "") -> str:
    """As it can be typed in a shell."""
    fine = name.isprintable() and not name.startswith("-")
    return shlex.quote(name) if fine or not id else short(id)


def with_a_way_out(
    tb: "Takeback", wanted: WantedUndo, wishes: dict[str, Any], error: TakebackError
) -> TakebackError:
    """The same error, or the true one, with a hint that can be followed."""
    if wanted.left_out and type(error) is Refused:  # nothing else is left of the run
        return unsettled_error(tb, wanted.left_out[0], ", and nothing else is left to undo")
    ways = ""
    if isinstance(error, Conflict):
        ways = ways_out(tb, wanted, wishes, error.obstacles.values())
        both = _with_those_after(tb, wanted, wishes, error.effect)
        later = _with_later(tb, wanted, wishes, error)
        first = out_of_the_way(error.obstacles, f"{wanted.verb} again") or later
        first = first or with_those_on_it(tb, wanted, wishes)
        found = both or " ".join(one for one in (first, ways) if one)
        error.hint = f"Nothing was touched. {found or by_hand(wanted)}"
    if type(error) is Refused and (whole := named_whole(tb, wanted, wishes)):
        error.hint = whole
    if isinstance(error, Blocked) and wanted.of:  # one of many calls: the others need not wait for it
        error.hint = f"{error.hint} {_the_rest(tb, wanted, wishes)}".strip()
    if wanted.newest and not ways:
        error.hint = f"{error.hint} {earlier(tb, wanted.newest)}".strip()
    return error


def named_whole(tb: "Takeback", wanted: WantedUndo, wishes: dict[str, Any]) -> str:
    """Several effects go back only by name, because others may have changed the same: one command for all of them."""
    if not wanted.of or wanted.paths:  # only a part of a session can be named together with paths
        return ""
    try:
        plan = wanted.carry_out(**{**wishes, "dry_run": True, "paths": ["/"]})
    except TakebackError:
        return ""
    of = {  # as they were recorded: in the plan they are named, and without doubt
        effect.id: [target.resource for target in tb.effect(effect.id).targets if doubt_of(target)]
        for effect in plan.effects
        if effect.state is State.DONE
    }
    doubtful = [one for resources in of.values() for one in resources]
    if sum(map(bool, of.values())) < 2 or not all(one.startswith(SCHEME) for one in doubtful):
        return ""
    place = directory_of(doubtful)
    by_path = partial(wanted.carry_out, paths=[path_of(place)])
    return by_name(wanted.command(), place) if _works(tb, by_path, wishes) else ""


def _the_rest(tb: "Takeback", wanted: WantedUndo, wishes: dict[str, Any]) -> str:
    """Without what later effects changed in another way."""
    name, option, does = _OFFERS[1]
    works = name != wishes["on_conflict"] and _works(tb, wanted.carry_out, {**wishes, "on_conflict": name})
    return f"`{wanted.command(option)}` {does}." if works else ""


def _with_those_after(tb: "Takeback", wanted: WantedUndo, wishes: dict[str, Any], effect: str | None) -> str:
    """Where others changed the same after it, and were recorded before it."""
    if not effect or wanted.verb != "undo" or wishes.get("cascade") or not went_over(tb.effect(effect)):
        return ""
    if not _works(tb, wanted.carry_out, {**wishes, "cascade": True}):
        return ""
    return f"`{wanted.command('--cascade')}` takes back first what others changed there after it."


def _with_later(tb: "Takeback", wanted: WantedUndo, wishes: dict[str, Any], error: Conflict) -> str:
    """Where later effects changed the same rows: which they are, the database has told."""
    of_rows = any(is_of_database(one) for one in error.resources)
    if not of_rows or wanted.verb != "undo" or wishes.get("cascade"):
        return ""
    result = _tried(tb, wanted.carry_out, {**wishes, "cascade": True})
    later = [short(one.id) for one in result.effects if one.id != error.effect] if result else []
    if not later:
        return ""
    names = listed(later)
    return f"`{wanted.command('--cascade')}` first takes back {names}, which changed the same rows or tables later."


def with_those_on_it(tb: "Takeback", wanted: WantedUndo, wishes: dict[str, Any]) -> str:
    """Where it does not merge, because later effects stand on it."""
    if wanted.verb != "undo" or wishes.get("cascade") or not OnConflict(wishes["on_conflict"]).merges:
        return ""
    plain = {**wishes, "on_conflict": "refuse"}
    try:
        wanted.carry_out(**{**plain, "dry_run": True})
    except Blocked as error:
        later = [short(one) for one in error.blockers]
    except TakebackError:
        return ""
    else:
        return ""
    names = listed(later)
    if not _works(tb, wanted.carry_out, {**plain, "cascade": True}):
        return f"First undo {names}, which changed the same later."
    return f"`{wanted.command('--cascade')}` first takes back {names}, which changed the same later."


def ways_out(
    tb: "Takeback",
    wanted: WantedUndo,
    wishes: dict[str, Any],
    obstacles: Iterable[str] = (),
    more_than: int = 0,
) -> str:
    """`obstacles`: what is in the way; they decide what force would do. `more_than`: the targets that go back as asked;
    a way that is offered takes back more."""
    works: dict[str, int] = {}  # and how much it would take back
    for how in ("force", "skip", "merge", "merge-or-skip"):
        if how == wishes["on_conflict"] or (how == "merge-or-skip" and "merge" in works):
            continue
        result = _tried(tb, wanted.carry_out, {**wishes, "on_conflict": how})
        count = sum(one.outcome is Outcome.UNDONE for one in result.targets) if result else 0
        if result and (count > more_than or not more_than):
            works[how] = count
            if len(result.targets) > _MANY:
                break
    if works.get("merge-or-skip") == works.get("skip"):
        works.pop("merge-or-skip", None)
    does = {"force": _force_does({*obstacles} - {Obstacle.COMPANION})}
    offers = [
        f"`{wanted.command(option)}` {does.get(how, what)}" for how, option, what in _OFFERS if how in works
    ]
    return f"{', '.join(offers)}." if offers else ""


def _force_does(obstacles: Collection[str]) -> str:
    overwrites = "captures the present content and overwrites it"
    if Obstacle.REPLACED not in obstacles:
        return overwrites
    return FORCE_MOVES if len(obstacles) == 1 else f"{FORCE_MOVES}, and elsewhere {overwrites}"


def _works(tb: "Takeback", carry_out: Callable[..., UndoResult], wishes: dict[str, Any]) -> bool:
    return _tried(tb, carry_out, wishes) is not None


def _tried(tb: "Takeback", carry_out: Callable[..., UndoResult], wishes: dict[str, Any]) -> UndoResult | None:
    """The plan, if it would change something, and everything unless conflicts may be skipped; else None."""
    if tb.store.read_only or tb.store.suspect():
        return None
    try:
        result = carry_out(**{**wishes, "dry_run": True})
    except TakebackError:
        return None
    outcomes = {one.outcome for one in result.targets}
    skips = OnConflict(wishes["on_conflict"]).skips
    settles = skips and any(one.state is State.STUCK for one in result.effects)
    if Outcome.UNDONE not in outcomes and not settles:
        return None
    if not skips and not outcomes <= {Outcome.UNDONE, Outcome.ALREADY}:
        return None
    digests = (digest for effect in result.effects if effect.remedy for digest in effect.remedy.blobs)
    return result if _readable(tb.store.blobs, dict.fromkeys(digests)) else None


def _readable(blobs: Blobs, digests: Iterable[str]) -> bool:
    """Damage shows only when a blob is read; of what is too much to read for a hint it must do that it is there."""
    left = _MOST_READ
    try:
        for number, digest in enumerate(digests):
            if not blobs.has(digest):
                return False
            for piece in blobs.read(digest) if left > 0 and number < _MANY else ():
                left -= len(piece)
                if left <= 0:
                    break
    except TakebackError:
        return False
    return True


def by_hand(wanted: WantedUndo) -> str:
    return (
        "--merge and --force cannot help here. Restore the missing file, or move away the file that is in the way, "
        f"then {wanted.verb} again."
    )


def earlier(tb: "Takeback", than: Effect) -> str:
    """The newest effect before it that can be undone alone."""
    tried = 0
    for effect in latest_first(tb.store.journal, Query(states=(State.DONE,), scope=opened_of(tb).here())):
        if effect.order >= than.order or effect.is_undo:
            continue
        if _works(tb, partial(tb.undo, [effect]), {"on_conflict": "refuse"}):
            return f"To undo an earlier change: `takeback undo {short(effect.id)}`."
        tried += 1
        if tried == _MOST_TRIED:
            break
    return ""


def out_of_stuck(tb: "Takeback", effect: Effect) -> str:
    """How what is stuck comes to rest; of an undo, by having it finished."""
    if traits_of(effect.change).calls:
        from takeback.engine.settle import way_out

        return way_out(effect)
    name = short(effect.undoes or effect.id)
    wanted = WantedUndo("undo", name, partial(tb.undo, [effect.undoes or effect.id]))
    known = f"`takeback show {short(effect.id)}` shows what is known"
    if _works(tb, wanted.carry_out, {"on_conflict": "refuse"}):
        return f"{known}; `{wanted.command()}` takes it back."
    if ways := ways_out(tb, wanted, {"on_conflict": "refuse"}):
        return f"{known}; {ways}"
    return f"{known}; fix it, then run `takeback recover`."


def unsettled_error(
    tb: "Takeback", effect: Effect, so: str = "", newest: bool = False, ours: bool = False
) -> TakebackError:
    """`ours`: this command tried to make it."""
    name = f"{short(effect.id)} ({effect.change.summary})"
    what = f"The newest effect, {name}," if newest else f"Effect {name}"
    if effect.state is State.STUCK:
        return Stuck(
            f"{what} is stuck{so}: {effect.note or 'it waits for a person.'}",
            hint=out_of_stuck(tb, effect),
            effect=effect.id,
        )
    if effect.waits_for == COMMAND:
        return StoreBusy(
            f"{what} is not recorded yet{so}.",
            hint="Try again when its command has ended. `takeback recover` shows what blocks it.",
            effect=effect.id,
        )
    if ours or tb.store.leases_at_home.free(effect.run, now()):
        called = function_in(effect.change.resource)
        calls = f", and calls functions of {called}" if called else ""
        return InDoubt(
            f"{what} is in doubt{so}{'' if ours else ': the process that made it is gone'}.",
            hint=f"`takeback recover` finds out what became of it{calls}.",
            effect=effect.id,
        )
    return StoreBusy(
        f"{what} is still being made{so}.", hint="Wait until it is done, then try again.", effect=effect.id
    )
