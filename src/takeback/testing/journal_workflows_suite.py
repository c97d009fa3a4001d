"""What every `Journal` and its `Leases` must do for durable workflows: keys of runs, waiting, signals, claims."""

import pytest

from takeback.errors import KeyReused, LeaseHeld, LeaseLost, Misuse, RecordInvalid, Refused
from takeback.model.record import Draft, Kind
from takeback.model.run import NEVER, Lease, OnDeath, RunInfo, RunState
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
from takeback.testing.journal_suite import LASTS, Books

HOUR = 3600


class JournalWorkflowsSuite(JournalRunsSuite):
    def pass_seconds(self, books: Books, seconds: int) -> None:
        """Let that much time go by, also for every lease there is: a store whose clock cannot be moved ages them."""
        books.clock.pass_seconds(seconds)

    # Submitted runs, and their keys.

    def test_a_submitted_run_waits_for_a_worker_and_tells_what_it_is(self, books: Books) -> None:
        (record,) = books.journal.append(None, [submitting("run", "deploy", key="order-7", arguments="[1]")])
        (info,) = books.journal.runs(unfinished=True)
        assert info == RunInfo(
            "run",
            "deploy",
            "agent",
            RunState.OPEN,
            OnDeath.RESUME,
            record.at,
            key="order-7",
            workflow="deploy",
        )
        assert record.body["arguments"] == "[1]"

    def test_a_run_that_was_opened_before_is_not_submitted_again(self, books: Books) -> None:
        books.journal.append(None, [submitting("run", "deploy")])
        before = books.picture()
        with pytest.raises(Misuse):
            books.journal.append(None, [submitting("run", "deploy")])
        assert books.picture() == before

    def test_an_ordinary_run_is_not_opened_without_a_lease(self, books: Books) -> None:
        with pytest.raises(Misuse):
            books.journal.append(None, [opening("run")])

    def test_a_key_belongs_to_one_run_even_when_that_has_ended(self, books: Books) -> None:
        books.journal.append(None, [submitting("one", "deploy", key="k")])
        books.journal.append(books.lease("one"), [closing("one")])
        before = books.picture()
        with pytest.raises(KeyReused) as reused:
            books.journal.append(None, [submitting("other", "deploy", key="k")])
        assert "'k'" in str(reused.value)
        assert books.picture() == before
        assert [info.id for info in books.journal.runs(key="k")] == ["one"]

    def test_runs_without_a_key_do_not_share_one(self, books: Books) -> None:
        books.journal.append(None, [submitting("one", "deploy"), submitting("other", "deploy")])
        assert [info.id for info in books.journal.runs()] == ["one", "other"]
        assert list(books.journal.runs(key="unheard of")) == []

    def test_a_key_of_a_run_and_one_of_an_effect_are_two_things(self, books: Books) -> None:
        books.journal.append(None, [submitting("run", "deploy", key="k")])
        books.make(books.lease("run"), "e", key="k")
        assert books.ids(key="k") == ["e"]

    def test_an_effect_tells_which_step_of_its_workflow_it_is(self, books: Books) -> None:
        lease = books.open("run")
        books.make(lease, "plain", "file:///a")
        books.make(lease, "step", "file:///b", step=3)
        assert [books.effect(id).step for id in ("plain", "step")] == [0, 3]

    # Waiting, and signals.

    def test_a_run_that_sleeps_says_until_when_and_why(self, books: Books) -> None:
        lease = self._held(books, "run")
        due = books.clock() + HOUR * SECOND
        books.journal.append(lease, [suspending("run", due=due, why="sleeps")])
        info = _info(books, "run")
        assert (info.state, info.due_at, info.awaits, info.note) == (RunState.SUSPENDED, due, "", "sleeps")
        books.journal.append(lease, [Draft(Kind.OPEN, "run", "", {"resumed": True})])
        info = _info(books, "run")
        assert (info.state, info.due_at, info.awaits, info.note) == (RunState.OPEN, 0, "", "")
        assert (info.on_death, info.workflow) == (OnDeath.RESUME, "deploy")

    def test_the_signal_it_waits_for_makes_it_due(self, books: Books) -> None:
        lease = self._held(books, "run")
        books.journal.append(lease, [suspending("run", due=NEVER, awaits="paid")])
        books.leases.release(lease)
        assert (_info(books, "run").due_at, _info(books, "run").awaits) == (NEVER, "paid")
        (record,) = books.journal.append(None, [signalling("run", "paid", '{"by":"ann"}')])
        assert (record.kind, record.body) == (Kind.SIGNAL, {"name": "paid", "data": '{"by":"ann"}'})
        info = _info(books, "run")
        assert (info.state, info.due_at, info.awaits) == (RunState.SUSPENDED, record.at, "paid")
        assert list(books.journal.records(kinds=(Kind.SIGNAL,), run="run")) == [record]

    def test_another_signal_does_not_wake_it(self, books: Books) -> None:
        lease = self._held(books, "run")
        books.journal.append(lease, [suspending("run", due=NEVER, awaits="paid")])
        books.journal.append(None, [signalling("run", "shipped")])
        assert _info(books, "run").due_at == NEVER

    def test_a_signal_for_a_run_at_work_is_only_recorded(self, books: Books) -> None:
        self._held(books, "run")
        before = _info(books, "run")
        books.journal.append(None, [signalling("run", "paid")])
        assert _info(books, "run") == before

    def test_a_signal_that_came_before_the_wait_is_not_slept_over(self, books: Books) -> None:
        """The signaller saw no waiting run, the run saw no signal: the close, which comes last, sees both."""
        lease = self._held(books, "run")
        (first, _) = books.journal.append(None, [signalling("run", "paid"), signalling("run", "other")])
        (closed,) = books.journal.append(
            lease, [suspending("run", due=NEVER, awaits="paid", read=first.seq - 1)]
        )
        assert _info(books, "run").due_at == closed.at

    def test_a_signal_that_was_read_does_not_wake_the_next_wait(self, books: Books) -> None:
        lease = self._held(books, "run")
        (first,) = books.journal.append(None, [signalling("run", "paid")])
        books.journal.append(None, [signalling("run", "other")])
        books.journal.append(lease, [suspending("run", due=NEVER, awaits="paid", read=first.seq)])
        assert _info(books, "run").due_at == NEVER

    def test_a_signal_of_another_run_wakes_nobody_else(self, books: Books) -> None:
        one, other = self._held(books, "one"), self._held(books, "other")
        books.journal.append(one, [suspending("one", due=NEVER, awaits="paid")])
        books.journal.append(None, [signalling("other", "paid")])
        assert _info(books, "one").due_at == NEVER
        books.journal.append(other, [suspending("other", due=NEVER, awaits="paid")])
        assert 0 < _info(books, "other").due_at < NEVER

    def test_a_signal_is_found_however_long_it_is(self, books: Books) -> None:
        lease = self._held(books, "run")
        books.journal.append(None, [signalling("run", "paid", '"' + "long " * 1000 + '"')])
        books.journal.append(lease, [suspending("run", due=NEVER, awaits="paid")])
        assert _info(books, "run").due_at < NEVER

    @pytest.mark.parametrize("outcome", [RunState.ACCEPTED, RunState.UNDONE, RunState.PARTLY])
    def test_an_ended_run_takes_no_signal(self, books: Books, outcome: RunState) -> None:
        lease = self._held(books, "run")
        books.journal.append(lease, [closing("run", outcome)])
        before = books.picture()
        with pytest.raises(Refused):
            books.journal.append(None, [signalling("run", "paid")])
        assert books.picture() == before

    def test_a_run_that_is_not_there_takes_no_signal(self, books: Books) -> None:
        with pytest.raises(Refused):
            books.journal.append(None, [signalling("nobody", "paid")])
        assert not list(books.journal.records())

    def test_how_it_failed_stays_with_an_ended_run(self, books: Books) -> None:
        lease = self._held(books, "run")
        body = {"outcome": RunState.UNDONE.value, "error": "ValueError: no"}
        books.journal.append(lease, [Draft(Kind.CLOSE, "run", "", body)])
        info = _info(books, "run")
        assert (info.state, info.note, info.due_at) == (RunState.UNDONE, "ValueError: no", 0)

    def test_all_of_this_is_sound(self, books: Books) -> None:
        one, other = self._held(books, "one"), self._held(books, "other")
        books.make(one, "e", step=1)
        books.journal.append(one, [suspending("one", due=NEVER, awaits="paid", why="waits")])
        books.journal.append(None, [signalling("one", "paid"), signalling("other", "paid")])
        books.journal.append(other, [suspending("other", due=NEVER, awaits="paid")])
        books.journal.append(one, [Draft(Kind.OPEN, "one", "", {"resumed": True}), closing("one")])
        assert not list(books.journal.check())

    # Claims.

    def test_a_submitted_run_is_claimed_once(self, books: Books) -> None:
        books.journal.append(None, [submitting("run", "deploy")])
        lease = _claim(books)
        assert lease is not None
        assert (lease.run, lease.generation) == ("run", 1)
        assert books.leases.holder("run") == lease
        assert _claim(books) is None
        books.make(lease, "e")

    def test_what_was_submitted_first_is_claimed_first(self, books: Books) -> None:
        for run in ("c", "a", "b"):
            books.journal.append(None, [submitting(run, "deploy")])
        assert [_claimed(books) for _ in range(4)] == ["c", "a", "b", ""]

    def test_only_the_workflows_that_are_asked_for_are_claimed(self, books: Books) -> None:
        books.journal.append(None, [submitting("one", "deploy"), submitting("two", "pay")])
        books.journal.append(None, [submitting("three", "mail")])
        assert _claimed(books, "mail", "pay") == "two"
        assert _claimed(books, "mail", "pay") == "three"
        assert _claimed(books, "mail", "pay") == ""
        assert _claimed(books) == "one"
        assert books.leases.claim(books.processes.start(), books.clock(), LASTS, ()) is None

    def test_ordinary_runs_are_never_claimed(self, books: Books) -> None:
        for on_death in (OnDeath.UNDO, OnDeath.ACCEPT, OnDeath.LEAVE, OnDeath.FINISH):
            draft = opening(on_death.value, on_death=on_death)
            lease = books.lease(on_death.value)
            books.journal.append(lease, [draft._replace(body=draft.body | {"workflow": "deploy"})])
            books.leases.release(lease)
        assert _claim(books) is None

    @pytest.mark.parametrize("outcome", [RunState.ACCEPTED, RunState.UNDONE, RunState.PARTLY])
    def test_an_ended_run_is_never_claimed(self, books: Books, outcome: RunState) -> None:
        lease = self._held(books, "run")
        books.journal.append(lease, [closing("run", outcome)])
        books.leases.release(lease)
        assert _claim(books) is None

    def test_a_run_that_sleeps_is_claimed_when_it_is_due_and_not_before(self, books: Books) -> None:
        lease = self._held(books, "run")
        due = books.clock() + HOUR * SECOND
        books.journal.append(lease, [suspending("run", due=due)])
        books.leases.release(lease)
        assert _claim(books) is None
        assert books.leases.claim(books.processes.start(), due - 1, LASTS, ("deploy",)) is None
        again = books.leases.claim(books.processes.start(), due, LASTS, ("deploy",))
        assert again is not None
        assert again.generation == lease.generation + 1

    def test_who_was_due_first_is_claimed_first_whether_it_slept_or_is_new(self, books: Books) -> None:
        slept = self._held(books, "slept")
        books.journal.append(None, [submitting("before", "deploy")])
        due = books.clock() + 5 * SECOND
        books.journal.append(slept, [suspending("slept", due=due)])
        books.leases.release(slept)
        books.clock.pass_seconds(10)
        books.journal.append(None, [submitting("after", "deploy")])
        assert [_claimed(books) for _ in range(4)] == ["before", "slept", "after", ""]

    def test_a_run_that_waits_is_claimed_after_its_signal(self, books: Books) -> None:
        lease = self._held(books, "run")
        books.journal.append(lease, [suspending("run", due=NEVER, awaits="paid")])
        books.leases.release(lease)
        books.clock.pass_seconds(1000 * 24 * HOUR)
        assert _claim(books) is None
        books.journal.append(None, [signalling("run", "paid")])
        assert _claimed(books) == "run"

    def test_a_clock_that_was_set_back_does_not_keep_new_runs_waiting(self, books: Books) -> None:
        books.journal.append(None, [submitting("run", "deploy")])
        yesterday = books.clock() - 24 * HOUR * SECOND
        assert books.leases.claim(books.processes.start(), yesterday, LASTS, ("deploy",)) is not None

    def test_what_a_living_worker_holds_is_not_claimed(self, books: Books) -> None:
        self._held(books, "run")
        self.pass_seconds(books, 59)
        assert _claim(books) is None

    def test_what_a_dead_worker_held_is_claimed_at_once(self, books: Books) -> None:
        lease = self._held(books, "run")
        books.processes.kill(lease.owner)
        again = _claim(books)
        assert again is not None
        assert (again.run, again.generation) == ("run", lease.generation + 1)

    def test_what_a_paused_worker_holds_is_claimed_past_its_expiry(self, books: Books) -> None:
        """And when it wakes up it can neither renew, nor begin an effect, nor end one."""
        paused = self._held(books, "run")
        books.journal.append(paused, [intending("e", "run")])
        self.pass_seconds(books, 61)
        again = _claim(books)
        assert again is not None
        before = books.picture()
        with pytest.raises(LeaseLost):
            books.leases.renew(paused, books.clock(), LASTS)
        for draft in (ending("e", "run"), intending("f", "run", "file:///b"), closing("run")):
            with pytest.raises(LeaseLost):
                books.journal.append(paused, [draft])
        assert books.picture() == before
        books.leases.release(paused)
        assert books.leases.holder("run") == again

    def test_one_that_renewed_in_time_is_not_claimed(self, books: Books) -> None:
        lease = self._held(books, "run")
        self.pass_seconds(books, 50)
        books.leases.renew(lease, books.clock(), LASTS)
        self.pass_seconds(books, 50)
        assert _claim(books) is None

    def test_those_that_are_held_do_not_hide_those_that_are_free(self, books: Books) -> None:
        for number in range(20):
            books.journal.append(None, [submitting(f"run-{number:02}", "deploy")])
        assert [_claimed(books) for _ in range(21)] == [f"run-{number:02}" for number in range(20)] + [""]
        books.leases.release(books.leases.holder("run-07") or pytest.fail("nobody holds it"))
        assert _claimed(books) == "run-07"

    def test_the_run_of_a_paused_worker_that_is_not_durable_stays_its_own(self, books: Books) -> None:
        books.open("run")
        self.pass_seconds(books, HOUR)
        assert _claim(books) is None
        with pytest.raises(LeaseHeld):
            books.lease("run")

    def test_a_claimed_run_that_was_suspended_goes_on_with_an_open(self, books: Books) -> None:
        lease = self._held(books, "run")
        books.journal.append(lease, [suspending("run")])
        books.leases.release(lease)
        again = _claim(books)
        assert again is not None
        with pytest.raises(RecordInvalid):
            books.journal.append(again, [intending("e", "run")])
        books.journal.append(again, [Draft(Kind.OPEN, "run", "", {"resumed": True}), intending("e", "run")])

    def _held(self, books: Books, run: str, workflow: str = "deploy") -> Lease:
        """Submitted, and claimed."""
        books.journal.append(None, [submitting(run, workflow)])
        lease = books.leases.claim(books.processes.start(), books.clock(), LASTS, (workflow,))
        assert lease is not None
        assert lease.run == run
        return lease


def _info(books: Books, run: str) -> RunInfo:
    (info,) = books.journal.runs((run,))
    return info


def _claim(books: Books) -> Lease | None:
    return books.leases.claim(books.processes.start(), books.clock(), LASTS, ("deploy",))


def _claimed(books: Books, *workflows: str) -> str:
    lease = books.leases.claim(books.processes.start(), books.clock(), LASTS, workflows or ("deploy",))
    return lease.run if lease else ""
