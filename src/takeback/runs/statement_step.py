"""A statement as a step of a workflow: what it answered is recorded, so that it need not be made again."""

import json
from typing import Any

from takeback.model.effect import Effect
from takeback.runs.sql import SqlResult


def kept(result: SqlResult) -> SqlResult:
    """As JSON has it, what it has no word for as text: the first time it is answered as it will be the next time."""
    rows: list[list[Any]] = json.loads(json.dumps([list(row) for row in result.rows], default=str))
    return result._replace(rows=tuple(tuple(row) for row in rows), columns=tuple(result.columns))


def to_json(result: SqlResult) -> dict[str, Any]:
    told = {
        "rows": [list(row) for row in result.rows],
        "columns": list(result.columns),
        "count": result.rowcount,
    }
    effect = {"effect": result.effect.id} if result.effect else {}
    return {"answer": json.dumps(told), **effect}


def from_json(body: dict[str, Any], effect: Effect | None) -> SqlResult:
    told = json.loads(body["answer"])
    return SqlResult(tuple(tuple(row) for row in told["rows"]), tuple(told["columns"]), told["count"], effect)


def lost(effect: Effect | None) -> SqlResult:
    """It was made, and nobody knows what it answered."""
    return SqlResult((), (), -1, effect)
