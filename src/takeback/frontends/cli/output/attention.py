"""What waits for a person: runs, calls in doubt, and what needs a yes; and one of them, closely."""

import json
from typing import TYPE_CHECKING, Any

from takeback.api import now
from takeback.audit.runs import as_they_stand
from takeback.audit.status import Status
from takeback.audit.views import record_json, run_info_json
from takeback.frontends.cli.command import Asked
from takeback.frontends.cli.output.log_table import done_in, state_shown
from takeback.frontends.cli.output.screen import Screen, ahead, clean, counted, from_here, local_time, when
from takeback.frontends.cli.session.store import give
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.record import Kind
from takeback.model.run import DECIDED, NEVER, OnDeath, RunInfo, RunState, needs_attention
from takeback.storage.bodies import text_of

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.engine.approval import Proposal
    from takeback.runs.workflows.replay import WorkflowStep


_MOST_WAITING = 5
_LONGEST = 2_000


def tell_inbox(screen: Screen, status: Status) -> None:
    for effect in status.approvals[:_MOST_WAITING]:
        _say(screen, "Waiting", effect, effect.plan)
    _more(screen, len(status.approvals))
    if status.approvals:
        screen.hint("`takeback pending` shows all of it; `takeback approve ID` or `takeback deny ID`.")
    _tell_decided(screen, status)
    for effect in status.in_doubt[:_MOST_WAITING]:
        _say(screen, "In doubt", effect, effect.note or "its outcome is unknown")
    _more(screen, len(status.in_doubt))
    if status.in_doubt:
        screen.hint(
            "`takeback recover` checks again (a worker does for a workflow). `takeback show ID` has the details. "
            "If you know what happened: `takeback settle ID --happened` or `--did-not-happen`."
        )


def _tell_decided(screen: Screen, status: Status) -> None:
    """Proposals that are decided, or can no longer be made, and whose run has not made them."""
    others = [one for one in status.proposals if one.decision or one.never]
    for one in others[:_MOST_WAITING]:
        word = "Waiting" if one.decision is None else "Approved" if one.decision.approved else "Denied"
        _say(screen, word, one.effect, standing_of(one))
    _more(screen, len(others))
    if any(one.never for one in others):
        screen.hint(
            "`takeback recover` ends a run whose process died and withdraws its requests. "
            "`takeback undo ID` withdraws a request of a run that has ended."
        )


def standing_of(one: "Proposal") -> str:
    """How what needs an approval stands, in words."""
    if one.decision is None:
        told = "not decided yet"
    else:
        told = f"by {one.decision.by.in_words()}" + (f" ({one.decision.why})" if one.decision.why else "")
    if one.never:
        return f"{told}, and {one.never}: it is not made"
    if one.decision is None:
        return told
    return f"{told}; its run {'makes it' if one.decision.approved else 'learns it'} when it asks again"


def _say(screen: Screen, word: str, effect: Effect, why: str) -> None:
    painted, summary = screen.paint(f"{word:<9}", "yellow"), effect.change.summary
    told = f"{from_here(summary)}: {from_here(why.removeprefix(f'{summary}: '))}"
    screen.say(f"{painted}{screen.id(effect.id)} {told}")


def _more(screen: Screen, count: int) -> None:
    if count > _MOST_WAITING:
        screen.say(f"         and {counted(count - _MOST_WAITING, 'other')}")


def facts_of_call(effect: Effect) -> list[tuple[str, str]]:
    """The facts that a person needs to find the call on the other side."""
    args = effect.change.args
    if "arguments" not in args:
        return []
    facts = [("Given", _cut(args["arguments"]))]
    if "result" in effect.receipt:
        facts.append(("Returned", _cut(effect.receipt["result"])))
    if effect.remedy and (risk := effect.remedy.payload.get("risk", "medium")) != "medium":
        facts.append(("Risk", clean(risk)))
    if effect.phase.gate:
        facts.append(("Plan", clean(effect.plan)))
    if effect.state in (State.STUCK, State.INTENDED):
        say = f"`takeback settle {short(effect.id)} --happened`"
        facts.append(("To do", f"look for it under its key, then {say}"))
        facts.append(("", "(with --receipt JSON, which its undo needs) or `--did-not-happen`"))
    return facts


def _cut(text: str) -> str:
    seen = clean(text)
    return seen if len(seen) <= _LONGEST else f"{seen[:_LONGEST]}…"


def call_json(effect: Effect) -> dict[str, Any]:
    args = effect.change.args
    if "arguments" not in args:
        return {}
    result = effect.receipt.get("result")
    return {
        "arguments": json.loads(args["arguments"]),
        "result": json.loads(result) if result is not None else None,
    }


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
    ended = info.state not in (RunState.OPEN, RunState.SUSPENDED)
    facts = [
        ("Run", screen.paint(info.id, "cyan")),
        ("Name", from_here(info.name) + (f", agent {clean(info.agent)}" if info.agent else "")),
        ("Workflow", clean(info.workflow)),
        ("Called", clean(opened.get("arguments", ""))),
        ("Key", clean(info.key)),
        ("State", screen.state(state_shown(stands)) + (f": {clean(info.note)}" if info.note else "")),
        ("Due", _due(info, today)),
        ("Result", clean(closed.get("result", ""))),
        ("Began", when(info.opened_at, today)),
        ("Ended", when(info.closed_at, today) if ended else ""),
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
        screen.paint(f"Run {short(info.id)} needs attention: it cannot continue without a person.", "red")
    )
    if info.awaits.startswith(DECIDED):
        name = short(info.awaits.removeprefix(DECIDED))
        screen.hint(f"`takeback approve {name}` or `takeback deny {name}`; then its worker continues.")
    elif info.awaits:
        effect = info.awaits.partition(":")[2]
        screen.hint(
            f"`takeback show {short(effect)}` has the details. Fix the cause, then `takeback recover`. "
            f"For a call: `takeback settle {short(effect)} --happened` or `--did-not-happen`."
        )
    else:
        screen.hint(
            f"Fix the function, then `takeback resume {short(info.id)}` (also from a checkpoint: --from-checkpoint C). "
            f"`takeback undo --run {short(info.id)}` undoes the run."
        )


def _steps(tb: "Takeback", info: RunInfo) -> "list[WorkflowStep]":
    if info.on_death is not OnDeath.RESUME:
        return []
    from takeback.runs.workflows.replay import history_of

    return [step for _, step in sorted(history_of(tb.store.journal, info.id).steps.items())]


def _step_json(tb: "Takeback", step: "WorkflowStep") -> dict[str, Any]:
    told: dict[str, Any] = {"step": step.number, "kind": step.kind, "says": step.says}
    if step.effect:
        told |= {"effect": step.effect.id, "state": step.effect.state.value}
    if "value" in step.body:
        told["value"] = json.loads(text_of(tb.store.blobs, step.body["value"]))
    if "failed" in step.body:
        told["failed"] = step.body["failed"]
    return told


def _said(screen: Screen, step: "WorkflowStep") -> str:
    told = clean(step.says)
    if step.kind not in ("change", "command", "statement"):
        told = f"{step.kind} {told!r}"
    if step.effect:
        told += f"  {screen.id(step.effect.id)} {step.effect.state.value}"
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
