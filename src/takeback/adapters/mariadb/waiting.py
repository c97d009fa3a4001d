"""For whom a transaction waits, and how long."""

from takeback.adapters.mariadb import ops
from takeback.adapters.mariadb.logs import OPS
from takeback.adapters.mariadb.registry import identity_of
from takeback.adapters.mariadb.wire import Wire
from takeback.model.holder import Holder

_FIRST_LOOK = 1  # second: most waits are shorter
_NO_LIMIT = 10_000_000


def in_turn(seconds: int) -> tuple[int, ...]:
    """A short one, so that it can be told soon what it waits for; then the rest."""
    whole = seconds or _NO_LIMIT
    return (_FIRST_LOOK, whole - _FIRST_LOOK) if whole > _FIRST_LOOK else (whole,)


def limit(wire: Wire, seconds: int) -> None:
    """Of this session; never longer than the server would let it wait."""
    wire.run(
        f"SET SESSION innodb_lock_wait_timeout = LEAST(@@GLOBAL.innodb_lock_wait_timeout, {seconds}),"
        f" lock_wait_timeout = LEAST(@@GLOBAL.lock_wait_timeout, {seconds})"
    )


def no_limit(wire: Wire) -> None:
    wire.run("SET SESSION innodb_lock_wait_timeout = DEFAULT, lock_wait_timeout = DEFAULT")


def holder(wire: Wire) -> Holder:
    """What is held in this database: its marker is there, for whoever reads what is not committed."""
    held = ops.held(wire)
    if held and identity_of(wire):
        wire.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
        names = ", ".join(wire.text(one) for one in held)
        if here := wire.one(f"SELECT op FROM {OPS} WHERE op IN ({names}) ORDER BY no DESC LIMIT 1"):
            return Holder(str(here), lasting=True)
    return Holder(session="a transaction that is open in another session")
