"""A command as a step of a workflow: what is recorded of it, so that it need not run again to be answered."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from takeback.engine.drop import Final
from takeback.model.effect import Effect
from takeback.model.plan import outcome_from
from takeback.runs.outcome import Changed, CommandOutcome, changed, in_words
from takeback.runs.request import Request
from takeback.runs.workflow import digest_of

MOST_PRINTED = 64 * 1024  # bytes of each stream, from its end
_MOST_CHANGES = 100
DROPPED = "dropped"  # in the record of a step: the effect that has what was dropped


def asked_for(request: Request, env: Mapping[str, str] | None, stdin: bytes | None, key: str) -> str:
    """The environment counts only where it was given: that of a worker is another one each time."""
    told = request._replace(env=dict(env) if env is not None else {})
    given = hashlib.sha256(stdin).hexdigest() if stdin is not None else ""
    return digest_of("command", [*told], given, key)


def kept(outcome: CommandOutcome) -> CommandOutcome:
    """As much of it as is recorded; the first time it is answered with no more than the next time."""
    return outcome._replace(
        stdout=outcome.stdout[-MOST_PRINTED:],
        stderr=outcome.stderr[-MOST_PRINTED:],
        changes=outcome.changes[:_MOST_CHANGES],
        conflicts=outcome.conflicts[:_MOST_CHANGES],
    )


def to_json(outcome: CommandOutcome) -> dict[str, Any]:
    told = {
        "exit_code": outcome.exit_code,
        "stdout": outcome.stdout.decode("latin-1"),
        "stderr": outcome.stderr.decode("latin-1"),
        "changes": [list(one) for one in outcome.changes],
        "conflicts": [list(one) for one in outcome.conflicts],
        "coverage": outcome.coverage,
        "text": outcome.text,
        "stopped": outcome.stopped,
        "leftover": outcome.leftover,
    }
    if outcome.final:
        told["final"] = outcome.final.value
    effect = {"effect": outcome.effect.id} if outcome.effect else {}
    dropped = {DROPPED: outcome.dropped.id} if outcome.dropped else {}
    return {"outcome": json.dumps(told), **effect, **dropped}


def from_json(body: dict[str, Any], effect: Effect | None, dropped: Effect | None = None) -> CommandOutcome:
    told = json.loads(body["outcome"])
    return CommandOutcome(
        exit_code=told["exit_code"],
        stdout=told["stdout"].encode("latin-1"),
        stderr=told["stderr"].encode("latin-1"),
        effect=effect,
        changes=tuple(Changed(*one) for one in told["changes"]),
        coverage=told["coverage"],
        text=told["text"],
        conflicts=tuple(outcome_from(one) for one in told["conflicts"]),
        stopped=told["stopped"],
        leftover=told["leftover"],
        dropped=dropped,
        final=Final(told["final"]) if "final" in told else None,
    )


def from_effect(effect: Effect) -> CommandOutcome:
    """Its worker was killed before it could record what the command printed: that is lost, what it changed is not."""
    args = effect.change.args
    outcome = CommandOutcome(
        args.get("exit_code", 0),
        effect=effect,
        changes=changed(effect.targets)[:_MOST_CHANGES],
        coverage=args.get("coverage", ""),
    )
    return outcome._replace(text=in_words(outcome))
