"""Forget effects: recorded first, then adapters release what they keep; sweep deletes the bytes."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import cast

from takeback.adapters.database import Databases
from takeback.adapters.protocol import Releasing
from takeback.engine.parts import Parts, adapter_of
from takeback.errors import InDoubt, RecordInvalid, Refused, Unavailable
from takeback.model.database import ENGINES, Database, is_of_database
from takeback.model.effect import COMMAND, PERSON, Effect, State, waits_for_approval
from takeback.model.ids import LENGTH, short
from takeback.model.lifecycle import ACCEPTS
from takeback.model.record import Draft, Kind
from takeback.model.run import UNFINISHED, OnDeath
from takeback.model.settings import Settings
from takeback.retention.candidates import Verdict, Weighed, barred_without, decide, earlier_standing, spare
from takeback.storage.protocols import Query

BATCH = 500

_APPROVAL = "approval"
_WAITING = {
    _APPROVAL: "`takeback approve {0}` or `takeback deny {0}`.",
    PERSON: "`takeback discard {}` drops the held change.",
    COMMAND: "Its command has not ended, or its changes are not recorded yet: `takeback recover` says which.",
}


def by_policy(parts: Parts, settings: Settings, now: int) -> tuple[Verdict, ...]:
    """A decision, with its reason, for every effect there is."""
    return spare(decide(weighed(parts, parts.journal.effects(Query())), settings, now))


def named(parts: Parts, effects: Sequence[Effect]) -> tuple[Verdict, ...]:
    """Someone asks for these, accepted or not."""
    for effect in effects:
        if effect.forgotten:
            raise Refused(
                f"Effect {short(effect.id)} is already forgotten.", hint="Its record stays for the audit."
            )
        if effect.pinned:
            raise Refused(
                f"Effect {short(effect.id)} is pinned.",
                hint=f"`takeback unpin {short(effect.id)}` first, if its way back may go.",
                effect=effect.id,
            )
        if effect.state is State.ABORTED:
            raise Refused(
                f"Effect {short(effect.id)} never happened: {effect.note or 'it was aborted.'}",
                hint="There is nothing to forget. Its record stays for the audit.",
            )
        if effect.state not in (State.DONE, State.UNDONE, State.DROPPED):
            name, waits, stands = short(effect.id), effect.waits_for, f"is {effect.state.value}"
            if waits_for_approval(effect):
                waits, stands = _APPROVAL, "waits for an approval"
            raise Refused(
                f"Effect {name} {stands}; only what is settled can be forgotten.",
                hint=_WAITING.get(waits, "Run `takeback recover` first.").format(name),
            )
    refuse_of_unfinished(parts, effects)
    going = {effect.id for effect in effects}
    for effect in effects:
        _refuse_pinned(parts, effect, going)
    found: list[Verdict] = []
    for effect in effects:
        barred = barred_without(parts, effect, going)
        why = "goes: someone asked for it by name" + (f"; {barred}" if barred else "")
        found.append(Verdict(effect, True, why))
    return tuple(found)


def with_its_database(parts: Parts, database: Database, tables: Sequence[str]) -> tuple[Verdict, ...]:
    """The ways back that go when a database, or these tables of it, are no longer protected. Refused as `named` is."""
    adapter = adapter_of(parts, database.engine)
    assert isinstance(adapter, Databases)
    found = parts.journal.effects(Query(remembered=True, newest=True))
    never_made = (State.ABORTED, State.DROPPED)
    same = [one for one in found if ENGINES.get(one.change.resource.partition("://")[0]) == database.engine]
    own = [one for one in same if one.state not in never_made]
    lost = named(parts, adapter.lost_by_unprotect(database, tables, own)) if own else ()
    return tuple(one._replace(why="goes: its database was unprotected") for one in lost)


def refuse_of_unfinished(parts: Parts, effects: Sequence[Effect]) -> None:
    """A run that has not ended takes back what it did if it fails or dies. The session of the command line does not,
    and what a person accepted stays."""
    made = [one for one in effects if one.state is not State.DROPPED]
    runs = tuple(dict.fromkeys(one.run for one in made if one.accepted_by != "person" and one.run))
    unfinished = {one.id: one for one in parts.journal.runs(runs) if one.state in UNFINISHED} if runs else {}
    for effect in made:
        info = unfinished.get(effect.run) if effect.accepted_by != "person" else None
        if info and info.on_death is not OnDeath.LEAVE:
            raise Refused(
                f"Effect {short(effect.id)} belongs to run {short(info.id)} ({info.name}), which has not ended and may "
                "still take it back.",
                hint=f"Nothing was forgotten. Wait for its end, `takeback accept {short(effect.id)}` first, or, if its "
                "process is gone, `takeback recover`.",
                effect=effect.id,
            )


def _refuse_pinned(parts: Parts, effect: Effect, going: set[str]) -> None:
    """A pinned effect could not be undone beneath a later one that was forgotten."""
    for one in earlier_standing(parts, effect, going):
        if one.pinned:
            raise Refused(
                f"The pinned effect {short(one.id)} could not be undone without effect {short(effect.id)}.",
                hint=f"`takeback unpin {short(one.id)}` first, if its way back may go.",
                effect=effect.id,
            )


def forget(parts: Parts, decisions: Sequence[Verdict], held: str) -> None:
    for one in decisions:
        if one.forget and one.effect.state is State.DROPPED:
            _erase(parts, one, held)
    going = [one for one in decisions if one.forget and one.effect.state is not State.DROPPED]
    for batch in record_forgotten(parts, going, held):
        release(parts, [one.effect for one in batch], held)


def record_forgotten(parts: Parts, going: Sequence[Verdict], held: str) -> Iterator[Sequence[Verdict]]:
    """Each batch, once it is recorded: from then on adapters may release what they keep for it."""
    for start in range(0, len(going), BATCH):
        batch = going[start : start + BATCH]
        for one in batch:
            if is_of_database(one.effect.change.resource):
                # What lies in a database is let go of later, whatever becomes of this process.
                with open(_debt(held, one.effect), "wb"):
                    pass
        drafts = [Draft(Kind.FORGET, one.effect.run, one.effect.id, _said(one)) for one in batch]
        parts.journal.append(None, drafts)
        yield batch


def _erase(parts: Parts, decision: Verdict, held: str) -> None:
    """One at a time: another process may have applied or erased one of them in between."""
    effect = decision.effect
    try:
        parts.journal.append(None, [Draft(Kind.ERASE, effect.run, effect.id, _said(decision))])
    except RecordInvalid:
        (fresh,) = parts.journal.effects(Query(ids=(effect.id,)))
        if fresh.state is State.DROPPED:
            raise
        return
    release(parts, [effect], held)


def _said(decision: Verdict) -> dict[str, str]:
    return {"why": decision.why} | ({"bound": decision.bound} if decision.bound else {})


def release(parts: Parts, effects: Iterable[Effect], held: str) -> None:
    """A database that does not answer is asked again at the next sweep."""
    silent: set[str] = set()
    for effect in effects:
        if not effect.remedy:
            continue
        adapter, resource = adapter_of(parts, effect.change.adapter), effect.change.resource
        if not adapter.traits.holds or resource in silent:
            continue
        try:
            cast(Releasing, adapter).release(effect)
        except (Unavailable, InDoubt, Refused):  # or another database answers there
            if not is_of_database(resource):
                raise
            silent.add(resource)
        else:
            if is_of_database(resource):
                with suppress(FileNotFoundError):
                    os.unlink(_debt(held, effect))


def _debt(held: str, effect: Effect) -> str:
    return os.path.join(held, f"{effect.id}.database")


def weighed(parts: Parts, effects: Iterable[Effect]) -> tuple[Weighed, ...]:
    listed = list(effects)
    few = len(listed) <= BATCH
    # Of a few effects only what is said of them is read; a store may have a million.
    ids = tuple({effect.run for effect in listed}) if few else ()
    runs = {info.id: info for info in parts.journal.runs(ids)} if listed else {}
    accepted_at = _accepted_at(parts, listed if few else None)
    forgotten = _forgotten_undos(parts, listed)
    return tuple(
        Weighed(
            effect,
            accepted_at.get(effect.id, runs[effect.run].closed_at if effect.run in runs else 0) or effect.at,
            effect.state is State.UNDONE and effect.undone_by in forgotten,
            effect.run in runs and runs[effect.run].on_death is OnDeath.LEAVE,
        )
        for effect in listed
    )


def _accepted_at(parts: Parts, effects: Sequence[Effect] | None) -> dict[str, int]:
    """When a person accepted each; None: of all there are."""
    if effects is None:
        return {record.effect: record.at for record in parts.journal.records(kinds=ACCEPTS)}
    return {
        one.id: record.at
        for one in effects
        if one.accepted_by == "person"
        for record in parts.journal.records(kinds=ACCEPTS, effect=one.id)
    }


def _forgotten_undos(parts: Parts, effects: list[Effect]) -> set[str]:
    undos = tuple({effect.undone_by for effect in effects if effect.undone_by})
    found: set[str] = set()
    for start in range(0, len(undos), BATCH):
        asked = parts.journal.effects(Query(ids=undos[start : start + BATCH]))
        found |= {effect.id for effect in asked if effect.forgotten}
    return found


def release_forgotten(parts: Parts, held: str) -> None:
    """Let go of what a process that died in the middle of forgetting still held."""
    try:
        names = os.listdir(held)
    except FileNotFoundError:
        return
    ids = tuple({name[:LENGTH] for name in names})
    found = parts.journal.effects(Query(ids=ids)) if ids else ()
    release(parts, [one for one in found if one.forgotten or one.state is State.ABORTED], held)
