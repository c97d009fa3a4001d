"""Redact: erase content and words for good, and finish what a killed process began."""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from takeback.api.store import OpenStore, now
from takeback.errors import Misuse
from takeback.model.ids import short
from takeback.model.redaction import Words, words_of
from takeback.model.run import RunInfo
from takeback.retention import redact as retention
from takeback.runs.selection import id_of, names_of

if TYPE_CHECKING:
    from takeback.model.effect import Effect
    from takeback.retention.redact import Redaction


def redact(
    opened: OpenStore,
    what: "Sequence[Effect | RunInfo | str] | Effect | RunInfo | str | None" = None,
    *,
    match: str = "",
    why: str = "",
    by: str = "",
    with_shared: bool = False,
    dry_run: bool = False,
) -> "Redaction":
    """Erase the content of these effects and runs for good, or with `match` whatever holds that text: arguments,
    results, names, paths and captured contents. The chain of records still verifies; the effects can no longer be
    undone. Their undos and redos go with them. `with_shared`: other effects that need the same content go as well. A
    dry run changes nothing and returns what would go."""
    from takeback.api.upkeep import before_change
    from takeback.runs.agent_above import refuse_below_agent
    from takeback.runs.person import person_here

    words = words_of(match) if match else None
    names = names_of(what) if what is not None else ()
    if bool(names) == bool(words):
        raise Misuse(
            "Redact takes effects and runs, or a text that they hold.",
            hint="For example `takeback redact k3f9a2bq`, or `takeback redact --match -` and the text as input.",
        )
    if not dry_run:
        refuse_below_agent("Redacting", opened.store)
        opened.store.refuse_if_suspect()
        before_change(opened)
    ids = [id_of(opened.store.journal, name, scope=opened.scope_for(name)) for name in names]
    runs = tuple(info.id for info in opened.store.journal.runs(tuple(ids))) if ids else ()
    found = retention.plan(opened.parts, [one for one in ids if one not in runs], runs, words, with_shared)
    retention.refuse_unfit(opened.parts, found, words, (why, by))
    if dry_run or not (found.records or found.blobs):
        return found
    opened.store.use_spare()
    person = person_here(opened.store, by)
    retention.begin(opened.parts, opened.store, found, words, runs, person, why)
    left = [*finish(opened), *(_still_there(opened, words) if words else _layers_left(opened, found))]
    return found._replace(left=tuple(left))


def finish(opened: OpenStore) -> tuple[str, ...]:
    """Carry on with redactions that were begun, in this process or another."""
    from takeback.retention.forget import release_forgotten
    from takeback.retention.layers import sweep_layers
    from takeback.runs.watch_place import drop_unused

    store, held = opened.store, os.path.join(opened.store.path, "held")

    def tidy() -> None:
        release_forgotten(opened.parts, held)
        # What was seen of watched directories has names and digests; the next watch reads them again.
        drop_unused(opened.parts, now() / 1e6)
        sweep_layers(opened.parts, store.layers(), store.settings.grace_seconds)

    return retention.finish(opened.parts, store, held, tidy)


def _still_there(opened: OpenStore, words: Words) -> Iterator[str]:
    """A search of every file of the store."""
    for directory, _, names in os.walk(opened.store.path):
        for name in names:
            path = os.path.join(directory, name)
            if os.fsencode(name) in words or _holds(path, words):
                box = (
                    " A box stands on it: discard the box and redact again."
                    if f"{os.sep}layers{os.sep}" in path
                    else ""
                )
                yield f"{path} still holds the text.{box}"


def _layers_left(opened: OpenStore, found: "Redaction") -> Iterator[str]:
    """The layers of a box stay as long as the box stands on them."""
    from takeback.adapters.protocol import traits_of

    layers = opened.store.layers()
    for effect in found.effects:
        named = {
            state.get("layer", "")
            for target in (effect.targets if traits_of(effect.change).boxes else ())
            for state in (target.before, target.after)
        }
        for layer in sorted(filter(None, named)):
            if os.path.isdir(place := layers.place_of(layer)):
                yield f"{place} still has what effect {short(effect.id)} changed: its box stands on it."


def _holds(path: str, words: Words) -> bool:
    try:
        with open(path, "rb", buffering=0) as file:
            tail = b""
            while piece := file.read(1 << 20):
                if (data := tail + piece) in words:
                    return True
                tail = data[-words.longest :]
    except OSError:
        return False  # another process removed it
    return False
