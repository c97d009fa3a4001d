"""Stores that were planted, edited, cut or removed: noticed, named, and never obeyed."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import takeback
from takeback.storage import bodies
from takeback.storage.notes import Note, Witness
from tests.damage import rewrite_records


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A store with two effects on one file."""
    store = tmp_path / "store"
    with takeback.open(store) as tb, tb.run("work") as run:
        for text in ("one\n", "two\n"):
            run.write(tmp_path / "file", text)
    return store


def edited(store: Path, *statements: str) -> None:
    with closing(sqlite3.connect(store / "journal.db", isolation_level=None)) as connection:
        for sql in statements:
            connection.execute(sql)


def found(store: Path) -> str:
    with takeback.open(store, recover=False) as tb:
        return "\n".join(tb.verify().findings)


def cli(store: Path, *words: str, most: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """`most`: of memory, in bytes."""
    limit = ["prlimit", f"--as={most}"] if most else []
    return subprocess.run(
        [*limit, sys.executable, "-m", "takeback", *words],
        env={**os.environ, "TAKEBACK_STORE": str(store), **environment},
        check=False, capture_output=True, text=True, timeout=120, cwd=store.parent,
    )  # fmt: skip


# 34: what stands beside the records.


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE TRIGGER extra AFTER INSERT ON records BEGIN DELETE FROM targets; END", "trigger 'extra'"),
        ("CREATE VIEW extra AS SELECT 1", "view 'extra'"),
        ("DROP TRIGGER records_stay", "trigger 'records_stay'"),
        ("DROP INDEX effects_of_run", "index 'effects_of_run'"),
        ("UPDATE targets SET resource = resource || 'x'", "lists other paths"),
        ("DELETE FROM targets", "lists other paths"),
        ("INSERT INTO needs VALUES ('another', 2)", "lists other paths or needs"),
        ("DELETE FROM scopes", "lists other projects"),
        ("INSERT INTO scopes SELECT 99, seq, told FROM effects", "lists other projects"),
        ("UPDATE projects SET root = root || 'x'", "lists other projects"),
        ("UPDATE projects SET made = 1", "is not listed as the records say"),
        ("UPDATE projects SET began = 0", "is not listed as the records say"),
        (
            "INSERT INTO projects (root, marked) VALUES ('file:///elsewhere', 1)",
            "project /elsewhere is not listed",
        ),
    ],
)
def test_finding_34_verify_looks_at_the_schema_and_at_the_index(
    made: Path, statement: str, named: str
) -> None:
    assert not found(made)
    edited(made, statement)
    assert named in found(made)


def test_finding_34_a_view_in_the_place_of_a_table_is_named(made: Path) -> None:
    edited(made, "ALTER TABLE needs RENAME TO moved", "CREATE VIEW needs AS SELECT needed, effect FROM moved")
    assert "view 'needs'" in found(made) and "table 'needs'" in found(made)


@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal"])
def test_finding_34_a_journal_that_is_a_link_is_not_followed(made: Path, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"not ours")
    (made / name).unlink(missing_ok=True)
    (made / name).symlink_to(outside)
    with pytest.raises(takeback.Corrupt, match="symbolic link"):
        takeback.open(made)
    assert outside.read_bytes() == b"not ours"
    assert sorted(one.name for one in tmp_path.iterdir() if one.name.startswith("outside")) == ["outside"]


# 24: words that no version of ours writes.


def test_finding_24_a_nonsense_state_is_a_finding_and_no_crash(made: Path) -> None:
    edited(
        made,
        "DROP TRIGGER ended_runs_stay_ended",
        "PRAGMA ignore_check_constraints = 1",
        "UPDATE runs SET state = 'nonsense'",
    )
    ended = cli(made, "verify")
    assert ended.returncode == 6 and "bug" not in ended.stderr, ended
    assert "nothing that is known" in ended.stdout


def test_finding_24_a_tail_cut_with_its_tables_is_found(made: Path, tmp_path: Path) -> None:
    """Every table agrees with the records that are left; only the note outside the store knows of more."""
    older = tmp_path / "older"
    shutil.copytree(made, older)
    with takeback.open(made) as tb, tb.run("more") as run:
        run.write(tmp_path / "file", "three\n")
    shutil.rmtree(made)
    shutil.copytree(older, made)
    ended = cli(made, "verify")
    assert ended.returncode == 6 and "has lost records" in ended.stdout, ended
    with takeback.open(made) as tb, tb.run("goes on") as run:
        run.write(tmp_path / "file", "four\n")
    assert "has lost records" in found(made), "it stays known"
    assert "has lost records" in cli(made, "log").stderr
    assert cli(made, "store", "trust").returncode == 0
    assert not found(made) and not cli(made, "log").stderr


# 36: a store that was removed.


def test_finding_36_a_removed_store_is_not_an_empty_history(made: Path, tmp_path: Path) -> None:
    shutil.rmtree(made)
    for words in (["log"], ["status"], ["runs"]):
        ended = cli(made, *words)
        assert ended.returncode == 6 and "was removed. It had 6 records" in ended.stderr, ended
    ended = subprocess.run(
        [sys.executable, "-m", "takeback", "write", str(tmp_path / "file")],
        env={**os.environ, "TAKEBACK_STORE": str(made)},
        check=False, capture_output=True, text=True, input="x", timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0 and "A new, empty store was made in its place" in ended.stderr, ended
    assert not cli(made, "log").stderr


def test_finding_36_a_store_that_never_was_there_is_told_as_before(tmp_path: Path) -> None:
    ended = cli(tmp_path / "none", "log")
    assert ended.returncode == 3 and "was removed" not in ended.stderr, ended


# 32: modules that a store names.


ACTION = """
import takeback

@takeback.action(name="x.pay")
def pay(n, *, key):
    return 1

@pay.undo
def unpay(receipt, n):
    open({undone!r}, "a").write("x")
"""
CALLS = """
import os, sys
sys.path.insert(0, sys.argv[2])
import takeback, paying
run = takeback.open(sys.argv[1]).run("r").__enter__()
run.call(paying.pay, 1)
os.kill(os.getpid(), 9)
"""


@pytest.mark.real
def test_finding_32_a_store_from_elsewhere_imports_no_module(tmp_path: Path) -> None:
    code, here, elsewhere = tmp_path / "code", tmp_path / "here", tmp_path / "elsewhere"
    undone, imported = tmp_path / "undone", tmp_path / "imported"
    code.mkdir()
    (code / "paying.py").write_text(ACTION.format(undone=str(undone)))
    subprocess.run([sys.executable, "-c", CALLS, str(here), str(code)], check=False, timeout=120)
    with (code / "paying.py").open("a") as file:
        file.write(f"\nopen({str(imported)!r}, 'a').write('x')\n")
    shutil.copytree(here, elsewhere)

    ended = cli(elsewhere, "recover")
    assert "made elsewhere" in ended.stdout + ended.stderr and "store trust" in ended.stdout + ended.stderr, (
        ended
    )
    assert not imported.exists() and not undone.exists()

    assert cli(elsewhere, "store", "trust").returncode == 0
    assert cli(elsewhere, "recover").returncode == 0
    assert imported.exists() and undone.read_text() == "x"


def test_finding_32_a_module_that_the_person_names_is_imported(tmp_path: Path) -> None:
    code, here, elsewhere = tmp_path / "code", tmp_path / "here", tmp_path / "elsewhere"
    undone = tmp_path / "undone"
    code.mkdir()
    (code / "paying.py").write_text(ACTION.format(undone=str(undone)))
    subprocess.run([sys.executable, "-c", CALLS, str(here), str(code)], check=False, timeout=120)
    shutil.copytree(here, elsewhere)
    ended = cli(elsewhere, "recover", TAKEBACK_ACTIONS="paying", PYTHONPATH=str(code))
    assert ended.returncode == 0 and undone.read_text() == "x", ended


# 33: records that would exhaust memory.


def test_finding_33_a_record_that_inflates_without_end_is_damage(made: Path) -> None:
    """Of 1 MB it makes 1 GB; there is room for a third of that."""
    machine = zlib.compressobj(9, zlib.DEFLATED, -15)
    spaces = b" " * (8 << 20)
    bomb = b"".join(machine.compress(spaces) for _ in range(128)) + machine.flush()
    rewrite_records(made, "seq = 2", (), lambda body: bomb)
    ended = cli(made, "verify", most=350 << 20)
    assert ended.returncode == 6 and "Record 2 " in ended.stdout, ended


def test_finding_33_a_change_that_no_record_can_hold_is_refused(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MOST", 300)
    refused = pytest.raises(takeback.Refused, match="One record would take")
    with takeback.open(made) as tb, tb.run("more") as run, refused:
        run.write(tmp_path / "file", "three\n")
    assert (tmp_path / "file").read_text() == "two\n"


def test_finding_33_deeply_nested_json_is_damage_and_no_crash(made: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    rewrite_records(made, "seq = 2", (), lambda body: json.dumps({"a": 1})[:-1] + ',"b":' + deep + "}")
    ended = cli(made, "verify")
    assert ended.returncode == 6 and "nested too deeply" in ended.stdout, ended


def test_finding_33_deeply_nested_settings_are_refused_in_words(made: Path) -> None:
    (made / "settings.json").write_text("[" * 100_000)
    ended = cli(made, "log")
    assert ended.returncode == 2 and "settings.json is not JSON" in ended.stderr, ended


def test_a_note_that_another_process_replaced_is_read_again(tmp_path: Path):
    class Journal(NamedTuple):
        seq: int

        def read(self, sql: str, values: Any = ()) -> list[tuple[Any, ...]]:
            return [(b"%d" % values[0],)] if values else [(self.seq, b"%d" % self.seq, 1)]

    (tmp_path / "store").mkdir()
    one, other = (Witness(str(tmp_path / "state"), str(tmp_path / "store")) for _ in range(2))
    for seq in range(1, 6):
        assert (one, other)[seq % 2].remember(Journal(seq))
        assert (one.note(), other.note()) == (Note(seq, (b"%d" % seq).hex(), 1),) * 2
