"""`takeback sql`, as a person types it, on a SQLite file."""

import os
import sqlite3
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import CommandLine
from tests.world import World


@pytest.fixture
def shop(world: World) -> Path:
    path = Path(os.fspath(world.root)) / "shop.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, role TEXT)")
    connection.executemany("INSERT INTO users VALUES (?, 'member')", [(n,) for n in range(1, 1_501)])
    connection.commit()
    connection.close()
    return path


def roles(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return [role for (role,) in connection.execute("SELECT role FROM users ORDER BY id")]
    finally:
        connection.close()


def test_a_statement_is_told_compared_and_taken_back(takeback: CommandLine, shop: Path) -> None:
    url = f"sqlite:///{shop}"
    takeback.done("sql", "protect", url)
    said = takeback.done("sql", "exec", url, "--agent", "bot", "UPDATE users SET role = 'root' WHERE id <= 2")
    assert "takeback undo" in said.out and "'root'" not in said.out
    shown = takeback.done("diff", "@").out
    assert "users: 2 updated" in shown and "~ id=1 role member → root" in shown
    assert takeback.done("diff", "@", "--json").json["rows"][0]["after"]["role"] == "root"
    would = takeback.done("undo", "--dry-run").out
    assert "users: 2 updated" in would and roles(shop)[:2] == ["root", "root"]
    undone = takeback.done("undo").out
    assert "Took back 2 rows in" in undone and "effect:" not in undone
    assert set(roles(shop)) == {"member"}
    assert "Brought back 2 rows in" in takeback.done("redo").out
    changed = takeback.done("undo", "--json").json["changed"]
    assert [one["tables"]["users"]["updated"] for one in changed.values()] == [2]


def test_a_dropped_table_comes_back(takeback: CommandLine, shop: Path) -> None:
    url = f"sqlite:///{shop}"
    takeback.done("sql", "exec", url, "DROP TABLE users")
    said = takeback.done("undo").out
    assert "Took back 1,500 rows, 1 schema change in" in said and "table users created" in said
    assert len(roles(shop)) == 1_500


def test_a_dry_run_tells_what_the_undo_would_do_and_not_what_the_effect_did(
    takeback: CommandLine, shop: Path
) -> None:
    takeback.done("sql", "exec", f"sqlite:///{shop}", "DELETE FROM users WHERE id = 1")
    would = takeback.done("undo", "--dry-run").out
    assert "would undo" in would and "undone" not in would
    assert "users: 1 inserted" in would and "deleted" not in would
    assert "users: 1 inserted" in takeback.done("undo").out


def test_of_many_rows_the_first_are_shown_and_all_counted(takeback: CommandLine, shop: Path) -> None:
    takeback.done("sql", "exec", f"sqlite:///{shop}", "UPDATE users SET role = 'x'")
    shown = takeback.done("diff", "@").out
    assert "users: 1,500 updated" in shown and "only the first 1,000 rows are shown" in shown


def test_files_and_rows_are_counted_together(takeback: CommandLine, shop: Path) -> None:
    takeback.done("write", "note", "--run", "both", input="x")
    takeback.done(
        "sql", "exec", f"sqlite:///{shop}", "--run", "both", "UPDATE users SET role = 'x' WHERE id = 1"
    )
    assert "Took back 1 file, 1 row in" in takeback.done("undo", "--run", "both").out
    assert roles(shop)[0] == "member"


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("doctor",), 2, "required: URL"),
        (("doctor", "oracle://x/y"), 2, "names no database that takeback knows"),
        (("doctor", "env:NO_SUCH_NAME"), 5, "NO_SUCH_NAME"),
        (("exec", "sqlite:///nosuch.db", "SELECT 1"), 2, "There is no database at"),
        (("exec", "sqlite:///shop.db"), 2, "takes one statement"),
        (("exec", "sqlite:///shop.db", "UPDATE users SET nosuch = 1"), 1, "nosuch"),
        (("exec", "sqlite:///shop.db", "UPDATE"), 1, "incomplete input"),
        (("exec", "sqlite:///note.txt", "UPDATE t SET a = 1"), 3, "is not a SQLite database"),
        (("protect", "sqlite:///shop.db", "--review"), 2, "There is no option --review"),
    ],
)
@pytest.mark.usefixtures("shop")
def test_bad_input_is_told(
    takeback: CommandLine, world: World, words: tuple[str, ...], code: int, sentence: str
) -> None:
    (Path(os.fspath(world.root)) / "note.txt").write_text("no database at all\n" * 100)
    said = takeback("sql", *words)
    assert (said.code, sentence in said.err, "hint:" in said.err) == (code, True, True), said


_PROGRAM = (
    "import os, sqlite3, sys; print('hello'); c = sqlite3.connect(sys.argv[1]);"
    " c.execute('DELETE FROM users WHERE id = 1'); c.commit(); c.close(); {}"
)


def test_what_a_program_prints_is_part_of_the_answer_as_json(takeback: CommandLine, shop: Path) -> None:
    words = ("run", "--json", "--sql", f"sqlite:///{shop}", "--", sys.executable, "-c")
    told = takeback.done(*words, _PROGRAM.format(""), shop).json
    assert told["stdout"] == "hello\n" and len(told["databases"]) == 1
    takeback.done("undo")
    assert len(roles(shop)) == 1_500


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ((sys.executable, "-c", _PROGRAM.format("os.kill(os.getpid(), 15)"), "shop.db"), 143),
        (("./nosuch",), 127),
        (("./text",), 126),
    ],
)
def test_a_program_that_fails_is_taken_back(
    takeback: CommandLine, shop: Path, command: tuple[str, ...], code: int
) -> None:
    text = shop.parent / "text"
    text.write_text("no program")
    text.chmod(0o755)
    assert takeback("run", "--sql", f"sqlite:///{shop}", "--", *command).code == code
    assert len(roles(shop)) == 1_500


def test_a_database_that_does_not_know_an_effect_is_not_compared(takeback: CommandLine, shop: Path) -> None:
    before = shop.read_bytes()
    takeback.done("sql", "exec", f"sqlite:///{shop}", "DELETE FROM users WHERE id = 1")
    shop.write_bytes(before)
    said = takeback("diff", "@")
    assert said.code == 3 and "knows nothing of effect" in said.err and "hint:" in said.err


def test_the_store_itself_is_not_changed_also_not_after_a_look(takeback: CommandLine, world: World) -> None:
    takeback.done("write", "note", input="x")
    store = takeback.done("status", "--json").json["store"]
    link = Path(os.fspath(world.root)) / "link.db"
    link.symlink_to(f"{store}/journal.db")
    for words in ((f"{store}/journal.db",), (f"{store}/journal.db", "--dry-run"), (os.fspath(link),)):
        said = takeback("sql", "exec", f"sqlite:///{words[0]}", *words[1:], "CREATE TABLE mine (a)")
        assert said.code != 0 and "takeback's own store" in said.err, said


def test_what_is_in_a_key_cannot_paint_on_a_terminal(takeback: CommandLine, shop: Path) -> None:
    url = f"sqlite:///{shop}"
    evil = "a\x1b[31m\nb\x07"
    connection = sqlite3.connect(shop)
    connection.execute('CREATE TABLE words (word TEXT PRIMARY KEY, "odd\x1bname" TEXT)')
    connection.execute("INSERT INTO words VALUES (?, 'x')", (evil,))
    connection.commit()
    connection.close()
    takeback.done("sql", "exec", url, "UPDATE words SET \"odd\x1bname\" = 'y'")
    said = [takeback.done(*words).out for words in (("diff", "@"), ("log",), ("show", "@"), ("status",))]
    takeback.done("sql", "exec", url, "UPDATE words SET \"odd\x1bname\" = 'z'")
    refused = takeback("undo", "@~1")
    assert refused.code == 3
    takeback.done("sql", "exec", url, "DELETE FROM words")
    said += [takeback.done("diff", "@").out, refused.err, takeback.done("undo").out]
    assert not [text for text in said if "\x1b" in text or "\x07" in text]
    assert r"~ word=a\x1b[31m\nb\x07 odd\x1bname x → y" in said[0]
    assert takeback.done("diff", "@", "--json").json["rows"][0]["key"] == f"word={evil}"


def test_a_statement_tells_how_many_rows_it_changed(takeback: CommandLine, shop: Path) -> None:
    url = f"sqlite:///{shop}"
    assert (
        ": 2 updated\n" in takeback.done("sql", "exec", url, "UPDATE users SET role = 'x' WHERE id < 3").out
    )
    assert ": 1 deleted\n" in takeback.done("sql", "exec", url, "DELETE FROM users WHERE id = 3").out
    both = "INSERT INTO users VALUES (3, 'y'); DELETE FROM users WHERE id = 4"
    assert ": 1 inserted, 1 deleted\n" in takeback.done("sql", "exec", url, both).out


def test_of_several_questions_the_last_is_answered(takeback: CommandLine, shop: Path) -> None:
    url = f"sqlite:///{shop}"
    several = "SELECT 1 AS a; SELECT 2 AS x, 3 AS y"
    assert takeback.done("sql", "exec", url, several).out.split() == ["x", "y", "2", "3"]
    answer = takeback.done("sql", "exec", url, "--json", f"{several}; SELECT 4 AS z WHERE 0").json
    assert (answer["columns"], answer["rows"], answer["rowcount"]) == (["z"], [], 0)


def test_a_program_may_not_work_on_the_store_itself(takeback: CommandLine, shop: Path) -> None:
    takeback.done("sql", "exec", f"sqlite:///{shop}", "DELETE FROM users WHERE id = 1")
    journal = f"sqlite:///{Path(os.environ['TAKEBACK_STORE']) / 'journal.db'}"
    said = takeback("run", "--sql", journal, "--", "true")
    assert said.code == 125 and "takeback's own store" in said.err


def test_a_statement_that_is_empty_gets_a_hint_for_the_command_line(
    takeback: CommandLine, shop: Path
) -> None:
    said = takeback("sql", "exec", f"sqlite:///{shop}", " ")
    assert said.code == 2 and "takeback sql exec" in said.err and "db.execute" not in said.err


def test_a_later_effect_on_the_same_rows_is_named_with_the_way_to_take_both_back(
    takeback: CommandLine, shop: Path
) -> None:
    url = f"sqlite:///{shop}"
    takeback.done("sql", "exec", url, "INSERT INTO users VALUES (9999, 'x')")
    later = takeback.done("sql", "exec", url, "UPDATE users SET role = 'y' WHERE id = 9999").out[:8]
    said = takeback("undo", "@~1")
    assert said.code == 3 and "--cascade` first takes back" in said.err and later in said.err
    takeback.done("undo", "@~1", "--cascade")
    assert set(roles(shop)) == {"member"}
