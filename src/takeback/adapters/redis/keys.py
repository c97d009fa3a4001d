"""The keys of an effect: what it found and left, whether each can be put back, and all of it in words."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from takeback.adapters.database import RowChange
from takeback.adapters.redis import marks
from takeback.adapters.redis.change import drain
from takeback.adapters.redis.connection import RedisLink
from takeback.adapters.redis.dump import Content, Stream
from takeback.adapters.redis.images import IMAGES, NEVER, Image, by_key, content, kept, same
from takeback.adapters.redis.marks import RedisOp
from takeback.model.change import OnConflict
from takeback.model.database import Database, resource_of, target_of
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.plan import Outcome, TargetOutcome
from takeback.storage.protocols import Blobs


class KnownKeys(NamedTuple):
    op: RedisOp | None  # None: the server does not know it (any more)
    before: dict[bytes, Image]
    after: dict[bytes, Image] | None  # None: not known, for it was killed before that was written down

    def left(self, current: Sequence[Image]) -> dict[bytes, Image] | None:
        """The values that the effect left. If they were not recorded, the fingerprint in the mark says whether all are
        unchanged."""
        if self.after is not None or self.op is None:
            return self.after
        return by_key(current) if marks.print_of(current) == self.op.print else None


def marked(link: RedisLink, blobs: Blobs, effect: str) -> RedisOp | None:
    """Its mark; what was put aside for it, and not kept before its process died, is kept first."""
    op = marks.find(link, effect)
    if op is not None and op.held:
        op, _ = drain(link, blobs, effect, op)
    return op


def known(link: RedisLink, blobs: Blobs, effect: Effect) -> KnownKeys:
    op = marked(link, blobs, effect.id)
    before, after = digests(op, effect)
    if not before:
        return KnownKeys(op, {}, {})
    return KnownKeys(op, by_key(kept(blobs, before)), by_key(kept(blobs, after)) if after else None)


class Digests(NamedTuple):
    """Of what an effect found and of what it left; "" for what is not known."""

    before: str
    after: str


def digests(op: RedisOp | None, effect: Effect) -> Digests:
    told: list[str] = effect.receipt.get(IMAGES) or ["", ""]
    return Digests((op.before if op else "") or told[0], (op.after if op else "") or told[1])


def size(op: RedisOp | None, effect: Effect) -> int:
    """How many keys it touched, at most."""
    tables: dict[str, dict[str, int]] = effect.receipt.get("tables", {})
    return max(op.many if op else 0, sum(sum(each.values()) for each in tables.values()))


def touched(link: RedisLink, blobs: Blobs, effect: Effect) -> tuple[int, tuple[bytes, ...]]:
    """Its place in the order of the server, and its keys."""
    op = marked(link, blobs, effect.id)
    before, _ = digests(op, effect)
    keys = tuple(image.key for image in kept(blobs, before)) if before else ()
    return (op.no if op else 0), keys


_LONG = 40
EXPIRES = "(expires)"
_NOUNS = {
    "list": ("element", "elements"),
    "set": ("member", "members"),
    "zset": ("member", "members"),
    "hash": ("field", "fields"),
    "stream": ("entry", "entries"),
}


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def in_words(image: Image) -> str:
    """Short: `hash of 3 fields`, `string 'abc'`."""
    until = "" if image.expires == NEVER else f" until {when(image.expires)}"
    return "nothing" if image.dump is None else _of(content(image)) + until


def _of(found: Content) -> str:
    if found.type == "string":
        shown = text(found.value[:_LONG])
        return f"string {shown!r}" + (f" … ({len(found.value)} bytes)" if len(found.value) > _LONG else "")
    if found.type == "unknown":
        return f"a value of a type that takeback does not know ({len(found.value)} bytes)"
    size = len(found.value.entries) if isinstance(found.value, Stream) else len(found.value)
    one, more = _NOUNS[found.type]
    return f"{found.type} of {size} {one if size == 1 else more}"


def when(milliseconds: int) -> str:
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{milliseconds % 1000:03d}Z"


def row(before: Image, after: Image) -> RowChange:
    types = [content(one).type for one in (before, after) if one.dump is not None]
    table = " → ".join(dict.fromkeys(types)) or "none"
    return RowChange(table, text(before.key), _columns(before), _columns(after))


def _columns(image: Image) -> dict[str, str | None] | None:
    if image.dump is None:
        return None
    found = content(image)
    columns: dict[str, str | None] = dict(_values(found.type, found.value))
    if image.expires != NEVER:
        columns[EXPIRES] = when(image.expires)
    return columns


def _values(kind: str, value: Any) -> list[tuple[str, str | None]]:
    if kind == "list":
        return [(str(place), text(one)) for place, one in enumerate(value)]
    if kind == "set":
        return [(text(one), "member") for one in sorted(value)]
    if kind == "hash":
        return [(text(field), text(one)) for field, one in sorted(value.items())]
    if kind == "zset":
        return [
            (text(member), f"{score:.17g}")
            for member, score in sorted(value.items(), key=lambda pair: (pair[1], pair[0]))
        ]
    if isinstance(value, Stream):
        return _stream(value)
    return [("value", text(value))]


def _stream(value: Stream) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = [
        (
            f"{id[0]}-{id[1]}",
            " ".join(f"{text(name)}={text(one)}" for name, one in zip(parts[::2], parts[1::2], strict=True)),
        )
        for id, parts in sorted(value.entries.items())
    ]
    for name, group in sorted(value.groups.items()):
        pending = ", ".join(f"{id[0]}-{id[1]} {text(to[0])}" for id, to in sorted(group.pending.items()))
        found.append(
            (f"(group {text(name)})", f"at {group.last[0]}-{group.last[1]}; pending: {pending or 'nothing'}")
        )
    return found


LISTED = 100  # conflicts that are listed one by one


class RedisChoice(NamedTuple):
    key: bytes
    outcome: Outcome  # UNDONE, ALREADY, CONFLICT
    target: Image  # what it was before
    current: Image
    left: Image | None = None  # what the effect left; None: not known
    kind: str = ""  # of a conflict, in words; also of one that is forced


def choose(
    known: KnownKeys, current: Sequence[Image], now: int, on_conflict: OnConflict
) -> tuple[RedisChoice, ...]:
    """An image that has expired is the same as no key: expiry is not a change."""
    left = known.left(current)
    found: list[RedisChoice] = []
    for seen in current:
        target = known.before[seen.key].at(now)
        after = left[seen.key].at(now) if left is not None else None
        kind = ""
        if same(seen, target) or (left is not None and same(known.before[seen.key], left[seen.key])):
            # It is back, or was never changed: the effect only named it.
            outcome = Outcome.ALREADY
        elif after is not None and same(seen, after):
            outcome = Outcome.UNDONE
        else:
            outcome = Outcome.UNDONE if on_conflict is OnConflict.FORCE else Outcome.CONFLICT
            kind = _kind(seen, after)
        found.append(RedisChoice(seen.key, outcome, target, seen, after, kind))
    return tuple(found)


def _kind(seen: Image, left: Image | None) -> str:
    if left is None:
        return "may have been modified since (the process died before it recorded the values it left)"
    if seen.dump is None:
        return "is gone"
    if left.dump is None:
        return "was made again since"
    return "was changed since"


def of_outcome(choices: Iterable[RedisChoice], outcome: Outcome) -> list[RedisChoice]:
    return [one for one in choices if one.outcome is outcome]


def told(
    database: Database, effect: str, choices: Sequence[RedisChoice], by: Mapping[bytes, str]
) -> tuple[TargetOutcome, ...]:
    """`by`: of a key, the later effect that changed it."""
    conflicts = of_outcome(choices, Outcome.CONFLICT)
    own = target_of(database, effect)
    found: list[TargetOutcome] = []
    if undone := of_outcome(choices, Outcome.UNDONE):
        forced = sum(bool(one.kind) for one in undone)
        keys = f"{forced} {'key' if forced == 1 else 'keys'}"
        detail = f"overwrites {keys} that someone changed since; redo brings that back" if forced else ""
        found.append(TargetOutcome(own, Outcome.UNDONE, detail))
    elif not conflicts:
        found.append(TargetOutcome(own, Outcome.ALREADY, "every key has its earlier value"))
    found += [
        TargetOutcome(key_resource(database, one), Outcome.CONFLICT, _sentence(one, by.get(one.key, "")))
        for one in conflicts[:LISTED]
    ]
    if len(conflicts) > LISTED:
        detail = f"and {len(conflicts) - LISTED} more keys were changed since"
        found.append(TargetOutcome(resource_of(database), Outcome.CONFLICT, detail))
    return tuple(found)


def key_resource(database: Database, choice: RedisChoice) -> str:
    kinds = (content(one).type for one in (choice.current, choice.target) if one.dump is not None)
    return resource_of(database, next(kinds, "none"), text(choice.key))


def _sentence(one: RedisChoice, by: str) -> str:
    expected = f" expected {in_words(one.left)}," if one.left is not None else ""
    who = f"changed by effect {short(by)}" if by else "by someone who is not recorded"
    return f"{one.kind}:{expected} found {in_words(one.current)}, undo would put back {in_words(one.target)}; {who}"
