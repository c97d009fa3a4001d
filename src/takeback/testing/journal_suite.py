"""What every `Journal` must do. Inherit `JournalSuite`, say how to make one, and all of it runs.

`DurableJournalSuite` adds what only a journal that outlives its process can be asked.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from takeback.errors import Blocked, KeyReused, LeaseLost, Misuse, RecordInvalid, StoreBusy
from takeback.model.effect import Dropped, DropReason, Effect, State
from takeback.model.record import Draft, Kind
from takeback.model.run import Lease
from takeback.storage.protocols import Journal, Leases, Query
from takeback.testing.fakes import SECOND, Clock, FakeProcesses, ending, intending, opening

LASTS = 60 * SECOND
Refusal = TypeVar("Refusal", bound=Exception)


class JournalBooks:
    """A journal with its leases, and short ways to say what tests say often."""

    def __init__(self, journal: Journal, leases: Leases, clock: Clock, processes: FakeProcesses) -> None:
        self.journal = journal
        self.leases = leases
        self.clock = clock
        self.processes = processes

    def lease(self, run: str) -> Lease:
        return self.leases.acquire(run, self.processes.start(), self.clock(), LASTS)

    def open(self, run: str, **how: Any) -> Lease:
        lease = self.lease(run)
        self.journal.append(lease, [opening(run, **how)])
        return lease

    def make(
        self, lease: Lease, effect: str, resources: str | Sequence[str] = "file:///a", **how: Any
    ) -> None:
        self.journal.append(lease, [intending(effect, lease.run, resources, **how)])
        self.journal.append(lease, [ending(effect, lease.run)])

    def effect(self, id: str) -> Effect:
        (found,) = self.journal.effects(Query(ids=(id,)))
        return found

    def ids(self, **query: Any) -> list[str]:
        return [effect.id for effect in self.journal.effects(Query(**query))]

    @contextmanager
    def refuses(self, *kinds: type[Refusal]) -> Iterator[pytest.ExceptionInfo[Refusal]]:
        """The block raises one of these, and nothing has changed."""
        before = self.picture()
        with pytest.raises(kinds) as refusal:
            yield refusal
        assert self.picture() == before

    def picture(self) -> tuple[Any, ...]:
        """Everything that can be asked, to see that nothing has changed."""
        return (
            tuple(self.journal.records()),
            tuple(self.journal.effects(Query())),
            tuple(self.journal.runs()),
            self.journal.tally(),
        )


class JournalSuite:
    def make(self, directory: Path, clock: Clock, processes: FakeProcesses) -> tuple[Journal, Leases]:
        """New and empty, with the leases it asks."""
        raise NotImplementedError

    @pytest.fixture
    def books(self, tmp_path: Path) -> JournalBooks:
        clock, processes = Clock(), FakeProcesses()
        journal, leases = self.make(tmp_path, clock, processes)
        return JournalBooks(journal, leases, clock, processes)

    @pytest.fixture
    def lease(self, books: JournalBooks) -> Lease:
        """Of the run `run`, which is open."""
        return books.open("run")

    # Only who holds the run may write.

    def test_an_append_with_the_newest_lease_is_taken(self, books: JournalBooks) -> None:
        (record,) = books.journal.append(books.lease("run"), [opening("run")])
        assert (record.seq, record.kind, record.run, record.effect) == (1, Kind.OPEN, "run", "")
        assert list(books.journal.records()) == [record]

    def test_a_holder_that_was_taken_over_cannot_append(self, books: JournalBooks) -> None:
        old = books.open("run")
        books.processes.kill(old.owner)
        books.lease("run")
        with books.refuses(LeaseLost) as lost:
            books.journal.append(old, [intending("e", "run")])
        assert lost.value.exit_code == 5

    def test_a_holder_that_wakes_after_a_takeover_cannot_even_finish(self, books: JournalBooks) -> None:
        old = books.open("run")
        books.journal.append(old, [intending("e", "run")])
        books.processes.kill(old.owner)
        books.lease("run")
        with pytest.raises(LeaseLost):
            books.journal.append(old, [ending("e", "run")])
        assert books.effect("e").state is State.INTENDED

    def test_a_released_lease_cannot_append(self, books: JournalBooks, lease: Lease) -> None:
        books.leases.release(lease)
        with pytest.raises(LeaseLost):
            books.journal.append(lease, [intending("e", "run")])

    def test_a_lease_that_was_never_given_cannot_append(self, books: JournalBooks) -> None:
        forged = Lease("run", 7, books.processes.start(), books.clock() + LASTS)
        with pytest.raises(LeaseLost):
            books.journal.append(forged, [opening("run")])
        assert not list(books.journal.records())

    def test_the_lease_of_one_run_does_not_open_another(self, books: JournalBooks) -> None:
        mine, theirs = books.open("mine"), books.open("theirs")
        with books.refuses(Misuse):
            books.journal.append(mine, [intending("e", theirs.run)])

    @pytest.mark.parametrize(
        "kind", [Kind.INTENT, Kind.PROPOSE, Kind.DONE, Kind.ABORT, Kind.STICK, Kind.CHECKPOINT]
    )
    def test_without_a_lease_nothing_can_be_said_of_work_in_progress(
        self, books: JournalBooks, kind: Kind, lease: Lease
    ) -> None:
        books.journal.append(lease, [intending("e", "run")])
        draft = intending("f", "run", "file:///b", kind=kind) if kind in (Kind.INTENT, Kind.PROPOSE) else None
        with books.refuses(Misuse):
            books.journal.append(None, [draft or Draft(kind, "run", "e", {"id": "c", "label": "c"})])

    def test_what_is_settled_can_be_pinned_and_unpinned_without_a_lease(self, books: JournalBooks) -> None:
        books.make(books.open("run"), "e")
        for kind, pinned in ((Kind.PIN, True), (Kind.PIN, True), (Kind.UNPIN, False), (Kind.PIN, True)):
            books.journal.append(None, [ending("e", "run", kind)])
            assert books.effect("e").pinned is pinned
            assert books.journal.tally().get("pinned", 0) == int(pinned)
        assert not list(books.journal.check())

    def test_what_is_settled_can_be_accepted_and_forgotten_without_a_lease(self, books: JournalBooks) -> None:
        books.make(books.open("run"), "e")
        books.journal.append(None, [ending("e", "run", Kind.ACCEPT), ending("e", "run", Kind.FORGET)])
        assert books.effect("e").accepted_by == "person"
        assert books.effect("e").forgotten

    # All or nothing.

    @pytest.mark.parametrize(
        "bad",
        [
            ending("unheard of", "run"),
            opening("run"),
            intending("f", "run", "file:///a"),
            intending("f", "run", "file:///b", key="taken"),
        ],
        ids=["no intent", "opened twice is fine but then this", "overlap", "key"],
    )
    def test_an_append_of_several_is_all_or_nothing(self, books: JournalBooks, bad: Draft) -> None:
        lease = books.open("run")
        books.journal.append(lease, [intending("e", "run", "file:///a", key="taken")])
        good = intending("g", "run", "file:///other")
        with books.refuses(RecordInvalid, StoreBusy, KeyReused):
            books.journal.append(lease, [good, bad, ending("never", "run")])
        assert not list(books.journal.check())

    def test_a_body_that_is_not_our_json_is_refused_whole(self, books: JournalBooks, lease: Lease) -> None:
        with books.refuses(ValueError, TypeError):
            books.journal.append(
                lease,
                [
                    intending("e", "run"),
                    Draft(Kind.CHECKPOINT, "run", "", {"id": "c", "label": "c", "x": 0.5}),
                ],
            )
        books.make(lease, "e")
        assert not list(books.journal.check())

    def test_after_a_refused_append_the_next_one_is_numbered_without_a_gap(self, books: JournalBooks) -> None:
        lease = books.open("run")
        with pytest.raises(RecordInvalid):
            books.journal.append(lease, [ending("unheard of", "run")])
        (record,) = books.journal.append(lease, [intending("e", "run")])
        assert record.seq == 2

    # Transitions.

    @pytest.mark.parametrize(
        ("story", "bad"),
        [
            ([Kind.INTENT], Kind.INTENT),
            ([Kind.INTENT], Kind.PROPOSE),
            ([Kind.INTENT], Kind.DECIDE),
            ([Kind.INTENT], Kind.ACCEPT),
            ([Kind.INTENT], Kind.FORGET),
            ([Kind.PROPOSE], Kind.DONE),
            ([Kind.PROPOSE], Kind.STICK),
            ([Kind.PROPOSE], Kind.PROPOSE),
            ([Kind.PROPOSE, Kind.ABORT], Kind.INTENT),
            ([Kind.INTENT, Kind.DONE], Kind.DONE),
            ([Kind.INTENT, Kind.DONE], Kind.ABORT),
            ([Kind.INTENT, Kind.DONE], Kind.STICK),
            ([Kind.INTENT, Kind.DONE], Kind.INTENT),
            ([Kind.INTENT, Kind.ABORT], Kind.DONE),
            ([Kind.INTENT, Kind.ABORT], Kind.ABORT),
            ([Kind.INTENT, Kind.ABORT], Kind.ACCEPT),
            ([Kind.INTENT, Kind.ABORT], Kind.INTENT),
            ([Kind.INTENT, Kind.STICK], Kind.STICK),
            ([Kind.INTENT, Kind.STICK], Kind.INTENT),
            ([Kind.INTENT, Kind.STICK, Kind.DONE], Kind.ABORT),
        ],
        ids=lambda value: "-".join(value) if isinstance(value, list) else f"then-{value}",  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    )
    def test_a_record_that_does_not_fit_is_an_alarm(
        self, books: JournalBooks, story: list[Kind], bad: Kind, lease: Lease
    ) -> None:
        for kind in story:
            books.journal.append(lease, [_about("e", kind)])
        with books.refuses(RecordInvalid):
            books.journal.append(lease, [_about("e", bad)])

    @pytest.mark.parametrize(
        ("story", "state"),
        [
            ([Kind.PROPOSE], State.PROPOSED),
            ([Kind.PROPOSE, Kind.DECIDE], State.PROPOSED),
            ([Kind.PROPOSE, Kind.INTENT], State.INTENDED),
            ([Kind.PROPOSE, Kind.INTENT, Kind.DONE], State.DONE),
            ([Kind.INTENT, Kind.ABORT], State.ABORTED),
            ([Kind.INTENT, Kind.STICK], State.STUCK),
            ([Kind.INTENT, Kind.STICK, Kind.DONE], State.DONE),
            ([Kind.INTENT, Kind.STICK, Kind.ABORT], State.ABORTED),
            ([Kind.INTENT, Kind.DONE, Kind.ACCEPT, Kind.FORGET], State.DONE),
            ([Kind.PROPOSE, Kind.DROP], State.DROPPED),
            ([Kind.PROPOSE, Kind.DROP, Kind.INTENT], State.INTENDED),
            ([Kind.PROPOSE, Kind.DROP, Kind.INTENT, Kind.DROP], State.DROPPED),
            ([Kind.PROPOSE, Kind.DROP, Kind.INTENT, Kind.DROP, Kind.INTENT, Kind.DONE], State.DONE),
            ([Kind.PROPOSE, Kind.DROP, Kind.ERASE], State.ABORTED),
        ],
        ids=lambda value: "-".join(value) if isinstance(value, list) else value.value,  # pyright: ignore
    )
    def test_a_life_that_fits_ends_in_its_state(
        self, books: JournalBooks, story: list[Kind], state: State, lease: Lease
    ) -> None:
        for kind in story:
            books.journal.append(lease, [_about("e", kind)])
        assert books.effect("e").state is state
        assert books.journal.tally()[state.value] == 1
        assert books.journal.any_dropped() == (state is State.DROPPED)
        assert not list(books.journal.check())

    def test_the_effect_tells_what_its_records_told(self, books: JournalBooks) -> None:
        lease = books.open("run", agent="deployer")
        books.journal.append(lease, [intending("e", "run", ["file:///a", "file:///b"], key="k", needs=["n"])])
        (done,) = books.journal.append(lease, [ending("e", "run", receipt={"id": 7})])
        effect = books.effect("e")
        assert (effect.run, effect.agent, effect.key, effect.needs) == ("run", "deployer", "k", ("n",))
        assert [target.resource for target in effect.targets] == ["file:///a", "file:///b"]
        assert effect.receipt == {"id": 7}
        assert effect.seq == done.seq - 1

    def test_an_abort_says_why(self, books: JournalBooks, lease: Lease) -> None:
        books.journal.append(lease, [intending("e", "run")])
        books.journal.append(lease, [ending("e", "run", Kind.ABORT, why="The disk was full.")])
        assert books.effect("e").note == "The disk was full."

    def test_a_drop_says_why_and_until_when_and_outlives_its_run(self, books: JournalBooks) -> None:
        lease = books.open("run")
        books.journal.append(lease, [_about("e", Kind.PROPOSE), _about("e", Kind.DROP)])
        books.journal.append(lease, [Draft(Kind.CLOSE, "run", "", {"outcome": "accepted"})])
        books.leases.release(lease)
        assert books.effect("e").dropped == Dropped(DropReason.FAILED, 7, 3)
        assert books.ids(states=(State.DROPPED,)) == ["e"]
        books.make(books.open("other"), "f", "file:///a")  # it blocks nothing
        again = books.lease("run")
        books.journal.append(again, [_about("e", Kind.INTENT)])
        assert books.effect("e").dropped == Dropped(DropReason.FAILED, 7, 3)
        books.journal.append(again, [ending("e", "run")])
        assert (books.effect("e").state, books.effect("e").dropped) == (State.DONE, None)
        assert books.journal.tally().get("dropped", 0) == 0 and not books.journal.any_dropped()
        assert not list(books.journal.check())

    def test_what_is_dropped_again_is_what_was_proposed(self, books: JournalBooks, lease: Lease) -> None:
        books.journal.append(lease, [_about("e", Kind.PROPOSE), _about("e", Kind.DROP)])
        proposed = books.effect("e")
        books.journal.append(lease, [intending("e", "run", args={"targets": "over the present content"})])
        assert books.effect("e").change.args
        books.journal.append(lease, [_about("e", Kind.DROP)])
        assert books.effect("e").change == proposed.change
        assert books.effect("e").order == proposed.order
        assert not list(books.journal.check())

    def test_a_dropped_effect_is_erased_without_a_lease_and_no_other_is(self, books: JournalBooks) -> None:
        lease = books.open("run")
        books.journal.append(lease, [_about("e", Kind.PROPOSE), _about("e", Kind.DROP)])
        books.make(lease, "done", "file:///b")
        erase = [Draft(Kind.ERASE, "run", id, {"why": "its time is over"}) for id in ("e", "done")]
        with pytest.raises(RecordInvalid):
            books.journal.append(None, erase[1:])
        books.journal.append(None, erase[:1])
        effect = books.effect("e")
        assert (effect.state, effect.forgotten) == (State.ABORTED, False)
        assert (books.journal.tally().get("forgotten", 0), books.ids(states=(State.DROPPED,))) == (0, [])

    # Keys.

    def test_the_key_of_a_dropped_effect_is_free_again(self, books: JournalBooks, lease: Lease) -> None:
        books.journal.append(
            lease, [intending("e", "run", key="k", kind=Kind.PROPOSE), _about("e", Kind.DROP)]
        )
        books.make(lease, "f", key="k")
        books.journal.append(lease, [intending("e", "run", "file:///b")])
        books.journal.append(lease, [ending("e", "run")])
        assert books.ids(key="k") == ["f"]
        assert not list(books.journal.check())

    def test_a_key_belongs_to_one_effect(self, books: JournalBooks, lease: Lease) -> None:
        books.make(lease, "e", "file:///a", key="k")
        with pytest.raises(KeyReused):
            books.journal.append(lease, [intending("f", "run", "file:///b", key="k")])

    def test_a_key_is_not_free_again_when_its_effect_was_undone(self, books: JournalBooks) -> None:
        lease = books.open("run")
        books.make(lease, "e", key="k")
        books.make(lease, "u", undoes="e")
        with pytest.raises(KeyReused):
            books.journal.append(lease, [intending("f", "run", key="k")])

    def test_a_key_is_free_again_when_its_effect_never_happened(self, books: JournalBooks) -> None:
        lease = books.open("run")
        books.journal.append(lease, [intending("e", "run", key="k")])
        books.journal.append(lease, [ending("e", "run", Kind.ABORT, why="no")])
        books.make(lease, "f", key="k")
        assert books.ids(key="k") == ["f"]

    def test_a_key_is_one_for_all_runs(self, books: JournalBooks) -> None:
        books.make(books.open("one"), "e", key="k")
        with pytest.raises(KeyReused):
            books.journal.append(books.open("other"), [intending("f", "other", "file:///b", key="k")])

    def test_effects_without_a_key_do_not_share_one(self, books: JournalBooks, lease: Lease) -> None:
        books.make(lease, "e")
        books.make(lease, "f")
        assert books.ids() == ["e", "f"]

    # One effect in flight per resource.

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("file:///a", "file:///a"),
            ("file:///d", "file:///d/f"),
            ("file:///d/f", "file:///d"),
            ("file:///d/e/f", "file:///d"),
            ("file:///c.toml#/x", "file:///c.toml"),
            ("file:///c.toml#/x", "file:///c.toml#/y"),
            ("file:///d/c.toml#/x", "file:///d"),
            ("file:///", "file:///anything/below"),
        ],
    )
    def test_effects_in_flight_do_not_overlap(self, books: JournalBooks, one: str, other: str) -> None:
        first, second = books.open("first"), books.open("second")
        books.journal.append(first, [intending("e", "first", one)])
        with pytest.raises(StoreBusy) as busy:
            books.journal.append(second, [intending("f", "second", other)])
        assert busy.value.exit_code == 5
        books.journal.append(first, [ending("e", "first")])
        books.make(second, "f", other)

    @pytest.mark.parametrize(
        ("one", "other"),
        [("file:///a", "file:///ab"), ("file:///d/f", "file:///d/g"), ("file:///c#/x", "file:///c2#/x")],
    )
    def test_effects_in_flight_on_different_things_do_not_wait(
        self, books: JournalBooks, one: str, other: str
    ) -> None:
        first, second = books.open("first"), books.open("second")
        books.journal.append(first, [intending("e", "first", one)])
        books.journal.append(second, [intending("f", "second", other)])
        assert books.ids(states=(State.INTENDED,)) == ["e", "f"]

    def test_any_of_many_targets_is_enough_to_overlap(self, books: JournalBooks, lease: Lease) -> None:
        books.journal.append(lease, [intending("e", "run", ["file:///a", "file:///d/f"])])
        with pytest.raises(StoreBusy):
            books.journal.append(lease, [intending("f", "run", ["file:///x", "file:///d"])])

    def test_a_proposal_counts_as_in_flight(self, books: JournalBooks, lease: Lease) -> None:
        books.journal.append(lease, [intending("e", "run", kind=Kind.PROPOSE)])
        with pytest.raises(StoreBusy):
            books.journal.append(lease, [intending("f", "run")])

    def test_a_proposal_does_not_overlap_what_is_in_flight(self, books: JournalBooks, lease: Lease) -> None:
        books.journal.append(lease, [intending("e", "run", "file:///d")])
        with pytest.raises(StoreBusy):
            books.journal.append(lease, [intending("f", "run", "file:///d/f", kind=Kind.PROPOSE)])

    def test_nothing_may_build_on_what_is_stuck(self, books: JournalBooks, lease: Lease) -> None:
        books.journal.append(lease, [intending("e", "run", "file:///d/f")])
        books.journal.append(lease, [ending("e", "run", Kind.STICK, why="odd")])
        with pytest.raises(Blocked) as blocked:
            books.journal.append(lease, [intending("f", "run", "file:///d")])
        assert blocked.value.blockers == ("e",)


def _about(effect: str, kind: Kind) -> Draft:
    if kind in (Kind.INTENT, Kind.PROPOSE):
        return intending(effect, "run", kind=kind)
    if kind is Kind.DROP:
        return ending(effect, "run", kind, reason="failed", until=7, bytes=3)
    return ending(effect, "run", kind)
