"""Numbers of a store in the text format of Prometheus and OpenMetrics."""

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from takeback.audit.alerts import Severity, alerts
from takeback.audit.runs import dead_runs
from takeback.audit.status import UNDOS_BY_STATE
from takeback.engine.approval import proposals
from takeback.engine.stop import stops
from takeback.model.effect import PERSON, State, waits_for_approval
from takeback.model.record import STORE, Kind
from takeback.model.run import RunState
from takeback.storage import disk
from takeback.storage.protocols import Query
from takeback.storage.store import Store
from takeback.storage.verify_note import last_verified

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_PARTS = ("blobs", "layers", "watch", "held")  # directories of a store that are counted by themselves

# Each name: what kind of number it is, and what it says.
HELP: dict[str, tuple[str, str]] = {
    "takeback_build_info": ("gauge", "The version of takeback that answered."),
    "takeback_records": ("gauge", "Records in the journal."),
    "takeback_effects": ("gauge", "Effects by state, without undos."),
    "takeback_undos": ("gauge", "Undos in force."),
    "takeback_accepted": ("gauge", "Effects that stay even if their run fails."),
    "takeback_pinned": ("gauge", "Effects whose way back is never forgotten."),
    "takeback_forgotten": ("gauge", "Effects whose way back was given up."),
    "takeback_held": ("gauge", "Changes that are ready and wait for a person."),
    "takeback_drops": ("gauge", "Dropped changes that can still be applied."),
    "takeback_approvals_pending": ("gauge", "Changes that wait for an approval."),
    "takeback_approval_oldest_seconds": ("gauge", "How long the oldest of these has waited."),
    "takeback_runs": ("gauge", "Runs that have not ended, by state; dead: their process is gone."),
    "takeback_stops": ("gauge", "Stops in force."),
    "takeback_store_bytes": ("gauge", "Bytes of the store on disk, by part."),
    "takeback_store_limit_bytes": ("gauge", "The cap of the store."),
    "takeback_disk_free_bytes": ("gauge", "Free on the disk under the store."),
    "takeback_disk_reserved_bytes": ("gauge", "What must stay free there."),
    "takeback_verify_age_seconds": ("gauge", "Since the store was last verified on this machine."),
    "takeback_verify_findings": ("gauge", "What that found; 0 is sound."),
    "takeback_anchor_age_seconds": ("gauge", "Since the head of the chain was last anchored."),
    "takeback_rehearsal_age_seconds": ("gauge", "Since a way back was last rehearsed."),
    "takeback_alerts": ("gauge", "Open alerts by severity; `takeback status` lists them."),
}


class Sample(NamedTuple):
    name: str
    value: int
    label: str = ""
    of: str = ""  # the value of the label


def metrics(store: Store, now: int, version: str) -> str:
    """What takes long in a large store is not asked for: the cost grows with what is open, and with the undos."""
    samples = [Sample("takeback_build_info", 1, "version", version)]
    samples += [*_of_effects(store), *_of_people(store, now), *_of_runs(store, now), *_of_room(store)]
    samples += [*_ages(store, now), *_of_alerts(store, now)]
    return "\n".join((*_lines(samples), "# EOF", ""))


def _lines(samples: Iterable[Sample]) -> Iterator[str]:
    told = ""
    for one in samples:
        kind, help = HELP[one.name]
        if one.name != told:
            yield f"# TYPE {one.name} {kind}"
            yield f"# HELP {one.name} {help}"
            told = one.name
        label = f'{{{one.label}="{one.of}"}}' if one.label else ""
        yield f"{one.name}{label} {one.value}"


def _of_effects(store: Store) -> Iterator[Sample]:
    tally = store.journal.tally()
    states = {state: tally.get(state.value, 0) for state in State}
    accepted, forgotten, undos = tally.get("accepted", 0), tally.get("forgotten", 0), 0
    for state, was_accepted, was_forgotten, count in store.read(UNDOS_BY_STATE):
        states[State(state)] -= count
        undos += count if state == State.DONE else 0
        accepted -= count if was_accepted else 0
        forgotten -= count if was_forgotten else 0
    yield Sample("takeback_records", tally["records"])
    for state, count in states.items():
        yield Sample("takeback_effects", count, "state", state.value)
    yield Sample("takeback_undos", undos)
    yield Sample("takeback_accepted", accepted)
    yield Sample("takeback_pinned", tally.get("pinned", 0))
    yield Sample("takeback_forgotten", forgotten)


def _of_people(store: Store, now: int) -> Iterator[Sample]:
    proposed = tuple(store.journal.effects(Query(states=(State.PROPOSED,))))
    held = sum(one.waits_for == PERSON and not waits_for_approval(one) for one in proposed)
    asked = proposals(store, now) if any(map(waits_for_approval, proposed)) else ()
    waiting = [one.effect.at for one in asked if not one.decision and not one.never]
    yield Sample("takeback_held", held)
    yield Sample("takeback_drops", store.journal.tally().get("dropped", 0))
    yield Sample("takeback_approvals_pending", len(waiting))
    yield Sample("takeback_approval_oldest_seconds", _seconds(min(waiting, default=now), now))


def _of_runs(store: Store, now: int) -> Iterator[Sample]:
    unfinished = tuple(store.journal.runs(unfinished=True))
    for state in (RunState.OPEN, RunState.SUSPENDED):
        yield Sample("takeback_runs", sum(one.state is state for one in unfinished), "state", state.value)
    yield Sample("takeback_runs", len(dead_runs(store, now)), "state", "dead")
    yield Sample("takeback_stops", len(stops(store.journal)))


def _of_room(store: Store) -> Iterator[Sample]:
    sizes = {part: _bytes_in(os.path.join(store.path, part)) for part in _PARTS}
    rest = store.bytes_on_disk(without=(*_PARTS, disk.SPARE))
    for part, size in {"journal": rest, **sizes}.items():
        yield Sample("takeback_store_bytes", size, "part", part)
    limits = store.limits()
    yield Sample("takeback_store_limit_bytes", limits.store)
    yield Sample("takeback_disk_free_bytes", store.free_bytes())
    yield Sample("takeback_disk_reserved_bytes", limits.free)


def _bytes_in(place: str) -> int:
    total = 0
    for directory, _, names in os.walk(place):
        for name in names:
            try:
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512
            except OSError:
                continue  # removed in between
    return total


def _ages(store: Store, now: int) -> Iterator[Sample]:
    if verified := last_verified(store.verify_note):
        yield Sample("takeback_verify_age_seconds", _seconds(verified.at, now))
        yield Sample("takeback_verify_findings", verified.findings)
    for name, kind in (
        ("takeback_anchor_age_seconds", Kind.ANCHOR), ("takeback_rehearsal_age_seconds", Kind.REHEARSE)
    ):  # fmt: skip
        last = max((one.at for one in store.journal.records(run=STORE, kinds=(kind,))), default=0)
        if last:
            yield Sample(name, _seconds(last, now))


def _of_alerts(store: Store, now: int) -> Iterator[Sample]:
    found = alerts(store, now)
    for severity in Severity:
        count = sum(one.severity is severity for one in found)
        yield Sample("takeback_alerts", count, "severity", severity.value)


def _seconds(since: int, now: int) -> int:
    return max(0, now - since) // 1_000_000
