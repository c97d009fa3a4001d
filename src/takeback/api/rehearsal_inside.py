"""The process that carries out a rehearsal. All it sees is below a layer, so it may undo and redo for real.

It is started by `takeback.runs.rehearsals.room` and by nothing else: it refuses to work where no layer is.
"""

import errno
import json
import os
import sqlite3
import sys
import time
from contextlib import closing
from typing import Any

from takeback.adapters.file.mounts import tell_table
from takeback.errors import Blocked, Conflict, TakebackError, Unavailable
from takeback.model.database import is_of_database
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.plan import Outcome, UndoResult
from takeback.model.rehearsal import Proof, RehearsedTarget
from takeback.model.resource import file_resource
from takeback.runs.rehearsals.directories import made_anew
from takeback.runs.rehearsals.manifest import Manifest, broken_promises, differing, manifest, places_of

# Errors that come from the layer, or from a disk without room, and tell nothing about the way back.
_OF_THE_LAYER = {
    errno.EXDEV: "a layer cannot rename a directory that lies below it, or link across two filesystems",
    errno.EROFS: "its filesystem cannot have a layer",
    errno.EOVERFLOW: "a layer cannot change what belongs to another user",
    errno.ENOSPC: "the disk has no room for the layer",
    errno.EDQUOT: "the quota of the disk leaves no room for the layer",
}


def main() -> None:
    tell = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="surrogateescape")
    os.dup2(2, 1)  # what anything else prints is no answer
    asked: dict[str, Any] = json.load(sys.stdin)
    _refuse_without_layer(asked["store"])
    _put_in_place(asked)
    tell_table(asked["mounts"])

    import takeback.api

    def told(**what: Any) -> None:
        tell.write(json.dumps(what) + "\n")
        tell.flush()

    with takeback.api.open(asked["store"], recover=False) as tb:
        trial = Trial(tb, told)
        for id in asked["effects"]:
            trial.undo(id)
        trial.bring_back()
        if "plan" in asked:
            from takeback.api.rehearsal_plan import carry_out

            carry_out(tb, asked["plan"], asked["cwd"], told)
    told(end=True)


def _refuse_without_layer(store: str) -> None:
    """The way back would be gone, for real."""
    status = os.statvfs(store)
    with open("/proc/self/mountinfo", "rb") as file:
        points = {os.fsdecode(line.split()[4]): line for line in file}
    at = os.path.realpath(store)
    while at not in points and at != "/":
        at = os.path.dirname(at)
    if b" - overlay " not in points.get(at, b"") or not status:
        sys.exit("There is no layer over the store, so nothing was tried.")


def _put_in_place(asked: dict[str, Any]) -> None:
    """The copies, instead of files that others may write to at this moment."""
    import shutil

    copies = {os.path.join(asked["store"], "journal.db"): asked["journal"], **asked["databases"]}
    for path, copy in copies.items():
        status = os.stat(path)
        new = f"{path}.takeback-rehearsal"
        shutil.copyfile(copy, new)
        os.chmod(new, status.st_mode & 0o7777)
        if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(new, status.st_uid, status.st_gid)
        for ending in ("-wal", "-shm", "-journal"):
            if os.path.lexists(path + ending):
                os.unlink(path + ending)
        os.replace(new, path)


class Taken:
    """One effect that was taken back, and is to be brought back."""

    def __init__(self, effect: Effect, result: UndoResult, before: Manifest, rows: str, spent: float) -> None:
        self.effect, self.result, self.before, self.rows, self.spent = effect, result, before, rows, spent
        self.targets: list[RehearsedTarget] = []


class Trial:
    def __init__(self, tb: Any, told: Any) -> None:
        self.tb, self._told = tb, told
        self._taken: list[Taken] = []

    def undo(self, id: str) -> None:
        """Take one effect back, and compare with what the journal says was there before."""
        effect: Effect = self.tb.effect(id)
        places = places_of(effect)
        started = time.perf_counter()
        try:
            made_anew(places)
            before, rows = manifest(places), rows_of(effect)
            started = time.perf_counter()
            result: UndoResult = self.tb.undo(id)
        except Exception as error:  # noqa: BLE001 whatever an undo raises is the answer
            self.give(effect, *judged(error), started, conflict=isinstance(error, Conflict))
            return
        spent = time.perf_counter() - started
        bad = [one for one in result.targets if one.outcome not in (Outcome.UNDONE, Outcome.ALREADY)]
        if bad or result.outcome != "done":
            targets = [RehearsedTarget(one.resource, Proof.FAILS, one.detail) for one in bad]
            why = f"undo ended {result.outcome}" if not bad else f"{bad[0].detail}"
            self.give(effect, Proof.FAILS, why, started, targets)
            return
        taken = Taken(effect, result, before, rows, spent)
        found = manifest(places)
        for path, words in broken_promises(effect.targets, found).items():
            taken.targets.append(_target(path, f"undo left {words}"))
        self._taken.append(taken)

    def bring_back(self) -> None:
        """Redo all that was taken back, the last one first, and compare with what was there."""
        for taken in reversed(self._taken):
            effect = taken.effect
            started = time.perf_counter() - taken.spent
            try:
                if taken.result.undo:
                    self.tb.redo(taken.result)
                wrong = differing(taken.before, manifest(places_of(effect)))
                rows = rows_of(effect)
            except Exception as error:  # noqa: BLE001
                proof, why = judged(error)
                self.give(effect, proof, f"undo works, redo does not: {why}", started, taken.targets)
                continue
            taken.targets += [_target(path, f"redo left {words}") for path, words in wrong.items()]
            if rows != taken.rows:
                taken.targets.append(
                    RehearsedTarget(effect.change.resource, Proof.FAILS, "redo left other rows")
                )
            bad = next((one for one in taken.targets if one.proof is not Proof.WORKS), None)
            if bad is not None:
                self.give(effect, Proof.FAILS, bad.why, started, taken.targets)
                continue
            already = all(one.outcome is Outcome.ALREADY for one in taken.result.targets)
            if already and taken.result.targets:
                self.give(effect, Proof.CANNOT, "someone has taken it back already", started)
                continue
            names = dict.fromkeys(one.resource for one in effect.targets)
            self.give(effect, Proof.WORKS, "", started, [RehearsedTarget(one, Proof.WORKS) for one in names])
        self._taken.clear()

    def give(
        self,
        effect: Effect,
        proof: Proof,
        why: str,
        started: float,
        targets: "list[RehearsedTarget] | None" = None,
        **more: Any,
    ) -> None:
        self._told(
            effect=effect.id,
            outcome=proof.value,
            why=why,
            targets=[[one.resource, one.proof.value, one.why] for one in targets or ()],
            milliseconds=int((time.perf_counter() - started) * 1000),
            **more,
        )


def _target(path: bytes, why: str) -> RehearsedTarget:
    return RehearsedTarget(file_resource(path), Proof.FAILS, why)


def judged(error: BaseException) -> tuple[Proof, str]:
    """What an error says of the way back, and why. A layer has limits that the world has not."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _OF_THE_LAYER:
            return Proof.CANNOT, _OF_THE_LAYER[cause.errno]
        cause = cause.__cause__
    if isinstance(error, Blocked):
        names = ", ".join(short(one) for one in error.blockers[:5])
        return Proof.CANNOT, f"later effects depend on it ({names}), and were not taken back first"
    if isinstance(error, Unavailable):
        return Proof.CANNOT, str(error)
    if isinstance(error, TakebackError):
        return Proof.FAILS, str(error)
    return Proof.FAILS, f"{type(error).__name__}: {error}"


def rows_of(effect: Effect) -> str:
    """A digest of all tables of a SQLite file but those of takeback; "" for what is no such file."""
    if effect.change.adapter != "sqlite" or not is_of_database(effect.change.resource):
        return ""
    import hashlib

    from takeback.adapters.database import database_of
    from takeback.adapters.sqlite.session import path_of

    sum = hashlib.sha256()
    with closing(sqlite3.connect(path_of(database_of(effect)))) as connection:
        connection.text_factory = bytes
        tables = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'takeback\\_%' ESCAPE '\\'"
            " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
        ).fetchall()
        for name, sql in tables:
            sum.update(repr((name, sql)).encode())
            quoted = '"' + name.decode().replace('"', '""') + '"'
            for row in sorted(map(repr, connection.execute(f"SELECT * FROM {quoted}"))):
                sum.update(row.encode())
    return sum.hexdigest()
