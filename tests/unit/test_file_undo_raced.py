"""Someone exchanges a directory for a symbolic link while an undo is at work in it: what is said is what is."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import takeback
from takeback.adapters.file import adapter, verify
from takeback.adapters.file.adapter import FileAdapter
from takeback.model.effect import Effect, State
from takeback.model.plan import Sighting
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

    def away(self) -> None:
        self.directory.rename(self.aside)

    def back(self) -> None:
        self.unlink()
        if self.aside.exists():
            self.aside.rename(self.directory)

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


@pytest.mark.parametrize("gone", ["linked", "missing"])
def test_finding_21_a_directory_exchanged_for_a_moment_leaves_nothing_stuck(
    world: World, store: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """It is away at the first look after the undo was carried out, and back at the second."""
    (world / "d").mkdir()
    (world / "d" / "f").write_text("0")
    (world / "else").mkdir()
    racer = Racer(world / "d", world / "else")
    with takeback.open(store) as tb:
        with tb.run("agent") as run:
            effect = run.write(world / "d" / "f", "agent")
        assert effect
        away_when_looked_at(monkeypatch, racer, gone, looks=1)
        assert tb.undo(effect).outcome == "done"
        assert (world / "d" / "f").read_text() == "0"
        assert tb.effect(effect.id).state is State.UNDONE
        assert not list(tb.effects(state="stuck"))


@pytest.mark.parametrize("gone", ["linked", "missing"])
def test_finding_21_a_directory_that_stays_away_is_stuck_as_before(
    world: World, store: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    (world / "d").mkdir()
    (world / "d" / "f").write_text("0")
    (world / "else").mkdir()
    (world / "else" / "f").write_text("0")  # what the undo would leave, but reached only through a link
    racer = Racer(world / "d", world / "else")
    with takeback.open(store) as tb:
        with tb.run("agent") as run:
            effect = run.write(world / "d" / "f", "agent")
        assert effect
        away_when_looked_at(monkeypatch, racer, gone, looks=10_000)
        assert tb.undo(effect).outcome == "stuck"
        assert len(list(tb.effects(state="stuck"))) == 1
        racer.back()
        monkeypatch.undo()
        assert [one.outcome for one in tb.recover()] == ["done"]
        assert (world / "d" / "f").read_text() == "0"


def test_finding_21_a_difference_seen_at_the_second_look_is_no_success(
    world: World, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world / "d").mkdir()
    (world / "d" / "f").write_text("0")
    (world / "else").mkdir()
    racer = Racer(world / "d", world / "else")
    with takeback.open(store) as tb:
        with tb.run("agent") as run:
            effect = run.write(world / "d" / "f", "agent")
        assert effect
        away_when_looked_at(
            monkeypatch, racer, "linked", looks=1, then=lambda: (world / "d" / "f").write_text("a person")
        )
        assert tb.undo(effect).outcome == "stuck"
        assert (world / "d" / "f").read_text() == "a person"


def test_finding_21_several_files_whose_directory_goes_before_they_are_durable_are_not_called_untouched(
    world: World, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world / "d").mkdir()
    (world / "else").mkdir()
    for name in ("f", "g"):
        (world / "d" / name).write_text("0")
    racer = Racer(world / "d", world / "else")
    with takeback.open(store) as tb:
        with tb.run("agent") as run:
            effect = run.write_all({world / "d" / "f": "agent", world / "d" / "g": "agent"})
        assert effect
        sync = FileAdapter._sync

        def raced_sync(self: FileAdapter, resources: set[str]) -> None:
            racer.link()
            sync(self, resources)

        monkeypatch.setattr(FileAdapter, "_sync", raced_sync)
        assert tb.undo(effect).outcome == "stuck"
        monkeypatch.undo()
        racer.unlink()
        assert [one.outcome for one in tb.recover()] == ["done"]
        assert {(world / "d" / name).read_text() for name in ("f", "g")} == {"0"}


def away_when_looked_at(
    monkeypatch: pytest.MonkeyPatch,
    racer: Racer,
    gone: str,
    looks: int,
    then: Callable[[], object] = lambda: None,
) -> None:
    """After an undo was applied, its directory is away for so many looks, and then back."""
    left = 0
    apply, seen = FileAdapter.apply, verify.sight

    def raced_apply(self: FileAdapter, effect: Effect) -> object:
        nonlocal left
        receipt = apply(self, effect)
        if effect.is_undo:
            left = looks
            racer.link() if gone == "linked" else racer.away()
        return receipt

    def counted(effect: Effect, clean: bool = False) -> Sighting:
        nonlocal left
        found = seen(effect, clean)
        left -= 1
        if left == 0:
            racer.back()
            then()
        return found

    monkeypatch.setattr(FileAdapter, "apply", raced_apply)
    monkeypatch.setattr(adapter, "sight", counted)
