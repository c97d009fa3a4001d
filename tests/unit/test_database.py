"""Which database: what the journal may know of it, and what it may not."""

import pytest

from takeback.adapters.database import Keyring, first_words, summary
from takeback.errors import Misuse, Refused, ResourceUnreachable
from takeback.model.database import (
    Database,
    engine_of,
    from_json,
    is_of_database,
    resource_of,
    target_of,
    to_json,
    without_password,
)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:secret@db:5432/app", "postgresql://ann@db:5432/app"),
        ("postgresql://ann:se:cr@et@db/app", "postgresql://ann@db/app"),
        ("postgresql://:secret@db/app", "postgresql://@db/app"),
        ("postgresql:///app?host=/tmp&password=secret&user=ann", "postgresql:///app?host=/tmp&user=ann"),
        ("postgresql:///app?PASSWORD=secret", "postgresql:///app"),
        ("redis://:secret@localhost:6379/0", "redis://@localhost:6379/0"),
        ("sqlite:////var/lib/a@b:c.db", "sqlite:////var/lib/a@b:c.db"),
        ("mariadb://ann:p%40ss@db/app?ssl=1", "mariadb://ann@db/app?ssl=1"),
    ],
)
def test_a_password_is_taken_out_wherever_it_stands(url: str, shown: str) -> None:
    assert without_password(url) == shown
    assert "secret" not in without_password(url)


def test_two_ways_to_the_same_database_name_the_same_resource() -> None:
    one = Database("postgres", "postgresql://ann@db/app?sslmode=require")
    other = Database("postgres", "postgresql://bob@db/app")
    assert resource_of(one) == resource_of(other) == "postgresql://db/app"
    assert resource_of(one, "public.users", "id=4/2") == "postgresql://db/app/public.users/id=4%2F2"


def test_two_effects_never_share_a_target() -> None:
    database = Database("sqlite", "sqlite:////x.db")
    assert target_of(database, "a") != target_of(database, "b")
    assert target_of(database, "a").startswith(resource_of(database) + "/")


def test_it_goes_through_json() -> None:
    database = Database("postgres", "postgresql://db/app", "env:APP", "123/5")
    assert from_json(to_json(database)) == database
    assert from_json(to_json(Database("redis", "redis://h"))) == Database("redis", "redis://h")


@pytest.mark.parametrize(
    "url",
    [
        "oracle://x",
        "postgresql",
        "",
        "/tmp/x.db",
        "http://x:pw@y",
        "oracle://x:pw/1@y",
        "host=h password=pw",
        "me:pw@h/db",
        "pw:x://y",
    ],
)
def test_an_engine_that_is_not_known_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(Misuse) as refused:
        engine_of(url)
    assert "pw" not in str(refused.value) and refused.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://x:pw/1@y/db",
        "postgresql://x:pw?1@y/db",
        "mariadb://x:pw#1@y/db",
        "mariadb://x:pw/1@y/db",
        "redis://:pw#1@y/0",
        "redis://:pw/1@y/0",
    ],
)
def test_a_password_that_could_be_read_as_something_else_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(Misuse) as refused:
        Keyring().named(url)
    assert "pw" not in str(refused.value) and "%2F" in refused.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://x:pw#1@y/db",
        "postgresql://h:5432/db?user=me@azure",
        "postgresql://[::1]:5432/db?user=me@azure",
        "postgresql:///app?host=/tmp&user=me@azure",
        "redis://y:6379/0",
        "sqlite:////tmp/a#b@c?d.db",
    ],
)
def test_what_is_clear_is_let_through(url: str) -> None:
    assert Keyring().named(url).engine


def test_engines_are_known_by_scheme() -> None:
    assert engine_of("postgresql+psycopg://x/y") == "postgres"
    assert engine_of("MySQL://x/y") == "mariadb"
    assert is_of_database("redis://h/0/k") and not is_of_database("file:///x")


def test_the_ring_knows_what_it_was_told_and_the_journal_never_does() -> None:
    ring = Keyring()
    database = ring.named("postgresql://ann:secret@db/app")
    assert "secret" not in str(to_json(database))
    assert ring.url(database) == "postgresql://ann:secret@db/app"
    assert Keyring().url(database) == "postgresql://ann@db/app"


def test_an_address_in_the_environment_is_looked_up_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APP_DB", "redis://:one@h/0")
    database = Keyring().named("env:APP_DB")
    assert database == Database("redis", "redis://@h/0", "env:APP_DB")
    monkeypatch.setenv("APP_DB", "redis://:two@h/0")
    assert Keyring().url(database) == "redis://:two@h/0"
    monkeypatch.delenv("APP_DB")
    with pytest.raises(ResourceUnreachable, match="APP_DB"):
        Keyring().url(database)
    with pytest.raises(Misuse):
        Keyring().named("env:")


def test_a_variable_that_now_names_another_engine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APP", "mariadb://h/app")
    database = Keyring().named("env:APP")
    monkeypatch.setenv("APP", "redis://:pw@h/0")
    with pytest.raises(Refused) as refused:
        Keyring().url(database)
    assert "pw" not in str(refused.value) and "APP" in str(refused.value)


def test_what_another_process_was_told_is_found_among_the_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Keyring().named("mysql://agent:secret@db:3306/app?ssl=1")
    monkeypatch.setenv(
        "TAKEBACK_SQL", "redis://:x@db:3306/app mariadb://owner:pw@db/app mariadb://owner:pw@db:3306/app"
    )
    assert Keyring().url(database) == "mariadb://owner:pw@db:3306/app"
    monkeypatch.setenv("TAKEBACK_SQL", "mariadb://owner:pw@db:3306/other")
    assert Keyring().url(database) == "mysql://agent@db:3306/app?ssl=1"
    told = Keyring()
    monkeypatch.setenv("TAKEBACK_SQL", "mysql://owner:pw@db:3306/app")
    assert told.url(told.named("mysql://agent:secret@db:3306/app")) == "mysql://agent:secret@db:3306/app"


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("UPDATE t\n  SET a = 'it''s secret'\n  WHERE id = 4;", "UPDATE t SET a = '…' WHERE id = 4"),
        ("INSERT INTO t VALUES (E'a\\'secret', 1)", "INSERT INTO t VALUES (E'…'"),
        ("DO $$ begin secret end $$", "DO '…'"),
        ("DO $a$ secret $$ secret $a$; SELECT 1", "DO '…'; SELECT 1"),
        ("-- secret\nSELECT 1 /* secret */ + 2", "SELECT 1 + 2"),
        ("SELECT 'secret without an end", "SELECT '…'"),
        ("", ""),
    ],
)
def test_a_summary_shows_no_string_and_no_comment(statement: str, shown: str) -> None:
    assert summary(statement) == shown


def test_a_summary_is_one_short_line() -> None:
    assert len(summary("SELECT " + "a, " * 500)) == 100


def test_first_words_look_past_comments() -> None:
    assert first_words("/* DROP */ -- x\n  create  table t", 2) == "CREATE TABLE"
    assert first_words("(select 1)") == "SELECT"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE \"it's\" SET pw='SECRET'",
        "UPDATE [it's] SET pw='SECRET'",
        "UPDATE `it's` SET pw='SECRET'",
        r"UPDATE t SET a='x\', pw='SECRET'",
        r"UPDATE t SET a=E'x\'', pw='SECRET'",
        r'UPDATE t SET a="x\", pw="SECRET"',
        "UPDATE t SET a = ARRAY['x]', 'SECRET']",
        'UPDATE t SET a = "SECRET"',
        "INSERT INTO t VALUES ('it''s', 'SECRET",
        "SELECT $a$ SECRET $b$ SECRET $a$, 'SECRET' -- SECRET's",
    ],
)
def test_whatever_the_engine_takes_for_a_quote_it_is_not_told(statement: str) -> None:
    assert "SECRET" not in summary(statement)


def test_an_at_sign_in_a_password_is_not_taken_for_the_host() -> None:
    with pytest.raises(Misuse) as refused:
        Keyring().named("postgresql://app:pa@geheim@db/shop")
    assert "geheim" not in str(refused.value) and "%40" in refused.value.hint
    assert Keyring().named("mariadb://app:pa@geheim@db/shop").url == "mariadb://app@db/shop"
