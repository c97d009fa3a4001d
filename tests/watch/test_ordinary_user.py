"""Without any rights: it works the same, and what cannot be read is named before anything is changed."""

import json
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.errors import NoRemedy
from takeback.model.plan import Outcome
from takeback.runs.run import core_of

NOBODY = 65534

pytestmark = pytest.mark.root  # to become somebody else


class Desk:
    """A tree and a store that belong to an ordinary user."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="takeback-user-"))
        self.tree = self.directory / "tree"
        self.store = self.directory / "store"
        (self.tree / "dir").mkdir(parents=True)
        (self.tree / "dir" / "file").write_text("before")
        (self.tree / "top").write_text("before")

    def give_away(self) -> None:
        for path in [self.directory, *self.directory.rglob("*")]:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)

    def as_user(self, work: Callable[["Desk"], Any]) -> Any:
        """What it gives, in a process that gave up its rights; everything it imports was imported before, because the
        interpreter's own files may be closed to such a user."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _be(work, self, writer)
        os.close(writer)
        with open(reader, encoding="utf-8") as answer:
            text = answer.read()
        os.waitpid(child, 0)
        assert not text.startswith("Traceback"), text
        return json.loads(text)


def _be(work: Callable[[Desk], Any], desk: Desk, writer: int) -> None:
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os.chdir(desk.tree)
        os.environ["HOME"] = str(desk.directory / "home")
        text = json.dumps(work(desk))
    except BaseException:  # noqa: BLE001  # whatever it is, the parent shows it
        text = traceback.format_exc()
    with open(writer, "w", encoding="utf-8", closefd=False) as answer:
        answer.write(text)
    os._exit(0)


@pytest.fixture(scope="module", autouse=True)
def rehearsed() -> None:
    desk = Desk()
    try:
        with takeback.open(desk.store) as tb:
            with tb.run("rehearsal") as run:
                for content in ("one", "two", "three"):
                    with run.watch(desk.tree) as watched:
                        (desk.tree / "top").write_text(content)
            tb.undo(watched.effect)
            tb.redo()
            from takeback.adapters.watch import inotify  # noqa: F401
    finally:
        shutil.rmtree(desk.directory)


@pytest.fixture
def desk():
    made = Desk()
    try:
        yield made
    finally:
        for path in made.directory.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(made.directory)


def test_what_was_changed_is_one_effect_and_goes_back_also_with_a_feed(desk):
    desk.give_away()

    def work(desk):
        told = []
        with takeback.open(desk.store) as tb:
            with tb.run("edit") as run:
                for number in range(3):
                    with run.watch(desk.tree) as watched:
                        (desk.tree / "dir" / "file").write_text(f"after {number}")
                        (desk.tree / f"new{number}").mkdir()
                    trees = list(core_of(run).trees.values())
                    told.append([len(watched.changes), trees[0].last.whole])
            tb.undo(watched.effect)
        return [told, (desk.tree / "dir" / "file").read_text(), sorted(os.listdir(desk.tree)), os.geteuid()]

    told, content, names, user = desk.as_user(work)

    assert told == [[2, True], [2, False], [2, False]]  # the second look is followed by a feed
    assert (content, user) == ("after 1", NOBODY)
    assert names == ["dir", "new0", "new1", "top"]


def test_a_file_of_ones_own_that_cannot_be_read_is_named_and_refused_before_anything_runs(desk):
    (desk.tree / "dir" / "locked").write_text("secret")
    desk.give_away()
    (desk.tree / "dir" / "locked").chmod(0)

    def work(desk):
        with takeback.open(desk.store) as tb, tb.run("locked") as run:
            try:
                with run.watch(desk.tree):
                    raise AssertionError("it must not begin")
            except NoRemedy as error:
                return [str(error), error.hint, [effect.state.value for effect in tb.effects()]]

    said, hint, effects = desk.as_user(work)

    assert "dir/locked: it is not readable" in said and "Make it readable" in hint and "--any-root" in hint
    assert effects == []


def test_forced_it_goes_ahead_and_says_what_undo_leaves_behind(desk):
    (desk.tree / "locked").write_text("secret")
    desk.give_away()
    (desk.tree / "locked").chmod(0)

    def work(desk):
        with takeback.open(desk.store) as tb:
            with tb.run("locked") as run, run.watch(desk.tree, any_root=True) as watched:
                before = [hole.path.rpartition("/")[2] for hole in watched.left_out]
                (desk.tree / "locked").unlink()
                (desk.tree / "top").unlink()
            result = tb.undo(watched.effect, on_conflict="skip")
            outcomes = {one.resource.rpartition("/")[2]: one.outcome.value for one in result.targets}
            return [before, watched.effect.remedy.exact, watched.effect.remedy.residue, outcomes]

    before, exact, residue, outcomes = desk.as_user(work)

    assert before == ["locked"] and not exact
    assert "locked is gone and had not been captured" in residue
    assert outcomes == {"locked": Outcome.EXCLUDED, "top": Outcome.UNDONE}
    assert (desk.tree / "top").read_text() == "before" and not (desk.tree / "locked").exists()


def test_what_belongs_to_others_and_cannot_be_destroyed_is_a_hole_and_no_reason_to_refuse(desk):
    (desk.tree / "theirs").mkdir()
    (desk.tree / "theirs" / "secret").write_text("root's")
    desk.give_away()
    for path, mode in ((desk.tree / "theirs" / "secret", 0o600), (desk.tree / "theirs", 0o755)):
        os.chown(path, 0, 0)
        path.chmod(mode)

    def work(desk):
        with takeback.open(desk.store) as tb, tb.run("holes") as run:
            with run.watch(desk.tree) as watched:
                (desk.tree / "top").unlink()
            return [[hole.path.rpartition("/")[2], hole.reason] for hole in watched.left_out]

    assert desk.as_user(work) == [["secret", "it is not readable"]]


def test_the_owner_of_what_belonged_to_others_is_told_to_be_lost(desk):
    desk.give_away()
    os.chown(desk.tree / "top", 0, 0)

    def work(desk):
        with takeback.open(desk.store) as tb:
            with tb.run("owner") as run, run.watch(desk.tree) as watched:
                (desk.tree / "top").unlink()
            (told,) = tb.undo(watched.effect).targets
            return [watched.effect.remedy.exact, watched.effect.remedy.residue, told.detail]

    exact, residue, detail = desk.as_user(work)

    assert not exact and f"the owner of {desk.tree}/top" in residue
    assert "only root can give it back to its owner and group (0:0)" in detail
    assert (desk.tree / "top").read_text() == "before"
    assert (desk.tree / "top").stat().st_uid == NOBODY


def test_a_file_of_others_that_was_only_made_anew_is_told_to_be_ones_own_now(desk):
    """As `sed -i` does with a file in which it finds nothing."""
    desk.give_away()
    os.chown(desk.tree / "top", 0, 0)

    def work(desk):
        with takeback.open(desk.store) as tb:
            with tb.run("anew") as run, run.watch(desk.tree) as watched:
                (desk.tree / "new").write_text("before")
                (desk.tree / "new").replace(desk.tree / "top")
            result = tb.undo(watched.effect)
            return [result.outcome, [one.detail for one in result.targets]]

    outcome, (detail,) = desk.as_user(work)

    assert outcome == "done" and "only root can give it back to its owner" in detail
    assert (desk.tree / "top").read_text() == "before"


def test_a_file_of_others_that_cannot_be_read_is_theirs_to_make_readable(desk):
    desk.give_away()
    os.chown(desk.tree / "top", 0, 0)
    (desk.tree / "top").chmod(0o600)

    def work(desk):
        with takeback.open(desk.store) as tb, tb.run("holes") as run:
            try:
                with run.watch(desk.tree):
                    pass
            except NoRemedy as error:
                return error.hint

    assert "its owner or root" in desk.as_user(work)


def test_a_directory_of_others_in_ones_own_cannot_be_looked_into(desk):
    (desk.tree / "closed").mkdir()
    desk.give_away()
    os.chown(desk.tree / "closed", 0, 0)
    (desk.tree / "closed").chmod(0o700)

    def work(desk):
        with takeback.open(desk.store) as tb, tb.run("holes") as run:
            try:
                with run.watch(desk.tree):
                    pass
            except NoRemedy as error:
                return str(error)

    assert "closed: its entries are not readable" in desk.as_user(work)  # an empty one could be removed


def test_the_command_line_works_in_place(desk):
    desk.give_away()

    def work(desk):
        os.environ["TAKEBACK_STORE"] = str(desk.store)
        os.environ.pop("TMPDIR", None)
        code = answer(["run", "--in-place", "--", "sh", "-c", "rm -r dir; echo new > new; exit 3"])
        return [code, sorted(os.listdir(desk.tree)), (desk.tree / "dir" / "file").read_text()]

    from takeback.frontends.cli.answer import answer

    assert desk.as_user(work) == [3, ["dir", "top"], "before"]


def test_a_directory_that_was_closed_meanwhile_is_told_and_the_rest_is_taken_back(desk):
    desk.give_away()

    def work(desk):
        with takeback.open(desk.store) as tb:
            with tb.run("closed") as run, run.watch(desk.tree) as watched:
                (desk.tree / "top").write_text("after")
                (desk.tree / "dir").chmod(0)
            result = tb.undo(watched.effect)
            return {one.resource.rpartition("/")[2]: one.outcome for one in result.targets}

    outcomes = desk.as_user(work)

    assert outcomes == {"dir": Outcome.EXCLUDED, "file": Outcome.EXCLUDED, "top": Outcome.UNDONE}
    assert (desk.tree / "top").read_text() == "before"
    assert (desk.tree / "dir" / "file").read_text() == "before"
