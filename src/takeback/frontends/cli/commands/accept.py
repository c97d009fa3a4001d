"""`accept`: say that effects stay, even if their run fails; `apply`, `discard`, `pin` and `unpin` are like it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from takeback.api import opened_of
from takeback.api.store import now as clock
from takeback.audit.views import effect_json
from takeback.errors import Misuse, TakebackError
from takeback.frontends.cli.command import DRY_RUN, Argument, Asked, Command, flag, option, positional
from takeback.frontends.cli.output.errors import as_field, exit_code, told_trouble
from takeback.frontends.cli.output.screen import from_here, local_time
from takeback.frontends.cli.session.store import effect_or_run, existing, give, known_effects
from takeback.model.effect import PERSON, Effect, State
from takeback.model.ids import short
from takeback.model.run import RunInfo
from takeback.runs.held import built_on

if TYPE_CHECKING:
    from takeback.api import Takeback


_MOST_LISTED = 10


class _Word(NamedTuple):
    verb: str
    done: str
    held: bool  # for held effects, not for those that were made


ACCEPT = _Word("accept", "Accepted", held=False)

APPLY = _Word("apply", "Applied", held=True)

DISCARD = _Word("discard", "Discarded", held=True)

PIN = _Word("pin", "Pinned", held=False)

UNPIN = _Word("unpin", "Unpinned", held=False)


def _arguments(word: _Word) -> tuple[Argument, ...]:
    all_of_it = "all held changes of this run" if word.held else "everything this run did"
    ids = positional("ids", "ID", "effects, or runs by id or name", nargs="*")
    if word is APPLY:
        return (
            ids,
            option("--run", "R", f"{all_of_it}, or its dropped ones if none is held"),
            flag("--force", "apply even if others changed the targets; undo restores their content"),
            DRY_RUN,
        )
    now = (flag("--now", "erase it at once, also if it was dropped before"),) if word is DISCARD else ()
    return (ids, option("--run", "R", all_of_it), *now, DRY_RUN)


def _meant(tb: "Takeback", what: "str | RunInfo", word: _Word, now: bool) -> list[str]:
    """One effect, or all effects of a run that the verb is for: the held ones, or the dropped ones if none are held."""
    if isinstance(what, str):
        return [tb.effect(what).id]
    if not word.held:
        return [one.id for one in tb.effects(run=what, state=State.DONE) if not one.is_undo]
    held = [one.id for one in tb.effects(run=what, state=State.PROPOSED) if one.waits_for == PERSON]
    if now or (word is APPLY and not held):
        held += [one.id for one in tb.effects(run=what, state=State.DROPPED)]
    return held


def _carry_out(word: _Word, asked: Asked) -> int:
    options = asked.options
    if bool(options.ids) == bool(options.run):
        raise Misuse(
            f"Name the effects to {word.verb}, or a run with --run.",
            hint=f"`takeback {word.verb} @` is for the newest.",
        )
    now = word is DISCARD and options.now
    with existing(asked, known_effects(options.ids, options.run or "")) as tb:
        chosen = (
            [tb.find_run(options.run)] if options.run else [effect_or_run(tb, name) for name in options.ids]
        )
        # Each once: a run may be named beside one of its effects.
        wanted = tuple(dict.fromkeys(name for one in chosen for name in _meant(tb, one, word, now)))
        effects, errors = _done(tb, asked, word, wanted) if wanted else ((), [])
        told = [effect_json(effect) for effect in effects]
        give(asked, tb, {"effects": told} | as_field(asked.screen, errors) if errors else told)
        later = built_on(effects) if word is APPLY and options.dry_run else {}
        said = f"Would {word.verb}" if options.dry_run else word.done
        for effect in effects[:_MOST_LISTED]:
            if word is APPLY and not options.dry_run and effect.state in (State.PROPOSED, State.DROPPED):
                _tell_there_already(asked, effect)
                continue
            how = _would(tb, effect, now) if word is DISCARD and options.dry_run else _how(effect, now)
            if first := later.get(effect.id):
                how = f": depends on {short(first)}, which changes the same"
            summary = from_here(effect.change.summary)
            asked.screen.say(f"{said} {asked.screen.paint(short(effect.id), 'cyan')}  {summary}{how}")
        if len(effects) > _MOST_LISTED:
            asked.screen.say(f"and {len(effects) - _MOST_LISTED:,} more")
        if not effects:
            asked.screen.say(f"There was nothing to {word.verb}.")
        told_trouble(asked.screen, errors)
    return exit_code(bool(effects), errors)


def _tell_there_already(asked: Asked, effect: Effect) -> None:
    name, kept = short(effect.id), "dropped" if effect.dropped else "held"
    asked.screen.say(
        f"Nothing was changed: {asked.screen.paint(name, 'cyan')}  {from_here(effect.change.summary)} "
        f"is already in place; it stays {kept}"
    )
    asked.screen.hint(f"`takeback discard {name} --now` erases it.")


def _done(
    tb: "Takeback", asked: Asked, word: _Word, wanted: tuple[str, ...]
) -> tuple[tuple[Effect, ...], list[TakebackError]]:
    """Of several that are held, those that were decided on before one failed stay so."""
    dry_run = asked.options.dry_run
    if word not in (APPLY, DISCARD):
        decide = {ACCEPT: tb.accept, PIN: tb.pin, UNPIN: tb.unpin}[word]
        return decide(wanted, dry_run=dry_run), []
    before = [tb.effect(id) for id in wanted]
    try:
        if word is APPLY:
            return tb.apply(wanted, force=asked.options.force, dry_run=dry_run), []
        with _told_if_interrupted(tb, wanted, asked.options.now):
            return tb.discard(wanted, now=asked.options.now, dry_run=dry_run), []
    except TakebackError as error:
        after: list[Effect] = []
        with suppress(TakebackError):
            after = [tb.effect(one.id) for one in before]
        over = (State.DONE,) if word is APPLY else (State.DROPPED, State.ABORTED)
        done = [
            one
            for one, was in zip(after, before, strict=False)
            if one.state in over and one.state != was.state
        ]
        if not done:
            raise
        return tuple(done), [error]


def _would(tb: "Takeback", effect: Effect, now: bool) -> str:
    from takeback.engine.held import is_final

    if now:
        return ": it would be erased, with its bytes"
    if is_final(opened_of(tb).parts, effect):
        return ": this drop would be final"
    return f": `takeback apply {short(effect.id)}` could make it after all, for a while"


@contextmanager
def _told_if_interrupted(tb: "Takeback", wanted: tuple[str, ...], now: bool) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as signal:
        states = [tb.effect(id).state for id in wanted]
        became = {State.ABORTED: "it was erased", State.DROPPED: "it was dropped"}
        one = became.get(states[0], "nothing was dropped")
        signal.add_note(one if len(states) == 1 else _counts(states, now))
        raise


def _counts(states: Sequence[State], now: bool) -> str:
    erased, dropped = states.count(State.ABORTED), states.count(State.DROPPED)
    if now:
        return f"{erased:,} of {len(states):,} were erased"
    return f"{erased + dropped:,} of {len(states):,} were dropped"


def _how(effect: Effect, now: bool) -> str:
    """Of a drop: whether it can be taken back, and until when."""
    if effect.state is State.DROPPED and effect.dropped:
        until = local_time(effect.dropped.until, clock())
        return f": `takeback apply {short(effect.id)}` makes it after all, until {until}"
    if effect.state is State.ABORTED:
        return ": erased" if now else ": this drop is final"
    return ""


def command_of(word: _Word) -> Command:
    return Command(partial(_carry_out, word), _arguments(word))


COMMAND = command_of(ACCEPT)
