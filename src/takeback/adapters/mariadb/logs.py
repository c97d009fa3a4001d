"""The logs of a protected database: tables for markers and images, and triggers that fill them."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from takeback.adapters.mariadb.shapes import LoggedTable, MariaColumn, MariaForeignKey, MariaShape
from takeback.adapters.mariadb.wire import equal, listed, of, quoted

META, TABLES, OPS, TOUCHED, PLANS = "_tb_meta", "_tb_table", "_tb_op", "_tb_touched", "_tb_plan"
_OPTIONS = "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC"
GATE = "@takeback_op"
# How the name of an account begins that a program was given; its number is that of the operation.
PROGRAM = "_tb_p"
# Whatever the program itself has set there.
_WHOSE = (
    f"IF LEFT(USER(), {len(PROGRAM)}) = '{PROGRAM}' THEN SET {GATE} ="
    f" CAST(SUBSTRING_INDEX(SUBSTR(USER(), {len(PROGRAM) + 1}), '_', 1) AS UNSIGNED); END IF;"
)
# So that no value is refused or changed on its way to a log, and none is cut silently.
LOG_MODE = "STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION"

BASE = (
    f"CREATE TABLE IF NOT EXISTS {META} (name VARCHAR(32) PRIMARY KEY, value VARCHAR(255) NOT NULL) {_OPTIONS}",
    f"CREATE TABLE IF NOT EXISTS {TABLES} (n INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, name VARCHAR(64) NOT NULL,"
    f" shape CHAR(64) NOT NULL, described LONGTEXT NOT NULL, captured TINYINT NOT NULL) {_OPTIONS}",
    f"CREATE TABLE IF NOT EXISTS {OPS} (no BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, op VARCHAR(64) NOT NULL UNIQUE,"
    " undoes VARCHAR(64) NOT NULL DEFAULT '', undone_by VARCHAR(64) NOT NULL DEFAULT '',"
    " partly TINYINT NOT NULL DEFAULT 0, receipt LONGTEXT NOT NULL DEFAULT '', plan LONGTEXT NOT NULL DEFAULT '',"
    f" at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), KEY (undoes)) {_OPTIONS}",
    f"CREATE TABLE IF NOT EXISTS {TOUCHED} (op BIGINT UNSIGNED NOT NULL, n INT UNSIGNED NOT NULL,"
    " inserted BIGINT UNSIGNED NOT NULL, updated BIGINT UNSIGNED NOT NULL, deleted BIGINT UNSIGNED NOT NULL,"
    f" images BIGINT UNSIGNED NOT NULL, PRIMARY KEY (op, n)) {_OPTIONS}",
    f"CREATE TABLE IF NOT EXISTS {PLANS} (op VARCHAR(64) PRIMARY KEY, undoes VARCHAR(64) NOT NULL,"
    f" plan LONGTEXT NOT NULL) {_OPTIONS}",
)


def trigger_name(event: str, n: int) -> str:
    return f"_tb_{event}_{n}"


def log_table(table: LoggedTable) -> str:
    """Typed, so that a value is the same bits there and back. `tb_sign` -1 and 1: deleted, inserted; -2 and 2: what an
    update found and left; `tb_c` counts the rows whose foreign keys took others with them."""
    key = f", KEY tb_op (tb_op, tb_c, tb_sign){_key(table.shape)}"
    return f"CREATE TABLE IF NOT EXISTS {table.log} ({_image_columns(table.shape)}{key}) {_OPTIONS}"


def images_table(table: LoggedTable) -> str:
    """Of the session: images of one undo."""
    key = _key(table.shape) if table.shape.uniques else ""
    return f"CREATE TEMPORARY TABLE {table.put} ({_image_columns(table.shape)}{key}) {_OPTIONS}"


def _image_columns(shape: MariaShape) -> str:
    columns = "".join(
        f", {name} {column.logged_type}"
        for name, column in zip(shape.logged_names, shape.stored, strict=True)
    )
    return (
        "tb_no BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, tb_op BIGINT UNSIGNED NOT NULL,"
        f" tb_c BIGINT UNSIGNED NOT NULL, tb_sign TINYINT NOT NULL{columns}"
    )


def _key(shape: MariaShape) -> str:
    return f", KEY tb_key ({', '.join(map(shape.logged_name, shape.key))})" if shape.key else ""


def capture_triggers(table: LoggedTable, walks: dict[str, str]) -> dict[str, str]:
    """By event. `walks`: what is to be done about rows that go with a row of this table, by event."""
    events: dict[str, tuple[str, dict[int, str]]] = {
        "ai": ("AFTER INSERT", {1: "NEW"}),
        "au": ("AFTER UPDATE", {-2: "OLD", 2: "NEW"}),
        "ad": ("AFTER DELETE", {-1: "OLD"}),
        "bu": ("BEFORE UPDATE", {}),
        "bd": ("BEFORE DELETE", {}),
    }
    names = table.shape.names
    found: dict[str, str] = {}
    for event, (when, images) in events.items():
        rows = ", ".join(f"({GATE}, 0, {sign}, {listed(names, row)})" for sign, row in images.items())
        logging = f"INSERT INTO {table.log} ({table.shape.image_columns}) VALUES {rows};" if rows else ""
        if body := logging + walks.get(event, ""):
            found[event] = _trigger(event, table.n, when, table.shape.name, body)
    return found


def refusing_triggers(n: int, name: str) -> dict[str, str]:
    """On a table that is not captured: a change of it must not pass as if it were."""
    signal = (
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT ="
        " 'takeback: a change of a table that is not protected cannot be taken back';"
    )
    events = {"bi": "BEFORE INSERT", "bu": "BEFORE UPDATE", "bd": "BEFORE DELETE"}
    return {event: _trigger(event, n, when, name, signal) for event, when in events.items()}


def _trigger(event: str, n: int, when: str, table: str, body: str) -> str:
    return (
        f"CREATE TRIGGER {trigger_name(event, n)} {when} ON {quoted(table)} FOR EACH ROW"
        f" BEGIN {_WHOSE} IF {GATE} IS NOT NULL THEN {body} END IF; END"
    )


# Rows that InnoDB changes or deletes by itself because their foreign key says so: no trigger sees them. So the triggers
# of the table they refer to look for them: before the row goes, all that could go with it is logged as it is; after it,
# whatever of that is still there is logged as it is then. What did not change cancels out, so a walk may go too far but
# never not far enough.


_ACTS = ("CASCADE", "SET NULL")
DELETED, UPDATED = "deleted", "updated"
_DEEPEST = 16  # InnoDB follows foreign keys through 15 levels and no further


class Edge(NamedTuple):
    """Rows of one table that go with rows of another."""

    source: str
    link: MariaForeignKey
    becomes: frozenset[str]  # deleted, updated, or either
    direct: bool  # from the row of the statement itself


def walks(
    start: LoggedTable, tables: dict[str, LoggedTable], links: Sequence[MariaForeignKey]
) -> dict[str, str]:
    """The steps of this table's triggers for other tables, by event; none if no rows of others are deleted with its
    rows."""
    found: dict[str, str] = {}
    for event, becomes in (("d", DELETED), ("u", UPDATED)):
        if edges := _edges(start.shape.name, becomes, links):
            walk = Walk(start, becomes, edges, tables)
            found |= {f"b{event}": walk.before(), f"a{event}": walk.after()}
    return found


def reached(name: str, links: Sequence[MariaForeignKey]) -> set[str]:
    """The tables whose rows can go with a row of this one."""
    return {edge.link.child for becomes in (DELETED, UPDATED) for edge in _edges(name, becomes, links)}


def _edges(start: str, becomes: str, links: Sequence[MariaForeignKey]) -> list[Edge]:
    direct = {
        link: {_outcome(link, becomes)} for link in links if link.parent == start and _acts(link, becomes)
    }
    states: dict[str, set[str]] = defaultdict(set)
    for link, outcomes in direct.items():
        states[link.child] |= outcomes
    deeper: dict[MariaForeignKey, set[str]] = defaultdict(set)
    grew = True
    while grew:
        grew = False
        for link in links:
            for state in tuple(states[link.parent]):
                if not _acts(link, state) or (state == UPDATED and not _may_change(link, links)):
                    continue
                outcome = _outcome(link, state)
                for known in (deeper[link], states[link.child]):
                    grew = grew or outcome not in known
                    known.add(outcome)
    edges = [Edge(start, link, frozenset(outcomes), True) for link, outcomes in direct.items()]
    return edges + [Edge(link.parent, link, frozenset(outcomes), False) for link, outcomes in deeper.items()]


def _acts(link: MariaForeignKey, state: str) -> bool:
    return not link.elsewhere and (link.on_delete if state == DELETED else link.on_update) in _ACTS


def _outcome(link: MariaForeignKey, state: str) -> str:
    return DELETED if state == DELETED and link.on_delete == "CASCADE" else UPDATED


def _may_change(link: MariaForeignKey, links: Sequence[MariaForeignKey]) -> bool:
    """A row that is changed by a foreign key is changed in its columns; that matters to those who refer to them."""
    changed = {column for other in links if other.child == link.parent for column in other.columns}
    return bool(changed.intersection(link.refers))


class Walk(NamedTuple):
    """From a row of one table to the rows of others that are deleted or updated with it."""

    start: LoggedTable
    becomes: str
    edges: list[Edge]
    tables: dict[str, LoggedTable]

    @property
    def mine(self) -> str:
        return f"@takeback_d{self.start.n}"

    @property
    def children(self) -> list[LoggedTable]:
        return [self.tables[name] for name in sorted({edge.link.child for edge in self.edges})]

    def before(self) -> str:
        # A row that was to be deleted and was not (DELETE IGNORE): nothing went with it.
        forget = "".join(
            f"DELETE FROM {child.log} WHERE tb_op = {GATE} AND tb_c = {self.mine};" for child in self.children
        )
        steps = "".join(self._direct(edge) for edge in self.edges if edge.direct)
        if deeper := "".join(self._deeper(edge) for edge in self.edges if not edge.direct):
            steps += (
                "SET @takeback_l = 0; REPEAT SET @takeback_f = 0; SET @takeback_l = @takeback_l + 1;"
                f" {deeper} UNTIL @takeback_f = 0 OR @takeback_l > {_DEEPEST} END REPEAT;"
            )
        count = "@takeback_c = IFNULL(@takeback_c, CONNECTION_ID() << 32) + 1"
        walk = f"SET {count}; SET {self.mine} = @takeback_c; {steps}"
        if self.becomes == UPDATED:
            walk = f"IF {self._refers_change()} THEN {walk} END IF;"
        return (
            f"IF {self.mine} IS NOT NULL THEN {forget} SET {self.mine} = NULL; END IF;"
            f" IF @@foreign_key_checks THEN {walk} END IF;"
        )

    def _refers_change(self) -> str:
        """In any bit: a foreign key follows a change of case as well."""
        names = {name for edge in self.edges if edge.direct for name in edge.link.refers}
        columns = {column.name: column for column in self.start.shape.columns}
        return " OR ".join(
            f"NOT ({_bits(columns[name], 'OLD')} <=> {_bits(columns[name], 'NEW')})" for name in sorted(names)
        )

    def _direct(self, edge: Edge) -> str:
        link, child = edge.link, self.tables[edge.link.child]
        rows = ["OLD", "NEW"] if self.becomes == UPDATED and _moves(link, child.shape) else ["OLD"]
        return "".join(
            self._add(
                child, edge, f"FROM {child.table} r", equal(of("r", link.columns), of(row, link.refers))
            )
            for row in rows
        )

    def _deeper(self, edge: Edge) -> str:
        link, child, parent = edge.link, self.tables[edge.link.child], self.tables[edge.source]
        on = equal(of("r", link.columns), parent.shape.logged("s", link.refers))
        source = f"FROM {parent.log} s JOIN {child.table} r ON {on}"
        where = f"s.tb_op = {GATE} AND s.tb_c = {self.mine} AND s.tb_sign < 0"
        moving = UPDATED in edge.becomes and _moves(link, child.shape) and link.on_update == "CASCADE"
        return (_refusal(source, where) if moving else "") + self._add(child, edge, source, where)

    def _add(self, child: LoggedTable, edge: Edge, source: str, where: str) -> str:
        shape, alone = child.shape, sum(other.link.child == child.shape.name for other in self.edges) == 1
        if shape.name == self.start.shape.name:
            if not shape.key:
                return _refusal(source, where)
            where = f"{where} AND NOT ({equal(of('r', shape.key), of('OLD', shape.key))})"
        several = not (alone and edge.direct) or _moves(edge.link, shape)
        if not shape.key and (several or UPDATED in edge.becomes):
            return _refusal(source, where)
        if several:
            same = shape.same_key("l", "r")
            source += f" LEFT JOIN {child.log} l ON {same} AND l.tb_op = {GATE} AND l.tb_c = {self.mine}"
            where += " AND l.tb_no IS NULL"
        if edge.direct:
            return self._log(child, -1, source, where)
        # Those referred to need not be unique.
        insert = self._log(child, -1, source, f"{where} GROUP BY {listed(shape.key, 'r')}")
        return f"{insert} SET @takeback_f = @takeback_f + ROW_COUNT();"

    def _log(self, child: LoggedTable, sign: int, source: str, where: str) -> str:
        return (
            f"INSERT INTO {child.log} ({child.shape.image_columns})"
            f" SELECT {GATE}, {self.mine}, {sign}, {listed(child.shape.names, 'r')} {source} WHERE {where};"
        )

    def after(self) -> str:
        steps = ""
        for child in self.children:
            if child.shape.key:  # else all of them were deleted, or the change was refused
                source = f"FROM {child.log} s JOIN {child.table} r ON {child.shape.same_key('s', 'r')}"
                where = f"s.tb_op = {GATE} AND s.tb_c = {self.mine} AND s.tb_sign < 0"
                steps += self._log(child, 1, source, where)
        for edge in self.edges:
            link, child = edge.link, self.tables[edge.link.child]
            if self.becomes == UPDATED and edge.direct and _moves(link, child.shape):
                known = f"{child.shape.same_key('l', 'r')} AND l.tb_op = {GATE} AND l.tb_c = {self.mine}"
                source = f"FROM {child.table} r LEFT JOIN {child.log} l ON {known} AND l.tb_sign > 0"
                where = f"{equal(of('r', link.columns), of('NEW', link.refers))} AND l.tb_no IS NULL"
                steps += self._log(child, 1, source, where)
        return f"IF {self.mine} IS NOT NULL THEN {steps} SET {self.mine} = NULL; END IF;"


def _bits(column: MariaColumn, row: str) -> str:
    value = f"{row}.{quoted(column.name)}"
    return f"CAST({value} AS BINARY)" if column.charset else value


def _moves(link: MariaForeignKey, shape: MariaShape) -> bool:
    """Whether a row that follows gets another key with that, so that it cannot be found by the old one."""
    return bool(set(link.columns).intersection(shape.key))


def _refusal(source: str, where: str) -> str:
    return (
        f"IF EXISTS (SELECT 1 {source} WHERE {where}) THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT ="
        " 'takeback: a foreign key would change rows in a way that cannot be captured'; END IF;"
    )
