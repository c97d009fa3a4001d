"""Commands that become effects. Redis answers inside a transaction only at its end, so they are queued, and what they
answered is known when it was made."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from takeback.adapters.database import Rows, most_of, refuse_too_many_keys
from takeback.adapters.redis import marks
from takeback.adapters.redis.change import (
    MadeChange,
    NotTaken,
    SeenKeys,
    Steps,
    change,
    drain,
    put_aside,
    send,
    transact,
)
from takeback.adapters.redis.commands import Judged, RedisRequest, judge, request, said_no
from takeback.adapters.redis.connection import Command, RedisLink, trouble
from takeback.adapters.redis.images import IMAGES
from takeback.adapters.redis.marks import OWN
from takeback.adapters.redis.server import RedisLinks, identity
from takeback.adapters.redis.undo import RedisUndo
from takeback.errors import Conflict, InDoubt, Misuse, Refused, StatementFailed, TakebackError
from takeback.model.database import Database
from takeback.model.effect import Effect
from takeback.storage.protocols import Blobs

# FLUSHDB and FLUSHALL: every key that is there is put aside in one step, and captured from there.


def _refuse_other_databases(link: RedisLink) -> None:
    told: bytes = link.one("INFO", "keyspace")
    filled = [line for line in told.decode().splitlines() if line.startswith("db")]
    if len(filled) > 1:
        raise Refused(
            f"FLUSHALL is refused: {len(filled)} databases of this server hold keys, and only the one in the address "
            "is captured.",
            hint="Nothing was changed. Use FLUSHDB in each of them.",
        )


def count(link: RedisLink, most: int) -> int:
    """How many keys would go; not more exactly than it takes to see that they are more than `most`."""
    if not most or int(link.one("DBSIZE")) <= most:
        return 0
    cursor, found = b"0", set[bytes]()
    while True:
        cursor, keys = link.one("SCAN", cursor, "COUNT", 1000)
        found.update(key for key in keys if not key.startswith(OWN))
        if cursor == b"0" or len(found) > most:
            return len(found)


# A command in one line, for the journal and for people: its name and its first argument, which is nearly always the
# key. The written value is left out.


LENGTH = 100
_CONTAINERS = ("xgroup", "object", "memory", "xinfo")


def summary_of(statement: str, parameters: Any) -> str:
    try:
        wanted = request(statement, parameters)
    except Misuse:
        return statement.split(maxsplit=1)[0][:LENGTH] if statement.split() else ""
    visible = 2 + (wanted.name in _CONTAINERS)
    words = [word.decode("utf-8", "backslashreplace") for word in wanted.words]
    text = " ".join([words[0].upper(), *words[1:visible]])
    text = "".join(letter if letter.isprintable() else "·" for letter in text)
    text = text if len(text) <= LENGTH else f"{text[: LENGTH - 1]}…"
    return f"{text} …" if len(words) > visible else text


COLUMNS = ("reply",)
_REMOVES = ("del", "unlink", "getdel")


class Queued(NamedTuple):
    wanted: RedisRequest
    judged: Judged
    command: Command
    number: int  # of the `execute` it belongs to


class RedisSession:
    def __init__(self, database: Database, links: RedisLinks, blobs: Blobs, written: set[str]) -> None:
        """`written`: where the effects go whose images are on their way into the journal."""
        self._found = database
        self.answers: tuple[Rows, ...] = ()  # of the last transaction, one for each `execute`
        self._links = links
        self._blobs = blobs
        self._written = written
        self._link: RedisLink | None = None
        self._effect: Effect | None = None
        self._queue: list[Queued] = []
        self._count = 0

    @property
    def database(self) -> Database:
        """With its identity, which is needed before a change only, because finding it out may write."""
        if not self._found.identity:
            self._found = self._found._replace(identity=identity(self.link))
        return self._found

    @property
    def link(self) -> RedisLink:
        if self._link is None or not self._link.usable:
            self._link = self._links.take(self._found)
        return self._link

    def summary(self, statement: str, parameters: Any) -> str:
        return summary_of(statement, parameters)

    def read(self, statement: str, parameters: Any) -> Rows | None:
        wanted = request(statement, parameters)
        if judge(self.link, wanted).writes:
            return None
        (reply,) = self.link.ask(wanted.words)
        if isinstance(reply, Exception):
            raise said_no(wanted, reply)
        return _rows([reply])

    def begin(self, effect: Effect) -> None:
        self._effect, self._queue, self._count, self.answers = effect, [], 0, ()

    def execute(self, statement: str, parameters: Any, many: bool = False) -> Rows:
        """Queued: there are no rows yet."""
        for one in parameters if many else (parameters,):
            wanted = request(statement, one)
            judged = judge(self.link, wanted)
            command: Command = wanted.words
            if judged.flushes:
                assert self._effect is not None
                if wanted.name == "flushall":
                    _refuse_other_databases(self.link)
                command = put_aside(self._effect.id)
            self._queue.append(Queued(wanted, judged, command, self._count))
        self._count += 1
        return Rows()

    def commit(self) -> dict[str, Any] | None:
        effect, queue = self._effect, self._queue
        assert effect is not None
        self._effect, self._queue = None, []
        keys = tuple(dict.fromkeys(key for queued in queue for key in queued.judged.keys))
        commands = tuple(queued.command for queued in queue)
        wide = any(queued.judged.flushes for queued in queue)
        _refuse_too_many(keys)
        try:
            if not keys and not wide:
                self._answer(queue, transact(self.link, commands) or [])
                return None
            most = most_of(effect)
            gone = count(self.link, most) if wide else 0

            def decide(seen: SeenKeys) -> Steps | None:
                refuse_too_many_keys(most, gone + _may_change(queue, seen))
                if seen.op is not None:
                    return None
                if seen.fenced:
                    raise Refused(
                        "Another process has recorded that this did not happen.",
                        hint="Nothing was changed. This process was away for too long; do it again as a new effect.",
                    )
                return Steps(commands, wide=wide)

            made = change(self.link, self._blobs, effect.id, keys, decide)
        except NotTaken as refusal:
            raise _not_taken(refusal, queue) from None
        if made is None:
            return {}  # under this id it was made before
        if any(isinstance(reply, Exception) for reply in made.replies):
            self._take_back(effect, queue, made)
        self._answer(queue, made.replies)
        receipt = made.receipt()
        if wide:
            op = marks.find(self.link, effect.id)
            assert op is not None
            op, tables = drain(self.link, self._blobs, effect.id, op)
            receipt |= {"tables": tables, IMAGES: [op.before, op.after]}
        if not receipt["tables"]:
            send(self.link, marks.unmark(effect.id, made.left.no, keys))
            return None
        self._written.add(effect.id)
        return receipt

    def _take_back(self, effect: Effect, queue: Sequence[Queued], made: MadeChange) -> None:
        """A command failed while it was carried out; Redis leaves the others as they are, we do not."""
        try:
            RedisUndo(self.link, self._blobs, self._found).give_up(effect)
        except Conflict as conflict:
            raise InDoubt(
                "A command failed, and another client modified the keys of the others at the same time.",
                hint="Their changes stay, as an effect that can be undone.",
            ) from conflict
        for queued, reply in zip(queue, made.replies, strict=True):
            if isinstance(reply, Exception):
                raise said_no(queued.wanted, reply)

    def _answer(self, queue: Sequence[Queued], replies: Sequence[Any]) -> None:
        found: list[list[Any]] = [[] for _ in range(self._count)]
        for queued, reply in zip(queue, replies, strict=True):
            if isinstance(reply, Exception):
                raise said_no(queued.wanted, reply)
            found[queued.number].append(b"OK" if queued.judged.flushes else reply)
        self.answers = tuple(_rows(each) for each in found)

    def rollback(self) -> None:
        self._effect, self._queue = None, []

    def close(self) -> None:
        if self._link is not None:
            self._links.give_back(self._found, self._link)
            self._link = None


def _refuse_too_many(keys: Sequence[bytes]) -> None:
    if len(keys) > marks.MOST:
        raise Refused(
            f"{len(keys)} keys in one effect are refused: at most {marks.MOST} can be watched while they are captured.",
            hint="Nothing was changed. Make several effects of it. FLUSHDB can take any number.",
        )


def _may_change(queue: Sequence[Queued], seen: SeenKeys) -> int:
    """How many keys at most: what is not there cannot be removed."""
    there = {image.key for image in seen.images if image.dump is not None}
    named = {
        key
        for queued in queue
        for key in queued.judged.keys
        if key in there or queued.wanted.name not in _REMOVES
    }
    return len(named)


def _rows(replies: Sequence[Any]) -> Rows:
    return Rows(tuple((reply,) for reply in replies), COLUMNS, len(replies))


def _not_taken(refusal: NotTaken, queue: Sequence[Queued]) -> TakebackError:
    if 0 <= refusal.place < len(queue):
        return said_no(queue[refusal.place].wanted, refusal.error)
    found = trouble(refusal.error)
    return StatementFailed(str(found), hint=found.hint)
