"""Rehearse: try ways back on a copy, or look at them; and record what came of it."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from takeback.api.store import OpenStore, now
from takeback.errors import Misuse, ResourceUnreachable, TakebackError, Unavailable
from takeback.model.effect import Effect
from takeback.model.rehearsal import (
    Rehearsal,
    Rehearsed,
    RehearsedTarget,
    Viability,
    bodies,
)
from takeback.model.resource import without_fragment
from takeback.model.run import RunInfo

if TYPE_CHECKING:
    from takeback.runs.rehearsals.plan import PlannedStep
    from takeback.runs.verbs import Path

# What Python compiles of it for itself.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def rehearse(
    opened: OpenStore,
    what: "Effect | RunInfo | str | Sequence[Effect | str] | None" = None,
    *,
    everything: bool = False,
    due: bool = False,
    check: bool = False,
    cascade: bool = False,
    plan: "Path | None" = None,
    dry_run: bool = False,
    project: "Path | None" = None,
) -> Rehearsal:
    """Undo and redo effects for real on a copy of the world, and compare the content before and after. `what`: an
    effect, several, or a run; or `everything` in force; or, with `due`, one effect of each kind of remedy that was not
    proven for `rehearse_days`. With `cascade`, later effects that depend on these are taken back before them. With
    `check` nothing is tried, and each way back is only looked at. `plan` is a file of changes that were not made yet.
    Neither the world nor the journal is changed, except for one record of the outcome; a dry run does nothing and
    says what would be tried."""
    if sum((what is not None, everything or due, plan is not None)) != 1:
        raise Misuse(
            "Say what to rehearse: effects or a run, everything, what is due, or a plan; one of them.",
            hint='For example tb.rehearse("k3f9a2bq") or tb.rehearse(everything=True).',
        )
    opened.store.refuse_if_suspect()
    if plan is not None:
        return _recorded(opened, _planned(opened, plan, dry_run), dry_run)
    chosen = _chosen(opened, what, due, cascade, project)
    if dry_run:
        return Rehearsal(tuple(_foreseen(opened, one, check) for one in chosen), check)
    found = _looked_at(opened, chosen) if check else _tried(opened, chosen)
    return _recorded(opened, found, dry_run)


def _chosen(
    opened: OpenStore, what: Any, due: bool, cascade: bool, project: "Path | None"
) -> tuple[Effect, ...]:
    from takeback.model.plan import in_turn
    from takeback.runs.rehearsals import choice
    from takeback.runs.selection import effects_of

    journal = opened.store.journal
    if due:
        from takeback.audit.rehearsals import proven

        found = choice.due(opened.parts, proven(journal), opened.store.settings.rehearse_days, now())
    elif what is None:
        found = tuple(choice.in_force(journal))
    else:
        if isinstance(what, str) and what.startswith("@"):
            what = opened.effect(what, project=project)
        found = effects_of(journal, what, opened.scope_for(what))
    if cascade and found:
        found = choice.with_later(opened.parts, found)
    return tuple(in_turn(found))


def _foreseen(opened: OpenStore, effect: Effect, check: bool) -> Rehearsed:
    """What a dry run says of it: whether it could be tried at all."""
    from takeback.adapters.protocol import traits_of
    from takeback.engine.rehearse import told_of, unfit

    if why := unfit(effect):
        return told_of(effect, Viability.CANNOT, why)
    where = "it would be looked at" if check else "it would be tried at its server, or its test endpoint"
    if not check and traits_of(effect.change).layered:
        where = "it would be tried in a layer over the world"
    return told_of(effect, Viability.WORKS, where)


def _looked_at(opened: OpenStore, effects: Sequence[Effect]) -> Rehearsal:
    from takeback.engine.rehearse import Fitness, look_at, told_of, unfit

    looked = Fitness({}, set())
    found: list[Rehearsed] = []
    with opened.progress.stage("Looking at ways back", "effect"):
        opened.progress.expect(len(effects))
        for effect in effects:
            why = unfit(effect)
            if why:
                found.append(told_of(effect, Viability.CANNOT, why))
            elif lost := _lost_layers(opened, effect):
                found.append(told_of(effect, Viability.FAILS, lost))
            else:
                found.append(look_at(opened.parts, effect, looked))
            opened.progress.moved(items=1)
    return Rehearsal(tuple(found), check=True)


def _tried(opened: OpenStore, effects: Sequence[Effect]) -> Rehearsal:
    from takeback.adapters.protocol import traits_of
    from takeback.engine.rehearse import rehearse_at_its_place, told_of, unfit
    from takeback.runs.rehearsals.manifest import places_of, sight, touched_since

    found: dict[str, Rehearsed] = {}
    in_a_layer: list[Effect] = []
    with opened.progress.stage("Rehearsing", "effect"):
        opened.progress.expect(len(effects))
        for effect in effects:
            if why := unfit(effect):
                found[effect.id] = told_of(effect, Viability.CANNOT, why)
            elif lost := _lost_layers(opened, effect):
                found[effect.id] = told_of(effect, Viability.FAILS, lost)
            elif traits_of(effect.change).layered:
                in_a_layer.append(effect)
                continue
            elif traits_of(effect.change).calls:
                from takeback.runs.rehearsals.call import rehearse_call

                found[effect.id] = rehearse_call(opened.parts, effect)
            else:
                found[effect.id] = rehearse_at_its_place(opened.parts, effect)
            opened.progress.moved(items=1)
        places = [path for effect in in_a_layer for path in places_of(effect)]
        before = sight(dict.fromkeys(places))
        found |= _in_a_layer(opened, in_a_layer)
        opened.progress.moved(items=len(in_a_layer))
    disturbed = touched_since(before)
    if disturbed:
        found |= {
            one.id: told_of(
                one, Viability.CANNOT, "someone changed its targets while it was tried; try again"
            )
            for one in in_a_layer
            if any(without_fragment(each.resource) in disturbed for each in one.targets)
        }
    return Rehearsal(tuple(found[one.id] for one in effects), disturbed=disturbed)


def _lost_layers(opened: OpenStore, effect: Effect) -> str:
    """An undo of a box also goes back to a point that is lost, if the present one is lost too. That helps no one."""
    from takeback.adapters.protocol import traits_of

    if not traits_of(effect.change).boxes:
        return ""
    from takeback.model.box import point_from_json

    layers = opened.store.layers()
    for target in effect.targets:
        try:
            there = layers.complete(point_from_json(target.before))
        except TakebackError as error:
            return str(error)
        if not there:
            return "the layers of the point that it goes back to are lost"
    return ""


def _in_a_layer(opened: OpenStore, effects: Sequence[Effect]) -> dict[str, Rehearsed]:
    from takeback.engine.rehearse import told_of
    from takeback.runs.rehearsals.room import rehearse_in_layer

    if not effects:
        return {}
    by_id = {one.id: one for one in effects}

    def cannot(why: str) -> dict[str, Rehearsed]:
        return {one.id: told_of(one, Viability.CANNOT, why) for one in effects}

    if why := _no_copy(opened):
        return cannot(why)
    request = {"effects": list(by_id)}
    try:
        answer = rehearse_in_layer(
            opened.parts, os.path.realpath(opened.store.path), request, _sqlite_files(effects)
        )
    except TakebackError as error:
        return cannot(str(error))
    found = cannot(answer.trouble or "the rehearsal said nothing of it")
    for told in answer.told:
        effect = by_id[told["effect"]]
        targets = tuple(RehearsedTarget(name, Viability(proof), why) for name, proof, why in told["targets"])
        proof = Viability(told["outcome"])
        if told.get("conflict") and not _in_the_world_too(opened, effect):
            found[effect.id] = told_of(
                effect, Viability.CANNOT, f"a layer shows it in another way ({told['why']})"
            )
            continue
        whole = told_of(effect, proof, told["why"], told["milliseconds"])
        found[effect.id] = whole._replace(targets=_with_others(whole.targets, targets, proof))
    return found


def _planned(opened: OpenStore, path: "Path", dry_run: bool) -> Rehearsal:
    from takeback.runs.rehearsals.plan import read_plan
    from takeback.runs.rehearsals.room import rehearse_in_layer

    plan = read_plan(os.fsdecode(path))
    cannot = [Rehearsed("", "", "", Viability.CANNOT, "", step.summary) for step in plan.steps]
    if dry_run:
        told = "it would be made in a layer over the world, and undone there"
        return Rehearsal(tuple(one._replace(outcome=Viability.WORKS, why=told) for one in cannot))
    steps = [{"kind": one.kind, "args": one.args} for one in plan.steps]
    request = {"effects": [], "plan": steps, "cwd": os.getcwd()}
    databases = _sqlite_of(plan.steps)
    try:
        if why := _no_copy(opened):
            raise ResourceUnreachable(why)
        answer = rehearse_in_layer(
            opened.parts, os.path.realpath(opened.store.path), request, databases, plan.network,
            (os.path.dirname(opened.store.hook_note), _PACKAGE, *_with_side_files(databases)),
        )  # fmt: skip
    except Unavailable as error:
        return Rehearsal(tuple(one._replace(why=str(error)) for one in cannot))
    found = [one._replace(why=answer.trouble or "the rehearsal said nothing of it") for one in cannot]
    for told in answer.told:
        targets = tuple(RehearsedTarget(name, Viability(proof), why) for name, proof, why in told["targets"])
        number = int(told["step"])
        found[number] = Rehearsed(
            "", told.get("adapter", ""), told.get("strategy", ""), Viability(told["outcome"]), told["why"],
            plan.steps[number].summary, targets, told.get("milliseconds", 0),
        )  # fmt: skip
    return Rehearsal((*found, *_left_behind(answer.left)))


def _left_behind(left: Sequence[tuple[str, str]]) -> tuple[Rehearsed, ...]:
    """Everything was undone, and there is still something that is not in the world."""
    if not left:
        return ()
    targets = tuple(RehearsedTarget(name, Viability.FAILS, f"it is {words}") for name, words in left)
    why = "left behind, because nothing watched it; name its directory in `roots`"
    return (Rehearsed("", "", "", Viability.FAILS, why, "everything undone", targets),)


def _sqlite_of(steps: "Sequence[PlannedStep]") -> list[str]:
    from takeback.adapters.sqlite.session import path_of
    from takeback.model.database import Database

    named = (path_of(Database("sqlite", one.args["sql"])) for one in steps if one.kind == "sql")
    return [os.path.realpath(path) for path in named]


def _with_side_files(databases: Sequence[str]) -> list[str]:
    """An undo puts their rows back; what the log of takeback takes up in them stays."""
    return [f"{path}{ending}" for path in databases for ending in ("", "-wal", "-shm", "-journal")]


def _in_the_world_too(opened: OpenStore, effect: Effect) -> bool:
    """Whether what stood in the way in the layer does so in the world, as far as its plan can tell."""
    from takeback.engine.rehearse import plan_of

    try:
        plan_of(opened.parts, effect)
    except TakebackError:
        return True
    return False


def _with_others(
    known: tuple[RehearsedTarget, ...], told: tuple[RehearsedTarget, ...], proof: Viability
) -> tuple[RehearsedTarget, ...]:
    """Of an effect that fails, the targets that were named; the others have not been proven either."""
    if not told:
        return known
    names = {one.resource for one in told}
    rest = "" if proof is Viability.WORKS else "another target of the same effect stands in the way"
    return (*told, *(one._replace(why=rest) for one in known if one.resource not in names))


def _no_copy(opened: OpenStore) -> str:
    from takeback.storage.sqlite.store import DiskStore

    if isinstance(opened.store, DiskStore):
        return ""
    return "the store is on a server, and only a store on this machine can be copied for a rehearsal"


def _sqlite_files(effects: Sequence[Effect]) -> list[str]:
    from takeback.engine.rehearse import is_database_file

    found = [one for one in effects if is_database_file(one)]
    if not found:
        return []
    from takeback.adapters.database import database_of
    from takeback.adapters.sqlite.session import path_of

    return [path_of(database_of(one)) for one in found]


def _recorded(opened: OpenStore, found: Rehearsal, dry_run: bool) -> Rehearsal:
    if dry_run or not found.rehearsed:
        return found
    from takeback.model.record import STORE, Draft, Kind

    drafts = [Draft(Kind.REHEARSE, STORE, "", body) for body in bodies(found)]
    records = opened.store.journal.append(None, drafts)
    return found._replace(at=records[-1].at)
