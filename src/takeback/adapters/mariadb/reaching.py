"""Which statements could change a table that is not captured as it must be: they are refused, the others are not.

Names are looked for as words, anywhere in a text. What is a column of that name is refused too; what could change the
table is not let through."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from takeback.adapters.database.summary import first_words
from takeback.adapters.mariadb.cascades import reached
from takeback.adapters.mariadb.registry import Registry, app_triggers, troubles
from takeback.adapters.mariadb.wire import Wire
from takeback.errors import NoRemedy

_DYNAMIC = re.compile(r"\b(?:EXECUTE|PREPARE)\b", re.IGNORECASE)
_DEFINED = (
    "SELECT TABLE_NAME, VIEW_DEFINITION FROM information_schema.VIEWS WHERE TABLE_SCHEMA = DATABASE() UNION ALL"
    " SELECT ROUTINE_NAME, ROUTINE_DEFINITION FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = DATABASE()"
)


class Bare(NamedTuple):
    """A table that is not captured as it must be."""

    table: str
    why: str


def refuse_reaching(wire: Wire, registry: Registry, statements: Iterable[str]) -> None:
    bad = troubles(registry)
    if not bad:
        return
    names = leading(wire, registry, bad)
    for statement in statements:
        if _is_dynamic(statement):
            raise _refused(next(iter(names.values())), "that statement may change any table")
        for name, bare in names.items():
            if _mentions(statement, name):
                raise _refused(bare, "" if name == bare.table else f"{name} may change it")


def leading(wire: Wire, registry: Registry, bad: Mapping[str, str]) -> dict[str, Bare]:
    """The names by which these tables can be changed: their own, and those of views, routines, and tables whose
    triggers or foreign keys lead there. What a routine does that cannot be read, or that puts statements together, is
    not known."""
    found = {name: Bare(name, why) for name, why in bad.items()}
    some = next(iter(found.values()), None)
    if some is None:
        return {}
    defined = [(str(name), text and str(text)) for name, text in wire.rows(_DEFINED)]
    defined += [(name, one.body) for name in registry.schema.shapes for one in app_triggers(registry, name)]
    found |= {name: some for name, text in defined if not text or _DYNAMIC.search(text)} | found
    grew = True
    while grew:
        before = len(found)
        for name, text in defined:
            led = next((found[one] for one in found if _mentions(text or "", one)), None)
            if led and name not in found:
                found[name] = led
        for name in registry.schema.shapes:
            for child in reached(name, registry.schema.links):
                if child in found and name not in found:
                    found[name] = found[child]
        grew = len(found) > before
    return found


def _is_dynamic(statement: str) -> bool:
    """Which tables it changes stands in no text. Only a block can hold another statement."""
    word = first_words(statement)
    return word in ("EXECUTE", "PREPARE") or (word == "BEGIN" and bool(_DYNAMIC.search(statement)))


def _mentions(text: str, name: str) -> bool:
    for one in {name, name.replace("`", "``")}:
        if re.search(rf"(?<![\w$]){re.escape(one)}(?![\w$])", text, re.IGNORECASE):
            return True
    return False


def _refused(bare: Bare, how: str) -> NoRemedy:
    through = f" ({how})" if how else ""
    return NoRemedy(
        f"What is changed in table {bare.table} would not be captured: {bare.why}{through}.",
        hint="Nothing was changed. `takeback sql protect URL` brings the capture up to date.",
    )
