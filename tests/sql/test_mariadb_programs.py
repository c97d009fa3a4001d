"""A program with its own driver on MariaDB: it has an account of its own, and all its transactions are one effect."""

import os
import subprocess
import sys
from contextlib import closing

import pymysql
import pytest

import takeback
from takeback.errors import NoRemedy, StoreBusy
from takeback.testing.adapter_suite import Desk
from tests.servers.process import PASSWORD
from tests.sql.engines import intended
from tests.sql.mariadb_cases import SHOP
from tests.sql.test_mariadb_matrix import Bench

pytestmark = pytest.mark.needs("mariadbd", "mariadb-install-db")

PROGRAM = """
import os, pymysql
from urllib.parse import urlsplit, unquote
url = urlsplit(os.environ["APP_DB"])
def connect():
    return pymysql.connect(host=url.hostname, port=url.port, user=url.username, password=unquote(url.password),
                           database=url.path[1:])
one, two = connect(), connect()
with one.cursor() as a, two.cursor() as b:
    for number in range(3):
        a.execute("UPDATE person SET name = %s WHERE id = 1", [f"ada {number}"])
        one.commit()
    a.execute("SET @takeback_op = NULL")
    b.execute("DELETE FROM orders WHERE no = 12")
    two.commit()
    a.execute("DELETE FROM person WHERE id = 1")
    one.commit()
    b.execute("INSERT INTO notes VALUES (77, NULL, 'mine')")
    two.rollback()
    b.execute("INSERT INTO notes VALUES (78, NULL, 'mine')")
    two.commit()
    b.execute("DELETE FROM notes")
    if "DIE" in os.environ:
        os.kill(os.getpid(), 9)
    two.rollback()
"""


@pytest.fixture
def bench(maria_database, monkeypatch):
    bench = Bench(maria_database)
    bench.plain(SHOP)
    bench.adapter().protect(bench.database, ())
    monkeypatch.setenv("APP_DB", maria_database.url)
    bench.database = bench.keyring.named("env:APP_DB")
    return bench


def accounts(bench):
    with closing(bench.place.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM mysql.user WHERE User LIKE '\\_tb\\_p%'")
        return cursor.fetchone()[0]


@pytest.mark.parametrize("dies", [False, True])
def test_a_program_with_its_own_driver_is_one_effect(bench, dies):
    before = bench.world()
    effect = intended(bench.adapter(), bench.database, "a program")
    environment = os.environ | dict(bench.adapter().enter(effect)) | ({"DIE": "1"} if dies else {})
    bench.plain(["UPDATE person SET name = 'by hand' WHERE id = 2"])

    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, timeout=120, check=not dies)
    receipt = bench.adapter().leave(effect)

    assert receipt["tables"]["notes"]["inserted"] == 1
    assert bench.adapter().leave(effect) == receipt
    assert accounts(bench) == 0
    Desk(bench.adapter()).undo(effect)
    bench.plain(["UPDATE person SET name = 'bob' WHERE id = 2"])
    assert bench.world() == before


def test_a_program_cannot_do_what_could_not_be_taken_back_nor_go_on_after_its_end(bench):
    effect = intended(bench.adapter(), bench.database, "a program")
    variables = bench.adapter().enter(effect)
    assert PASSWORD not in variables["APP_DB"]
    user, _, rest = variables["APP_DB"].partition("://")[2].partition(":")
    password = rest.partition("@")[0]
    options = {
        "host": "127.0.0.1",
        "port": bench.place.server.port,
        "user": user,
        "password": password,
        "database": bench.place.name,
        "autocommit": True,
    }
    with closing(pymysql.connect(**options)) as program, program.cursor() as cursor:
        for statement in (
            "DROP TABLE items",
            "ALTER TABLE items ADD x INT",
            "TRUNCATE items",
            "DELETE FROM _tb_op",
        ):
            with pytest.raises(pymysql.OperationalError):
                cursor.execute(statement)
        cursor.execute("BEGIN")
        cursor.execute("DELETE FROM items")
        with pytest.raises(StoreBusy):
            bench.adapter().leave(effect)
        cursor.execute("COMMIT")
    with pytest.raises(pymysql.OperationalError):
        pymysql.connect(**options)
    assert bench.adapter().leave(effect)["tables"] == {"items": {"inserted": 0, "updated": 0, "deleted": 4}}


def test_a_program_that_changed_nothing_leaves_nothing(bench):
    effect = intended(bench.adapter(), bench.database, "a program")
    bench.adapter().enter(effect)
    assert bench.adapter().found(effect, ()) is None
    assert accounts(bench) == 0


def test_without_the_variable_or_the_right_it_is_refused(bench, monkeypatch):
    adapter = bench.adapter()
    with pytest.raises(NoRemedy, match="own"):
        adapter.enter(intended(adapter, bench.keyring.named(bench.place.url), "a program"))
    with closing(bench.place.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("DROP USER IF EXISTS small")
        cursor.execute(f"CREATE USER small IDENTIFIED BY '{PASSWORD}'")
        cursor.execute(f"GRANT ALL PRIVILEGES ON `{bench.place.name}`.* TO small")
        monkeypatch.setenv("APP_DB", bench.place.url.replace("admin:", "small:"))
        with pytest.raises(NoRemedy, match="PROCESS"):
            adapter.enter(intended(adapter, bench.database, "a program"))
        cursor.execute("GRANT PROCESS ON *.* TO small")
        with pytest.raises(NoRemedy, match="account"):
            adapter.enter(intended(adapter, bench.database, "a program"))
        cursor.execute("DROP USER small")
    assert accounts(bench) == 0


def test_the_program_of_a_run_is_taken_back_with_it(bench, tmp_path):
    before = bench.world()
    with takeback.open(tmp_path / "store") as tb:
        with tb.run("agent") as run, run.program("env:APP_DB") as seen:
            subprocess.run(
                [sys.executable, "-c", PROGRAM],
                env=os.environ | dict(seen.environment),
                timeout=120,
                check=True,
            )
        (effect,) = seen.effects
        assert bench.world() != before
        tb.undo(effect)
    assert bench.world() == before


def test_at_the_command_line_it_is_one_effect_and_one_command_takes_it_back(bench, tmp_path):
    before = bench.world()
    environment = os.environ | {"TAKEBACK_STORE": str(tmp_path / "store")}
    takeback_ = [sys.executable, "-m", "takeback"]
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    subprocess.run(
        [*takeback_, "run", "--sql", "env:APP_DB", "--", sys.executable, str(program)],
        env=environment,
        timeout=120,
        check=True,
    )
    assert bench.world() != before
    subprocess.run([*takeback_, "undo"], env=environment, timeout=120, check=True)
    assert bench.world() == before
    assert accounts(bench) == 0
