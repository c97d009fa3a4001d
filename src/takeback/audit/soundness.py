"""How far damage reaches: which runs it has hurt, and which can be used as before."""

from collections.abc import Sequence
from typing import NamedTuple

from takeback.errors import RecordInvalid
from takeback.model.effect import Effect
from takeback.model.flaw import Flaw
from takeback.model.run import RunInfo
from takeback.storage.protocols import Query
from takeback.storage.store import Store


class Reach(NamedTuple):
    """Runs that did something, oldest first."""

    damaged: tuple[RunInfo, ...]
    usable: tuple[RunInfo, ...]


def reach(store: Store, findings: Sequence[Flaw]) -> Reach:
    """Raises from the `Corrupt` family when that cannot be told: some page of the journal cannot be read."""
    if any(one.unreadable for one in findings):
        raise RecordInvalid("Some page of the journal cannot be read.", hint="Restore it from a backup.")
    digests = {one.blob for one in findings if one.blob}
    hurt = {effect.run for effect in store.journal.effects(Query()) if _is_hurt(effect, digests)}
    hurt |= {one.run for one in findings if one.run}
    runs = [info for info in store.journal.runs() if info.effects or info.id in hurt]
    return Reach(
        tuple(info for info in runs if info.id in hurt), tuple(info for info in runs if info.id not in hurt)
    )


def _is_hurt(effect: Effect, digests: set[str]) -> bool:
    if effect.change.kind == "damaged":
        return True
    if effect.forgotten or effect.remedy is None:
        return False
    return any(digest in digests for digest in effect.remedy.blobs)
