"""A store that was moved takes nothing new: what is unfinished in it would go on in two places.

Triggers see to that, also for processes that have had it open all the time; they are made when it is retired, so that
a store in use pays nothing for them.
"""

from takeback.errors import Refused

SAID = "retired"  # by the trigger; nothing else says that
_SQLITE_REFUSES = f"BEGIN SELECT RAISE(ABORT, '{SAID}'); END"
SQLITE = (
    "CREATE TABLE retired (words TEXT NOT NULL) STRICT",
    f"CREATE TRIGGER retired_takes_no_record BEFORE INSERT ON records {_SQLITE_REFUSES}",
    f"CREATE TRIGGER retired_gives_no_lease BEFORE INSERT ON leases {_SQLITE_REFUSES}",
    f"CREATE TRIGGER retired_gives_no_lease_again BEFORE UPDATE OF generation ON leases {_SQLITE_REFUSES}",
)
SQLITE_AGAIN = (
    "DROP TRIGGER retired_takes_no_record",
    "DROP TRIGGER retired_gives_no_lease",
    "DROP TRIGGER retired_gives_no_lease_again",
    "DROP TABLE retired",
)
STATE = "TB009"
POSTGRES = (
    "CREATE TABLE retired (words text NOT NULL)",
    "CREATE FUNCTION retired_refuses() RETURNS trigger LANGUAGE plpgsql AS"
    f" 'BEGIN RAISE EXCEPTION ''{SAID}'' USING errcode = ''{STATE}''; END'",
    "CREATE TRIGGER retired_takes_no_record BEFORE INSERT ON records EXECUTE FUNCTION retired_refuses()",
    "CREATE TRIGGER retired_gives_no_lease BEFORE INSERT OR UPDATE OF generation ON leases"
    " EXECUTE FUNCTION retired_refuses()",
)
POSTGRES_AGAIN = (
    "DROP TRIGGER retired_takes_no_record ON records",
    "DROP TRIGGER retired_gives_no_lease ON leases",
    "DROP FUNCTION retired_refuses()",
    "DROP TABLE retired",
)


def refused(name: str = "", words: str = "") -> Refused:
    """`words`: what became of it."""
    return Refused(
        f"The store{f' at {name}' if name else ''} takes nothing new any more: {words or 'it was moved'}.",
        hint="Use the other one; this one can be looked at. `takeback store reopen PLACE` uses it again: then what is "
        "unfinished must not go on in both.",
    )
