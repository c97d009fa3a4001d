"""How often an undo asks the world and the journal: counted, not timed."""

import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest

import takeback
import takeback.adapters.file.adapter as file_adapter
import takeback.adapters.file.capture as file_capture
import takeback.adapters.file.look as file_look
import takeback.engine.undo as engine_undo
from takeback.model.record import Kind
from takeback.storage.protocols import Query
from takeback.storage.sqlite.journal import SqlJournal
from tests.behaviour.conftest import Scene


class Counts:
    """Wraps functions, and counts their calls by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: Counter[str] = Counter()
        self._monkeypatch = monkeypatch

    def of(self, owner: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def counted(*given: Any, **named: Any) -> Any:
            self.calls[name] += 1
            return real(*given, **named)

        self._monkeypatch.setattr(owner, name, counted)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    counts = Counts(monkeypatch)
    for owner in (file_adapter, file_capture):
        counts.of(owner, "plan_undo")
    counts.of(file_adapter.FileAdapter, "assess")
    counts.of(file_look, "read_file")
    counts.of(SqlJournal, "effects")
    return counts


def test_an_undone_file_is_assessed_once_and_read_once_for_each_promise(scene: Scene, counts: Counts) -> None:
    scene.write("a.txt", "old")
    effect = scene.write("a.txt", "new")
    counts.calls.clear()

    scene.tb.undo(effect.id)

    assert scene.text("a.txt") == "old"
    assert counts.calls["assess"] == 1
    assert counts.calls["plan_undo"] == 1
    # By the plan, kept for redo, compared after the swap, and seen to be back.
    assert counts.calls["read_file"] == 4


def test_an_undone_file_asks_the_journal_a_few_times(scene: Scene, counts: Counts) -> None:
    scene.write("a.txt", "old")
    scene.tb.undo(scene.write("b.txt", "first of this process"))
    effect = scene.write("a.txt", "new")
    statements: list[str] = []
    connection = cast("sqlite3.Connection", scene.tb.store.database._connection)  # pyright: ignore
    counts.calls.clear()

    connection.set_trace_callback(statements.append)
    scene.tb.undo(effect.id)
    connection.set_trace_callback(None)

    # The effect itself: none began since, and what becomes of it is known.
    assert counts.calls["effects"] == 1
    assert sum(one.startswith("SELECT") for one in statements) <= 32
    # Its run, the intent, and the outcome with the end of the run; and what the write has put off.
    assert statements.count("COMMIT") <= 4


def test_an_older_effect_is_not_taken_for_the_newest(scene: Scene, counts: Counts) -> None:
    effect = scene.write("a.txt", "new")
    later = scene.write("a.txt", "newer")

    with pytest.raises(takeback.Blocked) as refused:
        scene.tb.undo(effect.id)

    assert refused.value.blockers == (later.id,)


@pytest.mark.parametrize("several", [False, True])
def test_the_result_tells_of_the_effects_what_the_journal_does(scene: Scene, several: bool) -> None:
    effects = [scene.write("a.txt", "new"), *([scene.write("b.txt", "new")] if several else [])]

    ids = tuple(one.id for one in effects)
    told = {"undo": scene.tb.undo(ids).effects}
    journal = scene.tb.store.journal
    recorded = {"undo": tuple(journal.effects(Query(ids=ids, newest=True)))}
    undos = tuple(one.undone_by for one in recorded["undo"])

    told["redo"] = scene.tb.redo().effects
    recorded["redo"] = tuple(journal.effects(Query(ids=undos, newest=True)))
    assert told == recorded


def test_the_end_of_an_undo_is_recorded_with_its_outcome(scene: Scene) -> None:
    effect = scene.write("a.txt", "new")
    (undo,) = scene.tb.undo(effect.id).undo

    done, close = list(scene.tb.store.journal.records())[-2:]
    assert (done.kind, done.effect, close.kind, close.run) == (Kind.DONE, undo.id, Kind.CLOSE, undo.run)
    holder = scene.tb.store.leases.holder(undo.run)
    assert holder is not None and holder.owner.pid == 0


def test_a_short_undo_starts_no_thread_for_its_lease(scene: Scene) -> None:
    effect = scene.write("a.txt", "new")
    before = set(threading.enumerate())  # other tests of this process may have left some
    scene.tb.undo(effect.id)
    begun = set(threading.enumerate()) - before
    assert not [one for one in begun if one.name.startswith("takeback-lease-")]


@pytest.mark.parametrize("disguised", [False, True])
def test_a_change_between_plan_and_act_is_found(
    scene: Scene, counts: Counts, monkeypatch: pytest.MonkeyPatch, disguised: bool
) -> None:
    """Disguised: the same file, as long and with the same times as before."""
    scene.write("a.txt", "old")
    effect = scene.write("a.txt", "new")
    path = scene.world / "a.txt"
    carry_out = engine_undo.carry_out

    def changed_first(*given: Any) -> Any:
        status = os.stat(path)
        path.write_text("NEW" if disguised else "edited")
        if disguised:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        counts.calls.clear()
        return carry_out(*given)

    monkeypatch.setattr(engine_undo, "carry_out", changed_first)
    with pytest.raises(takeback.Refused):
        scene.tb.undo(effect.id)

    assert scene.text("a.txt") == ("NEW" if disguised else "edited")
    assert counts.calls["plan_undo"] == 1  # it was looked at again
    assert scene.state(effect) == "done"
    assert not scene.scratch()
