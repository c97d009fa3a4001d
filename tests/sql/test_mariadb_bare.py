"""MariaDB with a table that is not captured: what cannot change it goes on, what could is refused."""

from contextlib import closing

import pytest

from takeback.errors import NoRemedy
from tests.sql.engines import intended
from tests.sql.test_mariadb import do, names, undo
from tests.sql.test_mariadb_matrix import Bench

pytestmark = pytest.mark.needs("mariadbd", "mariadb-install-db")

USERS = (
    "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(40))",
    "INSERT INTO users VALUES (1, 'ada'), (2, 'bob')",
    "CREATE TABLE teams (id INT PRIMARY KEY)",
    "CREATE VIEW people AS SELECT id, name FROM users",
)


@pytest.fixture
def bench(maria_database):
    bench = Bench(maria_database)
    bench.plain(USERS)
    bench.adapter().protect(bench.database, ())
    return bench


def refused(bench, statement):
    before = bench.world()
    with pytest.raises(NoRemedy, match="would not be captured") as error:
        do(bench, statement)
    with closing(bench.adapter().connect(bench.database)) as session:
        session.begin(intended(bench.adapter(), session.database, "…"))
        with pytest.raises(NoRemedy, match="would not be captured"):
            session.execute(statement, None)
    assert bench.world() == before
    return str(error.value)


def test_a_new_table_stops_nothing_that_cannot_change_it(bench):
    bench.plain(["CREATE TABLE newt (id INT PRIMARY KEY)"])

    effect = do(bench, "UPDATE users SET name = 'x'")
    with closing(bench.adapter().connect(bench.database)) as session:
        assert session.read("SELECT COUNT(*) FROM users", None).rows == ((2,),)
        assert session.read("SELECT COUNT(*) FROM newt", None).rows == ((0,),)
    undo(bench, effect)

    assert names(bench) == {1: "ada", 2: "bob"}
    assert "newt" in refused(bench, "INSERT INTO newt VALUES (1)")


def test_a_new_table_that_comes_during_a_transaction_stops_only_what_changed_it(bench):
    for statement, passes in (("DELETE FROM users", True), ("INSERT INTO newt VALUES (1)", False)):
        with closing(bench.adapter().connect(bench.database)) as session:
            bench.plain(["CREATE TABLE IF NOT EXISTS newt (id INT PRIMARY KEY)"])
            session._uncovered = False  # as if it had come after this was looked at
            session.begin(intended(bench.adapter(), session.database, "…"))
            session.execute(statement, None)
            if passes:
                assert session.commit()
            else:
                with pytest.raises(NoRemedy, match="newt"):
                    session.commit()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("made", "statement"),
    [
        ("CREATE VIEW v AS SELECT * FROM newt", "INSERT INTO v VALUES (1)"),
        ("CREATE PROCEDURE p() INSERT INTO newt VALUES (1)", "CALL p()"),
        ("CREATE PROCEDURE p() EXECUTE IMMEDIATE CONCAT('DELETE FROM ', 'newt')", "CALL p()"),
        (
            "CREATE FUNCTION f() RETURNS INT BEGIN INSERT INTO newt VALUES (1); RETURN 1; END",
            "UPDATE users SET id = F()",
        ),
        (
            "CREATE TRIGGER t AFTER INSERT ON teams FOR EACH ROW INSERT INTO newt VALUES (new.id)",
            "INSERT INTO teams VALUES (1)",
        ),
        ("SELECT 1", "EXECUTE IMMEDIATE CONCAT('INSERT INTO ne', 'wt VALUES (1)')"),
        ("SELECT 1", "BEGIN NOT ATOMIC EXECUTE IMMEDIATE CONCAT('INSERT INTO ne', 'wt VALUES (1)'); END"),
        ("SELECT 1", "INSERT INTO `NEWT` VALUES (1)"),
        ("SELECT 1", "/*! INSERT */ INTO newt VALUES (1)"),
        ("SELECT 1", "ALTER TABLE newt ADD COLUMN b INT"),
        ("SELECT 1", "TRUNCATE newt"),
        (
            "CREATE TABLE members (team INT, FOREIGN KEY (team) REFERENCES teams (id) ON DELETE CASCADE)",
            "DELETE FROM teams",
        ),
    ],
)
def test_whatever_leads_to_a_new_table_is_refused(bench, made, statement):
    bench.plain(["CREATE TABLE newt (id INT PRIMARY KEY)", made])
    if "INSERT */" in statement:
        with pytest.raises(NoRemedy):
            do(bench, statement)
    else:
        refused(bench, statement)
    assert do(bench, "UPDATE users SET name = 'x'")


def test_a_table_whose_columns_were_changed_stops_only_what_changes_it(bench):
    bench.plain(["ALTER TABLE teams ADD COLUMN name VARCHAR(9)"])
    assert do(bench, "DELETE FROM users")
    refused(bench, "INSERT INTO teams VALUES (1, 'a')")


def test_an_account_that_may_not_see_triggers_reads_and_is_told_what_it_lacks(bench):
    server = bench.place.server
    bench.plain(
        [
            "CREATE USER app_rows@'%' IDENTIFIED BY 'x'",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON `{bench.place.name}`.* TO app_rows@'%'",
        ]
    )
    try:
        adapter = bench.adapter()
        database = bench.keyring.named(server.url(bench.place.name, "app_rows", "x"))
        cover = adapter.cover(database)
        assert cover.protected == () and all("right TRIGGER" in why for _, why in cover.unprotected)
        with closing(adapter.connect(database)) as session:
            assert session.read("SELECT COUNT(*) FROM users", None).rows == ((2,),)
            session.begin(intended(adapter, session.database, "…"))
            with pytest.raises(NoRemedy, match="right TRIGGER"):
                session.execute("DELETE FROM users", None)
        assert names(bench) == {1: "ada", 2: "bob"}
    finally:
        bench.plain(["DROP USER app_rows@'%'"])
