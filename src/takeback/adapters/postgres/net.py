"""The net changes of an effect, row by row, beside the present rows: one temporary table for each touched table.

Old images count -1 and new ones +1; equal images of one effect cancel out, in whatever order they were written. What
is left on the minus side is what each row was before, on the plus side what it became.

In such a table `p1 … pn` is the row before, `q1 … qn` the row after, `pre` and `post` say whether there was one, `cur`
whether there is one now, and `status` what undo would do:
apply · already (it is as before) · same (the effect left it as it was) · and conflicts: changed · missing ·
reoccupied · unique · parent · child.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from takeback.adapters.postgres.connection import Connection, Question
from takeback.adapters.postgres.logs import MANY, LogReach, log_name, of_op
from takeback.adapters.postgres.tables import PostgresColumn, Table, Unique, quoted

ACTIVE = "('apply', 'force')"
OVERWRITABLE = ("changed", "missing", "reoccupied")
CONFLICTS = (*OVERWRITABLE, "unique", "parent", "child")
IN_OVERWRITABLE, IN_CONFLICTS = f"{OVERWRITABLE}", f"{CONFLICTS}"  # in SQL


class Stretch(NamedTuple):
    """Part of what an effect did, by the numbers of its statements."""

    since: int  # without this one
    until: int  # with this one

    @property
    def sql(self) -> str:
        return "true" if self == EVER else f"step > {self.since} and step <= {self.until}"


EVER = Stretch(-1, (1 << 63) - 1)


class NetTally(NamedTuple):
    """Rows that the effect changed, that were there before it only, and after it only."""

    both: int
    before: int
    after: int


class Net(NamedTuple):
    table: Table
    log: int
    op: int
    turned: bool = False  # before and after are exchanged
    wide: bool = True
    one_step: bool = False  # a single statement of the effect wrote to this table
    olds: int = 0  # images of it there: of rows before the effect, and after it
    news: int = 0
    olds_reach: LogReach | None = None  # where they are in the log, if that is known
    news_reach: LogReach | None = None
    joined: bool = False  # the server reads all of the table at once, instead of looking up each row
    tally: NetTally | None = None  # every row can be put back as it is, so that no table of them need be made
    stretch: Stretch = EVER

    @property
    def name(self) -> str:
        if self.tally:
            # Not to be taken apart: who may take both sides for one row each would compare all with all.
            return (
                f"(select n.*, n.post as cur, 'apply'::text as status from ({_both(self, False)}) n offset 0)"
            )
        return f"pg_temp.takeback_net_{self.log}"

    @property
    def paired(self) -> bool:
        """Whether the server may choose how to pair the rows before and after. It assumes few rows, and would compare
        all with all."""
        return self.joined or self.olds + self.news <= MANY

    @property
    def images(self) -> str:
        """The condition for those of the effect, in its log."""
        return f"{of_op(self.op, self.wide)} and {self.stretch.sql}"

    @property
    def keyed(self) -> bool:
        return self.table.key is not None

    @property
    def key(self) -> Unique:
        assert self.table.key
        return self.table.key

    @property
    def key_kept(self) -> str:
        """That a row before the effect and one after it are the same row."""
        return self.key.same("p.c{}".format, "q.c{}".format)

    def listed_key(self, pattern: str) -> str:
        return ", ".join(pattern.format(number) for number in self.key.columns)


def images(columns: Sequence[PostgresColumn], prefix: str) -> str:
    """One side of a row, to be compared as it is stored."""
    return f"row({', '.join(f'{prefix}{column.number}' for column in columns)})"


def current(columns: Sequence[PostgresColumn]) -> str:
    return f"row({', '.join(f't.{quoted(column.name)}' for column in columns)})"


# Types (by their number, which never changes) whose equality is that of their bytes, which is quicker to ask for.
_PLAIN = frozenset((16, 17, 18, 20, 21, 23, 25, 26, 1043, 1082, 1083, 1114, 1184, 2950))
_PLAIN_COLLATIONS = frozenset((0, 100, 950, 951))
_NUMERIC = 1700  # stored in one way only for each value and number of digits behind the point


def same(columns: Sequence[PostgresColumn], one: str, other: str) -> str:
    """That two rows are the same as they are stored: 1.0 is not 1.00. Given by what stands before their columns:
    `t.` before a name, `n.p` before a number."""
    plain: list[str] = []
    sides: list[tuple[str, str]] = []
    for column in columns:
        left, right = _column(one, column), _column(other, column)
        if column.shape[1] in _PLAIN and column.shape[3] in _PLAIN_COLLATIONS:
            plain.append(f"{left} is not distinct from {right}")
        elif column.shape[1] == _NUMERIC:
            scales = f"pg_catalog.scale({left}) is not distinct from pg_catalog.scale({right})"
            plain.append(f"{left} is not distinct from {right} and {scales}")
        else:
            sides.append((left, right))
    if sides or not plain:
        left, right = (", ".join(side) for side in zip(*sides, strict=True)) if sides else ("", "")
        plain.append(f"pg_catalog.record_image_eq(row({left}), row({right}))")
    return f"({' and '.join(plain)})"


def _column(prefix: str, column: PostgresColumn) -> str:
    return f"{prefix}{quoted(column.name) if prefix.endswith('.') else column.number}"


def matches(table: Table, ours: str, alias: str = "t") -> str:
    """That a row of the table has the key that `ours` gives, a pattern such as `n.q{}`."""
    assert table.key
    return table.key.same(table.at(alias), ours.format)


def key_of(net: Net, alias: str = "n") -> str:
    """A pattern for `matches`: the key of a row, from whichever side has it."""
    return f"coalesce({alias}.p{{0}}, {alias}.q{{0}})"


def same_key(net: Net, prefix: str, alias: str = "n") -> str:
    """That a row of a log has the key of one of `net`."""
    return net.key.same(f"{prefix}{{}}".format, key_of(net, alias).format)


def build(connection: Connection, net: Net) -> None:
    connection.run(f"drop table if exists {net.name}")
    if not net.keyed:
        made = _keyless(net)
    else:
        made = (
            f"select n.*, t.ctid is not null as cur, {_status(net)} as status "
            f"from ({_both(net, repeats(connection, net))}) n "
            f"left join {net.table.source} t on {matches(net.table, key_of(net))}"
        )
    connection.run(f"create temp table takeback_net_{net.log} on commit drop as {made}")


def alone(connection: Connection, net: Net) -> str:
    """A query for what the effect did, whatever is there now; without a temporary table, which would stand in the way
    of preparing the transaction."""
    return _both(net, repeats(connection, net)) if net.keyed else _copies(net)


def loops(net: Net) -> Question:
    """How the server is to find the rows of the table. Left to itself it would compare all images with all, if it does
    not know yet how many they are."""
    return Question(f"set local enable_nestloop = {'off' if net.joined else 'on'}")


def presumed(net: Net, tied: Collection[int]) -> NetTally | None:
    """What need not be asked, if each row is as the effect left it: that it only added rows, or only removed some. Or
    that it changed each row and gave none another key; if it did, other than so many can be put back, and it is looked
    at after all."""
    if not net.olds or not net.news:
        return NetTally(0, net.olds, net.news)
    return NetTally(net.olds, 0, 0) if net.olds == net.news and not tied else None


def about_plain(net: Net, tied: Collection[int], presuming: bool = False) -> Question:
    """How many rows the effect changed, how many were there before it only and how many after it only; and how many
    are not as it left them, or were changed by it in tied columns. `presuming`: they are as it left them."""
    table = net.table
    if not net.news:
        there = f"from {side(net, '<')} p join {table.source} t on {matches(table, 'p.c{0}')}"
        return Question(f"select 0, {net.olds}, 0, count(*) {there}")
    if not net.olds:
        there = f"from {side(net, '>')} q join {table.source} t on {matches(table, 'q.c{0}')}"
        alike = f"count(*) filter (where {same(table.columns, 't.', 'q.c')})"
        return Question(f"select 0, 0, {net.news}, {net.news} - {alike} {there}")
    columns = [one for one in table.columns if one.number in tied]
    moved = f"not {same(columns, 'n.p', 'n.q')}" if columns else "false"
    wrong, now = "false", ""
    if not presuming:
        wrong = f"{_status(net)} <> 'apply'"
        now = f" left join {table.source} t on {matches(table, key_of(net))}"
    return Question(
        f"select count(*) filter (where n.pre and n.post), count(*) filter (where not n.post), "
        f"count(*) filter (where not n.pre), count(*) filter (where {wrong} or n.pre and n.post and {moved}) "
        f"from ({_both(net, False)}) n{now}"
    )


def about_pairs(net: Net, tied: Collection[int]) -> Question:
    """The same, quicker, where every row was changed and none came or went, as is most often so: else more than none
    are said to be in the way."""
    columns = [one for one in net.table.columns if one.number in tied]
    moved = f"not {same(columns, 'p.c', 'q.c')}" if columns else "false"
    return Question(
        f"select count(*), 0, 0, {net.olds} + {net.news} - 2 * count(*) filter (where not {moved}) "
        f"from {pairs(net)} join {net.table.source} t on {matches(net.table, 'q.c{0}')} "
        f"where {same(net.table.columns, 't.', 'q.c')}"
    )


def pairs(net: Net) -> str:
    """Rows `p` before and `q` after the effect, of those that were there both times."""
    return f"{side(net, '<')} p join {side(net, '>')} q on {net.key_kept}"


def repeats(connection: Connection, net: Net) -> bool:
    """Has the effect written to some row more than once?"""
    if net.one_step:
        return False
    log, key = log_name(net.log), net.listed_key("c{}")
    return bool(
        connection.ask(
            f"select 1 from {log} where {net.images} group by sign, {key} having count(*) > 1 limit 1"
        )
    )


def side(net: Net, sign: str, cancelled: bool = False) -> str:
    """The rows before (<) or after (>) the effect, as they are in the log."""
    log = log_name(net.log)
    reach = net.olds_reach if sign == "<" else net.news_reach
    sign = {"<": ">", ">": "<"}[sign] if net.turned else sign
    if not cancelled:
        there = f" and {reach.sql}" if reach else ""
        return f"(select * from {log} where {net.images} and sign {sign} 0{there})"
    left = (
        f"(select (array_agg(ctid))[1] as place, sum(sign) as count from {log} where {net.images} "
        f"group by {images(net.table.columns, 'c')}::text having sum(sign) {sign} 0)"
    )
    return f"(select l.* from {left} k join {log} l on l.ctid = k.place)"


def _both(net: Net, cancelled: bool) -> str:
    sides = "".join(
        f", p.c{one.number} as p{one.number}, q.c{one.number} as q{one.number}" for one in net.table.columns
    )
    return (
        f"select p.op is not null as pre, q.op is not null as post{sides} "
        f"from {side(net, '<', cancelled)} p full join {side(net, '>', cancelled)} q on {net.key_kept}"
    )


def _status(net: Net) -> str:
    """What undo would do to a row `n`, beside the row `t` that is there now."""
    table = net.table
    is_post = same(table.columns, "t.", "n.q")
    is_pre = same(table.columns, "t.", "n.p")
    alike = same(table.columns, "n.p", "n.q")
    here = "t.ctid is not null"
    return (
        f"case when n.post and {here} and {is_post} then 'apply' "
        f"when n.pre and n.post and {alike} then 'same' "
        f"when n.pre and {here} and {is_pre} then 'already' "
        f"when not n.pre and t.ctid is null then 'already' "
        f"when not n.post and t.ctid is null then 'apply' "
        f"when t.ctid is null then 'missing' when not n.post then 'reoccupied' else 'changed' end"
    )


def _left(net: Net) -> str:
    """Rows that look alike are interchangeable: what counts is how many of them there are."""
    return (
        f"(select (array_agg(ctid))[1] as place, {'-' if net.turned else ''}sum(sign)::int8 as count, "
        f"{images(net.table.columns, 'c')}::text as image "
        f"from {log_name(net.log)} where {net.images} group by 3 having sum(sign) <> 0)"
    )


def _copies(net: Net) -> str:
    sides = "".join(
        f", case when k.count < 0 then l.c{one.number} end as p{one.number}"
        f", case when k.count > 0 then l.c{one.number} end as q{one.number}"
        for one in net.table.columns
    )
    return (
        f"select k.count < 0 as pre, k.count > 0 as post, abs(k.count) as copies, k.image{sides} "
        f"from {_left(net)} k join {log_name(net.log)} l on l.ctid = k.place"
    )


def there_now(net: Net, ours: str) -> str:
    """How often each of the images that are in `ours` is in the table."""
    image = f"{current(net.table.columns)}::text"
    return (
        f"(select {image} as image, count(*) as there from {net.table.source} t "
        f"where {image} in (select image from {ours}) group by 1)"
    )


def _keyless(net: Net) -> str:
    return (
        f"select n.*, coalesce(c.there, 0) as there, coalesce(c.there, 0) > 0 as cur, "
        f"case when n.pre or c.there >= n.copies then 'apply' else 'missing' end as status "
        f"from ({_copies(net)}) n left join {there_now(net, f'{_left(net)} w')} c on c.image = n.image"
    )


def counts(connection: Connection, net: Net) -> dict[str, int]:
    if net.tally:
        return {"apply": sum(net.tally)} if any(net.tally) else {}
    return dict(connection.ask(f"select status, count(*) from {net.name} group by 1"))
