"""From what a person types to an effect or a run: ids, unique prefixes, `@`, `@~2`, names of runs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from takeback.errors import Misuse
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.project import Scope
from takeback.model.record import canonical
from takeback.model.run import RunInfo
from takeback.storage.protocols import Journal, Query

LONGEST_KEY = 1_000
SHORTEST_PREFIX = 4  # of an id; less is a slip, or meant as the name of a file
_LOOKED_AT = 500  # effects that may have been meant
_NEAR = 0.75  # six of the eight letters of an id
_MISREAD = str.maketrans("oil", "011")
_HAPPENED = (State.PROPOSED, State.INTENDED, State.DONE, State.UNDONE, State.STUCK)


def name_of(what: object, noun: str = "effect") -> str:
    """As it was named, or its id if it was given itself."""
    name = what if isinstance(what, str) else getattr(what, "id", None)
    if not isinstance(name, str):
        raise Misuse(f"{what!r} is no {noun}.", hint=f"Give the {noun} itself, or its id as text.")
    return name


def names_of(what: object, noun: str = "effect") -> tuple[str, ...]:
    """Of one, or of several."""
    if isinstance(what, str) or hasattr(what, "id") or not isinstance(what, Iterable):
        return (name_of(what, noun),)
    return tuple(name_of(item, noun) for item in cast("Iterable[object]", what))


def id_of(journal: Journal, what: object, noun: str = "effect", scope: Scope | None = None) -> str:
    """The one id that is meant; of an effect or of a run. `scope`: whose effects `@` counts, else those of all."""
    name = name_of(what, noun)
    if name.startswith("@"):
        return _counted_back(journal, name, scope)
    wanted = name.lower()
    found = list(journal.resolve(wanted)) if wanted and wanted.isascii() else []
    if wanted in found:
        return wanted
    if not found:
        raise Misuse(f"There is no {noun} {name!r}.", hint=_meant(journal, name, noun))
    if len(found) > 1:
        choices = ", ".join(short(id) for id in found)
        raise Misuse(f"{name!r} is ambiguous: {choices}.", hint="Give a few more letters.")
    if len(wanted) < SHORTEST_PREFIX:
        raise Misuse(
            f"{name!r} is too short for the id of {'a run' if noun == 'run' else f'an {noun}'}.",
            hint=f"Give at least {SHORTEST_PREFIX} characters; `takeback {'runs' if noun == 'run' else 'log'}` lists "
            "them. A path goes after `--`: `takeback undo ID -- PATH`.",
        )
    return found[0]


def _meant(journal: Journal, name: str, noun: str) -> str:
    """A hint: the effect or run whose id or name is nearest to this one, and where they are listed."""
    from takeback.model.resemblance import closest

    runs = tuple(journal.runs())
    lists = f"`takeback {'runs' if noun == 'run' else 'log'}` lists them."
    summaries = {short(info.id): info.name for info in runs}
    if noun != "run":
        newest = journal.effects(Query(newest=True, limit=_LOOKED_AT, damaged_too=True))
        summaries |= {short(effect.id): effect.change.summary for effect in newest}
    # An id has no o, i or l: these are misread digits.
    typed = name.lower().translate(_MISREAD)[: max(map(len, summaries), default=0)]
    if found := closest(typed, summaries, _NEAR):
        return f"Did you mean {found} ({summaries[found]})? {lists}"
    if found := closest(name, {info.name for info in runs}):
        return f"Did you mean {found!r}? {lists}"
    return lists


def refuse_odd_key(key: object) -> None:
    """As long and as plain as every store can look it up."""
    if not isinstance(key, str):
        raise Misuse(f"A key is text, not {key!r}.", hint='For example key="order-42".')
    if len(canonical(key)) > LONGEST_KEY or "\0" in key:
        raise Misuse(
            f"A key has at most {LONGEST_KEY:,} bytes, none of them zero.", hint='For example key="order-42".'
        )


def needed_by(journal: Journal, names: Sequence[str]) -> tuple[str, ...]:
    """The ids of the effects that a change says it builds on: a name that means none would protect nothing."""
    ids = tuple(dict.fromkeys(id_of(journal, name) for name in names))
    known = {effect.id for effect in journal.effects(Query(ids=ids, damaged_too=True))} if ids else ()
    for id in ids:
        if id not in known:
            raise Misuse(
                f"{short(id)} is a run, and a change builds on effects.", hint="`takeback log` lists them."
            )
    return ids


def run_named(journal: Journal, name: str, scope: Scope | None = None) -> RunInfo | None:
    """The newest of that name; one of this scope before any other."""
    for where in (scope, None) if scope else (None,):
        named = [info for info in journal.runs(scope=where) if info.name == name]
        if named:
            return named[-1]
    return None


def run_of(journal: Journal, name: str, scope: Scope | None = None) -> RunInfo:
    """By name, id or unique prefix."""
    if named := run_named(journal, name, scope):
        return named
    infos = tuple(journal.runs((id_of(journal, name, "run"),)))
    if not infos:
        raise Misuse(
            f"{name!r} is an effect, not a run.", hint="`takeback show` tells which run it belongs to."
        )
    return infos[0]


def _counted_back(journal: Journal, name: str, scope: Scope | None) -> str:
    """`@` is the newest effect; undos do not count, so that `undo @` twice is refused instead of being a redo."""
    back = name[2:] if name.startswith("@~") else ("0" if name == "@" else "")
    if not back.isascii() or not back.isdigit():
        raise Misuse(
            f"{name!r} is not a name for an effect.", hint="`@` is the newest, `@~2` the second before it."
        )
    wanted = int(
        back.lstrip("0")[:9] or "0"
    )  # nobody has a thousand million effects, and SQLite cannot count for ever
    so_far = 0
    for effect in latest_first(journal, Query(states=_HAPPENED, scope=scope), 2 * wanted + 20):
        if not effect.is_undo:
            if so_far == wanted:
                return effect.id
            so_far += 1
    where = " in this project" if scope else ""
    raise Misuse(
        f"There is no effect {name!r}: only {so_far} so far{where}.", hint="`takeback log` lists them."
    )


def latest_first(journal: Journal, which: Query, few: int = 20) -> Iterator[Effect]:
    """By when they took hold: what was held or watched for long, and made last, comes first."""
    given: set[str] = set()
    while True:
        newest = tuple(journal.effects(which._replace(newest=True, limit=few)))
        floor = newest[-1].seq if len(newest) == few else 0
        late = journal.effects(which._replace(before=floor, told_after=floor)) if floor else ()
        for effect in sorted((*newest, *late), key=lambda one: -one.order):
            if effect.id not in given and effect.order >= floor:
                given.add(effect.id)
                yield effect
        if not floor:
            return
        few *= 8
