"""A command in one line is what redis-cli makes of it."""

import subprocess

import pytest

from takeback.adapters.redis.commands import words_of
from takeback.errors import Misuse
from tests.servers.process import PASSWORD
from tests.servers.redis import RedisDatabase

LINES = (
    "  ECHO\tx  ",
    r'ECHO "a\x00b\n"',
    r'ECHO "\r\t\b\a\\\" \q \xZ"',
    r"ECHO 'it\'s \n'",
    r"ECHO a\nb",
    "ECHO 'two words'",
    'ECHO ""',
    'ECHO pre"fixed"',
    "ECHO über",
    "ECHO a\u00a0b",
)
WRONG = ("ECHO 'open", 'ECHO "open', 'ECHO "x"y', r"ECHO 'x\'", r'ECHO "x\"')


@pytest.mark.parametrize("line", LINES)
def test_it_is_taken_apart_as_redis_cli_does(redis_database: RedisDatabase, line: str) -> None:
    with redis_database.connect() as client:
        ours = client.execute_command(*words_of(line))
    assert ours == _said_by_redis_cli(redis_database, line).removesuffix(b"\n")


@pytest.mark.parametrize("line", WRONG)
def test_what_redis_cli_does_not_take_is_refused(redis_database: RedisDatabase, line: str) -> None:
    assert b"Invalid argument" in _said_by_redis_cli(redis_database, line)
    with pytest.raises(Misuse, match="quote"):
        list(words_of(line))


def _said_by_redis_cli(database: RedisDatabase, line: str) -> bytes:
    command = ["redis-cli", "--no-auth-warning", "-a", PASSWORD, "-p", str(database.server.port)]
    done = subprocess.run(command, input=line.encode() + b"\n", capture_output=True, check=True)
    return done.stdout + done.stderr
