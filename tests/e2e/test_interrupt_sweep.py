"""Ctrl-C at any moment of undo, redo and run: what is said is what is, and nothing happens behind one's back."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import takeback
from tests.e2e.conftest import surroundings
from tests.e2e.interrupting import COMMAND, Sweep, Verb
from tests.world import World

FEW, MANY = 2, 100  # moments of each verb


def said_well(place: Path, *words: str) -> str:
    done = subprocess.run(
        [*COMMAND, *words], cwd=place, env=surroundings(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done
    return done.stdout


def _merge(world: World) -> Verb:
    """The first of two edits of a file is taken out, and the second stays."""
    text = "".join(f"line {number}\n" for number in range(12))
    file = world / "merged"

    def edited_twice() -> None:
        file.write_text(text)
        for line in (2, 9):
            said_well(world.root, "run", "--", "sed", "-i", f"s/line {line}/edit {line}/", "merged")

    def merged() -> str:
        later = text.replace("line 9", "edit 9")
        return {later: "after", later.replace("line 2", "edit 2"): "before"}.get(file.read_text(), "odd")

    return Verb(("undo", "@~1", "--merge"), edited_twice, merged)


def _failing(world: World, seen: Callable[[], str], old: Callable[[], None]) -> Verb:
    """What a failing command had changed is dropped. The line that tells of it names it, and it can be applied."""

    def ready() -> None:
        old()
        said_well(world.root, "run", "--", "true")  # so that there is a store
        for id in listed():  # of the one whose time was taken
            said_well(world.root, "discard", "--now", id)

    def listed() -> list[str]:
        found = json.loads(said_well(world.root, "log", "--held", "--json"))
        return [one["id"][: len("k3f9a2bq")] for one in found]

    def offered(said: str) -> str:
        # An interrupt that comes right after the line names it once more.
        named, there = list(dict.fromkeys(re.findall(r"takeback apply (\w+)`", said))), listed()
        assert named == there or "not finished" in said, f"there is {there}, and was said: {said!r}"
        for id in named:
            said_well(world.root, "apply", id)
            assert seen() == "new"
        return ", a drop" if named else ""

    fails = ("run", "--", "sh", "-c", f"{CHANGE}; exit 3")
    return Verb(fails, ready, lambda: "before" if seen() == "old" else seen(), 3, offered)


def verbs(world: World) -> dict[str, Verb]:
    names = [f"f{number}" for number in range(12)]

    def seen() -> str:
        found = {(world / name).read_text() if (world / name).exists() else "gone" for name in names}
        return {"old\n": "old", "new\n": "new"}.get(found.pop(), "odd") if len(found) == 1 else "mixture"

    def looks(before: str, after: str) -> Callable[[], str]:
        return lambda: {before: "before", after: "after"}.get(seen(), seen())

    def old() -> None:
        for name in names:
            (world / name).write_text("old\n")

    def changed() -> None:
        old()
        said_well(world.root, "run", "--", "sh", "-c", CHANGE)

    def undone() -> None:
        changed()
        said_well(world.root, "undo")

    def held() -> None:
        old()
        said_well(world.root, "run", "--hold", "--name", "careful", "--", "sh", "-c", CHANGE)

    def dropped() -> None:
        held()
        said_well(world.root, "discard", "--run", "careful")

    def listed() -> str:
        """How what was held stands. It is not made, whatever becomes of it."""
        newest = said_well(world.root, "log", "--held", "-n", "1", "--format", "{state}").strip()
        return {"held": "before", "dropped": "after"}.get(newest, newest) if seen() == "old" else seen()

    some, rest = names[:6], names[6:]

    def partly() -> str:
        """Some are taken back, or none; the rest stays in any case."""
        stays, goes = ({(world / name).read_text() for name in part} for part in (rest, some))
        if stays != {"new\n"} or len(goes) > 1:
            return "mixture"
        return {"new\n": "before", "old\n": "after"}.get(goes.pop(), "odd")

    change = ("run", "--", "sh", "-c", CHANGE)
    return {
        "undo some": Verb(("undo", "@", "--", *some), changed, partly),
        "undo merge": _merge(world),
        "apply what is held": Verb(("apply", "--run", "careful"), held, looks("old", "new")),
        "apply a drop": Verb(("apply", "--run", "careful"), dropped, looks("old", "new")),
        "discard": Verb(("discard", "--run", "careful"), held, listed),
        "run": Verb(change, old, looks("old", "new")),
        "run that fails": _failing(world, seen, old),
        "undo": Verb(("undo",), changed, looks("new", "old")),
        "redo": Verb(("redo",), undone, looks("old", "new")),
    }


CHANGE = "for name in f*; do echo new > $name; done"
VERBS = (
    "run", "run that fails", "undo", "undo some", "undo merge", "redo", "apply what is held", "apply a drop", "discard",
)  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", VERBS)
def test_finding_12_what_is_said_of_an_interrupted_command_is_what_is(world: World, name: str) -> None:
    sweep = Sweep(world.root, verbs(world), seed=12)
    for _ in range(FEW):
        sweep.once(name)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", VERBS)
def test_finding_12_at_a_hundred_moments_of_each(
    world: World, name: str, record_property: Callable[[str, object], None]
) -> None:
    sweep = Sweep(world.root, verbs(world), seed=7)
    for _ in range(MANY):
        sweep.once(name)
    for what, count in sweep.counts.items():
        record_property(what, count)
    assert sum(sweep.counts.values()) == MANY
    assert len(sweep.counts) > 1, sweep.counts


def test_finding_12_a_signal_before_the_first_record_is_held_back_until_the_undo_is_over(
    world: World,
) -> None:
    """It comes right after the record that says what is to be undone."""
    (world / "a").write_text("old")
    store = world.root.parent / "a store"
    with takeback.open(store) as tb:
        with tb.run("work") as run:
            run.write(world / "a", "new")
        append = tb.store.journal.append

        def interrupted(lease: Any, drafts: Any) -> Any:
            appended = append(lease, drafts)
            if drafts[0].body.get("undoing"):
                os.kill(os.getpid(), signal.SIGINT)
            return appended

        tb.store.journal.append = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            tb.undo("@")
        assert (world / "a").read_text() == "old"
        assert not list(tb.store.journal.runs(unfinished=True))
