"""One command in one tree: every way must leave what the direct run leaves, and every undo what was there before."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import takeback
from tests.trees import ways
from tests.trees.scenes import (
    NEVER_EQUAL,
    but_for_git_objects,
    comparable,
    differences,
    manifest,
    without_directory_times,
)
from tests.world import Picture

WAYS = ("sandboxed", "in place")


class Place(NamedTuple):
    """Where a tree stands, and how it is made anew."""

    root: Path
    renew: Callable[[], Picture]


class Wrong(AssertionError):
    """Says which way, which step, and path by path what is not as it should be."""


def direct(argv: Sequence[str], place: Place) -> tuple[ways.Ran, Picture]:
    place.renew()
    since = time.time_ns()
    ran = ways.directly(argv, place.root)
    return ran, comparable(seen(place.root), _a_little_before(since))


def try_out(
    run: takeback.Run,
    argv: Sequence[str],
    place: Place,
    which: Iterable[str] = WAYS,
    never_equal: Iterable[bytes] = NEVER_EQUAL,
) -> int:
    """Directly first, then each of the ways with undo; how many effects were taken back."""
    wanted, wanted_picture = direct(argv, place)
    effects = 0
    for way in which:
        before = place.renew()  # an undo leaves git objects, which git would find again
        since = time.time_ns()
        if way == "sandboxed":
            ran = ways.sandboxed(run, argv, place.root)
        else:
            ran = ways.in_place(run, argv, place.root)
        after = seen(place.root)
        told = f"{way}: {' '.join(argv)[:200]}"
        if (ran.exit_code, ran.said) != (wanted.exit_code, wanted.said):
            raise Wrong(f"{told}\nended with {ran[:2]}, directly with {wanted[:2]}")
        if wrong := differences(wanted_picture, comparable(after, _a_little_before(since), never_equal)):
            raise Wrong(f"{told}\nleft something else than when run directly:\n{wrong}")
        if ran.effect is None:
            if wrong := differences(without_directory_times(before), without_directory_times(after)):
                raise Wrong(f"{told}\nchanged something and recorded nothing:\n{wrong}")
            continue
        result = run.undo(ran.effect)
        if str(result.outcome) != "done":
            raise Wrong(f"{told}\nundo was {result.outcome}: {[t for t in result.targets if t.detail][:5]}")
        # Times of directories are put back where that is possible, and that is nowhere promised.
        if wrong := differences(*but_for_git_objects(before, seen(place.root))):
            raise Wrong(f"{told}\nundo did not bring back what was there:\n{wrong}")
        effects += 1
    return effects


def seen(root: Path) -> Picture:
    return manifest(root) if root.is_dir() and not root.is_symlink() else {}


def _a_little_before(moment: int) -> int:
    """The kernel's clock of files goes in steps."""
    return moment - 50_000_000
