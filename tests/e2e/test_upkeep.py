"""recover verify doctor forget sweep, and what every command does after a crash."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.damage import rewrite_records, saying
from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.world import World

# A run that is killed in the middle: one effect done, its process gone without a word.
KILLED = """
import os, signal, sys, takeback
run = takeback.open().run("half", agent="dier")
run.write(sys.argv[1], "half done")
os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_in_the_middle(world: World) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(world / "a")], env=surroundings(), check=False)
    assert done.returncode == -signal.SIGKILL
    assert (world / "a").read_text() == "half done"


def test_the_next_change_settles_what_a_killed_one_left_and_says_so(
    takeback: CommandLine, world: World
) -> None:
    kill_in_the_middle(world)

    assert takeback.done("log").err == "" and (world / "a").exists()
    said = takeback.done("mkdir", "d")

    assert said.err.startswith("Recovered from a crash: ")
    assert not (world / "a").exists()
    assert takeback.done("log").err == ""


def test_what_was_recovered_is_in_the_json_too(takeback: CommandLine, world: World) -> None:
    kill_in_the_middle(world)

    told = takeback.done("mkdir", "d", "--json").json

    assert [one["outcome"] for one in told["recovered"]] == ["undone"]


def test_recover_tells_all_it_settled(takeback: CommandLine, world: World) -> None:
    kill_in_the_middle(world)

    told = takeback.done("recover", "--json").json

    assert [one["outcome"] for one in told["settled"]] == ["undone"]
    assert takeback.done("recover").out == "Nothing to recover: every effect is settled.\n"
    assert not (world / "a").exists()


def test_a_dry_run_of_recover_lists_and_settles_nothing(takeback: CommandLine, world: World) -> None:
    kill_in_the_middle(world)

    told = takeback.done("recover", "--dry-run", "--json").json

    assert [one["detail"] for one in told["unsettled"]] == ["would be taken back with its run, which died"]
    assert (world / "a").read_text() == "half done"
    assert "would be taken back" in takeback.done("recover", "--dry-run").out
    takeback.done("recover")
    assert takeback.done("recover", "--dry-run", "--json").json["unsettled"] == []


def test_verify_of_a_sound_store(takeback: CommandLine) -> None:
    takeback.write("a", "1")

    said = takeback.done("verify", "--read-data", "--json").json

    assert (said["sound"], said["findings"]) == (True, [])
    assert said["records"] >= 3
    assert takeback.done("verify").out.startswith("Sound: ")


def test_verify_where_there_is_no_store_cannot_say_that_it_is_sound(
    takeback: CommandLine, world: World
) -> None:
    (world / "file").write_text("x")

    said = takeback("verify", "--store", world / "nowhere")
    as_json = takeback("verify", "--store", world / "nowhere", "--read-data", "--json")

    assert (said.code, as_json.code) == (5, 5)
    assert said.err.startswith("error: There is no store at nowhere.\nhint: ")
    assert (as_json.json["sound"], as_json.json["read_data"]) == (False, True)
    assert as_json.error["type"] == "ResourceUnreachable"
    no_store = takeback("verify", "--store", world / "file")
    assert (no_store.code, no_store.err.partition("\n")[0]) == (2, "error: file is no takeback store.")
    assert not (world / "nowhere").exists()


def test_verify_of_a_damaged_journal_tells_which_runs_can_still_be_used(
    takeback: CommandLine, world: World
) -> None:
    hurt = takeback.write("a", "1", "--run", "first")
    good = takeback.write("b", "1", "--run", "second")
    damage_the_first_intent()

    said = takeback("verify")
    as_json = takeback("verify", "--json").json

    assert said.code == 6
    assert f"hurt:    run {hurt['run'][:8]} first" in said.out
    assert "1 run can be used as before." in said.out
    assert "backup" in said.err
    assert "takeback verify" not in said.out + said.err
    assert as_json["damaged_runs"] == [hurt["run"]]
    takeback.done("undo", good["id"])
    assert not (world / "b").exists()


@pytest.mark.parametrize("where", [0, 6 * 4096])
def test_verify_of_a_journal_that_cannot_be_read_says_what_can_be_done(
    takeback: CommandLine, where: int
) -> None:
    takeback.write("a", "1")
    with open(os.path.join(os.environ["TAKEBACK_STORE"], "journal.db"), "r+b") as file:
        file.seek(where)
        file.write(os.urandom(16_384))

    said = takeback("verify")
    as_json = takeback("verify", "--json")

    assert (said.code, as_json.code, as_json.json["sound"]) == (6, 6, False)
    assert "backup" in said.out + said.err
    assert "takeback verify" not in said.out + said.err


def damage_the_first_intent() -> None:
    store = os.environ["TAKEBACK_STORE"]
    rewrite_records(store, "kind = 'intent' AND seq < 4", (), saying("write", "wrote"))


def test_verify_of_a_damaged_journal_names_it_and_exits_with_6(takeback: CommandLine) -> None:
    takeback.write("a", "1")
    takeback.write("b", "1")
    damage_the_first_intent()

    said = takeback("verify", "--json")

    assert said.code == 6
    assert said.json["findings"]
    assert takeback("verify").code == 6


def test_doctor_finds_this_machine_able(takeback: CommandLine, world: World) -> None:
    before = world.picture(directory_times=True)

    told = takeback.done("doctor", "--json").json
    said = takeback.done("doctor")

    assert told["able"] is True
    names = {one["name"] for one in told["findings"]}
    assert {
        "kernel",
        "openat2",
        "sqlite",
        "zstd",
        "git",
        "store",
        "here: RENAME_EXCHANGE",
        "protection",
    } <= names
    assert "\nReady" in said.out
    assert world.picture(directory_times=True) == before
    assert not os.path.exists(os.environ["TAKEBACK_STORE"])


def test_doctor_names_a_store_that_is_open_to_others(takeback: CommandLine) -> None:
    takeback.write("a", "1")
    os.chmod(os.environ["TAKEBACK_STORE"], 0o755)

    said = takeback("doctor")

    assert said.code == 1
    assert "open to others" in said.out
    assert "chmod 700" in said.out
    assert takeback("log").code == 3


@pytest.mark.parametrize("words", [["status"], ["run", "true"], ["doctor"]], ids=" ".join)
def test_a_directory_that_is_no_store_need_not_be_closed_to_others(
    takeback: CommandLine, world: World, words: list[str]
) -> None:
    (world / "mine").write_text("x")
    world.root.chmod(0o755)

    said = takeback(*words, TAKEBACK_STORE="./")

    told = said.out + said.err
    assert said.code not in (0, 4)
    assert "chmod 700" not in told
    assert re.search("is no takeback store|is not a takeback store", told)
    assert re.search("for the usual one", told)
    assert os.listdir(world.root) == ["mine"]


def test_doctor_survives_a_store_of_a_newer_format(takeback: CommandLine) -> None:
    takeback.write("a", "1")
    with open(os.path.join(os.environ["TAKEBACK_STORE"], "FORMAT"), "w") as file:
        file.write("takeback store 99\n")

    said, as_json = takeback("doctor"), takeback("doctor", "--json")
    assert said.code == as_json.code == as_json.error["exit_code"] == 1
    assert said.err.startswith("error: 1 thing must be fixed: ")
    assert "\nhint: " in said.err
    said = takeback("log", "--json")
    assert (said.code, said.error["type"]) == (6, "FormatTooNew")


def test_doctor_shows_who_is_at_work(takeback: CommandLine, world: World) -> None:
    script = (
        "import sys, takeback\nrun = takeback.open().run('long')\nprint(1, flush=True)\ninput()\nrun.close()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script], env=surroundings(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout and child.stdin
    child.stdout.readline()

    told = takeback.done("doctor", "--json").json

    child.communicate(b"\n")
    (work,) = [one["detail"] for one in told["findings"] if one["name"] == "at work"]
    assert work.startswith(f"process {child.pid} holds run")


def test_a_run_where_an_effect_is_meant_is_told(takeback: CommandLine) -> None:
    takeback.write("a", "1\n")
    takeback.done("run", "--name", "both", "--", "sh", "-c", "echo 2 > a")
    run = next(one["id"] for one in takeback.done("runs", "--json").json if one["name"] == "both")
    for words in (("forget", run), ("forget", run, "--dry-run")):
        said = takeback(*words)
        assert said.code == 2 and "is a run, not an effect" in said.err
    said = takeback("redo", "both")
    assert (
        said.code == 2
        and "`takeback log --run both` lists its effects" in said.err
        and "Did you mean" not in said.err
    )


def test_forget_explains_every_decision_and_a_dry_run_forgets_nothing(takeback: CommandLine) -> None:
    first = takeback.write("a", "1")
    takeback.write("b", "1")
    takeback.done("accept", first["id"])

    dry = takeback.done("forget", "--dry-run", "--json").json
    takeback.done("forget")

    assert len(dry["decisions"]) == 2
    assert all(one["reason"] for one in dry["decisions"])
    assert takeback.effect(first["id"])["forgotten"] is False
    assert "counts as accepted after 30 days" in takeback.done("forget", "--dry-run").out


def test_first_day_5_giving_up_a_way_back_is_said(takeback: CommandLine, world: World) -> None:
    """`repro/retention_default.sh`: four commands in a store with room for two."""
    takeback.write("seed", "x")
    settings = {"accepted_seconds": 0, "store_bytes": 20_000_000, "grace_seconds": 0}
    Path(os.environ["TAKEBACK_STORE"], "settings.json").write_text(json.dumps(settings))
    gone: list[str] = []
    for n, quiet in enumerate([(), (), (), ("-q",)]):
        (world / f"data{n}").write_bytes(os.urandom(9_000_000))
        said = takeback.done(*quiet, "run", "--", "rm", f"data{n}")
        now = [one["id"] for one in takeback.done("log", "--json").json if one["forgotten"]]
        fresh = [one for one in now if one not in gone]
        gone = now
        if quiet:
            assert fresh and said.err == ""
            told = takeback.done("status", "--json").json
            assert set(fresh) <= set(told["attention"])
            assert [one["effect"] for one in told["given_up"]] == fresh
            assert "was given up" in takeback.done("status").out
        elif fresh:
            assert all(one[:8] in said.err for one in fresh) and "in the settings moves the limit" in said.err
            assert takeback.done("status", "--json").json["given_up"] == []
    assert len(gone) >= 3


def test_status_tells_what_goes_next_and_what_is_pinned(takeback: CommandLine) -> None:
    first, second = takeback.write("a", "1"), takeback.write("b", "1")
    takeback.done("accept", first["id"], second["id"])
    assert takeback.done("status", "--json").json["goes_next"]["effect"] == first["id"]

    takeback.done("pin", first["id"])

    told = takeback.done("status", "--json").json
    assert (told["effects"]["pinned"], told["goes_next"]["effect"]) == (1, second["id"])
    assert f"next to go: {second['id'][:8]}" in takeback.done("status").out
    assert takeback("forget", first["id"]).code == 3
    said = takeback.done("unpin", first["id"], second["id"]).out.splitlines()
    assert said[0].startswith(f"Unpinned {first['id'][:8]}")
    assert said[1].startswith(f"Nothing to unpin: {second['id'][:8]}") and said[1].endswith("is not pinned.")
    takeback.done("forget", first["id"])


@pytest.mark.parametrize(
    ("words", "now"),
    [
        (("keep", "@"), "takeback accept ID"),
        (("keep",), "takeback accept ID"),
        (("keep", "--drop", "@"), "takeback accept ID"),
        (("run", "--on-failure", "keep", "--", "touch", "made"), "`leave` leaves"),
    ],
)
def test_the_old_word_says_which_one_is_meant_and_does_nothing(
    takeback: CommandLine, world: World, words: tuple[str, ...], now: str
) -> None:
    takeback.write("a", "1")
    before = takeback.done("log", "--json").json
    said = takeback(*words)
    assert said.code == 2 and "renamed" in said.err and now in said.err
    assert takeback.done("log", "--json").json == before and not (world / "made").exists()


def test_the_old_setting_says_which_one_is_meant(takeback: CommandLine) -> None:
    takeback.write("a", "1")
    Path(takeback.done("status", "--json").json["store"], "settings.json").write_text('{"kept_seconds": 5}')
    said = takeback("log")
    assert said.code == 2 and "'kept_seconds', which was renamed" in said.err
    assert "It is called 'accepted_seconds' now." in said.err


def test_what_was_forgotten_by_name_cannot_be_undone(takeback: CommandLine) -> None:
    effect = takeback.write("a", "1")

    assert takeback.done("forget", effect["id"]).out.splitlines()[-2] == "Forgot 1 effect."
    said = takeback("undo", effect["id"], "--json")

    assert (said.code, said.json["error"]["type"]) == (3, "Forgotten")
    assert takeback("forget", effect["id"]).code == 3
    assert "(forgotten)" in takeback.done("log").out


def test_sweep_frees_what_nothing_needs_and_keeps_the_rest(takeback: CommandLine, world: World) -> None:
    takeback.write("a", os.urandom(100_000))
    gone = takeback.write("a", os.urandom(100_000))
    kept = takeback.write("b", os.urandom(1000))
    takeback.done("forget", gone["id"])

    swept = takeback.done("sweep", "--grace", "0", "--json").json

    assert swept["freed"] > 50_000
    takeback.done("undo", kept["id"])
    takeback.done("verify", "--read-data")
    assert takeback("sweep", "--grace", "-1").code == 2


# The command gets a signal at the very moment at which it changes the world.
HURRIED = """
import os, sys
from takeback.adapters.file.adapter import FileAdapter
from takeback.frontends.cli.answer import answer
apply = FileAdapter.apply
def hurried(self, effect):
    os.kill(os.getpid(), int(sys.argv[1]))
    return apply(self, effect)
FileAdapter.apply = hurried
sys.exit(answer(sys.argv[2:]))
"""


def hurry(world: World, number: signal.Signals, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HURRIED, str(int(number)), *words], cwd=world.root, env=surroundings(),
        input="2", capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_waits_for_the_effect_in_hand_and_leaves_the_run_at_a_checkpoint(
    takeback: CommandLine, world: World, number: signal.Signals
) -> None:
    takeback.write("a", "1")

    done = hurry(world, number, "write", "a")

    assert done.returncode == 128 + number
    assert (world / "a").read_text() == "2"
    assert done.stderr == f"Interrupted; the change was made: {takeback.effect('@')['id'][:8]}.\n"
    assert [run["state"] for run in takeback.done("runs", "--json").json] == ["suspended"]
    assert [point["automatic"] for point in takeback.done("checkpoints", "--json").json] == [True]
    assert takeback.write("b", "1")["run"] == takeback.effect("@~1")["run"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_undo_that_gets_a_signal_is_finished_and_told(
    takeback: CommandLine, world: World, number: signal.Signals
) -> None:
    first = takeback.write("a", "1")
    second = takeback.write("b", "1")

    done = hurry(world, number, "undo", first["id"], second["id"])

    assert done.returncode == 128 + number
    assert list(world.root.iterdir()) == []
    undos = [takeback.effect(one["id"])["undone_by"][:8] for one in (second, first)]
    assert done.stderr == f"Interrupted; the changes were made: {', '.join(undos)}.\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_check_looks_stops_the_change(
    takeback: CommandLine, world: World, number: signal.Signals
) -> None:
    takeback.write("a", "1")
    os.mkfifo(world / "started")
    os.mkfifo(world / "never")
    child = subprocess.Popen(
        [*COMMAND, "write", "a", "--check", "sh -c 'echo > started; cat never'"], cwd=world.root,
        env=surroundings(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdin
    child.stdin.write("2")
    child.stdin.close()
    with open(world / "started") as waiting:
        waiting.read()

    child.send_signal(number)

    assert child.wait(30) == 128 + number
    assert child.stderr
    assert child.stderr.read() == "Interrupted; nothing was changed.\n"
    child.stderr.close()
    assert (world / "a").read_text() == "1"
    takeback.done("write", "a", input="3")
