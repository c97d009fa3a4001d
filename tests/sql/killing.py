"""Kill whoever works on a database, or the database, at a random moment, and look: each effect happened exactly once
or not at all, the journal says which, and what was answered has stayed."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from threading import Event
from typing import Protocol

import takeback
from takeback.api import opened_of
from takeback.engine.parts import adapter_of
from takeback.model.effect import OPEN_STATES, State
from tests.servers.process import LIMIT
from tests.servers.wire import Wire

ADDRESS = "env:APP_DB"
NUMBERS = 2000  # more than one murder lets anybody reach


class Victim(Protocol):
    """One database, made ready: for each number a thing that is there, one that is not yet, and one to change."""

    url: str
    port: int | None  # of its server; None: it has none
    statements: Sequence[str]  # of one effect, with {n} for the number

    def prepare(self) -> None: ...

    def seen(self) -> dict[int, str]:
        """For each number that is not as at first: "there", or what is odd about it."""
        ...

    def kill_server(self) -> None:
        """And start it again."""
        ...

    def kill_connection(self, chance: Random, client: int) -> None:
        """One that somebody works on, from the side of the server; the server answers again afterwards. `client` is
        the process that was told to work."""
        ...


class Killer:
    def __init__(self, victim: Victim, store: Path, seed: int) -> None:
        self.victim, self.store, self.seed = victim, store, seed
        self.chance = Random(seed)
        self.wire = Wire(victim.port) if victim.port else None
        self.first = 1
        self.said: dict[int, str] = {}  # of each number the last word
        self.lost: Counter[str] = Counter()  # how the children took it
        self.kills: Counter[str] = Counter()
        self.middle: Counter[str] = Counter()  # how it ended for what was begun and not answered
        self.slowest = 0.0  # seconds to settle, after the server was back
        self.next: subprocess.Popen[str] | None = None

    def run(self, ways: Sequence[str]) -> None:
        """One murder for each way: client, connection, server, cut, deaf."""
        address = self.wire.through(self.victim.url) if self.wire else self.victim.url
        os.environ["APP_DB"] = address
        try:
            with takeback.open(self.store) as tb:
                database = opened_of(tb).parts.named(ADDRESS)
                self.victim.prepare()
                adapter_of(opened_of(tb).parts, database.engine).protect(database, ())  # pyright: ignore
            for way in ways:
                self.murder(way)
        finally:
            if self.next:
                end(self.next)
            if self.wire:
                self.wire.close()

    def murder(self, way: str) -> None:
        child = self.next or self.child()
        self.next = None
        try:
            assert child.stdin and child.stdout
            assert child.stdout.readline() == "ready\n"
            child.stdin.write("go\n")
            child.stdin.close()
            acts = self.chance.randint(1, 6)
            self.listen(child, acts)
            if self.wire and self.chance.random() < 0.5:
                self.wire.wait_for_commit(10)
                Event().wait(self.chance.random() ** 2 * 0.01)  # close to the moment that decides
            else:
                Event().wait(self.chance.random() ** 2 * 0.05)  # somewhere in the middle of the next one
            self.strike(way, child)
            self.listen(child)
            assert child.wait(LIMIT) in (0, -9), self.told(f"the child ended with {child.returncode}")
        finally:
            end(child)
        self.kills[way] += 1
        self.next = self.child()
        self.look(way)

    def child(self) -> subprocess.Popen[str]:
        """Its first number is above all that were begun; it is told when it is started, so it may leave some out."""
        self.first = (self.first // 50 + 1) * 50
        words = [
            str(self.store),
            str(self.chance.random()),
            str(self.first),
            json.dumps(list(self.victim.statements)),
        ]
        assert self.first < NUMBERS
        with (self.store.parent / "stderr").open("a") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.sql.killed_child", *words],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip

    def listen(self, child: "subprocess.Popen[str]", most: int = NUMBERS) -> None:
        """To what it says, until it has done so much, or ends."""
        assert child.stdout
        for line in child.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "lost":
                name, code, sentence = rest.split(" ", 2)
                # It may fail or be told to try again; that it was refused, or is stuck, is nobody's doing here.
                assert code in ("1", "5"), self.told(f"the child got {name}: {sentence}")
                self.lost[name] += 1
                continue
            self.said[int(rest)] = word
            self.first = max(self.first, int(rest))
            most -= word in ("done", "undone")
            if most <= 0:
                return

    def strike(self, way: str, child: "subprocess.Popen[str]") -> None:
        if way == "client":
            child.kill()
        elif way == "connection":
            self.victim.kill_connection(self.chance, child.pid)
        elif way == "server":
            self.victim.kill_server()
        elif self.wire and way == "deaf":
            self.wire.deafen()
        elif self.wire:
            self.wire.cut()
        # Whoever goes on as if nothing had been is ended by and by: it has lived through it.
        try:
            child.wait(3 if way == "deaf" else 1)
        except subprocess.TimeoutExpired:
            child.kill()

    def look(self, way: str) -> None:
        began = time.monotonic()
        with takeback.open(self.store) as tb:
            tb.recover()
            self.slowest = max(self.slowest, time.monotonic() - began)
            effects = tb.effects()
        where = f"after kill {sum(self.kills.values())} ({way})"
        open_ones = [
            (one.change.summary, one.state.value, one.note) for one in effects if one.state in OPEN_STATES
        ]
        assert not open_ones, self.told(f"{where}: still open: {open_ones}")
        states: dict[int, list[State]] = {}
        for one in effects:
            if not one.is_undo and one.state is not State.ABORTED:
                states.setdefault(int(one.change.summary.split()[-1]), []).append(one.state)
        seen = self.victim.seen()
        for number in sorted(states.keys() | seen.keys() | self.said.keys()):
            is_there, recorded, word = (
                seen.get(number, "gone"),
                states.get(number, []),
                self.said.get(number, ""),
            )
            expected = "there" if recorded == [State.DONE] else "gone"
            wrong = is_there != expected or len(recorded) > 1
            # What was answered is so; what was only begun may be either.
            wrong = wrong or (word == "done" and recorded != [State.DONE])
            wrong = wrong or (word == "undone" and recorded != [State.UNDONE])
            assert not wrong, self.told(
                f"{where}: number {number} is {is_there}, the journal says {recorded}, the child last said {word!r}"
            )
            if word in ("doing", "undoing"):
                self.middle["happened" if (word == "doing") == (is_there == "there") else "did not"] += 1
            self.said[number] = {"there": "done", "gone": "undone" if recorded else ""}[is_there]

    def told(self, what: str) -> str:
        errors = (self.store.parent / "stderr").read_text()[-3000:]
        return f"seed {self.seed}: {what}\n{dict(self.lost)}\n{errors}"


def end(child: "subprocess.Popen[str]") -> None:
    child.kill()
    child.wait()
    for stream in (child.stdin, child.stdout):
        if stream:
            stream.close()


def killed(
    victim: Victim, directory: Path, seed: int, ways: Sequence[str], count: Callable[[str, object], None]
) -> None:
    """As a test does it: `count` is `record_property`."""
    killer = Killer(victim, directory / "store", seed)
    killer.run(ways)
    for way, times in killer.kills.items():
        count(f"killed: {way}", times)
    for how, times in killer.middle.items():
        count(f"killed in the middle: it {how}", times)
