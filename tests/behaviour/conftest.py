"""A store and a world, for claims about what a user of the library sees."""

from collections.abc import Iterator

import pytest

import takeback
from tests.world import World


class Scene:
    """An open store over a small directory."""

    def __init__(self, tb: takeback.Takeback, world: World) -> None:
        self.tb = tb
        self.world = world

    def put(self, name: str, text: str | bytes) -> None:
        """As a person would, behind takeback's back."""
        (self.world / name).write_bytes(text.encode() if isinstance(text, str) else text)

    def text(self, name: str) -> str | None:
        path = self.world / name
        return path.read_text() if path.exists() else None

    def write(self, name: str, text: str, **options: object) -> takeback.Effect:
        """One write in a run of its own, kept."""
        with self.tb.run(f"write {name}", agent=str(options.pop("agent", "tester"))) as run:
            effect = run.write(self.world / name, text, **options)  # type: ignore[arg-type]
        assert effect is not None
        return effect

    def state(self, effect: takeback.Effect) -> str:
        return self.tb.effect(effect.id).state.value

    def scratch(self) -> list[str]:
        return [str(path) for path in self.world.root.rglob(".takeback*")]


@pytest.fixture
def scene(store: object, world: World) -> Iterator[Scene]:
    with takeback.open(str(store)) as tb:
        yield Scene(tb, world)
        assert tb.verify(read_data=True).findings == ()
