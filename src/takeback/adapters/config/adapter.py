"""Keys of configuration files: each key is taken back by itself, whatever else happened to the file.

The bytes are put in place by the file adapter: every config effect carries an inner file effect under the same id,
in `remedy.payload["file"]`. So the whole file is captured too, and is compared before it is replaced.
"""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from takeback.adapters.config import formats
from takeback.adapters.config.formats import (
    DocumentView,
    hidden,
    key_resource,
    key_state,
    pointer_in,
    read_bytes,
    same_state,
    view,
    words,
)
from takeback.adapters.config.keys import (
    Tagged,
    demand_pointer,
    from_fragment,
    neighbours,
    to_fragment,
    with_changes,
)
from takeback.adapters.config.undo import ConfigKeyChoice, choices, remedy_of, restoration
from takeback.adapters.file.capture import told_merged
from takeback.adapters.file.mounts import Footing
from takeback.adapters.file.paths import resolve
from takeback.adapters.protocol import TRAITS, Adapter, Assessment, Receipt, demand_remedy
from takeback.adapters.three_way import unified
from takeback.errors import Drifted, Misuse, Refused
from takeback.model.change import UNDO, Change, Staged, change_recorded, recorded_args
from takeback.model.effect import Effect
from takeback.model.plan import (
    BY_KEY,
    Obstacle,
    Outcome,
    Sighting,
    Standing,
    TargetOutcome,
    TargetSighting,
    refused,
    together,
)
from takeback.model.remedy import Offer, Remedy, Strategy, Target, from_json, to_json
from takeback.model.resource import display, path_of
from takeback.storage.protocols import Blobs

# Build a change from what a caller asks for.


_SHOWN = 3


def edit_change(
    path: "str | bytes | os.PathLike[str]",
    set: Mapping[str, Any],
    delete: Iterable[str] = (),
    format: str = "",
    blobs: Blobs | None = None,
) -> Change:
    """Set and delete these keys, given as JSON pointers. With `blobs`, values that look secret or are long stay out
    of the journal."""
    deletes = [delete] if isinstance(delete, str) else list(delete)
    if not set and not deletes:
        raise Misuse("No key was named.", hint="Name one to set or to delete, such as /server/port.")
    resource = resolve(path, follow=True)
    kind = formats.format_of(os.fsdecode(path_of(resource)), format)
    for pointer in (*set, *deletes):
        demand_pointer(pointer)
    values = {pointer: formats.writable(kind, value) for pointer, value in set.items()}
    sets = {to_fragment(pointer): formats.to_journal(kind, value) for pointer, value in values.items()}
    request: dict[str, Any] = {"set": sets, "delete": [to_fragment(pointer) for pointer in deletes]}
    args: dict[str, Any] = {"format": kind} | {name: part for name, part in request.items() if part}
    if blobs is not None and any(hidden(pointer, kind, value) for pointer, value in values.items()):
        args = {"format": kind, "request": blobs.put(json.dumps(request).encode())}
    return Change("config", "edit", resource, _summary(resource, list(set), deletes), args)


def requested(change: Change, blobs: Blobs) -> tuple[dict[str, Any], list[str]]:
    """The keys to set with their values, and those to delete."""
    args = change.args
    if "request" in args:
        args = json.loads(b"".join(blobs.read(args["request"])))
    sets: dict[str, Any] = args.get("set", {})
    deletes: list[str] = args.get("delete", [])
    return (
        {from_fragment(name): formats.from_journal(value) for name, value in sets.items()},
        [from_fragment(name) for name in deletes],
    )


def _summary(resource: str, sets: list[str], deletes: list[str]) -> str:
    parts: list[str] = []
    for word, pointers in (("set", sets), ("delete", deletes)):
        if pointers:
            more = f" and {len(pointers) - _SHOWN} more" if len(pointers) > _SHOWN else ""
            parts.append(f"{word} {', '.join(pointers[:_SHOWN])}{more}")
    text = f"{', '.join(parts)} in {os.path.basename(display(resource))}"
    return "".join(c if c.isprintable() else "?" for c in text)


_WHY = "each key's earlier value is known, so it is taken back by itself; the whole file is kept as well"


class PreparedEdit(NamedTuple):
    """An edit or an undo worked out on the bytes that are there now."""

    format: str
    base: str  # digest of those bytes; "" when there is no file
    result: str  # digest of the new ones
    targets: tuple[Target, ...]
    places: list[list[Any]]  # per target: the key before it, and the key itself where it is not plain text
    made: tuple[str, ...]
    change: Change  # the inner one
    of: Effect | None = None  # for an inner undo
    outcomes: tuple[TargetOutcome, ...] = ()  # of an undo


class ConfigAdapter:
    name = "config"
    version = 1
    traits = TRAITS["config"]

    def __init__(self, file: Adapter, blobs: Blobs) -> None:
        self._file = file
        self._blobs = blobs
        # From stage to capture: what was staged is what must be captured and applied.
        self._prepared: dict[str, PreparedEdit] = {}

    def assess(self, change: Change, of: Effect | None = None) -> Assessment:
        if change.kind == UNDO:
            demand_remedy(of)
        prepared = self._prepare(change, of)
        outcomes = prepared.outcomes
        resources = tuple(target.resource for target in prepared.targets)
        if not prepared.targets:
            return Assessment(resources, (Offer(Strategy.SNAPSHOT),), changes_nothing=True, outcomes=outcomes)
        inner = self._file.assess(prepared.change, prepared.of)
        offers = tuple(offer._replace(why=_WHY) for offer in inner.offers)
        return Assessment(resources, offers, lost=inner.lost, outcomes=outcomes)

    def stage(self, effect: Effect, named: bool) -> tuple[Staged, ...]:
        prepared = self._prepared[effect.id] = self._prepare(effect.change, effect.of)
        return self._file.stage(_inner_of(effect, prepared), named) if prepared.targets else ()

    def capture(self, effect: Effect, offer: Offer) -> Remedy:
        prepared = self._prepared.get(effect.id) or self._prepare(effect.change, effect.of)
        self._prepared[effect.id] = prepared
        if effect.of is not None:
            self._refuse_conflicts(effect.change, effect.of)
        if not prepared.targets:
            return Remedy(self.name, self.version, offer.strategy, (), {"format": prepared.format})
        inner = self._file.capture(_inner_of(effect, prepared), offer)
        if inner.targets[0].before.get("digest", "") != prepared.base:
            raise Drifted(
                f"{display(effect.change.resource)} was changed while it was being edited.",
                hint="Nothing was changed by this edit; try again.",
            )
        payload: dict[str, Any] = {
            "format": prepared.format,
            "whole": [prepared.base, prepared.result],
            "places": prepared.places,
            "file": {
                "kind": prepared.change.kind,
                "args": recorded_args(prepared.change),
                "remedy": to_json(inner),
            },
        }
        if effect.is_undo and prepared.of is None:
            payload[BY_KEY] = True
        if prepared.made:
            payload["made"] = list(prepared.made)
        blobs = dict.fromkeys((*inner.blobs, *filter(None, (prepared.base, prepared.result))))
        remedy = inner._replace(
            adapter=self.name,
            version=self.version,
            targets=prepared.targets,
            payload=payload,
            blobs=tuple(blobs),
        )
        return told_merged(remedy, prepared.outcomes)

    def apply(self, effect: Effect) -> Receipt:
        return self._file.apply(inner_effect(effect)) if effect.targets else Receipt()

    def whole_files(self, effect: Effect) -> tuple[Target, ...]:
        return inner_effect(effect).targets if effect.targets else ()

    def verify(self, effect: Effect) -> Sighting:
        if effect.remedy is None or not effect.targets:
            return Sighting(Standing.AFTER if effect.remedy else Standing.BEFORE)
        whole = self._file.verify(inner_effect(effect))
        if whole.standing in (Standing.BETWEEN, Standing.UNKNOWN):
            # Killed in the middle of a swap, or not to be seen: what the keys say would be half the truth.
            seen = tuple(TargetSighting(t.resource, whole.standing, {}) for t in effect.targets)
            return Sighting(whole.standing, whole.detail, seen)
        now = self._seen(effect)
        format = remedy_of(effect).payload["format"]
        return together(tuple(self._sighted(target, now, format) for target in effect.targets))

    def undo(self, effect: Effect) -> None:
        if not effect.targets:
            return
        inner = inner_effect(effect)
        standing = self._file.verify(inner).standing
        if standing is Standing.BEFORE:
            return
        if standing in (Standing.AFTER, Standing.BETWEEN):
            self._file.undo(inner)
            return
        # Someone changed the file in between: restore only our keys, and only if they are still as we left them.
        change = Change(self.name, UNDO, effect.change.resource, effect.change.summary)
        self._refuse_conflicts(change, effect)
        prepared = self._prepare(change, effect)
        if not prepared.targets:
            return
        again = _inner_of(effect, prepared)
        try:
            self._file.stage(again, named=False)
            remedy = self._file.capture(again, Offer(Strategy.SNAPSHOT))
            if remedy.targets[0].before.get("digest", "") != prepared.base:
                raise Drifted(f"{display(effect.change.resource)} was changed again.", hint="Try again.")
            self._blobs.sync()
            self._file.apply(again._replace(remedy=remedy))
        finally:
            self._file.tidy(again)

    def tidy(self, effect: Effect) -> None:
        prepared = self._prepared.pop(effect.id, None)
        if effect.remedy is not None and effect.targets:
            self._file.tidy(inner_effect(effect))
        elif prepared is not None:
            self._file.tidy(_inner_of(effect, prepared))
        elif effect.remedy is None:
            # A process died right after staging: the scratch is found by the effect's id beside the file.
            change = Change("file", "write", effect.change.resource, effect.change.summary, {"content": ""})
            self._file.tidy(effect._replace(change=change, of=None, undoes=""))

    def release(self, effect: Effect) -> None:
        """The power to undo it was given up."""
        release = getattr(self._file, "release", None)
        if release is not None:
            release(effect)

    def _refuse_conflicts(self, change: Change, of: Effect) -> None:
        """Someone may have come between assess and now."""
        if change.undo.on_conflict.skips:
            return
        outcomes = (choice.outcome for choice in self._choices(change, of, self._seen(of)))
        if odd := [one for one in outcomes if one.outcome is Outcome.CONFLICT]:
            hint = "Nothing was changed. Skip or force, or undo the later changes first."
            raise refused(odd, "redo" if of.is_undo else "undo", hint=hint)

    def _sighted(self, target: Target, seen: DocumentView, format: str) -> TargetSighting:
        pointer = pointer_in(target.resource)
        now = key_state(seen, format, pointer)
        for standing, state in ((Standing.AFTER, target.after), (Standing.BEFORE, target.before)):
            if same_state(now, state, format, pointer, self._blobs, seen):
                return TargetSighting(target.resource, standing, now)
        detail = f"{display(target.resource)}: expected {words(target.after)}, found {words(now)}"
        return TargetSighting(target.resource, Standing.FOREIGN, now, detail)

    def _prepare(self, change: Change, of: Effect | None) -> PreparedEdit:
        try:
            return self._prepare_edit(change) if of is None else self._prepare_undo(change, of)
        except RecursionError:
            raise Refused(
                f"{display(change.resource)} is nested too deeply.", hint="Write the whole file instead."
            ) from None

    def _prepare_edit(self, change: Change) -> PreparedEdit:
        format = change.args["format"]
        data = read_bytes(change.resource)
        if data is None:
            raise Refused(
                f"{display(change.resource)} does not exist, so it has no keys.",
                hint="Write the file first.",
            )
        sets, deletes = requested(change, self._blobs)
        now = DocumentView(data, formats.read(format, data))
        outcome = with_changes(now.document, sets, deletes)
        new = formats.rewritten(format, data, outcome.on_the_way, outcome.wanted)
        inner = self._write(change, new)
        return self._prepared_with(
            inner, format, now, DocumentView(new, outcome.wanted), outcome.touched, outcome.made
        )

    def _prepare_undo(self, change: Change, of: Effect) -> PreparedEdit:
        format, seen = remedy_of(of).payload["format"], self._seen(of)
        found = self._choices(change, of, seen)
        chosen = [choice for choice in found if choice.outcome.outcome is Outcome.UNDONE]
        outcomes = tuple(choice.outcome for choice in found)
        if not chosen:
            return PreparedEdit(format, seen.digest, seen.digest, (), [], (), change, outcomes=outcomes)
        done = restoration(of, chosen, seen, self._blobs)
        if seen.data is not None and done.then.data is not None:
            outcomes = _with_diff(outcomes, seen.data, done.then.data, of.change.resource)
        before = inner_effect(of)
        is_untouched = done.is_whole and self._file.verify(before).standing is Standing.AFTER
        if is_untouched:
            # The file was not touched since: mode and times come back with the bytes.
            inner = Change("file", UNDO, of.change.resource, change.summary)
        elif done.then.data is None:
            inner = Change("file", "delete", of.change.resource, change.summary)
        else:
            inner = self._write(change, done.then.data)
        pointers = tuple(choice.pointer for choice in chosen)
        prepared = self._prepared_with(inner, format, seen, done.then, pointers, done.made)
        return prepared._replace(of=before if is_untouched else None, outcomes=outcomes)

    def _prepared_with(
        self,
        inner: Change,
        format: str,
        now: DocumentView,
        then: DocumentView,
        pointers: tuple[str, ...],
        made: tuple[str, ...],
    ) -> PreparedEdit:
        targets: list[Target] = []
        places: list[list[Any]] = []
        for pointer in pointers:
            before, after = key_state(now, format, pointer), key_state(then, format, pointer)
            if same_state(before, after, format, pointer, self._blobs, now, then):
                continue
            targets.append(Target(key_resource(inner.resource, pointer), before, after))
            previous, key = neighbours(now.document, pointer)
            places.append([previous, list(key) if isinstance(key, Tagged) else None])
        return PreparedEdit(format, now.digest, then.digest, tuple(targets), places, made, inner)

    def _write(self, change: Change, data: bytes) -> Change:
        digest = self._blobs.put(data, like=change.resource)
        args = {"content": digest, "size": len(data)}
        return Change("file", "write", change.resource, change.summary, args, facts=change.facts)

    def _choices(self, change: Change, of: Effect, seen: DocumentView) -> tuple[ConfigKeyChoice, ...]:
        found = choices(of, seen, change.undo, self._blobs)
        file = remedy_of(of).payload.get("file")
        moved = Footing(from_json(file["remedy"])).moved(of.change.resource) if file else ""
        if not moved:
            return found
        barred = {"outcome": Outcome.CONFLICT, "detail": moved, "exact": True, "obstacle": Obstacle.MOUNT}
        return tuple(one._replace(outcome=one.outcome._replace(**barred)) for one in found)

    def _seen(self, of: Effect) -> DocumentView:
        """The file now; a thing that is no file is one that cannot be read as a document."""
        try:
            return view(of.change.resource, remedy_of(of).payload["format"])
        except Refused as error:
            return DocumentView(b"", trouble=str(error))


def _with_diff(
    outcomes: tuple[TargetOutcome, ...], now: bytes, then: bytes, resource: str
) -> tuple[TargetOutcome, ...]:
    """The first key that was merged shows what becomes of the whole file."""
    first = next((one for one in outcomes if not one.exact), None)
    if first is None:
        return outcomes
    shown = unified(now, then, os.path.basename(path_of(resource)))
    return tuple(one._replace(diff=shown) if one is first else one for one in outcomes)


def inner_effect(effect: Effect) -> Effect:
    """The file effect inside a config effect; it has the same id, so scratch and held files are found by it."""
    part: dict[str, Any] = remedy_of(effect).payload["file"]
    asked = effect.change
    change = change_recorded("file", part["kind"], asked.resource, asked.summary, part["args"])
    is_undo = part["kind"] == UNDO
    of = inner_effect(effect.of) if is_undo and effect.of is not None else None
    return effect._replace(
        change=change, remedy=from_json(part["remedy"]), of=of, undoes=effect.undoes if is_undo else ""
    )


def _inner_of(effect: Effect, prepared: PreparedEdit) -> Effect:
    """The same, before there is a remedy."""
    is_undo = prepared.of is not None
    return effect._replace(
        change=prepared.change, remedy=None, of=prepared.of, undoes=effect.undoes if is_undo else ""
    )
