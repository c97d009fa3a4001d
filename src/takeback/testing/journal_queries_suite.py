"""What can be asked of every `Journal`, and what only one that outlives its process can be asked."""

from pathlib import Path

import pytest

from takeback.errors import KeyReused, RecordInvalid
from takeback.model.effect import State
from takeback.model.record import Draft, Kind
from takeback.model.run import Lease, OnDeath
from takeback.storage.protocols import Journal, Leases, Query
from takeback.testing.fakes import Clock, FakeProcesses, closing, ending, intending, submitting
from takeback.testing.journal_suite import LASTS, JournalBooks
from takeback.testing.journal_workflows_suite import JournalProjectsSuite
from takeback.testing.leases_suite import racing


class JournalQueriesSuite(JournalProjectsSuite):
    def test_effects_come_oldest_first_or_newest_first_and_no_more_than_asked(
        self, books: JournalBooks, lease: Lease
    ) -> None:
        for number in range(5):
            books.make(lease, f"e{number}")
        assert books.ids() == ["e0", "e1", "e2", "e3", "e4"]
        assert books.ids(newest=True) == ["e4", "e3", "e2", "e1", "e0"]
        assert books.ids(limit=2) == ["e0", "e1"]
        assert books.ids(limit=2, newest=True) == ["e4", "e3"]

    def test_effects_after_a_point(self, books: JournalBooks, lease: Lease) -> None:
        books.make(lease, "e")
        point = books.effect("e").seq
        books.make(lease, "f")
        assert books.ids(after=point) == ["f"]
        assert books.ids(after=point - 1) == ["e", "f"]

    def test_whether_another_effect_began_since(self, books: JournalBooks) -> None:
        lease = books.open("run")
        books.make(lease, "e", "file:///a")
        (first,) = books.journal.effects(Query(ids=("e",)))
        books.journal.append(lease, [Draft(Kind.CHECKPOINT, "run", "", {"label": "here"})])
        assert not books.journal.any_since(first)
        books.journal.append(lease, [intending("f", "run", "file:///b")])
        assert books.journal.any_since(first)
        (last,) = books.journal.effects(Query(ids=("f",)))
        assert not books.journal.any_since(last)

    def test_effects_by_run_agent_state_and_need(self, books: JournalBooks) -> None:
        one, other = books.open("one", agent="ann"), books.open("other", agent="bob")
        books.make(one, "e", "file:///a")
        books.make(other, "f", "file:///b", needs=["e"])
        books.journal.append(other, [intending("g", "other", "file:///c", needs=["f", "e"])])
        assert books.ids(run="one") == ["e"]
        assert books.ids(agent="bob") == ["f", "g"]
        assert books.ids(states=(State.INTENDED,)) == ["g"]
        assert books.ids(states=(State.DONE, State.INTENDED)) == ["e", "f", "g"]
        assert books.ids(needing="e") == ["f", "g"]
        assert books.ids(needing="e", states=(State.DONE,)) == ["f"]
        assert books.ids(ids=("g", "e")) == ["e", "g"]
        assert books.ids(run="nobody") == []

    def test_undos_are_found_by_what_they_take_back(self, books: JournalBooks) -> None:
        lease = books.open("r")
        for id in "ef":
            books.make(lease, id)
        for id, undoes in (("u", "e"), ("v", "e"), ("w", "f")):
            books.make(lease, id, undoes=undoes, args={"partial": True})

        assert books.ids(undoing=("e",)) == ["u", "v"]
        assert books.ids(undoing=("e", "f"), newest=True) == ["w", "v", "u"]
        assert books.ids(undoing=("e",), states=(State.UNDONE,)) == []
        assert books.ids(undoing=("u",)) == []
        assert books.journal.count(Query(undoing=("e",))) == 2

    @pytest.mark.parametrize(
        ("asked", "found"),
        [
            ("file:///d", ["tree", "file", "key", "other-key"]),
            ("file:///d/c.toml", ["tree", "file", "key", "other-key"]),
            ("file:///d/c.toml#/x", ["tree", "file", "key"]),
            ("file:///d/c.toml#/x/deeper", ["tree", "file", "key"]),
            ("file:///d/elsewhere", ["tree"]),
            ("file:///dd", ["neighbour"]),
            ("file:///", ["tree", "file", "key", "other-key", "neighbour", "odd"]),
            ("file:///d-d", []),
            ("file:///%FF%0A/x", ["odd"]),
            ("file:///nothing", []),
        ],
    )
    def test_effects_by_resource_are_those_that_touch_it_or_around_or_inside(
        self, books: JournalBooks, asked: str, found: list[str], lease: Lease
    ) -> None:
        books.make(lease, "tree", "file:///d")
        books.make(lease, "file", "file:///d/c.toml")
        books.make(lease, "key", "file:///d/c.toml#/x")
        books.make(lease, "other-key", "file:///d/c.toml#/y")
        books.make(lease, "neighbour", "file:///dd")
        books.make(lease, "odd", "file:///%FF%0A")
        assert books.ids(resource=asked) == found

    def test_an_effect_with_many_targets_is_found_once(self, books: JournalBooks, lease: Lease) -> None:
        books.make(lease, "e", [f"file:///d/{number}" for number in range(20)])
        assert books.ids(resource="file:///d") == ["e"]

    def test_an_undo_is_found_where_it_touches(self, books: JournalBooks, lease: Lease) -> None:
        books.make(lease, "e", "file:///d/f")
        books.make(lease, "u", "file:///d/f", undoes="e")
        assert books.ids(resource="file:///d") == ["e", "u"]
        assert books.ids(resource="file:///d", made=True) == ["e"]
        assert books.ids(resource="file:///d", undos=True) == ["u"]

    def test_a_proposal_is_found_by_its_resource_and_then_by_its_targets(self, books: JournalBooks) -> None:
        lease = books.open("run")
        books.journal.append(lease, [intending("e", "run", "file:///a", kind=Kind.PROPOSE)])
        assert books.ids(resource="file:///a") == ["e"]
        books.journal.append(lease, [intending("e", "run", ["file:///a", "file:///b"])])
        assert books.ids(resource="file:///b") == ["e"]

    def test_a_proposal_around_its_targets_is_found_there_no_more_when_they_are_known(
        self, books: JournalBooks, lease: Lease
    ) -> None:
        books.journal.append(lease, [intending("e", "run", "file:///d", kind=Kind.PROPOSE)])
        assert books.ids(resource="file:///d/other") == ["e"]
        intent = intending("e", "run", ["file:///d/x", "file:///d/y"])
        intent.body["resource"] = "file:///d"
        books.journal.append(lease, [intent])
        assert books.ids(resource="file:///d/other") == []
        assert books.ids(resource="file:///d/y") == books.ids(resource="file:///d") == ["e"]

    def test_records_by_kind_run_effect_and_position(self, books: JournalBooks) -> None:
        one, other = books.open("one"), books.open("other")
        books.make(one, "e", "file:///a")
        books.journal.append(other, [Draft(Kind.CHECKPOINT, "other", "", {"id": "c", "label": "here"})])
        books.make(other, "f", "file:///b")
        assert [record.kind for record in books.journal.records(effect="e")] == [Kind.INTENT, Kind.DONE]
        assert [record.run for record in books.journal.records(kinds=(Kind.OPEN,))] == ["one", "other"]
        assert [record.seq for record in books.journal.records(kinds=(Kind.CHECKPOINT,), run="other")] == [5]
        assert not list(books.journal.records(kinds=(Kind.CHECKPOINT,), run="one"))
        assert [record.seq for record in books.journal.records(after=5)] == [6, 7]

    def test_a_reader_of_many_records_gets_each_once_and_may_write_meanwhile(
        self, books: JournalBooks, lease: Lease
    ) -> None:
        books.journal.append(
            lease,
            [Draft(Kind.CHECKPOINT, "run", "", {"id": f"c{number}", "label": "p"}) for number in range(2500)],
        )
        seen: list[int] = []
        for record in books.journal.records():
            seen.append(record.seq)
            if record.seq == 1200:
                books.make(lease, "e")
        assert seen[:2501] == list(range(1, 2502))
        assert len(seen) == len(set(seen))

    def test_an_id_is_found_by_its_beginning(self, books: JournalBooks) -> None:
        lease = books.open("r00000")
        books.make(lease, "abc111")
        books.make(lease, "abc222")
        assert set(books.journal.resolve("abc")) == {"abc111", "abc222"}
        assert books.journal.resolve("abc1") == ("abc111",)
        assert books.journal.resolve("r0") == ("r00000",)
        assert books.journal.resolve("bc") == ()
        assert books.journal.resolve("abc1111") == ()

    @pytest.mark.parametrize("hostile", ["%", "_", "*", "'", "abc%", "~", "abc~", "\x00", "é"])
    def test_an_odd_prefix_finds_nothing(self, books: JournalBooks, hostile: str) -> None:
        books.make(books.open("run"), "abc111")
        assert books.journal.resolve(hostile) == ()

    def test_an_ambiguous_prefix_gives_a_handful_at_most(self, books: JournalBooks, lease: Lease) -> None:
        for number in range(30):
            books.make(lease, f"abc{number:03}")
        assert 2 <= len(books.journal.resolve("abc")) <= 10

    def test_the_tally_counts_what_the_effects_say(self, books: JournalBooks, lease: Lease) -> None:
        books.make(lease, "done")
        books.make(lease, "gone", "file:///b")
        books.make(lease, "undo", "file:///b", undoes="gone")
        books.journal.append(lease, [intending("open", "run", "file:///c")])
        books.journal.append(lease, [intending("never", "run", "file:///d")])
        books.journal.append(lease, [ending("never", "run", Kind.ABORT, why="no")])
        books.journal.append(None, [ending("done", "run", Kind.ACCEPT)])
        books.journal.append(None, [ending("done", "run", Kind.FORGET)])
        assert books.journal.tally() == {
            "done": 2, "undone": 1, "intended": 1, "aborted": 1, "accepted": 1, "forgotten": 1, "records": 12,
        }  # fmt: skip

    def test_a_count_is_that_of_the_effects_it_would_read(self, books: JournalBooks, lease: Lease) -> None:
        books.make(lease, "one", "file:///a")
        books.make(lease, "two", "file:///a/b")
        books.make(lease, "three", "file:///c")
        books.journal.append(None, [ending("one", "run", Kind.ACCEPT)])
        for query in (
            Query(),
            Query(resource="file:///a"),
            Query(resource="file:///a/b", forgettable=True),
            Query(run="run", limit=2),
            Query(states=(State.PROPOSED,)),
            Query(agent="nobody"),
        ):
            assert books.journal.count(query) == len(list(books.journal.effects(query)))

    def test_an_empty_journal_is_sound_and_has_nothing_to_tell(self, books: JournalBooks) -> None:
        assert list(books.journal.records()) == []
        assert list(books.journal.runs()) == []
        assert books.ids() == []
        assert books.journal.tally() == {"records": 0}
        assert list(books.journal.check()) == []


class DurableJournalSuite(JournalQueriesSuite):
    """For a journal that outlives its process."""

    def again(self, directory: Path, clock: Clock, processes: FakeProcesses) -> tuple[Journal, Leases]:
        """The same ones as another process finds them."""
        raise NotImplementedError

    def damage(self, directory: Path, seq: int, column: str, value: object) -> None:
        """Change a record behind the journal's back, as a bad disk or a hand would."""
        raise NotImplementedError

    def remove(self, directory: Path, seq: int) -> None:
        """Take a record away behind the journal's back."""
        raise NotImplementedError

    def _again(self, books: JournalBooks, directory: Path) -> JournalBooks:
        return JournalBooks(
            *self.again(directory, books.clock, books.processes), books.clock, books.processes
        )

    def test_after_a_restart_everything_is_as_it_was(self, books: JournalBooks, tmp_path: Path) -> None:
        lease = books.open("run", on_death=OnDeath.LEAVE)
        books.make(lease, "e", key="k", needs=["n"])
        books.make(lease, "u", undoes="e")
        books.journal.append(lease, [intending("open", "run")])
        later = self._again(books, tmp_path)
        assert later.picture() == books.picture()
        assert later.leases.holder("run") == lease
        later.journal.append(lease, [ending("open", "run")])
        assert books.effect("open").state is State.DONE

    def test_two_that_append_in_turns_build_one_chain(self, books: JournalBooks, tmp_path: Path) -> None:
        other = self._again(books, tmp_path)
        one, two = books.open("one"), other.open("two")
        for number in range(10):
            books.make(one, f"a{number}", "file:///a")
            other.make(two, f"b{number}", "file:///b")
        assert [record.seq for record in books.journal.records()] == list(range(1, 43))
        assert not list(other.journal.check())

    def test_of_several_that_claim_at_once_each_run_goes_to_one(
        self, books: JournalBooks, tmp_path: Path
    ) -> None:
        runs = [f"run-{number:02}" for number in range(24)]
        books.journal.append(None, [submitting(run, "deploy") for run in runs])

        def work(own: JournalBooks) -> list[str]:
            done: list[str] = []
            while lease := own.leases.claim(own.processes.start(), own.clock(), LASTS, ("deploy",)):
                own.journal.append(lease, [closing(lease.run)])
                own.leases.release(lease)
                done.append(lease.run)
            return done

        by_each = racing(lambda: self._again(books, tmp_path), 4, work)
        assert sorted(run for done in by_each for run in done) == runs
        assert {books.leases.holder(run).generation for run in runs} == {1}  # pyright: ignore[reportOptionalMemberAccess]
        assert not list(books.journal.check())

    def test_of_several_that_submit_with_one_key_at_once_one_does(
        self, books: JournalBooks, tmp_path: Path
    ) -> None:
        def submit(own: JournalBooks) -> str:
            run = str(own.processes.start().pid)
            try:
                own.journal.append(None, [submitting(run, "deploy", key="k")])
            except KeyReused:
                return ""
            return run

        won = [run for run in racing(lambda: self._again(books, tmp_path), 4, submit) if run]
        assert [info.id for info in books.journal.runs(key="k")] == won
        assert len(won) == 1

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            (
                "body",
                '{"adapter":"file","key":"","kind":"write","resource":"file:///etc/passwd","summary":"x"}',
            ),
            ("body", "not json"),
            ("body", "{}"),
            ("at", 1),
            ("run", "another"),
            ("kind", "propose"),
            ("kind", "nonsense"),
            ("hash", bytes(32)),
        ],
    )
    def test_a_damaged_intent_is_found_and_named_and_others_stay_readable(
        self, books: JournalBooks, tmp_path: Path, column: str, value: object, lease: Lease
    ) -> None:
        books.make(lease, "before", "file:///b")
        books.make(lease, "hurt", "file:///a")
        books.make(lease, "after", "file:///c")
        seq = books.effect("hurt").seq
        self.damage(tmp_path, seq, column, value)
        later = self._again(books, tmp_path)
        findings = list(later.journal.check())
        assert any(f"Record {seq} " in finding for finding in findings), findings
        with pytest.raises(RecordInvalid) as damaged:
            later.effect("hurt")
        assert damaged.value.effect == "hurt"
        assert later.effect("before").change.resource == "file:///b"
        assert later.effect("after").change.resource == "file:///c"
        assert later.ids() == ["before", "hurt", "after"]
        # Work continues beside the damage, and does not hide it.
        later.make(lease, "new", "file:///d")
        assert any(f"Record {seq} " in finding for finding in later.journal.check())

    def test_damage_does_not_spread_over_the_report(self, books: JournalBooks, tmp_path: Path) -> None:
        lease = books.open("run")
        for number in range(20):
            books.make(lease, f"e{number:02}")
        self.damage(tmp_path, books.effect("e05").seq, "at", 1)
        findings = list(self._again(books, tmp_path).journal.check())
        assert len(findings) == 1, findings

    @pytest.mark.parametrize("value", ['{"receipt":{"id":"forged"}}', "not json"])
    def test_a_damaged_outcome_is_found_when_its_effect_is_asked_for(
        self, books: JournalBooks, tmp_path: Path, value: str, lease: Lease
    ) -> None:
        books.make(lease, "hurt")
        seq = books.effect("hurt").seq + 1
        self.damage(tmp_path, seq, "body", value)
        later = self._again(books, tmp_path)
        assert any(f"Record {seq} " in finding for finding in later.journal.check())
        with pytest.raises(RecordInvalid):
            later.effect("hurt")

    def test_a_missing_record_is_found(self, books: JournalBooks, tmp_path: Path, lease: Lease) -> None:
        books.make(lease, "e")
        books.make(lease, "f")
        self.remove(tmp_path, books.effect("f").seq)
        later = self._again(books, tmp_path)
        assert list(later.journal.check())
        with pytest.raises(RecordInvalid):
            later.effect("f")
        assert later.effect("e").state is State.DONE

    def test_a_projection_that_disagrees_with_the_records_is_found(
        self, books: JournalBooks, tmp_path: Path
    ) -> None:
        books.make(books.open("run"), "e")
        assert books.effect("e").state is State.DONE
        self.lie(tmp_path, "e", State.UNDONE)
        assert any("e" in finding for finding in self._again(books, tmp_path).journal.check())

    def lie(self, directory: Path, effect: str, state: State) -> None:
        """Change how an effect is listed, not what its records say."""
        raise NotImplementedError
