"""Named points in a run, with the agent's own state."""

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

from takeback.errors import Misuse
from takeback.model.ids import new_id, short
from takeback.model.record import Draft, Kind, Record
from takeback.model.resource import Scope, in_scope
from takeback.model.run import Checkpoint
from takeback.storage import bodies
from takeback.storage.protocols import Blobs, Journal


def draft(
    run: str,
    label: str,
    state: dict[str, Any] | None = None,
    *,
    environment: Sequence[str] = (),
    path: Sequence[str] = (),
    summary: str = "",
    automatic: bool = False,
) -> Draft:
    body: dict[str, Any] = {"id": new_id(), "label": label, "cwd": _cwd()}
    optional: dict[str, Any] = {
        "environment": {name: os.environ[name] for name in environment if name in os.environ},
        "path": list(path),
        "summary": summary,
        "automatic": automatic,
    }
    said = {name: value for name, value in optional.items() if value}
    return Draft(Kind.CHECKPOINT, run, "", body | (state or {}) | said)


def kept_state(blobs: Blobs, run: str, state: Any) -> dict[str, Any]:
    """The agent's own state, as `draft` takes it."""
    if state is None:
        return {}
    # Kept as text: the agent's numbers come back exactly as it wrote them, fractions too.
    try:
        text = json.dumps(state, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Misuse(
            f"The state of a checkpoint must be JSON: {error}.",
            hint="Use dicts, lists, text, numbers, true, false, null.",
        ) from error
    return bodies.kept(blobs, "state", text, f"state of {run}")


def state_of(blobs: Blobs, point: Checkpoint | None) -> Any:
    """The agent's own, as it gave it."""
    text = with_state(blobs, point).state if point else ""
    return json.loads(text) if text else None


def with_state(blobs: Blobs, point: Checkpoint) -> Checkpoint:
    """Read, if it is in a blob."""
    if not point.state_blob:
        return point
    return point._replace(state=bodies.text_of(blobs, {"blob": point.state_blob}))


def _cwd() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def from_record(record: Record) -> Checkpoint:
    body = record.body
    said: str | dict[str, str] = body.get("state", "")
    seq, at = body.get("position", (record.seq, record.at))
    return Checkpoint(
        id=body["id"],
        run=record.run,
        label=body["label"],
        seq=seq,
        at=at,
        state=said if isinstance(said, str) else "",
        state_blob=said["blob"] if isinstance(said, dict) else "",
        cwd=body.get("cwd", ""),
        environment=body.get("environment", {}),
        path=tuple(body.get("path", ())),
        summary=body.get("summary", ""),
        automatic=body.get("automatic", False),
    )


def of_run(journal: Journal, run: str = "") -> tuple[Checkpoint, ...]:
    return tuple(from_record(record) for record in journal.records(kinds=(Kind.CHECKPOINT,), run=run))


def of_projects(journal: Journal, points: Sequence[Checkpoint], scope: Scope) -> list[Checkpoint]:
    """Those of runs that began in these projects."""
    runs = (
        {info.id: info.project for info in journal.runs(tuple({one.run for one in points}))} if points else {}
    )
    known = {one.root: one for one in journal.projects(tuple({*runs.values()} - {""}))}
    own = {run for run, root in runs.items() if root in known and in_scope(known[root], scope)}
    return [one for one in points if one.run in own]


def newest(checkpoints: Iterable[Checkpoint], most: int) -> tuple[Checkpoint, ...]:
    """The automatic ones go out of use by themselves; those someone named stay."""
    ordered = list(checkpoints)
    automatic = [one for one in ordered if one.automatic]
    old = {one.id for one in automatic[:-most]} if most else set[str]()
    return tuple(one for one in ordered if one.id not in old)


def find(journal: Journal, name: "str | Checkpoint", run: str = "", scope: Scope | None = None) -> Checkpoint:
    """By label (the newest of that name) or by id. `scope`: only a label of these projects counts; an id always."""
    if isinstance(name, Checkpoint):
        return name
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse(f"{name!r} is no checkpoint.", hint="Give the checkpoint itself, its label or its id.")
    found = [one for one in of_run(journal, run) if one.label == name]
    own = of_projects(journal, found, scope) if scope else found
    if own:
        return own[-1]
    by_id = [one for one in of_run(journal, run) if one.id.startswith(name)] if len(name) >= 4 else []
    if len(by_id) == 1:
        return by_id[0]
    where = f" in run {short(run)}" if run else " in this project" if scope else ""
    if found:
        raise Misuse(
            f"There is no checkpoint {name!r}{where}.",
            hint=f"Another project has one: `takeback undo --to {short(found[-1].id)}` goes back to it there.",
        )
    from takeback.model.words import closest

    there = of_run(journal, run)
    labels = {one.label for one in (of_projects(journal, there, scope) if scope else there) if one.label}
    meant = closest(name, labels)
    raise Misuse(
        f"There is no checkpoint {name!r}{where}.",
        hint=f"Did you mean {meant!r}? " * bool(meant) + "`takeback checkpoints` lists them.",
    )
