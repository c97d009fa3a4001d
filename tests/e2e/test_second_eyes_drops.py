"""What a sceptical user found out about drops, held changes and redo with force."""

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import CommandLine
from tests.e2e.test_killed_command import killed_at
from tests.world import World

IN_THE_MIDDLE = """
from takeback.adapters.tree.swap import Swap

whole, begun = Swap.swap, []

def swap(self):
    if begun:
        die()
    begun.append(self)
    whole(self)

Swap.swap = swap
"""


def _held(takeback: CommandLine) -> str:
    return takeback.done("log", "--held", "--json").json[0]["id"]


def _newest(takeback: CommandLine) -> str:
    return takeback.done("log", "--json").json[0]["id"]


def test_second_eyes_1_what_a_forced_redo_overwrote_can_be_brought_back(
    takeback: CommandLine, world: World
) -> None:
    a = world.root / "a"
    a.write_text("0\n")
    takeback.done("run", "-q", "--", "sh", "-c", "echo 1 > a")
    takeback.done("undo")
    a.write_text("mine\n")

    redone = takeback.done("redo", "--force")
    effect = _newest(takeback)[:8]
    shown = takeback.done("show", effect).out
    redo = shown.split("what redo ")[1].split()[0]
    undone = takeback.done("undo", effect)
    shown_undone = takeback.done("show", effect).out
    refused = takeback("undo", redo)

    assert f"undo {redo}` restores the overwritten content" in redone.out
    assert "kept for redo" not in redone.out
    assert f"undo {redo}` brings it back" in undone.out
    assert f"redo {effect}`, then `takeback undo {redo}`" in shown_undone
    assert (refused.code, a.read_text()) == (3, "0\n")
    assert f"Run `takeback redo {effect}`, then" in refused.err
    takeback.done("redo", effect)
    takeback.done("undo", redo)
    assert a.read_text() == "mine\n"
    assert "what redo" not in takeback.done("show", effect).out


def _dropped_over(takeback: CommandLine, root: Path, *options: str) -> str:
    (root / "w").mkdir()
    (root / "keep").write_text("orig\n")
    (root / "w" / "a").write_text("a\n")
    end = "exit 0" if options else "exit 1"
    takeback("run", "-q", *options, "--", "sh", "-c", f"echo AGENT > keep; echo aa > w/a; {end}")
    return _held(takeback)


def test_second_eyes_2_a_forced_apply_that_fails_leaves_what_is_expected(
    takeback: CommandLine, world: World
) -> None:
    drop = _dropped_over(takeback, world.root)
    (world.root / "w").rename(world.root / "away")
    (world.root / "keep").write_text("MINE\n")

    assert takeback("apply", drop, "--force").code == 3
    (world.root / "w").mkdir()

    assert takeback("apply", drop).code == 3
    assert (world.root / "keep").read_text() == "MINE\n"
    (world.root / "keep").write_text("orig\n")
    (world.root / "w").rmdir()
    (world.root / "away").rename(world.root / "w")
    takeback.done("apply", drop)
    assert (world.root / "keep").read_text() == "AGENT\n"


@pytest.mark.parametrize("options", [(), ("--hold",)], ids=["dropped", "held"])
def test_second_eyes_2_and_12_a_forced_apply_that_is_killed(
    takeback: CommandLine, world: World, options: tuple[str, ...]
) -> None:
    drop = _dropped_over(takeback, world.root, *options)
    (world.root / "keep").write_text("MINE\n")
    killed_at(world, IN_THE_MIDDLE, "apply", drop, "--force")

    status = takeback.done("status")
    told = takeback.done("status", "--json").json
    logs = [takeback.done(*words).out for words in (("log",), ("log", "--held"), ("runs",))]
    dry = takeback.done("recover", "--dry-run")

    assert f"it was applying {drop[:8]}" in status.out
    assert "recover` finishes the interrupted `apply`, or takes it back" in status.out
    assert [(one["ending"], one["in_doubt"]) for one in told["dead"]] == [("applied", [drop])]
    assert all("1 run died and needs recovery" in one for one in logs)
    assert drop[:8] in dry.out
    takeback.done("sweep", "--grace", "0")  # what it expects is needed again
    takeback.done("recover")
    assert not takeback.done("status", "--json").json["dead"]
    assert (world.root / "keep").read_text() == "MINE\n"
    again = _held(takeback)
    assert (again == drop) is not bool(options)  # what was held is held under a new id
    assert takeback("apply", again).code == 3
    assert (world.root / "keep").read_text() == "MINE\n"
    (world.root / "keep").write_text("orig\n")
    takeback.done("apply", again)
    assert (world.root / "keep").read_text() == "AGENT\n"
    takeback.done("verify", "--read-data")


@pytest.mark.parametrize("options", [(), ("--hold",)], ids=["dropped", "held"])
def test_second_eyes_13_apply_offers_only_what_would_work(
    takeback: CommandLine, world: World, options: tuple[str, ...]
) -> None:
    drop = _dropped_over(takeback, world.root, *options)
    (world.root / "w").rename(world.root / "away")

    plain, forced, dry = (
        takeback("apply", drop, *more) for more in ((), ("--force",), ("--force", "--dry-run"))
    )
    (world.root / "w").write_text("a file\n")
    over_a_file = takeback("apply", drop, "--force")

    for said in (plain, forced, dry, over_a_file):
        assert said.code == 3
        found = "is no directory any more" if said is over_a_file else "is gone"
        assert f"w/a cannot be written: w {found}." in said.err
        assert said.err.count("Nothing was changed") == 1
    assert "--force" not in plain.err
    (world.root / "w").unlink()
    (world.root / "away").rename(world.root / "w")
    takeback.done("apply", drop)  # the same id: nothing was recorded of the attempts


@pytest.mark.parametrize("then", ["true", "echo file > d"], ids=["removed", "replaced"])
def test_second_eyes_13_force_does_not_remove_what_the_command_did_not_see(
    takeback: CommandLine, world: World, then: str
) -> None:
    d = world.root / "d"
    d.mkdir()
    (d / "x").write_text("1\n")
    takeback("run", "-q", "--", "sh", "-c", f"rm -r d; {then}; exit 1")
    drop = _held(takeback)
    (d / "mine").write_text("mine\n")

    said = takeback("apply", drop, "--force")

    assert said.code == 3
    assert "it is a directory and holds d/mine" in said.err
    assert (d / "mine").read_text() == "mine\n"
    (d / "mine").rename(world.root / "mine")
    takeback.done("apply", drop)


def test_second_eyes_6_an_apply_that_changes_nothing_records_nothing(
    takeback: CommandLine, world: World
) -> None:
    a = world.root / "a"
    a.write_text("0\n")
    takeback.done("write", "a", input="1\n")
    takeback("run", "-q", "--", "sh", "-c", "mkdir d; exit 1")
    drop = _held(takeback)
    (world.root / "d").mkdir()

    said = takeback.done("apply", drop, "--force")

    assert "is already in place" in said.out
    assert takeback.done("show", drop, "--json").json["state"] == "dropped"
    takeback.done("undo")
    assert (a.read_text(), (world.root / "d").is_dir()) == ("0\n", True)


def _settings(takeback: CommandLine, **settings: int) -> None:
    store = takeback.done("status", "--json").json["store"]
    Path(store, "settings.json").write_text(json.dumps(settings))


def test_second_eyes_14_a_dry_run_of_discard_says_what_would_be_left(
    takeback: CommandLine, world: World
) -> None:
    takeback.done("run", "-q", "--hold", "--", "sh", "-c", "echo 12345 > a")
    held = _held(takeback)

    plain = takeback.done("discard", held, "--dry-run").out
    now = takeback.done("discard", held, "--now", "--dry-run").out
    _settings(takeback, dropped_bytes=1)
    final = takeback.done("discard", held, "--dry-run").out

    assert "could make it after all, for a while" in plain
    assert "it would be erased" in now
    assert "after all" not in now
    assert "this drop would be final" in final
    assert _held(takeback) == held
    assert "this drop is final" in takeback.done("discard", held).out


def test_second_eyes_14_in_place_without_drops_the_undo_has_saved_it(
    takeback: CommandLine, world: World
) -> None:
    takeback.write("b", "1")
    _settings(takeback, dropped_seconds=0)

    said = takeback("run", "--in-place", "--", "sh", "-c", "echo 1 > a; exit 1")

    assert "It is not listed as a drop: `dropped_seconds` is 0." in said.err
    assert "nothing of it was saved" not in said.err


@pytest.mark.parametrize("name", ["TERM", "HUP", "INT", ""])
def test_second_eyes_14_in_place_an_interrupted_command_is_told_as_such(
    takeback: CommandLine, world: World, name: str
) -> None:
    send = f"kill -{name} $PPID; exec sleep 60" if name else "exec sleep 60"
    limit = () if name else ("--timeout", "1")

    said = takeback("run", "-q", "--in-place", *limit, "--", "sh", "-c", f"echo 1 > a; {send}")

    assert said.code != 0
    (drop,) = takeback.done("log", "--held", "--json").json
    assert drop["dropped"]["reason"] == "interrupted"


def test_second_eyes_14_apply_of_an_undone_drop_names_redo(takeback: CommandLine, world: World) -> None:
    takeback("run", "-q", "--", "sh", "-c", "echo 1 > a; exit 1")
    drop = _held(takeback)
    takeback.done("apply", drop)
    takeback.done("undo")

    said = takeback("apply", drop)

    assert said.code == 3
    assert f"redo {drop[:8]}` brings it back" in said.err
