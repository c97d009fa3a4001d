"""The frame of every command that changes the world: join the run, make one change, tell what happened or would.
And of those that decide on effects: find those that are named, decide, tell what became of each."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.api import opened_of
from takeback.audit.views import effect_json
from takeback.errors import Corrupt, Misuse, NoRemedy, TakebackError, ValidationFailed
from takeback.frontends.cli.command import (
    AGENT,
    DRY_RUN,
    RUN,
    Argument,
    Asked,
    flag,
    option,
    positional,
    repeated,
)
from takeback.frontends.cli.output.errors import as_field, exit_code, told_trouble, worst_first
from takeback.frontends.cli.output.screen import from_here, here, shown, took
from takeback.frontends.cli.session.store import (
    dry_store,
    existing,
    give,
    known_effects,
    opened,
    session,
)
from takeback.model.effect import PERSON, Effect, State
from takeback.model.ids import short
from takeback.model.settings import bytes_in_words
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.change import Change
    from takeback.model.plan import Assessment
    from takeback.model.run import RunInfo
    from takeback.policy.checks import Check
    from takeback.runs.run import Run

    Content = bytes | Iterable[bytes]

_MOST_LISTED = 10

# What every command that changes the world takes.
CHANGING = (
    DRY_RUN,
    RUN,
    AGENT,
    option(
        "--key",
        "K",
        "make the change once: a second call with this key does nothing",
    ),
    repeated("--needs", "ID", "the change depends on this effect"),
)
ALLOW_INEXACT = flag("--allow-inexact", "make the change even if undo could not restore all of it")


def wishes(asked: Asked, tb: "Takeback") -> dict[str, Any]:
    needs = [tb.effect(id).id for id in asked.options.needs]
    return {"key": asked.options.key or "", "needs": needs}


def one_change(
    asked: Asked,
    planned: "Callable[[Takeback], Change]",
    checks: "Sequence[Check]" = (),
    content: "Callable[[], Content]" = bytes,
    nothing: str = "it is like that already",
    do: "Callable[[Takeback, Run], Effect | None] | None" = None,
) -> int:
    """`content` is what the checks look at in a dry run: the new content of the file. `nothing` tells why there is
    nothing to change. `do` makes it where that takes more than what is `planned`."""
    if asked.options.dry_run:
        with dry_store(asked) as tb:
            change = planned(tb)
            return tell_plan(
                asked, tb, [change], lambda: _said_no(change, checks, content()) if checks else ""
            )
    with opened(asked, known_effects(asked.options.needs)) as tb, _told_if_done() as done:
        # The effect that has been made with this key before.
        key: str = asked.options.key or ""
        earlier = next((one.id for one in tb.store.journal.effects(Query(key=key))), "") if key else ""
        with session(asked, tb) as run:
            started = time.perf_counter()
            try:
                effect = do(tb, run) if do else _made(asked, tb, run, planned, checks)
            except NoRemedy as error:
                raise followable(asked, error) from None
            changed = effect is not None and effect.id != earlier
            done += [effect.id] if effect and changed else []
        asked.made.extend(done)
        told = effect_json(tb.effect(effect.id)) if effect else {"id": None}
        give(asked, tb, {"changed": changed, **told})
        if effect is None:
            asked.screen.say(f"Changed nothing: {from_here(nothing)}.")
        elif not changed:
            asked.screen.say(f"Done before under this key, so nothing was done now: {short(effect.id)}")
        else:
            say_effect(asked, effect, took(started))
    return 0


def _made(
    asked: Asked,
    tb: "Takeback",
    run: "Run",
    planned: "Callable[[Takeback], Change]",
    checks: "Sequence[Check]",
) -> "Effect | None":
    from takeback.runs.change import make_change
    from takeback.runs.run import core_of
    from takeback.runs.verbs import options_of

    return make_change(core_of(run), partial(planned, tb), options_of(checks=checks, **wishes(asked, tb)))


@contextmanager
def _told_if_done() -> Iterator[list[str]]:
    """A journal that is damaged where only its tables are kept fails after the change was made and recorded."""
    done: list[str] = []
    try:
        yield done
    except Corrupt as error:
        if not done:
            raise
        raise type(error)(f"It was done ({short(done[0])}), but then: {error}", hint=error.hint) from error


def say_effect(asked: Asked, effect: "Effect", lasted: str) -> None:
    screen = asked.screen
    screen.say(f"{past_tense(effect)} in {lasted}: {screen.id(effect.id)}")
    if effect.remedy and effect.remedy.residue:
        screen.say(screen.paint(f"Undo would leave behind: {from_here(effect.remedy.residue)}", "yellow"))


def past_tense(effect: "Effect") -> str:
    change = effect.change
    place = here()
    name = shown(change.resource, place)
    if change.kind == "write":
        return f"Wrote {name} ({bytes_in_words(change.args.get('size', 0))})"
    if change.kind == "delete":
        return f"Removed {name}{_what(effect.targets[0].before) if effect.targets else ''}"
    if change.kind == "move":
        return f"Moved {name} to {shown(change.args['to'], place)}"
    done = {
        "mkdir": f"Made directory {name}",
        "symlink": f"Linked {name}",
        "chmod": f"Set the mode of {name}",
    }
    return done.get(change.kind) or f"Done: {from_here(change.summary)}"


def _what(state: dict[str, Any]) -> str:
    if state.get("type") == "dir" and "entries" in state:
        return f" ({state['entries']:,} {'entry' if state['entries'] == 1 else 'entries'})"
    return f" ({bytes_in_words(state['size'])})" if "size" in state else ""


def _said_no(change: "Change", checks: "Sequence[Check]", content: "Content") -> str:
    """The answer of the first check that refuses this content; it runs on a private copy of the same name."""
    import os
    from tempfile import TemporaryDirectory

    from takeback.model.change import Staged
    from takeback.model.resource import path_of
    from takeback.policy.checks import run_checks

    with TemporaryDirectory(prefix="takeback-dry-run-") as place:
        copy = os.path.join(os.fsencode(place), os.path.basename(path_of(change.resource)))
        with open(copy, "wb") as file:
            file.writelines((content,) if isinstance(content, bytes) else content)
        mode = change.args.get("mode")
        if mode is None and os.path.exists(path_of(change.resource)):
            mode = os.stat(path_of(change.resource)).st_mode & 0o7777
        if mode is not None:
            os.chmod(copy, mode)
        try:
            run_checks(checks, Staged(change.resource, os.fsdecode(copy), None, os.stat(copy).st_mode))
        except ValidationFailed as error:
            return str(error)
    return ""


def tell_plan(
    asked: Asked, tb: "Takeback", changes: "Sequence[Change]", said_no: "Callable[[], str]" = str
) -> int:
    """What would happen, found by looking; exits as the real thing would. `said_no` asks the checks, as the real thing
    would: not if there is nothing to change or no way back."""
    told: list[dict[str, Any]] = []
    errors: list[TakebackError] = []
    for change in changes:
        try:
            plan, error = _planned(asked, tb, change, said_no)
        except TakebackError as refusal:
            if len(changes) == 1:
                raise
            plan, error = _told_plan(change, None, str(refusal)), refusal
        told.append(plan)
        errors += [error] if error else []
        _say_plan(asked, plan)
    give(asked, tb, {"dry_run": True, "changes": told} | as_field(asked.screen, worst_first(errors)))
    told_trouble(asked.screen, errors)
    return exit_code(any(plan["possible"] and not plan["changes_nothing"] for plan in told), errors)


def _planned(
    asked: Asked, tb: "Takeback", change: "Change", said_no: "Callable[[], str]"
) -> tuple[dict[str, Any], TakebackError | None]:
    from takeback.engine.parts import adapter_of

    assessment = adapter_of(opened_of(tb).parts, change.adapter).assess(change)
    lost = list(assessment.lost) if not change.facts.allow_inexact else []
    possible, alike = bool(assessment.offers) and not lost, assessment.changes_nothing
    no = said_no() if possible and not alike else ""
    plan = _told_plan(change, assessment, no) | {"possible": possible and not no}
    if no:
        return plan, ValidationFailed(no, hint="Fix what the check names, then try again.")
    if possible or alike:
        return plan, None
    lacks = f"This could not be taken back: {'; '.join(lost) or change.summary}."
    return plan, NoRemedy(lacks, hint=_about_the_loss(asked))


def _told_plan(change: "Change", assessment: "Assessment | None", refused: str = "") -> dict[str, Any]:
    """`assessment` is None where even looking was refused."""
    best = assessment.offers[0] if assessment and assessment.offers else None
    return {
        "summary": change.summary,
        "resources": list(assessment.resources) if assessment else [change.resource],
        "changes_nothing": bool(assessment and assessment.changes_nothing),
        "possible": assessment is not None,
        "lost": list(assessment.lost) if assessment else [],
        "refused": refused,
        "strategy": best.strategy.value if best else None,
        "exact": best.exact if best else None,
        "residue": best.residue if best else "",
    }


def followable(asked: Asked, error: TakebackError) -> TakebackError:
    """The library speaks of its own names, and not every command has an option for it."""
    if isinstance(error, NoRemedy) and error.allowable:
        error.hint = _about_the_loss(asked)
    return error


def _about_the_loss(asked: Asked) -> str:
    if hasattr(asked.options, "allow_inexact"):
        return "Nothing was changed. --allow-inexact does it all the same, if that loss is acceptable."
    return "Nothing was changed. Move what would be lost out of the way first, then try again."


def _say_plan(asked: Asked, plan: dict[str, Any]) -> None:
    screen = asked.screen
    summary = from_here(plan["summary"])
    if plan["changes_nothing"]:
        screen.say(f"Would change nothing: {summary}.")
        return
    if not plan["possible"]:
        screen.say(screen.paint(f"Would be refused: {from_here(plan['refused']) or f'{summary}.'}", "red"))
    else:
        exact = "undo would be exact" if plan["exact"] else "undo would not be exact"
        screen.say(f"Would {summary}; {exact}.")
    for one in plan["lost"]:
        screen.say(f"  cannot be brought back: {from_here(one)}")
    if plan["residue"]:
        screen.say(f"  undo would leave behind: {from_here(plan['residue'])}")


# Decide on effects: accept, apply, discard, pin, unpin.


def on_effects(all_of_it: str, *more: Argument) -> tuple[Argument, ...]:
    ids = positional("ids", "ID", "effects, or runs by id or name", nargs="*")
    return (ids, option("--run", "R", all_of_it), *more, DRY_RUN)


def made_in(tb: "Takeback", run: "RunInfo") -> list[str]:
    return [one.id for one in tb.effects(run=run, state=State.DONE) if not one.is_undo]


def held_in(tb: "Takeback", run: "RunInfo") -> list[str]:
    return [one.id for one in tb.effects(run=run, state=State.PROPOSED) if one.waits_for == PERSON]


class EffectDecision(NamedTuple):
    asked: Asked
    tb: "Takeback"
    verb: str
    wanted: tuple[str, ...]  # the ids of the effects that are decided on

    def until_error(
        self, decide: "Callable[[], tuple[Effect, ...]]", *decided: State
    ) -> "tuple[tuple[Effect, ...], list[TakebackError]]":
        """Of several, those that were decided on before one failed stay so."""
        before = [self.tb.effect(id) for id in self.wanted]
        try:
            return decide() if self.wanted else (), []
        except TakebackError as error:
            after: list[Effect] = []
            with suppress(TakebackError):
                after = [self.tb.effect(id) for id in self.wanted]
            both = zip(after, before, strict=False)
            done = tuple(one for one, was in both if one.state in decided and one.state != was.state)
            if not done:
                raise
            return done, [error]

    def say(self, done: str, effect: "Effect", how: str = "") -> None:
        screen = self.asked.screen
        said = f"Would {self.verb}" if self.asked.options.dry_run else done
        screen.say(f"{said} {screen.effect(effect)}{how}")

    def tell(
        self,
        effects: "Sequence[Effect]",
        say: "Callable[[Effect], None]",
        errors: Sequence[TakebackError] = (),
    ) -> int:
        screen, told = self.asked.screen, [effect_json(effect) for effect in effects]
        give(self.asked, self.tb, {"effects": told} | as_field(screen, errors) if errors else told)
        for effect in effects[:_MOST_LISTED]:
            say(effect)
        if len(effects) > _MOST_LISTED:
            screen.say(f"and {len(effects) - _MOST_LISTED:,} more")
        if not effects:
            screen.say(f"There was nothing to {self.verb}.")
        told_trouble(screen, errors)
        return exit_code(bool(effects), errors)


@contextmanager
def decision_on(
    asked: Asked, verb: str, of_run: "Callable[[Takeback, RunInfo], list[str]]"
) -> Iterator[EffectDecision]:
    """On the effects that are named. `of_run`: those of a run that are meant."""
    ids, run = asked.options.ids, asked.options.run
    if bool(ids) == bool(run):
        raise Misuse(
            f"Name the effects to {verb}, or a run with --run.",
            hint=f"`takeback {verb} @` is for the newest.",
        )
    with existing(asked, known_effects(ids, run or "")) as tb:
        chosen = [tb.find_run(run)] if run else [opened_of(tb).run_meant(name) or name for name in ids]
        found = ([tb.effect(one).id] if isinstance(one, str) else of_run(tb, one) for one in chosen)
        # Each once: a run may be named beside one of its effects.
        yield EffectDecision(asked, tb, verb, tuple(dict.fromkeys(id for some in found for id in some)))


# Words of the command line.


def mode_of(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o7777:
        raise Misuse(f"{text!r} is not a file mode.", hint="Use three or four octal digits, such as 644.")
    return mode


def refuse_open_files(path: str) -> None:
    """Asked before standard input is read. A name such as /dev/stdout stands for whatever this process has open there;
    what is behind it may be a stream, or a file that its writer has not done with."""
    import os
    import re
    import stat

    step = os.path.abspath(path)
    for _ in range(40):  # as many links as the kernel follows
        place = os.path.realpath(os.path.dirname(step))
        if re.fullmatch(r"/proc/[^/]+(/task/\d+)?/fd", place):
            raise Misuse(
                f"{path} stands for an open file, not for a place of its own.", hint="Name the file itself."
            )
        if not os.path.islink(step):
            break
        step = os.path.join(place, os.readlink(step))
    try:
        mode = os.stat(step).st_mode
    except OSError:
        return  # the closer look reports the reason
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise Misuse(f"{path} is not a regular file.", hint="FIFOs, sockets and devices are not written.")


def checks_of(asked: Asked) -> "list[Check]":
    if not asked.options.check:
        return []
    from takeback.policy.checks import command

    return [command(line) for line in asked.options.check]
