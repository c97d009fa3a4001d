"""What each database does with what kind of statement, printed from the cases that the tests go through."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tests.docs.pages import rows

if TYPE_CHECKING:
    from tests.sql.mariadb_cases import Case as MariaCase

_EXACT = "an effect; undo, redo and undo again are exact"
_BESIDE = "done by others before the undo: it is exact for its own rows, and theirs stay"
_CONFLICT = "done by others before the undo: that is refused, names the row or table, and changes nothing"
_REFUSED = "refused; nothing is changed"
_NOTHING = "no effect: nothing was changed"
_FAILS = "fails as a whole; nothing is changed"
_READS = "reads; no effect"
_HEAD = ("what was tried", "what it is")


def _grouped(told: Iterable[tuple[str, str]]) -> str:
    """Pairs of a name and what is said of it, as one line for each thing that is said."""
    found: dict[str, list[str]] = {}
    for name, says in told:
        found.setdefault(says, []).append(name)
    known = (_EXACT, _BESIDE, _CONFLICT, _REFUSED, _NOTHING, _FAILS, _READS)
    order = [*(one for one in known if one in found), *(one for one in found if one not in known)]
    return rows(_HEAD, (("; ".join(found[says]), says) for says in order))


def postgres_cases() -> str:
    from tests.sql.postgres_cases import CASES, CONFLICT, EXACT, REFUSED, Case
    from tests.sql.postgres_schema_cases import SCHEMA_CASES

    def in_words(expect: str, since: bool) -> str:
        return {EXACT: _BESIDE if since else _EXACT, CONFLICT: _CONFLICT, REFUSED: _REFUSED}[expect]

    def says(case: Case) -> str:
        full, owner = (
            in_words(case.expect, bool(case.since)),
            in_words(case.owner or case.expect, bool(case.since)),
        )
        return full if full == owner else f"tier full: {full}; tier owner: {owner}"

    return _grouped((case.name, says(case)) for case in (*CASES, *SCHEMA_CASES))


def sqlite_cases() -> str:
    from tests.sql.sqlite_cases import CASES, EXACT, FAILS, NOTHING, READS, REFUSED, Case

    def says(case: Case) -> str:
        if case.conflict:
            return _CONFLICT
        exact = _BESIDE if case.since else _EXACT
        return {EXACT: exact, REFUSED: _REFUSED, FAILS: _FAILS, NOTHING: _NOTHING, READS: _READS}[case.expect]

    return _grouped((case.name, says(case)) for case in CASES)


def mariadb_cases() -> str:
    from tests.sql.mariadb_cases import CASES

    return _grouped(map(_of_mariadb, CASES))


def mariadb_definitions() -> str:
    from tests.sql.mariadb_definition_cases import DEFINITIONS

    return _grouped(map(_of_mariadb, DEFINITIONS))


def _of_mariadb(case: "MariaCase") -> tuple[str, str]:
    from tests.sql.mariadb_cases import EXACT, REFUSED

    return case.name, _CONFLICT if case.later else {EXACT: _EXACT, REFUSED: _REFUSED}[case.expect]


def redis_commands() -> str:
    from tests.sql.redis_cases import CASES, EXACT, FAILS, NOTHING, READS

    told = {
        EXACT: "an effect; undo and redo are exact, a conflict is seen, force and its redo are exact",
        NOTHING: _NOTHING,
        FAILS: _FAILS,
        READS: _READS,
    }
    names = {kind: [case.name for case in CASES if case.expect == kind] for kind in told}
    return rows(_HEAD, ((", ".join(names[kind]), says) for kind, says in told.items()))


def redis_refusals() -> str:
    from takeback.adapters.redis.commands import REFUSED

    by_reason: dict[str, list[str]] = {}
    for name, refusal in REFUSED.items():
        by_reason.setdefault(refusal.why, []).append(f"`{name.upper()}`")
    return rows(("refused", "because"), ((", ".join(names), why) for why, names in by_reason.items()))


def how_many() -> str:
    from tests.sql import mariadb_cases, mariadb_definition_cases, postgres_cases, redis_cases, sqlite_cases
    from tests.sql.postgres_schema_cases import SCHEMA_CASES

    of_mariadb = len(mariadb_cases.CASES) + len(mariadb_definition_cases.DEFINITIONS)
    counts = (
        (
            "PostgreSQL 15",
            len(postgres_cases.CASES) + len(SCHEMA_CASES),
            "each as superuser and as owner of the tables",
        ),
        ("SQLite", len(sqlite_cases.CASES), "each with a rollback journal and with a write-ahead log"),
        ("MariaDB 10.11", of_mariadb, ""),
        ("Redis 7.0", len(redis_cases.CASES), ""),
    )
    return rows(("engine", "cases", ""), ((name, str(number), how) for name, number, how in counts))
