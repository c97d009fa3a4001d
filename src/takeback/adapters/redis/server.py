"""The server: connections to it that are kept, which database it is, whether changes there can be taken back."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from takeback.adapters.database import Cover, Keyring
from takeback.adapters.redis.connection import NEW_ENOUGH, RedisLink, open_link
from takeback.adapters.redis.marks import COUNT, ID, OPS, TOUCHED, WIDE
from takeback.errors import Refused, TakebackError
from takeback.model.database import Database, without_password
from takeback.model.ids import new_id


def identity(link: RedisLink) -> str:
    """Written before takeback changes something there first. "" where nothing may be written: then nothing is
    changed either."""
    if link.identity is None:
        try:
            found = _read(link)
            if not found:
                link.one("SET", ID, new_id(), "NX")
                found = _read(link)
            link.identity = found
        except TakebackError:
            return ""
    return link.identity


def refuse_another(link: RedisLink, database: Database, url: str) -> None:
    """A server that crashed may have lost the key with all else: then the address must do."""
    if not database.identity or link.identity == database.identity:
        return
    found = _read(link)
    if found == database.identity:
        link.identity = found
    elif found or without_password(url) != database.url:
        raise Refused(
            f"{database.url} is another database than the one that was changed.",
            hint="Nothing was changed. Give the address of the first one (the variable, the host or the port may have "
            "changed), if it was not emptied since.",
        )


def _read(link: RedisLink) -> str:
    return (link.one("GET", ID) or b"").decode("utf-8", "replace")


IDLE = 2  # of each database


class RedisLinks:
    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self._lock = threading.Lock()
        self._idle: dict[str, list[RedisLink]] = {}

    @contextmanager
    def to(self, database: Database) -> Iterator[RedisLink]:
        link = self.take(database)
        try:
            yield link
        except BaseException:
            # It may still watch keys, or owe an answer.
            link.close()
            raise
        self.give_back(database, link)

    def take(self, database: Database) -> RedisLink:
        url = self._keyring.url(database)
        link = self._waiting(url) or open_link(url, database.url)
        try:
            refuse_another(link, database, url)
        except BaseException:
            link.close()
            raise
        return link

    def _waiting(self, url: str) -> RedisLink | None:
        with self._lock:
            idle = self._idle.get(url, [])
            while idle:
                link = idle.pop()
                if link.usable and not link.is_stale:
                    return link
                link.close()
        return None

    def give_back(self, database: Database, link: RedisLink) -> None:
        url = self._keyring.url(database)
        with self._lock:
            idle = self._idle.setdefault(url, [])
            if link.usable and len(idle) < IDLE:
                idle.append(link)
                return
        link.close()

    def close(self) -> None:
        with self._lock:
            for idle in self._idle.values():
                for link in idle:
                    link.close()
            self._idle = {}


EVERY_KEY = "*"
_SECTIONS = ("server", "cluster", "replication", "memory", "persistence")
_TYPES = {COUNT: b"string", OPS: b"zset", TOUCHED: b"zset", WIDE: b"zset"}


def facts(link: RedisLink) -> dict[str, str]:
    """What INFO says; asked once for each connection."""
    if not link.facts:
        told: bytes = link.one("INFO", *_SECTIONS)
        lines = (line.partition(":") for line in told.decode("utf-8", "replace").splitlines())
        link.facts = {name: value.strip() for name, separator, value in lines if separator}
    return link.facts


def refuse_unfit(link: RedisLink) -> None:
    if why := unfit(link):
        raise Refused(f"takeback cannot work on this Redis server: {why[0]}.", hint=why[1])


def unfit(link: RedisLink) -> tuple[str, str] | None:
    """Why not, and what to do about it."""
    told = facts(link)
    version = told.get("redis_version", "0")
    if int(version.partition(".")[0] or 0) < NEW_ENOUGH:
        return (f"it is version {version}", "Redis 7.0 or later, or Valkey, is needed.")
    if told.get("cluster_enabled") == "1" or told.get("redis_mode") == "cluster":
        return (
            "it is part of a cluster",
            "Keys of one effect can be on several servers there, which is not covered.",
        )
    if told.get("role") == "slave":
        return ("it is a replica", "Connect to its primary.")
    policy = told.get("maxmemory_policy", "")
    if policy.startswith("allkeys") and told.get("maxmemory", "0") != "0":
        return (
            f"when memory is short it drops any key ({policy}), takeback's marks too",
            "Set maxmemory-policy to noeviction or to one that begins with volatile-.",
        )
    for name, kind in _TYPES.items():
        found = link.one("TYPE", name)
        if found not in (kind, b"none"):
            return (
                f"its key {name.decode()} is takeback's, but holds a {found.decode()}",
                "Someone wrote it; look at it and remove it.",
            )
    return None


def cover(link: RedisLink) -> Cover:
    why = unfit(link)
    told = facts(link)
    name = "Valkey" if told.get("server_name") == "valkey" else "Redis"
    version = told.get("valkey_version") or told.get("redis_version", "?")
    says = [f"{name} {version}."]
    if why:
        return Cover("", (), ((EVERY_KEY, why[0]),), (*says, why[1]))
    says.append(
        "Every key of this database is covered for commands that go through takeback; nothing had to be installed."
    )
    says.append(
        "Not covered: writing scripts, blocking commands, published messages, other databases, clusters."
    )
    if told.get("aof_enabled") != "1":
        says.append(
            "The server writes no append-only file: after a crash it may have lost changes together with their marks; "
            "they then count as never made."
        )
    if told.get("maxmemory_policy", "").startswith("volatile") and told.get("maxmemory", "0") != "0":
        says.append(
            "Keys that expire may be dropped early when memory is short; undo then reports them as gone."
        )
    return Cover("full", (EVERY_KEY,), (), tuple(says))
