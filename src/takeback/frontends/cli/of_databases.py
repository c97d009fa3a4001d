"""What was taken back in databases, in words: tables and rows, where files have paths."""

from takeback.audit.rows import counts_of, receipt_of
from takeback.frontends.cli.output import counted
from takeback.model.database import is_of_database
from takeback.model.effect import Effect
from takeback.model.plan import Outcome, TargetOutcome, UndoResult
from takeback.model.resource import display

_MARK = "/effect:"


def is_whole(target: TargetOutcome) -> bool:
    """An effect on a database has one target, which stands for all its rows."""
    return is_of_database(target.resource) and _MARK in target.resource


def named(target: TargetOutcome) -> str:
    return display(target.resource.rpartition(_MARK)[0] if is_whole(target) else target.resource)


def detail_of(target: TargetOutcome, result: UndoResult) -> str:
    """What was done in which table; while it is planned, what would be: the opposite of the effect."""
    if not is_whole(target) or target.detail:
        return target.detail
    made = next((one for one in result.undo if _of(one) == target.effect), None)
    effect = made or next((one for one in result.effects if _of(one) == target.effect), None)
    if effect is None:
        return ""
    told = [
        f"{table}: {words}" for table, words in counts_of(effect, turned=made is None) if words != "nothing"
    ]
    schema: list[str] = receipt_of(effect).get("schema", [])
    return "; ".join((*told, *(schema if made else [f"takes back: {one}" for one in schema])))


def _of(effect: Effect) -> str:
    return effect.undoes or effect.id


def amounts_of(result: UndoResult) -> list[str]:
    """Of rows that changed; empty if no database had a part in it."""
    receipts = [receipt_of(one) for one in result.undo if is_of_database(one.change.resource)]
    rows = sum(sum(counts.values()) for one in receipts for counts in one.get("tables", {}).values())
    schema = sum(len(one.get("schema", ())) for one in receipts)
    told = [counted(rows, "row")] if rows else []
    if schema:
        told.append(counted(schema, "schema change"))
    whole = sum(1 for one in result.targets if is_whole(one) and one.outcome is Outcome.UNDONE)
    return told or ([counted(whole, "effect")] if whole else [])
