"""Give a later effect another past, when what its rows came from is taken back without them.

A row went from A to B by one effect and from B to C by a later one. If the first is undone and this row is skipped, the
later one must not bring B back when it is undone in its turn: what it found is now A.
"""

from typing import TYPE_CHECKING

from takeback.adapters.postgres.connecting import run
from takeback.adapters.postgres.logs import log_name
from takeback.adapters.postgres.net import OVERWRITABLE, Net, key_of, same
from takeback.adapters.postgres.undoing import Look

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection


def rebase(connection: "Connection", seen: Look) -> bool:
    """True if there was such an effect."""
    # No log has an index of keys: looking up each row for itself would read all of it for each.
    run(connection, "set local enable_nestloop = off")
    given = [_rebase(connection, one) for one in seen.ties.nets.values() if one.keyed]
    run(connection, "set local enable_nestloop = on")
    return any(given)


def _rebase(connection: "Connection", net: Net) -> bool:
    """Only the first effect that came after and made a difference, and only if it found what this one left."""
    assert net.table.key
    log = log_name(net.log)
    key = ", ".join(f"c{number}" for number in net.table.key.columns)
    kinds = ", ".join(f"'{one}'" for one in OVERWRITABLE)
    numbers = [one.number for one in net.table.columns]
    by_key = ", ".join(key_of(net).format(number) for number in net.table.key.columns)
    run(
        connection,
        f"create temp table takeback_rebase on commit drop as "
        f"select distinct on ({by_key}) n.ctid as place, l.op, l.step from {net.name} n "
        f"join {log} l on {_keys(net, 'l.c')} "
        f"join (select {key}, max(step) as step from {log} where {net.images} group by {key}) x "
        f"on {_keys(net, 'x.c')} "
        f"join takeback.op o on o.no = l.op "
        f"where n.status in ({kinds}) and l.op <> {net.op} and l.step > x.step and o.undone_by is null "
        f"and {_differs(net, log)} "
        f"order by {by_key}, l.step",
    )
    found = same(net.table.columns, "l.c", "n.q")
    rows = run(
        connection,
        f"with gone as (delete from {log} l using pg_temp.takeback_rebase r join {net.name} n on n.ctid = r.place "
        f"where l.op = r.op and l.step = r.step and l.sign < 0 and n.post and {_keys(net, 'l.c')} and {found} "
        f"returning r.place), "
        f"come as (insert into {log} (op, step, sign, {', '.join(f'c{one}' for one in numbers)}) "
        f"select r.op, r.step, -1, {', '.join(f'n.p{one}' for one in numbers)} from pg_temp.takeback_rebase r "
        f"join {net.name} n on n.ctid = r.place where n.pre and (not n.post or r.place in (select place from gone)) "
        f"returning 1) select from gone union all select from come",
    )
    run(
        connection,
        f"update takeback.op o set images = o.images || jsonb_build_object('{net.log}', "
        f"takeback.numbers(o.no, {net.log})) where o.no in (select op from pg_temp.takeback_rebase)",
    )
    run(connection, "drop table pg_temp.takeback_rebase")
    return rows > 0


def _differs(net: Net, log: str) -> str:
    """Whether effect `l.op` left its row of `n` otherwise than it is in `n.q`: one that wrote what was there already
    passes on what it found."""
    last = f"(select max(m.step) from {log} m where m.op = l.op and {_keys(net, 'm.c')})"
    left = f"from {log} p where p.op = l.op and p.sign > 0 and {_keys(net, 'p.c')} and p.step = {last}"
    content = same(net.table.columns, "p.c", "n.q")
    return f"case when n.post then not exists (select {left} and {content}) else exists (select {left}) end"


def _keys(net: Net, prefix: str) -> str:
    assert net.table.key
    return " and ".join(
        f"{prefix}{number} operator({operator}) {key_of(net).format(number)}"
        for number, operator in zip(net.table.key.columns, net.table.key.operators, strict=True)
    )
