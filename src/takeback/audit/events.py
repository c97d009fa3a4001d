"""Records of the journal as events: what a person or a program that watches the store hears of them, in order.

An event has the number of its record, so a reader that remembers the last one loses none and hears none twice.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from takeback.audit.views import iso
from takeback.model.ids import short
from takeback.model.lifecycle import BIRTHS
from takeback.model.record import STORE, Kind, Record
from takeback.model.run import RunState
from takeback.policy.secrets import masked, masked_json
from takeback.storage.protocols import Journal

SCHEMA = 1  # of the JSON; fields may be added to it, and none goes or changes its meaning

# Each name, and what happened.
NAMES: dict[str, str] = {
    "run-began": "a run was opened",
    "run-resumed": "another process continued a run",
    "run-ended": "a run ended; `more.outcome` says how",
    "run-suspended": "a run was left, to be continued later",
    "proposed": "a change was announced that is not made yet",
    "held": "a change is ready and waits for a person to apply or discard it",
    "asked": "a change waits for an approval",
    "approved": "a person said yes",
    "denied": "a person said no",
    "expired": "no one decided in time, and silence means no",
    "began": "a change is being made, and its way back is recorded",
    "done": "a change was made and verified",
    "undo-began": "an undo is being carried out",
    "undone": "an effect was taken back; `undoes` names it",
    "partly-undone": "a part of an effect was taken back",
    "redone": "what an undo had taken back was brought back",
    "aborted": "a change did not happen, or was taken back at once",
    "stuck": "an effect could not be finished, and needs a person",
    "in-doubt": "whether a call happened is not known",
    "dropped": "a change was not made, and can still be applied",
    "erased": "what was dropped cannot be applied any more",
    "accepted": "an effect stays even if its run fails",
    "pinned": "the way back of an effect is never forgotten",
    "unpinned": "the way back of an effect may be forgotten again",
    "forgotten": "the way back of an effect was given up",
    "checkpoint": "a point was named",
    "signalled": "a run got a signal",
    "stopped": "an agent, a run or everything does nothing more",
    "breaker": "the policy stopped an agent by itself",
    "lifted": "a stop ended",
    "policy": "other rules count from now on",
    "trusted": "a person let a file of a project count",
    "anchored": "the head of the chain was signed, or kept elsewhere",
    "rehearsed": "a way back was tried on a copy",
    "climbed": "what was tried next for an undo that failed",
    "redacted": "content was erased for good",
    "alert-opened": "something needs a person; from the state of the store, not from a record",
    "alert-closed": "that is over",
}
_PLAIN: dict[Kind, str] = {
    Kind.DROP: "dropped", Kind.ERASE: "erased", Kind.ACCEPT: "accepted", Kind.KEEP: "accepted", Kind.PIN: "pinned",
    Kind.UNPIN: "unpinned", Kind.FORGET: "forgotten", Kind.CHECKPOINT: "checkpoint", Kind.SIGNAL: "signalled",
    Kind.LIFT: "lifted", Kind.POLICY: "policy", Kind.TRUST: "trusted", Kind.ANCHOR: "anchored",
    Kind.REHEARSE: "rehearsed", Kind.CLIMB: "climbed", Kind.REDACT: "redacted",
}  # fmt: skip
# Of a body only what says what happened: never arguments, results, states, environments or data of a signal.
_TOLD = (
    "outcome", "label", "name", "approved", "until", "bytes", "stops", "agent", "run", "conversation", "file",
    "level", "digest", "trusted", "places", "failed", "check", "rung", "known_by", "remark",
)  # fmt: skip
_MOST_KNOWN = 20_000  # effects, and runs, whose names are remembered while reading on
_MOST_LISTED = 50


class StoreEvent(NamedTuple):
    """`effect`, `run` and so on are empty where the record is about none."""

    seq: int
    at: int  # microseconds since 1970
    name: str
    run: str = ""
    run_name: str = ""
    agent: str = ""
    effect: str = ""
    undoes: str = ""
    adapter: str = ""
    kind: str = ""
    resource: str = ""
    summary: str = ""
    by: str = ""
    why: str = ""
    more: dict[str, Any] = {}


def event_json(event: StoreEvent) -> dict[str, Any]:
    """With secrets masked, whatever they stand in."""
    told: dict[str, Any] = {"schema": SCHEMA, "seq": event.seq, "at": iso(event.at), "event": event.name}
    told |= {name: value or None for name, value in zip(event._fields[3:-1], event[3:-1], strict=True)}
    return masked_json({**told, "more": event.more})


def in_words(event: StoreEvent) -> str:
    """For a person who reads a log: what happened, to what, and why; without secrets."""
    name = event.name.replace("-", " ")
    what = event.summary or event.run_name or NAMES[event.name]
    id = f" {short(event.effect or event.run)}" if event.effect or event.run else ""
    why = f": {event.why}" if event.why and event.name not in ("began", "undo-began") else ""
    by = f" by {event.by}" if event.by else ""
    return masked(f"{name}{id} {what}{by}{why}")


class _KnownEffect(NamedTuple):
    run: str = ""
    adapter: str = ""
    kind: str = ""
    resource: str = ""
    summary: str = ""
    undoes: str = ""
    partial: bool = False
    until: int = 0  # of a proposal: when silence means no


class EventReader:
    """Turns records into events. Remembers what runs and effects are called; what it has not seen it looks up."""

    def __init__(self, journal: Journal, calls: Callable[[str], bool]) -> None:
        """`calls`: whether the effects of an adapter, by its name, are calls, whose outcome may be in doubt."""
        self._journal = journal
        self._calls = calls
        self._effects: dict[str, _KnownEffect] = {}
        self._runs: dict[str, tuple[str, str]] = {}  # name and agent
        self._decided: set[str] = set()

    def read(self, after: int = 0) -> Iterator[tuple[int, StoreEvent | None]]:
        """The number of each record since then, with its event; None for one that tells no one anything."""
        for record in self._journal.records(after=after):
            yield record.seq, self.event(record)

    def event(self, record: Record) -> StoreEvent | None:
        if len(self._effects) + len(self._runs) + len(self._decided) > _MOST_KNOWN:
            self._effects.clear()
            self._runs.clear()
            self._decided.clear()
        body = record.body
        if record.kind is Kind.OPEN and body.get("name"):
            self._runs[record.run] = (body["name"], body.get("agent", ""))
        if record.kind in BIRTHS:
            self._effects[record.effect] = _known(record)
        name = self._name(record)
        if not name:
            return None
        effect = self._effect(record) if record.effect else _KnownEffect()
        of_store = record.run == STORE
        run = "" if of_store else record.run
        run_name, agent = self._run(run) if run else ("", "")
        return StoreEvent(
            record.seq, record.at, name, run, run_name, agent, record.effect, effect.undoes, effect.adapter,
            effect.kind, effect.resource, effect.summary, str(body.get("by", "")), _why(body), _more(record),
        )  # fmt: skip

    def _name(self, record: Record) -> str:
        """What happened; empty for a record that is only for ourselves."""
        kind, body = record.kind, record.body
        if kind is Kind.OPEN:
            return "run-began" if "name" in body else "run-resumed"
        if kind is Kind.CLOSE:
            return "run-suspended" if body.get("outcome") == RunState.SUSPENDED else "run-ended"
        if kind is Kind.STOP:
            return "breaker" if body.get("by") == "policy" else "stopped"
        if kind is Kind.PROPOSE:
            args = body.get("args", {})
            return "asked" if "gate" in args else "held" if args.get("waits") == "person" else "proposed"
        if kind is Kind.DECIDE:
            self._decided.add(record.effect)
            return "approved" if body.get("approved") else "denied"
        if kind in (Kind.INTENT, Kind.DONE, Kind.ABORT, Kind.STICK):
            return self._of_effect(record, self._effect(record))
        return _PLAIN.get(kind, "")

    def _of_effect(self, record: Record, effect: _KnownEffect) -> str:
        if record.kind is Kind.INTENT:
            return "undo-began" if effect.undoes else "began"
        if record.kind is Kind.STICK:
            return "in-doubt" if self._calls(effect.adapter) else "stuck"
        if record.kind is Kind.ABORT:
            late = 0 < effect.until <= record.at and record.effect not in self._decided
            return "expired" if late else "aborted"
        if not effect.undoes:
            return "done"
        if effect.partial:
            return "partly-undone"
        return "redone" if self._look_up(effect.undoes).undoes else "undone"

    def _effect(self, record: Record) -> _KnownEffect:
        return self._look_up(record.effect)

    def _look_up(self, id: str) -> _KnownEffect:
        if id not in self._effects:
            births = self._journal.records(effect=id, kinds=BIRTHS)
            self._effects[id] = next((_known(one) for one in births), _KnownEffect())
        return self._effects[id]

    def _run(self, id: str) -> tuple[str, str]:
        if id not in self._runs:
            info = next(iter(self._journal.runs((id,))), None)
            self._runs[id] = (info.name, info.agent) if info else ("", "")
        return self._runs[id]


def _known(record: Record) -> _KnownEffect:
    body = record.body
    args = body.get("args", {})
    until = args.get("gate", {}).get("until", 0)
    return _KnownEffect(
        record.run, body["adapter"], body["kind"], body["resource"], body["summary"], body.get("undoes", ""),
        bool(args.get("partial")), until,
    )  # fmt: skip


def _why(body: dict[str, Any]) -> str:
    return str(body.get("why") or body.get("reason") or body.get("error") or "")


def _more(record: Record) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for name in _TOLD if record.kind not in BIRTHS else ():
        value = record.body.get(name)
        if isinstance(value, list):
            told[name] = value[:_MOST_LISTED]
        elif isinstance(value, (str, int, bool)) and value != "":
            told[name] = value
    if record.kind is Kind.REHEARSE:
        effects: list[dict[str, Any]] = record.body.get("effects", [])
        told["effects"] = [one.get("effect", "") for one in effects[:_MOST_LISTED]]
    return told


def first_since(journal: Journal, at: int) -> int:
    """The number before the first record of that time or later; times grow with numbers."""
    low, high = 0, journal.newest()
    while low < high:
        middle = (low + high) // 2
        record = next(journal.records(after=middle), None)
        if record is not None and record.at < at:
            low = middle + 1
        else:
            high = middle
    return low
