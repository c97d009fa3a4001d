"""Delete the bytes that nothing needs any more."""

from collections.abc import Iterator, Sequence

from takeback.adapters.protocol import Keeper
from takeback.engine.parts import Parts
from takeback.errors import RecordInvalid
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.storage import bodies
from takeback.storage.protocols import Query

SECOND = 1_000_000  # microseconds
_BLOBS = ("content", "baseline", "targets")
_NEEDED = (State.PROPOSED, State.INTENDED, State.DONE, State.UNDONE, State.STUCK, State.DROPPED)


def live(parts: Parts) -> Iterator[str]:
    """Every blob that a remedy lists which can still be used, or might be when its effect is settled."""
    for effect in parts.journal.effects(Query(states=_NEEDED)):
        if effect.forgotten:
            continue
        if effect.change.kind == "damaged":
            raise RecordInvalid(
                f"The record of effect {short(effect.id)} is damaged, so the blobs it needs are unknown.",
                hint="Nothing was swept. `takeback verify` shows the extent; forget that effect to sweep without it.",
            )
        if effect.remedy:
            yield from effect.remedy.blobs
        # A proposal may have no remedy yet; what it needs is named in its arguments. What is being applied may be held
        # or dropped again.
        if effect.state in (State.PROPOSED, State.INTENDED, State.DROPPED):
            yield from _named(effect)
    yield from bodies.needed(parts.journal)
    yield from _kept_by_adapters(parts)


def _kept_by_adapters(parts: Parts) -> Iterator[str]:
    """The listings of watched trees, so that the next look need not read all files again; the variables of boxes."""
    for name in ("tree", "box"):
        adapter = parts.adapters.get(name)
        if isinstance(adapter, Keeper):
            yield from adapter.needed()


def sweep(parts: Parts, grace: int, erased: Sequence[Effect] = ()) -> int:
    """`erased`: drops whose bytes go now, however young they are."""
    going = [digest for one in erased for digest in (*_remedy_blobs(one), *_named(one))]
    # It was all in the store when it was recorded.
    put_until = max((one.at for one in erased), default=0) // SECOND
    with parts.progress.stage("Sweeping", "blob"):
        return parts.blobs.sweep(lambda: live(parts), grace, going, put_until, parts.progress)


def _remedy_blobs(effect: Effect) -> tuple[str, ...]:
    return effect.remedy.blobs if effect.remedy else ()


def _named(effect: Effect) -> Iterator[str]:
    found = (*(effect.change.args.get(name) for name in _BLOBS), effect.phase.first_targets or None)
    return (digest for digest in found if isinstance(digest, str))
