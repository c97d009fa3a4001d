"""The nouns as JSON, in the shape that INTERFACE promises. Pure: plain data in, plain data out."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from takeback.model.database import from_json, resource_of
from takeback.model.effect import Effect
from takeback.model.record import Record
from takeback.model.run import NEVER, Checkpoint, RunInfo
from takeback.model.stop import Stop

if TYPE_CHECKING:
    from takeback.audit.runs import RunNow
    from takeback.engine.ladder import Climb
    from takeback.engine.settled import Settled
    from takeback.model.plan import UndoResult
    from takeback.model.run import UnderPrompt


def iso(at: int) -> str | None:
    """Microseconds since 1970 as ISO 8601 in UTC; None for never."""
    if not at:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at // 1_000_000)) + f".{at % 1_000_000:06d}Z"


def effect_json(effect: Effect, undone: Sequence[str] = ()) -> dict[str, Any]:
    """`undone`: of an effect that is partly undone the paths that were taken back."""
    remedy = effect.remedy
    gone: list[str] = effect.receipt.get("lost", []) if "database" in effect.change.args else []
    return {
        "id": effect.id,
        "run": effect.run,
        "agent": effect.agent,
        "seq": effect.seq,
        "adapter": effect.change.adapter,
        "kind": effect.change.kind,
        "resource": effect.change.resource,
        "summary": effect.change.summary,
        "state": effect.state.value,
        "accepted": effect.accepted,
        "accepted_by": effect.accepted_by or None,
        "pinned": effect.pinned,
        "forgotten": effect.forgotten,
        "redacted": effect.redacted,
        "strategy": remedy.strategy.value if remedy else None,
        "reason": effect.reason,
        "exact": remedy.exact and not gone if remedy else None,
        "residue": "; ".join(gone) or (remedy.residue if remedy else ""),
        "undoes": effect.undoes or None,
        "undone_by": effect.undone_by or None,
        "partly_undone": list(undone),
        "needs": list(effect.needs),
        "key": effect.key,
        "note": effect.note,
        "dropped": dropped_json(effect),
        "at": iso(effect.at),
        "targets": _targets(effect),
    }


def dropped_json(effect: Effect) -> dict[str, Any] | None:
    """Of one that was dropped and can be applied after all, or could be once."""
    told = effect.dropped
    return {"reason": told.reason.value, "until": iso(told.until), "bytes": told.bytes} if told else None


def _targets(effect: Effect) -> list[dict[str, Any]]:
    """Of an effect on a database its tables, with how many rows; the rows themselves only the database has."""
    tables: dict[str, Any] = effect.receipt.get("tables", {}) if "database" in effect.change.args else {}
    if tables:
        database = from_json(effect.change.args["database"])
        return [
            {"resource": resource_of(database, name), "before": {}, "after": counts}
            for name, counts in tables.items()
        ]
    return [{"resource": one.resource, "before": one.before, "after": one.after} for one in effect.targets]


def record_json(record: Record) -> dict[str, Any]:
    return {
        "seq": record.seq,
        "kind": record.kind.value,
        "run": record.run,
        "effect": record.effect or None,
        "at": iso(record.at),
        "body": record.body,
        "hash": record.hash.hex(),
    }


def run_json(run: "RunNow") -> dict[str, Any]:
    told = run_info_json(run.info) | {"state": run.state.value, "effects": run.effects}
    return told | {"undos": run.undos, "failed": run.failed or None}


def run_info_json(info: RunInfo) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": info.id,
        "name": info.name,
        "agent": info.agent,
        "state": info.state.value,
        "on_death": info.on_death.value,
        "opened_at": iso(info.opened_at),
        "closed_at": iso(info.closed_at),
        "effects": info.effects,
    }
    if info.workflow:
        told |= {
            "workflow": info.workflow,
            "key": info.key,
            "due_at": iso(info.due_at) if info.due_at < NEVER else None,
            "awaits": info.awaits or None,
            "note": info.note,
        }
    return told


def checkpoint_json(point: Checkpoint) -> dict[str, Any]:
    import json

    return {
        "id": point.id,
        "run": point.run,
        "label": point.label,
        "seq": point.seq,
        "at": iso(point.at),
        "state": json.loads(point.state) if point.state else None,
        "cwd": point.cwd,
        "environment": point.environment,
        "path": list(point.path),
        "summary": point.summary,
        "automatic": point.automatic,
    }


def prompt_json(point: Checkpoint) -> dict[str, Any]:
    """A prompt to a coding agent."""
    return {
        "id": point.id,
        "number": int(point.label.removeprefix("prompt ")),
        "text": point.summary,
        "at": iso(point.at),
    }


def prompt_fields(effect: Effect, under: "Mapping[str, UnderPrompt]") -> dict[str, Any]:
    """The session of a coding agent that an effect belongs to, the prompt, and the subagent that did it."""
    mine = under.get(effect.id)
    if mine is None:
        return {"session": None, "prompt": None, "subagent": None}
    from takeback.model.run import conversation_of, member_of

    return {
        "session": conversation_of(mine.run),
        "prompt": prompt_json(mine.point) if mine.point else None,
        "subagent": {"name": member_of(mine.member), "run": mine.member.id} if mine.member else None,
    }


def undo_json(result: "UndoResult", undone: Mapping[str, Sequence[str]] | None = None) -> dict[str, Any]:
    """`undone`: by effect that is partly undone now, the paths that were taken back."""
    parted = undone or {}
    told: dict[str, Any] = {
        "outcome": result.outcome,
        "effects": [
            {"id": one.id, "state": one.state.value}
            | ({"partly_undone": list(parted[one.id])} if one.id in parted else {})
            for one in result.effects
        ],
        "targets": [
            {
                "resource": one.resource,
                "outcome": one.outcome.value,
                "detail": one.detail,
                "effect": one.effect,
                "exact": one.exact,
                **({"diff": one.diff} if one.diff and result.outcome == "planned" else {}),
            }
            for one in result.targets
        ],
        "undo": [one.id for one in result.undo],
    }
    if result.outside:
        told["outside"] = list(result.outside)  # changed by these effects too, and not recorded
    if receipts := {one.id: one.receipt for one in result.undo if "tables" in one.receipt}:
        told["changed"] = receipts  # in databases
    if result.along:
        told["along"] = [
            {"resource": one.resource, "with": one.goes_with, "bond": one.bond.value} for one in result.along
        ]
    if result.settled:
        told["settled"] = list(result.settled)
    if result.state is not None:
        told["state"] = result.state
    return told


def stop_json(stop: Stop) -> dict[str, Any]:
    """What is stopped (with neither agent nor run: everything), by whom, and why."""
    return {
        "agent": stop.agent,
        "run": stop.run,
        "conversation": stop.conversation,
        "by": stop.by,
        "remark": stop.remark,
        "why": stop.why,
        "at": iso(stop.at) if stop.at else None,
    }


def climb_json(one: "Climb") -> dict[str, Any]:
    """A rung of the ladder: what was tried for an effect that is stuck."""
    told = one._asdict()
    return {**told, "rung": one.rung.value, "at": iso(one.at)}


def settled_json(one: "Settled") -> dict[str, Any]:
    return {
        "effect": one.effect,
        "run": one.run,
        "summary": one.summary,
        "outcome": one.outcome,
        "detail": one.detail,
        "cause": one.cause.value,
    }
