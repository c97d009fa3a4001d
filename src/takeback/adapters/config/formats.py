"""One door to JSON, YAML and TOML: read a document, look at a key, change keys and nothing else."""

import hashlib
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

from takeback.adapters.config.keys import (
    EditStep,
    SpelledFloat,
    SpelledInt,
    Tagged,
    Unhandled,
    demand_whole,
    find,
    from_fragment,
    has_half_a_character,
    same,
    steps,
    to_fragment,
    tokens,
    with_changes,
)
from takeback.adapters.file.content import file_bytes
from takeback.adapters.file.os_errors import translated
from takeback.adapters.file.paths import open_place
from takeback.errors import Misuse, Refused, ValidationFailed
from takeback.storage.protocols import Blobs

FORMATS = ("json", "jsonc", "yaml", "toml")

_BY_SUFFIX = {
    ".json": "json",
    ".jsonc": "jsonc",
    ".json5": "",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".webmanifest": "json",
    ".geojson": "json",
    ".code-workspace": "jsonc",
}
_BY_NAME = {
    "Pipfile": "toml",
    "Cargo.lock": "toml",
    "poetry.lock": "toml",
    "uv.lock": "toml",
    ".clang-format": "yaml",
    "devcontainer.json": "jsonc",
    ".prettierrc": "yaml",
}
_SAFE_INT = 2**53  # beyond it, JSON readers disagree
_DEEPEST = 100
NOTATIONS = ("json", "yaml", "toml")


def format_of(path: str, given: str = "") -> str:
    if given:
        if given not in FORMATS:
            raise Misuse(f"{given!r} is not a known format.", hint=f"Use one of {', '.join(FORMATS)}.")
        return given
    found = known_format(path)
    if not found:
        raise Misuse(
            f"The format of {os.path.basename(path)} is not known from its name.",
            hint=f"Name it with --format (format=): one of {', '.join(FORMATS)}.",
        )
    return found


def known_format(path: str) -> str:
    """From the file's name; empty if that says nothing."""
    name = os.path.basename(path)
    found = _BY_NAME.get(name) or _BY_SUFFIX.get(os.path.splitext(name)[1].lower(), "")
    if found == "json" and (name.startswith(("tsconfig", "jsconfig")) or "/.vscode/" in path):
        return "jsonc"
    return found


def read(format: str, data: bytes) -> Any:
    return _parse(format, _text(data))


def look(format: str, data: bytes, pointer: str) -> tuple[bool, Any]:
    """Whether the key is there, and its value."""
    return find(read(format, data), pointer)


def edit(format: str, data: bytes, set: Mapping[str, Any], delete: Iterable[str] = ()) -> bytes:
    """The document with these keys set and those deleted; everything else stays as it was typed."""
    document = read(format, data)
    sets = {pointer: writable(format, value) for pointer, value in set.items()}
    outcome = with_changes(document, sets, delete)
    return rewritten(format, data, outcome.on_the_way, outcome.wanted)


def rewritten(format: str, data: bytes, *stages: Any) -> bytes:
    """The document changed in the smallest steps until it reads as the last stage; checked by reading again.

    Stages between say more about the way: what was set and what was deleted need not be guessed from the end.
    """
    text = _text(data)
    legs = zip((_parse(format, text), *stages), stages, strict=False)
    plan = tuple(step for now, then in legs for step in steps(now, then))
    wanted = stages[-1]
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    why = "it would change more than the keys asked for"
    hint = "Ask for other keys, or write the whole file instead."
    for change in _ways(format):
        new = text.removeprefix(mark)
        try:
            for step in plan:
                new = change(new, step)
            if same(_parse(format, new), wanted):
                return (mark + new).encode()
        except Unhandled:
            continue  # this way does not know the layout
        except Refused as error:
            why, hint = str(error).removesuffix("."), error.hint or hint
    raise ValidationFailed(f"The edit was not made: {why}.", hint=hint)


def writable(format: str, value: Any, depth: int = 0) -> Any:
    """The value as the format will read it back; `Misuse` if it cannot be written there."""
    if depth > _DEEPEST:
        raise Misuse("A value is nested too deeply.", hint="Write the whole file instead.")
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value)
        bad = next((key for key in entries if not isinstance(key, (str, Tagged))), None)
        if bad is not None:
            raise Misuse(f"The key {bad!r} is not text.", hint="Keys of an object must be text.")
        for key in entries:
            demand_whole(str(key))
        return {key: writable(format, held, depth + 1) for key, held in entries.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, Tagged):
        return [writable(format, held, depth + 1) for held in cast("list[Any]", value)]
    if isinstance(value, str):
        demand_whole(value)
    if isinstance(value, float) and not math.isfinite(value) and not isinstance(value, SpelledFloat):
        raise Misuse(f"{value} is not a value that a configuration can hold.", hint="Give a finite number.")
    if format == "yaml" and value is not None and not isinstance(value, (str, int, float, Tagged)):
        import datetime

        if isinstance(value, datetime.date):
            return Tagged("timestamp", value.isoformat())
    notation(format, value)
    return value


def notation(format: str, value: Any) -> str:
    """The value on one line, in the words of the format."""
    return _editor(format).render(value)


def to_journal(format: str, value: Any) -> Any:
    """As it may stand in a record: small scalars as they are, all else as text in the format's own notation,
    because records have no fractions, no dates, and no order of keys."""
    if value is None or isinstance(value, bool):
        return value
    is_plain = not isinstance(value, SpelledInt) or value.text == str(int(value))
    if isinstance(value, int) and abs(value) < _SAFE_INT and is_plain:
        return int(value)
    if isinstance(value, str) and not has_half_a_character(value):
        return value
    return {"json" if format == "jsonc" else format: notation(format, value)}


def from_journal(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    entries = cast("dict[str, Any]", value)
    name = next(iter(entries), "")
    if len(entries) == 1 and name in NOTATIONS and isinstance(entries[name], str):
        text = entries[name]
        if name == "toml":
            return _parse("toml", f"v = {text}")["v"]
        if name == "yaml" and text.startswith("*"):
            return Tagged("*", text[1:])
        return _parse(name, text)
    return entries


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(
            f"The file is not UTF-8 text (byte {error.start}), so it has no keys to edit.",
            hint="Only JSON, YAML and TOML in UTF-8 can be edited by key; the whole file can be written.",
        ) from None


def _editor(format: str) -> Any:
    """The module that knows the format; one that is not used is not loaded."""
    if format == "yaml":
        from takeback.adapters.config import yaml_edit

        return yaml_edit
    if format == "toml":
        from takeback.adapters.config import toml_edit

        return toml_edit
    from takeback.adapters.config import json_edit

    return json_edit


def _parse(format: str, text: str) -> Any:
    text = text.removeprefix("\ufeff")
    editor = _editor(format)
    return editor.parse(text, comments=True) if format == "jsonc" else editor.parse(text)


def _ways(format: str) -> tuple[Callable[[str, EditStep], str], ...]:
    """How to carry out a step, the gentlest way first."""
    editor = _editor(format)
    if format == "toml":
        # New objects in braces: a section cannot be added below a dotted key.
        return (editor.change, partial(editor.change, inline=True))
    if format == "yaml":
        return (editor.change, editor.change_by_round_trip)
    return (partial(editor.change, comments=format == "jsonc"),)


# What one key of a file is at one moment, as plain data that may stand in a record.
#
# `{"type": "value", "present": true, "value": …}`; a value that looks secret or is long is not repeated in the
# journal: `"in"` names the blob of the whole document that holds it. `absent` and `unreadable` speak of the
# file.


KeyState = dict[str, Any]

NOT_THERE: KeyState = {"type": "value", "present": False}
NO_FILE: KeyState = {"type": "absent"}

_LONG = 300
_LARGEST = 64 << 20
_SECRET = re.compile(
    r"pass(?:word|wd|phrase)?$|pwd|secret|token|credential|(?:api|access|private|auth)[_-]?key", re.I
)


class DocumentView(NamedTuple):
    """A file as seen now."""

    data: bytes | None  # None: there is no file
    document: Any = None
    trouble: str = ""  # why it cannot be read as a document

    @property
    def digest(self) -> str:
        return "" if self.data is None else hashlib.sha256(self.data).hexdigest()


def view(resource: str, format: str) -> DocumentView:
    return view_of(read_bytes(resource), format)


def view_of(data: bytes | None, format: str) -> DocumentView:
    try:
        return DocumentView(data, None if data is None else read(format, data))
    except Refused as error:
        return DocumentView(data, trouble=str(error))


def read_bytes(resource: str) -> bytes | None:
    """The whole file; None if there is none. `Refused` if it is no regular file, or too large to be edited by key."""
    import stat

    with translated(resource):
        try:
            place = open_place(resource)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with place:
            status = place.stat()
            if status is None:
                return None
            if not stat.S_ISREG(status.st_mode):
                raise Refused("This is not a regular file, so it has no keys.", hint="Name a file.")
            if status.st_size > _LARGEST:
                raise Refused(
                    f"{status.st_size:,} bytes are too many to edit by key.",
                    hint="Write the whole file instead.",
                )
            return file_bytes(place.fd, place.name, status.st_size)


# -- keys as resources


def key_resource(resource: str, pointer: str) -> str:
    """The whole document is the file itself: then every key of it is inside."""
    return f"{resource}#{to_fragment(pointer)}" if pointer else resource


def pointer_in(resource: str) -> str:
    return from_fragment(resource.partition("#")[2])


# -- states


def key_state(seen: DocumentView, format: str, pointer: str) -> KeyState:
    if seen.data is None:
        return NO_FILE
    if seen.trouble:
        return {"type": "unreadable", "in": seen.digest}
    present, value = find(seen.document, pointer)
    if not present:
        return NOT_THERE
    if hidden(pointer, format, value):
        return {"type": "value", "present": True, "in": seen.digest}
    return {"type": "value", "present": True, "value": to_journal(format, value)}


def hidden(pointer: str, format: str, value: Any) -> bool:
    """Whether a value stays out of the journal."""
    return _secret(tokens(pointer), value) or len(notation(format, value)) > _LONG


def _secret(path: tuple[str, ...], value: Any) -> bool:
    if any(map(_SECRET.search, path)) and not isinstance(value, bool) and value is not None:
        return True
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value).items()
        return any(_secret((str(key),), held) for key, held in entries)
    return isinstance(value, list) and any(_secret((), held) for held in cast("list[Any]", value))


def value_of(state: KeyState, format: str, pointer: str, blobs: Blobs) -> Any:
    """The value a state of type `value` speaks of."""
    if "in" not in state:
        return from_journal(state["value"])
    return find(read(format, b"".join(blobs.read(state["in"]))), pointer)[1]


def same_state(
    one: KeyState,
    other: KeyState,
    format: str,
    pointer: str,
    blobs: Blobs,
    now: DocumentView,
    then: DocumentView | None = None,
) -> bool:
    """`one` is what is seen now; the other one comes from a record, or is what is seen in `then`."""
    if one["type"] != other["type"] or one["type"] != "value":
        return one == other
    if not one["present"] or not other["present"]:
        return one["present"] == other["present"]
    value = find(then.document, pointer)[1] if then else value_of(other, format, pointer, blobs)
    return same(find(now.document, pointer)[1], value)


def words(state: KeyState) -> str:
    """For a person; never a value that is kept out of the journal."""
    if state["type"] == "absent":
        return "no file"
    if state["type"] == "unreadable":
        return "a file that cannot be read as a document"
    if not state["present"]:
        return "no such key"
    if "in" in state:
        return "a value that is not shown"
    value = state["value"]
    if isinstance(value, dict):
        return next(iter(cast("dict[str, str]", value).values()))
    return notation("json", value)
