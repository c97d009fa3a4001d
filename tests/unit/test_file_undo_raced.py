"""Someone exchanges a directory for a symbolic link while an undo is at work in it: what is said is what is."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import takeback
from takeback.adapters.file.adapter import FileAdapter
from takeback.model.effect import Effect, State
from tests.world import World


class Racer:
    """Puts a link to somewhere else in the place of a directory, and takes it away again."""

    def __init__(self, directory: Path, elsewhere: Path) -> None:
        self.directory = directory
        self.aside = directory.with_name("aside")
        self.elsewhere = elsewhere

    def link(self) -> None:
        self.directory.rename(self.aside)
        self.directory.symlink_to(self.elsewhere)

    def unlink(self) -> None:
        if self.directory.is_symlink():
            self.directory.unlink()
            self.aside.rename(self.directory)


@pytest.mark.parametrize("act", ["write", "delete", "chmod"])
def test_finding_21_an_undo_that_says_untouched_left_it_untouched(
    world: World, store: Path, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    (world / "d").mkdir()
    (world / "else").mkdir()
    for directory in ("d", "else"):
        (world / directory / "f").write_text("0")
    racer = Racer(world / "d", world / "else")
    with takeback.open(store) as tb:
        with tb.run("agent") as run:
            effect = {
                "write": lambda: run.write(world / "d" / "f", "agent"),
                "delete": lambda: run.delete(world / "d" / "f"),
                "chmod": lambda: run.chmod(world / "d" / "f", 0o600),
            }[act]()
        assert effect
        after = world.picture()
        raced(monkeypatch, racer)
        with pytest.raises(takeback.Drifted):
            tb.undo(effect)
        racer.unlink()
        monkeypatch.undo()
        assert world.picture() == after, "it said that nothing was changed"
        assert tb.effect(effect.id).state is State.DONE
        assert not tb.recover(), "nothing is left open"
        assert tb.undo(effect).outcome == "done"
        assert (world / "d" / "f").read_text() == "0"
        assert os.listdir(world / "else") == ["f"]


def raced(monkeypatch: pytest.MonkeyPatch, racer: Racer) -> None:
    """The link is there while the undo is applied and tidied up, and gone when its run ends."""

    def during(work: Callable[..., object], before: bool) -> Callable[..., object]:
        def wrapped(self: FileAdapter, effect: Effect) -> object:
            if before and effect.is_undo:
                racer.link()
            try:
                return work(self, effect)
            finally:
                if not before:
                    racer.unlink()

        return wrapped

    monkeypatch.setattr(FileAdapter, "apply", during(FileAdapter.apply, before=True))
    monkeypatch.setattr(FileAdapter, "tidy", during(FileAdapter.tidy, before=False))
