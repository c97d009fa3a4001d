"""What a program lost and nobody saved: then its effect is told of, and never taken back in part."""

from typing import TYPE_CHECKING

from takeback.adapters.postgres import noting
from takeback.adapters.postgres.connecting import ask
from takeback.adapters.postgres.definitions import Things, differing
from takeback.adapters.postgres.ops import Op
from takeback.errors import Refused
from takeback.model.ids import short

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection

HINT = (
    "Nothing was changed. Get it from a backup, or by point-in-time recovery. Next time give the address of a "
    "superuser that protected the database (tier full), or send changes of the schema through `takeback sql exec`: "
    "both save the rows first."
)


def lost(connection: "Connection", before: Things, after: Things) -> list[str]:
    """By what was dropped or altered, where nothing told of each command before it was run. A table that was dropped
    may have been empty: who wrote to it last is not known, so it counts."""
    old, new = differing(before, after), differing(after, before)
    gone = {one.oid: one for one in old if one.is_table and one.key not in after}
    found = [f"the rows of table {one.shown}, which was dropped" for one in gone.values()]
    for oid, numbers in noting.losses(connection, old, new).items():
        if oid in gone:
            continue
        table = before[("relation", oid, 0)].shown
        for number in numbers:
            name = before[("column", oid, number)].doc["name"]
            how = "has another type" if ("column", oid, number) in after else "was dropped"
            found.append(f"what was in column {name} of table {table}, which {how}")
    for one in old:
        alone = one.kind == "relation" and one.doc["_kind"] == "S" and one.of not in gone
        if alone and one.key not in after:
            found.append(f"the number that sequence {one.shown} had reached, which was dropped")
    return found


# The server counts transactions: what one wrote that began after the marker is younger than it. Of tables that were
# protected meanwhile the triggers are young, and so is what we know of them.
_SWITCHED = """
select format('%%I.%%I', n.nspname, c.relname)
from takeback.op o, takeback.captured k
join pg_class c on c.oid = k.relation join pg_namespace n on n.oid = c.relnamespace
where o.no = %s and age(k.xmin) >= age(o.xmin) and 4 <> (
  select count(*) from pg_trigger g where g.tgrelid = k.relation and g.tgname like 'zz\\_takeback\\__'
    and g.tgenabled = 'A' and age(g.xmin) >= age(o.xmin))
order by 1
"""


def switched_off(connection: "Connection", op: int) -> list[str]:
    """Tables whose triggers are not what they were when the program began, if only for a while."""
    return [
        f"what was changed in table {name}, whose capture was switched off"
        for (name,) in ask(connection, _SWITCHED, [op])
    ]


def refuse_lost(op: Op) -> None:
    if op.lost:
        raise Refused(
            f"Effect {short(op.id)} cannot be taken back, because this is lost: {'; '.join(op.lost)}.",
            hint=HINT,
            effect=op.id,
        )
