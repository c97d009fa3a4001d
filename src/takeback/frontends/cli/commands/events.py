"""`events`: what happens in the store, as JSON lines for programs; and its metrics."""

import json
import select
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from takeback.api import now
from takeback.errors import Misuse, ResourceUnreachable, Unavailable
from takeback.frontends.cli.command import Asked, Command, Does, filled, flag, number_of, option, repeated
from takeback.frontends.cli.output.screen import put_whole
from takeback.frontends.cli.session.store import existing, nothing_yet, opened, tell_nothing

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.audit.alerts import Alert, AlertChange
    from takeback.audit.events import EventReader
    from takeback.storage.store import Store

_LOOK = 0.2  # seconds between two looks for new records
_LOOK_FOR_ALERTS = 5_000_000  # microseconds between two looks at what is derived from the state
_ENDED_BY_INTERRUPT = 130

_ARGUMENTS = (
    flag("-f, --follow", "wait for more events, and for alerts"),
    option("--after", "SEQ", "after the record of this number: the `seq` that was read last", type=number_of),
    option("--since", "TIME", "since then: 10m, 2h, 3d, 09:30, 2026-11-18", type=filled),
    repeated("--only", "EVENT", "only events of this name; may be given several times"),
    option("--run", "R", "only of this run: its name, id, or the beginning of its id", type=filled),
    option("--agent", "A", "only of this agent", default=""),
    flag("--metrics", "numbers of the store instead, in the text format of Prometheus"),
)


def _events(asked: Asked) -> int:
    options = asked.options
    if options.after is not None and options.since:
        raise Misuse("--after and --since both say where to begin.", hint="Give one of them.")
    if options.metrics and (options.follow or options.only or options.since or options.after is not None):
        raise Misuse("--metrics prints numbers, not events.", hint="Give it alone.")
    _refuse_unknown(options.only)
    if options.follow:
        with existing(asked) as tb:
            try:
                return _follow(asked, tb)
            except KeyboardInterrupt:
                return _ENDED_BY_INTERRUPT  # that is how it ends
    if nothing_yet(asked):
        lines = asked.screen._replace(json=False, quiet=asked.options.json or asked.screen.quiet)
        return tell_nothing(asked._replace(screen=lines), [])  # as JSON lines nothing is no line
    with opened(asked) as tb:
        if options.metrics:
            import takeback
            from takeback.audit.metrics import metrics

            put_whole(metrics(tb.store, now(), takeback.__version__), end="")
            return 0
        reader, wanted = _reader(tb.store), _Wanted(asked, tb)
        for _, line in _lines(reader, wanted, _first(asked, tb.store, 0)):
            if line:
                put_whole(line)
    return 0


def _refuse_unknown(names: list[str]) -> None:
    from takeback.audit.events import NAMES
    from takeback.model.words import did_you_mean

    for name in names:
        if name not in NAMES:
            listed = f"There are {', '.join(NAMES)}."
            raise Misuse(f"There is no event {name!r}.", hint=did_you_mean(name, tuple(NAMES), listed))


def _reader(store: "Store") -> "EventReader":
    from takeback.adapters.protocol import TRAITS, Traits
    from takeback.audit.events import EventReader

    return EventReader(store.journal, lambda adapter: TRAITS.get(adapter, Traits()).calls)


def _first(asked: Asked, store: "Store", otherwise: int) -> int:
    if asked.options.after is not None:
        return asked.options.after
    if asked.options.since:
        from takeback.audit.events import first_since
        from takeback.model.words import point_in_time

        return first_since(store.journal, point_in_time(asked.options.since, now()))
    return otherwise


class _Wanted:
    """Which events, by --only, --run and --agent."""

    def __init__(self, asked: Asked, tb: "Takeback") -> None:
        self._names = set(asked.options.only)
        self._run = tb.find_run(asked.options.run).id if asked.options.run else ""
        self._agent: str = asked.options.agent

    def __call__(self, told: dict[str, Any]) -> bool:
        if self._names and told["event"] not in self._names:
            return False
        if self._run and told["run"] != self._run:
            return False
        return not self._agent or told["agent"] == self._agent


def _lines(reader: "EventReader", wanted: _Wanted, after: int) -> Iterator[tuple[int, str]]:
    """The number of each record, and its line; empty for one that is not wanted."""
    from takeback.audit.events import event_json

    for seq, event in reader.read(after):
        told = event_json(event) if event else None
        yield seq, json.dumps(told) if told and wanted(told) else ""


def _follow(asked: Asked, tb: "Takeback") -> int:
    store, wanted = tb.store, _Wanted(asked, tb)
    reader, last = _reader(store), _first(asked, store, store.journal.newest())
    gone = select.poll()
    gone.register(sys.stdout.fileno(), 0)  # only whether the reader has closed it
    open_alerts: dict[str, Alert] = {}
    looked = 0
    while True:
        with suppress(Unavailable):  # a locked store is tried again
            for seq, line in _lines(reader, wanted, last):
                if line:
                    put_whole(line)
                last = seq
            if now() - looked >= _LOOK_FOR_ALERTS:
                looked = now()
                open_alerts = _tell_alerts(store, open_alerts, last, wanted)
        sys.stdout.flush()
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in gone.poll(0)):
            raise BrokenPipeError
        if store.is_replaced:
            raise ResourceUnreachable(
                f"The store at {store.name} was replaced or removed while it was followed.",
                hint=f"`takeback events --follow --after {last}` continues when it is back.",
            )
        store.wait_for_work(_LOOK)


def _tell_alerts(store: "Store", known: "dict[str, Alert]", last: int, wanted: _Wanted) -> "dict[str, Alert]":
    """Alerts are of the state, not of a record: they carry the number of the record before them."""
    from takeback.audit.alerts import tell_changes

    def send(change: "AlertChange") -> None:
        told = alert_event(change, last, now())
        if wanted(told):
            put_whole(json.dumps(told))

    return tell_changes(store, now(), known, send)


def alert_event(change: "AlertChange", seq: int, at: int) -> dict[str, Any]:
    from takeback.audit.alerts import alert_json
    from takeback.audit.events import StoreEvent, event_json

    alert = change.alert
    name = "alert-opened" if change.is_open else "alert-closed"
    event = StoreEvent(
        seq, at, name, run=alert.run, effect=alert.effect, why=alert.says, more=alert_json(alert)
    )
    return event_json(event)


COMMAND = Command(_events, _ARGUMENTS, does=Does.LOOKS)
