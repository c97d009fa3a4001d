"""`takeback run` of an ordinary user, who may close his own files to himself, and open them again inside."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.scenes import USER, Home, make_home
from tests.world import World

pytestmark = [pytest.mark.able("user namespaces"), pytest.mark.root]

LIMIT = 240


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    made = make_home()
    try:
        yield made
    finally:
        shutil.rmtree(made.directory)


class Person:
    """Someone with a home of his own."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.directory = Path(tempfile.mkdtemp(dir=home.directory))
        self.work = self.directory / "work"
        self.work.mkdir()
        for path in (self.directory, self.work):
            os.chown(path, USER, USER)

    def does(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *words],
            cwd=self.work, env={"HOME": str(self.directory), "PATH": os.environ["PATH"]}, timeout=LIMIT, check=False,
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip

    def takeback(self, *words: str) -> "subprocess.CompletedProcess[str]":
        code = (
            f"import sys; sys.path[:0] = [{str(self.home.library)!r}]; "
            "from takeback.frontends.cli.main import main; main()"
        )
        return self.does(self.home.python, "-I", "-B", "-c", code, *words)


@pytest.fixture
def person(home: Home) -> Person:
    return Person(home)


def test_a_command_is_merged_and_taken_back(person: Person) -> None:
    (person.work / "a").write_text("old")
    os.chown(person.work / "a", USER, USER)
    done = person.takeback("run", "--", "sh", "-c", "echo new > a; mkdir d; echo x > d/y")
    assert done.returncode == 0, done
    assert (person.work / "d" / "y").read_text() == "x\n"
    assert (person.work / "d" / "y").stat().st_uid == USER
    assert person.takeback("undo").returncode == 0
    assert os.listdir(person.work) == ["a"]
    assert (person.work / "a").read_text() == "old"


def test_what_he_cannot_read_is_refused_and_not_dropped_in_silence(person: Person) -> None:
    person.does("sh", "-c", "printf secret > z; mkdir cl; printf inside > cl/i; chmod 000 z cl")
    tries = ("rm -f z", "chmod 644 z; echo x >> z", "chmod 700 cl; rm -rf cl", "chmod 700 cl; echo x >> cl/i")
    for line in tries:
        said = person.takeback("run", "--", "sh", "-c", line)
        assert said.returncode == 125, (line, said)
        assert "so none was made" in said.stderr, (line, said)
        assert sorted(os.listdir(person.work)) == ["cl", "z"], line
    assert ((person.work / "z").read_text(), (person.work / "cl" / "i").read_text()) == ("secret", "inside")


def test_that_what_is_of_others_cannot_be_changed_inside_is_told_before_and_after(person: Person) -> None:
    """The kernel says "Value too large for defined data type" to whoever writes there."""
    theirs = person.work / "theirs"
    theirs.write_text("old\n")
    os.chown(theirs, USER + 1, USER)
    theirs.chmod(0o664)

    told = person.takeback("explain", "--", "make").stdout
    assert "files and directories of other users or groups" in told
    assert f"\n  theirs: belongs to user {USER + 1}, group {USER}" in told

    words = ("--", "sh", "-c", "echo new >> theirs")
    failed = person.takeback("run", *words)
    assert failed.returncode != 0
    assert f"theirs belongs to user {USER + 1}" in failed.stderr
    assert "Use `takeback run --in-place`" in failed.stderr
    answer = json.loads(person.takeback("run", "--json", *words).stdout)
    assert "run it in place" in answer["text"]
    assert theirs.read_text() == "old\n"

    assert person.takeback("run", "--in-place", *words).returncode == 0
    assert theirs.read_text() == "old\nnew\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "command",
    [
        "mkdir -m 000 new",
        "mkdir -p new/in/side; echo x > new/in/side/f; chmod 000 new/in/side new/in new",
        "echo 2 > old/f; rmdir old/e; mkdir old/n; chmod 000 old",
        "chmod 000 old/e; chmod 300 old",
    ],
)
def test_directories_closed_by_a_command_are_taken_back_and_brought_back(
    person: Person, command: str
) -> None:
    person.does("sh", "-c", "mkdir -p old/e; echo 1 > old/f")
    before = World(person.work).picture()
    done = person.takeback("run", "--", "sh", "-c", command)
    assert done.returncode == 0, done
    after = World(person.work).picture()
    assert after != before
    undone = person.takeback("undo")
    assert undone.returncode == 0, undone
    assert World(person.work).picture() == before
    redone = person.takeback("redo")
    assert redone.returncode == 0, redone
    assert World(person.work).picture() == after


def test_finding_19_own_directories_with_another_group_above_the_project_are_no_obstacle(
    person: Person,
) -> None:
    above, project = person.work / "above", person.work / "above" / "group" / "project"
    project.mkdir(parents=True)
    for path, group in ((above, USER + 1), (project.parent, USER + 1), (project, USER)):
        os.chown(path, USER, group)
    (project / "f").write_text("1\n")
    os.chown(project / "f", USER, USER)
    before = World(above).picture()
    person.work = project

    done = person.takeback("run", "--", "sh", "-c", "echo 2 > f; echo 3 > g; mkdir d")

    assert done.returncode == 0, done
    assert (project / "f").read_text() == "2\n"
    assert person.takeback("undo").returncode == 0
    assert World(above).picture() == before


@pytest.mark.needs("git")
def test_finding_19_a_local_clone_that_git_refuses_gets_a_hint_that_works(person: Person) -> None:
    made = person.does(
        "sh", "-c",
        "git init -q a && cd a && echo 1 > f && git add f && git -c user.email=a@b -c user.name=n commit -qm x",
    )  # fmt: skip
    assert made.returncode == 0, made
    failed = person.takeback("run", "--", "git", "clone", "-q", "a", "b")
    assert failed.returncode == 128, failed
    assert "git clone --no-hardlinks" in failed.stderr
    answer = json.loads(person.takeback("run", "--json", "--", "git", "clone", "-q", "a", "b").stdout)
    assert "git clone --no-hardlinks" in answer["text"]
    done = person.takeback("run", "--", "git", "clone", "-q", "--no-hardlinks", "a", "b")
    assert done.returncode == 0, done
    assert (person.work / "b" / "f").read_text() == "1\n"


def test_first_day_7b_places_that_takeback_made_read_only_are_named_when_the_command_fails(
    person: Person, tmp_path: Path
) -> None:
    """A filesystem that is mounted by itself, and is no directory: nothing can be laid over it."""
    place = person.directory / "single"
    place.touch()
    os.chown(place, USER, USER)
    source = tmp_path / "source"
    source.touch()
    os.chown(source, USER, USER)
    subprocess.run(["mount", "--bind", source, place], check=True)
    try:
        failed = person.takeback("run", "--", "sh", "-c", f"echo x > {place}")
        assert failed.returncode != 0, failed
        assert f'"Read-only file system": {place} cannot be written' in failed.stderr
        assert "takeback run --in-place" in failed.stderr
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("where", [(), ("--in-place",)], ids=["sandboxed", "in place"])
def test_what_was_dropped_is_applied_also_over_files_closed_to_their_owner(
    person: Person, where: tuple[str, ...]
) -> None:
    done = person.does("sh", "-c", "echo old > a; mkdir closed; echo x > closed/x; chmod 500 closed")
    assert done.returncode == 0, done
    line = "chmod 700 closed; echo new > a; echo y > closed/y; chmod 400 a; chmod 500 closed; exit 3"
    failed = person.takeback("run", *where, "--", "sh", "-c", line)
    assert failed.returncode == 3, failed
    assert (person.work / "a").read_text() == "old\n"
    made = person.takeback("apply", failed.stderr.split("takeback apply ")[1].split("`")[0])
    assert made.returncode == 0, made
    assert (person.work / "a").read_text() == "new\n"
    assert (person.work / "closed" / "y").read_text() == "y\n"
    assert ((person.work / "a").stat().st_mode & 0o777, (person.work / "a").stat().st_uid) == (0o400, USER)
    undone = person.takeback("undo")
    assert undone.returncode == 0, undone
    assert not (person.work / "closed" / "y").exists()


def test_fresh_eyes_20_an_unreadable_file_is_called_that(person: Person) -> None:
    person.does("sh", "-c", "echo hi > x")
    person.takeback("run", "-q", "--in-place", "--", "sh", "-c", "echo agent >> x; chmod 000 x")

    for option in ((), ("--force",), ("--skip-conflicts",), ("--merge",)):
        said = person.takeback("undo", *option)
        assert said.returncode == 3
        assert "cannot be captured as it is now: it is not readable" in said.stderr
        assert "`chmod u+rX x` lets it be read: run it, then `takeback undo" in said.stderr
        assert "done since" not in said.stderr
        assert "verify" not in said.stderr

    person.does("chmod", "u+rX", "x")
    assert person.takeback("undo", "--force").returncode == 0
    assert person.does("cat", "x").stdout == "hi\n"


def test_fresh_eyes_22_what_stays_is_said_once(person: Person) -> None:
    line = "echo 1 > x; mkdir build; echo 1 > build/secret; chmod 000 build/secret; exit 1"

    said = person.takeback("run", "--in-place", "--", "sh", "-c", line)

    assert said.returncode == 1
    assert "takeback: not taken back: build: stays, because it holds build/secret" in said.stderr
    assert sorted(os.listdir(person.work)) == ["build"]


def test_fresh_eyes_22_a_read_only_place_is_told_only_where_it_may_matter(
    person: Person, tmp_path: Path
) -> None:
    place = person.directory / "single"
    source = tmp_path / "source"
    for path in (place, source):
        path.touch()
        os.chown(path, USER, USER)
    subprocess.run(["mount", "--bind", source, place], check=True)
    try:
        plain = person.takeback("run", "--", "sh", "-c", "exit 1")
        meeting = person.takeback("run", "--", "sh", "-c", f"echo x > {place}")
    finally:
        subprocess.run(["umount", place], check=True)

    assert (plain.returncode, "Read-only" in plain.stderr) == (1, False)
    assert f'"Read-only file system": {place} cannot be written' in meeting.stderr
