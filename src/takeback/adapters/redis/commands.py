"""What a command is: it reads, it writes these keys, or it is refused. The server's own description decides."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from takeback.adapters.redis import line, refusals
from takeback.adapters.redis.link import Link, good
from takeback.adapters.redis.marks import OWN
from takeback.errors import Misuse, Refused, StatementFailed

FLUSHES = ("flushdb", "flushall")
_WRITES = {b"RW", b"OW", b"RM"}
_READS_UNLESS_TOLD = ("sort", "georadius", "georadiusbymember")  # where to store it
_WRITES_WHAT_IT_READS = (
    "xreadgroup",
)  # the server says of its keys that they are only read: not of their groups


class Request(NamedTuple):
    """A command as it goes to the server."""

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


def request(statement: str, parameters: Any = ()) -> Request:
    """`("SET", ["a", 1])`, or a whole line as in redis-cli: `('SET a "b c"', ())`."""
    words = tuple(line.words(statement))
    if not words:
        raise Misuse("There is no command.", hint='For example db.execute("SET", ["name", "value"]).')
    if parameters is None:
        parameters = ()
    if not isinstance(parameters, (list, tuple)):
        raise Misuse(
            "The arguments of a Redis command are given as a list.",
            hint='For example db.execute("SET", ["name", "value"]).',
        )
    listed = cast(Sequence[Any], parameters)
    return Request((*words, *(encoded(one) for one in listed)))


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


def judge(link: Link, wanted: Request) -> Judged:
    """`Refused` for what could not be taken back, `StatementFailed` for what the server does not know."""
    name = wanted.name
    refusal = refusals.REFUSED.get(name) or refusals.option(name, wanted.arguments)
    if refusal:
        raise _refused(wanted, refusal)
    if name in FLUSHES:
        return Judged(True, flushes=True)
    told = _told(link, wanted)
    _refuse_wrong_count(wanted, told[1])
    flags: set[bytes] = set(told[2])
    if b"write" not in flags:
        if b"readonly" not in flags and name not in refusals.HARMLESS:
            raise _refused(
                wanted, refusals.Refusal("it is not known to only read", "Do it outside of takeback.")
            )
        return Judged(False)
    if flags & {b"blocking", b"no_multi"} and name not in refusals.WAITING:
        raise _refused(wanted, refusals.REFUSED["blpop"])
    keys = _keys(link, wanted, told)
    if not keys and name in _READS_UNLESS_TOLD:
        return Judged(False)
    if not keys:
        raise _refused(wanted, refusals.Refusal("it names no key", "Do it outside of takeback."))
    for key in keys:
        if key.startswith(OWN):
            raise Refused(
                "Keys that begin with `takeback:` are takeback's own.",
                hint="Nothing was changed. Use another key.",
            )
    return Judged(True, keys)


def _refuse_wrong_count(wanted: Request, arity: int) -> None:
    count = len(wanted.words)
    if count != arity if arity >= 0 else count < -arity:
        raise StatementFailed(
            f"{wanted.name.upper()} does not take {count - 1} arguments.", hint="Nothing was changed."
        )


def _refused(wanted: Request, refusal: refusals.Refusal) -> Refused:
    return Refused(
        f"{wanted.name.upper()} is refused: {refusal.why}.",
        hint=f"Nothing was changed. {refusal.instead}".strip(),
    )


def _told(link: Link, wanted: Request) -> list[Any]:
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


def _asked(link: Link, name: bytes) -> list[Any] | None:
    if name not in link.known:
        (link.known[name],) = link.one("COMMAND", "INFO", name)
    return link.known[name]


def _keys(link: Link, wanted: Request, told: list[Any]) -> tuple[bytes, ...]:
    """That it may write. Where they stand at fixed places this is known; else the server looks at the command."""
    found = _at_fixed_places(wanted, told)
    if found is None:
        (reply,) = link.ask(("COMMAND", "GETKEYSANDFLAGS", *wanted.words))
        if isinstance(reply, Exception):
            raise said_no(wanted, reply)
        every = wanted.name in _WRITES_WHAT_IT_READS
        found = [key for key, flags in good(reply) if every or _WRITES.intersection(flags)]
    return tuple(dict.fromkeys(found))


def _at_fixed_places(wanted: Request, told: list[Any]) -> list[bytes] | None:
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


def said_no(wanted: Request, error: Exception) -> StatementFailed:
    return StatementFailed(
        f"{wanted.name.upper()}: {error}", hint="Nothing was changed: Redis did not carry it out."
    )
