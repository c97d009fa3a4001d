"""A MariaDB or MySQL database: its own triggers log what is changed, and a marker in the same transaction tells."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from takeback.adapters.database import (
    NO_SOCKET,
    USUAL,
    Cover,
    DatabaseAdapter,
    DatabaseSession,
    GiveUp,
    Keyring,
    RowChange,
    Tell,
    Waiting,
    asked_for,
    database_of,
    found_with,
    nothing_to_give_up,
    obstructed,
    quiet,
    sighted,
)
from takeback.adapters.mariadb import markers, net, programs, protection, row_report, undo
from takeback.adapters.mariadb.ddl import change
from takeback.adapters.mariadb.logs import OPS
from takeback.adapters.mariadb.registry import identity_of, op_number, read, refuse_unprotected
from takeback.adapters.mariadb.session import MariaSession, refuse_other
from takeback.adapters.mariadb.wire import LOCKED, OVERDUE, Wire, code_of, connected, driver, words
from takeback.adapters.protocol import TRAITS, Assessment, FoundChange, Receipt, demand_remedy
from takeback.errors import Misuse, Refused, ResourceUnreachable, TakebackError
from takeback.model.change import UNDO, Change, OnConflict
from takeback.model.database import Database, Holder, busy, resource_of, target_of
from takeback.model.effect import Effect, State
from takeback.model.ids import new_id, short
from takeback.model.plan import Outcome, Sighting, TargetOutcome
from takeback.model.remedy import Offer, Strategy
from takeback.storage.protocols import Blobs

_WHY = "the database logs every row before and after, in the transaction that changes it"
_TRIES = 5
PROGRAM = "program"
_Found = TypeVar("_Found")


class MariaAdapter(DatabaseAdapter):
    name = "mariadb"
    traits = TRAITS["mariadb"]

    def __init__(self, blobs: Blobs, keyring: Keyring, waiting: Waiting = USUAL) -> None:
        self.blobs = blobs
        self.keyring = keyring
        self._waiting = waiting

    def connect(self, database: Database) -> DatabaseSession:
        wire = connected(database, self.keyring.url(database))
        try:
            session = MariaSession(wire, self._waiting.seconds, lambda: self._holder(database))
            refuse_other(database, session.database.identity)
        except BaseException:
            wire.close()
            raise
        return session

    def cover(self, database: Database) -> Cover:
        with self._wire(database) as wire:
            return protection.cover(wire)

    def protect(self, database: Database, tables: Sequence[str]) -> Cover:
        with self._wire(database) as wire:
            return protection.protect(wire, tables)

    def unprotect(
        self, database: Database, tables: Sequence[str], give_up: GiveUp = nothing_to_give_up
    ) -> Cover:
        with self._wire(database) as wire:
            return protection.unprotect(wire, tables, give_up)

    def lost_by_unprotect(
        self, database: Database, tables: Sequence[str], effects: Sequence[Effect]
    ) -> Sequence[Effect]:
        with self._wire(database) as wire:
            if not identity_of(wire):  # it is gone already: someone else removed it, or was killed on the way
                return [one for one in effects if resource_of(database_of(one)) == resource_of(database)]
            known = row_report.lost_by_unprotect(wire, read(wire), tables, change.later_on(wire, tables, 0))
        return [one for one in effects if one.id in known]

    def assess(self, change: Change, of: Effect | None = None) -> Assessment:
        offers = (Offer(Strategy.SNAPSHOT, why=_WHY),)
        if change.kind == UNDO:
            database = database_of(demand_remedy(of))
            outcomes = self._outcomes(database, change.undo.on_conflict, demand_remedy(of))
            return Assessment((resource_of(database),), offers, outcomes=outcomes)
        if change.kind == PROGRAM:
            with self._wire(asked_for(change, None)) as wire:
                refuse_unprotected(read(wire))
        return Assessment((change.resource,), offers)

    def apply(self, effect: Effect) -> Receipt:
        if effect.change.kind == UNDO:
            if self._plan_of(demand_remedy(effect.of)):
                return Receipt(self._move_back(effect))
            return Receipt(self._retried(database_of(effect), lambda wire: _take_back(wire, effect)))
        if effect.phase.reviewed is not None:
            return Receipt(self._keep(effect))
        raise Misuse(
            "What this effect changed came from a session that has ended.", hint="It cannot be made again."
        )

    def verify(self, effect: Effect) -> Sighting:
        """Only the marker decides. A session that may still be writing it is ended first, so that nothing comes after
        the answer."""
        with self._own(effect) as wire:
            markers.hold_alone(wire, effect.id)
            change.settle(wire, effect.id)
            found = op_number(wire, effect.id)
            receipt = markers.receipt_of(wire, effect.id) if found else {}
            held = effect.phase.reviewed is not None and not found and markers.is_held(wire, effect.id)
            wire.run(markers.letting_go(wire, effect.id))
        return sighted(effect, receipt if found and not found[2] else None, held)

    def undo(self, effect: Effect) -> None:
        """Reverse the effect; delete its marker and its images too."""
        if effect.phase.reviewed is not None and self._dropped(effect):
            return

        def work(wire: Wire) -> dict[str, Any]:
            found = op_number(wire, effect.id, lock=True)
            if found is None or found[2]:
                return {}
            taking = undo.take_back(wire, read(wire), found[0], OnConflict.REFUSE)
            undo.refuse_conflicts(taking, OnConflict.REFUSE, False)
            undo.swap(wire, effect.id, effect.id)
            undo.forget(wire, found[0])
            wire.run(f"DELETE FROM {OPS} WHERE no = {found[0]}")
            return {}

        plan = self._plan_of(effect)
        if plan is None:
            self._retried(database_of(effect), work)
            return
        with self._wire(database_of(effect)) as wire:
            markers.hold(wire, effect.id)
            found = op_number(wire, effect.id)
            if found and not found[2]:
                change.take_out(wire, effect.id, plan)

    def rehearse(self, effect: Effect) -> str:
        if self._plan_of(effect):
            raise ResourceUnreachable("MariaDB cannot roll a change of the schema back, so it was not tried.")

        def work(wire: Wire) -> undo.Taking:
            found = _found(wire, effect, lock=True)
            _refuse_taken_back(found, effect)
            taking = undo.take_back(wire, read(wire), found[0], OnConflict.REFUSE)
            undo.refuse_conflicts(taking, OnConflict.REFUSE, False)
            return taking

        count = self._retried(database_of(effect), work, dry=True).applied
        return f"in a transaction that was rolled back: {count} row{'s' if count != 1 else ''}"

    def tidy(self, effect: Effect) -> None:
        """Nothing is held outside the database; and in it only what waits for a decision."""
        if effect.phase.reviewed is not None and effect.state is State.PROPOSED:
            self._dropped(effect)

    def release(self, effect: Effect) -> None:
        with self._wire(database_of(effect)) as wire:
            found = op_number(wire, effect.id) if identity_of(wire) else None
            if found:
                plan = change.plan_of(wire, effect.id)
                if plan:
                    plan.throw_away(wire, bool(found[2]))
                undo.forget(wire, found[0])

    def standing_on(self, effect: Effect) -> Sequence[str]:
        with self._wire(database_of(effect)) as wire:
            found = op_number(wire, effect.id) if identity_of(wire) else None
            if found is None:
                return ()
            registry = read(wire)
            no = found[0]
            if plan := change.plan_of(wire, effect.id):
                reshaped = change.later_on(wire, plan.names, no)
                return row_report.later_on(wire, registry, plan.names, no, reshaped)
            parts, gone = undo.touched(wire, registry, no)
            reshaped = change.later_on(wire, undo.names(wire, no), no) if gone else set[int]()
            return row_report.standing_on(wire, registry, parts, no, reshaped)

    def rows(self, effect: Effect) -> Iterator[RowChange]:
        with self._own(effect) as wire:
            found = op_number(wire, effect.id)
            if found is None:
                return
            undo.settle_session(wire)
            parts, _ = undo.touched(wire, read(wire), found[0])
            yield from row_report.changes(wire, parts, found[0])

    def enter(self, effect: Effect, tell: Tell = quiet) -> Mapping[str, str]:
        database = database_of(effect)
        with self._wire(database) as wire:
            refuse_other(database, identity_of(wire))
            return programs.enter(wire, effect, database, self.keyring.url(database))

    def out_of_reach(self, database: Database) -> str:
        return NO_SOCKET if "socket=" in database.url.partition("?")[2] else ""

    def leave(self, effect: Effect) -> dict[str, Any] | None:
        with self._own(effect) as wire:
            return programs.leave(wire, effect)

    def found(self, effect: Effect, others: Sequence[Effect]) -> FoundChange | None:
        """Of a program whose watcher died."""
        return found_with(effect, self.leave(effect))

    @contextmanager
    def _wire(self, database: Database) -> Iterator[Wire]:
        wire = connected(database, self.keyring.url(database))
        try:
            with words(database):
                yield wire
        finally:
            wire.close()

    @contextmanager
    def _own(self, effect: Effect) -> Iterator[Wire]:
        with self._wire(database_of(effect)) as wire:
            refuse_other(wire.database, identity_of(wire))
            yield wire

    def _outcomes(self, database: Database, policy: OnConflict, of: Effect) -> tuple[TargetOutcome, ...]:
        """By trying, in a transaction that is rolled back."""

        def work(wire: Wire) -> undo.Taking:
            return undo.take_back(wire, read(wire), _found(wire, of)[0], policy, dry=True)

        own = target_of(database, of.id)
        if plan := self._plan_of(of):
            with self._wire(database) as wire:
                back = plan.inverse("assessed")
                bad = back.obstacles(wire, read(wire), policy is OnConflict.FORCE)
            if not bad:
                return (TargetOutcome(own, Outcome.UNDONE),)
            return tuple(obstructed(database, detail, name) for name, detail in bad)
        taking = self._retried(database, work, dry=True)
        if taking.applied:
            return (TargetOutcome(own, Outcome.UNDONE), *taking.refused)
        if taking.refused:
            return taking.refused
        return (TargetOutcome(own, Outcome.ALREADY, "every row has its earlier values"),)

    def _keep(self, effect: Effect) -> dict[str, Any]:
        with self._own(effect) as wire:
            if not op_number(wire, effect.id):
                markers.decide(wire, effect.id, keep=True)
            if not op_number(wire, effect.id):
                raise Refused(
                    f"Effect {short(effect.id)} is not held any more: someone has rolled it back.",
                    hint="Nothing was changed.",
                )
            return markers.receipt_of(wire, effect.id)

    def _dropped(self, effect: Effect) -> bool:
        with self._own(effect) as wire:
            return not op_number(wire, effect.id) and markers.decide(wire, effect.id, keep=False)

    def _plan_of(self, effect: Effect) -> change.Plan | None:
        """If it was one that renames tables."""
        with self._own(effect) as wire:
            change.settle(wire, effect.id)
            return change.plan_of(wire, effect.id)

    def _move_back(self, effect: Effect) -> dict[str, Any]:
        of = demand_remedy(effect.of)
        with self._wire(database_of(effect)) as wire:
            markers.hold(wire, effect.id)
            markers.hold(wire, f"{of.id}:names")
            change.settle(wire, effect.id)
            if op_number(wire, effect.id):
                return markers.receipt_of(wire, effect.id)
            _refuse_taken_back(_found(wire, of), of)
            plan = change.plan_of(wire, of.id)
            assert plan
            force = effect.change.undo.on_conflict is OnConflict.FORCE
            return change.carry_out(wire, effect.id, of.id, plan.inverse(effect.id), force)

    def _holder(self, database: Database) -> Holder:
        with self._wire(database) as wire:
            return markers.holder(wire)

    def _waits_on(self, database: Database, limits: tuple[int, ...]) -> tuple[int, ...]:
        holder = self._holder(database)
        if not limits[1:]:
            raise busy(holder)
        self._waiting.tell(f"waiting for {holder.words}")
        return limits[1:]

    def _retried(self, database: Database, work: Callable[[Wire], _Found], dry: bool = False) -> _Found:
        """Run `work` in its own transaction, retrying on deadlock. Reports early which session blocks it."""
        limits = markers.in_turn(self._waiting.seconds)
        for tried in range(1, _TRIES + 1):
            with self._wire(database) as wire:
                refuse_other(database, identity_of(wire))
                undo.settle_session(wire, limits[0])
                name = new_id()
                try:
                    markers.start(wire, name)
                    found = work(wire)
                    if dry:
                        markers.roll_back(wire, name)
                    else:
                        markers.unmark(wire)
                        markers.commit(wire, name)
                    return found
                except driver().Error as error:
                    if code_of(error) not in LOCKED or tried == _TRIES:
                        raise
                    if code_of(error) == OVERDUE:
                        wire.close()
                        limits = self._waits_on(database, limits)
                except TakebackError:
                    markers.roll_back(wire, name)
                    raise
        raise AssertionError("unreachable")


def _take_back(wire: Wire, effect: Effect) -> dict[str, Any]:
    of = demand_remedy(effect.of)
    markers.hold(wire, effect.id)
    if op_number(wire, effect.id):
        return markers.receipt_of(wire, effect.id)
    found = _found(wire, of, lock=True)
    _refuse_taken_back(found, of)
    policy, partly, registry = effect.change.undo.on_conflict, effect.change.undo.partial, read(wire)
    number = markers.mark(wire, effect.id, of.id)
    taking = undo.take_back(wire, registry, found[0], policy)
    undo.refuse_conflicts(taking, policy, partly)
    receipt = net.record(wire, registry, number, net.count(wire, registry, number))
    if partly:
        undo.leave_out(wire, taking, found[0], number)
    else:
        undo.swap(wire, of.id, effect.id)
    return receipt


def _refuse_taken_back(found: tuple[int, str, str], of: Effect) -> None:
    if found[2]:
        raise Refused(
            f"Effect {short(of.id)} was taken back at the same time (by {short(found[2])}).",
            hint="There is nothing left to undo.",
        )


def _found(wire: Wire, of: Effect, lock: bool = False) -> tuple[int, str, str]:
    found = op_number(wire, of.id, lock)
    if found is None:
        raise Refused(
            f"The database knows nothing of effect {short(of.id)}.",
            hint="Was it restored from a copy that is older than the effect?",
        )
    return found
