"""Files with several names in what a command left: which are one file afterwards, and which names it does not know of
follow along, because a write through one name is seen through all."""

import os
from collections.abc import Sequence

from takeback.adapters.file.states import State, same
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import see
from takeback.adapters.tree.twins import Inode, find_names, has_names
from takeback.model.remedy import Target
from takeback.model.resource import display, file_resource, path_of
from takeback.storage.protocols import Blobs

_ORIGINS = ("trusted.overlay.origin", "user.overlay.origin")

# resource, before, after, where the layer has it
Row = tuple[str, State, State, bytes | None]


class Linked:
    def __init__(self, blobs: Blobs, world: Places, stacked: bool = False) -> None:
        """`stacked`: what was left comes from several layers."""
        self._blobs = blobs
        self._stacked = stacked
        self._world = world
        self._at_end: dict[Inode, list[int]] = {}  # which rows are which inode afterwards
        self.residue: list[str] = []

    def joined(self, rows: Sequence[Row]) -> list[Target]:
        targets = self._with_twins(rows)
        self.residue += self._parted(rows)
        outside = self._outside(rows)
        if not outside:
            return targets
        for number, (_, _, after, _) in enumerate(rows):
            if "ino" in after:
                self._at_end.setdefault((after["dev"], after["ino"]), []).append(number)
        near = os.path.dirname(os.path.commonpath([path_of(names[0]) for names in outside.values()]))
        wanted = {inode: by_nlink for inode, by_nlink in self._counts(rows).items() if inode in outside}
        found = find_names(wanted, near)
        by_name = {target.resource: number for number, target in enumerate(targets)}
        for inode, names in outside.items():
            others = [file_resource(path) for path in found.get(inode, ())]
            others = [resource for resource in others if resource not in by_name]
            self._follow(inode, names, others, wanted[inode], targets, by_name, rows)
        return targets

    def _with_twins(self, rows: Sequence[Row]) -> list[Target]:
        """By the inodes of the layer; its link counts say nothing."""
        first: dict[Inode, str] = {}
        # A name that stays what it is leads: then the others are linked to it.
        for resource, _, after, _ in sorted(rows, key=lambda row: not same(row[1], row[2])):
            if "ino" in after and after["type"] != "dir":
                first.setdefault((after["dev"], after["ino"]), resource)
        old: dict[Inode, str] = {}
        targets: list[Target] = []
        for resource, before, after, _ in rows:
            if "ino" in after and after["type"] != "dir":
                leader = first[after["dev"], after["ino"]]
                after = after | {"twin": leader} if leader != resource else after
            if has_names(before) and "ino" in before:
                leader = old.setdefault((before["dev"], before["ino"]), resource)
                before = before | {"twin": leader} if leader != resource else before
            targets.append(Target(resource, before, after))
        return targets

    def _parted(self, rows: Sequence[Row]) -> list[str]:
        """Names of one file that were written in different layers, each in a copy of its own: nobody can tell how the
        file would look if both had gone to the same one. Upper layers do not tell what was written from what was
        replaced, so that counts too."""
        found: dict[Inode, dict[Inode, str]] = {}
        for row in rows if self._stacked else ():
            resource, before, after, _ = row
            if before["type"] == "file" and before.get("nlink", 1) > 1 and _is_other(row) and "ino" in after:
                copies = found.setdefault((before["dev"], before["ino"]), {})
                copies.setdefault((after["dev"], after["ino"]), resource)
        return [
            f"{' and '.join(display(one) for one in copies.values())} were names of one file and are separate files now"
            for copies in found.values()
            if len(copies) > 1
        ]

    def _counts(self, rows: Sequence[Row]) -> dict[Inode, int]:
        return {(row[1]["dev"], row[1]["ino"]): row[1]["nlink"] for row in rows if "nlink" in row[1]}

    def _outside(self, rows: Sequence[Row]) -> dict[Inode, list[str]]:
        """Files of which the command changed some names and not all, by inode."""
        names: dict[Inode, list[str]] = {}
        counts: dict[Inode, int] = {}
        changed: set[Inode] = set()
        for resource, before, after, _ in rows:
            if before["type"] == "file" and before.get("nlink", 1) > 1:
                inode = (before["dev"], before["ino"])
                names.setdefault(inode, []).append(resource)
                counts[inode] = before["nlink"]
                if not same(before, after):
                    changed.add(inode)
        return {
            inode: listed
            for inode, listed in names.items()
            if inode in changed and len(listed) < counts[inode]
        }

    def _follow(
        self,
        inode: Inode,
        names: list[str],
        others: list[str],
        count: int,
        targets: list[Target],
        by_name: dict[str, int],
        rows: Sequence[Row],
    ) -> None:
        written = next((name for name in names if self._is_written(rows[by_name[name]])), "")
        if written:
            # Through one name: every other shows it too.
            after = targets[by_name[written]].after
            leader: str = after.get("twin", written)
            for resource in others:
                place = self._world.at(resource)
                before = see(place, after)
                if (before.get("dev"), before.get("ino")) != inode:
                    continue
                before = before | {"twin": names[0]}
                targets.append(Target(resource, before, after | {"twin": leader}))
            if len(names) + len(others) < count:
                self.residue.append(
                    f"further names of {display(written)} were not found, and stay with the file as it was"
                )
            return
        if os.geteuid() != 0 and (name := next((one for one in names if _is_other(rows[by_name[one]])), "")):
            # A layer of an ordinary user does not tell a file that was written from one that was put in its place.
            self.residue.append(f"other names of {display(name)} stay with the file as it was")
        moved = self._at_end.get(inode, [])
        if not others:
            # Then the file itself is kept for the undo, where that is possible.
            self.residue += [f"{display(rows[one][0])} is apart from other names it had" for one in moved[:1]]
            return
        for number in moved:
            # With a directory that was moved, to where it is still the same file as the names that stay.
            target = targets[number]
            targets[number] = target._replace(after=target.after | {"twin": others[0]})
        for name in names:
            number = by_name[name]
            target = targets[number]
            if "twin" not in target.before:
                targets[number] = target._replace(before=target.before | {"twin": others[0]})

    def _is_written(self, row: Row) -> bool:
        """Changed through the name it had, and not replaced by another file."""
        _, before, after, source = row
        if after["type"] != "file" or source is None or same(before, after):
            return False
        return any(_has(source, name) for name in _ORIGINS)


def _is_other(row: Row) -> bool:
    _, before, after, _ = row
    return after["type"] == "file" and not same(before, after)


def _has(path: bytes, attribute: str) -> bool:
    try:
        os.getxattr(path, attribute, follow_symlinks=False)
    except OSError:
        return False
    return True
