"""`takeback run --in-place`: as a person would use it, in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import takeback

LIMIT = 240


class Desk:
    def __init__(self, directory: Path) -> None:
        self.tree = directory / "tree"
        (self.tree / "dir").mkdir(parents=True)
        (self.tree / "dir" / "file").write_text("before")
        self.store = directory / "store"
        self.env = {**os.environ, "TAKEBACK_STORE": str(self.store), "HOME": str(directory / "home")}
        self.env.pop("TAKEBACK_AGENT", None)
        self.started: list[subprocess.Popen[bytes]] = []

    def takeback(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "takeback", *words],
            cwd=cwd or self.tree, env=self.env, capture_output=True, text=True, check=False, timeout=LIMIT,
        )  # fmt: skip

    def in_place(self, script: str, *options: str) -> subprocess.CompletedProcess[str]:
        return self.takeback("run", "--in-place", *options, "--", "sh", "-c", script)

    def start(self, script: str, *options: str) -> subprocess.Popen[bytes]:
        words = ["run", "--in-place", *options, "--", "sh", "-c", script]
        process = subprocess.Popen(
            [sys.executable, "-m", "takeback", *words],
            cwd=self.tree, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(process)
        return process

    def world(self) -> dict[str, str]:
        return {
            os.path.relpath(os.path.join(directory, name), self.tree): Path(directory, name).read_text()
            for directory, _, names in os.walk(self.tree)
            for name in names
        }

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path)
    try:
        yield made
    finally:
        made.close()


def until(what):
    limit = time.monotonic() + LIMIT
    while not what():
        assert time.monotonic() < limit
        os.sched_yield()


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_command_changes_the_files_themselves_and_undo_takes_it_back(desk):
    before = desk.world()
    ran = desk.in_place("echo out; echo err >&2; rm -r dir; echo new > new")

    assert (ran.returncode, ran.stdout) == (0, "out\n")
    assert "err\n" in ran.stderr and "1 added, 2 deleted" in ran.stderr
    assert desk.world() == {"new": "new\n"}
    assert desk.takeback("undo").returncode == 0
    assert desk.world() == before


def test_a_failure_is_taken_back_and_its_exit_code_handed_on(desk):
    before = desk.world()
    ran = desk.in_place("rm -r dir; exit 7")

    assert ran.returncode == 7
    assert "taken back" in ran.stderr
    assert desk.world() == before


def test_a_failure_may_be_kept(desk):
    ran = desk.in_place("rm -r dir; exit 7", "--on-failure", "leave")

    assert ran.returncode == 7
    assert "though it failed" in ran.stderr
    assert desk.world() == {}


def test_a_command_that_does_not_exist_is_told_as_by_a_shell(desk):
    ran = desk.takeback("run", "--in-place", "--", "no-such-program")
    assert (ran.returncode, "command not found" in ran.stderr) == (127, True)

    (desk.tree / "plain").write_text("no program")
    ran = desk.takeback("run", "--in-place", "--", "./plain")
    assert ran.returncode == 126


@pytest.mark.parametrize("option", ["--hold", "--dry-run", "--no-network"])
def test_what_only_the_sandbox_can_do_is_refused_before_anything_runs(desk, option):
    ran = desk.in_place("echo new > new", option)

    assert ran.returncode == 125 and "sandbox" in ran.stderr
    assert "new" not in desk.world() and not desk.store.exists()


def test_a_dangerous_root_is_refused_without_a_byte_written(desk):
    for root in ("/", "/tmp", str(desk.tree.parent)):
        desk.env["HOME"] = str(desk.tree.parent)
        ran = desk.in_place("echo new > new", "--root", root)
        assert ran.returncode == 125 and "not watched" in ran.stderr

    assert "new" not in desk.world() and not desk.store.exists()


def test_several_roots_are_one_effect(desk):
    other = desk.tree.parent / "other"
    other.mkdir()
    ran = desk.in_place(f"echo 1 > one; echo 2 > {other}/two", "--root", ".", "--root", str(other))
    assert "2 added" in ran.stderr

    desk.takeback("undo")

    assert list(other.iterdir()) == [] and "one" not in desk.world()


def test_as_json_the_output_is_part_of_the_answer(desk):
    told = json.loads(desk.in_place("echo out; echo x > new", "--json").stdout)

    assert (told["exit_code"], told["stdout"]) == (0, "out\n")
    assert [change["kind"] for change in told["changes"]] == ["added"]


def test_as_json_what_is_printed_through_the_name_of_the_stream_is_there_too(desk):
    script = "echo one; echo two > /dev/stdout; echo three; echo four > /dev/stderr"
    told = json.loads(desk.in_place(script, "--json").stdout)

    assert (told["stdout"], told["stderr"]) == ("one\ntwo\nthree\n", "four\n")


def test_as_json_more_than_a_pipe_holds_is_there(desk):
    told = json.loads(desk.in_place("head -c 1000000 /dev/zero | tr '\\0' x", "--json").stdout)

    assert told["stdout"] == "x" * 1_000_000


def test_standard_input_reaches_the_command(desk):
    ran = subprocess.run(
        [sys.executable, "-m", "takeback", "run", "--in-place", "--", "sh", "-c", "cat > typed"],
        cwd=desk.tree, env=desk.env, input=b"typed in", capture_output=True, check=False, timeout=LIMIT,
    )  # fmt: skip

    assert ran.returncode == 0
    assert desk.world()["typed"] == "typed in"


def test_a_command_over_its_time_is_ended_and_taken_back(desk):
    before = desk.world()
    ran = desk.in_place("echo new > new; exec sleep 1000", "--timeout", "2")

    assert ran.returncode == 124 and "too long" in ran.stderr
    assert desk.world() == before


@pytest.mark.parametrize(
    ("stubborn", "seconds"),
    [("", "2"), pytest.param("trap '' TERM; ", "8", marks=pytest.mark.slow)],
    ids=["obedient", "stubborn"],
)
def test_over_its_time_all_that_it_started_is_ended_too(desk, stubborn, seconds):
    before, file = desk.world(), desk.tree.parent / "pid"
    script = (
        f"{stubborn}setsid sh -c 'echo $$ > ../pid.new; mv ../pid.new ../pid; while :; do sleep 1; done' "
        ">/dev/null 2>&1 & echo x > new; sleep 1000; echo late > late"
    )
    ran = desk.in_place(script, "--timeout", seconds)

    assert ran.returncode == 124 and "still running" not in ran.stderr
    assert desk.world() == before
    if file.exists():  # unless its time was over before it had begun
        pid = int(file.read_text())
        try:
            assert ended(pid)
        finally:
            if not ended(pid):
                os.kill(pid, signal.SIGKILL)


def test_asked_to_end_it_ends_all_that_it_started(desk):
    before = desk.world()
    process = desk.start("sleep 1000 & echo $! > pid.new; mv pid.new ../pid; sleep 1000; echo late > late")
    until((desk.tree.parent / "pid").exists)
    pid = int((desk.tree.parent / "pid").read_text())
    try:
        process.terminate()
        _, errors = process.communicate(timeout=LIMIT)

        assert process.returncode == 143 and b"still running" not in errors
        assert ended(pid) and desk.world() == before
    finally:
        if not ended(pid):
            os.kill(pid, signal.SIGKILL)


def test_what_outlives_the_command_is_named(desk):
    ran = desk.in_place("sleep 1000 > /dev/null 2>&1 & echo $! > pid")
    try:
        assert ran.returncode == 0
        assert "(process" in ran.stderr and "still running" in ran.stderr
    finally:
        os.kill(int((desk.tree / "pid").read_text()), signal.SIGKILL)


def test_a_signal_is_passed_on_to_the_command_and_what_it_did_is_settled(desk):
    before = desk.world()
    process = desk.start("trap 'echo late > late; exit 9' TERM; echo > ready; while :; do sleep 0.1; done")
    until((desk.tree / "ready").exists)
    process.terminate()
    _, errors = process.communicate(timeout=LIMIT)

    assert process.returncode == 9
    assert b"2 added" in errors  # the handler ran
    assert desk.world() == before


def test_when_takeback_is_killed_the_command_goes_on_and_is_named_until_it_ends(desk):
    before = desk.world()
    process = desk.start(
        "echo $$ > pid.new; mv pid.new pid; rm -r dir; while [ ! -e ../stop ]; do sleep 0.1; done; echo late > late"
    )
    until((desk.tree / "pid").exists)
    pid = int((desk.tree / "pid").read_text())
    try:
        process.kill()
        process.wait(timeout=LIMIT)

        recovered = desk.takeback("recover").stdout
        assert "Recovered 0 effects" in recovered and "1 still open" in recovered
        told = recovered + desk.takeback("log").stderr
        assert f"process {pid}" in told and "still running" in told
        assert "proposed" in desk.takeback("log").stdout
        assert desk.takeback("status").returncode == 0
        forgotten = desk.takeback("forget", "@")
        assert forgotten.returncode == 3
        assert "held" not in forgotten.stderr and "`takeback recover`" in forgotten.stderr
    finally:
        (desk.tree.parent / "stop").touch()
        until(lambda: ended(pid))
    desk.takeback("recover")

    # Whoever changed what since its watcher died: it is recorded and stays, until someone takes it back.
    assert desk.world()["late"] == "late\n"
    assert "proposed" not in desk.takeback("log").stdout
    assert desk.takeback("undo").returncode == 0
    assert desk.world() == before


def test_what_others_recorded_after_takeback_was_killed_is_not_recorded_again(desk):
    script = "echo one > one; echo $$ > ../pid.new; mv ../pid.new ../pid; while [ ! -e ../stop ]; do sleep 0.1; done"
    process, file = desk.start(script), desk.tree.parent / "pid"
    until(file.exists)
    pid = int(file.read_text())
    try:
        process.kill()
        process.wait(timeout=LIMIT)
        assert desk.in_place("echo two > two").returncode == 0
    finally:
        (desk.tree.parent / "stop").touch()
        until(lambda: ended(pid))
    assert "Recovered 1 effect" in desk.takeback("recover").stdout

    with takeback.open(desk.store) as tb:
        listed = [sorted(os.path.basename(target.resource) for target in one.targets) for one in tb.effects()]
    assert sorted(one for one in listed if one) == [["one"], ["two"]]


def test_killed_before_the_command_was_let_go_nothing_has_run(desk):
    """The process is there before the proposal; without a word it ends."""
    script = (
        "import os, signal, sys; import takeback.frontends.cli.programs.process as gate; "
        "gate.Gate.run = lambda self, timeout=0: os.kill(os.getpid(), signal.SIGKILL); "
        "from takeback.frontends.cli.main import main; "
        "sys.argv = ['takeback', 'run', '--in-place', '--', 'touch', 'new']; main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=desk.tree,
        env=desk.env,
        capture_output=True,
        check=False,
        timeout=LIMIT,
    )
    assert ran.returncode == -signal.SIGKILL
    before = desk.world()
    until(lambda: "still running" not in desk.takeback("recover").stdout)

    assert "new" not in before and desk.world() == before
    assert "proposed" not in desk.takeback("log").stdout


def test_what_another_effect_wrote_meanwhile_stays_and_is_not_told_as_taken_back(desk):
    (desk.tree / "both").write_text("base\n")
    process = desk.start(
        "echo A >> both; echo x > ours; : > ready; while [ ! -e ../stop ]; do sleep 0.1; done; exit 1"
    )
    until((desk.tree / "ready").exists)
    try:
        with takeback.open(desk.store) as tb, tb.run("another") as run:
            run.write(desk.tree / "both", "theirs\n")
    finally:
        (desk.tree.parent / "stop").touch()
        _, errors = process.communicate(timeout=LIMIT)

    told = errors.decode()
    assert process.returncode == 1
    assert (desk.tree / "both").read_text() == "theirs\n"
    assert not (desk.tree / "ours").exists()
    assert "+ ours\n" in told
    assert "not taken back: both: was changed by effect" in told and "~ both" not in told, told


@pytest.mark.parametrize("written", [True, False])
def test_a_failure_beside_other_effects_does_not_say_that_nothing_was_changed(desk, written):
    process = desk.start(": > ../ready; while [ ! -e ../stop ]; do sleep 0.1; done; exit 1")
    try:
        until((desk.tree.parent / "ready").exists)
        removed = desk.takeback("rm", "dir/file") if written else None
    finally:
        (desk.tree.parent / "stop").touch()
    _, told = process.communicate(timeout=LIMIT)

    assert removed is None or removed.returncode == 0
    assert process.returncode == 1 and (b"changed nothing" in told) != written
    assert (b"recorded with other effects (dir/file)" in told) == written


@pytest.mark.parametrize("end", ["exit 1", "exit 0"])
@pytest.mark.parametrize(
    "act",
    ["mv tree away; ln -s away tree", "rm -r tree; echo file > tree", "rm -r tree"],
    ids=["link", "file", "gone"],
)
def test_the_root_itself_may_become_something_else(desk, act, end):
    before = desk.world()
    ran = desk.in_place(f"echo new > new; cd ..; {act}; {end}", "--root", str(desk.tree))
    assert ran.returncode == int(end[-1])

    if end == "exit 0":
        assert desk.takeback("undo", cwd=desk.tree.parent).returncode == 0

    assert not desk.tree.is_symlink() and desk.world() == before
    assert "every effect is settled" in desk.takeback("recover", cwd=desk.tree.parent).stdout


@pytest.mark.parametrize("when", ["during", "after"])
def test_a_link_on_the_way_to_the_root_is_named_and_never_followed(desk, when):
    """Undo refuses until the directory is back; then everything is."""
    home = desk.tree.parent
    before, inside = desk.world(), home / "inside"
    inside.mkdir()
    os.rename(desk.tree, inside / "tree")
    desk.tree = inside / "tree"
    ran = desk.in_place(
        f"rm dir/file; echo new > new; {'cd ../..; mv inside away; ln -s away inside' if when == 'during' else ''}"
    )
    assert ran.returncode == 0
    if when == "after":
        os.rename(inside, home / "away")
        inside.symlink_to("away")

    for option in ((), ("--skip-conflicts",), ("--force",)):
        refused = desk.takeback("undo", *option, cwd=home)
        assert refused.returncode == 3 and desk.tree.name in refused.stderr, refused
        assert "is now a symbolic link" in refused.stderr
    assert (home / "away" / "tree" / "new").read_text() == "new\n"
    assert "every effect is settled" in desk.takeback("recover", cwd=home).stdout

    inside.unlink()
    if when == "after":
        os.rename(home / "away", inside)
    else:
        inside.mkdir()
    assert desk.takeback("undo", cwd=home).returncode == 0
    assert desk.world() == before


@pytest.mark.parametrize("end", ["exit 1", "exit 0"])
def test_what_came_from_where_nothing_was_captured_is_never_taken_away(desk, end):
    (desk.tree / ".gitignore").write_text("node_modules\n")
    (desk.tree / "node_modules").mkdir()
    (desk.tree / "node_modules" / "only").write_text("copy")
    (desk.tree.parent / "elsewhere").write_text("mine")

    told = desk.in_place(
        f"mv node_modules shown; mv ../elsewhere here; mv dir/file dir/moved; echo new > new; {end}"
    )
    if end == "exit 0":
        told = desk.takeback("undo")

    assert desk.world() == {
        ".gitignore": "node_modules\n", "shown/only": "copy", "here": "mine", "dir/file": "before",
    }  # fmt: skip
    assert "older than the command" in told.stdout + told.stderr, told


@pytest.mark.parametrize("end", ["exit 1", "exit 0"])
def test_what_was_moved_over_a_file_gives_way_to_it_and_is_named_since_only_the_store_has_it_then(desk, end):
    (desk.tree.parent / "elsewhere").write_text("only copy")
    told = desk.in_place(f"echo made > ../made; mv ../elsewhere dir/file; mv ../made made; {end}")
    assert "dir/file was replaced by a file older than the command" in told.stderr
    assert "made was" not in told.stderr
    if end == "exit 0":
        assert desk.takeback("undo").returncode == 0
    assert desk.world() == {"dir/file": "before"}

    again = ("redo",) if end == "exit 0" else ("apply", told.stderr.split("takeback apply ")[1][:8])
    assert desk.takeback(*again).returncode == 0
    assert desk.world() == {"dir/file": "only copy", "made": "made\n"}


def test_what_came_with_all_its_names_from_elsewhere_stays_too(desk):
    (desk.tree.parent / "pair").mkdir()
    (desk.tree.parent / "pair" / "one").write_text("copy")
    os.link(desk.tree.parent / "pair" / "one", desk.tree.parent / "pair" / "two")
    (desk.tree.parent / "single").write_text("linked")

    desk.in_place("mv ../pair .; ln ../single linked; exit 1")

    assert desk.world() == {"dir/file": "before", "pair/one": "copy", "pair/two": "copy"}


@pytest.fixture
def disk(desk):
    """A small one under the store."""
    place = desk.tree.parent / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", place], check=True)
    desk.env["TAKEBACK_STORE"] = str(place / "store")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.root
@pytest.mark.parametrize("left", ["0", "20K", "400K"])
def test_what_cannot_be_recorded_for_want_of_room_is_recorded_when_there_is_some(desk, disk, left):
    (desk.tree / "large").write_bytes(os.urandom(300_000))
    before = {path: path.read_bytes() for path in desk.tree.rglob("*") if path.is_file()}
    script = (
        "for i in large 2 3; do head -c 300000 /dev/urandom > $i; done; rm dir/file; "
        f"head -c 90M /dev/zero > {disk}/fill 2>/dev/null; truncate -s -{left} {disk}/fill"
    )
    ran = desk.in_place(script)

    assert ran.returncode == 125 and "ended with exit code 0, and what it changed stays" in ran.stderr
    assert ran.stderr.count("error: ") == ran.stderr.count("hint: ") == 1 and "readonly" not in ran.stderr
    assert not (desk.tree / "dir" / "file").exists()
    refused = desk.takeback("undo")
    assert refused.returncode == 5 and refused.stderr.count("hint: ") == 1

    (disk / "fill").unlink()
    assert "Recovered 1 effect" in desk.takeback("recover").stdout
    assert desk.takeback("undo").returncode == 0
    assert {path: path.read_bytes() for path in desk.tree.rglob("*") if path.is_file()} == before


@pytest.mark.root
@pytest.mark.parametrize("spare", [0, 60, 120])
def test_a_baseline_for_which_there_is_no_room_is_told_and_nothing_runs(desk, disk, spare):
    assert desk.in_place("true").returncode == 0
    (disk / "store" / "settings.json").write_text('{"reserve_bytes": 0}')
    room = os.statvfs(disk)
    size = room.f_bavail * room.f_frsize - spare * 1024
    for number, start in enumerate(range(0, size, 400_000)):
        (desk.tree / str(number)).write_bytes(os.urandom(min(400_000, size - start)))

    ran = desk.in_place("touch ran")

    begun = (desk.tree / "ran").exists()
    assert ran.returncode == 125 and ran.stderr.count("error: ") == ran.stderr.count("hint: ") == 1, ran
    assert ("Nothing was " in ran.stderr, "has ended with exit code" in ran.stderr) == (not begun, begun), ran
