"""Build a change from what a caller asks for."""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from takeback.adapters.config import formats
from takeback.adapters.config.keys import demand_pointer, from_fragment, to_fragment
from takeback.adapters.config.states import hidden
from takeback.adapters.file.paths import resolve
from takeback.errors import Misuse
from takeback.model.change import Change
from takeback.model.resource import display, path_of
from takeback.storage.protocols import Blobs

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
