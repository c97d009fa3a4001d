"""A world and a store that are made, changed, killed and looked at, over and over."""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import takeback
from takeback.api import opened_of
from takeback.model.effect import OPEN_STATES, PERSON
from takeback.model.plan import Standing
from takeback.testing.crash import Boundaries, in_a_process, killed_everywhere, open_settled, open_wrapped
from tests.damage import known, put_back_store, save_store
from tests.world import Picture, picture


class Scene:
    """Made anew for every death; the picture of the world is exact but for the mtime of its topmost directory."""

    def __init__(self, directory: Path, far: Path) -> None:
        self.directory = directory
        self.world = directory / "world"
        self.far = far / "world"  # on another filesystem, where there is one
        self.store = directory / "store"
        self.counted: Counter[str] = Counter()

    def __truediv__(self, name: str) -> str:
        return str(self.world / name)

    def picture(self) -> Picture:
        seen = picture(os.fsencode(self.world))
        del seen[b"."]["mtime"]
        far = picture(os.fsencode(self.far))
        del far[b"."]
        return seen | {b"far/" + path: properties for path, properties in far.items()}

    def prepare(self) -> None:
        """A new world, and a store with a little history, so that nothing is special about being the first."""
        self.build()
        template = self.directory / "template"
        if not template.exists():
            (self.directory / "elsewhere").write_bytes(b"0")
            self.in_session(lambda run: run.write(self.directory / "elsewhere", b"1"))
            save_store(self.store, template)
            return
        put_back_store(template, self.store)

    def build(self) -> None:
        """Files of every kind, with properties that a careless restore would lose."""
        for directory in (self.world, self.far, self.store, known()):
            shutil.rmtree(directory, ignore_errors=True)
        self.world.mkdir(parents=True)
        self.far.mkdir()
        (self.far / "in the way").write_bytes(b"replaced\n")
        os.utime(self.far / "in the way", ns=(10**18, 10**18))
        (self.world / "conf.toml").write_text("# mind the gap\nport = 80\n\n[tls]\non = false\n")
        (self.world / "data.json").write_text('{\n  "a": 1,\n  "b": [1, 2]\n}\n')
        (self.world / "run.sh").write_bytes(b"#!/bin/sh\n" * 300)
        os.chmod(self.world / "run.sh", 0o750)
        os.setxattr(self.world / "run.sh", "user.origin", b"hand")
        (self.world / "link").symlink_to("run.sh")
        (self.world / "twin").write_bytes(b"two names, one file\n")
        os.link(self.world / "twin", self.world / "other twin")
        tree = self.world / "tree"
        (tree / "deep" / "empty").mkdir(parents=True)
        (tree / "one").write_bytes(b"1" * 5000)
        os.link(tree / "one", tree / "deep" / "same")
        (tree / "dangling").symlink_to("nowhere")
        os.mkfifo(tree / "pipe")
        os.chmod(tree / "deep", 0o711)
        for number, path in enumerate(sorted(self.world.rglob("*"), reverse=True)):
            os.utime(path, ns=(10**18 + number, 10**18 + number * 1_000_003), follow_symlinks=False)

    def open(self) -> takeback.Takeback:
        """With everything settled that a crash left."""
        return open_settled(str(self.store))

    def in_session(self, work: Callable[[takeback.Run], Any]) -> Any:
        """As a command does it: a process of its own that joins an open run and leaves it open."""
        with self.open() as tb:
            return in_session(tb, work)

    def scratch(self) -> list[str]:
        return [str(path) for place in (self.directory, self.far) for path in place.rglob(".takeback-*")]


def in_session(tb: takeback.Takeback, work: Callable[[takeback.Run], Any]) -> Any:
    run = tb.session("commands")
    try:
        return work(run)
    finally:
        run.leave()


class Known(NamedTuple):
    """The world before and after. `exact` if even the times of what changes are known beforehand."""

    before: Picture
    after: Picture
    exact: bool


def without_new_times(after: Picture, before: Picture) -> Picture:
    """What an effect makes has the time it was made at; everything else must have kept its own."""
    return {
        path: {name: value for name, value in seen.items() if name != "mtime"}
        if seen != before.get(path)
        else seen
        for path, seen in after.items()
    }


def side(now: Picture, known: Known) -> str:
    """`before`, `after`, or what is odd."""
    if now == known.before:
        return "before"
    if now == known.after:
        return "after"
    if not known.exact and without_new_times(now, known.before) == without_new_times(
        known.after, known.before
    ):
        return "after"
    paths = sorted(now.keys() | known.before.keys() | known.after.keys())
    told: list[str] = []
    for path in paths:
        seen, old, new = now.get(path), known.before.get(path), known.after.get(path)
        if old != new or seen != old:
            told.append(
                f"{path!r}: "
                + (
                    "as before"
                    if seen == old
                    else "as after"
                    if seen == new
                    else f"{seen}, not {old} or {new}"
                )
            )
    return "neither: " + "; ".join(told)


def settle(scene: Scene, *, dying: bool = False) -> int:
    """Open the store as the next command does. With `dying` each attempt is killed one boundary later than the last,
    until one gets through. How many were killed."""
    if not dying:
        scene.open().close()
        return 0
    for at in range(1, 2000):
        end = in_a_process(
            lambda boundaries: open_wrapped(str(scene.store), boundaries).close(), Boundaries(at)
        )
        assert not end.error, end.error
        if not end.killed:
            return at - 1
    raise AssertionError("recovery does not come to an end")


def assert_settled(scene: Scene, where: str, *, foreign: bool = False) -> None:
    """Nothing is open, the journal agrees with the world (unless someone else changed it), nothing is left over, and
    doing it again changes nothing."""
    with scene.open() as tb:
        findings = tb.verify(read_data=True).findings
        assert not findings, f"{where}: {findings}"
        effects = tb.effects()
        settled = [one for one in effects if one.state not in OPEN_STATES or one.waits_for == PERSON]
        assert len(settled) == len(effects), f"{where}: {effects}"
        if not foreign:
            _assert_journal_agrees(tb, effects, where)
        assert not scene.scratch(), f"{where}: {scene.scratch()}"
        world, records = scene.picture(), tb.store.journal.tally()["records"]
        assert tb.recover() == (), where
        assert scene.picture() == world, where
        assert tb.store.journal.tally()["records"] == records, where


def _assert_journal_agrees(tb: takeback.Takeback, effects: tuple[takeback.Effect, ...], where: str) -> None:
    """The newest effect in force on each resource stands AFTER; one that is undone or never was does not."""
    from takeback.engine.parts import whole

    newest: dict[str, takeback.Effect] = {}
    for effect in effects:
        if effect.state in ("done", "undone") or not effect.targets:
            newest[effect.change.resource] = effect
    for effect in newest.values():
        if effect.state == "done" and effect.targets and not _overlapped_later(effect, effects):
            adapter = opened_of(tb).parts.adapters[effect.change.adapter]
            sighting = adapter.verify(whole(opened_of(tb).parts, effect))
            assert sighting.standing is Standing.AFTER, f"{where}: {effect.change.summary}: {sighting}"


def _overlapped_later(effect: takeback.Effect, effects: tuple[takeback.Effect, ...]) -> bool:
    from takeback.model.resource import overlaps

    return any(
        later.seq > effect.seq and later.state == "done" and overlaps(mine.resource, theirs.resource)
        for later in effects
        for mine in effect.targets
        for theirs in later.targets
    )


Prepare = Callable[[], Known]
Action = Callable[[Boundaries], None]


def some_quick(names: Iterable[str], *quick: str) -> list[Any]:
    """The others are left to the long sweeps."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


def sweep(scene: Scene, prepare: Prepare, action: Action, *, dying: bool, foreign: bool = False) -> int:
    """Every death ends in one of the two worlds."""
    deaths = 0
    worlds: set[str] = set()
    known = prepare()

    def again() -> None:
        nonlocal known
        known = prepare()

    def check(at: int) -> None:
        nonlocal deaths
        where = f"killed at boundary {at}" if at else "not killed"
        deaths += settle(scene, dying=dying and bool(at))
        seen = side(scene.picture(), known)
        assert seen in ("before", "after"), f"{where}: {seen}"
        worlds.add(seen)
        assert_settled(scene, where, foreign=foreign)

    outer = killed_everywhere(again, action, check)
    deaths += outer  # in two steps: check counts too, while the other goes on
    assert worlds == {"before", "after"}, "the sweep saw only one side"
    scene.counted["processes killed at a boundary"] += deaths
    return deaths


@contextmanager
def quick_directory(name: str, *, far: bool = False) -> Iterator[Path]:
    """In memory where there is such a place: what is killed here are processes, not machines. `far`: elsewhere."""
    import tempfile

    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) and not far else None
    path = Path(tempfile.mkdtemp(prefix=f"takeback-{name}-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
