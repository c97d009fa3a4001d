"""What one key of a file is at one moment, as plain data that may stand in a record.

`{"type": "value", "present": true, "value": …}`; a value that looks secret or is long is not repeated in the
journal: `"in"` names the blob of the whole document that holds it. `absent` and `unreadable` speak of the file.
"""

import hashlib
import re
from typing import Any, NamedTuple, cast

from takeback.adapters.config import formats
from takeback.adapters.config.keys import find, from_fragment, same, to_fragment, tokens
from takeback.adapters.file.content import file_bytes
from takeback.adapters.file.paths import open_place
from takeback.adapters.file.trouble import translated
from takeback.errors import Refused
from takeback.storage.protocols import Blobs

State = dict[str, Any]

NOT_THERE: State = {"type": "value", "present": False}
NO_FILE: State = {"type": "absent"}

_LONG = 300
_LARGEST = 64 << 20
_SECRET = re.compile(
    r"pass(?:word|wd|phrase)?$|pwd|secret|token|credential|(?:api|access|private|auth)[_-]?key", re.I
)


class View(NamedTuple):
    """A file as seen now."""

    data: bytes | None  # None: there is no file
    document: Any = None
    trouble: str = ""  # why it cannot be read as a document

    @property
    def digest(self) -> str:
        return "" if self.data is None else hashlib.sha256(self.data).hexdigest()


def view(resource: str, format: str) -> View:
    data = read_bytes(resource)
    return View(None) if data is None else view_of(data, format)


def view_of(data: bytes, format: str) -> View:
    try:
        return View(data, formats.read(format, data))
    except Refused as error:
        return View(data, trouble=str(error))


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


def key_state(seen: View, format: str, pointer: str) -> State:
    if seen.data is None:
        return NO_FILE
    if seen.trouble:
        return {"type": "unreadable", "in": seen.digest}
    present, value = find(seen.document, pointer)
    if not present:
        return NOT_THERE
    if hidden(pointer, format, value):
        return {"type": "value", "present": True, "in": seen.digest}
    return {"type": "value", "present": True, "value": formats.to_journal(format, value)}


def hidden(pointer: str, format: str, value: Any) -> bool:
    """Whether a value stays out of the journal."""
    return _secret(tokens(pointer), value) or len(formats.notation(format, value)) > _LONG


def _secret(path: tuple[str, ...], value: Any) -> bool:
    if any(map(_SECRET.search, path)) and not isinstance(value, bool) and value is not None:
        return True
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value).items()
        return any(_secret((str(key),), held) for key, held in entries)
    return isinstance(value, list) and any(_secret((), held) for held in cast("list[Any]", value))


def value_of(state: State, format: str, pointer: str, blobs: Blobs) -> Any:
    """The value a state of type `value` speaks of."""
    if "in" not in state:
        return formats.from_journal(state["value"])
    return find(formats.read(format, b"".join(blobs.read(state["in"]))), pointer)[1]


def same_state(
    one: State, other: State, format: str, pointer: str, blobs: Blobs, now: View, then: View | None = None
) -> bool:
    """`one` is what is seen now; the other one comes from a record, or is what is seen in `then`."""
    if one["type"] != other["type"]:
        return False
    if one["type"] != "value":
        return one == other
    if not one["present"] or not other["present"]:
        return one["present"] == other["present"]
    if then is not None:
        return same(find(now.document, pointer)[1], find(then.document, pointer)[1])
    return same(find(now.document, pointer)[1], value_of(other, format, pointer, blobs))


def words(state: State) -> str:
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
    return formats.notation("json", value)
