"""What every `Leases` must do. Inherit `LeasesSuite`, say how to make one, and all of it runs."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from takeback.errors import LeaseHeld, LeaseLost
from takeback.model.run import Owner
from takeback.storage.protocols import Leases
from takeback.testing.fakes import SECOND, Processes

LASTS = 60 * SECOND
NOW = 1_700_000_000 * SECOND


class Scene(NamedTuple):
    leases: Leases
    processes: Processes
    another: Callable[[], Leases]  # the same leases as another process sees them


class LeasesSuite:
    def make(self, directory: Path, processes: Processes) -> tuple[Leases, Callable[[], Leases]]:
        """New and empty, and a function that opens the same ones again."""
        raise NotImplementedError

    @pytest.fixture
    def scene(self, tmp_path: Path) -> Scene:
        processes = Processes()
        leases, another = self.make(tmp_path, processes)
        return Scene(leases, processes, another)

    def test_a_run_that_nobody_held_is_taken_with_generation_one(self, scene: Scene) -> None:
        owner = scene.processes.start()
        lease = scene.leases.acquire("run", owner, NOW, LASTS)
        assert (lease.run, lease.generation, lease.owner, lease.expires_at) == ("run", 1, owner, NOW + LASTS)

    def test_a_run_that_nobody_held_has_no_holder(self, scene: Scene) -> None:
        assert scene.leases.holder("run") is None

    def test_what_one_process_takes_another_one_sees(self, scene: Scene) -> None:
        lease = scene.leases.acquire("run", scene.processes.start(), NOW, LASTS)
        assert scene.another().holder("run") == lease

    def test_while_its_owner_lives_nobody_else_gets_it(self, scene: Scene) -> None:
        first = scene.leases.acquire("run", scene.processes.start(), NOW, LASTS)
        with pytest.raises(LeaseHeld) as refused:
            scene.another().acquire("run", scene.processes.start(), NOW, LASTS)
        assert str(first.owner.pid) in str(refused.value)
        assert refused.value.hint
        assert scene.leases.holder("run") == first

    def test_not_even_the_same_owner_gets_it_twice(self, scene: Scene) -> None:
        owner = scene.processes.start()
        scene.leases.acquire("run", owner, NOW, LASTS)
        with pytest.raises(LeaseHeld):
            scene.leases.acquire("run", owner, NOW, LASTS)

    def test_an_owner_known_to_live_keeps_it_past_its_expiry(self, scene: Scene) -> None:
        """It may be paused in the middle of touching the world."""
        scene.leases.acquire("run", scene.processes.start(), NOW, LASTS)
        with pytest.raises(LeaseHeld):
            scene.leases.acquire("run", scene.processes.start(), NOW + 10 * LASTS, LASTS)

    def test_an_owner_known_to_be_dead_loses_it_before_its_expiry(self, scene: Scene) -> None:
        first = scene.leases.acquire("run", scene.processes.start(), NOW, LASTS)
        scene.processes.kill(first.owner)
        second = scene.leases.acquire("run", scene.processes.start(), NOW + 1, LASTS)
        assert second.generation == first.generation + 1

    def test_an_owner_nobody_can_see_keeps_it_until_its_expiry_and_no_longer(self, scene: Scene) -> None:
        first = scene.leases.acquire("run", scene.processes.start(elsewhere=True), NOW, LASTS)
        with pytest.raises(LeaseHeld):
            scene.leases.acquire("run", scene.processes.start(), NOW + LASTS, LASTS)
        second = scene.leases.acquire("run", scene.processes.start(), NOW + LASTS + 1, LASTS)
        assert second.generation == first.generation + 1

    def test_a_reused_process_id_is_another_owner(self, scene: Scene) -> None:
        owner = scene.processes.start()
        scene.leases.acquire("run", owner, NOW, LASTS)
        holder = scene.leases.holder("run")
        assert holder is not None
        assert holder.owner == owner
        assert holder.owner != Owner(owner.boot, owner.space, owner.pid, "99999")

    def test_a_released_run_is_free_and_its_generation_still_grows(self, scene: Scene) -> None:
        first = scene.leases.acquire("run", scene.processes.start(), NOW, LASTS)
        scene.leases.release(first)
        second = scene.leases.acquire("run", scene.processes.start(), NOW, LASTS)
        assert second.generation == first.generation + 1

    def test_releasing_what_was_taken_over_changes_nothing(self, scene: Scene) -> None:
        first = scene.leases.acquire("run", scene.processes.start(), NOW, LASTS)
        scene.processes.kill(first.owner)
        second = scene.leases.acquire("run", scene.processes.start(), NOW, LASTS)
        scene.leases.release(first)
        assert scene.leases.holder("run") == second

    def test_releasing_twice_is_releasing_once(self, scene: Scene) -> None:
        first = scene.leases.acquire("run", scene.processes.start(), NOW, LASTS)
        scene.leases.release(first)
        scene.leases.release(first)
        assert scene.leases.acquire("run", scene.processes.start(), NOW, LASTS).generation == 2

    def test_renewing_moves_the_expiry_and_nothing_else(self, scene: Scene) -> None:
        lease = scene.leases.acquire("run", scene.processes.start(elsewhere=True), NOW, LASTS)
        renewed = scene.leases.renew(lease, NOW + 5, LASTS)
        assert renewed == lease._replace(expires_at=NOW + 5 + LASTS)
        assert scene.another().holder("run") == renewed

    def test_renewing_what_was_taken_over_is_refused(self, scene: Scene) -> None:
        first = scene.leases.acquire("run", scene.processes.start(), NOW, LASTS)
        scene.processes.kill(first.owner)
        second = scene.leases.acquire("run", scene.processes.start(), NOW, LASTS)
        with pytest.raises(LeaseLost):
            scene.leases.renew(first, NOW, LASTS)
        assert scene.leases.holder("run") == second

    def test_renewing_what_was_released_is_refused(self, scene: Scene) -> None:
        lease = scene.leases.acquire("run", scene.processes.start(), NOW, LASTS)
        scene.leases.release(lease)
        with pytest.raises(LeaseLost):
            scene.leases.renew(lease, NOW, LASTS)

    def test_a_late_renewal_counts_as_long_as_nobody_took_over(self, scene: Scene) -> None:
        lease = scene.leases.acquire("run", scene.processes.start(elsewhere=True), NOW, LASTS)
        renewed = scene.leases.renew(lease, NOW + 5 * LASTS, LASTS)
        with pytest.raises(LeaseHeld):
            scene.leases.acquire("run", scene.processes.start(), NOW + 5 * LASTS + 1, LASTS)
        assert renewed.generation == 1

    def test_runs_do_not_disturb_each_other(self, scene: Scene) -> None:
        one = scene.leases.acquire("one", scene.processes.start(), NOW, LASTS)
        other = scene.leases.acquire("other", scene.processes.start(), NOW, LASTS)
        scene.leases.release(one)
        assert scene.leases.holder("other") == other
        assert other.generation == 1
