"""After a crash, `takeback.open()` and every method that only looks leave everything as it was, byte for byte: the
books of a real bank, the files, the store. A method that changes something settles first what needs no function."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import takeback
from examples.office import BankOffice
from takeback.api import Takeback, opened_of
from takeback.api.undo import to_redo, undo_span
from takeback.api.upkeep import needs_recovery, settle_first
from takeback.api.workers import worker_for
from takeback.api.workflows import submit_named
from takeback.model.run import RunState
from takeback.runs.scope import Span
from tests.approvals.words import words
from tests.calls.own import order
from tests.calls.post import send_mail
from tests.damage import put_back_store, save_store

# Three runs whose process was killed: one with files alone, one with a payment, one in the middle of a payment.
DIES = """
import os, signal, sys
import takeback
from examples.payments import pay
from takeback.model.record import Kind
store, what = sys.argv[1:]
tb = takeback.open(store, recover=False)
with tb.run(what, agent="robot") as run:
    run.write(f"{what}.txt", "agent\\n")
    if what == "in doubt":
        append = tb.store.journal.append
        def dying(lease, drafts):
            if drafts[0].kind is Kind.DONE:
                os.kill(os.getpid(), signal.SIGKILL)
            return append(lease, drafts)
        tb.store.journal.append = dying
    if what != "files":
        run.call(pay, "anna", "shop", 300, key=what)
    os.kill(os.getpid(), signal.SIGKILL)
"""
KILLED = ("files", "paid", "in doubt")

# What each public name of an opened store does, and what our own front ends have besides.
LOOKS: dict[str, Callable[[Takeback], object]] = {
    "path": lambda tb: tb.path,
    "store": lambda tb: tb.store,
    "here": lambda tb: opened_of(tb).here(),
    "tell": lambda tb: tb.tell,
    "progress": lambda tb: opened_of(tb).progress,
    "given_up": lambda tb: tb.given_up,
    "parts": lambda tb: opened_of(tb).parts,
    "recovered": lambda tb: tb.recovered,
    "unrecovered": lambda tb: tb.unrecovered,
    "effect": lambda tb: [tb.effect("@"), tb.effect(tb.effects()[0].id)],
    "effects": lambda tb: [
        tb.effects(),
        tb.effects(run="paid"),
        tb.effects(since="1h"),
        tb.effects(path="."),
    ],
    "rows": lambda tb: tb.rows(tb.effects()[0]),
    "runs": lambda tb: [tb.runs(), tb.runs(project=".")],
    "find_run": lambda tb: tb.find_run("paid"),
    "run_meant": lambda tb: [opened_of(tb).run_meant("paid"), opened_of(tb).run_meant("nosuch")],
    "checkpoints": lambda tb: [tb.checkpoints(), tb.checkpoints(run="paid")],
    "dead_runs": lambda tb: tb.dead_runs(),
    "needs_recovery": lambda tb: needs_recovery(opened_of(tb)),
    "pending": lambda tb: tb.pending(),
    "proposals": lambda tb: tb.proposals(),
    "size": lambda tb: tb.size(),
    "stops": lambda tb: tb.stops(),
    "check_anchors": lambda tb: tb.check_anchors(),
    "proof_level": lambda tb: tb.proof_level(),
    "to_redo": lambda tb: to_redo(opened_of(tb)),
    "verify": lambda tb: [tb.verify(), tb.verify(read_data=True)],
    "result": lambda tb: tb.result("workflow", timeout=0),
    "keep": lambda tb: tb.keep("@"),
    "close": lambda tb: tb.close(),
}
CHANGES: dict[str, Callable[[Takeback], object]] = {
    "run": lambda tb: tb.run("new").close(),
    "session": lambda tb: tb.session("lasting").leave(),
    "resume": lambda tb: tb.resume("asks").leave(),
    "undo": lambda tb: tb.undo(tb.find_run("well")),
    "undo_to": lambda tb: tb.undo_to("point", run="well"),
    "undo_span": lambda tb: undo_span(opened_of(tb), Span(None, tb.find_run("well").id, seq=0, began=0)),
    "redo": lambda tb: tb.redo(),
    "accept": lambda tb: tb.accept(tb.effects(run="well")[0]),
    "apply": lambda tb: tb.apply(tb.effects(run="well")[0]),
    "discard": lambda tb: tb.discard(tb.effects(run="well")[0]),
    "pin": lambda tb: tb.pin(tb.effects(run="well")[0]),
    "unpin": lambda tb: tb.unpin(tb.effects(run="well")[0]),
    "approve": lambda tb: tb.approve(tb.pending()[0], by="bea", answer=words(tb, tb.pending()[0])),
    "deny": lambda tb: tb.deny(tb.pending()[0], by="bea"),
    "settle": lambda tb: tb.settle(tb.effects(run="well")[0], True),
    "submit": lambda tb: tb.submit(order, "new"),
    "submit_named": lambda tb: submit_named(opened_of(tb), "own:order", '{"key": "new"}'),
    "signal": lambda tb: tb.signal("workflow", "hello"),
    "forget": lambda tb: tb.forget(tb.effects(run="well")[0]),
    "sweep": lambda tb: tb.sweep(),
    "redact": lambda tb: tb.redact(tb.effects(run="well")[0], why="a secret"),
    "unprotect": lambda tb: tb.unprotect("sqlite:///own.db"),
    "settle_first": lambda tb: settle_first(opened_of(tb)),
}
SETTLES: dict[str, Callable[[Takeback], object]] = {
    "recover": lambda tb: tb.recover(),
    "work": lambda tb: tb.work(order, until_idle=True),
    "worker_for": lambda tb: worker_for(opened_of(tb), {order.name: order}),
}
# Each writes a record of its own and settles nothing: a stop must not wait for that.
APART: dict[str, Callable[[Takeback], object]] = {
    "stop": lambda tb: tb.stop(agent="writer"),
    "lift": lambda tb: tb.lift(everything=True),
    "anchor": lambda tb: tb.anchor(),
    "accept_residue": lambda tb: tb.accept_residue(tb.effects(run="well")[0], why="gone"),
    "rehearse": lambda tb: tb.rehearse(tb.effects(run="well")[0], check=True),
}
# Parts of a change that is under way; and a copy takes what is unfinished along as it is.
WITHIN = {"stay_within_limits", "copy_to", "finish_watch"}

# What is asked for makes no sense: refused before anything is settled.
SENSELESS: tuple[Callable[[Takeback], object], ...] = (
    lambda tb: tb.run(""),
    lambda tb: tb.run("x", on_death="keep"),
    lambda tb: tb.session(""),
    lambda tb: tb.resume("nosuch"),
    lambda tb: tb.undo("nosuch"),
    lambda tb: tb.undo("@~99"),
    lambda tb: tb.undo("@", on_conflict="odd"),
    lambda tb: tb.undo(["@", "nosuch"]),
    lambda tb: tb.undo_to("nosuch"),
    lambda tb: tb.redo("nosuch"),
    lambda tb: tb.accept("nosuch"),
    lambda tb: tb.apply("nosuch"),
    lambda tb: tb.discard("nosuch"),
    lambda tb: tb.pin("nosuch"),
    lambda tb: tb.unpin("nosuch"),
    lambda tb: tb.approve("nosuch", by="bea"),
    lambda tb: tb.approve("@", by="bea"),
    lambda tb: tb.deny("nosuch", by="bea"),
    lambda tb: tb.settle("nosuch", True),
    lambda tb: tb.settle("@", "yes"),  # type: ignore[arg-type]
    lambda tb: tb.submit(len, 1),  # type: ignore[arg-type]
    lambda tb: tb.submit(order, odd=1),
    lambda tb: tb.signal("nosuch", "hello"),
    lambda tb: tb.signal("workflow", ""),
    lambda tb: tb.forget("nosuch"),
    lambda tb: tb.sweep(grace=-1),
    lambda tb: tb.work(),
)
DRY: tuple[Callable[[Takeback], object], ...] = (
    lambda tb: tb.undo("@", dry_run=True),
    lambda tb: tb.undo(tb.find_run("paid"), dry_run=True),
    lambda tb: tb.undo_to("point", run="well", dry_run=True),
    lambda tb: tb.redo(dry_run=True),
    lambda tb: tb.accept(tb.effects(run="well")[0], dry_run=True),
    lambda tb: tb.pin(tb.effects(run="well")[0], dry_run=True),
    lambda tb: tb.unpin(tb.effects(run="well")[0], dry_run=True),
    lambda tb: tb.apply("@", dry_run=True),
    lambda tb: tb.discard("@", dry_run=True),
    lambda tb: tb.forget(dry_run=True),
    lambda tb: tb.stop(everything=True, dry_run=True),
    lambda tb: tb.redact(tb.effects(run="well")[0], why="a secret", dry_run=True),
    lambda tb: tb.rehearse(everything=True, dry_run=True),
)


class Crashed(NamedTuple):
    bank: BankOffice
    store: Path
    place: Path
    template: Path

    def everything(self) -> tuple[Any, ...]:
        stored = {
            os.path.join(place, name): Path(place, name).read_bytes()
            for place, _, names in os.walk(self.store)
            for name in names
        }
        return self.bank.ledger(), self.texts(), stored

    def texts(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.place.iterdir() if path.is_file()}

    def anew(self) -> None:
        put_back_store(self.template, self.store)
        for name in KILLED:
            (self.place / f"{name}.txt").write_text("agent\n")


@pytest.fixture
def crashed(bank: BankOffice, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crashed:
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.chdir(place)
    bank.fund("anna", 10_000)
    for name in KILLED:
        (place / f"{name}.txt").write_text("human\n")
    with takeback.open(store) as tb:
        with tb.run("well") as run:
            run.checkpoint("point")
            run.write("well.txt", "1")
            undone = run.write("undone.txt", "1")
        assert undone
        tb.undo(undone)
        with pytest.raises(takeback.AwaitingApproval), tb.run("asks") as run:
            run.call(send_mail, "anna", key="mail")
        tb.submit(order, "workflow", name="workflow")
    for name in KILLED:
        program = [sys.executable, "-c", DIES, str(store), name]
        killed = subprocess.run(program, check=False, capture_output=True)
        assert killed.returncode == -9, killed.stderr
    with takeback.open(store) as tb:
        tb.effects()  # its index catches up with what the dead had written, and SQLite folds that into its file
    assert [(place / f"{name}.txt").read_text() for name in KILLED] == ["agent\n"] * 3, "looking acted"
    template = tmp_path / "template"
    save_store(store, template)
    return Crashed(bank, store, place, template)


def _tried(method: Callable[[Takeback], object], tb: Takeback) -> takeback.TakebackError | None:
    try:
        method(tb)
    except takeback.TakebackError as error:
        return error
    return None


def test_finding_2_every_public_method_says_what_it_does() -> None:
    public = {name for name in dir(Takeback) if not name.startswith("_")}
    declared = [*LOOKS, *CHANGES, *SETTLES, *APART, *WITHIN]
    assert public < set(declared) and len(declared) == len(set(declared))


def test_finding_2_opening_and_looking_in_python_never_act(crashed: Crashed) -> None:
    before = crashed.everything()
    heard: list[str] = []
    for name, method in (*LOOKS.items(), *((f"dry {n}", one) for n, one in enumerate(DRY))):
        with takeback.open(crashed.store) as tb:
            tb.tell = heard.append
            _tried(method, tb)
            assert not tb.recovered and not heard, name
        assert crashed.everything() == before, name


def test_what_writes_only_a_record_of_its_own_settles_nothing(crashed: Crashed) -> None:
    for name, method in APART.items():
        crashed.anew()
        ledger, texts = crashed.bank.ledger(), crashed.texts()
        with takeback.open(crashed.store) as tb:
            error = _tried(method, tb)
            assert not tb.recovered, (name, error)
            assert {one.info.name for one in tb.dead_runs()} == set(KILLED), name
        assert (crashed.bank.ledger(), crashed.texts()) == (ledger, texts), name


def test_finding_2_senseless_wishes_in_python_settle_nothing(crashed: Crashed) -> None:
    before = crashed.everything()
    for number, method in enumerate(SENSELESS):
        with takeback.open(crashed.store) as tb:
            error = _tried(method, tb)
            assert isinstance(error, (takeback.Misuse, takeback.Refused)), (number, error)
        assert crashed.everything() == before, (number, error)


def test_finding_2_what_a_crash_left_is_to_be_seen_in_python(crashed: Crashed) -> None:
    with takeback.open(crashed.store) as tb:
        dead = {one.info.name: one for one in tb.dead_runs()}
    assert set(dead) == set(KILLED)
    assert [dead[name].functions for name in KILLED] == [(), *[("examples.payments:pay",)] * 2]
    assert [len(dead[name].in_doubt) for name in KILLED] == [0, 0, 1]
    assert [dead[name].in_force for name in KILLED] == [1, 2, 1]


def test_finding_2_a_change_in_python_settles_what_needs_no_function(crashed: Crashed) -> None:
    ledger = crashed.bank.ledger()
    for name, method in CHANGES.items():
        crashed.anew()
        heard: list[str] = []
        with takeback.open(crashed.store) as tb:
            tb.tell = heard.append
            error = _tried(method, tb)
            assert [one.outcome for one in tb.recovered] == ["undone"], (name, error)
            states = {info.name: info.state for info in tb.runs() if info.name in KILLED}
        texts = crashed.texts()
        assert [texts[f"{one}.txt"] for one in KILLED] == ["human\n", "agent\n", "agent\n"], name
        assert states == {"files": RunState.UNDONE, "paid": RunState.OPEN, "in doubt": RunState.OPEN}, name
        assert crashed.bank.ledger() == ledger and not heard, name


def test_finding_2_without_recover_a_change_settles_nothing(crashed: Crashed) -> None:
    with takeback.open(crashed.store, recover=False) as tb, tb.run("new"):
        assert {one.info.name for one in tb.dead_runs()} == set(KILLED)


def test_finding_2_recover_and_workers_say_which_functions_they_call_first(crashed: Crashed) -> None:
    for times, (name, method) in enumerate(SETTLES.items(), 1):
        crashed.anew()
        ledger = crashed.bank.ledger()
        heard: list[tuple[str, int]] = []
        with takeback.open(crashed.store) as tb:
            tb.tell = lambda words, heard=heard: heard.append((words, len(crashed.bank.ledger())))
            method(tb)
            assert not tb.dead_runs(), name
        first, *_ = heard
        assert "calls functions of examples.payments:pay" in first[0] and first[1] == len(ledger), name
        assert crashed.texts()["paid.txt"] == crashed.texts()["in doubt.txt"] == "human\n", name
        assert times == 1 or crashed.bank.ledger()[: len(ledger)] == ledger


def test_finding_2_the_run_that_needs_a_key_settles_the_run_that_has_it(crashed: Crashed) -> None:
    """A payment that goes back with its run is no answer to the next one who asks for it."""
    from examples.payments import pay

    for key, outcome in (("paid", takeback.KeyReused), ("in doubt", takeback.KeyReused)):
        crashed.anew()
        heard: list[str] = []
        with takeback.open(crashed.store) as tb:
            tb.tell = heard.append
            with pytest.raises(outcome, match="made and then taken back"), tb.run("again") as run:
                run.call(pay, "anna", "shop", 300, key=key)
            left = {one.info.name for one in tb.dead_runs()}
        assert left == {"paid", "in doubt"} - {key}
        assert len(heard) == 1 and "calls functions of examples.payments:pay" in heard[0]
