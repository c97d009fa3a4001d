"""Redact: erase content and words for good, and finish what a killed process began."""

import os
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING

from takeback.api.store import OpenStore
from takeback.errors import Misuse, Unavailable
from takeback.model.ids import short
from takeback.model.redaction import SearchText, words_of
from takeback.model.run import RunInfo
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
    from takeback.api.upkeep import before_change, finish_redaction
    from takeback.retention import redact as retention
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
    try:
        left = list(finish_redaction(opened))
    except Unavailable as error:
        error.hint = (
            "The redaction is recorded and has begun. The next change or `takeback recover` finishes it."
        )
        raise
    left += _still_there(opened, found, words) if words else _layers_left(opened, found)
    return found._replace(left=tuple(left))


def _still_there(opened: OpenStore, found: "Redaction", words: SearchText) -> Iterator[str]:
    """A search of all records and contents, which are compressed in their files, and of every file of the store."""
    from takeback.retention import redact as retention

    again = retention.plan(opened.parts, (), (), words, with_shared=False)
    if again.records or set(again.blobs) - set(found.blobs):
        yield "Another process has recorded the text again: redact once more."
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
        targets = effect.targets if traits_of(effect.change).boxes else ()
        named: set[str] = {one.before["layer"] for one in targets} | {one.after["layer"] for one in targets}
        for layer in sorted(named - {""}):
            if os.path.isdir(place := layers.place_of(layer)):
                yield f"{place} still has what effect {short(effect.id)} changed: its box stands on it."


def _opened(path: str) -> IO[bytes]:
    if path.endswith(".packed"):  # a layer
        from takeback.storage.blobs.codec import zstd_module

        return zstd_module().open(path, "rb")
    return open(path, "rb", buffering=0)


def _holds(path: str, words: SearchText) -> bool:
    try:
        with _opened(path) as file:
            tail = b""
            while piece := file.read(1 << 20):
                if (data := tail + piece) in words:
                    return True
                tail = data[-words.longest :]
    except OSError:
        return False  # another process removed it
    return False
