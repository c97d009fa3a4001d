"""What was changed and could not be recorded keeps its run open, and says so."""

from typing import Any

import pytest

import takeback
from takeback.api import opened_of
from tests.world import World


def test_finding_29_a_run_whose_watch_could_not_be_recorded_says_why_it_cannot_end(
    store: str, world: World
) -> None:
    (world / "tree").mkdir()
    with takeback.open(store) as tb:
        full = False

        def room(size: int) -> None:
            if full:
                raise takeback.ResourceUnreachable("the disk is full")

        opened_of(tb).parts = opened_of(tb).parts._replace(refuse_without_room=room)
        with (
            pytest.raises(
                takeback.InDoubt, match=r"cannot end.*is not recorded yet.*the disk is full"
            ) as told,
            tb.run("work", on_death="accept") as run,
        ):
            watch = run.watch(world / "tree")
            watch.begin()
            (world / "tree" / "a").write_text("changed")
            full = True
            with pytest.raises(takeback.TakebackError):
                watch.finish()
        assert "takeback recover" in told.value.hint
        full = False
        settled: tuple[Any, ...] = tb.recover()
        assert [one.outcome for one in settled] == ["done"]
        assert not list(tb.store.journal.runs(unfinished=True))
    assert (world / "tree" / "a").read_text() == "changed"
