"""How to take one effect back, as plain data, readable years later; and which way to prepare."""

from enum import StrEnum
from typing import Any, NamedTuple

HARMLESS = "harmless"  # in a payload: the residue can be read with `show`, and is no news at every change


BY_MEANING = "by_meaning"  # in a state: other bytes may mean the same, as only its adapter can tell
APART = "apart"  # its value where effects on the same path do not stand on each other


class Strategy(StrEnum):
    """Best first."""

    TRANSACTION = "transaction"  # still staged: drop it
    SNAPSHOT = "snapshot"  # the earlier state was kept
    COMPENSATION = "compensation"  # another change compensates it
    MANUAL = "manual"  # a person follows written steps
    IRREVERSIBLE = "irreversible"  # none, and it says why


class Target(NamedTuple):
    """One thing an effect touches: what it was, and what the effect leaves."""

    resource: str
    before: dict[str, Any]
    after: dict[str, Any]


# In a state of a path that someone else may have changed at the same time: undo leaves it unless it is named.
BY_WHOM = "by_whom"
OTHERS_TOO, UNKNOWN = "others too", "unknown"


def doubt_of(target: Target) -> str:
    return target.after.get(BY_WHOM, "")


def doubted(target: Target, why: str) -> Target:
    return target._replace(after=target.after | {BY_WHOM: why})


def without_doubt(target: Target) -> Target:
    return target._replace(after={name: value for name, value in target.after.items() if name != BY_WHOM})


class Remedy(NamedTuple):
    adapter: str
    version: int
    strategy: Strategy
    targets: tuple[Target, ...]
    payload: dict[str, Any] = {}
    blobs: tuple[str, ...] = ()
    exact: bool = True
    residue: str = ""
    good_until: str = ""


def surprises(remedy: Remedy) -> bool:
    """Whether undo leaves something behind that people should read about at once."""
    return bool(remedy.residue) and HARMLESS not in remedy.payload


class Offer(NamedTuple):
    """One way an adapter could prepare to take a change back."""

    strategy: Strategy
    cost: int = 0  # bytes it would add to the store, at most
    exact: bool = True
    residue: str = ""
    why: str = ""
    seen: object = None  # what the adapter saw, for its own capture; never recorded


def to_json(remedy: Remedy) -> dict[str, Any]:
    data: dict[str, Any] = {
        "adapter": remedy.adapter,
        "version": remedy.version,
        "strategy": remedy.strategy.value,
        "targets": [[t.resource, t.before, t.after] for t in remedy.targets],
    }
    # Empty means absent: the record stays small and its hash does not depend on defaults added later.
    if remedy.payload:
        data["payload"] = remedy.payload
    if remedy.blobs:
        data["blobs"] = list(remedy.blobs)
    if not remedy.exact:
        data["exact"] = False
    if remedy.residue:
        data["residue"] = remedy.residue
    if remedy.good_until:
        data["good_until"] = remedy.good_until
    return data


def from_json(data: dict[str, Any]) -> Remedy:
    return Remedy(
        adapter=data["adapter"],
        version=data["version"],
        strategy=Strategy(data["strategy"]),
        targets=tuple(Target(*target) for target in data["targets"]),
        payload=data.get("payload", {}),
        blobs=tuple(data.get("blobs", ())),
        exact=data.get("exact", True),
        residue=data.get("residue", ""),
        good_until=data.get("good_until", ""),
    )


_RANK = {strategy: rank for rank, strategy in enumerate(Strategy)}

_WORDS = {
    Strategy.TRANSACTION: "nothing is visible yet, so it can simply be dropped",
    Strategy.SNAPSHOT: "the earlier state is kept",
    Strategy.COMPENSATION: "another change compensates it",
    Strategy.MANUAL: "a person has to follow written steps",
    Strategy.IRREVERSIBLE: "it cannot be undone",
}

_GATED = (Strategy.MANUAL, Strategy.IRREVERSIBLE)


def is_gated(offers: tuple[Offer, ...]) -> bool:
    """Whether a person must say yes first: there is no way back, or none that we could go."""
    return bool(offers) and all(offer.strategy in _GATED for offer in offers)


def ordered(offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
    """Best first: exact before inexact, then by strategy, then the cheaper."""
    return tuple(sorted(offers, key=lambda offer: (not offer.exact, _RANK[offer.strategy], offer.cost)))


def reason(chosen: Offer, refused: tuple[tuple[Offer, str], ...]) -> str:
    """Why this offer; with what was tried before it and why that did not work."""
    why = f"{chosen.strategy.value}: {chosen.why or _WORDS[chosen.strategy]}"
    for offer, trouble in refused:
        why += f"; {offer.strategy.value} could not be prepared ({trouble})"
    return why
