"""The laws of every door into the world: a change made with a `Run`, as users make it, through a real store.

A door is a way to make a change: a verb of `Run`, a statement, a transaction, a program, a box, a call. Inherit
`DoorSuite` (and `KilledDoorSuite`) in a test module and give it a `scene`; `RefusingDoorSuite` takes a scene whose
change has no way back.
"""

import json
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import takeback
from takeback.errors import Conflict, Misuse, Refused
from takeback.model.effect import OPEN_STATES, PERSON, Effect, State
from takeback.testing import Record, law, refuse_unknown
from takeback.testing.adapter_suite import without_times
from takeback.testing.crash import Boundaries, in_a_process, killed_at, open_wrapped, wrap, wrap_system_calls

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.runs.run import Run

R = TypeVar("R", bound=Refused)
REDO = "redo is the undo of an undo, as often as you like"
TWICE = "twice under one key is once"
BLOBS = "a remedy lists every blob that it needs"
SECRET = "a remedy keeps no secret"
DRIFT = "what someone changed since is never overwritten"
INTENT = "nothing can be seen before its intent is durable"
ONLOOKER = "an onlooker sees before or after, and nothing between"
FAILED = "a run that fails is taken back"
FRESH = "another process takes it back"
# Those that a scene may be exempt from.
LAWS = (REDO, TWICE, BLOBS, SECRET, DRIFT, INTENT, ONLOOKER, FAILED, FRESH)


class DoorScene(ABC):
    """One door, a world behind it, and one change that is made through it."""

    door = ""  # in words, such as "SQLite, one statement"
    store = ""  # where its store is
    secret = ""  # what is used on the way and must not be recorded
    exempt: Mapping[str, str] = {}  # laws that do not apply, and why
    cascade = False  # a step of its own stands on the change, and is taken back with it

    @abstractmethod
    def make(self, run: "Run", key: str) -> Effect:
        """Make the change. The same key means the same change. It is made again after it was taken back."""

    @abstractmethod
    def world(self) -> Any:
        """All that undo promises to bring back, to be compared with `==`; scratch of any kind is in it."""

    @abstractmethod
    def disturb(self) -> None:
        """Someone else changes what the change is about, so that it is neither as before nor as after."""

    def environment(self) -> Mapping[str, str]:
        """Variables that another process needs to take the change back."""
        return {}

    def counts(self, effect: Effect) -> bool:
        """Whether the world shows this effect."""
        return True


def do(scene: DoorScene, key: str = "") -> Effect:
    with takeback.open(scene.store) as tb:
        return made(tb, scene, key)


def made(tb: "Takeback", scene: DoorScene, key: str = "") -> Effect:
    """As a command makes it: in an open run, which stays open."""
    run = tb.session("laws")
    try:
        return scene.make(run, key)
    finally:
        run.leave()


def undo(scene: DoorScene, effect: Effect) -> None:
    with takeback.open(scene.store) as tb:
        _undone(tb, scene, effect)


def _undone(tb: "Takeback", scene: DoorScene, effect: Effect) -> None:
    assert tb.undo(effect.id, cascade=scene.cascade).outcome == "done"


def in_force(scene: DoorScene) -> list[Effect]:
    with takeback.open(scene.store, recover=False) as tb:
        return [one for one in tb.effects(state=State.DONE) if not one.is_undo and scene.counts(one)]


def settle(scene: DoorScene) -> None:
    """As `takeback recover` does; a change that still waits for a person is discarded."""
    with takeback.open(scene.store) as tb:
        tb.recover()
        for one in tb.effects():
            if one.waits_for == PERSON:
                tb.discard(one.id)


def assert_settled(scene: DoorScene, where: str) -> None:
    """The store is sound, nothing is open, leased or left over, and settling again changes nothing."""
    with takeback.open(scene.store) as tb:
        findings = tb.verify(read_data=True).findings
        assert not findings, f"{where}: {findings}"
        unsettled = [one for one in tb.effects() if one.state in OPEN_STATES and one.waits_for != PERSON]
        assert not unsettled, f"{where}: {[(one.state, one.change.summary, one.note) for one in unsettled]}"
        leased = [one.name for one in tb.runs() if not tb.store.leases.free(one.id, time.time_ns() // 1000)]
        assert not leased, f"{where}: still leased: {leased}"
        world, records = scene.world(), tb.store.journal.tally()["records"]
        assert tb.recover() == (), where
        assert tb.store.journal.tally()["records"] == records, where
        assert scene.world() == world, where
    scratch = os.path.join(scene.store, "scratch")
    assert not os.path.isdir(scratch) or not os.listdir(scratch), f"{where}: {os.listdir(scratch)}"


@contextmanager
def refused(kind: type[R]) -> Iterator[list[R]]:
    """The one refusal that is expected, once it has come."""
    found: list[R] = []
    try:
        yield found
    except kind as refusal:
        found.append(refusal)
    assert found, "it was not refused"
    assert found[0].hint


def _exempt(scene: DoorScene) -> tuple[str, Mapping[str, str]]:
    keeps_nothing = {} if scene.secret else {SECRET: "no secret goes through it"}
    return scene.door, {**scene.exempt, **keeps_nothing}


_law = partial(law, of=_exempt)


class DoorSuite:
    def test_there_and_back_is_equal(self, scene: DoorScene) -> None:
        refuse_unknown(scene.exempt, LAWS, scene.door)
        before = scene.world()
        effect = do(scene)
        assert effect.state is State.DONE
        assert scene.world() != before
        assert_settled(scene, "done")
        undo(scene, effect)
        assert scene.world() == before
        assert_settled(scene, "undone")

    @_law(REDO)
    def test_redo_is_the_undo_of_an_undo_as_often_as_you_like(self, scene: DoorScene) -> None:
        before = scene.world()
        effect = do(scene)
        after = scene.world()
        for _ in range(3):
            undo(scene, effect)
            assert scene.world() == before
            with takeback.open(scene.store) as tb:
                tb.redo()
            assert scene.world() == after
            with takeback.open(scene.store) as tb:
                assert tb.effect(effect.id).state is State.DONE
        assert_settled(scene, "redone")

    def test_looking_changes_nothing(self, scene: DoorScene) -> None:
        effect = do(scene)
        after = scene.world()
        with takeback.open(scene.store) as tb:
            records = tb.store.journal.tally()["records"]
            planned = tb.undo(effect.id, dry_run=True, cascade=scene.cascade)
            assert planned.outcome == "planned" and planned.targets
            assert tb.effect(effect.id[:12]).id == effect.id
            assert tb.effects() and tb.runs() and not tb.dead_runs() and not tb.checkpoints(effect.run)
            assert tb.verify(read_data=True).sound
            assert tb.store.journal.tally()["records"] == records
        assert scene.world() == after

    @_law(TWICE)
    def test_twice_under_one_key_is_once(self, scene: DoorScene) -> None:
        effect = do(scene, "once")
        after, known = scene.world(), in_force(scene)
        refusal = None
        try:
            assert do(scene, "once").id == effect.id
        except Misuse as error:  # what has a block of its own cannot answer for it
            refusal = error
        assert refusal is None or ("once" in str(refusal) and refusal.hint)
        assert scene.world() == after
        assert in_force(scene) == known
        assert_settled(scene, "twice")

    @_law(FRESH)
    def test_another_process_takes_it_back(self, scene: DoorScene) -> None:
        """From what is in the store: a remedy is data."""
        before = scene.world()
        effect = do(scene)
        words = ["--store", scene.store, "undo", effect.id, *(["--cascade"] if scene.cascade else [])]
        answer = subprocess.run(
            [sys.executable, "-m", "takeback", *words],
            env={**os.environ, **scene.environment()}, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert answer.returncode == 0, answer.stdout + answer.stderr
        assert scene.world() == before

    @_law(BLOBS)
    def test_a_remedy_lists_every_blob_that_it_needs(self, scene: DoorScene) -> None:
        before = scene.world()
        effect = do(scene)
        with takeback.open(scene.store) as tb:
            tb.sweep(0)
        undo(scene, effect)
        assert scene.world() == before

    @_law(SECRET)
    def test_a_remedy_keeps_no_secret(self, scene: DoorScene) -> None:
        undo(scene, do(scene))
        with takeback.open(scene.store) as tb:
            for record in tb.store.journal.records():
                assert scene.secret not in json.dumps(record.body), record
            for blob in tb.store.blobs.info():
                assert scene.secret.encode() not in b"".join(tb.store.blobs.read(blob.digest))

    @_law(DRIFT)
    def test_what_someone_changed_since_is_never_overwritten(self, scene: DoorScene) -> None:
        effect = do(scene)
        scene.disturb()
        disturbed = scene.world()
        with takeback.open(scene.store) as tb:
            with refused(Conflict) as conflicts:
                _undone(tb, scene, effect)
            assert conflicts[0].resources
            assert tb.effect(effect.id).state is State.DONE
        assert scene.world() == disturbed
        assert_settled(scene, "refused")

    @_law(FAILED)
    def test_a_run_that_fails_is_taken_back(self, scene: DoorScene) -> None:
        before = scene.world()
        with takeback.open(scene.store) as tb, suppress(ZeroDivisionError), tb.run("fails") as run:
            scene.make(run, "")
            assert scene.world() != before
            raise ZeroDivisionError
        assert scene.world() == before
        assert_settled(scene, "failed")

    @_law(INTENT)
    def test_nothing_can_be_seen_before_its_intent_is_durable(self, scene: DoorScene) -> None:
        before = scene.world()

        def look(where: str) -> bool:
            if scene.world() == before:
                return False
            with takeback.open(scene.store, recover=False) as other:
                assert any(scene.counts(one) for one in other.effects()), where
            return True

        assert _watched(scene, look), "the change was never seen"

    @_law(ONLOOKER)
    def test_an_onlooker_sees_before_or_after(self, scene: DoorScene) -> None:
        before = scene.world()
        effect = do(scene)
        after = without_times(scene.world())
        undo(scene, effect)

        def look(where: str) -> bool:
            seen = scene.world()
            assert seen == before or without_times(seen) == after, f"{where}: {seen}"
            return seen != before

        assert _watched(scene, look), "the change was never seen"


def _watched(scene: DoorScene, look: Callable[[str], bool]) -> bool:
    """Make the change; look at every boundary, until the look has seen it. Whether it did."""
    onlooker = _Onlooker(look)
    with wrap(takeback.open(scene.store), onlooker) as tb:
        made(tb, scene)
    return onlooker.seen


class _Onlooker(Boundaries):
    def __init__(self, look: Callable[[str], bool]) -> None:
        super().__init__()
        self._look, self.seen = look, False

    def pass_one(self, name: str) -> None:
        super().pass_one(name)
        self.seen = self.seen or self._look(name)


class KilledDoorSuite:
    """Killed at a boundary, each settles. `first` and `step` choose the boundaries; `system_calls` adds each call of
    the system that Python makes; `calls` dies at every so many calls of Python instead."""

    first, step = 1, 1
    system_calls = False
    calls = 0

    def test_killed_anywhere_it_settles(self, scene: DoorScene, record_property: Record) -> None:
        before, after = self._both(scene)
        ends: set[bool] = set()
        for at, dead in self._deaths(scene, lambda tb, key: made(tb, scene, key)):
            settle(scene)
            ends.add(self._judged(scene, before, after, at))
            if not dead:
                record_property("processes killed at a door", at)
        assert ends == {True, False}, "the sweep saw only one side"

    def test_killed_anywhere_in_undo_it_settles(self, scene: DoorScene, record_property: Record) -> None:
        before, after = self._both(scene)
        effect = do(scene, "first")

        def take_back(tb: "Takeback", key: str) -> None:
            _undone(tb, scene, effect)

        for at, dead in self._deaths(scene, take_back):
            settle(scene)
            undone = effect.id not in {one.id for one in in_force(scene)}
            where = f"killed at {at} in undo, it is {'undone' if undone else 'done'}"
            assert without_times(scene.world()) == without_times(before if undone else after), where
            assert_settled(scene, where)
            if not undone:
                undo(scene, effect)
            assert scene.world() == before, where
            if dead:
                effect = do(scene, f"again-{at}")
            else:
                record_property("processes killed at a door", at)

    def test_killed_in_recovery_too_it_settles(self, scene: DoorScene, record_property: Record) -> None:
        """The change dies late in the middle; each recovery dies one boundary later than the last, until one ends."""
        before, after = self._both(scene)
        whole = self._life(scene, 0, lambda tb: made(tb, scene, "whole"))
        undo(scene, in_force(scene)[-1])
        for middle in (whole * 5 // 8, whole * 7 // 8):
            self._life(scene, middle, lambda tb, key=f"at-{middle}": made(tb, scene, key))
            for at in count(1):
                end = in_a_process(lambda one: open_wrapped(scene.store, one).close(), Boundaries(at))
                assert not end.error, end.error
                if not end.killed:
                    record_property("processes killed at a door", at)
                    break
            settle(scene)
            self._judged(scene, before, after, middle)

    def _both(self, scene: DoorScene) -> tuple[Any, Any]:
        before = scene.world()
        effect = do(scene, "both")
        after = scene.world()
        undo(scene, effect)
        assert scene.world() == before
        return before, after

    def _judged(self, scene: DoorScene, before: Any, after: Any, at: int) -> bool:
        """The world shows what the journal says; then it is taken back. Whether it had happened."""
        done = in_force(scene)
        where = f"killed at {at}, in force: {[one.change.summary for one in done]}"
        assert len(done) < 2, where
        assert without_times(scene.world()) == without_times(after if done else before), where
        assert_settled(scene, where)
        for one in done:
            undo(scene, one)
        assert scene.world() == before, where
        return bool(done)

    def _deaths(
        self, scene: DoorScene, work: "Callable[[Takeback, str], object]"
    ) -> Iterator[tuple[int, bool]]:
        """Die at each point in turn; the last one is not killed."""
        for at in count(self.first, self.calls or self.step):
            key = f"at-{at}"
            if self.calls:
                dead = killed_at(at, lambda key=key: _worked(scene, work, key))
            else:
                dead = self._life(scene, at, lambda tb, key=key: work(tb, key)) < 0
            yield at, dead
            if not dead:
                return

    def _life(self, scene: DoorScene, at: int, work: "Callable[[Takeback], object]") -> int:
        """In a process of its own that dies at this boundary; how many it passed, -1 if it died."""

        def live(boundaries: Boundaries) -> None:
            if self.system_calls:
                wrap_system_calls(boundaries)
            with open_wrapped(scene.store, boundaries) as tb:
                work(tb)

        end = in_a_process(live, Boundaries(at))
        assert not end.error, end.error
        return -1 if end.killed else len(end.passed)


def _worked(scene: DoorScene, work: "Callable[[Takeback, str], object]", key: str) -> None:
    with takeback.open(scene.store) as tb:
        work(tb, key)


class RefusingDoorSuite:
    """What has no way back is refused at this door, before anything is changed."""

    def test_what_has_no_way_back_is_refused_and_changes_nothing(self, scene: DoorScene) -> None:
        before = scene.world()
        with refused(Refused):
            do(scene)
        assert scene.world() == before
        assert not in_force(scene)
        assert_settled(scene, "refused")

    def test_a_run_goes_on_after_such_a_refusal(self, scene: DoorScene) -> None:
        """And nothing of the refused change is part of what it does next."""
        before = scene.world()
        with takeback.open(scene.store) as tb, tb.run("refused") as run:
            with refused(Refused):
                scene.make(run, "")
            assert not [one for one in run.effects() if one.state is State.DONE]
        assert scene.world() == before
        assert_settled(scene, "refused")
