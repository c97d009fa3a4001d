"""Random histories of several agents, with crashes and foreign edits, against a plain model."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import takeback
from takeback.model.effect import State
from takeback.testing.crash import Boundaries, die, in_a_process, open_settled, open_wrapped
from tests.properties.model import Change, Known, Look, Model
from tests.world import picture

PATHS = ("a", "b", "d/x", "d/y")
paths = st.sampled_from(PATHS)
contents = st.integers(0, 4).map(lambda number: b"content %d\n" % number * (number + 1))
changes = st.one_of(
    st.builds(lambda path, content: Change("write", (path,), (content,)), paths, contents),
    st.builds(lambda path: Change("delete", (path,)), st.sampled_from([*PATHS, "d"])),
    # Files only: a directory that is moved is known by itself, and takes along whatever is in it by then.
    st.tuples(paths, st.sampled_from([*PATHS, "e"]))
    .filter(lambda names: names[0] != names[1])
    .map(lambda names: Change("move", names)),
    st.builds(
        lambda one, two, three, four: Change("write_all", (one, two), (three, four)),
        st.sampled_from(PATHS[:2]), st.sampled_from(PATHS[2:]), contents, contents,
    ),
)  # fmt: skip
agents = st.sampled_from(["ann", "bob"])
boundaries = st.integers(1, 30)


class Histories(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.directory = Path(tempfile.mkdtemp(prefix="takeback-history-", dir=parent))
        self.root = self.directory / "world"
        (self.root / "d").mkdir(parents=True)
        for name in PATHS:
            (self.root / name).write_bytes(b"original " + name.encode())
            os.utime(self.root / name, ns=(10**18, 10**18 + len(name)))
        self.store = str(self.directory / "store")
        self.foreign = 0
        self.model = Model(self.look())

    def look(self) -> Look:
        """As exact as can be; a directory's own time moves with what is in it."""
        seen = picture(os.fsencode(self.root))
        for properties in seen.values():
            if properties["mode"].startswith("d"):
                del properties["mtime"]
        return seen

    # Changes.

    @rule(agent=agents, change=changes)
    def an_agent_changes_something(self, agent: str, change: Change) -> None:
        with takeback.open(self.store) as tb:
            run = tb.session(agent, agent=agent)
            try:
                self.do(run, change)
            finally:
                run.leave()

    def do(self, run: takeback.Run, change: Change) -> None:
        if not self.model.possible(change):
            with pytest.raises(takeback.TakebackError):
                self.ask(run, change)
            return
        expected = self.model.expected(change)
        nothing = self.model.changes_nothing(change)
        effect = self.ask(run, change)
        assert (effect is None) == nothing
        if effect:
            self.happened(effect, change, expected)

    def happened(self, effect: takeback.Effect, change: Change, expected: dict[bytes, str | None]) -> None:
        assert effect.state is State.DONE
        world = self.look()
        for path, content in expected.items():
            assert (path in world) == (
                content is not None or (path in world and world[path]["mode"].startswith("d"))
            )
            assert content is None or world[path]["content"] == content
        untouched = {path: seen for path, seen in self.model.world.items() if path not in expected}
        assert {path: seen for path, seen in world.items() if path not in expected} == untouched
        known = self.model.done(effect.id, effect.run, change.paths, world)
        known.together = change.kind == "move"

    def ask(self, run: takeback.Run, change: Change) -> takeback.Effect | None:
        names = [self.root / path for path in change.paths]
        if change.kind == "write":
            return run.write(names[0], change.contents[0])
        if change.kind == "write_all":
            return run.write_all(dict(zip(names, change.contents, strict=True)))
        if change.kind == "delete":
            return run.delete(names[0])
        return run.move(names[0], names[1])

    @rule(
        agent=agents,
        steps=st.lists(changes, min_size=1, max_size=4),
        end=st.sampled_from(["well", "fails"]),
        keeps=st.booleans(),
    )
    def a_run_does_several_things(self, agent: str, steps: list[Change], end: str, keeps: bool) -> None:
        with takeback.open(self.store) as tb:
            try:
                with tb.run("several", agent=agent) as run:
                    for step in steps:
                        self.do(run, step)
                    if keeps and run.effects():
                        self.keep_last(run)
                    if end == "fails":
                        raise ZeroDivisionError
            except ZeroDivisionError:
                self.model.roll_back(run.id, self.undone_by(tb))

    def keep_last(self, run: takeback.Run) -> None:
        last = run.effects()[-1]
        run.accept(last)
        self.model.effects[last.id].accepted = True

    def undone_by(self, tb: takeback.Takeback) -> dict[str, str]:
        """The names of the undos that the journal has and the model does not know yet."""
        return {
            one.undoes: one.id
            for one in tb.effects(state="done")
            if one.undoes and one.id not in self.model.effects
        }

    @rule(path=paths, delete=st.booleans())
    def someone_else_edits_a_file(self, path: str, delete: bool) -> None:
        """As most editors do, by a new file. (An edit in place follows a move, there and back.)"""
        if not self.model.exists(path) or self.model.is_directory(path):
            return
        if delete:
            (self.root / path).unlink()
        else:
            self.foreign += 1
            (self.directory / "edited").write_bytes(b"foreign %d" % self.foreign)
            (self.directory / "edited").rename(self.root / path)
        self.model.world = self.look()

    # Undo, redo, keep.

    @rule(pick=st.integers(0, 50), cascade=st.booleans())
    def an_effect_is_undone(self, pick: int, cascade: bool) -> None:
        if not self.model.effects:
            return
        effect = list(self.model.effects.values())[pick % len(self.model.effects)]
        if self.stands_again(effect):
            return
        predicted = self.predict(effect, cascade)
        with takeback.open(self.store) as tb:
            if predicted is None:
                with pytest.raises(takeback.Refused):
                    tb.undo(effect.id, cascade=cascade)
                return
            result = tb.undo(effect.id, cascade=cascade)
            assert result.outcome == "done"
            self.adopt(tb, predicted)

    @rule(pick=st.integers(0, 50), how=st.sampled_from(["skip", "force"]))
    def an_effect_is_undone_in_spite_of_others(self, pick: int, how: str) -> None:
        if not self.model.effects:
            return
        effect = list(self.model.effects.values())[pick % len(self.model.effects)]
        if self.stands_again(effect):
            return
        if how == "force" and effect.together:
            return  # what to do with another file under the new name is not for this model to say
        if effect.state is not State.DONE or self.model.blockers(effect):
            with takeback.open(self.store) as tb, pytest.raises(takeback.Refused):
                tb.undo(effect.id, on_conflict=how)
            return
        left = how == "skip" and "conflict" in self.model.outcomes(effect).values()
        predicted = self.model.copy()
        moved = predicted.undo(predicted.effects[effect.id], f"undo of {effect.id}", "an undo", how)
        with takeback.open(self.store) as tb:
            try:
                result = tb.undo(effect.id, on_conflict=how)
            except takeback.Refused:
                assert not moved
                return
            told = (result.targets, self.model.outcomes(effect))
            assert (result.outcome == "done") == (not left), told
            self.adopt(tb, predicted)

    def stands_again(self, effect: Known) -> bool:
        """In part, by the redo of an undo of some of its paths. To undo it again takes that redo back: this model does
        not know which ones these are, test_some_paths.py does."""
        return effect.state is State.UNDONE and bool(self.model.standing(effect))

    def predict(self, effect: Known, cascade: bool) -> Model | None:
        """The model afterwards; None if it must be refused."""
        if effect.state is not State.DONE or (not cascade and self.model.blockers(effect)):
            return None
        predicted = self.model.copy()
        for one in predicted.closure(predicted.effects[effect.id]):
            if not predicted.undo(one, f"undo of {one.id}", "an undo"):
                return None
        return predicted

    def adopt(self, tb: takeback.Takeback, predicted: Model) -> None:
        """The prediction becomes the model, with the names that the journal gave to the undos."""
        names = {f"undo of {undoes}": id for undoes, id in self.undone_by(tb).items()}
        for old in [id for id in predicted.effects if id.startswith("undo of ")]:
            effect = predicted.effects.pop(old)
            effect.id = names[old]
            predicted.effects[effect.id] = effect
        self.model = predicted

    @rule(pick=st.integers(0, 50))
    def an_effect_is_accepted(self, pick: int) -> None:
        if self.model.effects:
            effect = list(self.model.effects.values())[pick % len(self.model.effects)]
            with takeback.open(self.store) as tb:
                tb.accept(effect.id)
            effect.accepted = True

    # Crashes.

    @rule(agent=agents, change=changes, at=boundaries)
    def an_agent_is_killed_in_the_middle(self, agent: str, change: Change, at: int) -> None:
        if not self.model.possible(change) or self.model.changes_nothing(change):
            return

        def action(boundaries: Boundaries) -> None:
            with open_wrapped(self.store, boundaries) as tb:
                run = tb.session(agent, agent=agent)
                self.ask(run, change)
                run.leave()

        end = in_a_process(action, Boundaries(at))
        assert not end.error, end.error
        expected = self.model.expected(change)
        with open_settled(self.store) as tb:
            new = [
                one
                for one in tb.effects(state="done")
                if not one.is_undo and one.id not in self.model.effects
            ]
            assert len(new) <= 1
            if new:
                self.happened(new[0], change, expected)

    @rule(pick=st.integers(0, 50), at=boundaries)
    def an_undo_is_killed_in_the_middle(self, pick: int, at: int) -> None:
        if not self.model.effects:
            return
        effect = list(self.model.effects.values())[pick % len(self.model.effects)]
        if self.stands_again(effect):
            return
        predicted = self.predict(effect, cascade=True)
        if predicted is None:
            return

        def action(boundaries: Boundaries) -> None:
            with open_wrapped(self.store, boundaries) as tb:
                tb.undo(effect.id, cascade=True)

        end = in_a_process(action, Boundaries(at))
        assert not end.error, end.error
        with open_settled(self.store) as tb:
            # All of the plan or nothing of it; what was already as wanted is not recorded.
            now = {one.id: one.state for one in tb.effects()}
            if any(now[one.id] is not one.state for one in self.model.effects.values()):
                self.adopt(tb, predicted)

    @rule(agent=agents, steps=st.lists(changes, min_size=1, max_size=3), at=st.integers(5, 80))
    def a_run_is_killed_in_the_middle(self, agent: str, steps: list[Change], at: int) -> None:
        """Whatever it did is taken back."""

        def action(boundaries: Boundaries) -> None:
            with open_wrapped(self.store, boundaries) as tb, tb.run("doomed", agent=agent) as run:
                for step in steps:
                    try:
                        self.ask(run, step)
                    except (takeback.Refused, takeback.Misuse):
                        continue
                die()

        end = in_a_process(action, Boundaries(at))
        assert end.killed, end.error
        with open_settled(self.store) as tb:
            assert not tb.recover()

    @invariant()
    def the_world_is_as_the_model_says(self) -> None:
        if hasattr(self, "model"):
            assert self.look() == self.model.world

    @invariant()
    def the_journal_is_as_the_model_says(self) -> None:
        if not hasattr(self, "model") or not self.model.effects:
            return
        with takeback.open(self.store) as tb:
            told = {one.id: (one.state, one.accepted_by == "person") for one in tb.effects()}
            for effect in self.model.effects.values():
                assert told[effect.id] == (effect.state, effect.accepted), effect.id
            assert not {"proposed", "intended", "stuck"} & tb.store.journal.tally().keys()

    def teardown(self) -> None:
        try:
            if hasattr(self, "model"):
                with takeback.open(self.store) as tb:
                    assert tb.verify(read_data=True).findings == ()
                assert not list(self.directory.rglob(".takeback-*"))
        finally:
            shutil.rmtree(getattr(self, "directory", "/nonexistent"), ignore_errors=True)


def test_a_move_that_is_brought_back_takes_along_the_file_that_is_there_by_now() -> None:
    history = Histories()
    history.begin()
    try:
        for change in (
            Change("write", ("a",), (b"same",)),
            Change("delete", ("a",)),
            Change("delete", ("b",)),
        ):
            history.an_agent_changes_something("ann", change)
        steps = [Change("write", ("a",), (b"same",)), Change("move", ("a", "b"))]
        history.a_run_does_several_things("ann", steps, "fails", keeps=False)
        deleted, move_taken_back = 1, 5
        history.an_effect_is_undone(deleted, cascade=False)
        older = history.look()[b"a"]
        history.an_effect_is_undone(move_taken_back, cascade=False)
        history.the_world_is_as_the_model_says()
        history.the_journal_is_as_the_model_says()
        assert history.look()[b"b"] == older
    finally:
        history.teardown()


TestHistories = Histories.TestCase
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)  # to explain takes longer than to find
TestHistories.settings = settings(max_examples=12, stateful_step_count=25, phases=PHASES)


@pytest.mark.slow
@pytest.mark.timeout(1500)
class TestLongHistories(Histories.TestCase):
    settings = settings(max_examples=400, stateful_step_count=50, phases=PHASES)
