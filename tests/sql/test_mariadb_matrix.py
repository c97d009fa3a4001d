"""Every case of the matrix on a real server: there and back is equal, or it is refused and nothing has changed."""

import re
from contextlib import closing

import pytest

from takeback.adapters.database import Keyring
from takeback.adapters.mariadb.adapter import MariaAdapter
from takeback.errors import Refused, TakebackError
from takeback.model.plan import Outcome
from takeback.testing.adapter_suite import Desk, undo_of
from tests.memory import MemoryBlobs
from tests.sql.engines import made
from tests.sql.mariadb_cases import CASES, REFUSED
from tests.sql.mariadb_definition_cases import DEFINITIONS


class Bench:
    def __init__(self, database):
        self.blobs, self.keyring = MemoryBlobs(), Keyring()
        self.place = database
        self.database = self.keyring.named(database.url)

    def adapter(self):
        return MariaAdapter(self.blobs, self.keyring)

    def plain(self, statements):
        with closing(self.place.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def do(self, *statements):
        effect = made(self.adapter(), self.database, *((statement, None) for statement in statements))
        assert effect, "nothing was changed"
        return effect

    def world(self):
        """Every table but ours: how it is made, and its rows in every bit that the server shows."""
        found = {}
        with closing(self.place.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00', sql_mode = ''")
            cursor.execute("SHOW FULL TABLES")
            for name, kind in cursor.fetchall():
                if name.startswith("_tb_") or kind == "VIEW":
                    continue
                cursor.execute(f"SHOW CREATE TABLE `{name.replace('`', '``')}`")
                made = _made(cursor.fetchone()[1])
                cursor.execute(f"SELECT * FROM `{name.replace('`', '``')}`")
                found[name] = (made, sorted(map(repr, cursor.fetchall())))
        return found


def _made(text):
    """A key that comes back comes back last, and the next number does not."""
    lines = re.sub(r" AUTO_INCREMENT=\d+", "", text).replace(",\n", "\n").split("\n")
    keys = [line for line in lines if re.match(r"  (\w+ )?KEY |  CONSTRAINT ", line)]
    return [line for line in lines if line not in keys], sorted(keys)


@pytest.mark.sampled(10)
@pytest.mark.needs("mariadbd", "mariadb-install-db")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_there_and_back_is_equal_or_it_is_refused_and_changes_nothing(case, maria_database):
    check(case, maria_database)


@pytest.mark.sampled(8)
@pytest.mark.needs("mariadbd", "mariadb-install-db")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if number % 4 == 0 else pytest.mark.slow)
        for number, case in enumerate(DEFINITIONS)
    ],
)
def test_definitions_are_there_and_back_equal_or_refused_and_change_nothing(case, maria_database):
    check(case, maria_database)


def check(case, maria_database):
    bench = Bench(maria_database)
    bench.plain(case.given)
    bench.adapter().protect(bench.database, ())
    before = bench.world()

    if case.expect == REFUSED:
        with pytest.raises(TakebackError) as refused:
            bench.do(*case.do)
        assert refused.value.hint
        assert bench.world() == before
        return
    effect = bench.do(*case.do)
    after = bench.world()
    assert after != before

    if case.later:
        bench.plain(case.later)
        later = bench.world()
        outcomes = bench.adapter().assess(undo_of(effect), effect).outcomes
        assert Outcome.CONFLICT in {one.outcome for one in outcomes}
        with pytest.raises(Refused):
            Desk(bench.adapter()).undo(effect)
        assert bench.world() == later
        return
    undo = Desk(bench.adapter()).undo(effect)
    assert bench.world() == before
    redo = Desk(bench.adapter()).undo(undo)
    assert bench.world() == after
    Desk(bench.adapter()).undo(redo)
    assert bench.world() == before
