"""The project's own rules decide, as git reads them; and only what is regenerable besides is left out."""

import os
import random
import subprocess
from pathlib import Path

import pytest

import takeback
from takeback.adapters.watch.roots import REGENERABLE_NAMES, Ignoring


@pytest.fixture
def project(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "-q")
    return project


def git(project: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    env = {
        "PATH": os.environ["PATH"], "HOME": str(project.parent), "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
    }  # fmt: skip
    return subprocess.run(
        ["git", *words], cwd=project, env=env, check=False, capture_output=True, timeout=240
    )


def agree(project: Path, paths: list[str]) -> None:
    ours = Ignoring(os.fsencode(project))
    asked = "\0".join(paths).encode()
    env = {"PATH": os.environ["PATH"], "HOME": str(project.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    told = subprocess.run(
        ["git", "check-ignore", "-z", "--stdin"],
        cwd=project, env=env, input=asked, check=False, capture_output=True, timeout=240,
    )  # fmt: skip
    theirs = {path.decode() for path in told.stdout.split(b"\0") if path}
    mine = {path for path in paths if ours.ignored(os.fsencode(project / path))}
    assert mine == theirs


PATTERNS = [
    "node_modules", "node_modules/", "/build", "build/", "!build", "*.d", "d*", "a/build", "a/*/build", "a/**/build",
    "**/dist", "dist/**", "a/**", "!a/b/", "[bd]uild", "[!b]uild", "[^d]ist", "[a-c]", "?uild", "b\\uild", "\\!odd",
    "\\#odd", "# comment", "", "build ", "build\\ ", "*", "!*/", "/*", "!/a", "**", "a**b", "[", "a//b", "b[]x]",
    "/a/build/", "***/dist", "x\\", "target\r",
]  # fmt: skip
NAMES = ["a", "b", "build", "dist", "node_modules", "x.d", "target", "!odd", "#odd", "build ", "[", "ab"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_pattern_means_what_it_means_to_git(project, pattern):
    (project / ".gitignore").write_text(pattern + "\n")
    paths = NAMES + [f"a/{name}" for name in NAMES] + [f"a/b/{name}" for name in NAMES]
    for path in paths:
        (project / path).mkdir(parents=True, exist_ok=True)

    agree(project, paths)


@pytest.mark.parametrize("seed", range(15))
def test_files_of_rules_at_several_depths_mean_what_they_mean_to_git(project, seed):
    chance = random.Random(seed)
    paths = NAMES + [f"a/{name}" for name in NAMES] + [f"a/b/{name}" for name in NAMES]
    for path in paths:
        (project / path).mkdir(parents=True, exist_ok=True)
    for place in (".gitignore", "a/.gitignore", "a/b/.gitignore", ".git/info/exclude"):
        (project / place).parent.mkdir(parents=True, exist_ok=True)
        (project / place).write_text("\n".join(chance.sample(PATTERNS, 4)))

    agree(project, paths)


@pytest.fixture
def tb(tmp_path):
    with takeback.open(tmp_path / "store") as tb:
        yield tb


def left_out(watched, project):
    return {os.path.relpath(hole.path.removeprefix("file://"), project) for hole in watched.left_out}


def test_only_what_is_ignored_and_regenerable_is_left_out_and_undo_never_touches_it(tb, project):
    (project / ".gitignore").write_text("node_modules/\nsecrets/\n")
    for path in ("node_modules/lib", "secrets", "build"):
        (project / path).mkdir(parents=True)
        (project / path / "file").write_text("before")
    with tb.run("all") as run, run.watch(project) as watched:
        for path in ("node_modules/lib", "secrets", "build"):
            (project / path / "file").write_text("after")
        (project / "node_modules" / "new").write_text("new")

    assert left_out(watched, project) == {"node_modules"}
    assert {Path(one.path).parent.name for one in watched.changes} == {"secrets", "build"}
    tb.undo(watched.effect)
    assert (project / "secrets" / "file").read_text() == "before"
    assert (project / "build" / "file").read_text() == "before"
    assert (project / "node_modules" / "lib" / "file").read_text() == "after"
    assert (project / "node_modules" / "new").exists()


def test_one_that_git_tracks_is_captured_whatever_the_rules_say(tb, project):
    (project / "dist").mkdir()
    (project / "dist" / "kept").write_text("tracked")
    git(project, "add", "dist/kept")
    (project / ".gitignore").write_text("dist\n")
    with tb.run("dist") as run, run.watch(project) as watched:
        (project / "dist" / "kept").unlink()

    assert watched.left_out == ()
    tb.undo(watched.effect)
    assert (project / "dist" / "kept").read_text() == "tracked"


def test_one_that_is_removed_is_named_and_a_new_one_stays(tb, project):
    (project / ".gitignore").write_text("node_modules\n.venv\n")
    (project / "node_modules").mkdir()
    (project / "src").mkdir()
    (project / "src" / "code").write_text("code")
    with tb.run("clean") as run, run.watch(project) as watched:
        (project / "node_modules").rmdir()
        (project / "made").mkdir()
        (project / "made" / ".venv").mkdir()
        (project / "made" / ".venv" / "python").write_text("python")
        (project / "src" / "code").unlink()
    assert watched.effect.remedy.residue and not watched.effect.remedy.exact
    result = tb.undo(watched.effect, on_conflict="skip")

    assert (project / "src" / "code").read_text() == "code"
    assert (project / "made" / ".venv" / "python").read_text() == "python"
    assert not (project / "node_modules").exists()
    assert {one.outcome.value for one in result.targets} >= {"undone"}


def test_rules_that_change_while_we_watch_change_nothing_of_what_was_captured(tb, project):
    (project / "build").mkdir()
    (project / "build" / "work").write_text("work")
    (project / ".gitignore").write_text("")
    with tb.run("rules") as run, run.watch(project) as watched:
        (project / ".gitignore").write_text("build\n")
        (project / "build" / "work").write_text("changed")
    tb.undo(watched.effect)
    assert (project / "build" / "work").read_text() == "work"

    (project / ".gitignore").write_text("build\n")
    with tb.run("rules") as run, run.watch(project) as watched:
        (project / ".gitignore").write_text("")
        (project / "build" / "work").write_text("changed")

    assert left_out(watched, project) == {"build"}
    assert [Path(one.path).name for one in watched.changes] == [".gitignore"]


def test_what_is_no_longer_ignored_is_captured_from_then_on(tb, project):
    (project / "build").mkdir()
    (project / "build" / "work").write_text("work")
    (project / ".gitignore").write_text("build\n")
    with tb.run("one") as run:
        with run.watch(project) as watched:
            pass
        assert left_out(watched, project) == {"build"}
        (project / ".gitignore").write_text("")
        with run.watch(project) as watched:
            (project / "build" / "work").unlink()
    assert watched.left_out == ()
    tb.undo(watched.effect)

    assert (project / "build" / "work").read_text() == "work"


def test_the_list_is_one_of_names_and_has_the_usual_ones():
    assert {"node_modules", ".venv", "target", "__pycache__", "build", "dist", ".tox"} <= set(
        REGENERABLE_NAMES
    )
