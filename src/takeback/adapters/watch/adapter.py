"""Trees that someone else changes while we watch. Undo is that of every tree; the baseline is our own."""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from takeback.adapters.file.kernel import AT_ROOT, libc
from takeback.adapters.protocol import FoundChange
from takeback.adapters.tree.adapter import TreeAdapter
from takeback.adapters.tree.git.layout import with_meaning
from takeback.adapters.tree.states import in_place, only_time
from takeback.adapters.tree.targets import TREE, put_targets
from takeback.adapters.watch.compare import Inode
from takeback.adapters.watch.files import FILES, changed_since
from takeback.adapters.watch.index import Index, digests_in, index_name
from takeback.adapters.watch.other_effects import steps_of
from takeback.adapters.watch.processes import at_work
from takeback.adapters.watch.roots import Root
from takeback.adapters.watch.subtract import without
from takeback.adapters.watch.watched_root import Baseline, Claim, WatchedRoot, WatchPlace
from takeback.errors import StoreBusy
from takeback.model.change import Change
from takeback.model.effect import Effect
from takeback.model.progress import SILENT, Progress
from takeback.model.remedy import BY_MEANING, UNKNOWN, Target, doubted
from takeback.model.resource import display, path_of
from takeback.storage.protocols import Blobs

# What was changed since the baseline that a proposal names, as the change to be recorded.


Targets = tuple[Target, ...]
_LISTED = 5
_CLOCK_TICK = 20_000_000  # times of files are taken from a clock that goes in steps
OLDER = "it is older than the command, and was moved here from where nothing was captured"
ELSEWHERE = (
    "{name} has a further name outside of what is watched, which undo does not change; after undo the two are "
    "separate files"
)
OVER = (
    "was replaced by a file older than the command, moved there from where nothing was captured: "
    "after undo only the store has that one, and redo brings it back"
)


def baselines_of(change: Change) -> tuple[Baseline, ...]:
    rows: list[list[Any]] = change.args.get("baseline", [])
    return tuple(Baseline(*row) for row in rows)


def root_of_baseline(one: Baseline) -> Root:
    return Root(one.root, path_of(one.root), whole=one.file == index_name(one.root, whole=True))


def refuse_at_work(change: Change) -> None:
    """While those who make the change are still at it, nothing can be said of it."""
    if working := at_work(change.args.get("process", {})):
        raise StoreBusy(
            f"{', '.join(map(str, working[:_LISTED]))} {'is' if len(working) == 1 else 'are'} still running, "
            "so what it changes is not recorded yet.",
            hint="Wait for it or end it, then run `takeback recover`.",
        )


def compared(
    change: Change,
    roots: Sequence[tuple[WatchedRoot, Baseline]],
    minus: Callable[[Targets], Targets],
    blobs: Blobs,
    claims: Sequence[Claim] = (),
    kept: bool = True,
) -> tuple[Targets, tuple[str, ...]]:
    """The targets of all roots, and what undo could not bring back. `claims`, one for each root: of the watch that
    follows this one. Not `kept`: their content becomes durable with the record that the caller writes next."""
    targets: list[Target] = []
    residue: list[str] = []
    captured: set[Inode] = set()
    names: Counter[Inode] = Counter()
    for (watched, baseline), claim in zip(roots, claims or [None] * len(roots), strict=True):
        found = watched.changes(baseline, claim, kept)
        targets += found.targets
        residue += found.residue
        captured |= found.captured
        names.update(found.names)
    residue += [ELSEWHERE.format(name=display(one.resource)) for one in targets if _is_parted(one, names)]
    moved = _moved_in(change, targets, captured)
    stay = {one.resource for one in moved if one.before["type"] == "absent"}
    residue += [
        f"{display(one.resource)} {f'stays ({OLDER})' if one.resource in stay else OVER}" for one in moved
    ]
    recorded = tuple(
        one._replace(after=one.after | {"excluded": OLDER}) if one.resource in stay else one
        for one in targets
    )
    return tuple(with_meaning(minus(recorded), blobs)), tuple(residue)


def _is_parted(target: Target, names: Mapping[Inode, int]) -> bool:
    """A file with a name outside of what is watched, whose way back is a new file."""
    before, after = target.before, target.after
    if before.get("nlink", 1) < 2 or "digest" not in before or only_time(before, after):
        return False
    known = names.get((before["dev"], before["ino"]), 1)
    return before["nlink"] > known and not in_place(before, after)


def _moved_in(change: Change, targets: Sequence[Target], left: Collection[Inode]) -> list[Target]:
    """Files that are new at their place and older than the change: they came from where nothing was captured (a hole,
    another directory), so this may be the only copy."""
    began: int = change.args.get("began", 0)
    if not began:
        return []
    captured = {(one.before["dev"], one.before["ino"]) for one in targets if "digest" in one.before}
    captured.update(left)
    present = [(one, (one.after["dev"], one.after["ino"])) for one in targets if "digest" in one.after]
    names = Counter(inode for _, inode in present)
    return [
        one
        for one, inode in present
        if one.after.get("nlink", 1) <= names[inode]  # else it has a name elsewhere
        and inode not in captured
        and one.before.get("ino") != one.after["ino"]  # what was a hole, and can be read now
        and _is_older(path_of(one.resource), began, "left_out" in change.args)
    ]


def _is_older(path: bytes, began: int, unsure: bool) -> bool:
    try:
        born = libc().born(AT_ROOT, path)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # unknown: then it stays
    return born < began - _CLOCK_TICK if born else unsure


def change_found(
    change: Change, blobs: Blobs, targets: Targets, residue: Sequence[str], every: Collection[str] = ()
) -> FoundChange | None:
    """None if nothing changed but the times of directories. `every` path that was found, also those of others."""
    if all(_only_time(target) for target in targets):
        return None
    args = {**change.args, "targets": put_targets(blobs, targets)}
    ours = {target.resource for target in targets}
    if beside := sorted(one for one in every if one not in ours and one.rpartition("/")[0] in ours):
        args["beside"] = beside
    if residue:
        more = f" and {len(residue) - _LISTED:,} more" if len(residue) > _LISTED else ""
        args |= {"exact": False, "residue": "; ".join(residue[:_LISTED]) + more}
    return FoundChange(change._replace(args=args))


def _only_time(target: Target) -> bool:
    one, other = ({**state, "mtime": 0, BY_MEANING: ""} for state in (target.before, target.after))
    return one["type"] == other["type"] == "dir" and one == other


def found_by(change: Change, place: WatchPlace, others: Sequence[Effect] = ()) -> FoundChange | None:
    """For recovery: from what is durable alone. `others`: what was done since the beginning."""
    refuse_at_work(change)
    if FILES in change.args:
        return files_change(change, place.blobs, 0, others)
    roots: list[tuple[WatchedRoot, Baseline]] = []
    try:
        for one in baselines_of(change):
            roots.append((WatchedRoot(root_of_baseline(one), place), one))
        steps = steps_of(others)
        every: set[str] = set()

        def minus(all: Targets) -> Targets:
            every.update(one.resource for one in all)
            return without(all, steps, change.args.get("roots", ()), place.blobs)

        targets, residue = compared(change, roots, minus, place.blobs)
        if change.args.get("doubts"):
            targets = tuple(one if _only_time(one) else doubted(one, UNKNOWN) for one in targets)
        return change_found(change, place.blobs, targets, residue, every)
    finally:
        for watched, _ in roots:
            watched.close()


def files_change(
    change: Change, blobs: Blobs, limit: int, others: Sequence[Effect] = ()
) -> FoundChange | None:
    """Of files that were watched by their names."""
    targets = changed_since(change, blobs, limit, others)
    parted = [one for one in targets if one.before.get("nlink", 1) > 1]
    residue = [ELSEWHERE.format(name=display(one.resource)) for one in parted]
    return change_found(change, blobs, targets, residue) if targets else None


class WatchedTree(TreeAdapter):
    def __init__(self, blobs: Blobs, held: str, progress: Progress = SILENT) -> None:
        """`held` is in the store, and so are the indexes."""
        store = os.path.dirname(held)
        inside, real = os.path.join(store, "watch"), os.fsencode(os.path.realpath(store))
        self.place = WatchPlace(inside, blobs, real, {}, progress=progress)
        super().__init__(
            TREE, blobs, held, lambda effect, others: found_by(effect.change, self.place, others), progress
        )

    def tidy(self, effect: Effect) -> None:
        super().tidy(effect)
        for baseline in baselines_of(effect.change):
            release(self.place, baseline.file, (baseline.token,))

    def needed(self) -> Iterator[str]:
        return digests_in(self.place.directory)


def release(place: WatchPlace, name: str, tokens: tuple[str, ...]) -> None:
    """No comparison will need these any more. Twice is once."""
    if name in place.opened:
        place.opened[name].release(tokens, soon=True)
        return
    index = Index(place.directory, name)
    try:
        index.release(tokens)
    finally:
        index.close()
