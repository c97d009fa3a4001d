"""`show` of a run: how it stands, what it waits for, and what a person has to do."""

import json
from typing import TYPE_CHECKING, Any

from takeback.api import now
from takeback.audit.runs import as_they_stand
from takeback.audit.views import record_json, run_info_json
from takeback.frontends.cli.commands import Asked
from takeback.frontends.cli.look import done_in, state_shown
from takeback.frontends.cli.nearby import ahead, when
from takeback.frontends.cli.opening import give
from takeback.frontends.cli.output import Screen, clean, local_time
from takeback.model.attention import DECIDED, needs_attention
from takeback.model.ids import short
from takeback.model.record import Kind
from takeback.model.run import NEVER, OnDeath, RunInfo, RunState
from takeback.storage.texts import text_of

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.runs.replay import Step

_MOST = 40
_KINDS = (Kind.OPEN, Kind.CLOSE, Kind.CHECKPOINT, Kind.SIGNAL)


def show_run(asked: Asked, tb: "Takeback", info: RunInfo) -> None:
    screen, today = asked.screen, now()
    records = tuple(tb.store.journal.records(run=info.id, kinds=_KINDS))
    steps = _steps(tb, info)
    (stands,) = as_they_stand(tb.store, (info,))
    info = info._replace(state=stands.state)
    told = run_info_json(info) | {
        "needs_attention": needs_attention(info),
        "steps": [_step_json(tb, step) for step in steps] if screen.json else [],
        "records": [record_json(record) for record in records],
    }
    give(asked, tb, told)
    opened, closed = records[0].body, records[-1].body
    facts = [
        ("Run", screen.paint(info.id, "cyan")),
        ("Name", clean(info.name) + (f", agent {clean(info.agent)}" if info.agent else "")),
        ("Workflow", clean(info.workflow)),
        ("Called", clean(opened.get("arguments", ""))),
        ("Key", clean(info.key)),
        ("State", screen.state(state_shown(stands)) + (f": {clean(info.note)}" if info.note else "")),
        ("Due", _due(info, today)),
        ("Result", clean(closed.get("result", ""))),
        ("Began", when(info.opened_at, today)),
        (
            "Ended",
            when(info.closed_at, today) if info.state not in (RunState.OPEN, RunState.SUSPENDED) else "",
        ),
        ("Effects", done_in(stands)),
    ]
    for name, fact in facts:
        if fact:
            screen.say(f"{name:<9}{fact}")
    if steps:
        screen.say("Steps")
        for step in steps[-_MOST:]:
            screen.say(f"  {step.number:>6}  {_said(screen, step)}")
    screen.say("History")
    for record in records[-_MOST:]:
        screen.say(f"  {record.seq:>6}  {local_time(record.at, today)}  {_record(record.kind, record.body)}")
    if needs_attention(info):
        tell_attention(screen, info)


def tell_attention(screen: Screen, info: RunInfo) -> None:
    screen.say(
        screen.paint(f"Run {short(info.id)} needs attention: it cannot go on without a person.", "red")
    )
    if info.awaits.startswith(DECIDED):
        name = short(info.awaits.removeprefix(DECIDED))
        screen.hint(f"`takeback approve {name}` or `takeback deny {name}`; then its worker goes on.")
    elif info.awaits:
        effect = info.awaits.partition(":")[2]
        screen.hint(
            f"`takeback show {short(effect)}` tells what is known of the effect. Put it right and `takeback recover`, "
            f"or of a call say what became of it: `takeback settle {short(effect)} --happened` or `--did-not`."
        )
    else:
        screen.hint(
            f"`takeback resume {short(info.id)}` goes on when the function is right again, with --from-checkpoint "
            f"from there; `takeback undo --run {short(info.id)}` takes the run back."
        )


def _steps(tb: "Takeback", info: RunInfo) -> "list[Step]":
    if info.on_death is not OnDeath.RESUME:
        return []
    from takeback.runs.replay import history_of

    return [step for _, step in sorted(history_of(tb.store.journal, info.id).steps.items())]


def _step_json(tb: "Takeback", step: "Step") -> dict[str, Any]:
    told: dict[str, Any] = {"step": step.number, "kind": step.kind, "says": step.says}
    if step.effect:
        told |= {"effect": step.effect.id, "state": step.effect.state.value}
    if "value" in step.body:
        told["value"] = json.loads(text_of(tb.store.blobs, step.body["value"]))
    if "failed" in step.body:
        told["failed"] = step.body["failed"]
    return told


def _said(screen: Screen, step: "Step") -> str:
    told = (
        clean(step.says)
        if step.kind in ("change", "command", "statement")
        else f"{step.kind} {clean(step.says)!r}"
    )
    if step.effect:
        told += f"  {screen.paint(short(step.effect.id), 'cyan')} {step.effect.state.value}"
    if "failed" in step.body:
        told += f"  failed: {clean(step.body['failed']['message'])}"
    if step.body.get("nothing"):
        told += "  changed nothing"
    return told


def _due(info: RunInfo, today: int) -> str:
    if info.on_death is not OnDeath.RESUME or info.state is not RunState.SUSPENDED:
        return ""
    awaits = f"when {clean(info.awaits)!r} is signalled" if info.awaits else ""
    if info.due_at >= NEVER:
        return awaits or "when a person says so"
    due = ahead(info.due_at, today) if info.due_at > today else "now"
    return f"{awaits}, or {due}" if awaits else due


def _record(kind: Kind, body: dict[str, Any]) -> str:
    if kind is Kind.CLOSE:
        return f"{body['outcome']}: {clean(str(body.get('why') or body.get('error') or ''))}".rstrip(": ")
    if kind is Kind.SIGNAL:
        return f"signal {clean(body['name'])!r} {clean(body['data'])}"
    if kind is Kind.CHECKPOINT:
        return f"checkpoint '{clean(body['label'])}'"
    return "open" + (", from a checkpoint" if "from" in body else ", resumed" if body.get("resumed") else "")
