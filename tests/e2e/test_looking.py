"""log show diff status runs, as a user types them."""

import os
import pwd
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from takeback.errors import Misuse
from takeback.storage.sqlite.store import default_path
from tests.docs.test_json_page import made as a_call
from tests.e2e.conftest import CommandLine, surroundings
from tests.world import World


@pytest.mark.parametrize("command", ["log", "status", "runs", "checkpoints", "recover", "forget", "sweep"])
def test_looking_where_nothing_was_recorded_says_so_and_makes_no_store(
    takeback: CommandLine, command: str
) -> None:
    usual = {"TAKEBACK_STORE": "", "XDG_STATE_HOME": os.environ["TAKEBACK_STORE"]}
    said = takeback.done(command, **usual)
    as_json = takeback.done(command, "--json", **usual)

    assert said.out.startswith("Nothing recorded yet")
    assert as_json.json is not None
    assert not os.path.exists(os.environ["TAKEBACK_STORE"])


@pytest.mark.parametrize(
    "words", [("show", "@"), ("diff", "@"), ("undo", "@"), ("redo", "@"), ("accept", "@")]
)
def test_naming_an_effect_where_nothing_was_recorded_is_misuse(
    takeback: CommandLine, words: tuple[str, ...]
) -> None:
    assert takeback(*words).code == 2
    assert not os.path.exists(os.environ["TAKEBACK_STORE"])


def test_log_lists_newest_first_one_line_each(takeback: CommandLine) -> None:
    ids = [takeback.write(f"f{n}", "1")["id"][:8] for n in range(3)]

    lines = takeback.done("log").out.splitlines()

    assert [line.split()[:2] for line in lines] == [["@", ids[2]], ["@~1", ids[1]], ["@~2", ids[0]]]
    assert all(line.endswith(f" write f{2 - place} (1 byte)") for place, line in enumerate(lines))


def test_log_n_takes_the_newest_and_tells_that_there_are_more(takeback: CommandLine) -> None:
    for n in range(3):
        takeback.write(f"f{n}", "1")

    said = takeback.done("log", "-n", "2")

    assert len(takeback.done("log", "-n", "2", "--json").json) == 2
    assert said.out.endswith("hint: There are more; -n 0 lists all.\n")
    assert "hint" not in takeback.done("log", "-n", "3").out
    assert len(takeback.done("log", "-n", "0", "--json").json) == 3
    assert len(takeback.done("log", "-n", "9" * 30, "--json").json) == 3
    assert takeback("show", "@~" + "9" * 30).code == 2


def test_log_goes_by_when_effects_took_hold_as_the_newest_does(takeback: CommandLine) -> None:
    """What was held first and kept last comes first, whatever page it would be on."""
    held = takeback("run", "--hold", "--json", "--", "touch", "new").json["effect"]["id"]
    written = [takeback.write(f"f{n}", "1")["id"] for n in range(3)]
    assert [one["id"] for one in takeback.done("log", "--json").json] == [*written[::-1], held]
    takeback.done("apply", held)

    for number in (0, 1, 2, 3, 4, 9):
        listed = [one["id"] for one in takeback.done("log", "--json", "-n", str(number)).json]
        assert listed == [held, *written[::-1]][: number or None]
    assert takeback.effect("@")["id"] == held
    assert takeback.effect("@~1")["id"] == written[-1]
    times = [one["at"] for one in takeback.done("log", "--json").json]
    assert times == sorted(times, reverse=True)
    assert takeback.done("log").out.startswith(f"@    {held[:8]}")


def test_log_can_be_narrowed_by_path_run_and_agent(takeback: CommandLine, world: World) -> None:
    (world / "d").mkdir()
    inside = takeback.write("d/a", "1", "--run", "deploy")
    other = takeback.write("b", "1", "--agent", "robot")

    def ids(*words: str) -> list[str]:
        return [effect["id"] for effect in takeback.done("log", "--json", *words).json]

    assert ids("--path", "d") == [inside["id"]]
    assert ids("--path", "d/a") == [inside["id"]]
    assert ids("--run", "deploy") == [inside["id"]]
    assert ids("--run", inside["run"][:8]) == [inside["id"]]
    assert ids("--agent", "robot") == [other["id"]]
    assert ids("--path", "nowhere") == []
    assert takeback("log", "--run", "nosuchrun").code == 2


def test_log_leaves_out_what_never_happened_unless_asked(takeback: CommandLine) -> None:
    takeback.write("a", "1")
    takeback("write", "a", "--check", "test -x {staged}", input="2")

    assert [one["state"] for one in takeback.done("log", "--json").json] == ["done"]
    assert [one["state"] for one in takeback.done("log", "--all", "--json").json] == ["aborted", "done"]


def test_show_tells_everything_that_is_known(takeback: CommandLine, world: World) -> None:
    first = takeback.write("a", "1")
    second = takeback.write("a", "22")

    said = takeback.done("show", first["id"][:6])
    told = takeback.effect(first["id"])

    assert "Target   a: nothing → 1 byte" in said.out
    assert "Blocked by later effects" in said.out
    assert told["blocked_by"] == [second["id"]]
    assert [record["kind"] for record in told["records"]] == ["intent", "done"]
    assert told["run_name"] == "command line"


def test_show_tells_by_what_it_was_undone(takeback: CommandLine) -> None:
    effect = takeback.write("a", "1")
    takeback.done("undo")

    told = takeback.effect(effect["id"])

    assert told["state"] == "undone"
    assert f"undone, by {told['undone_by'][:8]}" in takeback.done("show", effect["id"]).out


def test_names_count_back_from_the_newest(takeback: CommandLine) -> None:
    ids = [takeback.write(f"f{n}", "1")["id"] for n in range(3)]

    assert [takeback.effect(name)["id"] for name in ("@", "@~1", "@~2")] == ids[::-1]


@pytest.mark.needs("patch")
def test_diff_is_a_real_diff_that_patch_understands(takeback: CommandLine, world: World) -> None:
    lines = [f"line {n}\n" for n in range(50)]
    takeback.write("a", "".join(lines))
    takeback.write("a", "".join([*lines[:10], "new\n", *lines[11:40], *lines[41:], "no end"]))

    said = takeback.done("diff", "@")
    subprocess.run(
        ["patch", "-R", "-p1", "--no-backup-if-mismatch"], input=said.out.encode(), cwd=world.root, check=True
    )

    assert (world / "a").read_text() == "".join(lines)


@pytest.mark.needs("patch")
def test_a_rename_by_a_command_is_one_line_wherever_it_is_shown(takeback: CommandLine, world: World) -> None:
    (world / "a").write_text("a\n")
    (world / "c").write_text("c\n")
    (world / "d").mkdir()
    (world / "d/f").write_text("f\n")
    before = files(world)
    words = ("run", "--hold", "--", "sh", "-c", "mv a b; mv d e; echo 2 >> c")

    planned = takeback.done(words[0], "--dry-run", *words[2:]).err
    assert "would change: 2 moved, 1 modified; nothing was changed.\n  > " in planned
    assert sorted(re.findall("  > (.*)", planned)) == ["a → b", "d → e"]
    assert "  - " not in planned and "  + " not in planned
    assert ": 2 moved, 1 modified. " in takeback.done(*words).err
    takeback.done("apply", "@")

    diff = takeback.done("diff").out
    for told in (takeback.done("show").out, takeback.done("log", "--stat").out, diff):
        assert sorted(re.findall(r"\S+ → \S*(?:b|e)\b", told)) == ["a → b", "d → e"]
        assert not re.search("nothing|/dev/null|  d/f", told)
    subprocess.run(
        ["patch", "-R", "-p1", "--no-backup-if-mismatch"], input=diff.encode(), cwd=world.root, check=True
    )
    assert files(world) == before
    parts = takeback.done("diff", "--json").json["parts"]
    assert {os.path.basename(one["resource"]) for one in parts} == {"a", "b", "c", "d", "e", "f"}


def files(world: World) -> dict[str, str]:
    found = (one for one in world.root.rglob("*") if one.is_file())
    return {os.path.relpath(one, world.root): one.read_text() for one in found}


@pytest.mark.needs("patch")
def test_a_diff_that_reaches_beyond_the_current_directory_begins_at_the_root(
    takeback: CommandLine, world: World
) -> None:
    (world / "below").mkdir()
    takeback.done("run", "--", "sh", "-c", "echo 1 > below/a; echo 2 > b")
    elsewhere = CommandLine(str(world / "below"))

    said = elsewhere.done("diff", takeback.effect()["id"])
    subprocess.run(["patch", "-R", "-p1", "-d", "/"], input=said.out.encode(), check=True)

    assert f"+++ b{world / 'b'}" in said.out
    assert not (world / "below" / "a").exists() and not (world / "b").exists()


def test_paths_begin_where_the_reader_stands_and_with_json_at_the_root(
    takeback: CommandLine, world: World, tmp_path: Path
) -> None:
    outside = tmp_path / "elsewhere.txt"
    (world / "a b").write_text("1\n")
    takeback.done("run", "--name", "both", "--", "sh", "-c", f"echo 2 > 'a b'; echo 2 > {outside}")
    said = [
        takeback.done(*words).out
        for words in (
            ("show", "@"),
            ("show", "both"),
            ("status",),
            ("undo", "--dry-run", "@"),
        )
    ]
    (world / "a b").write_text("mine\n")
    said += [takeback("undo", "@").err]

    assert not any(str(world / "a b") in one for one in said)
    assert "Target   a b: 2 bytes" in said[0]
    assert f"Target   {outside}: nothing" in said[0]
    assert "would undo  a b" in said[3]
    assert "a b is now 5 bytes" in said[4]
    assert any(one["resource"].endswith("/a%20b") for one in takeback.effect()["targets"])
    assert takeback.effect()["resource"].startswith("file:///")


def test_there_is_one_clock(takeback: CommandLine, world: World) -> None:
    """Times are the reader's; how long ago it was comes first."""
    takeback.write("a", "1\n")
    (world / "a").write_text("mine\n")
    takeback.done("checkpoint", "here")
    there = {"TZ": "America/New_York"}

    shown = takeback.done("show", "@", **there).out
    texts = (shown, takeback("undo", "@", **there).err, takeback.done("status", **there).out)

    assert re.search(r"(?m)^When     (just now|\d+ s ago) \(\d\d:\d\d:\d\d\)$", shown)
    assert not any("UTC" in text or re.search(r"\d{4}-\d\d-\d\d", text) for text in texts)
    assert re.search(r"  (just now|\d+ s ago) ", takeback.done("runs", **there).out)
    assert re.search(r"  (just now|\d+ s ago) ", takeback.done("checkpoints", **there).out)
    assert takeback.effect()["at"].endswith("Z")


def test_diff_shows_both_sides(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "one\ntwo\n")
    takeback.write("a", "one\n2\n")

    assert takeback.done("diff", "@").out.splitlines() == [
        "--- a/a", "+++ b/a", "@@ -1,2 +1,2 @@", " one", "-two", "+2",
    ]  # fmt: skip


def test_diff_of_binary_modes_links_moves_and_directories_is_a_summary(
    takeback: CommandLine, world: World
) -> None:
    (world / "d").mkdir()
    (world / "d" / "inner.txt").write_text("inside\n")
    takeback.write("bin", b"\0\1\2")
    told = [takeback.done("diff", "@").out]
    for words in (("chmod", "600", "bin"), ("ln", "bin", "l"), ("mv", "bin", "bin2"), ("rm", "d")):
        takeback.done(*words)
        told.append(takeback.done("diff", "@").out)

    assert "binary, nothing → 3 bytes" in told[0]
    assert "mode 0644 → 0600" in told[1]
    assert "a symbolic link to bin" in told[2]
    assert "bin → bin2: moved\n" in told[3]
    assert "- inner.txt (7 bytes)" in told[4]
    assert "-inside" in takeback.done("diff", "@", "d/inner.txt").out


def test_diff_of_edited_keys_names_the_values(takeback: CommandLine, world: World) -> None:
    (world / "c.json").write_text('{"a": 1}\n')
    takeback.done("edit", "c.json", "--set", "/a=2")

    said = takeback.done("diff", "@")
    parts = takeback.done("diff", "@", "--json").json["parts"]

    assert "c.json [/a]: 1 → 2" in said.out
    assert '+{"a": 2}' in said.out
    assert parts[0]["words"] == ["1 → 2"]


def test_diff_of_a_path_that_was_not_touched_is_misuse(takeback: CommandLine) -> None:
    takeback.write("a", "1")

    assert takeback("diff", "@", "b").code == 2


def test_diff_says_when_one_side_is_gone(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1\n")
    effect = takeback.write("a", "2\n")
    takeback.done("accept", effect["id"])
    takeback.done("forget", effect["id"])
    takeback.done("sweep", "--grace", "0")
    (world / "a").write_text("3\n")

    said = takeback.done("diff", effect["id"])

    assert "neither in the store nor on disk" in said.out


def test_status_counts(takeback: CommandLine) -> None:
    first = takeback.write("a", "1")
    takeback.write("b", "1")
    takeback.done("undo")
    takeback.done("accept", first["id"])

    told = takeback.done("status", "--json").json
    said = takeback.done("status")

    assert (told["effects"]["done"], told["effects"]["undone"], told["effects"]["stuck"]) == (1, 1, 0)
    assert told["runs"] == {"open": 1, "suspended": 0}
    assert told["size"] > 0
    assert told["settings"]["accepted_seconds"] == 30 * 86400
    assert told["suspect"] is False
    assert "Runs     none open, besides 1 run of the command line\n" in said.out
    assert "1 undone" in said.out


def test_a_call_that_needs_an_approval_is_shown_as_one_and_not_as_a_held_change(
    takeback: CommandLine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.root)
    name = a_call("waiting")
    ways = f"hint: `takeback approve {name[:8]}` or `takeback deny {name[:8]}`.\n"

    assert "(waiting for approval" in takeback.done("log").out
    assert takeback.done("log", "--held", "--format", "{state}").out == "waiting for approval\n"
    for command in ("forget", "pin", "accept", "apply"):
        said = takeback(command, name)
        assert said.code == 3 and "waits for an approval" in said.err and said.err.endswith(ways), said
    (waiting,) = takeback.done("pending", "--json").json
    takeback.done("approve", name, "--by", "bea", "--answer", waiting["challenge"])
    assert takeback.done("log", "--format", "{state}").out == "approved\n"


def test_status_tells_of_a_suspect_store(takeback: CommandLine) -> None:
    takeback.write("a", "1")
    open(os.path.join(os.environ["TAKEBACK_STORE"], "SUSPECT"), "w").close()

    said = takeback.done("status")
    refused = takeback("write", "b", input="1")
    takeback.done("verify", "--read-data")

    assert "new changes are refused" in said.out
    assert refused.code == 5
    takeback.done("write", "b", input="1")


def test_the_store_can_be_named_before_or_after_the_command(takeback: CommandLine, world: World) -> None:
    takeback.done("--store", str(world / "s"), "write", "a", input="1")

    assert len(takeback.done("log", "--json", "--store", str(world / "s")).json) == 1
    assert len(takeback.done("--json", f"--store={world / 's'}", "log").json) == 1
    assert takeback("log").code == 3


def test_an_empty_home_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAKEBACK_STORE", "XDG_STATE_HOME", "HOME"):
        monkeypatch.setenv(name, "")
    mine = pwd.getpwuid(os.getuid()).pw_dir
    assert default_path() == f"{mine}/.local/state/takeback"

    monkeypatch.setattr("os.getuid", lambda: 4_000_000)  # of nobody who is known here
    with pytest.raises(Misuse, match="Your home directory is unknown"):
        default_path()


def test_a_relative_state_directory_is_ignored_as_xdg_says(takeback: CommandLine, world: World) -> None:
    places = {"TAKEBACK_STORE": "", "XDG_STATE_HOME": "relative", "HOME": str(world / "home")}

    said = takeback("status", "--json", **places)

    assert said.json["store"] == str(world / "home" / ".local" / "state" / "takeback")


def test_the_options_of_log_work_together(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1\n")
    takeback.done("run", "--name", "both", "--", "sh", "-c", "echo 2 > a; echo 3 > b")
    elsewhere = world / "elsewhere"
    (elsewhere / ".git").mkdir(parents=True)
    CommandLine(str(elsewhere)).write("c", "1\n")

    stat = takeback.done("log", "--stat", "--since", "1h", "--format", "{ref} {summary}").out
    patch = takeback.done("log", "-p", "--stat", "--since", "1h", "-n", "1").out
    everywhere = takeback.done("log", "--all", "--stat", "--format", "{what}|{where}").out

    assert [one.split()[0] for one in stat.splitlines()] == ["@", "a", "b", "@~1", "a"]
    assert "  a\n  b\n--- a/a\n+++ b/a\n" in patch
    assert "elsewhere/c" in everywhere and "  b\n" in everywhere
    assert takeback.done("log", "--since", "2999-01-01").out.startswith("No effects match")
    assert takeback("log", "--format", "json", "-p").code == 2
    assert len(takeback.done("log", "--format", "json", "--since", "1h", "--all").out.splitlines()) == 3


def test_paths_are_near_in_dry_runs_and_of_calls_that_wait_for_a_person(
    takeback: CommandLine, world: World
) -> None:
    with TemporaryDirectory(prefix="n") as root:  # a short name, because long arguments are cut in summaries
        _tell_near_paths(CommandLine(root), Path(root))


def _tell_near_paths(takeback: CommandLine, world: Path) -> None:
    root = os.fspath(world)
    (world / "a").write_text("1\n")
    (world / "c.json").write_text("{}")
    (world / "post.py").write_text(
        "import sys, takeback\n"
        "@takeback.action(undo=takeback.MANUAL('fetch it back'))\n"
        "def send(to):\n"
        "    raise TimeoutError('no answer')\n"
        "if __name__ == '__main__':\n"
        "    tb = takeback.open()\n"
        "    agent = '' if sys.argv[2:] else 'writer'\n"  # an agent cannot approve
        "    with tb.run('write', agent=agent) as run:\n"
        "        try:\n"
        "            run.call(send, sys.argv[1])\n"
        "        except takeback.AwaitingApproval as waiting:\n"
        "            if not sys.argv[2:]:\n"
        "                raise\n"
        "            tb.approve(waiting.effect, by='bea', answer=waiting.challenge)\n"
        "            run.call(send, sys.argv[1])\n"
    )
    for words in ((f"{root}/mail",), (f"{root}/mail", "and approve")):
        made = [sys.executable, "post.py", *words]
        subprocess.run(made, cwd=root, env=surroundings(), capture_output=True, check=False)
    (waiting,) = takeback.done("pending", "--json").json
    (stuck,) = takeback.done("status", "--json").json["in_doubt"]
    assert waiting["summary"] == f'call send(to="{root}/mail")'

    approving = ("approve", waiting["id"], "--by", "bea", "--answer", waiting["challenge"])
    for words in (
        ("pending",), (*approving, "--dry-run"), ("status",), approving, ("settle", stuck, "--happened", "--dry-run"),
        ("recover", "--dry-run"), ("settle", stuck, "--happened"), ("write", "new", "--dry-run"),
        ("mkdir", "dir", "--dry-run"), ("rm", "a", "--dry-run"), ("mv", "a", "b", "--dry-run"),
        ("ln", "a", "b", "--dry-run"), ("chmod", "600", "a", "--dry-run"), ("chmod", "600", "a"),
        ("edit", "c.json", "--set", "/a=1", "--dry-run"), ("run", "--dry-run", "--", "touch", "new"),
        ("pin", "@", "--dry-run"), ("accept", "@", "--dry-run"), ("log", "--all"), ("forget", "@", "--dry-run"),
        ("undo", "--dry-run"), ("undo",), ("redo", "--dry-run"), ("show", "@"), ("runs",),
    ):  # fmt: skip
        said = takeback.done(*words, input="text")
        exact = f'with {{"to":"{root}/mail"}}'
        assert root not in said.out.replace(exact, "") + said.err, words
