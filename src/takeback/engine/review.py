"""A transaction that was made and not committed: proposed with what it changed, then applied or discarded."""

import json
from itertools import islice
from typing import NamedTuple

from takeback.adapters.database import OPEN, DatabaseSession, Reviewing, RowChange, Rows
from takeback.adapters.database import Reviewed as Shown
from takeback.engine.guards import COMMIT, REVIEW
from takeback.engine.parts import Parts, adapter_of, named
from takeback.engine.settle import abort, finish
from takeback.engine.stop import refuse_stopped
from takeback.engine.write import Ready, Terms, announced, ready
from takeback.engine.write import propose as propose_effect
from takeback.errors import InDoubt, Misuse, Refused, ResourceUnreachable, RowsHeld, Unavailable, VerifyFailed
from takeback.model.change import Change, Review
from takeback.model.effect import PERSON, Effect, State
from takeback.model.ids import new_id, short
from takeback.model.plan import Standing
from takeback.model.record import Draft, Kind
from takeback.model.run import Lease, Owner
from takeback.storage.protocols import Blobs, Query

MOST_ROWS = 1_000
GONE = "It is not held any more: the database has rolled it back."


def begin(parts: Parts, lease: Lease, change: Change, terms: Terms) -> Effect:
    """Known to no one else until it is proposed. Held or done, if it was made before under the same key."""
    made = ready(parts, lease, change, terms, REVIEW)
    assert made is not None
    return made.effect


def refuse_unshowable(session: DatabaseSession) -> Reviewing:
    if isinstance(session, Reviewing):
        return session
    session.close()
    raise Misuse(
        "Changes of this kind of database cannot be shown before they are made.",
        hint="Nothing was changed. Made at once (without --dry-run, --hold or --ask), it can be taken back.",
    )


def _nothing_is_saved(size: int) -> None:
    """So nothing has to give up its room."""


class TriedStatement(NamedTuple):
    answer: Rows
    effect: Effect | None = None  # as it would be proposed; None if nothing would change
    rows: tuple[RowChange, ...] = ()


def tried(parts: Parts, session: DatabaseSession, change: Change, statement: str) -> TriedStatement:
    """Made, looked at and rolled back. The journal never hears of it, and the database forgets it."""
    parts = parts._replace(refuse_without_room=_nothing_is_saved, stops=tuple)
    nobody = Lease(new_id(), 0, Owner("", "", 0, ""), 0)
    made = ready(parts, nobody, change, Terms(), REVIEW)
    assert made is not None
    try:
        session.begin(made.effect)
        answer = session.execute(statement, ())
        shown = refuse_unshowable(session).review()
        if shown.receipt is None:
            return TriedStatement(answer)
        rows = tuple(islice(iter(shown.rows), MOST_ROWS + 1))
        reviewed = Review(shown.how, shown.receipt, rows="")
        phase = made.effect.phase._replace(waits=PERSON, reviewed=reviewed)
        effect = made.effect._replace(change=made.effect.change._replace(phase=phase))
        return TriedStatement(answer, effect, rows)
    except RowsHeld as error:
        raise named(parts, change.resource, error) from error
    finally:
        session.rollback()


def propose(parts: Parts, lease: Lease, effect: Effect, shown: Shown, until: int) -> Effect:
    """Durable before the database is asked to hold it."""
    found = tuple(islice(iter(shown.rows), MOST_ROWS + 1))
    rows = parts.blobs.put(_packed(found))
    reviewed = Review(shown.how, shown.receipt or {}, rows, until)
    change = effect.change._replace(phase=effect.phase._replace(waits=PERSON, reviewed=reviewed))
    remedy = effect.remedy._replace(blobs=(*effect.remedy.blobs, rows)) if effect.remedy else None
    effect = effect._replace(change=change, remedy=remedy)
    return propose_effect(parts, lease, effect)


def apply(parts: Parts, lease: Lease, effect: Effect, terms: Terms) -> Effect:
    """Commit and confirm it. From the intent on it is decided: recovery after a crash commits it too."""
    parts.refuse_if_suspect()
    refuse_stopped(parts, effect.agent, effect.run)
    adapter, reviewed = adapter_of(parts, effect.change.adapter), effect.phase.reviewed
    assert reviewed
    if adapter.verify(effect).standing is Standing.BEFORE:
        raise _gone(parts, lease, effect)
    with terms.held_back():
        effect = effect._replace(change=effect.change._replace(phase=effect.phase._replace(waits="")))
        effect = announced(parts, lease, Ready(adapter, effect, COMMIT), terms)
        try:
            adapter.apply(effect)
        except (InDoubt, Unavailable) as error:
            standing = adapter.verify(effect).standing  # raises if it cannot be asked
            if standing is Standing.BETWEEN:
                raise ResourceUnreachable(
                    f"{effect.change.summary}: the database did not answer.",
                    hint="It is decided, and still held: `takeback recover` commits it.",
                    effect=effect.id,
                ) from error
        except Refused:
            if adapter.verify(effect).standing is Standing.BEFORE:
                abort(parts, lease, adapter, effect, GONE)
            raise
        if adapter.verify(effect).standing is not Standing.AFTER:
            raise VerifyFailed(
                f"{effect.change.summary}: the database says that this never happened.", effect=effect.id
            )
        return finish(parts, lease, adapter, effect, reviewed.receipt)


def _gone(parts: Parts, lease: Lease, effect: Effect) -> Refused:
    parts.journal.append(lease, [Draft(Kind.ABORT, effect.run, effect.id, {"why": GONE})])
    return Refused(
        f"Effect {short(effect.id)} is not held any more: the database has rolled it back.",
        hint="Nothing was changed. Let the agent do it again; a session holds a transaction open for a limited time.",
        effect=effect.id,
    )


def settle_reviewed(parts: Parts, lease: Lease) -> list[Effect]:
    """Of a run whose process has died: what only its session held is gone; what the database holds waits on."""
    found = parts.journal.effects(Query(run=lease.run, states=(State.PROPOSED,)))
    return [gone for one in found if one.waits_for == PERSON and (gone := _settled(parts, lease, one))]


def _settled(parts: Parts, lease: Lease, effect: Effect) -> Effect | None:
    reviewed = effect.phase.reviewed
    if reviewed is None:
        return None
    if reviewed.how != OPEN:
        try:
            if adapter_of(parts, effect.change.adapter).verify(effect).standing is not Standing.BEFORE:
                return None
        except (Unavailable, InDoubt):
            return None  # applying it finds out
    parts.journal.append(lease, [Draft(Kind.ABORT, effect.run, effect.id, {"why": GONE})])
    return effect._replace(state=State.ABORTED, note=GONE)


def drop_all(parts: Parts, lease: Lease) -> int:
    """A run that fails proposes nothing any more: what it holds would keep others waiting for the same rows. How many
    it held."""
    dropped = 0
    for effect in parts.journal.effects(Query(run=lease.run, states=(State.PROPOSED,))):
        if effect.waits_for == PERSON and effect.phase.reviewed:
            abort(parts, lease, adapter_of(parts, effect.change.adapter), effect, "Its run failed.")
            dropped += 1
    return dropped


def shown_rows(blobs: Blobs, effect: Effect) -> list[RowChange]:
    """The rows that it would change; one more than `MOST_ROWS` if there are more."""
    assert effect.phase.reviewed
    packed = b"".join(blobs.read(effect.phase.reviewed.rows))
    return [RowChange(*row) for row in json.loads(packed)]


def _packed(rows: tuple[RowChange, ...]) -> bytes:
    return json.dumps([tuple(row) for row in rows], ensure_ascii=False).encode("utf-8", "surrogatepass")
