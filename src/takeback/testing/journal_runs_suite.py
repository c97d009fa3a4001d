"""What every `Journal` must do with undo and redo, with its chain, and with runs that begin and end."""

import pytest

from takeback.errors import Drifted, RecordInvalid, Superseded
from takeback.model.change import DECIDED_AT
from takeback.model.effect import State
from takeback.model.record import GENESIS, Draft, Kind, canonical, chained, covered
from takeback.model.run import Lease, OnDeath, RunState
from takeback.testing.fakes import closing, ending, intending, opening
from takeback.testing.journal_suite import JournalBooks, JournalSuite


class JournalRunsSuite(JournalSuite):
    # Undo and redo.

    def test_a_done_undo_takes_its_target_back_and_redo_brings_it_again(self, books: JournalBooks) -> None:
        lease = books.open("run")
        books.make(lease, "e")
        books.journal.append(lease, [intending("u", "run", undoes="e")])
        assert books.effect("e").state is State.DONE
        books.journal.append(lease, [ending("u", "run")])
        assert (books.effect("e").state, books.effect("e").undone_by) == (State.UNDONE, "u")
        books.make(lease, "r", undoes="u")
        assert (books.effect("e").state, books.effect("e").undone_by) == (State.DONE, "")
        assert (books.effect("u").state, books.effect("u").undone_by) == (State.UNDONE, "r")
        assert books.journal.tally() | {"records": 0} == {"done": 2, "undone": 1, "records": 0}

    def test_undo_of_a_redo_takes_back_what_the_redo_brought_and_so_on(self, books: JournalBooks) -> None:
        lease = books.open("run")
        books.make(lease, "e")
        done = {0: {"e"}, 1: {"1"}, 2: {"e", "2"}, 3: {"1", "3"}, 4: {"e", "2", "4"}, 5: {"1", "3", "5"}}
        for number in range(1, 6):
            books.make(lease, str(number), undoes=str(number - 1) if number > 1 else "e")
            assert set(books.ids(states=(State.DONE,))) == done[number]
        assert books.effect("e").undone_by == "1"
        assert not list(books.journal.check())

    def test_an_undo_that_left_something_out_leaves_its_target_done(self, books: JournalBooks) -> None:
        lease = books.open("run")
        books.make(lease, "e", ["file:///a", "file:///b"])
        books.make(lease, "u", undoes="e", args={"partial": True})
        assert books.effect("e").state is State.DONE

    def test_an_aborted_undo_changes_nothing(self, books: JournalBooks, lease: Lease) -> None:
        books.make(lease, "e")
        books.journal.append(lease, [intending("u", "run", undoes="e")])
        books.journal.append(lease, [ending("u", "run", Kind.ABORT, why="no")])
        assert books.effect("e").state is State.DONE

    def test_what_is_undone_cannot_be_undone_by_a_second_effect(self, books: JournalBooks) -> None:
        lease = books.open("run")
        books.make(lease, "e")
        books.make(lease, "u", undoes="e")
        with books.refuses(Drifted):  # the intent already: the world was not touched
            books.make(lease, "v", undoes="e")

    def test_an_undo_that_was_decided_before_the_newest_record_is_refused(self, books: JournalBooks) -> None:
        lease = books.open("run")
        books.make(lease, "e", ["file:///a", "file:///b"])
        newest = books.journal.tally()["records"]
        books.make(lease, "u", "file:///a", undoes="e", args={"partial": True, DECIDED_AT: newest})
        with books.refuses(Superseded):
            books.make(lease, "v", "file:///b", undoes="e", args={"partial": True, DECIDED_AT: newest})
        books.make(lease, "v", "file:///b", undoes="e", args={DECIDED_AT: newest + 2})
        assert books.effect("e").state is State.UNDONE
        assert not list(books.journal.check())

    # The chain.

    def test_each_record_is_tied_to_all_before_it(self, books: JournalBooks, lease: Lease) -> None:
        books.make(lease, "e")
        previous = GENESIS
        for number, record in enumerate(books.journal.records(), 1):
            assert record.seq == number
            of_body = covered(record.seal, canonical(record.body))
            previous = chained(
                previous, record.seq, record.at, record.kind, record.run, record.effect, of_body
            )
            assert record.hash == previous
        assert not list(books.journal.check())

    # Runs.

    def test_a_run_that_ended_well_accepts_what_it_did(self, books: JournalBooks, lease: Lease) -> None:
        books.make(lease, "e", "file:///a")
        books.make(lease, "f", "file:///b")
        books.make(lease, "u", "file:///b", undoes="f")
        books.journal.append(lease, [closing("run")])
        assert [books.effect(id).accepted_by for id in ("e", "f", "u")] == ["run", "", "run"]
        assert books.journal.tally()["accepted"] == 2

    def test_the_words_of_format_1_are_read_as_those_of_today(self, books: JournalBooks) -> None:
        lease = books.lease("run")
        told = {"name": "r", "agent": "", "on_death": "keep"}
        books.journal.append(lease, [Draft(Kind.OPEN, "run", "", told)])
        books.make(lease, "e", "file:///a")
        books.make(lease, "f", "file:///b")
        books.journal.append(lease, [Draft(Kind.KEEP, "run", "e")])
        books.journal.append(lease, [Draft(Kind.CLOSE, "run", "", {"outcome": "kept"})])
        (info,) = books.journal.runs(("run",))
        assert (info.on_death, info.state) == (OnDeath.ACCEPT, RunState.ACCEPTED)
        assert [books.effect(id).accepted_by for id in ("e", "f")] == ["person", "run"]
        assert books.journal.tally()["accepted"] == 2
        assert not list(books.journal.check())

    def test_a_run_that_was_taken_back_accepts_nothing(self, books: JournalBooks, lease: Lease) -> None:
        books.make(lease, "e")
        books.journal.append(lease, [closing("run", RunState.UNDONE)])
        assert not books.effect("e").accepted

    def test_an_ended_run_is_not_opened_or_closed_again(self, books: JournalBooks, lease: Lease) -> None:
        books.journal.append(lease, [closing("run")])
        for draft in (opening("run"), closing("run")):
            with pytest.raises(RecordInvalid):
                books.journal.append(lease, [draft])

    def test_an_ended_run_gets_no_new_effects(self, books: JournalBooks, lease: Lease) -> None:
        books.journal.append(lease, [closing("run")])
        with pytest.raises(RecordInvalid):
            books.journal.append(lease, [intending("e", "run")])

    def test_a_run_that_was_never_opened_gets_no_effects(self, books: JournalBooks) -> None:
        with pytest.raises(RecordInvalid):
            books.journal.append(books.lease("run"), [intending("e", "run")])

    def test_a_run_does_not_end_while_an_effect_of_it_is_in_flight(self, books: JournalBooks) -> None:
        """It would belong to no run: recovery looks at runs that have not ended."""
        lease = books.open("run")
        books.journal.append(lease, [intending("e", "run")])
        for outcome in (RunState.ACCEPTED, RunState.UNDONE):
            with pytest.raises(RecordInvalid):
                books.journal.append(lease, [closing("run", outcome)])
        books.journal.append(lease, [ending("e", "run")])
        books.journal.append(lease, [closing("run")])

    def test_a_run_may_be_suspended_with_an_effect_in_flight(self, books: JournalBooks, lease: Lease) -> None:
        """It has not ended: the process that continues it finds the effects in doubt."""
        books.journal.append(lease, [intending("e", "run")])
        books.journal.append(lease, [closing("run", RunState.SUSPENDED)])
        assert books.effect("e").state is State.INTENDED
        books.journal.append(lease, [ending("e", "run")])
        assert not list(books.journal.check())

    def test_a_suspended_run_is_unfinished_and_can_go_on(self, books: JournalBooks) -> None:
        lease = books.open("run", name="deploy", agent="a", on_death=OnDeath.LEAVE)
        books.journal.append(lease, [closing("run", RunState.SUSPENDED)])
        (info,) = books.journal.runs(unfinished=True)
        found = info.name, info.agent, info.state, info.on_death
        assert found == ("deploy", "a", RunState.SUSPENDED, OnDeath.LEAVE)
        books.journal.append(lease, [Draft(Kind.OPEN, "run", "", {"resumed": True})])
        (info,) = books.journal.runs(("run",))
        assert (info.state, info.name, info.closed_at) == (RunState.OPEN, "deploy", 0)

    def test_runs_are_listed_oldest_first_with_their_number_of_effects(self, books: JournalBooks) -> None:
        for name in ("c", "a", "b"):
            books.make(books.open(name), f"effect-{name}", f"file:///{name}")
        assert [(info.id, info.effects) for info in books.journal.runs()] == [("c", 1), ("a", 1), ("b", 1)]
        assert [info.id for info in books.journal.runs(("b", "c"))] == ["c", "b"]

    # What waits.

    def test_what_waits_for_a_person_is_in_nobodys_way_and_outlives_its_run(
        self, books: JournalBooks, lease: Lease
    ) -> None:
        books.journal.append(lease, [_waiting("held", "person")])
        books.make(lease, "e", "file:///a")
        books.journal.append(lease, [closing("run")])
        assert books.effect("held").waits_for == "person"
        books.journal.append(lease, [intending("held", "run"), ending("held", "run")])
        assert books.effect("held").state is State.DONE
        assert not list(books.journal.check())

    def test_what_waits_for_a_person_is_given_up_together_with_the_end_of_its_run(
        self, books: JournalBooks, lease: Lease
    ) -> None:
        books.journal.append(lease, [_waiting("asked", "person", key="k")])
        books.journal.append(None, [Draft(Kind.DECIDE, "run", "asked", {"approved": True})])
        books.journal.append(lease, [ending("asked", "run", Kind.ABORT, why="over"), closing("run")])
        assert (books.effect("asked").state, books.effect("asked").note) == (State.ABORTED, "over")
        assert books.ids(key="k") == []  # the key is free
        with pytest.raises(RecordInvalid):
            books.journal.append(None, [Draft(Kind.DECIDE, "run", "asked", {"approved": True})])
        assert not list(books.journal.check())

    def test_a_run_does_not_end_while_it_watches_a_command(self, books: JournalBooks, lease: Lease) -> None:
        books.journal.append(lease, [_waiting("watched", "command")])
        books.make(lease, "e", "file:///a")
        with pytest.raises(RecordInvalid):
            books.journal.append(lease, [closing("run")])

    def test_what_waits_takes_hold_when_it_is_made(self, books: JournalBooks, lease: Lease) -> None:
        books.journal.append(lease, [_waiting("held", "person")])
        books.make(lease, "e", "file:///a")
        between = books.effect("e")
        books.journal.append(lease, [intending("held", "run"), ending("held", "run")])
        held = books.effect("held")
        assert held.seq < between.seq < held.order
        assert books.ids(told_after=between.order) == ["held"]
        assert books.ids(told_after=held.order) == []
        assert books.ids(before=between.seq) == ["held"]
        assert books.ids(before=held.seq) == []


def _waiting(effect: str, for_whom: str, key: str = "") -> Draft:
    return intending(effect, "run", kind=Kind.PROPOSE, args={"waits": for_whom}, key=key)
