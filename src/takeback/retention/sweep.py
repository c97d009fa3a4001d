"""Delete the bytes that nothing needs any more."""

from collections.abc import Iterator

from takeback.adapters.protocol import Keeper
from takeback.engine.parts import Parts
from takeback.errors import RecordInvalid
from takeback.model.effect import State
from takeback.model.ids import short
from takeback.storage import texts
from takeback.storage.protocols import Query

_BLOBS = ("content", "baseline", "targets")
_NEEDED = (State.PROPOSED, State.INTENDED, State.DONE, State.UNDONE, State.STUCK)


def live(parts: Parts) -> Iterator[str]:
    """Every blob that a remedy lists which can still be used, or might be when its effect is settled."""
    for effect in parts.journal.effects(Query(states=_NEEDED)):
        if effect.forgotten:
            continue
        if effect.change.kind == "damaged":
            raise RecordInvalid(
                f"The record of effect {short(effect.id)} is damaged, so the blobs it needs are unknown.",
                hint="Nothing was swept. `takeback verify` shows the extent; forget that effect to go on without it.",
            )
        if effect.remedy:
            yield from effect.remedy.blobs
        # A proposal may have no remedy yet; what it needs is named in its arguments.
        if effect.state is State.PROPOSED:
            named = (effect.change.args.get(name) for name in _BLOBS)
            yield from (digest for digest in named if isinstance(digest, str))
    yield from texts.needed(parts.journal)
    yield from _kept_by_adapters(parts)


def _kept_by_adapters(parts: Parts) -> Iterator[str]:
    """What was seen of watched trees, so that the next look need not read all of it again; the variables of boxes."""
    for name in ("tree", "box"):
        adapter = parts.adapters.get(name)
        if isinstance(adapter, Keeper):
            yield from adapter.needed()


def sweep(parts: Parts, grace: int) -> int:
    with parts.progress.stage("Sweeping", "blob"):
        return parts.blobs.sweep(lambda: live(parts), grace, parts.progress)
