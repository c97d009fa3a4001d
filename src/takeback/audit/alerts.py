"""What needs a person, derived from how the store stands: an alert is open as long as its cause is there."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from takeback.adapters.protocol import traits_of
from takeback.audit.runs import dead_runs
from takeback.audit.views import iso
from takeback.engine.stop import in_words, stops, way_out
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.run import needs_attention
from takeback.model.settings import bytes_in_words
from takeback.policy.secrets import masked, masked_json
from takeback.storage.disk import is_full
from takeback.storage.protocols import Query
from takeback.storage.store import Store
from takeback.storage.verify_note import last_verified

NEARLY = 90  # percent of what the store may take
BY_POLICY = "policy"
ALONE = (
    "verification-failed",
    "records-lost",
    "breaker",
    "store-nearly-full",
)  # nothing else in `status` tells these


class Severity(StrEnum):
    WARNING = "warning"  # it can wait for a day
    ERROR = "error"  # something is not as it should be, and undo still works
    CRITICAL = "critical"  # undo may not work, or a change stands half done


class Alert(NamedTuple):
    id: str  # the same as long as it is open: what it is, and what it is about
    severity: Severity
    since: int  # microseconds since 1970; 0 where nothing tells
    says: str  # one sentence
    hint: str = ""
    effect: str = ""
    run: str = ""


def alert_json(alert: Alert) -> dict[str, Any]:
    told = alert._asdict() | {"severity": alert.severity.value, "since": iso(alert.since)}
    return masked_json({name: value if value != "" else None for name, value in told.items()})


def alerts(store: Store, now: int) -> tuple[Alert, ...]:
    """The gravest first, and of these the oldest."""
    order = list(Severity)[::-1]
    found = sorted(_found(store, now), key=lambda one: (order.index(one.severity), one.since, one.id))
    return tuple(one._replace(says=masked(one.says)) for one in found)


def _found(store: Store, now: int) -> Iterator[Alert]:
    yield from _of_store(store)
    yield from _of_room(store, now)
    yield from _of_effects(store, now)
    yield from _of_runs(store, now)
    for stop in stops(store.journal):
        if stop.by == BY_POLICY:
            yield Alert(
                f"breaker:{stop.seq}", Severity.ERROR, stop.at, f"{in_words(stop)}.", way_out(stop), run=stop.run
            )  # fmt: skip


def _of_store(store: Store) -> Iterator[Alert]:
    verified = last_verified(store.verify_note)
    if verified and verified.findings:
        many = f" and {verified.findings - 1:,} more" if verified.findings > 1 else ""
        yield Alert(
            "verification-failed", Severity.CRITICAL, verified.at, f"`takeback verify` found: {verified.first}{many}",
            "`takeback verify` lists all of it and says what still works. Restore the store from a backup.",
        )  # fmt: skip
    if lost := store.lost():
        yield Alert("records-lost", Severity.CRITICAL, 0, lost, "Restore the store from a backup.")
    if store.suspect():
        yield Alert(
            "disk-failed", Severity.CRITICAL, 0, "The disk under the store failed: new changes are refused.",
            "Run `takeback verify --read-data`; when it finds nothing wrong, the store is trusted again.",
        )  # fmt: skip


def _of_room(store: Store, now: int) -> Iterator[Alert]:
    room = "`takeback forget`, then `takeback sweep` make room; `store_bytes` in the settings moves the cap."
    if is_full(store.path):
        says = "The disk under the store is full: looking works, changes and undo are refused."
        yield Alert("store-full", Severity.CRITICAL, 0, says, room)
        return
    limits, kept, free = store.limits(), store.bytes_kept(), store.free_bytes()
    if kept * 100 >= limits.store * NEARLY:
        says = (
            f"The store takes {bytes_in_words(kept)} of the {bytes_in_words(limits.store)} that it may take."
        )
        yield Alert("store-nearly-full", Severity.WARNING, 0, says, room)
    elif free * NEARLY <= limits.free * 100:
        reserved = bytes_in_words(limits.free)
        says = f"The disk under the store has {bytes_in_words(free)} free, and {reserved} must stay free."
        yield Alert("store-nearly-full", Severity.WARNING, 0, says, room)


def _of_effects(store: Store, now: int) -> Iterator[Alert]:
    for effect in store.journal.effects(Query(states=(State.STUCK, State.INTENDED), damaged_too=True)):
        calls = traits_of(effect.change).calls
        name, what = short(effect.id), effect.change.summary
        if calls and (effect.state is State.STUCK or store.leases.free(effect.run, now)):
            hint = (
                f"Look whether it happened, then `takeback settle {name} --happened` or `--did-not-happen`."
            )
            says = f"Whether {name} ({what}) happened is not known{_because(effect)}."
            yield Alert(f"in-doubt:{effect.id}", Severity.ERROR, effect.at, says, hint, effect.id, effect.run)
        elif effect.state is State.STUCK:
            verb = "The undo" if effect.undoes else "Effect"
            hint = f"`takeback show {name}` has the details. Fix the cause, then `takeback recover`."
            says = f"{verb} {name} ({what}) is stuck{_because(effect)}."
            yield Alert(f"stuck:{effect.id}", Severity.CRITICAL, effect.at, says, hint, effect.id, effect.run)


def _because(effect: Effect) -> str:
    return f": {effect.note.rstrip('.')}" if effect.note else ""


def _of_runs(store: Store, now: int) -> Iterator[Alert]:
    for dead in dead_runs(store, now):
        says = f"The process of run {short(dead.info.id)} ({dead.info.name}) is gone, and its work is not settled."
        hint = "`takeback recover` settles it; `takeback status` says how."
        yield Alert(f"dead-run:{dead.info.id}", Severity.ERROR, dead.last_at, says, hint, run=dead.info.id)
    for info in store.journal.runs(unfinished=True):
        if needs_attention(info):
            why = f": {info.note}" if info.note else ""
            says = f"Run {short(info.id)} of {info.workflow} cannot continue without a person{why}."
            hint = f"`takeback show {short(info.id)}` says what it waits for."
            yield Alert(f"attention:{info.id}", Severity.ERROR, info.opened_at, says, hint, run=info.id)


class AlertChange(NamedTuple):
    alert: Alert
    is_open: bool  # false: its cause is gone


def changes(before: Mapping[str, Alert], now: Iterable[Alert]) -> tuple[AlertChange, ...]:
    """What opened and what closed since: each once."""
    found = {one.id: one for one in now}
    opened = (AlertChange(one, True) for id, one in found.items() if id not in before)
    closed = (AlertChange(one, False) for id, one in before.items() if id not in found)
    return (*opened, *closed)


def tell_changes(
    store: Store, now: int, known: Mapping[str, Alert], send: Callable[[AlertChange], None]
) -> dict[str, Alert]:
    """Send what opened or closed since `known`, and return what is open."""
    open_now = alerts(store, now)
    left = dict(known)
    for change in changes(known, open_now):
        send(change)
        if change.is_open:
            left[change.alert.id] = change.alert
        else:
            left.pop(change.alert.id)
    return left
