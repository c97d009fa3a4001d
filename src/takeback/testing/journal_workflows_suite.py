"""What every `Journal` and its `Leases` must do for durable workflows, and what it knows of projects."""

import pytest

from takeback.errors import KeyReused, LeaseHeld, LeaseLost, Misuse, RecordInvalid, Refused
from takeback.model.effect import State
from takeback.model.record import OF_STORE, STORE, Draft, Kind
from takeback.model.resource import Project, Scope
from takeback.model.run import NEVER, Lease, OnDeath, RunInfo, RunState
from takeback.model.stop import Stop
from takeback.storage.protocols import Query
from takeback.testing.fakes import (
    SECOND,
    closing,
    ending,
    intending,
    opening,
    signalling,
    submitting,
    suspending,
)
from takeback.testing.journal_runs_suite import JournalRunsSuite
from takeback.testing.journal_suite import LASTS, JournalBooks

HOUR = 3600


class JournalWorkflowsSuite(JournalRunsSuite):
    def pass_seconds(self, books: JournalBooks, seconds: int) -> None:
        """Let that much time go by, also for every lease there is: a store whose clock cannot be moved ages them."""
        books.clock.pass_seconds(seconds)

    # Records of the store.

    @pytest.mark.parametrize("kind", OF_STORE)
    def test_a_record_of_the_store_needs_no_lease_and_moves_nothing(
        self, books: JournalBooks, kind: Kind
    ) -> None:
        books.journal.append(books.lease("run"), [opening("run")])
        (record,) = books.journal.append(None, [Draft(kind, STORE, "", {"why": "so"})])
        books.journal.append(None, [signalling("run", "other")])
        assert list(books.journal.records(run=STORE, kinds=(kind,))) == [record]
        assert list(books.journal.records(run=STORE, kinds=OF_STORE)) == [record]
        assert [info.id for info in books.journal.runs()] == ["run"]
        assert not list(books.journal.check())

    # Submitted runs, and their keys.

    def test_a_submitted_run_waits_for_a_worker_and_tells_what_it_is(self, books: JournalBooks) -> None:
        (record,) = books.journal.append(None, [submitting("run", "deploy", key="order-7", arguments="[1]")])
        (info,) = books.journal.runs(unfinished=True)
        plain = RunInfo("run", "deploy", "agent", RunState.OPEN, OnDeath.RESUME, record.at)
        assert info == plain._replace(key="order-7", workflow="deploy")
        assert record.body["arguments"] == "[1]"

    def test_a_run_that_was_opened_before_is_not_submitted_again(self, books: JournalBooks) -> None:
        books.journal.append(None, [submitting("run", "deploy")])
        with books.refuses(Misuse):
            books.journal.append(None, [submitting("run", "deploy")])

    def test_an_ordinary_run_is_not_opened_without_a_lease(self, books: JournalBooks) -> None:
        with pytest.raises(Misuse):
            books.journal.append(None, [opening("run")])

    def test_a_key_belongs_to_one_run_even_when_that_has_ended(self, books: JournalBooks) -> None:
        books.journal.append(None, [submitting("one", "deploy", key="k")])
        books.journal.append(books.lease("one"), [closing("one")])
        with books.refuses(KeyReused) as reused:
            books.journal.append(None, [submitting("other", "deploy", key="k")])
        assert "'k'" in str(reused.value)
        assert [info.id for info in books.journal.runs(key="k")] == ["one"]

    def test_runs_without_a_key_do_not_share_one(self, books: JournalBooks) -> None:
        books.journal.append(None, [submitting("one", "deploy"), submitting("other", "deploy")])
        assert [info.id for info in books.journal.runs()] == ["one", "other"]
        assert list(books.journal.runs(key="unheard of")) == []

    def test_a_key_of_a_run_and_one_of_an_effect_are_two_things(self, books: JournalBooks) -> None:
        books.journal.append(None, [submitting("run", "deploy", key="k")])
        books.make(books.lease("run"), "e", key="k")
        assert books.ids(key="k") == ["e"]

    def test_an_effect_tells_which_step_of_its_workflow_it_is(self, books: JournalBooks) -> None:
        lease = books.open("run")
        books.make(lease, "plain", "file:///a")
        books.make(lease, "step", "file:///b", step=3)
        assert [books.effect(id).step for id in ("plain", "step")] == [0, 3]

    # Waiting, and signals.

    def test_a_run_that_sleeps_says_until_when_and_why(self, books: JournalBooks, held: Lease) -> None:
        due = books.clock() + HOUR * SECOND
        books.journal.append(held, [suspending("run", due=due, why="sleeps")])
        info = _info(books, "run")
        assert (info.state, info.due_at, info.awaits, info.note) == (RunState.SUSPENDED, due, "", "sleeps")
        books.journal.append(held, [Draft(Kind.OPEN, "run", "", {"resumed": True})])
        info = _info(books, "run")
        assert (info.state, info.due_at, info.awaits, info.note) == (RunState.OPEN, 0, "", "")
        assert (info.on_death, info.workflow) == (OnDeath.RESUME, "deploy")

    def test_the_signal_it_waits_for_makes_it_due(self, books: JournalBooks, held: Lease) -> None:
        books.journal.append(held, [suspending("run", due=NEVER, awaits="paid")])
        books.leases.release(held)
        assert (_info(books, "run").due_at, _info(books, "run").awaits) == (NEVER, "paid")
        (record,) = books.journal.append(None, [signalling("run", "paid", '{"by":"ann"}')])
        assert (record.kind, record.body) == (Kind.SIGNAL, {"name": "paid", "data": '{"by":"ann"}'})
        info = _info(books, "run")
        assert (info.state, info.due_at, info.awaits) == (RunState.SUSPENDED, record.at, "paid")
        assert list(books.journal.records(kinds=(Kind.SIGNAL,), run="run")) == [record]

    def test_another_signal_does_not_wake_it(self, books: JournalBooks, held: Lease) -> None:
        books.journal.append(held, [suspending("run", due=NEVER, awaits="paid")])
        books.journal.append(None, [signalling("run", "shipped")])
        assert _info(books, "run").due_at == NEVER

    def test_a_signal_for_a_run_at_work_is_only_recorded(self, books: JournalBooks) -> None:
        self._held(books, "run")
        before = _info(books, "run")
        books.journal.append(None, [signalling("run", "paid")])
        assert _info(books, "run") == before

    def test_a_signal_that_came_before_the_wait_is_not_slept_over(self, books: JournalBooks) -> None:
        """The signaller saw no waiting run, the run saw no signal: the close, which comes last, sees both."""
        lease = self._held(books, "run")
        (first, _) = books.journal.append(None, [signalling("run", "paid"), signalling("run", "other")])
        (closed,) = books.journal.append(
            lease, [suspending("run", due=NEVER, awaits="paid", read=first.seq - 1)]
        )
        assert _info(books, "run").due_at == closed.at

    def test_a_signal_that_was_read_does_not_wake_the_next_wait(self, books: JournalBooks) -> None:
        lease = self._held(books, "run")
        (first,) = books.journal.append(None, [signalling("run", "paid")])
        books.journal.append(None, [signalling("run", "other")])
        books.journal.append(lease, [suspending("run", due=NEVER, awaits="paid", read=first.seq)])
        assert _info(books, "run").due_at == NEVER

    def test_a_signal_of_another_run_wakes_nobody_else(self, books: JournalBooks) -> None:
        one, other = self._held(books, "one"), self._held(books, "other")
        books.journal.append(one, [suspending("one", due=NEVER, awaits="paid")])
        books.journal.append(None, [signalling("other", "paid")])
        assert _info(books, "one").due_at == NEVER
        books.journal.append(other, [suspending("other", due=NEVER, awaits="paid")])
        assert 0 < _info(books, "other").due_at < NEVER

    def test_a_signal_is_found_however_long_it_is(self, books: JournalBooks, held: Lease) -> None:
        books.journal.append(None, [signalling("run", "paid", '"' + "long " * 1000 + '"')])
        books.journal.append(held, [suspending("run", due=NEVER, awaits="paid")])
        assert _info(books, "run").due_at < NEVER

    @pytest.mark.parametrize("outcome", [RunState.ACCEPTED, RunState.UNDONE, RunState.PARTLY])
    def test_an_ended_run_takes_no_signal(self, books: JournalBooks, outcome: RunState, held: Lease) -> None:
        books.journal.append(held, [closing("run", outcome)])
        with books.refuses(Refused):
            books.journal.append(None, [signalling("run", "paid")])

    def test_a_run_that_is_not_there_takes_no_signal(self, books: JournalBooks) -> None:
        with pytest.raises(Refused):
            books.journal.append(None, [signalling("nobody", "paid")])
        assert not list(books.journal.records())

    def test_how_it_failed_stays_with_an_ended_run(self, books: JournalBooks, held: Lease) -> None:
        body = {"outcome": RunState.UNDONE.value, "error": "ValueError: no"}
        books.journal.append(held, [Draft(Kind.CLOSE, "run", "", body)])
        info = _info(books, "run")
        assert (info.state, info.note, info.due_at) == (RunState.UNDONE, "ValueError: no", 0)

    def test_all_of_this_is_sound(self, books: JournalBooks) -> None:
        one, other = self._held(books, "one"), self._held(books, "other")
        books.make(one, "e", step=1)
        books.journal.append(one, [suspending("one", due=NEVER, awaits="paid", why="waits")])
        books.journal.append(None, [signalling("one", "paid"), signalling("other", "paid")])
        books.journal.append(other, [suspending("other", due=NEVER, awaits="paid")])
        books.journal.append(one, [Draft(Kind.OPEN, "one", "", {"resumed": True}), closing("one")])
        assert not list(books.journal.check())

    # Claims.

    def test_a_submitted_run_is_claimed_once(self, books: JournalBooks) -> None:
        books.journal.append(None, [submitting("run", "deploy")])
        lease = _claim(books)
        assert (lease.run, lease.generation) == ("run", 1)
        assert books.leases.holder("run") == lease
        assert not _claimed(books)
        books.make(lease, "e")

    def test_what_was_submitted_first_is_claimed_first(self, books: JournalBooks) -> None:
        for run in ("c", "a", "b"):
            books.journal.append(None, [submitting(run, "deploy")])
        assert [_claimed(books) for _ in range(4)] == ["c", "a", "b", ""]

    def test_only_the_workflows_that_are_asked_for_are_claimed(self, books: JournalBooks) -> None:
        books.journal.append(None, [submitting("one", "deploy"), submitting("two", "pay")])
        books.journal.append(None, [submitting("three", "mail")])
        assert _claimed(books, "mail", "pay") == "two"
        assert _claimed(books, "mail", "pay") == "three"
        assert _claimed(books, "mail", "pay") == ""
        assert _claimed(books) == "one"
        assert books.leases.claim(books.processes.start(), books.clock(), LASTS, ()) is None

    @pytest.mark.parametrize("stop", [Stop(agent="a"), Stop(run="one")], ids=["agent", "run"])
    def test_what_is_stopped_is_passed_over_until_that_is_lifted(
        self, books: JournalBooks, stop: Stop
    ) -> None:
        books.journal.append(None, [submitting("one", "deploy", agent="a")])
        books.journal.append(None, [submitting("two", "deploy", agent="b")])
        at, owner = books.clock(), books.processes.start()
        assert not books.leases.claim(owner, at, LASTS, ("deploy",), (stop, Stop()))
        free = books.leases.claim(owner, at, LASTS, ("deploy",), (Stop(agent="other"), stop))
        assert free
        assert free.run == "two"
        assert not books.leases.claim(owner, at, LASTS, ("deploy",), (stop,))
        assert _claimed(books) == "one"

    def test_ordinary_runs_are_never_claimed(self, books: JournalBooks) -> None:
        for on_death in (OnDeath.UNDO, OnDeath.ACCEPT, OnDeath.LEAVE, OnDeath.FINISH):
            draft = opening(on_death.value, on_death=on_death)
            lease = books.lease(on_death.value)
            books.journal.append(lease, [draft._replace(body=draft.body | {"workflow": "deploy"})])
            books.leases.release(lease)
        assert not _claimed(books)

    @pytest.mark.parametrize("outcome", [RunState.ACCEPTED, RunState.UNDONE, RunState.PARTLY])
    def test_an_ended_run_is_never_claimed(self, books: JournalBooks, outcome: RunState, held: Lease) -> None:
        books.journal.append(held, [closing("run", outcome)])
        books.leases.release(held)
        assert not _claimed(books)

    def test_a_run_that_sleeps_is_claimed_when_it_is_due_and_not_before(self, books: JournalBooks) -> None:
        lease = self._held(books, "run")
        due = books.clock() + HOUR * SECOND
        books.journal.append(lease, [suspending("run", due=due)])
        books.leases.release(lease)
        assert not _claimed(books)
        assert books.leases.claim(books.processes.start(), due - 1, LASTS, ("deploy",)) is None
        again = books.leases.claim(books.processes.start(), due, LASTS, ("deploy",))
        assert again is not None
        assert again.generation == lease.generation + 1

    def test_who_was_due_first_is_claimed_first_whether_it_slept_or_is_new(self, books: JournalBooks) -> None:
        slept = self._held(books, "slept")
        books.journal.append(None, [submitting("before", "deploy")])
        due = books.clock() + 5 * SECOND
        books.journal.append(slept, [suspending("slept", due=due)])
        books.leases.release(slept)
        books.clock.pass_seconds(10)
        books.journal.append(None, [submitting("after", "deploy")])
        assert [_claimed(books) for _ in range(4)] == ["before", "slept", "after", ""]

    def test_a_run_that_waits_is_claimed_after_its_signal(self, books: JournalBooks, held: Lease) -> None:
        books.journal.append(held, [suspending("run", due=NEVER, awaits="paid")])
        books.leases.release(held)
        books.clock.pass_seconds(1000 * 24 * HOUR)
        assert not _claimed(books)
        books.journal.append(None, [signalling("run", "paid")])
        assert _claimed(books) == "run"

    def test_a_clock_that_was_set_back_does_not_keep_new_runs_waiting(self, books: JournalBooks) -> None:
        books.journal.append(None, [submitting("run", "deploy")])
        yesterday = books.clock() - 24 * HOUR * SECOND
        assert books.leases.claim(books.processes.start(), yesterday, LASTS, ("deploy",)) is not None

    def test_what_a_living_worker_holds_is_not_claimed(self, books: JournalBooks) -> None:
        self._held(books, "run")
        self.pass_seconds(books, 59)
        assert not _claimed(books)

    def test_what_a_dead_worker_held_is_claimed_at_once(self, books: JournalBooks, held: Lease) -> None:
        books.processes.kill(held.owner)
        again = _claim(books)
        assert (again.run, again.generation) == ("run", held.generation + 1)

    def test_what_a_paused_worker_holds_is_claimed_past_its_expiry(self, books: JournalBooks) -> None:
        """And when it wakes up it can neither renew, nor begin an effect, nor end one."""
        paused = self._held(books, "run")
        books.journal.append(paused, [intending("e", "run")])
        self.pass_seconds(books, 61)
        again = _claim(books)
        with books.refuses(LeaseLost):
            books.leases.renew(paused, books.clock(), LASTS)
        for draft in (ending("e", "run"), intending("f", "run", "file:///b"), closing("run")):
            with books.refuses(LeaseLost):
                books.journal.append(paused, [draft])
        books.leases.release(paused)
        assert books.leases.holder("run") == again

    def test_one_that_renewed_in_time_is_not_claimed(self, books: JournalBooks, held: Lease) -> None:
        self.pass_seconds(books, 50)
        books.leases.renew(held, books.clock(), LASTS)
        self.pass_seconds(books, 50)
        assert not _claimed(books)

    def test_those_that_are_held_do_not_hide_those_that_are_free(self, books: JournalBooks) -> None:
        for number in range(20):
            books.journal.append(None, [submitting(f"run-{number:02}", "deploy")])
        assert [_claimed(books) for _ in range(21)] == [f"run-{number:02}" for number in range(20)] + [""]
        books.leases.release(books.leases.holder("run-07") or pytest.fail("no holder"))
        assert _claimed(books) == "run-07"

    def test_the_run_of_a_paused_worker_that_is_not_durable_stays_its_own(self, books: JournalBooks) -> None:
        books.open("run")
        self.pass_seconds(books, HOUR)
        assert not _claimed(books)
        with pytest.raises(LeaseHeld):
            books.lease("run")

    def test_a_claimed_run_that_was_suspended_goes_on_with_an_open(self, books: JournalBooks) -> None:
        lease = self._held(books, "run")
        books.journal.append(lease, [suspending("run")])
        books.leases.release(lease)
        again = _claim(books)
        with pytest.raises(RecordInvalid):
            books.journal.append(again, [intending("e", "run")])
        books.journal.append(again, [Draft(Kind.OPEN, "run", "", {"resumed": True}), intending("e", "run")])

    def _held(self, books: JournalBooks, run: str) -> Lease:
        """Submitted, and claimed."""
        books.journal.append(None, [submitting(run, "deploy")])
        lease = _claim(books)
        assert lease.run == run
        return lease

    @pytest.fixture
    def held(self, books: JournalBooks) -> Lease:
        return self._held(books, "run")


def _info(books: JournalBooks, run: str) -> RunInfo:
    (info,) = books.journal.runs((run,))
    return info


def _claim(books: JournalBooks) -> Lease:
    lease = books.leases.claim(books.processes.start(), books.clock(), LASTS, ("deploy",))
    assert lease is not None
    return lease


def _claimed(books: JournalBooks, *workflows: str) -> str:
    lease = books.leases.claim(books.processes.start(), books.clock(), LASTS, workflows or ("deploy",))
    return lease.run if lease else ""


P, Q, INNER = "file:///p", "file:///q", "file:///p/inner"
HERE, THERE = Scope((P,)), Scope((Q,))


class JournalProjectsSuite(JournalWorkflowsSuite):
    def test_an_effect_belongs_to_the_project_that_its_run_began_in(self, books: JournalBooks) -> None:
        here, there = books.open("here", project=P, marked=True), books.open("there", project=Q)
        books.make(here, "e", "call://pay")
        books.make(there, "f", "file:///q/x")
        books.make(here, "g", "file:///p/y")
        assert books.ids(scope=HERE) == ["e", "g"]
        assert books.ids(scope=HERE, newest=True, limit=1) == ["g"]
        assert books.ids(scope=THERE) == ["f"]
        assert books.ids(scope=Scope((P, Q))) == ["e", "f", "g"]
        assert books.ids(scope=Scope(())) == []
        assert books.journal.count(Query(scope=HERE)) == 2
        assert [info.project for info in books.journal.runs()] == [P, Q]

    def test_an_effect_belongs_to_every_project_that_it_touches(self, books: JournalBooks) -> None:
        lease = books.open("run", project=P, marked=True)
        books.make(lease, "e", "file:///p/x", roots=[P, Q])
        books.make(lease, "f", "file:///p/x")
        assert books.ids(scope=THERE) == ["e"]
        assert books.ids(scope=HERE) == ["e", "f"]
        assert books.effect("e").roots == (P, Q)

    def test_one_of_no_project_belongs_where_it_touched_something(self, books: JournalBooks) -> None:
        lease = books.open("run")
        books.make(lease, "e", "file:///p/x", roots=[P])
        books.make(lease, "f", "call://pay")
        assert books.ids(scope=HERE) == ["e"]
        assert books.ids() == ["e", "f"]

    def test_a_directory_without_a_marker_has_those_inside_too_but_not_inner_projects(
        self, books: JournalBooks
    ) -> None:
        lease = books.open("run", project="file:///tmp/w")
        books.make(lease, "own", "file:///tmp/w/x")
        books.make(lease, "deep", "file:///tmp/w/d/x", places=["file:///tmp/w/d"])
        inner = books.open("inner", project="file:///tmp/w/git", marked=True)
        books.make(inner, "marked", "file:///tmp/w/git/x")
        beside = books.open("beside", project="file:///tmp/w-2")
        books.make(beside, "beside", "file:///tmp/w-2/x")
        assert books.ids(scope=Scope(("file:///tmp/w",), "file:///tmp/w")) == ["own", "deep"]
        assert books.ids(scope=Scope(("file:///tmp",), "file:///tmp")) == ["own", "deep", "beside"]
        assert books.ids(scope=Scope(("file:///tmp/w/d",), "file:///tmp/w/d")) == ["deep"]

    def test_runs_of_a_project_began_there_or_touched_it(self, books: JournalBooks) -> None:
        books.open("here", project=P, marked=True)
        there = books.open("there", project=Q, marked=True)
        books.make(there, "e", "file:///p/x", roots=[P])
        books.open("nowhere")
        assert [info.id for info in books.journal.runs(scope=HERE)] == ["here", "there"]
        assert [info.id for info in books.journal.runs(scope=THERE)] == ["there"]
        assert [info.id for info in books.journal.runs(("there",), scope=HERE)] == ["there"]

    def test_what_is_known_of_a_project_only_becomes_true(self, books: JournalBooks) -> None:
        assert not list(books.journal.projects((P, Q)))
        lease = books.open("run", project=P)
        assert list(books.journal.projects((P, Q))) == [Project(P, began=True)]
        books.make(lease, "e", "file:///p/x", roots=[P, Q])
        books.make(lease, "f", "file:///p/y", places=[Q])
        known = {one.root: one for one in books.journal.projects((P, Q))}
        assert known == {P: Project(P, marked=True, began=True), Q: Project(Q, marked=True)}
        assert not list(books.journal.projects(()))

    def test_a_marker_that_an_effect_made_is_known(self, books: JournalBooks) -> None:
        lease = books.open("run", project=P, marked=True)
        made = {"type": "absent"}
        books.make(lease, "e", ["file:///p/inner/.git", "file:///p/inner/.git/HEAD"], before=made)
        books.make(lease, "f", "file:///p/other/.git", before={"type": "dir"})
        assert list(books.journal.projects((INNER, "file:///p/other"))) == [Project(INNER, made=True)]
        assert books.ids(scope=Scope((INNER,))) == []

    def test_an_undo_that_brings_a_marker_back_made_none(self, books: JournalBooks) -> None:
        lease = books.open("run", project=P, marked=True)
        books.make(lease, "e", "file:///p/.git", before={"type": "dir"})
        books.make(lease, "u", "file:///p/.git", undoes="e", before={"type": "absent"})
        assert list(books.journal.projects((P,))) == [Project(P, marked=True, began=True)]

    def test_what_took_hold_late_is_found_in_its_project(self, books: JournalBooks) -> None:
        lease = books.open("run", project=P, marked=True)
        books.journal.append(lease, [intending("held", "run", "file:///p/h", kind=Kind.PROPOSE)])
        books.make(lease, "e", "file:///p/x")
        between = books.effect("e").seq
        late = intending("held", "run", "file:///p/h", roots=[P, Q])
        books.journal.append(lease, [late, ending("held", "run")])
        assert books.ids(scope=HERE) == ["held", "e"]
        assert books.ids(scope=HERE, told_after=between) == ["held"]
        assert books.ids(scope=HERE, told_after=between, before=between) == ["held"]
        assert books.ids(scope=THERE, told_after=between, before=between) == ["held"]
        assert books.ids(scope=HERE, told_after=books.effect("held").told) == []

    def test_a_scope_narrows_with_everything_else(self, books: JournalBooks) -> None:
        lease = books.open("run", project=P, marked=True, agent="ann", on_death=OnDeath.LEAVE)
        other = books.open("other", project=P, marked=True, agent="bob")
        books.make(lease, "e", "file:///p/x")
        books.make(other, "f", "file:///p/y")
        books.journal.append(other, [intending("g", "other", "file:///p/z")])
        assert books.ids(scope=HERE, agent="ann") == ["e"]
        assert books.ids(scope=HERE, states=(State.INTENDED,)) == ["g"]
        assert books.ids(scope=HERE, run="other") == ["f", "g"]
        assert books.ids(scope=HERE, resource="file:///p/y") == ["f"]
        assert books.ids(scope=THERE, resource="file:///p/y") == []

    def test_many_effects_are_listed_with_their_projects(self, books: JournalBooks) -> None:
        here, there = books.open("here", project=P, marked=True), books.open("there", project=Q)
        for number in range(100):
            books.make(here, f"e{number}", f"file:///p/{number}")
            if number % 10 == 0:
                books.make(there, f"f{number}", f"file:///p/{number}", roots=[P])
        assert len(books.ids(scope=HERE)) == 110
        assert len(books.ids(scope=THERE)) == 10
        assert not list(books.journal.check())
