"""Commands that are not carried out, each with its reason; the documentation prints this table."""

from typing import NamedTuple


class Refusal(NamedTuple):
    why: str
    instead: str = ""


_SCRIPT = Refusal(
    "a script can write keys that were not declared, so its changes cannot be captured first",
    "Send its commands one by one, or in `with db.transaction()`. EVAL_RO and FCALL_RO, which cannot write, are fine.",
)
_CODE = Refusal("it changes code on the server, not keys", "Do it outside of takeback.")
_BLOCKING = Refusal(
    "it waits inside the server, and a change must be captured at the moment it is made",
    "Use the form that does not wait: LPOP, RPOP, LMOVE, LMPOP, ZPOPMIN, ZPOPMAX, ZMPOP; without BLOCK.",
)
_TOLD = Refusal("what was published has been heard and cannot be taken back", "Do it outside of takeback.")
_OWN_TRANSACTION = Refusal(
    "takeback wraps every change in a transaction of its own",
    "Use `with db.transaction():` for several commands.",
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

# Options that make a command one of those.
WAITING = {"xread": b"BLOCK", "xreadgroup": b"BLOCK"}
OTHER_DATABASE = {"copy": b"DB"}

# Neither `readonly` nor `write` in the server's own list, and harmless.
HARMLESS = frozenset(("ping", "echo", "time", "info", "lastsave", "command", "role"))


def option(name: str, arguments: tuple[bytes, ...]) -> Refusal | None:
    """A refusal for what an option asks for. Read only where options can stand: a key may be called BLOCK."""
    word = WAITING.get(name)
    if word:
        # … GROUP g c COUNT n BLOCK ms NOACK STREAMS key … id …
        upper = [argument.upper() for argument in arguments]
        end = upper.index(b"STREAMS") if b"STREAMS" in upper else len(upper)
        start = 3 if upper[:1] == [b"GROUP"] else 0
        return _BLOCKING if word in upper[start:end] else None
    word = OTHER_DATABASE.get(name)
    if word and word in (argument.upper() for argument in arguments[2:]):
        return _DATABASES
    return None
