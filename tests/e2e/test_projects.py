"""`undo`, `redo`, `log`, `runs` and `@` mean the project that one stands in."""

import os
import pty
import subprocess
from pathlib import Path

import pytest

import takeback as library
from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.servers.postgres import PgDatabase
from tests.world import World


@pytest.fixture
def place(world: World) -> Path:
    """Two repositories and what is between them."""
    for name in ("p/.git", "p/src/deep", "q/.jj"):
        os.makedirs(world / name)
    return Path(os.fspath(world.root))


def at(directory: Path) -> CommandLine:
    return CommandLine(os.fspath(directory))


def ids(takeback: CommandLine, *words: str) -> list[str]:
    return [one["id"] for one in takeback.done("log", "--json", *words).json]


def on_a_terminal(directory: Path, words: tuple[str, ...], answer: str) -> tuple[int, str]:
    """With a terminal for everything; what it said, and how it ended."""
    parent, child = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *words], stdin=child, stdout=child, stderr=child, cwd=directory, env=surroundings()
    ) as process:
        os.close(child)
        os.write(parent, answer.encode())
        said = b""
        while True:
            try:
                more = os.read(parent, 65536)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            said += more
        code = process.wait()
    os.close(parent)
    return code, said.decode().replace("\r\n", "\n")


def test_undo_in_one_project_leaves_the_other_one_alone(place: Path) -> None:
    p, q = at(place / "p"), at(place / "q")
    mine = p.write("a", "1")["id"]
    theirs = q.done("write", "b", "--json", input="2", TAKEBACK_AGENT="bob").json["id"]
    assert ids(p) == [mine]
    assert ids(q) == [theirs]
    assert ids(p, "--all") == [theirs, mine]
    assert p.effect("@")["id"] == mine
    assert len(p.done("runs", "--json").json) == 1
    assert len(p.done("runs", "--json", "--all").json) == 2

    said = p.done("undo")
    assert f"The newest effect of all is in {place}/q ({theirs[:8]}, by bob)" in said.out
    assert not (place / "p/a").exists()
    assert (place / "q/b").exists()

    said = p("undo")
    assert said.code == 3
    assert "nothing to undo in this project" in said.err
    assert f"{place}/q ({theirs[:8]}, by bob)" in said.err
    assert (place / "q/b").exists()

    p.done("undo", theirs[:8])
    assert not (place / "q/b").exists()


def test_redo_means_the_last_undo_of_this_project(place: Path) -> None:
    p, q = at(place / "p"), at(place / "q")
    p.write("a", "1")
    q.write("b", "2")
    p.done("undo")
    q.done("undo")
    p.done("redo")
    assert (place / "p/a").exists()
    assert not (place / "q/b").exists()
    assert p("redo").code == 3
    p.done("redo", "--all")
    assert (place / "q/b").exists()


def test_the_session_of_the_command_line_is_one_for_each_project(place: Path) -> None:
    p, q = at(place / "p"), at(place / "q")
    assert p.write("a", "1")["run"] != q.write("b", "2")["run"]
    assert p.write("src/c", "3")["run"] == at(place / "p/src/deep").write("d", "4")["run"]
    at(place / "p/src").done("undo", "--run", "command line")
    assert sorted(os.listdir(place / "p/src")) == ["deep"]
    assert (place / "q/b").exists()


def test_undo_of_a_removed_marker_is_found_from_any_subdirectory(place: Path) -> None:
    deep = at(place / "p/src/deep")
    (place / "p/.git/HEAD").write_text("x")
    effect = at(place / "p").done("rm", ".git", "--json").json
    assert not (place / "p/.git").exists()
    assert deep.effect("@")["id"] == effect["id"]
    later = deep.write("f", "1")["id"]
    assert ids(at(place / "p")) == [later, effect["id"]]
    deep.done("undo")
    deep.done("undo")
    assert (place / "p/.git/HEAD").read_text() == "x"


def test_a_marker_that_an_effect_made_does_not_move_the_scope(place: Path) -> None:
    p, src = at(place / "p"), at(place / "p/src")
    first = p.write("a", "1")["id"]
    made = p.done("mkdir", "src/.git", "--json").json["id"]
    assert ids(src) == [made, first]
    hidden = src.write("b", "2")["id"]
    assert ids(p) == [hidden, made, first]
    src.done("undo")
    src.done("undo")
    src.done("undo")
    assert not (place / "p/a").exists()


def test_a_moved_marker_moves_nothing(place: Path) -> None:
    p = at(place / "p")
    first = p.write("a", "1")["id"]
    moved = p.done("mv", ".git", "src/.git", "--json").json["id"]
    for directory in ("p", "p/src", "p/src/deep"):
        assert ids(at(place / directory)) == [moved, first]
    at(place / "p/src").done("undo")
    assert (place / "p/.git").is_dir()


def test_a_repository_inside_a_repository_is_a_project_of_its_own(place: Path) -> None:
    (place / "p/inner/.git").mkdir(parents=True)  # a submodule or a worktree has a file of that name instead
    (place / "p/tree").mkdir()
    (place / "p/tree/.git").write_text("gitdir: ../.git/worktrees/tree")
    p, inner, tree = at(place / "p"), at(place / "p/inner"), at(place / "p/tree")
    outer, own, third = p.write("a", "1")["id"], inner.write("b", "2")["id"], tree.write("c", "3")["id"]
    assert ids(p) == [outer]
    assert ids(inner) == [own]
    assert ids(tree) == [third]
    # What a run of the outer one does inside belongs to both, and needs no question: it lies inside.
    reaching = p.write("inner/c", "3")["id"]
    assert ids(p) == [reaching, outer]
    assert ids(inner) == [reaching, own]
    p.done("undo")
    assert not (place / "p/inner/c").exists()


def test_a_directory_without_a_marker_is_its_own_project_with_all_below(place: Path) -> None:
    for name in ("w/sub", "w2"):
        os.makedirs(place / name)
    w, sub = at(place / "w"), at(place / "w/sub")
    own = w.write("a", "1")["id"]
    below = w.write("sub/b", "2")["id"]
    other = at(place / "w2").write("c", "3")["id"]
    assert ids(w) == [below, own]
    assert ids(sub) == [below]
    assert ids(at(place)) == [other, below, own]
    sub.done("undo")
    assert (place / "w/a").exists()


def test_home_and_the_root_are_no_projects_by_themselves(place: Path) -> None:
    at(place / "p").write("a", "1")
    home = Path(os.environ["HOME"])
    for directory in (home, Path("/")):
        for words in (("undo",), ("redo",), ("log",), ("runs",), ("show", "@"), ("undo", "--to", "x")):
            said = at(directory)(*words)
            assert said.code == 3, words
            assert f"{directory} is not a project" in said.err
            assert "--all" in said.err
        assert len(ids(at(directory), "--all")) == 1
    effect = at(home).write("x", "1")["id"]  # it can be made, and taken back by name
    at(home).done("undo", effect)
    (home / ".git").mkdir()
    effect = at(home).write("x", "1")["id"]
    at(home).done("undo")


def both(place: Path) -> str:
    """An effect of `p` that touches `q` as well."""
    with library.open() as tb, tb.run("both", agent="cli", project=place / "p") as run:
        return run.write_all({place / "p/a": "1", place / "q/b": "2"}).id


def test_without_a_terminal_an_effect_that_touches_another_project_is_refused(place: Path) -> None:
    effect = both(place)
    p = at(place / "p")
    for words in (("undo",), ("undo", "@")):
        said = p(*words)
        assert said.code == 3
        assert f"also touches {place}/q" in said.err
    assert (place / "q/b").exists()
    assert p("undo", "--dry-run").code == 0
    p.done("undo", effect)
    assert p("redo").code == 3
    assert not (place / "q/b").exists()
    p.done("redo", "--yes")
    p.done("undo", "--run", "both")
    assert not (place / "q/b").exists()


@pytest.mark.parametrize("answer", ["n\n", "\n", "what\nno\n", "y\n", "maybe\nYES\n"])
def test_on_a_terminal_it_asks(place: Path, answer: str) -> None:
    both(place)
    code, said = on_a_terminal(place / "p", ("undo",), answer)
    assert f"also touches {place}/q" in said
    yes = answer.lower().strip().endswith(("y", "yes"))
    assert code == (0 if yes else 3)
    assert (place / "q/b").exists() is not yes


def test_rows_and_calls_belong_to_the_project_of_their_run(place: Path) -> None:
    import sqlite3

    with sqlite3.connect(place / "shared.db") as database:
        database.executescript("create table t (x); insert into t values (1)")
    p, q = at(place / "p"), at(place / "q")
    p.done("sql", "exec", f"sqlite:///{place}/shared.db", "delete from t")
    assert q("undo").code == 3
    p.done("undo")
    with sqlite3.connect(place / "shared.db") as database:
        assert database.execute("select * from t").fetchall() == [(1,)]
    assert q("redo").code == 3


def test_python_sees_everything_unless_a_project_is_given(place: Path) -> None:
    with library.open() as tb:
        with tb.run("one", project=place / "p") as run:
            mine = run.write(place / "p/a", "1")
        with tb.run("two", project=place / "q") as run:
            theirs = run.write(place / "q/b", "2")
        assert [one.id for one in tb.effects()] == [mine.id, theirs.id]
        assert [one.id for one in tb.effects(project=place / "p/src")] == [mine.id]
        assert [info.name for info in tb.runs(project=place / "p")] == ["one"]
        assert tb.effect("@").id == theirs.id
        assert tb.effect("@", project=place / "p").id == mine.id
        tb.undo("@", project=place / "p")
        tb.undo("@")
        assert not (place / "q/b").exists()
        tb.redo(project=place / "p")
        assert (place / "p/a").exists()
        with pytest.raises(library.Refused):
            tb.redo(project=place / "p")


def test_a_named_run_is_found_anywhere_and_first_here(place: Path) -> None:
    for name in ("p", "q"):
        at(place / name).done("run", "--name", "deploy", "--", "sh", "-c", "echo 1 > made")
    p = at(place / "p")
    assert "+++ b/made\n" in p.done("diff", "deploy").out
    assert p.done("show", "deploy", "--json").json["id"] == p.done("runs", "--json").json[0]["id"]
    p.done("undo", "deploy")
    assert sorted(os.listdir(place / "q")) == [".jj", "made"]
    at(Path("/")).done("undo", "--run", "deploy")
    assert sorted(os.listdir(place / "q")) == [".jj"]


def test_log_takes_a_path_and_a_time(place: Path) -> None:
    p = at(place / "p")
    first, second = p.write("a", "1")["id"], p.write("b", "2")["id"]
    assert ids(p, "a") == [first]
    assert ids(at(place / "q"), "../p/a") == [first]  # a path is found anywhere
    assert ids(p, "--since", "1h") == [second, first]
    assert ids(p, "--since", "2000-01-01") == [second, first]
    assert ids(p, "--since", "2999-01-01") == []
    said = p("log", "--since", "soon")
    assert said.code == 2
    assert "is not a time" in said.err


def test_finding_37_an_undo_tells_that_the_last_run_recorded_nothing(place: Path) -> None:
    p = at(place / "p")
    p.write("a", "1")
    said = p.done("run", "--in-place", "--", "sh", "-c", f"echo x > {place}/outside")
    assert "below the current directory, so none was recorded" in said.err
    assert "recorded nothing" in p.done("undo").out


def test_a_store_in_postgres_knows_projects_too(place: Path, pg_database: PgDatabase) -> None:
    there = {"TAKEBACK_STORE": pg_database.url}
    p, q = at(place / "p"), at(place / "q")
    p.done("write", "a", input="1", **there)
    q.done("write", "../p/b", input="2", **there)
    assert len(p.done("log", "--json", **there).json) == 2
    assert len(q.done("log", "--json", **there).json) == 1
    p.done("undo", **there)
    p.done("undo", **there)
    assert sorted(os.listdir(place / "p")) == [".git", "src"]
    q.done("redo", "--yes", **there)
    assert (place / "p/b").exists()
