"""Values of every kind come back as they are stored, byte by byte: also those that other forms would change on the way,
such as json with blanks, arrays that begin at 5, a negative zero or a date before Christ."""

from contextlib import closing
from datetime import date

import pytest

from takeback.errors import StatementFailed
from tests.sql.engines import intended
from tests.sql.pg_bench import PgBench

SETUP = (
    "create type mood as enum ('sad', 'ok', 'happy')",
    "create type pair as (a int, b text)",
    "create domain positive as int check (value > 0)",
    "create type floats as range (subtype = float8, subtype_diff = float8mi)",
)
VALUES: tuple[tuple[str, str], ...] = (
    ("bool", "true"), ("bool", "false"),
    ("int2", "-32768"), ("int4", "2147483647"), ("int8", "-9223372036854775808"), ("oid", "4294967295"),
    ("float4", "'-0'"), ("float4", "'NaN'"), ("float4", "1.1"), ("float8", "'-0'"), ("float8", "'-Infinity'"),
    ("float8", "0.1 + 0.2"), ("float8", "5e-324"), ("float8", "'NaN'"),
    ("numeric", "1.10"), ("numeric", "'NaN'"), ("numeric", "'Infinity'"), ("numeric", "1e-40"), ("numeric", "'0.000'"),
    ("numeric(10, 2)", "-12345678.90"), ("numeric", "repeat('9', 500)::numeric"), ("money", "'-12.34'"),
    ("text", "''"), ("text", "E'tab\\t nl\\n quote'' back\\\\ \\u00e9'"), ("text", "repeat('long ', 20000)"),
    ("text", "'NULL'"), ("varchar(5)", "'ab   '"), ("char(5)", "'ab'"), ('"char"', "'x'"), ("name", "'a name'"),
    ("bytea", "'\\x'"), ("bytea", "'\\x00ff0a27'"), ("bytea", "decode(repeat('00ff', 50000), 'hex')"),
    ("date", "'0044-03-15 BC'"), ("date", "'infinity'"), ("date", "'2024-02-29'"),
    ("time", "'24:00:00'"), ("time(2)", "'12:34:56.78'"), ("timetz", "'12:34:56.123456-12:30'"),
    ("timestamp", "'4713-01-01 00:00:00 BC'"), ("timestamp", "'-infinity'"),
    ("timestamptz", "'2024-06-30 23:59:59.999999+05:45'"), ("timestamptz", "'infinity'"),
    ("interval", "'1 mon -1 day 25:00:00.000001'"), ("interval", "'-178000000 years'"), ("interval", "'24:00:00'"),
    ("interval year to month", "'13 months'"),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
    ("json", "'{\"b\": 1,  \"a\": 2, \"a\": 3}'"), ("json", "'null'"), ("jsonb", "'null'"),
    ("jsonb", "'{\"a\": 1.10}'"),
    ("jsonb", "'[]'"), ("xml", "'<a  b=\"1\"><!-- c --></a>'"), ("jsonpath", "'$.a[*] ? (@ > 1)'"),
    ("inet", "'10.1.2.3/8'"), ("inet", "'::1'"), ("cidr", "'10.0.0.0/8'"), ("macaddr", "'08:00:2b:01:02:03'"),
    ("macaddr8", "'08:00:2b:01:02:03:04:05'"),
    ("bit(3)", "B'101'"), ("bit varying", "B''"), ("bit varying(9)", "B'000'"),
    ("point", "'(1.5,-0)'"), ("line", "'{1,2,3}'"), ("lseg", "'[(0,0),(1,1)]'"), ("box", "'(2,2),(1,1)'"),
    ("path", "'[(0,0),(1,1)]'"), ("path", "'((0,0),(1,1))'"), ("polygon", "'((0,0),(1,1),(2,0))'"),
    ("circle", "'<(1,2),3>'"),
    ("tsvector", "'fat:2,4A cat:3'"), ("tsquery", "'fat & (rat | !cat)'"),
    ("int[]", "'[5:7]={1,NULL,3}'"), ("int[]", "'{}'"), ("int[][]", "'{{1,2},{3,4}}'"),
    ("text[]", "'{\"NULL\",NULL,\"\"}'"),
    ("numeric[]", "'{1.10,1.1}'"),
    ("mood", "'happy'"), ("mood[]", "'{sad,ok}'"), ("pair", "row(null, 'x')"), ("pair[]", "array[row(1, '(,)')::pair]"),
    ("positive", "5"), ("floats", "'[0,1e-300)'"),
    ("int4range", "'[1,10)'"), ("int4range", "'empty'"), ("numrange", "'(,1.50]'"),
    ("tstzrange", "'[2024-01-01,infinity]'"),
    ("daterange", "'[2024-01-01,)'"), ("int4multirange", "'{[1,2),[5,9)}'"),
    ("pg_lsn", "'16/B374D848'"), ("txid_snapshot", "'10:20:10,14,15'"), ("regclass", "'pg_class'"), ("tid", "'(7,1)'"),
)  # fmt: skip
COLUMNS = ", ".join(f"v{place} {kind}" for place, (kind, _) in enumerate(VALUES))
NAMES = ", ".join(f"v{place}" for place, _ in enumerate(VALUES))
ROW = ", ".join(f"({value})::{kind}" for kind, value in VALUES)


@pytest.fixture(params=["with a key", "without a key"])
def bench(request, pg_database):
    bench = PgBench(pg_database.url)
    key = " primary key" if request.param == "with a key" else ""
    bench.run(*SETUP, f"create table t (id int{key}, {COLUMNS})", "create table was (like t)")
    bench.run(
        f"insert into was select 1, {ROW}",
        "insert into was (id) values (2)",
        "insert into t select * from was",
    )
    bench.protect("t")
    yield bench
    bench.close()


def differing(bench: PgBench) -> list[str]:
    """Columns that are not as they were, compared as they are stored."""
    assert bench.rows("select id from t order by id") == [(1,), (2,)]
    same = "not record_image_eq(row(t.v{0}), row(w.v{0}))"
    return [
        f"{VALUES[place][0]} {VALUES[place][1][:40]}"
        for place in range(len(VALUES))
        if bench.rows(f"select 1 from t join was w using (id) where {same.format(place)}")
    ]


def test_there_are_eighty_of_them():
    assert len(VALUES) >= 80


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "statement",
    [
        "delete from t",
        "truncate t",
        "update t set " + ", ".join(f"v{place} = null" for place in range(len(VALUES))),
        "update t set id = id + 10",
    ],
    ids=["delete", "truncate", "null", "other key"],
)
def test_every_value_comes_back(bench, statement):
    effect = bench.do(statement)
    undo = bench.undo(effect)
    assert differing(bench) == []
    bench.undo(bench.undo(undo))
    assert differing(bench) == []


def test_every_value_is_put_in_again(bench):
    bench.run("delete from t")
    effect = bench.do("insert into t select * from was")
    undo = bench.undo(effect)
    assert bench.rows("select count(*) from t") == [(0,)]
    bench.undo(undo)
    assert differing(bench) == []


def test_settings_of_the_client_do_not_matter(bench):
    """As text a date would be read back as another, and a float lose digits."""
    bench.run(
        "alter role postgres set datestyle = 'German'", "alter role postgres set extra_float_digits = -15"
    )
    try:
        bench.undo(bench.do("delete from t"))
    finally:
        bench.run("alter role postgres reset all")
    assert differing(bench) == []


@pytest.mark.parametrize(
    ("statement", "parameters", "says"),
    [
        ("update odd set n = %s", ["a\0b"], "NUL"),
        ("update odd set n = %s", [{"a": 1}], "cannot adapt type 'dict'"),
        ("update odd set n = %s", [1, 2], "1 placeholders but 2 parameters"),
        ("update odd set n = %s where n like '50%'", ["x"], "placeholder"),
        ("update odd set n = %s", ["\ud800"], "surrogates"),
        ("update odd set n = %s", 7, "int"),
        ("select %s::text", ["a\0b"], "NUL"),
    ],
)
def test_a_wrong_parameter_is_no_lost_connection(pg_database, statement, parameters, says):
    with closing(PgBench(pg_database.url)) as bench:
        bench.run("create table odd (n text)", "insert into odd values ('a')")
        bench.protect()
        with bench.session() as session:
            effect = intended(bench.adapter(), session.database, "odd")
            with pytest.raises(StatementFailed, match=says) as failed:
                if session.read(statement, parameters) is None:
                    session.begin(effect)
                    session.execute(statement, parameters)
            assert "Nothing was changed" in failed.value.hint and "SQLSTATE" not in failed.value.hint
            session.rollback()
            session.begin(effect)
            session.execute("update odd set n = %s", ["b"])
            assert session.commit()
        assert bench.rows("select n from odd") == [("b",)]


def test_times_that_python_has_no_room_for_are_read_as_text(pg_database):
    query = (
        "select date 'infinity', date '0044-03-15 BC', timestamp '-infinity', timestamptz 'infinity',"
        " date '2026-11-17', array[date 'infinity']"
    )
    with closing(PgBench(pg_database.url)) as bench:
        bench.protect()
        with bench.session() as session:
            (row,) = session.read(query, ()).rows
    assert row == ("infinity", "0044-03-15 BC", "-infinity", "infinity", date(2026, 11, 17), ["infinity"])
