"""What differs between two listings of a tree, path by path, as targets of an effect."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from takeback.adapters.file.assess import may_own
from takeback.adapters.file.sqlite_files import database_of, unit_of, units_in
from takeback.adapters.file.states import ABSENT, FileState, same
from takeback.adapters.watch.listings import NO_DIGEST, Listing, ListingEntry, states_of
from takeback.adapters.watch.roots import resource_in
from takeback.model.remedy import Target
from takeback.model.resource import display, quote, unquote

Listings = Mapping[str, Listing | None]
Inode = tuple[int, int]  # device and number
_INODE = ("dev", "ino", "uid", "gid", "digest")


class Compared(NamedTuple):
    targets: tuple[Target, ...]
    residue: tuple[str, ...] = ()  # what undo could not bring back, each half a sentence
    # Files whose content is in the store and that left the name they had.
    captured: frozenset[Inode] = frozenset()
    names: Mapping[Inode, int] = {}  # of files that had several names: how many of them lie in the tree


def differing(
    root: str,
    before: Listings,
    after: Listings,
    links_before: Callable[[int], Iterable[str]],
    instead: FileState = ABSENT,
) -> Compared:
    """`before` and `after` hold the directories that differ at all, by path. `links_before` gives the names that an
    inode had then, also in directories that do not differ. `instead`: the present content at the path of the root."""
    told_of = {path: _names_to_compare(before[path], after[path]) for path in before}
    then, now = _states(before, told_of), _states(after, told_of)
    if instead["type"] != "absent":
        now[""] = instead
    changed = [path for path in sorted(then.keys() | now.keys()) if _changed(then.get(path), now.get(path))]
    units = _units(changed, then, now)
    told = {*changed, *units}
    firsts_then = _first_names(then, links_before, told)
    firsts_now = _first_names(now, links_before, told)
    targets: list[Target] = []
    residue: list[str] = []
    for path in sorted(told):
        one, other = then.get(path, ABSENT), now.get(path, ABSENT)
        if other is ABSENT and (reason := _closed_above(path, now)):
            other = one | {"excluded": f"it is in a directory that was not read: {reason}"}
        resource = resource_in(root, path)
        if "excluded" in one or "excluded" in other:
            residue.append(f"{display(resource)} {_told_hole(one, other)}")
        elif not _ownable(one) and any(one.get(key) != other.get(key) for key in _INODE):  # not in place
            what = "owner" if one["uid"] != os.geteuid() else "group"
            residue.append(f"the {what} of {display(resource)}, which only root can give back")
        before_it = _dressed(path, root, one, firsts_then, units)
        targets.append(Target(resource, before_it, _dressed(path, root, other, firsts_now, units)))
    left = frozenset(inode for path in before for inode in _left(before[path], after[path]))
    names = {inode: len(found) for inode, found in firsts_then.items()}
    return Compared(tuple(targets), tuple(residue), left, names)


def _left(one: Listing | None, other: Listing | None) -> Iterable[Inode]:
    if one is None:
        return
    now = {} if other is None else other.by_name
    for name, entry in one.by_name.items() - now.items():
        there = now.get(name)
        if entry.digest != NO_DIGEST and (there is None or (there.dev, there.ino) != (entry.dev, entry.ino)):
            yield entry.dev, entry.ino


def _closed_above(path: str, now: dict[str, FileState]) -> str:
    """Why takeback could not check whether it still exists; empty if it could."""
    while path:
        path = path.rpartition("/")[0]
        if reason := now.get(path, ABSENT).get("excluded"):
            return reason
    return ""


def _states(listings: Listings, names: Mapping[str, set[bytes]]) -> dict[str, FileState]:
    return {
        path: state
        for where, listing in listings.items()
        for path, state in states_of(where, listing, names[where])
    }


def _names_to_compare(one: Listing | None, other: Listing | None) -> set[bytes]:
    """Those that may differ, that have further names, or are part of a database; the others are left out."""
    if one is not None and other is not None and one.names == other.names and one.extras == other.extras:
        both = zip(one.names, one.entries, other.entries, strict=True)
        found = {name for name, old, new in both if old is not new and old != new}
    else:
        now = _by_name(other)
        names = _by_name(one)
        found = {name for name in names.keys() | now.keys() if names.get(name) != now.get(name)}
    for listing in (one, other):
        if listing is not None:
            both = zip(listing.names, listing.entries, strict=True)
            found |= {name for name, entry in both if entry.nlink > 1}
            found |= {name for unit in units_in(listing.names, listing.names) for name in unit}
    return found


def _by_name(listing: Listing | None) -> dict[bytes, tuple[ListingEntry, object]]:
    if listing is None:
        return {}
    extras, both = listing.extras, zip(listing.names, listing.entries, strict=True)
    return {name: (entry, extras.get(quote(name)) if extras else None) for name, entry in both}


def _changed(one: FileState | None, other: FileState | None) -> bool:
    if one is None or other is None:
        return one is not other
    if one["type"] == other["type"] == "dir" and "excluded" in one and "excluded" in other:
        return False  # not looked into
    return not same(one, other) or one.get("mtime") != other.get("mtime")


def _units(changed: Iterable[str], then: dict[str, FileState], now: dict[str, FileState]) -> dict[str, str]:
    """Every file of a database of which one file differs, with the path of the database."""
    found: dict[str, str] = {}
    for path in changed:
        if "-" not in path and not any(f"{path}-{end}" in then or f"{path}-{end}" in now for end in _ENDS):
            continue
        above, slash, _ = path.rpartition("/")
        names = {unquote(one.rpartition("/")[2]) for one in (*_beside(path, then), *_beside(path, now))}
        database = database_of(unquote(path.rpartition("/")[2]), names)
        if database is not None:
            whole = f"{above}{slash}{quote(database)}"
            found |= {f"{above}{slash}{quote(name)}": whole for name in unit_of(database, names)}
    return found


_ENDS = ("wal", "shm", "journal")


def _beside(path: str, states: dict[str, FileState]) -> list[str]:
    stem = path
    for end in _ENDS:
        stem = stem.removesuffix(f"-{end}")
    return [one for one in (stem, *(f"{stem}-{end}" for end in _ENDS)) if one in states]


def _first_names(
    states: dict[str, FileState], more: Callable[[int], Iterable[str]], told: set[str]
) -> dict[Inode, list[str]]:
    """By inode: the names of files that have several; those that stay as they are first, because the others can be
    made from them."""
    found: dict[Inode, list[str]] = {}
    for path, state in states.items():
        if state.get("nlink", 1) > 1:
            found.setdefault((state["dev"], state["ino"]), []).append(path)
    for (_, ino), paths in found.items():
        paths += [path for path in more(ino) if path not in paths]
        paths.sort(key=lambda path: (path in told, path))
    return found


def _dressed(
    path: str, root: str, state: FileState, names: dict[Inode, list[str]], units: dict[str, str]
) -> FileState:
    more: dict[str, Any] = {}
    if state.get("nlink", 1) > 1:
        twin = next((one for one in names.get((state["dev"], state["ino"]), ()) if one != path), "")
        if twin:
            more["twin"] = resource_in(root, twin)
    if state["type"] != "absent" and not _ownable(state):
        more["owner_lost"] = True
    if path in units and state["type"] != "absent":
        more["unit"] = resource_in(root, units[path])
    return state | more if more else state


def _ownable(state: FileState) -> bool:
    """Whether we could give a new file this owner."""
    return state["type"] == "absent" or may_own(state["uid"], state["gid"])


def _told_hole(one: FileState, other: FileState) -> str:
    if "excluded" in one:
        was = "is gone" if other["type"] == "absent" else "was changed"
        return f"{was} and had not been captured ({one['excluded']})"
    if one["type"] == "absent":
        return f"is new and stays ({other['excluded']})"
    return f"holds something that could not be captured ({other['excluded']})"
