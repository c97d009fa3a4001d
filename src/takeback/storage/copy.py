"""A store as a copy of another one: every record with its number, time and hash, every blob under its name."""

import os
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from takeback.errors import Corrupt, Refused
from takeback.model.progress import SILENT, Progress
from takeback.model.record import OF_STORE, Draft, Flaw, Record
from takeback.model.run import Lease, Owner
from takeback.storage.store import Store

_TOGETHER = 200  # records in one transaction
_NOBODY = Owner("", "", 1, "")  # holds every run while it is copied


class Copied(NamedTuple):
    records: int
    blobs: int
    runs: int
    left: tuple[str, ...]  # what only the old store has, one sentence each


def copy_store(source: Store, target: Store, backup: bool = False, progress: Progress = SILENT) -> Copied:
    """No one writes to the source during the copy. An interrupted copy is continued. At the end only one of the two
    takes new records: the copy, or the source if the copy is its `backup`."""
    moved, kept = f"it was moved to {target.name}", f"it is a backup of {source.name}"
    if target.retired == kept:
        target.reopen()  # an earlier try came nearly to its end
    if source.retired not in ("", moved) and not backup:
        source.refuse_if_retired()
    with source.together():
        with progress.stage("Copying", "blob"):
            blobs = _copy_blobs(source, target, progress)
        _copy_leases(source, target)
        with progress.stage("Copying", "record"):
            records = _copy_records(source, target, progress)
        _copy_settings(source, target)
        with target.together() as connection:
            connection.execute("UPDATE leases SET pid = 0 WHERE pid <> 0")
        with progress.stage("Checking the copy", ticks=True):
            _refuse_unsound(source, target)
        if backup:
            target.retire(kept)
        else:
            # With the end of this transaction, before anyone can use the copy.
            source.retire(moved)
    target.finish_copying()
    return Copied(records, blobs, sum(1 for _ in target.journal.runs()), tuple(_left(source)))


def _copy_blobs(source: Store, target: Store, progress: Progress) -> int:
    count = 0
    if progress.draws:
        sizes = [one.size for one in source.blobs.info()]
        progress.expect(len(sizes), sum(sizes))
    roots: dict[str, str] = {}  # which chain of differences a blob belongs to, so that it stays one
    for info in source.blobs.info():
        root = roots[info.digest] = roots.get(info.base, info.base) if info.base else info.digest
        if not target.blobs.has(info.digest):
            target.blobs.put(source.blobs.read(info.digest), like=f"copied {root}")
        count += 1
        progress.moved(info.size, 1)
        if count % _TOGETHER == 0:
            target.blobs.sync()
    target.blobs.sync()
    # When all are there: a blob may refer to one that was put after it.
    for info in source.blobs.info():
        if (refs := source.blobs.refs(info.digest)) and set(refs) - set(target.blobs.refs(info.digest)):
            target.blobs.put(source.blobs.read(info.digest), refs=refs)
    target.blobs.sync()
    return count


def _copy_leases(source: Store, target: Store) -> None:
    """Only their generations: who held a run in the old store has no say in the new one."""
    found = dict(source.read("SELECT run, generation FROM leases"))
    generations = {info.id: 1 for info in source.journal.runs()} | {
        run: max(1, generation) for run, generation in found.items()
    }
    with target.together() as connection:
        for run, generation in generations.items():
            connection.execute(
                "INSERT INTO leases (run, generation, boot, space, pid, started, expires_at)"
                " VALUES (?, ?, ?, ?, ?, ?, 0) ON CONFLICT (run) DO NOTHING",
                (run, generation, *_NOBODY),
            )


def _copy_records(source: Store, target: Store, progress: Progress) -> int:
    head = target.journal.newest()
    progress.expect(source.journal.newest() - head)
    _refuse_another(source, target, head)
    original: list[Record] = []
    journal = target.adopting(lambda: original[0])
    generations = dict(target.read("SELECT run, generation FROM leases"))
    for _, some in groupby(enumerate(source.journal.records(after=head)), lambda one: one[0] // _TOGETHER):
        with target.together():
            for _, record in some:
                original[:] = [record]
                of_store = record.kind in OF_STORE
                lease = None if of_store else Lease(record.run, generations[record.run], _NOBODY, 0)
                draft = Draft(record.kind, record.run, record.effect, record.body)
                (made,) = journal.append(lease, [draft])
                _refuse_changed(record, made)
                progress.moved(items=1)
    return target.journal.newest()


def _refuse_changed(record: Record, made: Record) -> None:
    if (made.seq, made.hash) != (record.seq, record.hash):
        raise Corrupt(
            f"Record {record.seq} would not be the same in the copy.",
            hint="The store it is copied from is damaged: run `takeback verify` there.",
        )


def _refuse_another(source: Store, target: Store, head: int) -> None:
    """Records already in the copy must be the beginning of this store, not of another."""
    if not head:
        return
    newest = next(target.journal.records(after=head - 1))
    same = next(source.journal.records(after=head - 1), None)
    if same is None or same.hash != newest.hash:
        raise Refused(
            f"The store at {target.name} is not empty.", hint="Give a place where there is no store yet."
        )


def _copy_settings(source: Store, target: Store) -> None:
    """Those that are of this store, not those that the user or the administrator has for all."""
    target.keep_settings(source.own_settings)


def _refuse_unsound(source: Store, target: Store) -> None:
    problems: list[str] = [*target.journal.check(), *target.blobs.check(False)]
    if target.journal.tally() != source.journal.tally():
        problems.append(Flaw("The copy does not count the same effects."))
    if problems:
        raise Corrupt(
            f"The copy is not sound: {problems[0]}",
            hint="The old store was not touched. Run `takeback verify` on it.",
        )


def _left(source: Store) -> Iterator[str]:
    """State that cannot exist in two places."""
    held = os.path.join(source.path, "held")
    if os.path.isdir(held) and (count := len(os.listdir(held))):
        yield f"{count:,} files that were set aside as they were stay with the old store; their content was copied."
    layers = os.path.join(source.path, "layers")
    if os.path.isdir(layers) and any(os.scandir(layers)):
        yield "Boxes and what commands did in them can be taken back only by the old store."
