"""The servers of the tests are real, apart from each other, and survive being killed."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.servers.mariadb import MariaDatabase
from tests.servers.place import Place
from tests.servers.postgres import PgDatabase, Postgres
from tests.servers.process import LIMIT, alive, wait_until
from tests.servers.redis import RedisDatabase


def test_a_database_is_empty_and_its_server_keeps_what_it_answered(pg_each_database: PgDatabase) -> None:
    server = pg_each_database.server
    with closing(pg_each_database.connect()) as connection:
        assert connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchone() == (0,)
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        connection.execute("CREATE TABLE t (id int)")
        connection.execute("INSERT INTO t VALUES (1)")
    server.kill()
    server.start()
    with closing(pg_each_database.connect()) as connection:
        assert connection.execute("SELECT id FROM t").fetchall() == [(1,)]


def test_two_major_versions(postgres: Postgres, postgres_other: Postgres) -> None:
    assert postgres.version == 15
    assert postgres_other.version > 15


def test_a_backend_dies_alone_for_its_client(pg_database: PgDatabase) -> None:
    with closing(pg_database.connect()) as victim:
        pg_database.server.kill_backend(victim.info.backend_pid)
        with pytest.raises(psycopg.OperationalError):
            victim.execute("SELECT 1")
    with closing(pg_database.connect()) as other:
        assert other.execute("SELECT 1").fetchone() == (1,)


def test_no_server_is_root_or_on_its_usual_port(
    pg_database: PgDatabase, maria_database: MariaDatabase, redis_database: RedisDatabase
) -> None:
    for server, usual in (
        (pg_database.server, 5432),
        (maria_database.server, 3306),
        (redis_database.server, 6379),
    ):
        assert server.port != usual
        assert Path(f"/proc/{server.pid}").stat().st_uid != 0


def test_a_password_is_asked_for(pg_database: PgDatabase) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(pg_database.server.url(pg_database.name, password="wrong"))


def test_transactions_can_be_prepared_where_it_says_so(
    pg_prepared_database: PgDatabase, pg_database: PgDatabase
) -> None:
    for database, allowed in ((pg_prepared_database, True), (pg_database, False)):
        with closing(database.connect()) as connection:
            connection.execute("BEGIN")
            connection.execute("CREATE TABLE t (id int)")
            if allowed:
                connection.execute("PREPARE TRANSACTION 'one'")
                connection.execute("ROLLBACK PREPARED 'one'")
            else:
                with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
                    connection.execute("PREPARE TRANSACTION 'one'")


def test_another_server_for_one_test(postgres: Postgres) -> None:
    asked = (
        "SELECT system_identifier, current_setting('default_transaction_read_only') FROM pg_control_system()"
    )
    with (
        postgres.another(fresh=True, default_transaction_read_only="on") as server,
        closing(server.connect()) as here,
        closing(postgres.connect()) as there,
    ):
        one, two = here.execute(asked).fetchone(), there.execute(asked).fetchone()
    assert one and two and one[0] != two[0] and (one[1], two[1]) == ("on", "off")
    assert not server.runs


def test_mariadb_keeps_what_it_answered(maria_database: MariaDatabase) -> None:
    with closing(maria_database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id int)")
        cursor.execute("INSERT INTO t VALUES (1)")
    maria_database.server.kill()
    maria_database.server.start()
    with closing(maria_database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, @@innodb_flush_log_at_trx_commit FROM t")
        assert list(cursor.fetchall()) == [(1, 1)]


def test_redis_keeps_what_it_answered(redis_database: RedisDatabase) -> None:
    with closing(redis_database.connect()) as connection:
        assert connection.dbsize() == 0
        connection.set("a", "1")
    redis_database.server.kill()
    redis_database.server.start()
    with closing(redis_database.connect()) as connection:
        assert connection.get("a") == b"1"


PROGRAM = """
import sys
from pathlib import Path
from tests.servers import postgres, mariadb, redis
here = Path(sys.argv[1])
programs = postgres.of_the_system()
servers = [
    postgres.Postgres(programs, here / "pg", postgres.made(programs, here, "15")),
    mariadb.MariaDB(mariadb.of_the_system(), here / "maria", mariadb.made(mariadb.of_the_system(), here)),
    redis.Redis(redis.of_the_system(), here / "redis"),
]
for server in servers:
    server.start()
print(*(server.pid for server in servers), flush=True)
sys.stdin.read()
"""


def test_servers_die_with_the_tests_that_are_killed(
    server_place: Place, pg_database: PgDatabase, maria_database: MariaDatabase, redis_database: RedisDatabase
) -> None:
    """The fixtures are asked for only so that this is skipped where a server is missing."""
    tests = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(server_place.own / "killed")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    with tests:
        try:
            assert tests.stdout
            pids = [int(word) for word in tests.stdout.readline().split()]
        finally:
            tests.send_signal(signal.SIGKILL)
            tests.wait(LIMIT)
    assert len(pids) == 3
    wait_until(lambda: not any(alive(pid) for pid in pids), "the servers ended")
