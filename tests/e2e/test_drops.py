"""A drop is told with the way to take it back, and `apply` takes it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import takeback as api
from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.e2e.test_running import LONG, running, shell
from tests.world import Picture, World


def name_in(line: str) -> str:
    """The id that the line names."""
    return line.split("takeback apply ")[1].split("`", maxsplit=1)[0]


def test_the_line_that_tells_of_a_failure_names_the_drop(takeback: CommandLine, world: World) -> None:
    (world / "a").write_text("old\n")
    before = world.picture()
    said = takeback("run", *shell("echo new > a; echo x > b; exit 3"))
    assert said.code == 3
    assert said.err.startswith(
        "takeback: it failed (exit code 3), so nothing was changed; dropped: 1 added, 1 modified. `takeback apply "
    )
    assert "` makes it after all, until " in said.err
    assert world.picture() == before
    made = takeback.done("apply", name_in(said.err))
    assert made.out.startswith(f"Applied {name_in(said.err)}")
    assert ((world / "a").read_text(), (world / "b").read_text()) == ("new\n", "x\n")
    takeback.done("undo")
    assert world.picture() == before


def test_json_tells_of_a_drop_in_fields(takeback: CommandLine, world: World) -> None:
    told = takeback("run", "--json", *shell("echo x > b; exit 1")).json
    drop = told["dropped"]
    assert (told["effect"], told["held"], told["final"], drop["state"]) == (None, False, None, "dropped")
    assert (drop["dropped"]["reason"], drop["dropped"]["bytes"]) == ("failed", 2)
    (listed,) = takeback.done("status", "--json").json["drops"]
    assert (listed["effect"], listed["until"]) == (drop["id"], drop["dropped"]["until"])
    (held,) = takeback.done("log", "--held", "--json").json
    assert held["id"] == drop["id"]
    assert takeback.done("log", "--json").json == []


def test_status_and_log_show_drops_and_log_alone_does_not(takeback: CommandLine, world: World) -> None:
    name = name_in(takeback("run", *shell("echo x > b; exit 1")).err)
    assert f"Dropped  {name} " in takeback.done("status").out
    assert name in takeback.done("log", "--held").out
    assert name not in takeback.done("log").out
    assert "failed" in takeback.done("runs").out
    assert "dropped" in takeback.done("show", name).out
    assert "+x" in takeback.done("diff", name).out


def test_discard_names_the_drop_and_now_erases_it(takeback: CommandLine, world: World) -> None:
    held = takeback.done("run", "--json", "--hold", *shell("echo x > b")).json["effect"]["id"]
    said = takeback.done("discard", held).out
    assert said.startswith(f"Discarded {held[:8]}")
    assert name_in(said) == held[:8]
    again = takeback("discard", held)
    assert (again.code, "--now" in again.err) == (3, True)
    assert takeback.done("discard", held, "--now").out.rstrip().endswith(": erased")
    gone = takeback("apply", held)
    assert (gone.code, "erased" in gone.err) == (3, True)
    assert takeback.done("log", "--held", "--json").json == []


def test_apply_of_a_run_means_what_it_dropped_where_nothing_is_held(
    takeback: CommandLine, world: World
) -> None:
    takeback("run", "--name", "build", *shell("echo x > b; exit 1"))
    takeback.done("apply", "--run", "build")
    assert (world / "b").read_text() == "x\n"


def test_what_others_changed_while_it_ran_is_a_conflict_when_it_is_applied(
    takeback: CommandLine, world: World
) -> None:
    (world / "a").write_text("old\n")
    with running(world, *shell("echo mine >> a; echo ready; read go; exit 1")) as child:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        (world / "a").write_text("theirs\n")
        _, told = child.communicate("go\n", timeout=LONG)
    name = name_in(told)
    refused = takeback("apply", name)
    assert (refused.code, (world / "a").read_text()) == (3, "theirs\n")
    assert f"takeback apply --force {name}" in refused.err
    takeback.done("apply", "--force", name)
    assert (world / "a").read_text() == "old\nmine\n"
    takeback.done("undo")
    assert (world / "a").read_text() == "theirs\n"


def test_a_drop_over_the_cap_is_said_and_noted_where_nobody_reads(
    takeback: CommandLine, world: World, store: Path
) -> None:
    takeback.done("write", "x", input="x")
    (store / "settings.json").write_text(json.dumps({"dropped_most": 1}))
    first = name_in(takeback("run", *shell("echo 1 > b; exit 1")).err)
    said = takeback("run", *shell("echo 2 > b; exit 1")).err
    assert "more than 1 drop of a project: 1 drop from " in said
    assert f"({first})" in said
    assert "`dropped_most` in the settings moves the limit" in said
    takeback("run", "--quiet", *shell("echo 3 > b; exit 1"))
    status = takeback.done("status", "--json").json
    assert [one["bound"] for one in status["given_up"]] == ["drops"]
    assert status["given_up"][0]["effect"] in status["attention"]


def test_a_command_without_a_terminal_is_never_held(takeback: CommandLine, world: World) -> None:
    done = subprocess.run(
        [*COMMAND, "run", "--json", *shell("read x; echo $x > b; exit 1")],
        cwd=world.root, env=surroundings(), input=b"typed\n", capture_output=True, check=False,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert (told["held"], told["dropped"]["state"]) == (False, "dropped")
    assert os.listdir(world.root) == []


IN_PLACE = "echo more >> a; rm -r d; mkdir n; echo y > n/y; ln -s a link; chmod 700 b; exit 4"


def in_place(world: World) -> None:
    (world / "a").write_text("old\n")
    os.link(world / "a", world / "b")
    (world / "d").mkdir()
    (world / "d" / "z").write_text("z\n")


def test_what_a_failing_command_changed_in_place_is_taken_back_and_can_be_applied(
    takeback: CommandLine, world: World
) -> None:
    in_place(world)
    before = world.picture()
    takeback.done("run", "--in-place", *shell(IN_PLACE.replace("exit 4", "exit 0")))
    after = world.picture()
    takeback.done("undo")
    assert world.picture() == before
    said = takeback("run", "--in-place", *shell(IN_PLACE))
    assert said.code == 4
    assert "` makes it again, until " in said.err
    assert world.picture() == before
    takeback.done("redo")  # the undo of a person, not the drop
    assert without_times(world.picture()) == without_times(after)
    takeback.done("undo")

    takeback.done("apply", name_in(said.err))

    assert without_times(world.picture()) == without_times(after)
    takeback.done("undo")
    assert world.picture() == before


def without_times(picture: Picture) -> dict[bytes, object]:
    return {
        path: {name: told for name, told in seen.items() if name != "mtime"} for path, seen in picture.items()
    }


def test_in_place_json_tells_of_the_drop_and_now_erases_its_bytes(
    takeback: CommandLine, world: World, store: Path
) -> None:
    secret = os.urandom(50_000).hex()
    (world / "a").write_text("old\n")
    (world.root.parent / "secret").write_text(secret)
    told = takeback("run", "--in-place", "--json", *shell("cp ../secret a; exit 1")).json
    drop = told["dropped"]
    assert (drop["state"], drop["dropped"]["reason"]) == ("dropped", "failed")
    assert (world / "a").read_text() == "old\n"
    assert holds(store, secret)
    takeback.done("discard", drop["id"], "--now")
    assert not holds(store, secret)
    takeback.done("verify", "--read-data")


def holds(store: Path, content: str) -> bool:
    with api.open(store) as tb:
        return any(
            b"".join(tb.store.blobs.read(info.digest)) == content.encode()
            for info in tb.store.blobs.info()
            if info.size == len(content)
        )


def test_in_place_a_drop_that_is_too_large_names_the_undo(
    takeback: CommandLine, world: World, store: Path
) -> None:
    takeback.done("write", "x", input="x")
    (store / "settings.json").write_text(json.dumps({"dropped_bytes": 1000}))
    said = takeback("run", "--in-place", *shell("head -c 2000 /dev/zero > a; exit 1"))
    assert "takeback apply" not in said.err
    assert "`dropped_bytes`" in said.err
    assert not (world / "a").exists()
    takeback.done("redo", said.err.split("takeback redo ")[1].split("`")[0])
    assert (world / "a").stat().st_size == 2000


def test_what_was_only_held_is_dropped_with_its_run_and_the_hint_can_be_pasted(
    takeback: CommandLine, world: World
) -> None:
    code = (
        "import takeback\nwith takeback.open() as tb, tb.run('x') as run:\n"
        "    run.write('a', '1')\n    run.command('echo b > b', hold=True)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=world.root, check=True)
    undone = takeback("undo", "--run", "x")
    assert undone.code == 0 and not (world / "a").exists()
    hint = re.search(
        r"A held change is dropped: `takeback (apply \w+)` would make it", undone.out + undone.err
    )
    assert hint, undone.out + undone.err
    assert takeback(*hint[1].split()).code == 0 and (world / "b").read_text() == "b\n"
