"""What others change while a command runs in place is told apart, where the kernel tells who it was."""

import os
import subprocess
import sys
import time

import pytest

import takeback
from takeback.adapters.watch.feed import Authors, by_others
from takeback.adapters.watch.processes import open_lineage
from takeback.model.change import Change
from takeback.model.effect import Effect, State
from takeback.model.remedy import Target
from takeback.runs.watch_authors import Telling
from takeback.storage.protocols import Query

LIMIT = 240
ABSENT, FILE, DIR = {"type": "absent"}, {"type": "file", "digest": "1"}, {"type": "dir", "shell": True}
ROOT = "file:///root"
OURS, THEIRS = 10, 20


def told(*who: tuple[str, int]) -> Authors:
    authors = Authors()
    for path, process in who:
        above, _, name = path.rpartition("/")
        authors.add(above, name, process)
    return authors


def others(authors: Authors, *targets: tuple[str, dict[str, object], dict[str, object]]) -> set[str]:
    made = [Target(f"{ROOT}/{path}", before, after) for path, before, after in targets]
    return {one.removeprefix(f"{ROOT}/") for one in by_others(ROOT, made, authors, {OURS})}


def test_what_only_others_changed_is_theirs():
    authors = told(("a", OURS), ("d/b", THEIRS), ("both", OURS), ("both", THEIRS))

    assert others(authors, ("a", FILE, ABSENT), ("d/b", ABSENT, FILE), ("both", FILE, FILE)) == {"d/b"}


def test_what_nobody_told_of_is_the_commands():
    assert others(told(("b", THEIRS)), ("a", FILE, ABSENT), ("b", FILE, FILE)) == {"b"}
    assert others(told(("a", 0)), ("a", FILE, ABSENT)) == set()


def test_what_went_with_a_directory_went_by_whoever_removed_it():
    gone = ("d", DIR, ABSENT), ("d/e", DIR, ABSENT), ("d/e/f", FILE, ABSENT)

    assert others(told(("d", THEIRS)), *gone) == {"d", "d/e", "d/e/f"}
    assert others(told(("d", OURS), ("d", THEIRS)), *gone) == set()


def test_where_the_command_changed_something_in_a_directory_that_is_gone_nothing_of_it_is_others():
    authors = told(("d", THEIRS), ("b", THEIRS))
    authors.somewhere.add(OURS)

    assert others(authors, ("b", FILE, FILE), ("d", DIR, ABSENT), ("d/f", FILE, ABSENT)) == {"b"}


def test_a_feed_that_lost_something_tells_nothing():
    authors = told(("b", THEIRS))
    authors.whole = False

    assert others(authors, ("b", FILE, FILE)) == set()


class Known:
    """A lineage: who started whom."""

    def __init__(self, **families: set[int]) -> None:
        self.families = {int(name[1:]): found for name, found in families.items()}
        self.lost = False

    def family(self, of):
        return None if self.lost else {of} | self.families.get(of, set())


def test_that_a_feed_lost_something_is_known():
    book, other = told(("b", THEIRS)), told(("b", THEIRS))
    lineage = Known()
    telling = Telling(OURS, lineage, {ROOT: book})

    assert not telling.is_lost({ROOT: book})
    assert telling.is_lost({ROOT: other}) and telling.is_lost({ROOT: None})
    lineage.lost = True
    assert telling.is_lost({ROOT: book})
    lineage.lost = False
    book.whole = False
    assert telling.is_lost({ROOT: book})


def test_what_another_watched_command_changed_is_left_to_its_own_effect():
    book = told(("a", OURS), ("b", 31), ("c", THEIRS), ("d", OURS), ("d", 31), ("e", 31), ("e", THEIRS))
    telling = Telling(OURS, Known(p30={31}), {ROOT: book})
    change = Change("tree", "watch", ROOT, "other", {"process": {"pid": 30}, "waits": "command"})
    beside = Effect("other", "run", "", 1, State.PROPOSED, change)
    targets = [Target(f"{ROOT}/{name}", FILE, {**FILE, "digest": "2"}) for name in "abcdef"]

    found = telling.told(targets, {ROOT: book}, [beside])

    assert found.left == {f"{ROOT}/b": "other", f"{ROOT}/e": "other"}
    assert found.others == {f"{ROOT}/c": THEIRS}
    assert found.own == {f"{ROOT}/a"}
    assert set(telling.told(targets, {ROOT: book}).others) == {f"{ROOT}/{name}" for name in "bce"}


def test_two_commands_at_once_each_have_an_effect_of_their_own_paths(own_filesystem, tmp_path):
    """Each path is recorded once, whoever began and ended first; where nobody can tell, that is said."""
    tree, store = own_filesystem / "tree", tmp_path / "store"
    tree.mkdir()
    for name in ("one", "two"):
        (tree / name).write_text("before\n")
    env = {**os.environ, "TAKEBACK_STORE": str(store), "HOME": str(tmp_path / "home")}
    started = []

    def start(own: str):
        script = (
            f"sh -c 'echo {own} >> {own}'; mkdir d-{own}; touch ../{own}-ready; "
            "while [ ! -e ../both ]; do sleep 0.1; done; "
            f"(env -i sh -c 'echo x > d-{own}/x'); touch ../{own}-done; "
            f"while [ ! -e ../{own}-go ]; do sleep 0.1; done; (echo end > {own}-end)"
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "takeback", "run", "--in-place", "--", "sh", "-c", script],
            cwd=tree, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        wait_for(f"{own}-ready")
        return process

    def wait_for(name: str):
        until = time.monotonic() + LIMIT
        while not (own_filesystem / name).exists():
            assert time.monotonic() < until and all(process.poll() is None for process in started)
            os.sched_yield()

    try:
        one, two = start("one"), start("two")
        (own_filesystem / "both").touch()
        wait_for("one-done")
        wait_for("two-done")
        (own_filesystem / "two-go").touch()
        _, of_two = two.communicate(timeout=LIMIT)
        (own_filesystem / "one-go").touch()
        _, of_one = one.communicate(timeout=LIMIT)
    finally:
        for process in started:
            process.kill()
            process.communicate()

    assert (one.returncode, two.returncode) == (0, 0)
    with takeback.open(store) as tb:
        effects = list(tb.store.journal.effects(Query(states=(State.DONE,))))
        listed = [os.path.basename(target.resource) for effect in effects for target in effect.targets]
    everything = ["d-one", "d-two", "one", "one-end", "two", "two-end", "x", "x"]
    assert sorted(name for name in listed if name != "tree") == everything
    lineage = open_lineage()
    if lineage is None:
        assert "is unknown" in of_two
        return
    lineage.close()
    assert len(effects) == 2 and not effects[0].change.facts.others, effects
    for effect in effects:
        own = "one" if "> one-end" in effect.change.args["argv"][-1] else "two"
        assert all(own in target.resource.removeprefix(f"file://{tree}") for target in effect.targets)
    assert "another command that is watched here" in of_two
    assert "is unknown" not in of_two + of_one


def test_the_lineage_knows_also_those_that_have_ended():
    lineage = open_lineage()
    process = subprocess.Popen(["sh", "-c", "(setsid sh -c 'echo $$; true'); true"], stdout=subprocess.PIPE)
    try:
        printed, _ = process.communicate(timeout=LIMIT)
        if lineage is not None:  # not in a container
            family = lineage.descendants(process.pid)
            assert family is None or {process.pid, int(printed)} <= family
            assert family is None or os.getpid() not in family
    finally:
        process.kill()
        process.wait()
        if lineage is not None:
            lineage.close()


@pytest.fixture
def own_filesystem(tmp_path):
    """On which nobody else is at work, so that no queue overflows."""
    place = tmp_path / "own"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_failing_command_takes_back_only_what_was_its_own(own_filesystem, tmp_path):
    tree, store = own_filesystem / "tree", tmp_path / "store"
    (tree / "dir").mkdir(parents=True)
    for name in ("mine", "theirs", "both"):
        (tree / name).write_text("before\n")
    script = (
        "echo mine >> mine; echo mine >> both; sh -c 'echo x > dir/made'; touch ../ready; "
        "while [ ! -e ../go ]; do sleep 0.1; done; exit 3"
    )
    env = {**os.environ, "TAKEBACK_STORE": str(store), "HOME": str(tmp_path / "home")}
    process = subprocess.Popen(
        [sys.executable, "-m", "takeback", "run", "--in-place", "--", "sh", "-c", script],
        cwd=tree, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        until = time.monotonic() + LIMIT
        while not (own_filesystem / "ready").exists():
            assert time.monotonic() < until and process.poll() is None
            os.sched_yield()
        for name in ("theirs", "both"):
            with open(tree / name, "a") as file:
                file.write("theirs\n")
        (tree / "dir" / "new").write_text("theirs\n")
        (own_filesystem / "go").touch()
        _, errors = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        process.wait()

    assert process.returncode == 3
    assert (tree / "mine").read_text() == (tree / "both").read_text() == "before\n"
    assert not (tree / "dir" / "made").exists()
    lineage = open_lineage()
    if lineage is None:  # then nobody knows, and all of it counts as the command's
        assert not (tree / "dir" / "new").exists()
        return
    lineage.close()
    assert f"(process {os.getpid()}) changed" in errors
    assert (tree / "theirs").read_text() == "before\ntheirs\n" and (tree / "dir" / "new").exists()
    plain = subprocess.run(
        [sys.executable, "-m", "takeback", "undo"],
        cwd=tree, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert plain.returncode == 3 and "nothing to undo" in plain.stderr
    assert (tree / "theirs").read_text() == "before\ntheirs\n"
    with takeback.open(store) as tb:
        (theirs,) = [
            one for one in tb.store.journal.effects(Query()) if one.change.summary.startswith("others")
        ]
        with pytest.raises(takeback.Refused, match="nothing left to undo"):
            tb.undo(theirs.run)
        tb.undo(theirs)
    assert (tree / "theirs").read_text() == "before\n" and not (tree / "dir" / "new").exists()
