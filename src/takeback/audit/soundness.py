"""How far damage reaches: which runs it has hurt, and which can be used as before."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from takeback.errors import RecordInvalid
from takeback.model.effect import Effect
from takeback.model.run import RunInfo
from takeback.storage.protocols import Query
from takeback.storage.store import Store

_SHOWN = 12  # digits of a digest that a finding tells at least


class Reach(NamedTuple):
    """Runs that did something, oldest first."""

    damaged: tuple[RunInfo, ...]
    usable: tuple[RunInfo, ...]


def reach(store: Store, findings: Sequence[str]) -> Reach:
    """Raises from the `Corrupt` family when that cannot be told: some page of the journal cannot be read."""
    if any(one.startswith("The journal is damaged") for one in findings):
        raise RecordInvalid("Some page of the journal cannot be read.", hint="Restore it from a backup.")
    told = " ".join(findings)
    digests = {found[:_SHOWN] for found in re.findall(r"\b[0-9a-f]{12,64}\b", told)}
    hurt = {effect.run for effect in store.journal.effects(Query()) if _is_hurt(effect, digests)}
    hurt |= set(re.findall(r"\bRun ([0-9a-z]{20})\b", told))
    runs = [info for info in store.journal.runs() if info.effects or info.id in hurt]
    return Reach(
        tuple(info for info in runs if info.id in hurt), tuple(info for info in runs if info.id not in hurt)
    )


def _is_hurt(effect: Effect, digests: set[str]) -> bool:
    if effect.change.kind == "damaged":
        return True
    if effect.forgotten or effect.remedy is None:
        return False
    return any(digest[:_SHOWN] in digests for digest in effect.remedy.blobs)
