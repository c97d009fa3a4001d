"""Every guard at every door refuses with its error and touches nothing, or the table says why it has no place."""

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import takeback
from takeback.adapters.protocol import Assessment
from takeback.api import opened_of
from takeback.engine import drop, held, review, settle, transaction, watch, write
from takeback.engine.guards import DOORS, Door, Safeguard
from takeback.engine.parts import Parts
from takeback.engine.stop import StopsInForce
from takeback.engine.write import Ready, Terms
from takeback.model.change import Change
from takeback.model.remedy import Offer, Strategy
from takeback.model.run import Lease
from tests.behaviour.conftest import Scene

# Pairs in which the guard has no place. Each has its reason at the door, in `engine/guards.py`.
NO_PLACE = {
    "write": set[Safeguard](),
    "undo": {
        Safeguard.STOP, Safeguard.KEY, Safeguard.ROOM, Safeguard.APPROVAL, Safeguard.EXPECTS, Safeguard.CHECKS,
        Safeguard.GIVE_WAY, Safeguard.HELD_BACK, Safeguard.POLICY,
    },
    "sql": {Safeguard.CHECKS},
    "review": {Safeguard.CHECKS, Safeguard.GIVE_WAY},
    "commit": {
        Safeguard.KEY, Safeguard.STORE, Safeguard.LOSS, Safeguard.ROOM, Safeguard.APPROVAL, Safeguard.EXPECTS,
        Safeguard.CHECKS, Safeguard.GIVE_WAY, Safeguard.POLICY,
    },
    "hold": {Safeguard.CHECKS, Safeguard.GIVE_WAY, Safeguard.HELD_BACK},
    "apply": {Safeguard.KEY, Safeguard.EXPECTS, Safeguard.CHECKS, Safeguard.GIVE_WAY},
    "drop": {
        Safeguard.STOP, Safeguard.KEY, Safeguard.ROOM, Safeguard.APPROVAL, Safeguard.EXPECTS, Safeguard.CHECKS,
        Safeguard.GIVE_WAY, Safeguard.HELD_BACK, Safeguard.POLICY,
    },
    "watch": {Safeguard.APPROVAL, Safeguard.CHECKS, Safeguard.GIVE_WAY},
}  # fmt: skip


class Bench(Scene):
    """A scene with a database, and with a guard that is about to refuse."""

    arm: Callable[[], None] = staticmethod(lambda: None)
    before: Any = None
    signalled = False

    def __init__(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(scene.tb, scene.world)
        self.patch = monkeypatch
        (scene.world / "w").mkdir()
        self.put("a", "old")
        self.file = scene.world / "d.db"
        with sqlite3.connect(self.file) as connection:
            connection.execute("CREATE TABLE t (x INTEGER PRIMARY KEY, y TEXT)")
            connection.execute("INSERT INTO t VALUES (1, 'a')")
        connection.close()
        with self.tb.run("first touch") as run, run.sql(self.url) as db:
            db.execute("UPDATE t SET y = 'b'")
        self.write("taken", "x", key="taken")

    @property
    def url(self) -> str:
        return f"sqlite:///{self.file}"

    def picture(self) -> Any:
        """What a person sees: files, rows, and what came of each effect."""
        files = {name: self.text(name) for name in ("a", "taken")}
        with sqlite3.connect(f"file:{self.file}?mode=ro", uri=True, timeout=0.1) as connection:
            rows = connection.execute("SELECT * FROM t").fetchall()
        connection.close()
        return files, rows, [one.id for one in self.tb.effects() if one.state.value in ("done", "undone")]

    @contextmanager
    def armed(self) -> Iterator[None]:
        self.before = self.picture()
        self.arm()
        yield

    def assess(self, change: Callable[[Assessment], Assessment]) -> None:
        """Every adapter sees something else."""

        def seeing(real: Callable[..., Assessment]) -> Callable[..., Assessment]:
            return lambda *about: change(real(*about))

        for name in ("file", "command", "tree", "sqlite"):
            adapter = opened_of(self.tb).parts.adapters[name]
            self.patch.setattr(adapter, "assess", seeing(adapter.assess))

    def terms(self, **asked: Any) -> None:
        """Whichever door it is, it is asked with these terms."""

        def ready(parts: Parts, lease: Lease, change: Change, terms: Terms, door: Door) -> Ready | None:
            return _ready(parts, lease, change, terms._replace(**asked), door)

        def begin(parts: Parts, lease: Lease, change: Change, terms: Terms) -> takeback.Effect:
            return _begin(parts, lease, change, terms._replace(**asked))

        for module in (write, transaction, review, held, drop):
            self.patch.setattr(module, "ready", ready)
        self.patch.setattr(watch, "begin", begin)

    def interrupted(self, module: Any, name: str) -> None:
        """A signal arrives right before this is called."""
        real = getattr(module, name)

        def called(*arguments: Any, **more: Any) -> Any:
            if not self.signalled:
                self.signalled = True
                os.kill(os.getpid(), signal.SIGINT)
            return real(*arguments, **more)

        self.patch.setattr(module, name, called)


_ready, _begin = write.ready, watch.begin


def _write(bench: Bench) -> None:
    with bench.tb.run("write") as run, bench.armed():
        run.write(bench.world / "a", "new")


def _undo(bench: Bench) -> None:
    effect = bench.write("a", "new")
    with bench.armed():
        bench.tb.undo(effect)


def _sql(bench: Bench) -> None:
    with bench.tb.run("sql") as run, run.sql(bench.url) as db, bench.armed():
        db.execute("UPDATE t SET y = 'sql'")


def _review(bench: Bench) -> None:
    with bench.tb.run("review") as run, run.sql(bench.url, hold=True) as db, bench.armed():
        db.execute("UPDATE t SET y = 'review'")


def _commit(bench: Bench) -> None:
    with bench.tb.run("commit") as run, run.sql(bench.url, hold=True) as db:
        effect = db.execute("UPDATE t SET y = 'commit'").effect
        assert effect
        with bench.armed():
            run.apply(effect)


def _hold(bench: Bench) -> None:
    with bench.tb.run("hold") as run, bench.armed():
        run.command("echo held > a", cwd=bench.world.root, hold=True)


def _apply(bench: Bench) -> None:
    with bench.tb.run("apply") as run:
        effect = run.command("echo held > a", cwd=bench.world.root, hold=True).effect
        assert effect
        with bench.armed():
            run.apply(effect)


def _apply_from_outside(bench: Bench) -> None:
    with bench.tb.run("apply") as run:
        effect = run.command("echo held > a", cwd=bench.world.root, hold=True).effect
    assert effect
    with bench.armed():
        bench.tb.apply(effect)


def _commit_from_outside(bench: Bench) -> None:
    with bench.tb.run("commit") as run, run.sql(bench.url, hold=True) as db:
        effect = db.execute("UPDATE t SET y = 'commit'").effect
        assert effect
        with bench.armed():
            bench.tb.apply(effect)


def _drop(bench: Bench) -> None:
    with bench.tb.run("drop") as run, bench.armed():
        outcome = run.command("echo dropped > a; false", cwd=bench.world.root)
        if outcome.final:  # a failing command says that its changes are gone for good, instead of raising
            raise takeback.NoRemedy(str(outcome.final))


def _watch(bench: Bench) -> None:
    with bench.tb.run("watch") as run, bench.armed(), run.watch(bench.world / "w"):
        (bench.world / "w" / "seen").write_text("by someone else")


# Each way to a door; the first word names the door.
MADE_AT: dict[str, Callable[[Bench], None]] = {
    "write": _write, "undo": _undo, "sql": _sql, "review": _review, "commit": _commit, "hold": _hold, "apply": _apply,
    "drop": _drop, "watch": _watch, "apply from outside": _apply_from_outside,
    "commit from outside": _commit_from_outside,
}  # fmt: skip
PAIRS = [(way, guard) for way in MADE_AT for guard in Safeguard if guard not in NO_PLACE[way.split()[0]]]


def _always(answer: Any) -> Callable[[object], Any]:
    return lambda store: answer


def _full(bench: Bench) -> None:
    full: Any = SimpleNamespace(f_bavail=0, f_frsize=1, f_files=0, f_favail=0, f_blocks=1)
    bench.patch.setattr(type(bench.tb.store), "_disk", _always(full))


def _never() -> bool:
    return False


def _irreversible(seen: Assessment) -> Assessment:
    offer = Offer(Strategy.IRREVERSIBLE, residue="it cannot be taken back")
    return seen._replace(offers=(offer,))


def _suspect(bench: Bench) -> None:
    (Path(str(bench.tb.store.path)) / "SUSPECT").touch()


def _stopped(bench: Bench) -> None:
    """Everything was stopped, by another process."""
    known = (takeback.Stop(by="bea", why="a test"),)
    bench.patch.setattr(StopsInForce, "__call__", _always(known))


def _own_store(bench: Bench) -> None:
    bench.assess(lambda seen: seen._replace(resources=(opened_of(bench.tb).parts.off_limits,)))


def _loss(bench: Bench) -> None:
    bench.assess(lambda seen: seen._replace(lost=("something",)))


def _denied(bench: Bench) -> None:
    """By the file of the user, for whatever it is."""
    file = Path(os.environ["HOME"], ".config/takeback/config.toml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('[[rule]]\nname = "nothing today"\nthen = "deny"\nwhy = "The release is being made."\n')


def _interrupted_intent(bench: Bench) -> None:
    bench.interrupted(write, "_with_taken")


def _interrupted_outcome(bench: Bench) -> None:
    for module in (settle, transaction, review):
        bench.interrupted(module, "finish")
    bench.interrupted(review, "propose")
    bench.interrupted(watch, "prepared")


# How each is made to refuse, and with what.
REFUSES: dict[
    Safeguard, tuple[Callable[[Bench], None], type[BaseException] | tuple[type[BaseException], ...]]
] = {
    Safeguard.SUSPECT: (_suspect, takeback.TakebackError),
    Safeguard.STOP: (_stopped, takeback.Stopped),
    Safeguard.KEY: (lambda bench: bench.terms(key="taken"), takeback.KeyReused),
    Safeguard.STORE: (_own_store, takeback.Refused),
    Safeguard.LOSS: (_loss, takeback.NoRemedy),
    Safeguard.ROOM: (_full, takeback.Unavailable),
    Safeguard.APPROVAL: (
        lambda bench: bench.assess(_irreversible),
        (takeback.Refused, takeback.AwaitingApproval),
    ),
    Safeguard.EXPECTS: (lambda bench: bench.terms(expects=_never), takeback.PreconditionFailed),
    Safeguard.CHECKS: (
        lambda bench: bench.terms(checks=(takeback.checks.check(_never),)),
        takeback.ValidationFailed,
    ),
    Safeguard.GIVE_WAY: (_interrupted_intent, KeyboardInterrupt),
    Safeguard.HELD_BACK: (_interrupted_outcome, KeyboardInterrupt),
    Safeguard.POLICY: (_denied, takeback.Denied),
}


def test_every_door_and_every_guard_has_a_row() -> None:
    assert {way.split()[0] for way in MADE_AT} == {door.name for door in DOORS}
    assert set(REFUSES) == set(Safeguard)


@pytest.mark.parametrize("door", DOORS, ids=[door.name for door in DOORS])
def test_a_guard_that_has_no_place_at_a_door_is_listed_with_its_reason(door: Door) -> None:
    assert set(door.without) == NO_PLACE[door.name]
    assert all(len(reason) > 20 for reason in door.without.values())


@pytest.fixture
def bench(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(scene, monkeypatch)


@pytest.mark.sampled(3, always=("write-store", "write-expects"))
@pytest.mark.parametrize(("way", "guard"), PAIRS, ids=[f"{way}-{guard.name.lower()}" for way, guard in PAIRS])
def test_the_guard_refuses_and_nothing_was_touched(way: str, guard: Safeguard, bench: Bench) -> None:
    arm, error = REFUSES[guard]
    bench.arm = lambda: arm(bench)

    with pytest.raises(error):
        MADE_AT[way](bench)

    (Path(str(bench.tb.store.path)) / "SUSPECT").unlink(missing_ok=True)
    if guard is Safeguard.HELD_BACK:  # what was begun was finished, and then taken back with its run
        assert not [one for one in bench.tb.effects() if one.state.value in ("intended", "stuck")]
        return
    assert bench.picture() == bench.before


def test_a_signal_while_a_statement_is_announced_waits_until_its_intent_is_recorded(bench: Bench) -> None:
    announce, recorded = write.announce, list[str]()

    def announced(parts: Parts, lease: Lease, effect: takeback.Effect) -> takeback.Effect:
        os.kill(os.getpid(), signal.SIGINT)
        told = announce(parts, lease, effect)
        recorded.append(told.state.value)
        return told

    bench.patch.setattr(write, "announce", announced)
    with pytest.raises(KeyboardInterrupt):
        _sql(bench)

    assert recorded == ["intended"]
    assert [one.state.value for one in bench.tb.effects()[2:]] == ["aborted"]


@pytest.mark.parametrize("way", MADE_AT)
def test_a_door_without_an_armed_guard_is_open(way: str, bench: Bench) -> None:
    MADE_AT[way](bench)

    made = [one.state.value for one in bench.tb.effects()][2:]
    assert any(state in ("done", "undone", "proposed", "aborted", "dropped") for state in made)
