"""For each key of an effect: can it be put back, is it back already, or did someone change it since?"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from takeback.adapters.redis.images import Image, content, same
from takeback.adapters.redis.known import Known
from takeback.adapters.redis.words import in_words, text
from takeback.model.database import Database, resource_of, target_of
from takeback.model.ids import short
from takeback.model.plan import OnConflict, Outcome, TargetOutcome

LISTED = 100  # conflicts that are told one by one


class Choice(NamedTuple):
    key: bytes
    outcome: Outcome  # UNDONE, ALREADY, CONFLICT
    target: Image  # what it was before
    current: Image
    left: Image | None = None  # what the effect left; None: not known
    kind: str = ""  # of a conflict, in words; also of one that is forced


def choose(known: Known, current: Sequence[Image], now: int, on_conflict: OnConflict) -> tuple[Choice, ...]:
    """An image that has expired by now is the same as no key: time takes part in every state, and is nobody's
    change."""
    left = known.left(tuple(current))
    found: list[Choice] = []
    for seen in current:
        target = known.before[seen.key].at(now)
        after = left[seen.key].at(now) if left is not None else None
        choice = Choice(seen.key, Outcome.CONFLICT, target, seen, after)
        if same(seen, target) or (left is not None and same(known.before[seen.key], left[seen.key])):
            # It is back, or was never changed: the effect only named it.
            choice = choice._replace(outcome=Outcome.ALREADY)
        elif after is not None and same(seen, after):
            choice = choice._replace(outcome=Outcome.UNDONE)
        else:
            forced = on_conflict is OnConflict.FORCE
            outcome = Outcome.UNDONE if forced else Outcome.CONFLICT
            choice = choice._replace(outcome=outcome, kind=_kind(seen, after))
        found.append(choice)
    return tuple(found)


def _kind(seen: Image, left: Image | None) -> str:
    if left is None:
        return (
            "may have been changed since (what the effect left was not written down before its process died)"
        )
    if seen.dump is None:
        return "is gone"
    if left.dump is None:
        return "was made again since"
    return "was changed since"


def of_outcome(choices: Iterable[Choice], outcome: Outcome) -> list[Choice]:
    return [one for one in choices if one.outcome is outcome]


def told(
    database: Database, effect: str, choices: Sequence[Choice], by: Mapping[bytes, str]
) -> tuple[TargetOutcome, ...]:
    """`by`: of a key, the later effect that changed it."""
    conflicts = of_outcome(choices, Outcome.CONFLICT)
    own = target_of(database, effect)
    found: list[TargetOutcome] = []
    if undone := of_outcome(choices, Outcome.UNDONE):
        forced = [one for one in undone if one.kind]
        found.append(TargetOutcome(own, Outcome.UNDONE, _forced(forced) if forced else ""))
    elif not conflicts:
        found.append(TargetOutcome(own, Outcome.ALREADY, "every key is as it was before"))
    found += [
        TargetOutcome(key_resource(database, one), Outcome.CONFLICT, _sentence(one, by.get(one.key, "")))
        for one in conflicts[:LISTED]
    ]
    if len(conflicts) > LISTED:
        detail = f"and {len(conflicts) - LISTED} more keys were changed since"
        found.append(TargetOutcome(resource_of(database), Outcome.CONFLICT, detail))
    return tuple(found)


def _forced(forced: Sequence[Choice]) -> str:
    count = f"{len(forced)} {'key' if len(forced) == 1 else 'keys'}"
    return f"overwrites {count} that someone changed since; redo brings that back"


def key_resource(database: Database, choice: Choice) -> str:
    kinds = (content(one).type for one in (choice.current, choice.target) if one.dump is not None)
    return resource_of(database, next(kinds, "none"), text(choice.key))


def _sentence(one: Choice, by: str) -> str:
    expected = f" expected {in_words(one.left)}," if one.left is not None else ""
    who = f"changed by effect {short(by)}" if by else "by someone who is not recorded"
    return f"{one.kind}:{expected} found {in_words(one.current)}, undo would put back {in_words(one.target)}; {who}"
