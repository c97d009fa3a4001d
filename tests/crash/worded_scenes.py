"""What `test_reworded.py` runs: scenes in several processes, each of which may speak another English.

    SCENE=… STEP=… PLACE=… python worded_scenes.py

The last step of a scene prints what came of it, without a word of prose."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import takeback
from takeback.adapters.file.adapter import FileAdapter
from takeback.api import opened_of
from takeback.api.upkeep import settle_first
from takeback.model.record import Kind
from takeback.storage.protocols import Query

# Not arguments: recovery imports this module once more, under its own name.
SCENE, STEP = os.environ.get("SCENE", ""), os.environ.get("STEP", "")
PLACE = Path(os.environ.get("PLACE", ""))
STORE = PLACE / "store"


def facts(tb: takeback.Takeback) -> dict[str, Any]:
    runs = [(info.name.split()[0], info.state.value) for info in tb.store.journal.runs()]
    numbers = {info.id: number for number, info in enumerate(tb.store.journal.runs())}
    effects = tuple(tb.store.journal.effects(Query()))
    return {
        "effects": [(one.change.kind, one.state.value) for one in effects],
        "runs": sorted(runs),
        "undone in": [numbers[tb.effect(one.undone_by).run] for one in effects if one.undone_by],
        "settled": sorted((one.outcome, one.cause.value) for one in tb.recovered),
        "files": {path.name: path.read_text() for path in sorted(PLACE.glob("*.txt"))},
    }


def settled() -> takeback.Takeback:
    """The store, with everything settled that a crash left."""
    tb = takeback.open(STORE)
    settle_first(opened_of(tb), calls=True)
    return tb


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")


def dies(*given: object) -> Any:
    os._exit(9)


def moved(key: str) -> str | None:
    if not (PLACE / "paid").exists():
        return None
    if STEP != "pay":
        return "paid"  # the payment is to be seen for ever; its refund stands beside it
    raise takeback.VerifyFailed("another amount was moved", receipt="paid")


def give_back(receipt: object) -> None:
    with (PLACE / "refunds.txt").open("a") as file:
        file.write("refund\n")
    os._exit(9)


@takeback.action(verify=moved, undo=give_back, name="worded.pay")
def pay(key: str) -> str:
    (PLACE / "paid").touch()
    return "paid"


def refund() -> None:
    """A process dies right after it sent a refund: nobody sends a second one."""
    with settled() if STEP == "look" else takeback.open(STORE, recover=False) as tb:
        if STEP == "pay":
            with tb.run("buy") as run:
                run.call(pay, key="k")
        tb.recover()
        say(facts(tb))


def given_up() -> None:
    """An undo that is stuck and was given up for another way back is not carried out again."""
    path = PLACE / "a.txt"
    if STEP == "undo":
        path.write_text("before")
        with takeback.open(STORE) as tb:
            with tb.run("work") as run:
                run.write(path, "after")
            FileAdapter.apply = dies  # type: ignore[method-assign]
            tb.undo("@")
    path.write_text("someone else's") if STEP == "stick" else None
    with settled() as tb:
        effect = next(tb.store.journal.effects(Query()))
        if STEP == "force":
            append = tb.store.journal.append

            def dying(lease: Any, drafts: Any) -> Any:
                appended = append(lease, drafts)
                return dies() if drafts[0].kind is Kind.ABORT else appended

            tb.store.journal.append = dying  # type: ignore[method-assign]
            tb.undo(effect, on_conflict="force")
        say(facts(tb))


@takeback.action(name="worded.post")
def post() -> None:
    raise TimeoutError("no answer")


@post.undo
def recall(receipt: object) -> None:
    (PLACE / "recalled.txt").write_text(str(receipt))


@takeback.workflow(name="worded.letter")
def letter(run: takeback.Run) -> object:
    run.write(PLACE / "a.txt", "1")
    return run.call(post)


def workflow() -> None:
    """A workflow that is being taken back goes on being taken back when its doubt is settled."""
    with takeback.open(STORE) as tb:
        if STEP == "undo":
            run = tb.submit(letter)
            tb.work(letter, until_idle=True)
            tb.undo(run)
        else:
            (stuck,) = tb.effects(state="stuck")
            tb.settle(stuck, True, receipt="letter 7")
            say(facts(tb))


def watched() -> None:
    """What was changed while a watcher was dead stays, and a person decides."""
    with settled() as tb:
        if STEP == "change":
            (PLACE / "tree").mkdir()
            with tb.run("watch") as run, run.watch(PLACE / "tree"):
                (PLACE / "tree" / "b.txt").write_text("changed")
                os._exit(9)
        say(facts(tb) | {"there": (PLACE / "tree" / "b.txt").exists()})


def interrupted() -> None:
    """An undo of the command line that died, asked for again, is finished; nothing else is taken back with it."""
    from takeback.frontends.cli.answer import answer

    os.chdir(PLACE)
    if STEP == "undo":
        for name in ("a.txt", "b.txt"):
            (PLACE / name).write_text("content")
            assert answer(["--store", str(STORE), "rm", name]) == 0
        FileAdapter.apply = dies  # type: ignore[method-assign]
    code = answer(["--store", str(STORE), "-q", "undo"])
    with takeback.open(STORE) as tb:
        say(facts(tb) | {"code": code})


def unreachable(key: str) -> None:
    raise takeback.ResourceUnreachable("the bank does not answer")


@takeback.action(verify=unreachable, undo=give_back, name="worded.transfer")
def transfer(key: str) -> None:
    raise TimeoutError("no answer")


def in_doubt() -> None:
    """A run with a call in doubt does not end well."""
    with settled() as tb:
        if STEP == "call":
            caught: list[str] = []
            try:
                with tb.run("buy") as run:
                    try:
                        run.call(transfer, key="k")
                    except takeback.TakebackError as error:
                        caught.append(type(error).__name__)
            except takeback.TakebackError as error:
                caught.append(type(error).__name__)
            (PLACE / "caught.txt").write_text(" ".join(caught))
        else:
            say(facts(tb))


def dropped() -> None:
    """A failing command and a discarded change are dropped, each for its reason, and can be applied after all."""
    with settled() as tb:
        if STEP == "drop":
            with tb.run("work") as run:
                run.command("echo 1 > a.txt; exit 3", cwd=PLACE)
                held = run.command("echo 2 > b.txt", cwd=PLACE, hold=True).effect
            assert held
            tb.discard(held)
            return say({})
        effects = tb.effects(state="dropped")
        reasons = [one.dropped and one.dropped.reason.value for one in effects]
        tb.apply(effects)
        return say(facts(tb) | {"reasons": reasons})


def conflict() -> None:
    """The report of an undo names what became of each target; a modified one is a conflict, by its outcome."""
    from takeback.frontends.cli.answer import answer

    with takeback.open(STORE) as tb:
        if STEP == "write":
            with tb.run("work") as run:
                run.write_all({PLACE / "a.txt": "1", PLACE / "b.txt": "2"})
            (PLACE / "b.txt").write_text("someone else's")
            return say({})
        planned = tb.undo("@", dry_run=True, on_conflict="skip")
        code = answer(["--store", str(STORE), "-q", "undo", "@"])
        result = tb.undo("@", on_conflict="skip")
        outcomes = [sorted(one.outcome.value for one in each.targets) for each in (planned, result)]
        return say(facts(tb) | {"outcomes": outcomes, "outcome": result.outcome, "code": code})


SCENES = {
    "refund": (refund, ("pay", "recover", "look")),
    "given_up": (given_up, ("undo", "stick", "force", "recover")),
    "workflow": (workflow, ("undo", "settle")),
    "watched": (watched, ("change", "recover")),
    "interrupted": (interrupted, ("undo", "again")),
    "in_doubt": (in_doubt, ("call", "look")),
    "dropped": (dropped, ("drop", "apply")),
    "conflict": (conflict, ("write", "undo")),
}

if __name__ == "__main__":
    SCENES[SCENE][0]()
