"""The process that carries out a rehearsal. All it sees is below a layer, so it may undo and redo for real.

It is started by `takeback.runs.rehearsals.room` and by nothing else: it refuses to work where no layer is.
"""

import json
import os
import sqlite3
import sys
import time
from contextlib import closing
from typing import Any

from takeback.adapters.file.mounts import tell_table
from takeback.engine.rehearse import is_database_file
from takeback.errors import Conflict
from takeback.model.effect import Effect
from takeback.model.plan import Outcome, UndoResult
from takeback.model.rehearsal import RehearsedTarget, Viability
from takeback.model.resource import file_resource
from takeback.runs.rehearsals.limits import judged_in_layer, rebuilt
from takeback.runs.rehearsals.manifest import Manifest, broken_promises, differing, manifest, places_of


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
        trial = CopyTrial(tb, told)
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


class CopyTrial:
    def __init__(self, tb: Any, told: Any) -> None:
        self.tb, self._told = tb, told
        self._taken: list[Taken] = []

    def undo(self, id: str) -> None:
        """Take one effect back, and compare with what the journal says was there before."""
        effect: Effect = self.tb.effect(id)
        places = places_of(effect)
        started = time.perf_counter()
        try:
            rebuilt(places)
            before, rows = manifest(places), rows_of(effect)
            started = time.perf_counter()
            result: UndoResult = self.tb.undo(id)
        except Exception as error:  # noqa: BLE001 whatever an undo raises is the answer
            self.give(effect, *judged_in_layer(error), started, conflict=isinstance(error, Conflict))
            return
        spent = time.perf_counter() - started
        bad = [one for one in result.targets if one.outcome not in (Outcome.UNDONE, Outcome.ALREADY)]
        if bad or result.outcome != "done":
            targets = [RehearsedTarget(one.resource, Viability.FAILS, one.detail) for one in bad]
            why = f"undo ended {result.outcome}" if not bad else f"{bad[0].detail}"
            self.give(effect, Viability.FAILS, why, started, targets)
            return
        taken = Taken(effect, result, before, rows, spent)
        found = manifest(places)
        for path, words in broken_promises(effect.targets, found).items():
            taken.targets.append(_target(path, f"undo left {words}"))
        self._taken.append(taken)

    def bring_back(self) -> None:
        """Redo all that was taken back, the last one first, and compare with the state of before."""
        for taken in reversed(self._taken):
            effect = taken.effect
            started = time.perf_counter() - taken.spent
            try:
                if taken.result.undo:
                    self.tb.redo(taken.result)
                wrong = differing(taken.before, manifest(places_of(effect)))
                rows = rows_of(effect)
            except Exception as error:  # noqa: BLE001
                proof, why = judged_in_layer(error)
                self.give(effect, proof, f"undo works, redo does not: {why}", started, taken.targets)
                continue
            taken.targets += [_target(path, f"redo left {words}") for path, words in wrong.items()]
            if rows != taken.rows:
                taken.targets.append(
                    RehearsedTarget(effect.change.resource, Viability.FAILS, "redo left other rows")
                )
            bad = next((one for one in taken.targets if one.outcome is not Viability.WORKS), None)
            if bad is not None:
                self.give(effect, Viability.FAILS, bad.why, started, taken.targets)
                continue
            already = all(one.outcome is Outcome.ALREADY for one in taken.result.targets)
            if already and taken.result.targets:
                self.give(effect, Viability.CANNOT, "someone has taken it back already", started)
                continue
            names = dict.fromkeys(one.resource for one in effect.targets)
            self.give(
                effect, Viability.WORKS, "", started, [RehearsedTarget(one, Viability.WORKS) for one in names]
            )
        self._taken.clear()

    def give(
        self,
        effect: Effect,
        proof: Viability,
        why: str,
        started: float,
        targets: "list[RehearsedTarget] | None" = None,
        **more: Any,
    ) -> None:
        self._told(
            effect=effect.id,
            outcome=proof.value,
            why=why,
            targets=[[one.resource, one.outcome.value, one.why] for one in targets or ()],
            milliseconds=int((time.perf_counter() - started) * 1000),
            **more,
        )


def _target(path: bytes, why: str) -> RehearsedTarget:
    return RehearsedTarget(file_resource(path), Viability.FAILS, why)


def rows_of(effect: Effect) -> str:
    """A digest of all tables of a SQLite file but those of takeback; "" for what is no such file."""
    if not is_database_file(effect):
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
