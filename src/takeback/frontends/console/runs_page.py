"""Runs, sessions and prompts: lists, and one of each; boxes with their layers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.api import prompts, sessions
from takeback.audit.runs import RunNow, as_they_stand
from takeback.errors import Misuse, TakebackError
from takeback.frontends.cli.output.log_table import done_in, state_shown
from takeback.frontends.console.agreed_plan import prompt_of
from takeback.frontends.console.timeline import lines
from takeback.frontends.console.visit import Answer, Shown, Visit
from takeback.model.box import box_of, point_from_json
from takeback.model.effect import Effect
from takeback.model.record import Kind
from takeback.model.run import RunInfo, conversation_of, needs_attention
from takeback.runs.checkpoints import newest, of_run
from takeback.runs.prompts import is_prompt, is_session, session_of
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.api import Takeback

_PAGE = 50
_MOST = 200
_KINDS = (Kind.OPEN, Kind.CLOSE, Kind.SIGNAL)


class BoxLook(NamedTuple):
    id: str
    base: str
    cwd: str
    layers: Sequence[str]  # newest first
    trouble: str = ""


def runs(visit: Visit) -> Answer:
    """Newest first, a page at a time."""
    skip = visit.number("skip")
    infos = list(visit.tb.store.journal.runs())[::-1]
    stands = as_they_stand(visit.tb.store, infos[skip : skip + _PAGE])
    data = {
        "runs": [(one, state_shown(one), done_in(one)) for one in stands],
        "count": len(infos),
        "skip": skip,
        "older": skip + _PAGE if len(infos) > skip + _PAGE else 0,
        "attention": {one.info.id for one in stands if needs_attention(one.info)},
    }
    return Shown("runs.html", data)


def run(visit: Visit) -> Answer:
    tb = visit.tb
    info = _run_named(tb, visit.path["id"])
    (stands,) = as_they_stand(tb.store, (info,))
    effects = list(tb.store.journal.effects(Query(run=info.id, newest=True, limit=_MOST + 1)))
    data: dict[str, Any] = {
        "info": info,
        "state": state_shown(stands),
        "done": done_in(stands),
        "lines": list(lines(tb, effects[:_MOST])),
        "more": len(effects) > _MOST,
        "records": list(tb.store.journal.records(run=info.id, kinds=_KINDS))[-_PAGE:],
        "points": [one for one in newest(of_run(tb.store.journal, info.id), 20) if not is_prompt(one)][-20:],
        "prompts": prompts(tb, session_of(tb.store.journal, info))[-_MOST:] if is_session(info) else (),
        "is_session": is_session(info),
        "attention": needs_attention(info),
        "elsewhere": tb.store.elsewhere(info.id),
        "can_undo": _has_something(stands),
    }
    return Shown("run.html", data)


def _has_something(stands: RunNow) -> bool:
    return stands.effects > 0


def _run_named(tb: "Takeback", id: str) -> RunInfo:
    found = next(tb.store.journal.runs((id,)), None)
    if found is None:
        raise Misuse("There is no run with this id.", hint="Look for it under Runs.")
    return found


def prompt(visit: Visit) -> Answer:
    """The effects of the agent from this prompt up to the next one."""
    tb = visit.tb
    found = prompt_of(tb, visit.path["id"])
    all_of_them = prompts(tb, found.session)
    place = next(n for n, one in enumerate(all_of_them) if one.point.id == found.point.id)
    after = all_of_them[place + 1].point.seq if place + 1 < len(all_of_them) else 0
    effects: list[Effect] = []
    for info in found.session.runs:
        query = Query(run=info.id, after=found.point.seq, before=after, newest=True, limit=_MOST + 1)
        effects += tb.store.journal.effects(query)
    effects.sort(key=lambda one: -one.seq)
    data = {
        "prompt": found,
        "lines": list(lines(tb, effects[:_MOST])),
        "more": len(effects) > _MOST,
        "later": len(all_of_them) - place - 1,
        "run": found.session.run,
        "title": conversation_of(found.session.run),
    }
    return Shown("prompt.html", data)


def conversations(visit: Visit) -> Answer:
    found = sessions(visit.tb)[:_MOST]
    data = {
        "sessions": [(one, prompts(visit.tb, one)[-5:][::-1]) for one in found[:_PAGE]],
        "count": len(found),
    }
    return Shown("sessions.html", data)


def boxes(visit: Visit) -> Answer:
    """Sandboxes that several commands share: each has a head over layers."""
    layers = visit.tb.store.layers()
    found: list[BoxLook] = []
    for box in list(layers.boxes())[:_MOST]:
        try:
            head = layers.head(box)
            found.append(
                BoxLook(box, layers.base_of(box), head.cwd, layers.stack(head.layer) if head.layer else ())
            )
        except (TakebackError, OSError) as error:
            found.append(BoxLook(box, "", "", (), str(error)))
    return Shown("boxes.html", {"boxes": found, "steps": _steps(visit.tb)})


def _steps(tb: "Takeback") -> list[tuple[Effect, str]]:
    """The newest commands in boxes, each with the directory it left."""
    found: list[tuple[Effect, str]] = []
    for effect in tb.store.journal.effects(Query(newest=True, limit=2_000, damaged_too=True)):
        for target in effect.targets[:1]:
            if target.resource.startswith("box://"):
                found.append(
                    (effect, f"{box_of(target.resource)[:8]} in {point_from_json(target.after).cwd}")
                )
        if len(found) == _PAGE:
            break
    return found
