"""Bring all units of an effect from one side to the other: all of them, or none.

Everything new is made ready and durable first, beside where it belongs; a full disk shows here, where nothing has
happened yet. Then everything is put in place by renames; if a path turns out to be someone else's by now, the renames
are taken back. Only when all are in place is what they displaced removed, and what stays gets its new properties.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from takeback.adapters.file.adapter import sync_directory
from takeback.adapters.file.build import Tools
from takeback.adapters.file.kernel import Freeing, flush_filesystem
from takeback.adapters.file.os_errors import CannotCapture, in_our_words, is_full, translated
from takeback.adapters.file.paths import Place, scratch
from takeback.adapters.file.states import FileState, difference, same
from takeback.adapters.tree.build import Builder, Lent, adjust
from takeback.adapters.tree.directories import ParentDirectory, close_up, open_up, put_right
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import Mixture, alike, is_dir, only_time, see, signed_alike
from takeback.adapters.tree.swap import AGAIN, Swap, drifted, is_kept
from takeback.adapters.tree.targets import Unit, units_of
from takeback.errors import Drifted, Stuck, TakebackError
from takeback.model.remedy import Target
from takeback.model.resource import display

_FEW = 16


class Carrier:
    """One way of one effect. `first`: this is certainly the first attempt, so there is no scratch to look for."""

    def __init__(
        self,
        effect: str,
        grounds: Sequence[ParentDirectory],
        tools: Tools,
        places: Places,
        forward: bool,
        first: bool,
        lent: Lent | None = None,
    ) -> None:
        self._effect = effect
        self._grounds = grounds
        self._tools = tools
        self._places = places
        self._forward = forward
        self._first = first
        self._lent = lent
        self._opened = {ground.resource for ground in grounds if ground.modes[0] >= 0}

    def carry(self, units: Sequence[Unit]) -> None:
        open_up(self._grounds, self._places)
        try:
            pending = [unit for unit in units if self._is_pending(unit)]
        except BaseException:
            put_right(self._grounds, self._places, not self._forward)
            raise
        one_by_one = is_small(pending)
        self._expect(pending)
        adjusting = {unit.resource: unit.goal for unit in pending if unit.adjusts}
        builder = Builder(self._tools, self._places, adjusting, one_by_one, self._lent)
        swapped: list[Unit] = []
        adjusted: list[Unit] = []
        try:
            try:
                self._make_ready(pending, builder, one_by_one)
            except (TakebackError, OSError) as trouble:
                first = [
                    unit for unit in pending if unit.goal["type"] == "absent" and unit.start["type"] == "file"
                ]
                if not first or self._lent or not is_full(trouble):
                    raise
                self._make_room(pending, first, builder, swapped)
                self._make_ready(pending, builder, one_by_one)
            rest = [unit for unit in pending if not unit.adjusts and unit not in swapped]
            for unit in rest:
                with translated(unit.resource):
                    self._swap(unit).swap()
                swapped.append(unit)
            # Before any inode is adjusted: what goes may be another name of it.
            self._clear(rest, builder, swapped)
            for unit in reversed(pending):
                if unit.adjusts:
                    adjusted.append(unit)
                    self._adjust(unit, unit.start, unit.goal)
        except (TakebackError, OSError) as trouble:
            self._withdraw(pending, swapped, adjusted, trouble)
            raise
        finally:
            builder.close()
        self._finish(units, one_by_one)

    def _expect(self, pending: Sequence[Unit]) -> None:
        """A new path counts when it is prepared, another one when it is removed. Lent files are not read."""
        moved = [unit for unit in pending if not unit.adjusts]
        goals = (state for unit in moved for state in (unit.goal, *unit.coming.values()))
        size = 0 if self._lent else sum(state.get("size", 0) for state in goals if "twin" not in state)
        count = sum(1 + len(unit.leaving if unit.goal["type"] == "absent" else unit.coming) for unit in moved)
        self._tools.progress.expect(count, size)

    def _make_ready(self, pending: Sequence[Unit], builder: Builder, one_by_one: bool) -> None:
        for unit in pending:
            if not unit.adjusts:
                with translated(unit.resource):
                    self._swap(unit).prepare(builder)
                if unit.goal["type"] != "absent":
                    self._tools.progress.moved(items=1)
        if one_by_one:
            for unit in pending[:1]:
                with translated(unit.parent):
                    builder.make_durable()
        else:
            self._flush(unit for unit in pending if not unit.adjusts and unit.goal["type"] != "absent")

    def _make_room(
        self, pending: Sequence[Unit], first: Sequence[Unit], builder: Builder, swapped: list[Unit]
    ) -> None:
        """The disk is full: files that go anyway go before the others come. They are in the store, so they can still
        be put back."""
        builder.start_anew()
        for unit in pending:
            if not unit.adjusts:
                self._swap(unit).discard()
        for unit in first:
            with translated(unit.resource):
                self._swap(unit).swap()
            swapped.append(unit)
        self._clear(first, builder, swapped)
        self._flush(first)

    def put_directories_right(self, units: Sequence[Unit]) -> None:
        """They get their times last: every name that came or went in them moved these."""
        for unit in reversed(units):
            if unit.adjusts and is_dir(unit.goal):
                self._adjust(unit, unit.start, unit.goal)
        put_right(self._grounds, self._places, self._forward)

    def _finish(self, units: Sequence[Unit], one_by_one: bool) -> None:
        self.put_directories_right(units)
        # Also when all was there already: who put it there may have died before this.
        if one_by_one and is_small(units):
            for parent in {unit.parent for unit in units}:
                self._sync(parent)
        else:
            self._flush(units)

    def _sync(self, directory: str) -> None:
        place = self._places.if_there(f"{directory}/x")
        if place is not None:
            with translated(directory):
                sync_directory(place)

    def _clear(self, units: Sequence[Unit], builder: Builder, swapped: list[Unit]) -> None:
        # Directories first: someone may be at work in one, and what is still displaced goes back by renames.
        with Freeing() as freeing:
            for unit in sorted(units, key=lambda one: not is_dir(one.start)):
                swap = self._swap(unit)
                try:
                    with translated(unit.resource):
                        swap.clear(builder, freeing)
                    if unit.goal["type"] == "absent":
                        self._tools.progress.moved(items=1 + len(unit.leaving))
                except (TakebackError, OSError):
                    if swap.returned:
                        swapped.remove(unit)
                    raise

    def _swap(self, unit: Unit) -> Swap:
        place = self._places.at(unit.resource)
        return Swap(unit, place, scratch(self._effect, unit.number, place.name), self._tools)

    def _is_pending(self, unit: Unit) -> bool:
        """False: it is there already."""
        with translated(unit.resource):
            place = self._places.if_there(unit.resource)
            if place is None:
                if unit.goal["type"] == "absent":
                    return False
                raise Drifted(
                    f"The directory of {display(unit.resource)} is gone or is no directory any more.",
                    hint=AGAIN,
                )
            if not self._first and not unit.adjusts:
                self._swap(unit).settle()
            try:
                return self._stands_at_start(unit, place)
            except CannotCapture as trouble:
                raise drifted(unit.resource, trouble.reason) from trouble

    def _stands_at_start(self, unit: Unit, place: Place) -> bool:
        start, goal = unit.start, unit.goal
        status = place.stat()
        if status is None and start["type"] == "absent":
            return True
        if self._first and status is not None and signed_alike(status, start) and not unit.adjusts:
            return True
        now = see(place, goal if start["type"] == "absent" else start)
        if self._is_at_goal(unit, place, now):
            if not only_time(start, goal):
                # The time is restored last: a process that died before left the old one.
                return (
                    unit.adjusts
                    and not is_dir(now)
                    and now.get("mtime") == start.get("mtime") != goal.get("mtime")
                )
            splits = start.get("twin") != goal.get("twin") and not is_twin(unit, self._places)
            return not is_dir(now) and (now["mtime"] != goal["mtime"] or splits)
        opened = not self._first or unit.resource in self._opened
        if alike(now, start) or (opened and Mixture(start, goal).holds(now)):
            return True
        raise drifted(unit.resource, f"it {difference(start, now)}")

    def _is_at_goal(self, unit: Unit, place: Place, now: FileState) -> bool:
        goal, inside = unit.goal, unit.coming
        if not same(now, goal) and not (alike(now, goal) and is_twin(unit, self._places)):
            return False
        return not inside or is_kept(place, goal, inside, self._tools.blobs)

    def _adjust(self, unit: Unit, start: FileState, goal: FileState, stay_open: bool = False) -> None:
        with translated(unit.resource):
            adjust(self._places.at(unit.resource), start, goal, stay_open)

    def _withdraw(
        self, pending: list[Unit], swapped: list[Unit], adjusted: list[Unit], trouble: Exception
    ) -> None:
        try:
            for unit in reversed(adjusted):
                self._adjust(unit, unit.goal, unit.start, stay_open=os.geteuid() != 0)
            for unit in reversed(swapped):
                self._put_back(unit)
            for unit in pending:
                if not unit.adjusts:
                    self._swap(unit).discard()
            for unit in adjusted:  # innermost first
                if is_dir(unit.start):
                    self._adjust(unit, unit.goal, unit.start)
            put_right(self._grounds, self._places, not self._forward)
            self._flush(pending)
        except (TakebackError, OSError) as worse:
            told = worse if isinstance(worse, TakebackError) else in_our_words(worse, pending[0].resource)
            raise Stuck(
                f"A change of {len(pending):,} paths failed ({trouble}), and it is not all back. {told}",
                hint="Run `takeback recover`; `takeback show` on the effect lists the earlier content.",
                effect=self._effect,
            ) from trouble

    def _put_back(self, unit: Unit) -> None:
        """By renames; what was removed already is made again from the store."""
        swap = self._swap(unit)
        if unit.start["type"] == "absent" or swap.aside.stat() is not None:
            swap.unswap()
            return
        back = self._swap(
            unit._replace(start=unit.goal, goal=unit.start, leaving=unit.coming, coming=unit.leaving)
        )
        builder = Builder(self._tools, self._places, {})
        back.prepare(builder)
        back.swap()
        with Freeing() as freeing:
            back.clear(builder, freeing)

    def _flush(self, units: Iterable[Unit]) -> None:
        """Once for each filesystem, instead of file by file."""
        done: set[int] = set()
        for parent in dict.fromkeys(unit.parent for unit in units):
            place = self._places.if_there(f"{parent}/x")
            if place is None:
                continue
            device = os.fstat(place.fd).st_dev
            if device not in done:
                done.add(device)
                _flush_at(place.fd)


def is_small(units: Sequence[Unit]) -> bool:
    """A few files: each is made durable by itself, whatever else waits to be written to their filesystem."""
    return len(units) <= _FEW and not any(
        unit.adjusts or is_dir(unit.goal) or is_dir(unit.start) for unit in units
    )


def _flush_at(fd: int) -> None:
    try:
        flush_filesystem(fd)
    except OSError as error:
        import errno

        # A directory we may not read was opened without the right to sync; the kernel does it in its own time.
        if error.errno != errno.EBADF:
            raise


def is_twin(unit: Unit, places: Places) -> bool:
    """Whether it is the same file as the twin its goal names, or as none if it names none."""
    goal, other = unit.goal.get("twin"), unit.start.get("twin")
    mine, twin = places.inode(unit.resource), places.inode(goal or other or unit.resource)
    return mine is not None and twin is not None and (mine == twin) is bool(goal)


# The process that carried an effect out died, and someone else changed a path since: nothing stays half-changed.


def bring_to_rest(
    effect: str, targets: Sequence[Target], grounds: Sequence[ParentDirectory], tools: Tools
) -> None:
    """Give back displaced files of others, remove files beside it that are in the store, and restore the properties of
    an inode that got only some of its new ones. Each path is before, after, or someone else's then."""
    with Places(targets) as places:
        open_up(grounds, places)
        for unit in reversed(units_of(targets)):  # a directory's own properties after what is in it
            with translated(unit.resource):
                place = places.if_there(unit.resource)
                if place and unit.adjusts:
                    _adjust_back(unit, place)
                elif place:
                    swap = Swap(unit, place, scratch(effect, unit.number, place.name), tools)
                    with suppress(Drifted):  # what was displaced was someone else's, and is back
                        swap.settle()
                    swap.tidy()
        close_up(grounds, places)


def _adjust_back(unit: Unit, place: Place) -> None:
    try:
        now = see(place, unit.start)
    except CannotCapture:
        return
    if not same(now, unit.start) and not same(now, unit.goal) and Mixture(unit.start, unit.goal).holds(now):
        adjust(place, unit.goal, unit.start)
