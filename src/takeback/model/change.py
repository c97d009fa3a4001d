"""A change as plain data, as it was asked for and as it is staged for checks."""

from typing import Any, NamedTuple

UNDO = "undo"
DECIDED_AT = "decided_at"  # of an undo: the newest record when it was decided what it leaves
EDIT = "edit"  # of some keys of a document, whatever else is in it


class Approvable(NamedTuple):
    """What a person must approve."""

    plan: str  # the way back, or that there is none
    until: int = 0  # microseconds since 1970: then silence means no; 0: never


class Review(NamedTuple):
    """A transaction that is made and not committed."""

    how: str  # its session holds it, or the database does
    receipt: dict[str, Any]
    rows: str  # digest of what it would change
    until: int = 0  # nanoseconds since 1970; 0: no limit


class Phase(NamedTuple):
    """What a change is going through. Two requests that differ only in this are the same request."""

    waits: str = ""  # while proposed: `PERSON` to apply or discard it, `COMMAND` to end
    gate: Approvable | None = None
    reviewed: Review | None = None
    was_held: bool = False  # it waited for a person first
    first_targets: str = ""  # of one that is applied with force: what it was before, as a digest
    taken_back_by: str = ""  # of a drop that was made first: the undo that took it back
    workshop: str = ""  # of what a command changed: the directory its layer lay in; it is saved once


ASKED = Phase()  # and nothing more


class Change(NamedTuple):
    adapter: str  # who knows how: "file", "config"
    kind: str  # "write", "delete", … ; "undo" takes another effect back
    resource: str  # what it is mainly about
    summary: str  # one line for a person
    args: dict[str, Any] = {}  # JSON; contents are blobs, named by digest
    phase: Phase = ASKED


_TERMS = ("home", "most")  # on which it is made, whatever it is
_PHASE = frozenset(Phase._fields)


def recorded_args(change: Change) -> dict[str, Any]:
    """Arguments and phase, as a record has them side by side."""
    if change.phase == ASKED:
        return change.args
    phase = {name: value for name, value in change.phase._asdict().items() if value}
    if change.phase.gate:
        phase["gate"] = {
            name: value for name, value in change.phase.gate._asdict().items() if value or name == "plan"
        }
    if change.phase.reviewed:
        phase["reviewed"] = change.phase.reviewed._asdict()
    return {**change.args, **phase}


def from_recorded(args: dict[str, Any]) -> tuple[dict[str, Any], Phase]:
    """Both, from a record of any age."""
    if _PHASE.isdisjoint(args):
        return args, ASKED
    phase = Phase(**{name: value for name, value in args.items() if name in _PHASE})
    phase = phase._replace(
        gate=Approvable(**args["gate"]) if "gate" in args else None,
        reviewed=Review(**args["reviewed"]) if "reviewed" in args else None,
    )
    return {name: value for name, value in args.items() if name not in _PHASE}, phase


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
