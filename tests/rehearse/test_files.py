"""Effects on files: undone and redone for real, and nothing of it is seen afterwards."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import takeback
from takeback.api import Takeback
from takeback.model.record import Kind
from takeback.model.rehearsal import Viability
from tests.rehearse.conftest import Untouched, lose_blob, proofs
from tests.world import World


def one_of_each(tb: Takeback, world: World) -> list[str]:
    """Of file, config and tree every kind of change that has targets of its own; by adapter, oldest first."""
    (world / "old").write_text("before")
    (world / "conf.json").write_text('{"a": 1, "b": 2}\n')
    (world / "gone").mkdir()
    (world / "gone" / "inner").write_text("inner")
    os.chmod(world / "gone", 0o750)
    os.setxattr(world / "old", "user.colour", b"red")
    with tb.run("work") as run:
        run.write(world / "old", "after", mode=0o640)
        run.write(world / "new", b"\0" * 200_000)
        run.edit_config(world / "conf.json", {"/a": 7})
        run.mkdir(world / "d", 0o711)
        run.symlink(world / "link", "old")
        run.chmod(world / "new", 0o600)
        run.move(world / "new", world / "moved")
        run.delete(world / "gone")
        with run.watch(world.root):
            (world / "d" / "watched").write_text("seen")
            (world / "old").write_text("after all")
    return [one.id for one in tb.effects()]


@pytest.mark.sampled(1)
def test_every_kind_works_and_the_world_the_store_and_the_journal_stay(
    tb: Takeback, world: World, store: Path
) -> None:
    ids = one_of_each(tb, world)
    untouched = Untouched(tb, world)
    records = untouched.records()

    found = tb.rehearse(everything=True)

    assert [(one.effect, one.outcome, one.why) for one in found.rehearsed] == [
        (id, Viability.WORKS, "") for id in reversed(ids)
    ]
    assert untouched.seen() == untouched.before
    assert untouched.records() == [*records, Kind.REHEARSE.value]
    assert {one.state.value for one in tb.effects()} == {"done"}
    assert tb.verify(read_data=True).findings == ()
    assert os.listdir(store / "rehearsals") == []


@pytest.mark.parametrize("adapter", ["file", "config", "tree"])
def test_a_lost_blob_is_caught_by_a_rehearsal_and_by_a_look(
    tb: Takeback, world: World, store: Path, adapter: str
) -> None:
    one_of_each(tb, world)
    last = next(
        one
        for one in reversed(tb.effects())
        if one.change.adapter == adapter and one.remedy and one.remedy.blobs
    )
    assert last.remedy
    tb.close()
    for digest in last.remedy.blobs:
        lose_blob(store, digest)
    with takeback.open(store) as again:
        untouched = Untouched(again, world)
        tried, looked = (
            again.rehearse(last.id, cascade=True),
            again.rehearse(last.id, cascade=True, check=True),
        )
        assert untouched.seen() == untouched.before
    for found in (tried, looked):
        (told,) = [one for one in found.rehearsed if one.effect == last.id]
        assert told.outcome is Viability.FAILS
        assert "is not in the store" in told.why


def test_what_someone_changed_since_is_the_conflict_that_undo_would_name(tb: Takeback, world: World) -> None:
    with tb.run("work") as run:
        effect = run.write(world / "a", "agent")
    assert effect
    (world / "a").write_text("person")

    (told,) = tb.rehearse(effect).rehearsed

    assert told.outcome is Viability.FAILS
    with pytest.raises(takeback.Conflict) as refused:
        tb.undo(effect)
    assert told.why == str(refused.value)


def test_below_later_effects_it_is_tried_only_with_them(tb: Takeback, world: World) -> None:
    with tb.run("work") as run:
        first = run.write(world / "a", "1")
        second = run.write(world / "a", "2")
    assert first and second

    (alone,) = tb.rehearse(first).rehearsed
    both = tb.rehearse(first, cascade=True)

    assert alone.outcome is Viability.CANNOT
    assert second.id[:8] in alone.why
    assert [(one.effect, one.outcome) for one in both.rehearsed] == [
        (second.id, Viability.WORKS),
        (first.id, Viability.WORKS),
    ]


def test_an_effect_over_one_that_fails_is_not_said_to_work(tb: Takeback, world: World) -> None:
    with tb.run("work") as run:
        run.write(world / "a", "1")
        run.write(world / "a", "2")
        run.write(world / "b", "1")
    (world / "a").write_text("person")

    found = tb.rehearse(everything=True)

    assert proofs(found) == [Viability.WORKS, Viability.FAILS, Viability.CANNOT]
    assert proofs(tb.rehearse(everything=True, check=True)) == [
        Viability.WORKS,
        Viability.FAILS,
        Viability.CANNOT,
    ]


def test_hard_links_are_tried_as_they_are(tb: Takeback, world: World) -> None:
    (world / "one").write_text("shared")
    os.link(world / "one", world / "two")
    with tb.run("work") as run:
        deleted = run.delete(world / "one")
        written = run.write(world / "two", "alone")
    assert deleted and written
    untouched = Untouched(tb, world)

    found = tb.rehearse(everything=True)

    assert untouched.seen() == untouched.before
    for told in found.rehearsed:  # never a false word: what a layer cannot show is said so
        assert told.outcome is Viability.WORKS or (told.outcome is Viability.CANNOT and told.why)


def test_a_sqlite_file_is_tried_on_its_copy_and_an_altered_table_is_caught(
    tb: Takeback, world: World
) -> None:
    path = world / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("INSERT INTO users VALUES (1, 'ann'), (2, 'bob')")
        connection.commit()
    with tb.run("work") as run:
        effect = run.sql(f"sqlite:///{path}").execute("UPDATE users SET name = 'x' WHERE id = 1").effect
    assert effect
    content = path.read_bytes()

    (works,) = tb.rehearse(effect).rehearsed

    assert (works.outcome, works.why) == (Viability.WORKS, "")
    assert path.read_bytes() == content
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE users DROP COLUMN name")
        connection.commit()
    (fails,) = tb.rehearse(effect).rehearsed
    (looked,) = tb.rehearse(effect, check=True).rehearsed
    assert (fails.outcome, looked.outcome) == (Viability.FAILS, Viability.FAILS)
    assert "users" in fails.why


def test_a_box_is_tried_and_a_lost_layer_is_caught(tb: Takeback, world: World, store: Path) -> None:
    with tb.run("work") as run, run.sandbox(cwd=world.root) as box:
        box.run(["sh", "-c", "echo one > a"])
        effect = box.run(["sh", "-c", "echo two > a"]).effect
        assert effect
        (works,) = tb.rehearse(effect).rehearsed
        assert (works.outcome, works.why) == (Viability.WORKS, "")
        for layer in (store / "layers").glob("*/*/"):
            layer.rename(layer.with_name(f"{layer.name}-away"))
        lost = [tb.rehearse(effect, check=check).rehearsed[0] for check in (False, True)]
        for layer in (store / "layers").glob("*/*-away/"):
            layer.rename(layer.with_name(layer.name.removesuffix("-away")))
        assert [one.outcome for one in lost] == [Viability.FAILS, Viability.FAILS]


def test_a_command_of_the_sandbox_is_tried(tb: Takeback, world: World) -> None:
    (world / "a").write_text("old")
    with tb.run("work") as run:
        effect = run.command(["sh", "-c", "rm a; mkdir b; echo new > b/c"], cwd=world.root).effect
    assert effect
    untouched = Untouched(tb, world)

    (told,) = tb.rehearse(effect).rehearsed

    assert (told.outcome, told.why) == (Viability.WORKS, "")
    assert untouched.seen() == untouched.before


def test_what_cannot_be_tried_says_why(tb: Takeback, world: World) -> None:
    with tb.run("work") as run:
        undone = run.write(world / "a", "1")
    assert undone
    undo = tb.undo(undone).undo[0]

    (first,) = tb.rehearse(undone).rehearsed
    (second,) = tb.rehearse(undo).rehearsed

    assert (first.outcome, second.outcome) == (Viability.CANNOT, Viability.CANNOT)
    assert "undone" in first.why
    assert undone.id[:8] in second.why


def test_a_dry_run_does_and_records_nothing(tb: Takeback, world: World) -> None:
    with tb.run("work") as run:
        effect = run.write(world / "a", "1")
    assert effect
    records = Untouched(tb, world).records()

    found = tb.rehearse(effect, dry_run=True)

    assert found.at == 0
    assert "would be tried" in found.rehearsed[0].why
    assert Untouched(tb, world).records() == records
