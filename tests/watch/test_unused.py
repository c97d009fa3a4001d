"""Indexes of trees that nobody watches any more are dropped, and never one that somebody needs."""

import json
import os
import shutil
import time

import pytest

import takeback
from takeback.adapters.watch.index import Index, indexes_in
from takeback.api.store import now
from takeback.audit.status import look
from takeback.model.settings import Limits
from takeback.runs.run import core_of
from takeback.runs.watch_place import UNUSED


@pytest.fixture
def trees(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(os.urandom(100_000))
    return tmp_path


def watch(tb, *trees):
    with tb.run("watch") as run:
        for tree in trees:
            with run.watch(tree):
                pass


def indexes(tb) -> int:
    return len(indexes_in(os.path.join(tb.store.path, "watch")))


def test_a_sweep_drops_the_index_of_a_directory_that_is_gone_and_its_contents(trees):
    with takeback.open(trees / "store") as tb:
        watch(tb, trees / "one", trees / "other")
        shutil.rmtree(trees / "one")

        assert tb.sweep(0) > 100_000
        assert indexes(tb) == 1
        assert len(os.listdir(os.path.join(tb.store.path, "watch"))) <= 4  # no lock is left either


def test_what_was_not_watched_for_long_is_dropped(trees):
    with takeback.open(trees / "store") as tb:
        watch(tb, trees / "one", trees / "other")
        directory = os.path.join(tb.store.path, "watch")
        lock = next(name for name in os.listdir(directory) if name.endswith(".lock"))
        long_ago = time.time() - UNUSED - 60
        os.utime(os.path.join(directory, lock), (long_ago, long_ago))

        tb.sweep(0)

        assert indexes(tb) == 1


def test_while_someone_watches_nothing_is_dropped(trees):
    with takeback.open(trees / "store") as tb, tb.run("watch") as run:
        with run.watch(trees / "one") as watched:
            shutil.rmtree(trees / "one")
            tb.sweep(0)
        assert indexes(tb) == 1 and watched.effect

        run.undo(watched.effect)

    assert (trees / "one" / "file").stat().st_size == 100_000


def test_a_run_whose_index_was_dropped_under_it_looks_at_everything_again(trees):
    tree, aside = trees / "one", trees / "aside"
    with takeback.open(trees / "store") as tb, tb.run("watch") as run:
        with run.watch(tree):
            pass
        os.rename(tree, aside)
        with takeback.open(trees / "store") as another:
            assert another.sweep(0) > 100_000
        os.rename(aside, tree)
        before = (tree / "file").read_bytes()
        with run.watch(tree) as watched:
            (tree / "file").unlink()
        run.undo(watched.effect)

    assert (tree / "file").read_bytes() == before


def test_finding_r7_the_copy_of_a_watched_tree_can_be_dropped_and_no_way_back_with_it(trees):
    tree = trees / "one"
    for number in range(40):
        (tree / f"large{number}").write_bytes(os.urandom(500_000))
    with takeback.open(trees / "store") as tb:
        with tb.run("edit") as run, run.watch(tree):
            (tree / "file").write_bytes(b"one line\n")
        assert look(tb.store, tb.size(), now()).baseline_bytes > 20_000_000

        assert tb.sweep(0, baselines=True) > 20_000_000

        assert look(tb.store, tb.size(), now()).baseline_bytes == 0
        assert tb.store.bytes_kept() < 600_000
        tb.undo("@")
        assert (tree / "file").stat().st_size == 100_000


def test_finding_r7_a_copy_that_was_not_used_for_a_day_goes_at_the_end_of_any_run(trees):
    with takeback.open(trees / "store") as tb:
        watch(tb, trees / "one", trees / "other")
        directory = os.path.join(tb.store.path, "watch")
        for name in os.listdir(directory):
            long_ago = time.time() - UNUSED - 60
            os.utime(os.path.join(directory, name), (long_ago, long_ago))

        watch(tb, trees / "one")

        assert indexes(tb) == 1


def limited(trees, **settings):
    with takeback.open(trees / "store"):
        pass
    (trees / "store" / "settings.json").write_text(json.dumps({"grace_seconds": 0} | settings))


def fill(tree, megabytes):
    for number in range(megabytes):
        (tree / f"large{number}").write_bytes(os.urandom(1_000_000))


def test_over_its_cap_a_store_gives_up_baselines_when_no_accepted_effect_may_go(trees):
    limited(trees, store_bytes=4_000_000)
    fill(trees / "one", 6)
    with takeback.open(trees / "store") as tb:
        with tb.run("edit") as run, run.watch(trees / "one"):
            (trees / "one" / "file").write_bytes(b"one line\n")

        assert indexes(tb) == 0
        assert tb.store.bytes_kept() < 1_000_000
        assert not tb.effects()[0].forgotten and tb.given_up == []
        tb.undo("@")
    assert (trees / "one" / "file").stat().st_size == 100_000


def test_baselines_stay_while_forgetting_accepted_effects_makes_room_enough(trees, monkeypatch):
    limited(trees, store_bytes=8_000_000)
    (trees / "old").write_bytes(os.urandom(4_000_000))
    with takeback.open(trees / "store") as tb:
        with tb.run("old") as run:
            old = run.write(trees / "old", "small")
        real = takeback.api.upkeep.now
        for place in ("takeback.api.store.now", "takeback.api.upkeep.now"):
            monkeypatch.setattr(place, lambda: real() + 3601 * 1_000_000)
        fill(trees / "one", 6)
        with tb.run("edit") as run, run.watch(trees / "one"):
            (trees / "one" / "file").write_bytes(b"one line\n")

        assert tb.effect(old.id).forgotten
        assert indexes(tb) == 1


def test_a_capture_that_has_no_room_takes_that_of_baselines(trees, monkeypatch):
    fill(trees / "one", 6)
    (trees / "large").write_bytes(os.urandom(3_000_000))
    limited(trees)
    with takeback.open(trees / "store") as tb:
        watch(tb, trees / "one")
        most = tb.store.bytes_kept() + 1_000_000  # a disk with so much room

        def free(self) -> int:
            return most - self.bytes_kept()

        def refuse(self, more: int) -> None:
            if free(self) < more:
                raise takeback.StoreFull("no room", hint="none")

        monkeypatch.setattr(type(tb.store), "free_bytes", free)
        monkeypatch.setattr(type(tb.store), "limits", lambda self: Limits(1 << 40, 0))
        monkeypatch.setattr(type(tb.store), "refuse_without_room", refuse)
        with tb.run("large") as run:
            run.write(trees / "large", "small")

        assert indexes(tb) == 0
        tb.undo("@")
    assert (trees / "large").stat().st_size == 3_000_000


def test_a_watch_that_ends_while_another_goes_on_is_released_with_its_next_look(trees):
    with takeback.open(trees / "store") as tb, tb.run("watch") as run:
        beside = run.watch(trees / "one")
        beside.begin()
        with run.watch(trees / "one"):
            (trees / "one" / "new").write_text("new")
        (name,) = indexes_in(os.path.join(tb.store.path, "watch"))
        ours = next(iter(core_of(run).trees.values())).index
        others = Index(os.path.join(tb.store.path, "watch"), name)
        try:
            assert (len(ours.watches()), len(others.watches())) == (1, 2)
            with run.watch(trees / "one"):
                assert len(others.watches()) == 2
            beside.finish()
            assert (len(ours.watches()), len(others.watches())) == (0, 0)
        finally:
            others.close()
