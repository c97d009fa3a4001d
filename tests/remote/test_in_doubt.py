"""A store whose server goes away while it commits: `run` and `shell` end with 125 and say last what is in doubt."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import takeback as library
from takeback.frontends.cli.answer import answer
from takeback.frontends.cli.commands import shell
from takeback.runs.run import Run
from takeback.storage.postgres.database import PostgresDatabase
from tests.servers.postgres import PgDatabase
from tests.servers.wire import Wire


class Away:
    """From the n-th append on, which is committed without an answer."""

    def __init__(self, wire: Wire, patch: pytest.MonkeyPatch) -> None:
        self.wire, self.after = wire, 0
        appended = PostgresDatabase.appended

        def gone(database: PostgresDatabase, seq: int, hash: bytes) -> None:
            appended(database, seq, hash)
            self.after -= 1
            if not self.after:
                wire.close_after = True
                wire.deafen()

        patch.setattr(PostgresDatabase, "appended", gone)
        patch.setattr(PostgresDatabase.__init__, "__defaults__", (1,))  # of patience, in seconds


@pytest.fixture
def away(wire: Wire, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Away:
    monkeypatch.chdir(tmp_path)
    return Away(wire, monkeypatch)


@pytest.mark.parametrize(("as_json", "nth"), [(False, 1), (True, 2), (False, 2)])
def test_an_undo_in_place(
    away: Away,
    pg_database: PgDatabase,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    as_json: bool,
    nth: int,
) -> None:
    undo, made = Run.undo, list[str]()

    def unanswered(run: Run, effect: Any) -> Any:
        made.append(effect.id)
        away.after = nth
        return undo(run, effect)

    monkeypatch.setattr(Run, "undo", unanswered)
    Path("here").mkdir()
    words = ["run", "--store", away.wire.through(pg_database.url), *(["--json"] if as_json else [])]
    code = answer([*words, "--in-place", "--root", "here", "--", "sh", "-c", "echo > here/made; exit 3"])

    said = capsys.readouterr()
    assert code == 125 and len(made) == 1
    assert "tries again" not in said.out + said.err and "takeback undo" not in said.err
    if as_json:
        error = json.loads(said.out)["error"]
        assert (error["type"], error["exit_code"]) == ("InDoubt", 7)
        named = error["effect"]
    else:
        last = said.err.splitlines()[-1]
        assert last.startswith("takeback: in doubt: "), said.err
        named = last.split()[3].rstrip(";")
    with library.open(pg_database.url, recover=False) as tb:
        found = tb.effect(named)
        assert made[0] in (found.id, found.undoes)


def test_a_shell_on_a_terminal(
    away: Away, pg_database: PgDatabase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def typed(prompt: Any) -> Any:
        def lines() -> Iterator[str | None]:
            yield "echo > made"
            away.after = 1
            yield ":commit"
            away.wire.close_after = False
            yield "true"
            yield None

        typing = lines()
        return lambda more: next(typing)

    monkeypatch.setattr(shell, "from_terminal", typed)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    code = answer(["shell", "--store", away.wire.through(pg_database.url)])

    said = capsys.readouterr()
    assert code == 125
    assert said.err.splitlines()[-1].startswith("takeback: in doubt"), said.err
    assert said.err.count("takeback: in doubt") == 2, "at once, and again when the session has ended"
