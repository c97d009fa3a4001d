"""The changes of an effect: a unified diff if both sides are text, else words."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from takeback.adapters.box import read_variables
from takeback.adapters.file import states
from takeback.adapters.protocol import traits_of
from takeback.errors import Corrupt, Misuse, TakebackError
from takeback.model.box import Point, box_of, point_from_json
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.record import Flaw
from takeback.model.remedy import Target, from_json
from takeback.model.resource import SCHEME, display, file_resource, overlaps, path_of, unquote
from takeback.storage.layers import Layers
from takeback.storage.protocols import Blobs

_LARGEST_TEXT = 32 << 20
_MANY_LINES = 20_000  # beyond this the changed middle is shown whole, not searched for what it has in common
_CONTEXT = 3
_MOST_ENTRIES = 30

TargetState = dict[str, Any]
Opcode = tuple[str, int, int, int, int]


class DiffPart(NamedTuple):
    """One target: what is different, in words, and the diff as lines of bytes."""

    resource: str
    words: tuple[str, ...]
    lines: tuple[bytes, ...] = ()


class Side(NamedTuple):
    """Content before or after; None, with the reason, where it cannot be had."""

    data: bytes | None
    why: str = ""


def difference(blobs: Blobs, effect: Effect, only: str = "") -> tuple[DiffPart, ...]:
    """Before to after, target by target; `only` is the resource of a path to narrow it to."""
    parts: list[DiffPart] = []
    if "arguments" in effect.change.args and not only:
        returned = effect.receipt.get("result")
        words = [f"called with {effect.change.args['arguments']}"]
        words += [f"returned {returned}"] if returned else []
        parts.append(DiffPart(effect.change.resource, tuple(words)))
    if traits_of(effect.change).keys:
        parts += [_key(target) for target in effect.targets if not only or overlaps(only, target.resource)]
    for target in file_targets(effect):
        if not only or only == target.resource or overlaps(only, target.resource):
            inside = only[len(target.resource) + 1 :] if only.startswith(target.resource + "/") else ""
            parts.append(_inside(blobs, target, inside) if inside else _file(blobs, target))
    if only and not parts:
        raise Misuse(
            f"This effect did not touch {display(only)}.", hint="`takeback show` lists what it touched."
        )
    return tuple(parts)


def difference_of_all(blobs: Blobs, effects: Sequence[Effect], only: str = "") -> tuple[DiffPart, ...]:
    """What several effects, oldest first, changed together: each path from before the first to after the last."""
    parts: list[DiffPart] = []
    net: dict[str, Target] = {}
    for effect in effects:
        if "arguments" in effect.change.args and not only:
            parts += difference(blobs, effect._replace(remedy=None))
        for target in file_targets(effect):
            if not only or overlaps(only, target.resource):
                first = net.get(target.resource, target)
                net[target.resource] = target._replace(before=first.before)
    parts += [_file(blobs, target) for target in net.values() if target.before != target.after]
    if only and not parts:
        raise Misuse(
            f"Nothing of this touched {display(only)}.", hint="`takeback log --run` lists the effects."
        )
    return tuple(parts)


def file_targets(effect: Effect) -> tuple[Target, ...]:
    """The files behind an effect; an edit of keys carries them in its payload."""
    if traits_of(effect.change).keys and effect.remedy:
        inner = effect.remedy.payload.get("file", {}).get("remedy")
        return from_json(inner).targets if inner else ()
    return tuple(target for target in effect.targets if target.resource.startswith(SCHEME))


def in_words(effect: Effect, state: TargetState) -> str:
    """A few words for one state of a target of this effect."""
    if traits_of(effect.change).keys:
        from takeback.adapters.config.formats import words

        return words(state)
    if traits_of(effect.change).boxes:
        point = point_from_json(state)
        files = f"layer {short(point.layer.partition('/')[2])}" if point.layer else "the base"
        return f"{files} in {point.cwd}"
    if "identity" in state:
        return f"this {'directory' if state['type'] == 'dir' else state['type']}"
    return states.words(state)


def _key(target: Target) -> DiffPart:
    from takeback.adapters.config.formats import words

    return DiffPart(target.resource, (f"{words(target.before)} → {words(target.after)}",))


def _file(blobs: Blobs, target: Target) -> DiffPart:
    before, after = target.before, target.after
    if "identity" in before or "identity" in after:
        gone = "moved away from here" if after["type"] == "absent" else "moved here"
        return DiffPart(target.resource, (gone,))
    if "dir" in (before["type"], after["type"]):
        return DiffPart(target.resource, tuple(_directory(blobs, before, after)))
    words = _properties(before, after)
    kinds = {before["type"], after["type"]}
    if not kinds <= {"file", "absent"} or "meta" in before:
        return DiffPart(target.resource, tuple(words or [f"{states.words(before)} → {states.words(after)}"]))
    if before.get("digest") == after.get("digest"):
        return DiffPart(target.resource, tuple(words) or _times(before, after))
    return _content(blobs, target.resource, before, after, words)


def _properties(before: TargetState, after: TargetState) -> list[str]:
    told: list[str] = []
    if before["type"] != after["type"]:
        return told
    if before.get("mode") != after.get("mode"):
        told.append(f"mode {before['mode']:04o} → {after['mode']:04o}")
    owners = [f"{one.get('uid')}:{one.get('gid')}" for one in (before, after)]
    if owners[0] != owners[1] and "meta" not in before and before["type"] != "absent":
        told.append(f"owner {owners[0]} → {owners[1]}")
    if before.get("xattrs") != after.get("xattrs"):
        told.append("extended attributes differ")
    return told


def _times(before: TargetState, after: TargetState) -> tuple[str, ...]:
    if "mtime" not in before or "mtime" not in after:
        return ()
    old, new = (
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(state["mtime"] // 1_000_000_000))
        for state in (before, after)
    )
    differs = f"{old} → {new}" if old != new else "differs by less than a second"
    return (f"time of change {differs}",)


def _content(
    blobs: Blobs, resource: str, before: TargetState, after: TargetState, words: list[str]
) -> DiffPart:
    sizes = f"{_size(before)} → {_size(after)}"
    if max(before.get("size", 0), after.get("size", 0)) > _LARGEST_TEXT:
        return DiffPart(resource, (*words, f"{sizes}; too long to compare"))
    old, new = _side(blobs, resource, before), _side(blobs, resource, after)
    if old.data is None or new.data is None:
        why = "; ".join(one.why for one in (old, new) if one.why)
        return DiffPart(resource, (*words, f"{sizes}; {why}"))
    if b"\0" in old.data[:8000] or b"\0" in new.data[:8000]:
        return DiffPart(resource, (*words, f"binary, {sizes}"))
    if old.data == new.data:  # an empty file that came or went has no lines to show
        return DiffPart(resource, (*words, sizes))
    names = [
        b"/dev/null" if state["type"] == "absent" else quoted(prefix + path_of(resource))
        for prefix, state in ((b"a", before), (b"b", after))
    ]
    return DiffPart(resource, tuple(words), tuple(unified(old.data, new.data, names[0], names[1])))


def _size(state: TargetState) -> str:
    return "nothing" if state["type"] == "absent" else _bytes(state.get("size", 0))


def _side(blobs: Blobs, resource: str, state: TargetState) -> Side:
    if state["type"] == "absent":
        return Side(b"")
    digest: str = state.get("digest", "")
    if not digest:
        return Side(None, f"its content was not captured ({state.get('excluded', 'no reason recorded')})")
    if blobs.has(digest):
        try:
            return Side(b"".join(blobs.read(digest)))
        except Corrupt as error:
            return Side(None, str(error).rstrip("."))
    found = _on_disk(resource, digest, state.get("size", 0))
    return Side(found, "" if found is not None else "one side is neither in the store nor on disk any more")


def _on_disk(resource: str, digest: str, size: int) -> bytes | None:
    """The file itself, if it is still what the effect left."""
    import stat

    from takeback.model.content import name_of

    try:
        fd = os.open(path_of(resource), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            return None
        data = file.read(size + 1)
    return data if name_of(data).hex() == digest else None


# Directories.


def _rows(blobs: Blobs, state: TargetState) -> dict[str, list[Any]] | None:
    from takeback.adapters.file.directory import PATH, read_manifest

    if state["type"] != "dir" or "manifest" not in state:
        return {}
    try:
        return {row[PATH]: row for row in read_manifest(blobs, state["manifest"])}
    except Corrupt:
        return None


def _directory(blobs: Blobs, before: TargetState, after: TargetState) -> Iterator[str]:
    yield f"{states.words(before)} → {states.words(after)}"
    yield from _properties(before, after)
    old, new = _rows(blobs, before), _rows(blobs, after)
    if old is None or new is None:
        yield "what was inside is no longer in the store"
        return
    changed = [path for path in dict.fromkeys((*old, *new)) if old.get(path) != new.get(path)]
    for path in changed[:_MOST_ENTRIES]:
        mark = "-" if path not in new else "+" if path not in old else "~"
        yield f"{mark} {_shown(path)}{_entry(new.get(path) or old[path])}"
    if len(changed) > _MOST_ENTRIES:
        yield f"and {len(changed) - _MOST_ENTRIES:,} more"


def _entry(row: list[Any]) -> str:
    from takeback.adapters.file.directory import TYPE, WHAT

    kind = row[TYPE]
    if kind == "dir":
        return "/"
    return f" ({_bytes(row[WHAT])})" if kind == "file" else f" ({kind})"


def _shown(quoted: str) -> str:
    return display(f"{SCHEME}/{quoted}").replace("/", "", 1)


def _inside(blobs: Blobs, target: Target, inside: str) -> DiffPart:
    """One entry of a directory that came or went as a whole."""
    resource = f"{target.resource}/{inside}"
    sides: list[TargetState] = []
    for state in (target.before, target.after):
        rows = _rows(blobs, state)
        if rows is None:
            return DiffPart(resource, ("what was inside is no longer in the store",))
        sides.append(_row_state(rows.get(inside)))
    if sides[0] == sides[1] == states.ABSENT:
        raise Misuse(
            f"There is no {_shown(inside)} in it.", hint="`takeback diff` without a path lists what is."
        )
    return _file(blobs, Target(resource, sides[0], sides[1]))


def _row_state(row: list[Any] | None) -> TargetState:
    from takeback.adapters.file.directory import DIGEST, GID, MODE, TYPE, UID, WHAT

    if row is None:
        return states.ABSENT
    if row[TYPE] == "link":
        return {"type": "hard link", "mode": 0}
    state: TargetState = {"type": row[TYPE], "mode": row[MODE], "uid": row[UID], "gid": row[GID]}
    if row[TYPE] == "file":
        state |= {"size": row[WHAT], "digest": row[DIGEST]}
    if row[TYPE] == "symlink":
        state["target"] = os.fsdecode(unquote(row[WHAT]))
    return state


# Text.


def unified(old: bytes, new: bytes, old_name: bytes, new_name: bytes) -> Iterator[bytes]:
    """As `diff -u` writes it, lines without their ends; `patch -p1 -d /` understands it."""
    before, after = _lines(old), _lines(new)
    hunks = list(_grouped(_opcodes(before, after)))
    if not hunks:
        return
    yield b"--- " + old_name
    yield b"+++ " + new_name
    for group in hunks:
        first, last = group[0], group[-1]
        ranges = _range(first[1], last[2]), _range(first[3], last[4])
        yield f"@@ -{ranges[0]} +{ranges[1]} @@".encode()
        for tag, low, high, other_low, other_high in group:
            if tag == "equal":
                yield from _marked(b" ", before[low:high])
                continue
            yield from _marked(b"-", before[low:high])
            yield from _marked(b"+", after[other_low:other_high])


def quoted(name: bytes) -> bytes:
    """A name that would break the line, as git and patch write and read it."""
    if not re.search(rb'[\x00-\x1f\x7f"\\]', name):
        return name
    return b'"' + re.sub(rb'[\x00-\x1f\x7f-\xff"\\]', lambda found: b"\\%03o" % found[0][0], name) + b'"'


def _lines(data: bytes) -> list[bytes]:
    """With their ends, and only line feeds count: a lone carriage return is a character like any other."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _opcodes(before: list[bytes], after: list[bytes]) -> list[Opcode]:
    """What both have in common at the start and at the end is not searched: edits of long files are small."""
    from difflib import SequenceMatcher

    start = 0
    shortest = min(len(before), len(after))
    while start < shortest and before[start] == after[start]:
        start += 1
    end = 0
    while end < shortest - start and before[-1 - end] == after[-1 - end]:
        end += 1
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    codes: list[Opcode] = [("equal", 0, start, 0, start)] if start else []
    if len(old) + len(new) > _MANY_LINES or not old or not new:
        if old or new:
            codes.append(("replace", start, start + len(old), start, start + len(new)))
    else:
        for tag, low, high, other_low, other_high in SequenceMatcher(None, old, new).get_opcodes():
            codes.append((tag, low + start, high + start, other_low + start, other_high + start))
    if end:
        codes.append(("equal", len(before) - end, len(before), len(after) - end, len(after)))
    return codes


def _grouped(codes: Sequence[Opcode]) -> Iterator[list[Opcode]]:
    """Hunks: changes with a few equal lines around them."""
    group: list[Opcode] = []
    for place, (tag, low, high, other_low, other_high) in enumerate(codes):
        if tag != "equal":
            group.append((tag, low, high, other_low, other_high))
            continue
        if group:
            lead = min(high - low, _CONTEXT)
            if place == len(codes) - 1 or high - low > 2 * _CONTEXT:
                group.append((tag, low, low + lead, other_low, other_low + lead))
                yield group
                group = []
            else:
                group.append((tag, low, high, other_low, other_high))
                continue
        if place < len(codes) - 1:
            tail = min(high - low, _CONTEXT)
            group = [(tag, high - tail, high, other_high - tail, other_high)]
    if any(tag != "equal" for tag, *_ in group):
        yield group


def _range(start: int, stop: int) -> str:
    length = stop - start
    if length == 1:
        return f"{start + 1}"
    return f"{start if not length else start + 1},{length}"


def _marked(mark: bytes, lines: Sequence[bytes]) -> Iterator[bytes]:
    for line in lines:
        if line.endswith(b"\n"):
            yield mark + line[:-1]
        else:
            yield mark + line
            yield b"\\ No newline at end of file"


def _bytes(count: int) -> str:
    return f"{count:,} byte{'' if count == 1 else 's'}"


def lost_layers(layers: Layers) -> Iterator[Flaw]:
    """The problems, one sentence each."""
    for box in layers.boxes():
        try:
            whole = layers.complete(layers.head(box))
        except TakebackError:
            whole = False
        if not whole:
            yield Flaw(f"Box {short(box)} has lost layers of the point where it stands.")


def step_difference(layers: Layers, blobs: Blobs, effect: Effect) -> tuple[DiffPart, ...]:
    parts: list[DiffPart] = []
    for target in effect.targets:
        before, after = point_from_json(target.before), point_from_json(target.after)
        words = tuple(_around(blobs, before, after))
        if words:
            parts.append(DiffPart(target.resource, words))
        if before.layer != after.layer:
            parts += _files(layers, box_of(target.resource), before, after)
    return tuple(parts)


def _around(blobs: Blobs, before: Point, after: Point) -> Iterator[str]:
    if before.cwd != after.cwd:
        yield f"current directory {before.cwd} → {after.cwd}"
    if before.env == after.env:
        return
    try:
        old, new = (read_variables(blobs, point.env) for point in (before, after))
    except TakebackError:
        yield "variables, which are not there any more"
        return
    for name in sorted(old.keys() | new.keys()):
        if (name in old, old.get(name)) != (name in new, new.get(name)):
            # Names only: a value may be a secret.
            yield f"variable {name} {'taken away' if new.get(name, '') is None else 'set'}"


def _files(layers: Layers, box: str, before: Point, after: Point) -> list[DiffPart]:
    """Of one step forth, or of one back; a commit or a jump has no layer of its own."""
    try:
        for top, below, *kinds in ((after, before, "deleted", "added"), (before, after, "added", "deleted")):
            if top.layer and layers.own_link(top.layer).parent == below.layer:
                return list(_listed(layers, box, top.layer, below.layer, *kinds))
    except (OSError, TakebackError):
        return [DiffPart(f"box://{box}", ("its layer is not there any more",))]
    return []


def _listed(layers: Layers, box: str, layer: str, below: str, gone: str, come: str) -> Iterator[DiffPart]:
    from takeback.sandbox.differences import differences
    from takeback.sandbox.protocol import Stack

    base = layers.base_of(box)
    root = os.fsencode(base).rstrip(b"/")
    for left in differences(layers.unpacked(layer), Stack(base, layers.stack(below))):
        kind = gone if left.source is None else "modified" if left.below else come
        yield DiffPart(file_resource((root + left.path).rstrip(b"/") or b"/"), (kind,))
