"""A drop can be taken back: what a command had changed that failed, or what was discarded, is applied after all."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from takeback.api import opened_of
from takeback.model.effect import DropReason
from takeback.runs.run import core_of
from takeback.storage.notes import Bound, untold
from tests.world import Picture, World

WORK = "echo more >> a; chmod 750 a; mkdir -p d/e; echo x > d/e/f; ln -s a link; rm gone; exit 3"


@pytest.fixture
def tb(store: Path) -> Iterator[takeback.Takeback]:
    with takeback.open(store) as opened:
        yield opened
        assert opened.verify(read_data=True).findings == ()


def ready(world: World) -> Picture:
    (world / "a").write_text("old\n")
    (world / "gone").write_text("bye\n")
    return world.picture()


def failed(tb: takeback.Takeback, world: World, line: str = WORK) -> takeback.Effect:
    with tb.run("fails") as run:
        outcome = run.command(line, cwd=world.root)
    assert outcome.exit_code
    assert outcome.effect is None
    assert outcome.dropped
    return outcome.dropped


def wanted(tb: takeback.Takeback, world: World) -> Picture:
    """What the same command leaves when it does not fail."""
    with tb.run("works") as run:
        made = run.command(WORK.replace("exit 3", "exit 0"), cwd=world.root).effect
    assert made
    after = world.picture()
    tb.undo(made)
    return after


def without_times(picture: Picture) -> dict[bytes, object]:
    return {
        path: {name: told for name, told in seen.items() if name != "mtime"} for path, seen in picture.items()
    }


def test_what_a_failing_command_had_changed_is_applied_exactly(tb: takeback.Takeback, world: World) -> None:
    before = ready(world)
    after = wanted(tb, world)
    assert world.picture() == before
    dropped = failed(tb, world)
    assert world.picture() == before
    assert tb.effect(dropped.id).state is takeback.State.DROPPED

    (made,) = tb.apply(dropped)

    assert without_times(world.picture()) == without_times(after)
    assert (made.state, made.accepted_by, made.dropped) == (takeback.State.DONE, "person", None)
    tb.undo(made)
    assert world.picture() == before


def test_a_drop_tells_why_how_much_and_until_when(tb: takeback.Takeback, world: World) -> None:
    ready(world)
    dropped = failed(tb, world).dropped
    assert dropped
    assert (dropped.reason, dropped.bytes) == (DropReason.FAILED, len("old\nmore\n") + len("x\n"))
    day = 24 * 3600 * 1_000_000
    (found,) = tb.effects(state="dropped")
    assert found.dropped == dropped
    assert abs(dropped.until - day - found.at) <= 60 * 1_000_000


def test_a_drop_is_not_the_newest_effect_and_blocks_nothing(tb: takeback.Takeback, world: World) -> None:
    ready(world)
    with tb.run("work") as run:
        first = run.write(world / "b", "b")
    assert first
    dropped = failed(tb, world)
    assert tb.effect("@").id == first.id
    with tb.run("later") as run:
        run.write(world / "a", "by another")
    tb.undo("@")
    with pytest.raises(takeback.Refused, match="was dropped"):
        tb.undo(dropped)
    with pytest.raises(takeback.Refused):
        tb.accept(dropped)
    tb.forget(dropped)
    assert tb.effect(dropped.id).state is takeback.State.ABORTED


def test_bare_redo_means_an_undo_and_no_drop(tb: takeback.Takeback, world: World) -> None:
    ready(world)
    with tb.run("work") as run:
        run.write(world / "b", "b")
    tb.undo("@")
    failed(tb, world)
    tb.redo()
    assert (world / "b").read_text() == "b"
    with pytest.raises(takeback.Refused, match="nothing to redo"):
        tb.redo()


def test_apply_twice_is_refused_the_second_time(tb: takeback.Takeback, world: World) -> None:
    ready(world)
    dropped = failed(tb, world)
    tb.apply(dropped)
    after = world.picture()
    with pytest.raises(takeback.Refused, match="is done, not held"):
        tb.apply(dropped)
    assert world.picture() == after


def test_apply_is_refused_where_the_world_has_changed_since_and_force_saves_that(
    tb: takeback.Takeback, world: World
) -> None:
    ready(world)
    dropped = failed(tb, world)
    (world / "a").write_text("by a person\n")
    now = world.picture()
    with pytest.raises(takeback.Drifted) as drifted:
        tb.apply(dropped)
    assert f"takeback apply --force {dropped.id[:8]}" in drifted.value.hint
    assert world.picture() == now
    assert tb.effect(dropped.id).state is takeback.State.DROPPED

    (made,) = tb.apply(dropped, force=True)

    assert (world / "a").read_text() == "old\nmore\n"
    tb.undo(made)
    assert world.picture() == now


def test_a_command_that_takes_too_long_is_dropped_as_interrupted(tb: takeback.Takeback, world: World) -> None:
    with tb.run("long") as run:
        outcome = run.command("echo x > a; sleep 1000", cwd=world.root, timeout=0.5)
    assert outcome.dropped and outcome.dropped.dropped
    assert outcome.dropped.dropped.reason is DropReason.INTERRUPTED
    tb.apply(outcome.dropped)
    assert (world / "a").read_text() == "x\n"


def test_what_was_discarded_is_applied_after_all(tb: takeback.Takeback, world: World) -> None:
    before = ready(world)
    with tb.run("careful") as run:
        held = run.command(WORK.replace("exit 3", "exit 0"), cwd=world.root, hold=True).effect
    assert held
    (gone,) = tb.discard(held)
    assert gone.state is takeback.State.DROPPED
    assert gone.dropped and gone.dropped.reason is DropReason.DISCARDED
    with pytest.raises(takeback.Refused, match="is dropped, not held") as refused:
        tb.discard(held)
    assert f"takeback discard {held.id[:8]} --now" in refused.value.hint
    assert world.picture() == before
    tb.apply(held)
    assert (world / "d" / "e" / "f").read_text() == "x\n"


def test_a_key_whose_change_was_dropped_can_be_used_again(tb: takeback.Takeback, world: World) -> None:
    with tb.run("careful") as run:
        first = run.command("echo 1 > a", cwd=world.root, hold=True, key="k").effect
        assert first
        run.discard(first)
        second = run.command("echo 1 > a", cwd=world.root, key="k").effect
        assert second and second.id != first.id
    tb.undo(second)
    tb.apply(first)
    assert (world / "a").read_text() == "1\n"
    assert tb.verify().findings == ()


def test_discard_now_erases_the_bytes(store: Path, world: World) -> None:
    secret = os.urandom(200_000).hex()
    with takeback.open(store) as tb:
        with tb.run("fails") as run:
            dropped = run.command("cat > secret; exit 1", cwd=world.root, stdin=secret.encode()).dropped
        assert dropped and dropped.remedy
        digests = [one for one in dropped.remedy.blobs if tb.store.blobs.has(one)]
        assert any(b"".join(tb.store.blobs.read(one)) == secret.encode() for one in digests)
        (gone,) = tb.discard(dropped, now=True)
        assert gone.state is takeback.State.ABORTED
        assert not any(tb.store.blobs.has(one) for one in digests)
        with pytest.raises(takeback.Refused, match="is aborted, not held") as refused:
            tb.apply(dropped)
        assert "erased" in refused.value.hint
        assert tb.effects(state="dropped") == ()
        assert tb.verify(read_data=True).findings == ()


def test_a_drop_whose_time_is_over_is_erased_by_the_next_run_and_not_by_a_look(
    store: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with takeback.open(store) as tb:
        dropped = failed(tb, world, "echo x > a; exit 1")
    later = takeback.api.upkeep.now() + 25 * 3600 * 1_000_000
    monkeypatch.setattr("takeback.api.upkeep.now", lambda: later)
    with takeback.open(store) as tb:
        assert tb.effect(dropped.id).state is takeback.State.DROPPED  # to look erases nothing
        with tb.run("next") as run:
            run.write(world / "b", "b")
        assert tb.effect(dropped.id).state is takeback.State.ABORTED
        assert tb.given_up == []  # when it was dropped it was said until when
        assert untold(str(store)) == ()
        assert tb.verify(read_data=True).findings == ()


def settings(store: Path, **values: int) -> None:
    store.mkdir(parents=True, exist_ok=True)
    import json

    (store / "settings.json").write_text(json.dumps(values))


def test_of_too_many_drops_the_oldest_go_and_that_is_said(store: Path, world: World) -> None:
    with takeback.open(store):
        pass
    settings(store, dropped_most=3)
    with takeback.open(store) as tb:
        drops = [failed(tb, world, f"echo {number} > a; exit 1") for number in range(5)]
        assert [one.id for one in tb.effects(state="dropped")] == [one.id for one in drops[2:]]
        told = [(one.effect, one.bound, one.limit) for one in tb.given_up]
        assert told == [(one.id, Bound.DROPS, 3) for one in drops[:2]]
        assert [one.effect for one in untold(str(store))] == [one.id for one in drops[:2]]


def test_of_drops_that_take_too_much_the_oldest_go(store: Path, world: World) -> None:
    with takeback.open(store):
        pass
    settings(store, dropped_bytes=2500)
    with takeback.open(store) as tb:
        drops = [failed(tb, world, f"head -c 1000 /dev/urandom > a{number}; exit 1") for number in range(3)]
        assert [one.id for one in tb.effects(state="dropped")] == [one.id for one in drops[1:]]
        assert [(one.effect, one.bound) for one in tb.given_up] == [(drops[0].id, Bound.DROPPED)]
        with tb.run("large") as run:
            outcome = run.command("head -c 3000 /dev/urandom > a; exit 1", cwd=world.root)
        assert (outcome.dropped, outcome.final) == (None, "large")
        assert "This is final" in outcome.text


def test_the_drops_of_another_project_do_not_count(store: Path, tmp_path: Path) -> None:
    with takeback.open(store):
        pass
    settings(store, dropped_most=1)
    with takeback.open(store) as tb:
        for name in ("one", "two"):
            (tmp_path / name / ".git").mkdir(parents=True)
            with tb.run(name, project=tmp_path / name) as run:
                assert run.command("echo x > a; exit 1", cwd=tmp_path / name).dropped
        assert len(tb.effects(state="dropped")) == 2


def test_where_nothing_is_to_be_kept_a_drop_is_final(store: Path, world: World) -> None:
    with takeback.open(store):
        pass
    settings(store, dropped_seconds=0)
    with takeback.open(store) as tb, tb.run("fails") as run:
        outcome = run.command("echo x > a; exit 1", cwd=world.root)
        assert (outcome.dropped, outcome.final) == (None, "off")
        held = run.command("echo x > a", cwd=world.root, hold=True).effect
        assert held
        assert run.discard(held).effects[0].state is takeback.State.ABORTED


def test_where_there_is_no_room_a_drop_is_final(
    store: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with takeback.open(store) as tb, tb.run("fails") as run:
        full = takeback.errors.StoreFull("The disk is full.")

        def no_room(more: int) -> None:
            raise full

        limits = opened_of(tb).parts.drops._replace(refuse_without_room=no_room)
        core_of(run).parts = opened_of(tb).parts._replace(drops=limits)
        outcome = run.command("echo x > a; exit 1", cwd=world.root)
    assert (outcome.exit_code, outcome.dropped, outcome.final) == (1, None, "room")


def test_verify_names_a_drop_whose_content_is_missing(store: Path, world: World) -> None:
    with takeback.open(store) as tb:
        dropped = failed(tb, world, "head -c 100000 /dev/urandom > a; exit 1")
        assert dropped.remedy
        tb.store.blobs.sweep(lambda: iter(()), 0)
        found = [one for one in tb.verify().findings if one.effect == dropped.id]
    assert found
    assert "cannot be applied" in str(found[0])


def test_a_sweep_erases_what_was_dropped_too_long_ago(
    store: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with takeback.open(store) as tb:
        dropped = failed(tb, world, "head -c 100000 /dev/urandom > a; exit 1")
        later = takeback.api.upkeep.now() + 25 * 3600 * 1_000_000
        monkeypatch.setattr("takeback.api.upkeep.now", lambda: later)
        assert tb.sweep(grace=0) >= 100_000
        assert tb.effect(dropped.id).state is takeback.State.ABORTED


@pytest.mark.parametrize("meanwhile", ["apply", "erase"])
def test_a_drop_that_another_process_decides_on_meanwhile_is_no_error(
    store: Path, world: World, meanwhile: str
) -> None:
    from takeback.retention.candidates import Verdict
    from takeback.retention.forget import forget

    with takeback.open(store) as tb, takeback.open(store) as other:
        dropped = tb.effect(failed(tb, world, "echo x > a; exit 1").id)
        _ = other.apply(dropped) if meanwhile == "apply" else other.discard(dropped, now=True)
        forget(opened_of(tb).parts, [Verdict(dropped, True, "goes")], str(store / "held"))
        left = tb.effect(dropped.id)
        assert left.state.value == {"apply": "done", "erase": "aborted"}[meanwhile]
        assert not left.forgotten
        assert tb.verify(read_data=True).findings == ()
