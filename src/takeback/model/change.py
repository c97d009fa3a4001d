"""A change as plain data, as it was asked for and as it is staged for checks."""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from takeback.errors import Misuse
from takeback.model.ruling import Ruling, ruling_from, ruling_recorded

UNDO = "undo"
# For those who read a record before it is an effect: names of fields of `UndoTerms`.
PARTIAL, DECIDED_AT = "partial", "decided_at"
EDIT = "edit"  # of some keys of a document, whatever else is in it


class Approvable(NamedTuple):
    plan: str  # the way back, or that there is none
    until: int = 0  # microseconds since 1970: then silence means no; 0: never
    state: str = ""  # of the targets when it was proposed, as a digest
    nonce: str = ""  # an approval of another proposal does not fit
    people: int = 1  # so many different ones must say yes
    of: tuple[str, ...] = ()  # of these; empty: anyone who may approve
    words: bool = False  # what is shown must be typed
    rule: str = ""  # of the policy, that asked
    machine: str = ""  # of the process that asked
    uid: int = -1
    role: str = ""  # and its role in the database that holds the store
    boot: str = ""  # by the clock that no one can set: since when it waits
    since: int = 0


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
    ruling: Ruling | None = None  # of the policy, where a rule decided


ASKED = Phase()  # and nothing more


class OnConflict(StrEnum):
    REFUSE = "refuse"
    MERGE = "merge"
    SKIP = "skip"
    FORCE = "force"
    MERGE_OR_SKIP = "merge-or-skip"

    @property
    def merges(self) -> bool:
        return self in (OnConflict.MERGE, OnConflict.MERGE_OR_SKIP)

    @property
    def skips(self) -> bool:
        return self in (OnConflict.SKIP, OnConflict.MERGE_OR_SKIP)


def on_conflict_named(name: str) -> OnConflict:
    try:
        return OnConflict(name)
    except ValueError:
        raise Misuse(
            f"on_conflict cannot be {name!r}.", hint=f"It is one of {', '.join(OnConflict)}."
        ) from None


class UndoTerms(NamedTuple):
    """How far an undo goes where something is not as the effect left it, and how much of the effect it takes."""

    on_conflict: OnConflict = OnConflict.REFUSE
    partial: bool = False  # something of the effect still stands afterwards
    only: Sequence[str] | None = None  # resources: it takes nothing else, so redo brings back nothing else
    together: str = ""  # the same for all that one undo takes back, so that one redo brings it back
    # By file, the state to which recorded merges led it since: over exactly this it merges unasked.
    explained: Mapping[str, dict[str, Any]] = {}
    # Of a merge, by file: what later effects that stay found and left there, as [effect, digest, digest].
    later: Mapping[str, list[list[str]]] = {}
    decided_at: int = 0  # the newest record when it was decided what it leaves
    why: str = ""  # for people: what it was taken back for, such as a check that failed


class Facts(NamedTuple):
    """What decides about a change of any adapter. Two requests that differ in this are two requests."""

    allow_inexact: bool = False  # the caller accepts that part of it cannot be captured
    others: bool = False  # others did it, beside what was watched
    merged: str | None = None  # of the commit of a box: the effect that changed its files, or ""
    # Of a held command: what others changed while it ran, as [resource, detail].
    conflicts: Sequence[Sequence[str]] = ()


WHOLE, NO_FACTS = UndoTerms(), Facts()


class Change(NamedTuple):
    adapter: str  # who knows how: "file", "config"
    kind: str  # "write", "delete", … ; "undo" takes another effect back
    resource: str  # what it is mainly about
    summary: str  # one line for a person
    args: dict[str, Any] = {}  # JSON, for its adapter; contents are blobs, named by digest
    phase: Phase = ASKED
    undo: UndoTerms = WHOLE  # if it is one
    facts: Facts = NO_FACTS


_TERMS = ("home", "most")  # on which it is made, whatever it is
_PHASE, _FACTS, _UNDO = (frozenset(one._fields) for one in (Phase, Facts, UndoTerms))


def recorded_args(change: Change) -> dict[str, Any]:
    """All of it, as a record has it side by side."""
    if change.phase == ASKED:
        return _request(change)
    phase = {name: value for name, value in change.phase._asdict().items() if value}
    if change.phase.gate:
        phase["gate"] = {"plan": change.phase.gate.plan, **_differing(change.phase.gate, _PLAIN)}
    if change.phase.reviewed:
        phase["reviewed"] = change.phase.reviewed._asdict()
    if change.phase.ruling:
        phase["ruling"] = ruling_recorded(change.phase.ruling)
    return {**_request(change), **phase}


def _request(change: Change) -> dict[str, Any]:
    args = change.args
    if change.kind == UNDO:
        terms = {"on_conflict": change.undo.on_conflict.value}
        args = args | _differing(change.undo, WHOLE) | terms
    return args | _differing(change.facts, NO_FACTS) if change.facts != NO_FACTS else args


_PLAIN = Approvable("")


def _differing(typed: NamedTuple, plain: NamedTuple) -> dict[str, Any]:
    pairs = zip(typed._fields, typed, plain, strict=True)
    return {name: value for name, value, usual in pairs if value != usual}


def change_recorded(adapter: str, kind: str, resource: str, summary: str, args: dict[str, Any]) -> Change:
    """From a record of any age."""
    change = Change(adapter, kind, resource, summary, args)
    if kind == UNDO and not _UNDO.isdisjoint(args):
        undo = UndoTerms(**_named(args, _UNDO))
        args = _without(args, _UNDO)
        change = change._replace(args=args, undo=undo._replace(on_conflict=OnConflict(undo.on_conflict)))
    if not _FACTS.isdisjoint(args):
        facts = Facts(**_named(args, _FACTS))
        args = _without(args, _FACTS)
        change = change._replace(args=args, facts=facts)
    if not _PHASE.isdisjoint(args):
        phase = Phase(**_named(args, _PHASE))
        phase = phase._replace(
            gate=_approvable(args["gate"]) if "gate" in args else None,
            reviewed=Review(**args["reviewed"]) if "reviewed" in args else None,
            ruling=ruling_from(args["ruling"]) if "ruling" in args else None,
        )
        change = change._replace(args=_without(args, _PHASE), phase=phase)
    return change


def _approvable(told: dict[str, Any]) -> Approvable:
    gate = Approvable(**told)
    return gate._replace(of=tuple(gate.of))


def _named(args: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in args.items() if name in names}


def _without(args: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in args.items() if name not in names}


def intent(change: Change) -> dict[str, Any]:
    """What makes two requests the same request; the words around it do not count."""
    return {
        "adapter": change.adapter,
        "kind": change.kind,
        "resource": change.resource,
        "args": {name: value for name, value in _request(change).items() if name not in _TERMS},
    }


class Staged(NamedTuple):
    resource: str
    path: str  # where the staged content can be read; a name beside the target when one was asked for
    content: bytes | None  # when it is small enough to hold
    mode: int
