"""A world, a command that changes it in every way, and a takeback that is killed while it makes or takes back that."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import takeback
from takeback.model.effect import OPEN_STATES
from takeback.testing.crash import Boundaries, in_a_process, open_wrapped, wrap_system_calls
from tests.crash.scenes import Known, Scene, in_session, side
from tests.trees.remains import layers_in, marked, mounts, wait_until_gone
from tests.world import Picture

# One change of each kind: added, appended, removed, moved, swapped type, linked, mode, attribute.
CHANGES = (
    "echo new > new && echo more >> run.sh && rm -rf tree/deep && mv data.json moved && mkdir -p made/deep && "
    "echo x > made/deep/x && ln twin third && chmod 600 conf.toml && rm link && mkdir link && echo in > link/f"
)


# Taken back alone: a directory, both names of a move by one of them, a file.
SOME = ("tree", "moved", "run.sh")
_GO_TOGETHER = tuple(name.encode() for name in (*SOME, "data.json"))


class Murder:
    """Everything that the sweeps below have in common."""

    def __init__(self, directory: Path) -> None:
        self.scene = Scene(directory / "scene", directory / "far")
        (directory / "far").mkdir()
        (directory / "scene").mkdir()
        self.mark = str(directory)
        self.mounts = mounts(self.mark)
        self._after: Picture = {}
        self._merged: dict[str, Any] = {}

    def command(self, run: takeback.Run, **options: object) -> None:
        run.command(["/bin/sh", "-c", CHANGES], cwd=str(self.scene.world), **options)

    def before_it(self) -> Known:
        """Nothing has happened yet; what it will look like is found by doing it once."""
        if not self._after:
            self.scene.prepare()
            self.scene.in_session(self.command)
            self._after = self.scene.picture()
        self.scene.prepare()
        before = self.scene.picture()
        assert before != self._after
        return Known(before, self._after, exact=False)

    def after_it(self) -> Known:
        """It is done, and can be taken back."""
        self.scene.prepare()
        before = self.scene.picture()
        self.scene.in_session(self.command)
        return Known(self.scene.picture(), before, exact=True)

    def before_some(self) -> Known:
        """It is done, and some of its paths can be taken back."""
        whole = self.after_it()
        stay, back = (
            {path: seen for path, seen in one.items() if (path.split(b"/")[0] in _GO_TOGETHER) is goes}
            for one, goes in ((whole.before, False), (whole.after, True))
        )
        return whole._replace(after=stay | back)

    def take_some(self, tb: takeback.Takeback) -> takeback.UndoResult:
        return tb.undo("@", paths=[self.scene / name for name in SOME])

    def after_some(self) -> Known:
        """Some of its paths are taken back, and can be brought back."""
        known = self.before_some()
        with self.scene.open() as tb:
            self.take_some(tb)
        assert side(self.scene.picture(), known) == "after"
        return Known(known.after, known.before, exact=True)

    def under_a_later_edit(self) -> Known:
        """It is done, and a later effect changed another part of one of its files: with merge that part stays."""
        known = self._edited_later()
        if not self._merged:
            with self.scene.open() as tb:
                self.merge_out(tb)
            self._merged = self.scene.picture()[b"run.sh"]
            known = self._edited_later()
        return Known(self.scene.picture(), known.after | {b"run.sh": self._merged}, exact=False)

    def _edited_later(self) -> Known:
        known = self.after_it()
        script = self.scene.world / "run.sh"
        edited = b"# later\n" + script.read_bytes()
        self.scene.in_session(lambda run: run.write(script, edited))
        return known

    def merge_out(self, tb: takeback.Takeback) -> takeback.UndoResult:
        return tb.undo("@~1", on_conflict="merge")

    def check(self, known: Known, where: str) -> str:
        """Which of the two worlds it is after the next command; all traces are gone."""
        wait_until_gone(self.mark)
        with self.scene.open() as tb:
            seen = side(self.scene.picture(), known)
            assert seen in ("before", "after"), f"{where}: {seen}"
            # Any command will do; this one changes nothing.
            in_session(tb, lambda run: run.command(["/bin/true"], cwd="/"))
        self.assert_at_rest(where)
        assert side(self.scene.picture(), known) == seen, where
        assert not layers_in(self.scene.store), f"{where}: {layers_in(self.scene.store)}"
        assert mounts(self.mark) == self.mounts, where
        return seen

    def assert_at_rest(self, where: str) -> None:
        """Nothing is open but what waits for a person; nothing is left over; doing it again changes nothing."""
        with self.scene.open() as tb:
            findings = tb.verify(read_data=True).findings
            assert not findings, f"{where}: {findings}"
            unsettled = [one for one in tb.effects() if one.state in OPEN_STATES and not one.waits_for]
            assert not unsettled, f"{where}: {unsettled}"
            assert not self.scene.scratch(), f"{where}: {self.scene.scratch()}"
            world = self.scene.picture()
            assert tb.recover() == (), where
            assert self.scene.picture() == world, where


def sweep(
    murder: Murder,
    prepare: Callable[[], Known],
    work: Callable[[takeback.Takeback], object],
    *,
    first: int = 1,
    step: int = 1,
) -> dict[str, int]:
    """Killed at every boundary, or at every so-manieth; how often each world was found."""

    def action(boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        with open_wrapped(str(murder.scene.store), boundaries) as tb:
            work(tb)

    worlds = {"before": 0, "after": 0}
    at = first
    while True:
        known = prepare()
        with marked(murder.mark):
            end = in_a_process(action, Boundaries(at))
        assert not end.error, f"killed at {at}: {end.error}"
        worlds[murder.check(known, f"killed at boundary {at}" if end.killed else "not killed")] += 1
        if not end.killed:
            return worlds
        at += step
