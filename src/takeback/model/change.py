"""A change as plain data, as it was asked for and as it is staged for checks."""

from typing import Any, NamedTuple

UNDO = "undo"
DECIDED_AT = "decided_at"  # of an undo: the newest record when it was decided what it leaves
EDIT = "edit"  # of some keys of a document, whatever else is in it
WORKSHOP = "workshop"  # of what a command changed: the directory its layer lay in; it is saved once


class Change(NamedTuple):
    adapter: str  # who knows how: "file", "config"
    kind: str  # "write", "delete", … ; "undo" takes another effect back
    resource: str  # what it is mainly about
    summary: str  # one line for a person
    args: dict[str, Any] = {}  # JSON; contents are blobs, named by digest


_TERMS = ("gate", "home", "most", "reviewed", "waits", WORKSHOP)  # on which it is made, whatever it is


def intent(change: Change) -> dict[str, Any]:
    """What makes two requests the same request; the words around it do not count."""
    return {
        "adapter": change.adapter,
        "kind": change.kind,
        "resource": change.resource,
        "args": {name: value for name, value in change.args.items() if name not in _TERMS},
    }


class Staged(NamedTuple):
    resource: str
    path: str  # where the staged content can be read; a name beside the target when one was asked for
    content: bytes | None  # when it is small enough to hold
    mode: int
