"""`log`: list effects, newest first."""

from takeback.api import Takeback, now, opened_of
from takeback.api.upkeep import needs_recovery
from takeback.errors import Misuse
from takeback.frontends.cli.command import (
    NUMBER,
    SECRETS,
    Asked,
    Command,
    Does,
    filled,
    flag,
    option,
    positional,
)
from takeback.frontends.cli.output.log_table import (
    FIELDS,
    TableContext,
    asked_for,
    formatted,
    is_folded,
    lines,
    partly_undone,
    stat_lines,
    width_of,
)
from takeback.frontends.cli.output.prompt_lines import found_prompts, headings, indent, together
from takeback.frontends.cli.output.screen import Screen, clean, counted, here, listed, warn
from takeback.frontends.cli.session.project import effects_listed, hint_elsewhere
from takeback.frontends.cli.session.store import agent_of, give, nothing_yet, opened, tell_nothing
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.run import RunInfo

_MOST_DEAD = 3


_FIELDS = " ".join(f"{{{field}}}" for field in FIELDS)
_ARGUMENTS = (
    positional("path_only", "PATH", "only what touches this path, in any project", nargs="?", type=filled),
    NUMBER,
    option("--run", "R", "of this run: its name, id, or the beginning of its id"),
    option("--path", "P", "same as PATH: this path, paths below it, and its parents", type=filled),
    option("--agent", "A", "of this agent", default=""),
    option("--since", "TIME", "since then: 10m, 2h, 3d, 09:30, 2026-11-18", type=filled),
    flag("--held", "only held changes, and dropped ones that you can still apply"),
    flag("--aborted", "also aborted effects, which never happened"),
    flag("--all", "of all projects, with aborted effects"),
    flag("-p, --patch", "with the changes of each effect"),
    flag("--stat", "with the paths that each of them changed"),
    option("--format", "F", f"one line for each effect: json, or a text with {_FIELDS}", default=""),
    SECRETS,
)


def _log(asked: Asked) -> int:
    screen = asked.screen
    if nothing_yet(asked):
        return tell_nothing(asked, [])
    if asked.options.path_only and asked.options.path:
        raise Misuse("The path was given twice.", hint="Give PATH or --path.")
    if asked.options.format == "json" and (asked.options.patch or asked.options.stat):
        raise Misuse(
            "--format json has no room for --patch and --stat.",
            hint="Its `targets` show which paths changed.",
        )
    with opened(asked) as tb:
        effects = _listed(asked, tb)
        if screen.json:
            from takeback.audit.views import effect_json, prompt_fields

            parted, under = partly_undone(tb, effects), found_prompts(tb, effects, _runs_of(tb, effects))
            told = (effect_json(one, parted.get(one.id, ())) | prompt_fields(one, under) for one in effects)
            give(asked, tb, list(told))
            return 0
        _show_effects(asked, tb, effects)
        if not asked.options.format:
            tell_dead(screen, tb)
    return 0


def tell_dead(screen: Screen, tb: Takeback) -> None:
    """One line of what a crash left; `status` has the rest."""
    if not needs_recovery(opened_of(tb)):
        return
    from takeback.audit.runs import dead_runs

    if dead := dead_runs(tb.store, now()):
        names = listed([f"{short(one.info.id)} ({clean(one.info.name)})" for one in dead], _MOST_DEAD)
        died = f"{counted(len(dead), 'run')} died and {'needs' if len(dead) == 1 else 'need'} recovery"
        screen.say(screen.paint(f"{died}: {names}; `takeback status` shows what is left.", "yellow"))


def _listed(asked: Asked, tb: Takeback) -> tuple[Effect, ...]:
    """Finished undos are folded into what they took back, but for a program that asks for all of it."""
    options = asked.options
    for_programs = asked.screen.json or options.format == "json"
    if for_programs and options.all:
        return effects_listed(asked, tb, options.number)
    asks = options.number + 1 if options.number else 0  # one more, to know whether there are more
    while True:
        found = effects_listed(asked, tb, asks)
        left = tuple(one for one in found if not is_folded(one))
        if not asks or len(left) > options.number or len(found) < asks:
            return left[: options.number] if for_programs and options.number else left
        asks *= 4


def _runs_of(tb: Takeback, effects: tuple[Effect, ...]) -> dict[str, RunInfo]:
    ids = tuple({effect.run for effect in effects})
    return {info.id: info for info in tb.store.journal.runs(ids)} if ids else {}


def _show_effects(asked: Asked, tb: Takeback, effects: tuple[Effect, ...]) -> None:
    screen, options = asked.screen, asked.options
    more = options.number and options.format != "json" and len(effects) > options.number
    effects = effects[: options.number] if more else effects
    if not effects:
        place = "" if _everywhere(asked) else " in this project"
        narrowed = _filtered(asked) or options.since
        said = f"No effects match{place}." if narrowed else f"No effects yet{place}."
        (warn if options.format else screen.say)(said)  # a script would take it for a line of that form
        _hint_elsewhere(asked, tb)
        return
    runs = _runs_of(tb, effects)
    numbered = not (_filtered(asked) or options.all or options.aborted)
    parted, proposed = partly_undone(tb, effects), asked_for(tb, effects, now())
    under = found_prompts(tb, effects, runs)
    told = TableContext(here(), now(), runs, agent_of(asked), numbered, parted, proposed, under)
    width = width_of(screen)
    deepest = max((len(indent(one, told)) for one in effects), default=0)
    room = width - deepest if width else width
    shown = list(
        formatted(options.format, effects, told) if options.format else lines(screen, effects, told, room)
    )
    told_together = range(len(effects)) if options.format else together(effects, under)
    effects, shown = tuple(effects[one] for one in told_together), [shown[one] for one in told_together]
    titles = {} if options.format else headings(screen, effects, told, width)
    for effect, line in zip(effects, shown, strict=True):
        for title in titles.get(effect.id, ()):
            screen.say(title)
        screen.say(line if options.format else f"{indent(effect, told)}{line}")
        if options.stat:
            for path in stat_lines(effect, told.here, told.parted.get(effect.id, ())):
                screen.say(path)
        if options.patch:
            from takeback.frontends.cli.output.differences import say_changed

            say_changed(screen, tb, effect)
    if options.format:
        return
    if more:
        screen.hint("There are more; -n 0 lists all.")
    _hint_elsewhere(asked, tb)


def _hint_elsewhere(asked: Asked, tb: Takeback) -> None:
    if not _everywhere(asked):
        hint_elsewhere(asked, tb)


def _everywhere(asked: Asked) -> bool:
    options = asked.options
    return bool(options.run or options.path or options.path_only or options.all)


def _filtered(asked: Asked) -> bool:
    """Then the first of them need not be the newest, and `@~1` not the second."""
    options = asked.options
    return bool(options.run or options.path or options.path_only or options.agent or options.held)


COMMAND = Command(_log, _ARGUMENTS, does=Does.LOOKS, long=True)
