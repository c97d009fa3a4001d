"""`recover`: settle what a crash left, and list what is still open."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import takeback.api
from takeback.adapters.protocol import traits_of
from takeback.audit.views import settled_json
from takeback.errors import InDoubt, Stuck, TakebackError, Unavailable
from takeback.frontends.cli.command import Asked, Command, Does, flag
from takeback.frontends.cli.output.errors import as_field, told_trouble
from takeback.frontends.cli.output.screen import (
    Screen,
    clean,
    counted,
    from_here,
    listed,
    took,
)
from takeback.frontends.cli.session.store import done_with_nothing, nothing_yet, show_work, store_path
from takeback.model.effect import Effect, State
from takeback.model.ids import short

if TYPE_CHECKING:
    from takeback.audit.runs import DeadRun, Unsettled

_AT_REST = "Nothing to recover: every effect is settled."


def _recover(asked: Asked) -> int:
    screen = asked.screen
    if nothing_yet(asked):
        return done_with_nothing(asked, {"settled": [], "unsettled": []})
    # Not settled on the way in, so that the answer tells all of it.
    with takeback.api.open(store_path(asked), recover=False) as tb:
        show_work(asked, tb)
        if asked.options.dry_run:
            return _tell_unsettled(asked, tb)
        return _settle(screen, tb)


def _settle(screen: Screen, tb: takeback.api.Takeback) -> int:
    from takeback.audit.runs import dead_runs, unsettled
    from takeback.engine.settled import in_words, stands

    started = time.perf_counter()
    dead = {one.info.id: one for one in dead_runs(tb.store, takeback.api.now())}
    settled = tb.recover()
    for one in tb.store.journal.runs(unfinished=True):
        dead.pop(one.id, None)
    ended = [one for one in dead.values() if one.info.id not in {done.run for done in settled}]
    # Looked at again: what could not be settled is not told as if it were.
    now = [tb.effect(one.effect) for one in settled]
    alone = [one for one in unsettled(tb.store, takeback.api.now()) if one.left_alone]
    alone = [one for one in alone if one.effect.id not in {effect.id for effect in now}]
    stuck = [one for one in (*now, *(one.effect for one in alone)) if one.state is State.STUCK]
    in_doubt = [one for one in now if one.state is State.INTENDED]
    proposed = [one for one in now if one.state is State.PROPOSED]
    errors = [_still_in_doubt(in_doubt)] if in_doubt else []
    errors += [_still_stuck(tb, stuck)] if stuck else []
    errors += [_still_open(proposed)] if proposed else []
    left = [one for one, effect in zip(settled, now, strict=True) if effect in (*in_doubt, *proposed)]
    told: dict[str, Any] = {
        "settled": [settled_json(one) for one in settled if one not in left],
        "unsettled": [
            *({"effect": one.effect, "summary": one.summary, "detail": stands(one)} for one in left),
            *map(_unsettled_json, alone),
        ],
        "ended": [one.info.id for one in ended],
    }
    screen.give(told | as_field(screen, errors))
    for one in ended:
        screen.say(f"{_run(screen, one)}: ended; its process had died and left nothing to undo")
    if not settled and not alone:
        if not ended:
            screen.say(_AT_REST)
        return 0
    for one in settled:
        screen.say(from_here(in_words(one)))
    _say_all(screen, alone)
    counts = [f"{len(stuck):,} stuck"]
    counts += [f"{len(in_doubt):,} in doubt"] if in_doubt else []
    moving = len(proposed) + sum(one.effect.state is not State.STUCK for one in alone)
    counts += [f"{moving:,} still open"] if moving else []
    done = sum(one.state not in (State.STUCK, State.INTENDED, State.PROPOSED) for one in now)
    screen.say(f"Recovered {counted(done, 'effect')} in {took(started)}; {', '.join(counts)}.")
    return told_trouble(screen, errors)


def _still_stuck(tb: takeback.api.Takeback, stuck: Sequence[Effect]) -> TakebackError:
    from takeback.frontends.cli.output.undo_hints import out_of_stuck

    return Stuck(_these_are("stuck", stuck), hint=out_of_stuck(tb, stuck[0]), effect=stuck[0].id)


def _still_in_doubt(in_doubt: Sequence[Effect]) -> TakebackError:
    first = in_doubt[0]
    hint = "The service that knows the outcome does not answer. Run `takeback recover` when it is back."
    if traits_of(first.change).calls:
        from takeback.engine.settle import way_out

        hint = way_out(first)
    return InDoubt(_these_are("in doubt", in_doubt), hint=hint, effect=first.id)


def _still_open(proposed: Sequence[Effect]) -> TakebackError:
    hint = "The line above says why. Fix it, then run `takeback recover` again."
    return Unavailable(_these_are("not recorded yet", proposed), hint=hint, effect=proposed[0].id)


def _these_are(how: str, effects: Sequence[Effect]) -> str:
    names = listed([short(one.id) for one in effects])
    return f"{counted(len(effects), 'effect')} {'is' if len(effects) == 1 else 'are'} {how}: {names}."


def _tell_unsettled(asked: Asked, tb: takeback.api.Takeback) -> int:
    from takeback.audit.runs import dead_json, dead_runs, unsettled

    found = list(unsettled(tb.store, takeback.api.now()))
    concerned = {one.by or one.effect.run for one in found}
    died = dead_runs(tb.store, takeback.api.now())
    dead = [one for one in died if one.info.id not in concerned or one.command]
    listed = [_unsettled_json(one) for one in found]
    asked.screen.give({"dry_run": True, "unsettled": listed, "dead": [dead_json(one) for one in dead]})
    _say_all(asked.screen, found)
    for one in dead:
        what = "would be ended; its process died and left nothing to undo"
        if one.command:
            what = f"the changes of its killed command ({from_here(one.command)}) would be saved; you could apply them"
        asked.screen.say(f"{_run(asked.screen, one)}: {what}")
    if not found and not dead:
        asked.screen.say(_AT_REST)
    return 0


def _run(screen: Screen, one: "DeadRun") -> str:
    return f"Run {screen.id(one.info.id)} ({clean(one.info.name)})"


def _unsettled_json(one: "Unsettled") -> dict[str, str]:
    return {"effect": one.effect.id, "summary": one.effect.change.summary, "detail": one.what}


def _say_all(screen: Screen, found: "Sequence[Unsettled]") -> None:
    for one in found:
        screen.say(f"{screen.effect(one.effect)}: {one.what}")


_DRY_RUN = flag("--dry-run", "only list what would be settled")
COMMAND = Command(_recover, (_DRY_RUN,), does=Does.SETTLES)
