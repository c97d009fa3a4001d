"""Classify commands: one reads, writes these keys, or is refused. The server's own description decides."""

import re
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any, NamedTuple, cast

from takeback.adapters.redis.connection import RedisLink, good
from takeback.adapters.redis.marks import OWN
from takeback.errors import Misuse, Refused, StatementFailed

_PLAIN, _DOUBLE, _SINGLE = r"""[^\s"']+""", r'"(?:\\.|[^"\\])*+"', r"'(?:\\'|[^'])*+'"
_SPACE = re.compile(r"\s*", re.ASCII)
_PART = re.compile(rf"{_PLAIN}|{_DOUBLE}|{_SINGLE}", re.DOTALL | re.ASCII)
_WORD = re.compile(rf"(?:{_PLAIN}|(?:{_DOUBLE}|{_SINGLE})(?!\S))+", re.DOTALL | re.ASCII)
_ESCAPED = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def words_of(line: str) -> Iterator[bytes]:
    place = _after_spaces(line, 0)
    while place < len(line):
        found = _WORD.match(line, place)
        if found is None or _after_spaces(line, found.end()) == found.end() < len(line):
            raise Misuse(
                "A quote of the command is not closed, or a word follows it without a space.",
                hint="Give the arguments as a list.",
            )
        yield b"".join(_meant(part) for part in _PART.findall(found.group()))
        place = _after_spaces(line, found.end())


def _after_spaces(line: str, place: int) -> int:
    found = _SPACE.match(line, place)
    return found.end() if found else place


def _meant(part: str) -> bytes:
    data = encoded(part)
    if part[0] == "'":
        return data[1:-1].replace(rb"\'", b"'")
    return _ESCAPED.sub(lambda found: _byte(found.group(1)), data[1:-1]) if part[0] == '"' else data


def _byte(escaped: bytes) -> bytes:
    if len(escaped) == 3:
        return bytes([int(escaped[1:], 16)])
    return _LETTERS.get(escaped, escaped)


class Refusal(NamedTuple):
    why: str
    instead: str = ""


_SCRIPT = Refusal(
    "a script can write keys that were not declared, so its changes cannot be captured first",
    "Send its commands one by one. EVAL_RO and FCALL_RO, which cannot write, are fine.",
)
_CODE = Refusal("it changes code on the server, not keys", "Do it outside of takeback.")
_BLOCKING = Refusal(
    "it waits inside the server, and a change must be captured at the moment it is made",
    "Use the form that does not wait: LPOP, RPOP, LMOVE, LMPOP, ZPOPMIN, ZPOPMAX, ZMPOP; without BLOCK.",
)
_TOLD = Refusal("what was published has been heard and cannot be taken back", "Do it outside of takeback.")
_OWN_TRANSACTION = Refusal(
    "takeback wraps every change in a transaction of its own",
    "Leave it out: the effect begins and ends the transaction.",
)
_DATABASES = Refusal(
    "it reaches into another database than the one in the address", "Connect to that database and work there."
)
_SERVER = Refusal("it changes the server, not keys", "Do it outside of takeback.")
_SLOTS = Refusal("it moves keys between servers", "Do it outside of takeback.")
_CONNECTION = Refusal("it changes the connection, which belongs to takeback", "Put it into the address.")

REFUSED: dict[str, Refusal] = {
    **dict.fromkeys(("eval", "evalsha", "fcall"), _SCRIPT),
    **dict.fromkeys(("function", "script"), _CODE),
    **dict.fromkeys(
        ("blpop", "brpop", "brpoplpush", "blmove", "blmpop", "bzpopmin", "bzpopmax", "bzmpop", "wait", "waitaof"),
        _BLOCKING,
    ),
    **dict.fromkeys(("publish", "spublish"), _TOLD),
    **dict.fromkeys(
        ("subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe", "monitor"),
        Refusal("it turns the connection into a listener", "Listen with a client of your own."),
    ),
    **dict.fromkeys(("multi", "exec", "discard", "watch", "unwatch"), _OWN_TRANSACTION),
    **dict.fromkeys(("move", "swapdb", "select"), _DATABASES),
    **dict.fromkeys(
        (
            "config", "acl", "save", "bgsave", "bgrewriteaof", "shutdown", "debug", "module", "replicaof", "slaveof",
            "failover", "cluster", "latency", "slowlog", "psync", "sync", "replconf",
            "pfdebug", "pfselftest",
        ),
        _SERVER,
    ),
    **dict.fromkeys(("migrate", "restore-asking", "asking", "readonly", "readwrite"), _SLOTS),
    **dict.fromkeys(("auth", "hello", "client", "reset", "quit"), _CONNECTION),
}  # fmt: skip

# An option makes them wait.
WAITING = ("xread", "xreadgroup")

# Neither `readonly` nor `write` in the server's own list, and harmless.
HARMLESS = frozenset(("ping", "echo", "time", "info", "lastsave", "command", "role"))


def option(name: str, arguments: tuple[bytes, ...]) -> Refusal | None:
    """A refusal for what an option asks for. Read only where options can stand: a key may be called BLOCK."""
    if name in WAITING:
        # … GROUP g c COUNT n BLOCK ms NOACK STREAMS key … id …
        upper = [argument.upper() for argument in arguments]
        end = upper.index(b"STREAMS") if b"STREAMS" in upper else len(upper)
        start = 3 if upper[:1] == [b"GROUP"] else 0
        return _BLOCKING if b"BLOCK" in upper[start:end] else None
    is_elsewhere = name == "copy" and b"DB" in (argument.upper() for argument in arguments[2:])
    return _DATABASES if is_elsewhere else None


FLUSHES = ("flushdb", "flushall")
_WRITES = {b"RW", b"OW", b"RM"}
_READS_UNLESS_TOLD = ("sort", "georadius", "georadiusbymember")  # where to store it
# The server says of its keys that they are only read: not of their groups.
_WRITES_WHAT_IT_READS = ("xreadgroup",)


class RedisRequest(NamedTuple):
    words: tuple[bytes, ...]

    @property
    def name(self) -> str:
        return self.words[0].decode("ascii", "replace").lower()

    @property
    def arguments(self) -> tuple[bytes, ...]:
        return self.words[1:]


class Judged(NamedTuple):
    writes: bool
    keys: tuple[bytes, ...] = ()  # that it may write
    flushes: bool = False  # every key there is


def request(statement: str, parameters: Any = ()) -> RedisRequest:
    """`("SET", ["a", 1])`, or a whole line as in redis-cli: `('SET a "b c"', ())`."""
    words = tuple(words_of(statement))
    if not words:
        raise Misuse("There is no command.", hint="For example SET name value.")
    if not isinstance(parameters, (list, tuple, NoneType)):
        raise Misuse(
            "The arguments of a Redis command are given as a list.",
            hint="For example SET name value.",
        )
    return RedisRequest((*words, *map(encoded, cast(Sequence[Any], parameters or ()))))


def encoded(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise Misuse(
                f"That is no text: it holds half of a character at {error.start}.",
                hint="Give bytes instead.",
            ) from None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(value).encode()
    raise Misuse(
        f"A Redis command cannot take a {type(value).__name__}.", hint="Give text, bytes or a number."
    )


def judge(link: RedisLink, wanted: RedisRequest) -> Judged:
    """`Refused` for what could not be taken back, `StatementFailed` for what the server does not know."""
    name = wanted.name
    refusal = REFUSED.get(name) or option(name, wanted.arguments)
    if refusal:
        raise _refused(wanted, refusal)
    if name in FLUSHES:
        return Judged(True, flushes=True)
    told = _told(link, wanted)
    count, arity = len(wanted.words), told[1]
    if count != arity if arity >= 0 else count < -arity:
        raise StatementFailed(
            f"{name.upper()} does not take {count - 1} arguments.", hint="Nothing was changed."
        )
    flags: set[bytes] = set(told[2])
    if b"write" not in flags:
        if b"readonly" not in flags and name not in HARMLESS:
            raise _refused(wanted, Refusal("it is not known to only read", "Do it outside of takeback."))
        return Judged(False)
    if flags & {b"blocking", b"no_multi"} and name not in WAITING:
        raise _refused(wanted, REFUSED["blpop"])
    keys = _keys(link, wanted, told)
    if not keys and name in _READS_UNLESS_TOLD:
        return Judged(False)
    if not keys:
        raise _refused(wanted, Refusal("it names no key", "Do it outside of takeback."))
    if any(key.startswith(OWN) for key in keys):
        raise Refused(
            "Keys that begin with `takeback:` are takeback's own.",
            hint="Nothing was changed. Use another key.",
        )
    return Judged(True, keys)


def _refused(wanted: RedisRequest, refusal: Refusal) -> Refused:
    return Refused(
        f"{wanted.name.upper()} is refused: {refusal.why}.",
        hint=f"Nothing was changed. {refusal.instead}".strip(),
    )


def _told(link: RedisLink, wanted: RedisRequest) -> list[Any]:
    """What COMMAND INFO says of it; of the subcommand, if it has some."""
    name = wanted.name.encode()
    told = _asked(link, name)
    if told and len(told) > 9 and told[9] and wanted.arguments:
        told = _asked(link, name + b"|" + wanted.arguments[0].lower())
    if not told:
        raise StatementFailed(
            f"Redis knows no command {wanted.name.upper()!r}, or not with this subcommand.",
            hint="Nothing was changed. See `COMMAND LIST` of the server.",
        )
    return told


def _asked(link: RedisLink, name: bytes) -> list[Any] | None:
    if name not in link.known:
        (link.known[name],) = link.one("COMMAND", "INFO", name)
    return link.known[name]


def _keys(link: RedisLink, wanted: RedisRequest, told: list[Any]) -> tuple[bytes, ...]:
    """That it may write. Where they stand at fixed places this is known; else the server looks at the command."""
    found = _at_fixed_places(wanted, told)
    if found is None:
        (reply,) = link.ask(("COMMAND", "GETKEYSANDFLAGS", *wanted.words))
        if isinstance(reply, Exception):
            raise said_no(wanted, reply)
        every = wanted.name in _WRITES_WHAT_IT_READS
        found = [key for key, flags in good(reply) if every or _WRITES.intersection(flags)]
    return tuple(dict.fromkeys(found))


def _at_fixed_places(wanted: RedisRequest, told: list[Any]) -> list[bytes] | None:
    words = wanted.words
    if b"movablekeys" in told[2] or len(told) < 9 or not told[8]:
        return None
    found: list[bytes] = []
    for raw in told[8]:
        spec = _map(raw)
        begin, look = _map(spec[b"begin_search"]), _map(spec[b"find_keys"])
        if begin[b"type"] != b"index" or look[b"type"] != b"range" or b"incomplete" in spec[b"flags"]:
            return None
        if not _WRITES.intersection(spec[b"flags"]):
            continue
        first = _map(begin[b"spec"])[b"index"]
        look = _map(look[b"spec"])
        last = look[b"lastkey"]
        last = first + last if last >= 0 else len(words) + last
        if look[b"limit"] > 1 or last >= len(words):
            return None
        found += words[first : last + 1 : look[b"keystep"] or 1]
    return found


def _map(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def said_no(wanted: RedisRequest, error: Exception) -> StatementFailed:
    return StatementFailed(
        f"{wanted.name.upper()}: {error}", hint="Nothing was changed: Redis did not carry it out."
    )
