"""The thread that keeps a lease: for how long, when it lets go, and what it tells."""

from collections.abc import Iterator
from threading import Condition

import pytest

from takeback.errors import LeaseLost, StoreBusy
from takeback.model.run import Lease
from takeback.runs.lease import Heartbeat
from takeback.testing.fakes import SECOND, FakeProcesses
from tests.memory import MemoryLeases

LASTS = 30_000  # microseconds: a beat each hundredth of a second
TIMEOUT = 20


class Leases(MemoryLeases):
    """Tells how often each was renewed and for how long, and fails as it is told to."""

    def __init__(self, processes: FakeProcesses) -> None:
        super().__init__(processes.alive)
        self.asked: list[int] = []
        self.trouble: list[Exception] = []
        self.changed = Condition()

    def renew(self, lease: Lease, now: int, lasts: int) -> Lease:
        with self.changed:
            self.asked.append(lasts)
            self.changed.notify_all()
            if self.trouble:
                raise self.trouble.pop(0)
        return super().renew(lease, now, lasts)

    def renewed(self, times: int) -> None:
        """Wait for that many more."""
        with self.changed:
            wanted = len(self.asked) + times
            assert self.changed.wait_for(lambda: len(self.asked) >= wanted, TIMEOUT)


class Clock:
    """Stands where it was set to; tells how often it was read."""

    def __init__(self) -> None:
        self.now = 1000 * SECOND
        self.read = 0
        self.changed = Condition()

    def __call__(self) -> int:
        with self.changed:
            self.read += 1
            self.changed.notify_all()
            return self.now

    def was_read(self, times: int) -> None:
        with self.changed:
            wanted = self.read + times
            assert self.changed.wait_for(lambda: self.read >= wanted, TIMEOUT)


class Scene:
    def __init__(self) -> None:
        self.processes = FakeProcesses()
        self.leases = Leases(self.processes)
        self.clock = Clock()
        self.started: list[Heartbeat] = []

    def heartbeat(self, lasts: int = LASTS, *, known: bool = True) -> Heartbeat:
        begun = self.clock()
        lease = self.leases.acquire("run", self.processes.start(), self.clock.now, lasts)
        beat = Heartbeat(
            self.leases,
            lease,
            lambda: self.clock.now,
            lasts,
            begun=begun if known else 0,
            clock=self.clock,
        )
        self.started.append(beat)
        return beat

    def taken_over(self) -> None:
        holder = self.leases.holder("run")
        assert holder is not None
        self.processes.kill(holder.owner)
        self.leases.acquire("run", self.processes.start(), self.clock.now, LASTS)


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    for beat in scene.started:
        beat.stop()


def test_it_is_renewed_again_and_again(scene: Scene) -> None:
    beat = scene.heartbeat()
    scene.leases.renewed(5)
    assert not beat.lost.is_set()


def test_when_it_is_lost_that_is_told_and_nothing_more_is_begun(scene: Scene) -> None:
    beat = scene.heartbeat()
    scene.taken_over()
    assert beat.lost.wait(TIMEOUT)
    with pytest.raises(LeaseLost):
        beat.outlast(0)


def test_trouble_with_the_store_is_not_a_lost_lease(scene: Scene) -> None:
    scene.leases.trouble = [StoreBusy("not now"), StoreBusy("not now")]
    beat = scene.heartbeat()
    scene.leases.renewed(4)
    assert not beat.lost.is_set()


@pytest.mark.parametrize(("seconds", "asks"), [(0, 0), (5, 0), (9, 0), (11, 1), (600, 1)])
def test_it_is_renewed_at_once_only_if_it_would_end_too_early(
    scene: Scene, seconds: float, asks: int
) -> None:
    beat = scene.heartbeat(10 * SECOND)
    beat.outlast(seconds)
    assert len(scene.leases.asked) == asks
    holder = scene.leases.holder("run")
    assert holder is not None
    assert holder.expires_at >= scene.clock.now + seconds * SECOND


def test_it_is_renewed_first_if_nobody_knows_since_when_it_is_ours(scene: Scene) -> None:
    beat = scene.heartbeat(10 * SECOND, known=False)
    beat.outlast(1)
    beat.outlast(1)
    assert scene.leases.asked == [10 * SECOND]


def test_after_a_pause_it_is_not_taken_for_ours(scene: Scene) -> None:
    beat = scene.heartbeat(10 * SECOND)
    scene.clock.now += 3600 * SECOND
    scene.taken_over()
    with pytest.raises(LeaseLost):
        beat.outlast(1)
    assert beat.lost.is_set()


def test_a_beat_does_not_shorten_what_was_asked_for(scene: Scene) -> None:
    beat = scene.heartbeat()
    beat.outlast(600)
    scene.leases.renewed(3)
    holder = scene.leases.holder("run")
    assert holder is not None
    assert holder.expires_at >= scene.clock.now + 600 * SECOND
    beat.outlast(0)
    scene.leases.renewed(3)
    assert scene.leases.asked[-1] == LASTS


def test_a_store_that_answers_too_late_is_not_taken_for_a_yes(scene: Scene) -> None:
    beat = scene.heartbeat(10 * SECOND)
    plain = scene.leases.renew

    def slow(lease: Lease, now: int, lasts: int) -> Lease:
        renewed = plain(lease, now, lasts)
        scene.clock.now += 3600 * SECOND
        return renewed

    scene.leases.renew = slow
    with pytest.raises(LeaseLost) as refused:
        beat.outlast(60)
    assert refused.value.hint
    assert not beat.lost.is_set()


def test_a_step_past_its_deadline_is_let_go_of_and_one_that_gets_on_is_kept(scene: Scene) -> None:
    beat = scene.heartbeat()
    beat.progress(60)
    scene.leases.renewed(2)
    scene.clock.now += 61 * SECOND
    scene.clock.was_read(5)  # whatever was on its way has arrived
    before = len(scene.leases.asked)
    scene.clock.was_read(5)
    assert len(scene.leases.asked) == before
    beat.progress(60)
    scene.leases.renewed(2)
    scene.clock.now += 3600 * SECOND
    beat.progress(None)
    scene.leases.renewed(2)


def test_what_was_stopped_is_not_renewed_any_more(scene: Scene) -> None:
    beat = scene.heartbeat()
    scene.leases.renewed(1)
    beat.stop()
    _ended(beat)
    before = len(scene.leases.asked)
    scene.leases.release(scene.leases.holder("run") or pytest.fail("nobody holds it"))
    assert len(scene.leases.asked) == before
    assert not beat.lost.is_set()


def _ended(beat: Heartbeat) -> None:
    thread = beat._thread  # pyright: ignore[reportPrivateUsage]
    assert thread
    thread.join(TIMEOUT)
    assert not thread.is_alive()
