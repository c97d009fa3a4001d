"""Tables that are created and altered on MariaDB while other people keep working."""

from contextlib import closing

import pytest

from takeback.errors import Conflict, NoRemedy, StatementFailed
from takeback.model.change import OnConflict
from tests.sql.mariadb_cases import USERS
from tests.sql.test_mariadb import do, undo
from tests.sql.test_mariadb_matrix import Bench

pytestmark = pytest.mark.needs("mariadbd", "mariadb-install-db")


@pytest.fixture
def bench(maria_database):
    bench = Bench(maria_database)
    bench.plain(USERS)
    bench.adapter().protect(bench.database, ())
    return bench


def rows(bench, asked="SELECT * FROM users ORDER BY id"):
    with closing(bench.place.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(asked)
        return list(cursor.fetchall())


def left_of_ours(bench):
    names = [name for (name,) in rows(bench, "SHOW TABLES LIKE '\\_tb\\_%'")]
    return [
        name for name in names if name.startswith(("_tb_kept", "_tb_left", "_tb_try", "_tb_new", "_tb_trash"))
    ]


def test_what_others_wrote_since_stays_when_a_dropped_column_comes_back(bench):
    effect = do(bench, "ALTER TABLE users DROP COLUMN name")
    assert effect.receipt["schema"] == ["Column users.name was dropped."]
    bench.plain(
        [
            "UPDATE users SET age = 99 WHERE id = 1",
            "DELETE FROM users WHERE id = 2",
            "INSERT INTO users VALUES (7, 70)",
        ]
    )
    undo(bench, effect)
    assert rows(bench) == [(1, "ada", 99), (3, "cy", None), (7, None, 70)]


def test_what_others_wrote_into_a_changed_column_stays_if_it_fits(bench):
    effect = do(bench, "ALTER TABLE users MODIFY name VARCHAR(3) CHARACTER SET latin1, MODIFY age DOUBLE")
    bench.plain(
        ["UPDATE users SET name = 'eve', age = 5 WHERE id = 1", "INSERT INTO users VALUES (7, 'flo', 70)"]
    )
    undo(bench, effect)
    assert rows(bench) == [(1, "eve", 5), (2, "bob", 20), (3, "cy", None), (7, "flo", 70)]


def test_a_value_that_was_cut_comes_back_whole(bench):
    bench.plain(["UPDATE users SET age = 300 WHERE id = 1"])
    before = bench.world()
    effect = do(bench, "ALTER TABLE users MODIFY age VARCHAR(9)")
    bench.plain(["UPDATE users SET name = 'other' WHERE id = 2"])
    undo(bench, effect)
    bench.plain(["UPDATE users SET name = 'bob' WHERE id = 2"])
    assert bench.world() == before


def test_force_drops_what_others_wrote_into_the_new_column_and_redo_brings_it_back(bench):
    effect = do(bench, "ALTER TABLE users ADD COLUMN x INT DEFAULT 4")
    bench.plain(["UPDATE users SET x = 1 WHERE id = 1"])
    with pytest.raises(Conflict, match="column x"):
        undo(bench, effect)
    forced = undo(bench, effect, OnConflict.FORCE)
    assert rows(bench)[0] == (1, "ada", 36)
    undo(bench, forced)
    assert [row[3] for row in rows(bench)] == [1, 4, 4]


def test_rows_that_came_with_the_default_do_not_stand_in_the_way(bench):
    effect = do(bench, "ALTER TABLE users ADD COLUMN x INT NOT NULL DEFAULT 4, ADD y TEXT")
    bench.plain(["INSERT INTO users (id, name) VALUES (9, 'new')"])
    undo(bench, effect)
    assert rows(bench)[-1] == (9, "new", None)


def test_what_was_altered_is_captured_from_then_on_and_its_effects_stand_on_it(bench):
    before = bench.world()
    altered = do(bench, "ALTER TABLE users ADD COLUMN x INT")
    changed = do(bench, "UPDATE users SET x = id")
    assert list(bench.adapter().standing_on(altered)) == [changed.id]
    undo(bench, changed)
    undo(bench, altered)
    assert bench.world() == before


def test_a_table_that_was_created_is_captured_from_then_on(bench):
    created = do(bench, "CREATE TABLE more (id INT PRIMARY KEY, user INT REFERENCES users (id))")
    filled = do(bench, "INSERT INTO more VALUES (1, 1), (2, NULL)")
    assert list(bench.adapter().standing_on(created)) == [filled.id]
    with pytest.raises(Conflict, match="other rows"):
        undo(bench, created)
    undo(bench, filled)
    undo(bench, created)
    assert "more" not in bench.world()
    assert do(bench, "DELETE FROM users WHERE id = 1")


def test_an_effect_from_before_can_be_taken_back_when_the_table_is_what_it_was(bench):
    before = bench.world()
    changed = do(bench, "UPDATE users SET age = 1")
    altered = do(bench, "ALTER TABLE users DROP COLUMN age")
    with pytest.raises(Conflict, match=r"was altered since \(column age is gone\)"):
        undo(bench, changed)
    undo(bench, altered)
    undo(bench, changed)
    assert bench.world() == before


def test_forgetting_an_alter_deletes_what_was_kept(bench):
    effect = do(bench, "ALTER TABLE users DROP COLUMN name")
    assert left_of_ours(bench)
    bench.adapter().release(effect)
    assert not left_of_ours(bench)
    with pytest.raises(Conflict, match="removed"):
        undo(bench, effect)


def test_what_fails_leaves_nothing(bench):
    before = bench.world()
    for statement in (
        "ALTER TABLE users ADD UNIQUE (age), ADD CHECK (age > 30)",
        "ALTER TABLE users MODIFY name INT",
        "CREATE TABLE more (id INT, id INT)",
    ):
        with pytest.raises(StatementFailed):
            do(bench, statement)
        assert bench.world() == before
    assert not left_of_ours(bench)
    assert do(bench, "DELETE FROM users WHERE id = 1")


def test_a_lossless_alter_keeps_no_copy(bench):
    do(bench, "CREATE INDEX quick ON users (age)")
    do(bench, "ALTER TABLE users RENAME COLUMN age TO years, ALTER name SET DEFAULT 'x'")
    do(bench, "ALTER TABLE users MODIFY id BIGINT AUTO_INCREMENT")
    assert not left_of_ours(bench)


def test_tables_of_takeback_are_not_to_be_defined(bench):
    for statement in ("ALTER TABLE _tb_op ADD x INT", "DROP TABLE _tb_op", "CREATE TABLE _tb_x (a INT)"):
        with pytest.raises((NoRemedy, StatementFailed)):
            do(bench, statement)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ["id%", "id.x %s", "it's", "a`b", 'ü " \\'])
def test_strange_names_of_columns(bench, name):
    key = f"`{name.replace('`', '``')}`"
    bench.plain([f"CREATE TABLE odd ({key} INT PRIMARY KEY, x INT)", "INSERT INTO odd VALUES (1, 5), (2, 6)"])
    bench.adapter().protect(bench.database, ())
    before = bench.world()

    for statement in (
        "ALTER TABLE odd ADD z INT DEFAULT 4",
        "ALTER TABLE odd DROP COLUMN x, ADD z INT DEFAULT 4",
    ):
        effect = do(bench, statement)
        undone = undo(bench, effect)
        assert bench.world() == before
        undo(bench, undo(bench, undone))
        assert bench.world() == before
    effect = do(bench, "ALTER TABLE odd ADD z INT DEFAULT 4")
    bench.plain([f"UPDATE odd SET z = 7 WHERE {key} = 2"])
    with pytest.raises(Conflict) as refused:
        undo(bench, effect)
    assert f"{name}=2" in str(refused.value)
