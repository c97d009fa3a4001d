"""What the functions in the database need to know of a record, without reading its body."""

from typing import Any

from takeback.model.change import DECIDED_AT, UNDO
from takeback.model.effect import waits
from takeback.model.format_1 import word
from takeback.model.life import BIRTHS, touched
from takeback.model.project import Project, made_markers, touched_projects
from takeback.model.record import Draft, Kind
from takeback.model.resource import ancestors, without_fragment
from takeback.model.run import RunState


def facts_of(draft: Draft) -> dict[str, Any]:
    if draft.kind in BIRTHS:
        return _of_birth(draft.body)
    if draft.kind is Kind.OPEN:
        facts = _named(draft.body, "name", "agent", "on_death", "key", "workflow")
        if root := draft.body.get("project"):
            facts |= _of_projects((Project(root, bool(draft.body.get("marked")), began=True),))
        return facts
    if draft.kind is Kind.CLOSE:
        note = draft.body.get("error", "") if draft.body.get("outcome") != RunState.SUSPENDED else ""
        return _named(draft.body, "outcome", "due", "awaits", "read") | {
            "note": note or draft.body.get("why", "")
        }
    if draft.kind is Kind.SIGNAL:
        return {"name": draft.body["name"]}
    return {}


def _named(body: dict[str, Any], *names: str) -> dict[str, Any]:
    """Of the words of format 1, which a copied record may have, those of today."""
    found = {name: body[name] for name in names if name in body}
    return found | {name: word(found[name]) for name in ("outcome", "on_death") if name in found}


def _of_birth(body: dict[str, Any]) -> dict[str, Any]:
    resources = touched(body)
    grounds = list(dict.fromkeys(without_fragment(one) for one in resources))
    around = dict.fromkeys(grounds)
    for one in grounds:
        around.update(dict.fromkeys(ancestors(one)))
    args: dict[str, Any] = body.get("args", {})
    facts: dict[str, Any] = {
        "around": list(around),
        "inside": [one if one.endswith("/") else f"{one}/" for one in grounds],
    }
    if resources != (body["resource"],):
        facts["touched"] = resources
    if grounds != [body["resource"]]:
        facts["grounds"] = grounds
    if undoes := body.get("undoes"):
        facts["undoes"] = undoes
        if args.get("partial") and body["kind"] == UNDO:
            facts["partial"] = 1
        if DECIDED_AT in args:
            facts[DECIDED_AT] = args[DECIDED_AT]
    if waiting := waits(args):
        facts["waits"] = waiting
    if needs := body.get("needs"):
        facts["needs"] = list(needs)
    return facts | _of_projects((*touched_projects(body), *made_markers(body)))


def _of_projects(projects: tuple[Project, ...]) -> dict[str, Any]:
    told = [
        {"root": one.root} | {k: int(v) for k, v in one._asdict().items() if k != "root"} for one in projects
    ]
    return {"projects": told} if told else {}
