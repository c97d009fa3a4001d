"""Trees that someone else changes while we watch. Undo is that of every tree; the baseline is our own."""

import os
from collections.abc import Iterator, Sequence

from takeback.adapters.tree.adapter import TreeAdapter
from takeback.adapters.tree.change import TREE
from takeback.adapters.watch.found import baselines_of, found_by
from takeback.adapters.watch.index import Index, digests_in
from takeback.adapters.watch.watched import Place
from takeback.model.change import Change
from takeback.model.effect import Effect
from takeback.model.progress import SILENT, Progress
from takeback.storage.protocols import Blobs


class WatchedTree(TreeAdapter):
    def __init__(self, blobs: Blobs, held: str, progress: Progress = SILENT) -> None:
        """`held` is in the store, and so are the indexes."""
        store = os.path.dirname(held)
        self.place = Place(
            os.path.join(store, "watch"),
            blobs,
            os.fsencode(os.path.realpath(store)),
            {},
            progress=progress,
        )
        super().__init__(TREE, blobs, held, self._found_in_world, progress)

    def _found_in_world(self, effect: Effect, others: Sequence[Effect]) -> Change | None:
        return found_by(effect.change, self.place, others)

    def tidy(self, effect: Effect) -> None:
        super().tidy(effect)
        for baseline in baselines_of(effect.change):
            release(self.place, baseline.file, (baseline.token,))

    def needed(self) -> Iterator[str]:
        return digests_in(self.place.directory)


def release(place: Place, name: str, tokens: tuple[str, ...]) -> None:
    """Nobody will compare with these any more. Twice is once."""
    if name in place.opened:
        place.opened[name].release(tokens)
        return
    index = Index(place.directory, name)
    if not index.exists():
        return
    try:
        index.release(tokens)
    finally:
        index.close()
