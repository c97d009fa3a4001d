"""What is recorded of a command line has no password in it."""

import pytest

from takeback.runs.commands.request import shown, told

COVERED = [
    ("psql postgresql://me:geheim7@h/db", "psql postgresql://me:[masked]@h/db"),
    ("psql postgresql://me:ge@heim7@h/db", "psql postgresql://me:[masked]@h/db"),
    ("redis-cli -u redis://:geheim7@h/0", "redis-cli -u redis://:[masked]@h/0"),
    ("tool --password=geheim7 x", "tool --password=[masked] x"),
    ("tool --password geheim7 x", "tool --password [masked] x"),
    ("tool --db-password geheim7", "tool --db-password [masked]"),
    ("env PGPASSWORD=geheim7 psql", "env PGPASSWORD=[masked] psql"),
    ("env MYSQL_PWD=geheim7 mysql", "env MYSQL_PWD=[masked] mysql"),
    ("env API_KEY=geheim7 tool", "env API_KEY=[masked] tool"),
    ("mysql -uroot -pgeheim7 app", "mysql -uroot -p[masked] app"),
]


@pytest.mark.parametrize(("typed", "recorded"), COVERED)
def test_a_password_is_covered(typed: str, recorded: str) -> None:
    assert told(tuple(typed.split())) == recorded.split()
    assert shown(tuple(typed.split())) == recorded


@pytest.mark.parametrize(("typed", "recorded"), [pair for pair in COVERED if "-pgeheim7" not in pair[0]])
def test_in_what_a_shell_is_given_too(typed: str, recorded: str) -> None:
    assert shown(("/bin/sh", "-c", typed)) == recorded
    assert told(("/bin/sh", "-c", typed)) == ["/bin/sh", "-c", recorded]


@pytest.mark.parametrize(
    "typed",
    [
        "psql postgresql://me@h:5432/db",
        "curl http://h:80/a@b",
        "tool --password-file /etc/x",
        "tool --password=$PW",
        "tool --password --force",
        "ssh -p2222 host",
        "env PWD=/x ls",
        "git commit -m token",
    ],
)
def test_nothing_else_is(typed: str) -> None:
    assert told(tuple(typed.split())) == typed.split()


def test_it_is_short_and_in_valid_characters() -> None:
    assert len(shown(("x" * 100,))) == 60
    assert shown(("\udcff",)).isprintable()
    assert told(("\udcff",)) == ["\\xff"]
