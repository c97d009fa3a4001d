"""Taking keys back: what would happen to each, and the bytes that come of it."""

from typing import Any, NamedTuple

from takeback.adapters.config import formats
from takeback.adapters.config.formats import (
    DocumentView,
    KeyState,
    key_state,
    pointer_in,
    same_state,
    value_of,
    view_of,
    words,
)
from takeback.adapters.config.keys import RestoredKey, Tagged, find, same, with_restored
from takeback.adapters.three_way import KeyClash, lines_merged, merged_document
from takeback.errors import Refused
from takeback.model.change import OnConflict, UndoTerms
from takeback.model.effect import Effect
from takeback.model.plan import Outcome, TargetOutcome
from takeback.model.remedy import Remedy, Target
from takeback.storage.protocols import Blobs


class ConfigKeyChoice(NamedTuple):
    """The step of an undo for one key."""

    outcome: TargetOutcome
    target: Target
    place: int  # of the target in its effect
    pointer: str
    merged: tuple[Any, ...] = ()  # the value that a merge gives the key, if there is one


class Restoration(NamedTuple):
    then: DocumentView  # the file as the undo leaves it
    made: tuple[str, ...] = ()
    is_whole: bool = False  # every byte as it was before the effect


def choices(of: Effect, seen: DocumentView, terms: UndoTerms, blobs: Blobs) -> tuple[ConfigKeyChoice, ...]:
    """Compare and swap, key by key; a change elsewhere in the file is no conflict."""
    return tuple(_choice(of, target, place, seen, terms, blobs) for place, target in enumerate(of.targets))


def _choice(
    of: Effect, target: Target, place: int, seen: DocumentView, terms: UndoTerms, blobs: Blobs
) -> ConfigKeyChoice:
    remedy = remedy_of(of)
    format, pointer = remedy.payload["format"], pointer_in(target.resource)
    now = key_state(seen, format, pointer)
    explained = seen.digest == terms.explained.get(of.change.resource, {}).get("digest", None)
    found = f"effect {of.id[:8]} left {words(target.after)}, found {words(now)}"
    exact, merged = True, ()
    if same_state(now, target.after, format, pointer, blobs, seen):
        outcome, detail = Outcome.UNDONE, f"back to {words(target.before)}"
        if trouble := _in_the_way(of, target, place, seen, blobs):
            outcome, detail = Outcome.CONFLICT, trouble
    elif same_state(now, target.before, format, pointer, blobs, seen) and not explained:
        outcome, detail = Outcome.ALREADY, "it is in the earlier state"
    elif terms.on_conflict is OnConflict.FORCE:
        outcome = Outcome.UNDONE
        detail = f"back to {words(target.before)}; {words(now)} that was there is saved"
    elif not (terms.on_conflict.merges or explained):
        outcome, detail = Outcome.CONFLICT, found
    elif merged := _merged(target, seen, format, pointer, blobs):
        outcome, detail, exact = Outcome.UNDONE, "merged by key; other changes stay", False
        if same(merged[0], find(seen.document, pointer)[1]):
            outcome, detail, exact = Outcome.ALREADY, "what it did is no longer there", True
    else:
        outcome, detail = Outcome.CONFLICT, f"{found}; it does not merge"
    if outcome is Outcome.UNDONE and (why := _changed_later(of, target, place, terms, blobs)):
        outcome, detail, exact, merged = Outcome.CONFLICT, why, True, ()
    told = TargetOutcome(target.resource, outcome, detail, of.id, exact)
    return ConfigKeyChoice(told, target, place, pointer, merged)


def _changed_later(of: Effect, target: Target, place: int, terms: UndoTerms, blobs: Blobs) -> str:
    """A later effect that stays has changed the same key, and then someone wrote the same value again."""
    format = remedy_of(of).payload["format"]
    alone = UndoTerms(OnConflict.MERGE)
    for effect, *digests in terms.later.get(of.change.resource, ()):
        if not all(map(blobs.has, digests)):
            continue
        was, became = (
            _choice(of, target, place, view_of(b"".join(blobs.read(one)), format), alone, blobs).outcome
            for one in digests
        )
        if was.outcome is Outcome.UNDONE and became.outcome is not Outcome.UNDONE:
            return f"effect {effect[:8]} changed the same key later"
    return ""


def _merged(target: Target, seen: DocumentView, format: str, pointer: str, blobs: Blobs) -> tuple[Any, ...]:
    """The value of a key without what the effect did to it; empty if that does not merge."""
    now = key_state(seen, format, pointer)
    three = (target.before, target.after, now)
    if any(state["type"] != "value" or not state["present"] for state in three):
        return ()
    before, after = (value_of(state, format, pointer, blobs) for state in three[:2])
    try:
        return (merged_document(after, before, find(seen.document, pointer)[1]),)
    except KeyClash:
        return ()


def _in_the_way(of: Effect, target: Target, place: int, seen: DocumentView, blobs: Blobs) -> str:
    """Why the key cannot come back into the document as it is now, though the key itself was not changed."""
    remedy = remedy_of(of)
    if seen.digest == remedy.payload["whole"][1]:
        return ""
    if target.before["type"] != "value":
        return f"before, there was {words(target.before)}; the file has changed since"
    try:
        with_restored(seen.document, [_restored(remedy, target, place, blobs)])
    except Refused as error:
        return str(error).rstrip(".")
    return ""


def restoration(of: Effect, chosen: list[ConfigKeyChoice], seen: DocumentView, blobs: Blobs) -> Restoration:
    """The bytes with the chosen keys as they were; every byte as it was if nothing else changed since."""
    remedy = remedy_of(of)
    format = remedy.payload["format"]
    earlier, left = remedy.payload["whole"]
    untouched = seen.digest == left and len(chosen) == len(of.targets)
    if untouched or seen.data is None or seen.trouble:
        data = b"".join(blobs.read(earlier)) if earlier else None
        return Restoration(view_of(data, format), is_whole=True)
    keys = [
        RestoredKey(choice.pointer, True, *choice.merged)
        if choice.merged
        else _restored(remedy, choice.target, choice.place, blobs)
        for choice in chosen
    ]
    outcome = with_restored(seen.document, keys, remedy.payload.get("made", ()))
    data = _by_lines(remedy, seen.data, outcome.wanted, blobs)
    if data is None:
        data = formats.rewritten(format, seen.data, outcome.wanted)
    return Restoration(DocumentView(data, outcome.wanted), outcome.made)


def _by_lines(remedy: Remedy, now: bytes, wanted: Any, blobs: Blobs) -> bytes | None:
    """Where the lines of the edit are still as it left them, they come back as they were, comments and all."""
    format = remedy.payload["format"]
    earlier, left = (b"".join(blobs.read(digest)) if digest else b"" for digest in remedy.payload["whole"])
    data = lines_merged(now, left, earlier)
    if data is None:
        return None
    then = view_of(data, format)
    return then.data if not then.trouble and same(then.document, wanted) else None


def _restored(remedy: Remedy, target: Target, place: int, blobs: Blobs) -> RestoredKey:
    format, pointer = remedy.payload["format"], pointer_in(target.resource)
    before: KeyState = target.before
    if before["type"] != "value" or not before["present"]:
        return RestoredKey(pointer, present=False)
    after, key = remedy.payload["places"][place]
    value = value_of(before, format, pointer, blobs)
    return RestoredKey(pointer, True, value, after, None if key is None else Tagged(*key))


def remedy_of(effect: Effect) -> Remedy:
    assert effect.remedy is not None
    return effect.remedy
