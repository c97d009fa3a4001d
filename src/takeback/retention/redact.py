"""Erase content and words for good: which records and contents hold them, what is lost by that, and the erasing itself.

The REDACT records come first, with what is left of every record, and with the names of the contents to erase in a
table beside them. After a kill the next recovery or sweep finishes it: ways back are given up and
released, the bodies of the records are erased, the contents are deleted, and the files of the store are rewritten.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from takeback.engine.parts import Parts
from takeback.errors import BlobMissing, Refused
from takeback.model.effect import OPEN_STATES, Effect, State
from takeback.model.ids import short
from takeback.model.lifecycle import BIRTHS
from takeback.model.person import Person, recorded
from takeback.model.record import STORE, Draft, Kind, Record, canonical, is_erased
from takeback.model.redaction import SearchText, digests_in, left_of
from takeback.model.run import UNFINISHED, OnDeath
from takeback.retention.candidates import Verdict
from takeback.retention.forget import forget, refuse_of_unfinished
from takeback.retention.space import live
from takeback.storage.erasure import Erased, announce, erase, finished
from takeback.storage.protocols import Query
from takeback.storage.store import Store

_TOGETHER = 400  # records that one REDACT record names
_SETTLED = (State.DONE, State.UNDONE, State.DROPPED)
_WHY = "goes: its content was redacted"


class Redaction(NamedTuple):
    effects: tuple[Effect, ...]  # whose content goes, oldest first
    lost: tuple[Effect, ...]  # those of them that could be undone, brought back or applied until now
    records: tuple[int, ...]  # their numbers
    blobs: tuple[str, ...]
    shared: tuple[str, ...]  # other effects that need some of the same content or name its digest
    left: tuple[str, ...] = ()  # once it is done: what could not be reached, one sentence each


class _Book(NamedTuple):
    """What the records name, without their bodies."""

    units: dict[str, list[Record]]  # by effect, or `#` and the number of a record of a run or of the store
    named: dict[bytes, set[str]]  # by digest: units
    names: dict[str, set[bytes]]
    kin: dict[str, set[str]]  # effects that take each other back
    hit: set[str]  # units that hold the words


def plan(
    parts: Parts, effects: Sequence[str], runs: Sequence[str], words: SearchText | None, with_shared: bool
) -> Redaction:
    """Of these effects and runs, or wherever the words stand."""
    book = _read(parts, words)
    content = _Content(parts, words) if words or with_shared else None
    chosen = {*effects, *book.hit}
    for unit, records in book.units.items():
        if records[0].run in runs:
            chosen.add(unit)
    _add_kin(book, chosen)
    blobs = content.hit if content and words else _blobs_named(parts, book, chosen)
    if content:
        while True:
            before = len(chosen), len(blobs)
            blobs |= content.naming(blobs)
            chosen |= {unit for digest in blobs for unit in book.named.get(digest, ())}
            _add_kin(book, chosen)
            if (len(chosen), len(blobs)) == before:
                break
    shared = {unit for digest in blobs for unit in book.named.get(digest, ())} - chosen
    ids = tuple(unit for unit in chosen if not unit.startswith("#"))
    found = tuple(parts.journal.effects(Query(ids=ids))) if ids else ()
    records = sorted(record.seq for unit in chosen for record in book.units.get(unit, ()))
    return Redaction(
        found,
        tuple(one for one in found if one.state in _SETTLED and not one.forgotten and not one.redacted),
        tuple(records),
        tuple(sorted(digest.decode() for digest in blobs)),
        tuple(sorted(shared)),
    )


def _read(parts: Parts, words: SearchText | None) -> _Book:
    book = _Book({}, {}, {}, {}, set())
    for record in parts.journal.records():
        unit = record.effect or f"#{record.seq}"
        text = canonical(record.body)
        digests = digests_in(text)
        book.units.setdefault(unit, []).append(record._replace(body={}))
        book.names.setdefault(unit, set()).update(digests)
        for digest in digests:
            book.named.setdefault(digest, set()).add(unit)
        if words and text in words:
            book.hit.add(unit)
        if record.kind in BIRTHS and (undoes := record.body.get("undoes")):
            book.kin.setdefault(unit, set()).add(undoes)
            book.kin.setdefault(undoes, set()).add(unit)
    return book


def _add_kin(book: _Book, chosen: set[str]) -> None:
    waiting = list(chosen)
    while waiting:
        more = book.kin.get(waiting.pop(), set()) - chosen
        chosen |= more
        waiting += more


def _blobs_named(parts: Parts, book: _Book, chosen: Iterable[str]) -> set[bytes]:
    found = {digest for unit in chosen for digest in book.names.get(unit, ())}
    return {digest for digest in found if parts.blobs.has(digest.decode())}


class _Content:
    """All contents of the store, read once."""

    def __init__(self, parts: Parts, words: SearchText | None) -> None:
        self.hit: set[bytes] = set()
        self._names: dict[bytes, set[bytes]] = {}  # by content: the digests that stand in it
        overlap = max(66, words.longest if words else 0)
        infos = list(parts.blobs.info())
        with parts.progress.stage("Searching", "blob"):
            parts.progress.expect(len(infos), sum(one.size for one in infos))
            for info in infos:
                digest = info.digest.encode()
                tail = b""
                with suppress(BlobMissing):  # a sweep removed it
                    for piece in parts.blobs.read(info.digest):
                        data = tail + piece
                        if words and data in words:
                            self.hit.add(digest)
                        if names := digests_in(data):
                            self._names.setdefault(digest, set()).update(names)
                        tail = data[-overlap:]
                parts.progress.moved(info.size, 1)

    def naming(self, blobs: set[bytes]) -> set[bytes]:
        return {digest for digest, names in self._names.items() if not names.isdisjoint(blobs)}


def refuse_unfit(parts: Parts, found: Redaction, words: SearchText | None, why: Sequence[str]) -> None:
    if words and any(text.encode("utf-8", "surrogateescape") in words for text in why):
        raise Refused(
            "The reason holds the text that is to be erased.",
            hint="The reason is recorded and stays. Give another one.",
        )
    for effect in found.effects:
        name = short(effect.id)
        if effect.state in OPEN_STATES:
            raise Refused(
                f"Effect {name} is {effect.state.value}; only what is settled can be redacted.",
                hint=f"`takeback show {name}` says what it waits for. Apply, discard or recover it first.",
                effect=effect.id,
            )
        if effect.pinned:
            raise Refused(
                f"Effect {name} is pinned, and its way back would be lost.",
                hint=f"`takeback unpin {name}` first, if it may go.",
                effect=effect.id,
            )
    refuse_of_unfinished(parts, found.lost)
    ids = {effect.id for effect in found.effects}
    runs = tuple({record.run for record in _records(parts, found.records) if record.effect not in ids})
    for info in parts.journal.runs(runs) if runs else ():
        if info.state in UNFINISHED and info.on_death is not OnDeath.LEAVE:
            raise Refused(
                f"Run {short(info.id)} has not ended, and its process may still need what would be erased.",
                hint="Nothing was changed. Wait for its end, or `takeback recover` if its process is gone.",
            )


def _records(parts: Parts, seqs: Sequence[int]) -> Iterator[Record]:
    wanted = set(seqs)
    for record in parts.journal.records(after=min(seqs) - 1) if seqs else ():
        if record.seq in wanted:
            wanted.discard(record.seq)
            yield record
            if not wanted:
                return


def begin(
    parts: Parts,
    store: Store,
    found: Redaction,
    words: SearchText | None,
    whole: Sequence[str],
    person: Person,
    why: str,
) -> None:
    """Record it; from then on it is finished, whatever becomes of this process. `whole`: runs that are redacted."""
    blobs = {digest.encode() for digest in found.blobs}

    def goes(data: bytes) -> bool:
        return bool((words and data in words) or not digests_in(data).isdisjoint(blobs))

    told: list[dict[str, Any]] = []
    before: dict[int, bytes] = {}
    for record in parts.journal.records():
        before = {record.seq: record.hash, record.seq - 1: before.get(record.seq - 1, bytes(32))}
        if record.seq in found.records:
            one: dict[str, Any] = {"seq": record.seq, "left": left_of(record, goes, record.run in whole)}
            if not record.seal or len(record.seal) == 1:
                one |= {"before": before[record.seq - 1].hex(), "hash": record.hash.hex()}
            told.append(one)
    said = recorded(person) | ({"why": why} if why else {})
    ids = [effect.id for effect in found.effects]
    drafts = [
        Draft(Kind.REDACT, STORE, "", {**said, "records": told[start : start + _TOGETHER], "effects": ids})
        for start in range(0, max(1, len(told)), _TOGETHER)
    ]
    with store.together() as connection:
        announce(connection, found.blobs)
        parts.journal.append(None, drafts)


def finish(parts: Parts, store: Store, held: str, tidy: Callable[[], object]) -> tuple[str, ...]:
    """Everything that was begun. `tidy`: what else keeps content that nothing needs any more. Returns sentences about
    what could not be reached."""
    pending = store.redacting()
    if not pending:
        return ()
    redactions = list(parts.journal.records(run=STORE, kinds=(Kind.REDACT,)))
    _give_up(parts, redactions, held)
    told = {one["seq"]: one["left"] for record in redactions for one in record.body["records"]}
    with store.together() as connection:
        going = [
            Erased(record, told[record.seq])
            for record in _records(parts, sorted(told))
            if not is_erased(record.seal) or record.body != told[record.seq]
        ]
        if going:
            erase(store, connection, going)
    tidy()
    until = max((record.at for record in redactions), default=0) // 1_000_000
    digests = [digest.hex() for digest in pending if digest]
    grace = store.settings.grace_seconds
    parts.blobs.sweep(lambda: live(parts), grace, digests, until, parts.progress, for_good=True)
    stay = [digest for digest in digests if parts.blobs.has(digest)]
    with store.together() as connection:
        finished(connection, wholly=False)
    left = list(store.rewrite())
    with store.together() as connection:
        finished(connection, wholly=True)
    if stay:
        many = f"{len(stay):,} contents are still needed by other effects or a box, and stay."
        left.append(
            "One content is still needed by another effect or a box, and stays." if len(stay) == 1 else many
        )
    return tuple(left)


def _give_up(parts: Parts, redactions: Sequence[Record], held: str) -> None:
    ids = tuple(dict.fromkeys(id for record in redactions for id in record.body["effects"]))
    found = parts.journal.effects(Query(ids=ids, remembered=True, damaged_too=True)) if ids else ()
    forget(parts, [Verdict(one, True, _WHY) for one in found if one.state in _SETTLED], held)
