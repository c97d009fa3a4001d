"""What every `Leases` must do. Inherit `LeasesSuite`, say how to make one, and all of it runs."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from takeback.errors import LeaseHeld, LeaseLost
from takeback.model.run import Lease, Owner
from takeback.storage.protocols import Leases
from takeback.testing.fakes import SECOND, Clock, FakeProcesses

LASTS = 60 * SECOND
DAY = 24 * 60 * 60
T = TypeVar("T")
Found = TypeVar("Found")


class LeasesScene:
    """Leases, with processes that live and die and a clock that the test moves."""

    def __init__(
        self, leases: Leases, another: Callable[[], Leases], processes: FakeProcesses, clock: Clock
    ) -> None:
        self.leases = leases
        self.another = another  # the same leases as another process sees them
        self.processes = processes
        self.clock = clock

    def take(self, run: str = "run", *, elsewhere: bool = False, expired: bool = False) -> Lease:
        owner = self.processes.start(elsewhere=elsewhere)
        return self.leases.acquire(run, owner, self.clock(), LASTS, expired=expired)

    def refuse(self, *, expired: bool = False) -> None:
        """It is held, and not given to another process."""
        with pytest.raises(LeaseHeld):
            self.take(expired=expired)

    def renew(self, lease: Lease, lasts: int = LASTS) -> Lease:
        return self.leases.renew(lease, self.clock(), lasts)


class LeasesSuite:
    def make(
        self, directory: Path, processes: FakeProcesses, clock: Clock
    ) -> tuple[Leases, Callable[[], Leases]]:
        """New and empty, and a function that opens the same ones again."""
        raise NotImplementedError

    def pass_seconds(self, scene: LeasesScene, seconds: int) -> None:
        """Let that much time go by for every lease there is; a store whose clock cannot be moved ages the leases."""
        scene.clock.pass_seconds(seconds)

    @pytest.fixture
    def scene(self, tmp_path: Path) -> LeasesScene:
        processes, clock = FakeProcesses(), Clock()
        leases, another = self.make(tmp_path, processes, clock)
        return LeasesScene(leases, another, processes, clock)

    def test_a_run_that_nobody_held_is_taken_with_generation_one(self, scene: LeasesScene) -> None:
        owner = scene.processes.start()
        lease = scene.leases.acquire("run", owner, scene.clock(), LASTS)
        assert (lease.run, lease.generation, lease.owner) == ("run", 1, owner)

    def test_a_run_that_nobody_held_has_no_holder(self, scene: LeasesScene) -> None:
        assert scene.leases.holder("run") is None

    def test_what_one_process_takes_another_one_sees(self, scene: LeasesScene) -> None:
        lease = scene.take()
        assert scene.another().holder("run") == lease

    def test_while_its_owner_lives_nobody_else_gets_it(self, scene: LeasesScene) -> None:
        first = scene.take()
        with pytest.raises(LeaseHeld) as refused:
            scene.another().acquire("run", scene.processes.start(), scene.clock(), LASTS)
        assert str(first.owner.pid) in str(refused.value)
        assert refused.value.hint
        assert scene.leases.holder("run") == first

    def test_not_even_the_same_owner_gets_it_twice(self, scene: LeasesScene) -> None:
        owner = scene.processes.start()
        scene.leases.acquire("run", owner, scene.clock(), LASTS)
        with pytest.raises(LeaseHeld):
            scene.leases.acquire("run", owner, scene.clock(), LASTS)

    def test_an_owner_known_to_live_keeps_it_past_its_expiry(self, scene: LeasesScene) -> None:
        """It may be paused in the middle of touching the world."""
        scene.take()
        self.pass_seconds(scene, 600)
        scene.refuse()
        assert not scene.leases.free("run", scene.clock())

    def test_past_its_expiry_it_is_given_to_whom_that_is_enough(self, scene: LeasesScene) -> None:
        first = scene.take()
        scene.refuse(expired=True)
        self.pass_seconds(scene, 61)
        second = scene.take(expired=True)
        assert second.generation == first.generation + 1
        with pytest.raises(LeaseLost):
            scene.renew(first)
        assert scene.another().holder("run") == second

    def test_an_owner_known_to_be_dead_loses_it_before_its_expiry(self, scene: LeasesScene) -> None:
        first = scene.take()
        scene.processes.kill(first.owner)
        assert scene.leases.free("run", scene.clock())
        second = scene.take()
        assert second.generation == first.generation + 1

    def test_an_owner_nobody_can_see_keeps_it_until_its_expiry_and_no_longer(
        self, scene: LeasesScene
    ) -> None:
        first = scene.take(elsewhere=True)
        self.pass_seconds(scene, 59)
        scene.refuse()
        assert not scene.leases.free("run", scene.clock())
        self.pass_seconds(scene, 2)
        assert scene.leases.free("run", scene.clock())
        second = scene.take()
        assert second.generation == first.generation + 1

    def test_a_reused_process_id_is_another_owner(self, scene: LeasesScene) -> None:
        owner = scene.processes.start()
        scene.leases.acquire("run", owner, scene.clock(), LASTS)
        holder = scene.leases.holder("run")
        assert holder is not None
        assert holder.owner == owner
        assert holder.owner != Owner(owner.boot, owner.space, owner.pid, "99999")

    def test_a_released_run_is_free_and_its_generation_still_grows(self, scene: LeasesScene) -> None:
        first = scene.take()
        scene.leases.release(first)
        second = scene.take()
        assert second.generation == first.generation + 1

    def test_releasing_what_was_taken_over_changes_nothing(self, scene: LeasesScene) -> None:
        first = scene.take()
        scene.processes.kill(first.owner)
        second = scene.take()
        scene.leases.release(first)
        assert scene.leases.holder("run") == second

    def test_releasing_twice_is_releasing_once(self, scene: LeasesScene) -> None:
        first = scene.take()
        scene.leases.release(first)
        scene.leases.release(first)
        assert scene.take().generation == 2

    def test_renewing_moves_the_expiry_and_nothing_else(self, scene: LeasesScene) -> None:
        lease = scene.take(elsewhere=True)
        self.pass_seconds(scene, 50)
        renewed = scene.renew(lease)
        assert renewed == lease._replace(expires_at=renewed.expires_at)
        assert scene.another().holder("run") == renewed
        self.pass_seconds(scene, 50)
        scene.refuse()
        self.pass_seconds(scene, 20)
        scene.take()

    def test_it_is_renewed_for_as_long_as_is_asked(self, scene: LeasesScene) -> None:
        lease = scene.renew(scene.take(elsewhere=True), lasts=10 * LASTS)
        self.pass_seconds(scene, 599)
        scene.refuse()
        scene.renew(lease, lasts=1 * SECOND)
        self.pass_seconds(scene, 2)
        scene.take()

    def test_renewing_what_was_taken_over_is_refused(self, scene: LeasesScene) -> None:
        first = scene.take()
        scene.processes.kill(first.owner)
        second = scene.take()
        with pytest.raises(LeaseLost):
            scene.leases.renew(first, scene.clock(), LASTS)
        assert scene.leases.holder("run") == second

    def test_renewing_what_was_released_is_refused(self, scene: LeasesScene) -> None:
        lease = scene.take()
        scene.leases.release(lease)
        with pytest.raises(LeaseLost):
            scene.leases.renew(lease, scene.clock(), LASTS)

    def test_a_late_renewal_counts_as_long_as_nobody_took_over(self, scene: LeasesScene) -> None:
        lease = scene.take(elsewhere=True)
        self.pass_seconds(scene, 300)
        renewed = scene.renew(lease)
        scene.refuse()
        assert renewed.generation == 1

    def test_runs_do_not_disturb_each_other(self, scene: LeasesScene) -> None:
        one = scene.take("one")
        other = scene.take("other")
        scene.leases.release(one)
        assert scene.leases.holder("other") == other
        assert other.generation == 1

    def test_what_was_never_held_or_was_released_is_free(self, scene: LeasesScene) -> None:
        assert scene.leases.free("run", scene.clock())
        lease = scene.take()
        assert not scene.another().free("run", scene.clock())
        scene.leases.release(lease)
        assert scene.another().free("run", scene.clock())

    def test_of_many_who_want_it_at_once_one_gets_it(self, scene: LeasesScene) -> None:
        """And each who gets it later has a higher number than all before."""
        generations: list[int] = []
        for run in ["one", "two"] * 5:
            won = racing(scene.another, 4, lambda leases, run=run: _try_to_take(scene, leases, run))
            (lease,) = [lease for lease in won if lease]
            generations.append(lease.generation)
            scene.leases.release(lease)
        assert generations == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


class DurableLeasesSuite(LeasesSuite):
    """For leases whose end is set by the clock of the store."""

    @pytest.mark.parametrize("days", [1, -1], ids=["ahead", "back"])
    def test_a_wall_clock_that_is_set_neither_frees_nor_keeps_a_lease(
        self, scene: LeasesScene, days: int
    ) -> None:
        wall = scene.clock() + days * DAY * SECOND
        lease = scene.take(elsewhere=True)
        owner = scene.processes.start()
        for expired in (False, True):
            with pytest.raises(LeaseHeld):
                scene.leases.acquire("run", owner, wall, LASTS, expired=expired)
        assert not scene.leases.free("run", wall)
        scene.leases.renew(lease, wall, LASTS)
        self.pass_seconds(scene, 59)
        assert not scene.leases.free("run", scene.clock())
        self.pass_seconds(scene, 2)
        assert scene.leases.free("run", wall)
        assert scene.leases.acquire("run", owner, wall, LASTS).generation == 2


def _try_to_take(scene: LeasesScene, leases: Leases, run: str) -> Lease | None:
    try:
        return leases.acquire(run, scene.processes.start(), scene.clock(), LASTS)
    except LeaseHeld:
        return None


def racing(another: Callable[[], T], many: int, go: Callable[[T], Found]) -> list[Found]:
    """What each of that many threads found, all of which started at once, each with its own way in."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    start = Barrier(many)

    def one(own: T) -> Found:
        start.wait()
        return go(own)

    with ThreadPoolExecutor(many) as pool:
        return list(pool.map(one, [another() for _ in range(many)]))
