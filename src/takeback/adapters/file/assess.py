"""Assess a change: the targets, what could not be restored, and whether it changes anything."""

import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from takeback.adapters.file.build import NOT_HELD, Tools, can_hold
from takeback.adapters.file.content import read_file
from takeback.adapters.file.directory import listing
from takeback.adapters.file.mounts import mounts_below
from takeback.adapters.file.move import is_across
from takeback.adapters.file.os_errors import CannotCapture, mounted, translated
from takeback.adapters.file.paths import Place, open_below, open_place
from takeback.adapters.file.sqlite_files import may_be_database, refuse_in_use
from takeback.adapters.file.stage import WantedFile, demand_readable, wanted_files
from takeback.adapters.file.states import TYPES
from takeback.adapters.protocol import Assessment
from takeback.errors import Drifted, Misuse, NoRemedy, ResourceUnreachable
from takeback.model.change import Change
from takeback.model.remedy import Offer, Strategy
from takeback.model.resource import display, file_resource, path_of, quote


class Survey(NamedTuple):
    bytes: int = 0
    lost: tuple[str, ...] = ()
    residue: str = ""


def assess_change(change: Change, tools: Tools) -> Assessment:
    kind: dict[str, Callable[[Change, Tools], Assessment]] = {
        "write": _write,
        "write_all": _write,
        "delete": _delete,
        "move": _move,
        "mkdir": _mkdir,
        "symlink": _symlink,
        "chmod": _chmod,
    }
    if change.kind not in kind:
        raise Misuse(
            f"Files know no change of kind {change.kind!r}.", hint="See the reference of file changes."
        )
    with translated(change.resource):
        return kind[change.kind](change, tools)


def _assessment(
    resources: tuple[str, ...], surveys: list[Survey], nothing: bool = False, why: str = ""
) -> Assessment:
    residue = "; ".join(dict.fromkeys(survey.residue for survey in surveys if survey.residue))
    lost = tuple(each for survey in surveys for each in survey.lost)
    offer = Offer(
        Strategy.SNAPSHOT,
        cost=sum(survey.bytes for survey in surveys),
        exact=not residue and not lost,
        residue=residue,
        why=why or "the earlier state is kept in the store",
    )
    return Assessment(resources, (offer,), nothing, lost)


def place_of(resource: str) -> Place:
    """For a change: the directory must be there."""
    with translated(resource):
        try:
            return open_place(resource)
        except FileNotFoundError:
            raise Misuse(
                f"The directory of {display(resource)} does not exist.",
                hint="Make it first, or check the path.",
            ) from None


def _write(change: Change, tools: Tools) -> Assessment:
    files = wanted_files(change)
    if len({wanted.resource for wanted in files}) < len(files):
        raise Misuse("A file is named twice in one write.", hint="Name each file once.")
    surveys: list[Survey] = []
    nothing = True
    for wanted in files:
        with translated(wanted.resource), place_of(wanted.resource) as place:
            status = place.stat()
            _demand_writable(place, status)
            surveys.append(survey(place, status, tools) if status else Survey())
            if nothing and not (status and _is_there(place, status, wanted)):
                nothing = False
            if status:
                _must_be_a_file(wanted.resource, status)
                if wanted.mode is None:
                    demand_readable(wanted.resource, stat.S_IMODE(status.st_mode))
    return _assessment(tuple(wanted.resource for wanted in files), surveys, nothing)


def _must_be_a_file(resource: str, status: os.stat_result) -> None:
    kind = TYPES[stat.S_IFMT(status.st_mode)]
    if kind == "symlink":
        raise Drifted(
            f"{display(resource)} is now a symbolic link.", hint="Name the path again to follow it."
        )
    if kind == "dir":
        raise Misuse(f"{display(resource)} is a directory.", hint="Name a file inside it.")
    if kind != "file":
        raise Misuse(
            f"{display(resource)} is not a regular file.", hint="FIFOs, sockets and devices are not written."
        )


def _is_there(place: Place, status: os.stat_result, wanted: WantedFile) -> bool:
    if not stat.S_ISREG(status.st_mode) or wanted.mode not in (None, stat.S_IMODE(status.st_mode)):
        return False
    if wanted.size is not None and wanted.size != status.st_size:
        return False
    try:
        return read_file(place.fd, place.name, place.resource, None)["digest"] == wanted.digest
    except CannotCapture:
        return False


def survey(place: Place, status: os.stat_result, tools: Tools) -> Survey:
    """By looking at sizes and permissions, without reading contents."""
    if stat.S_ISDIR(status.st_mode):
        return _survey_directory(place, tools)
    if not stat.S_ISREG(status.st_mode):
        return Survey(lost=_not_ours(place, status))
    _refuse_open_database(place, status)
    lost = list(_not_ours(place, status))
    if tools.limit and status.st_size > tools.limit:
        lost.append(
            f"{display(place.resource)}: its {status.st_size:,} bytes are over the limit of {tools.limit:,}"
        )
    if not _readable(place, os.R_OK):
        lost.append(f"{display(place.resource)}: it is not readable")
    residue = ""
    if status.st_nlink > 1 and not can_hold(tools, place):
        residue = NOT_HELD.format(name=display(place.resource))
    return Survey(status.st_size, tuple(lost), residue)


def _refuse_open_database(place: Place, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode) and may_be_database(place.resource, status.st_size):
        refuse_in_use((place.resource,))


def _readable(place: Place, how: int) -> bool:
    """A file that has vanished is not called unreadable, because no option could allow that."""
    if os.access(place.name, how, dir_fd=place.fd, effective_ids=True):
        return True
    if place.stat() is None:
        raise Drifted(
            f"{display(place.resource)} was removed while it was looked at.",
            hint="Nothing was changed. Look again, then decide.",
        )
    return False


def _not_ours(place: Place, status: os.stat_result) -> tuple[str, ...]:
    if may_own(status.st_uid, status.st_gid):
        return ()
    return (f"{display(place.resource)}: its owner cannot be restored without being root",)


def may_own(uid: int, gid: int) -> bool:
    """Whether we could give a new file this owner."""
    me = os.geteuid()
    return me == 0 or (uid == me and (gid == os.getegid() or gid in os.getgroups()))


def _survey_directory(place: Place, tools: Tools) -> Survey:
    if points := mounts_below(place.resource):
        raise mounted(file_resource(points[0]))
    if not _readable(place, os.R_OK | os.X_OK):
        raise NoRemedy(f"{display(place.resource)} is not readable.", hint="Check its mode and owner.")
    root = open_below(place.fd, place.name, os.O_RDONLY | os.O_DIRECTORY, cross_mounts=False)
    total, lost, checks = 0, list[str](), os.geteuid() != 0
    hidden: list[CannotCapture] = []
    databases: list[str] = []
    try:
        for fd, path, entries in listing(root, place.resource, hidden.append):
            if checks and entries and not os.access(".", os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True):
                raise _not_ours_to_empty(f"{place.resource}/{path}".rstrip("/"))
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                name = f"{place.resource}/{path}/" if path else f"{place.resource}/"
                regular = stat.S_ISREG(status.st_mode)
                total += status.st_size if regular else 0
                if regular and may_be_database(entry.name, status.st_size):
                    databases.append(name + quote(os.fsencode(entry.name)))
                if tools.limit and regular and status.st_size > tools.limit:
                    lost.append(
                        f"{display(name)}{entry.name}: its {status.st_size:,} bytes are over the limit"
                    )
                if checks and not may_own(status.st_uid, status.st_gid):
                    lost.append(
                        f"{display(name)}{entry.name}: its owner cannot be restored without being root"
                    )
                if checks and regular and not os.access(entry.name, os.R_OK, dir_fd=fd, effective_ids=True):
                    lost.append(f"{display(name + quote(os.fsencode(entry.name)))}: it is not readable")
    finally:
        os.close(root)
    refuse_in_use(databases)
    if hidden:
        raise _not_ours_to_empty(hidden[0].resource)
    if tools.limit and total > tools.limit:
        lost.append(f"{display(place.resource)}: its {total:,} bytes are over the limit of {tools.limit:,}")
    return Survey(total, tuple(lost))


def _not_ours_to_empty(resource: str) -> ResourceUnreachable:
    """Found before anything is removed: half a removal would have to be put back, without what was not captured."""
    return ResourceUnreachable(
        f"{display(resource)} cannot be emptied: its mode or owner forbids it.",
        hint="Nothing was changed. Give yourself the right first: `chmod u+rwx` on it.",
    )


def _demand_writable(place: Place, status: os.stat_result | None) -> None:
    """Checked before everything else, so that no one accepts a loss for a change that is refused anyway."""
    me = os.geteuid()
    if me == 0 or os.fstatvfs(place.fd).f_flag & os.ST_RDONLY:  # the system has better words for that
        return
    around = os.fstat(place.fd)
    may = os.access(".", os.W_OK | os.X_OK, dir_fd=place.fd, effective_ids=True)
    if may and not (status and around.st_mode & stat.S_ISVTX and me not in (status.st_uid, around.st_uid)):
        return
    directory = display(file_resource(os.path.dirname(path_of(place.resource)) or b"/"))
    raise ResourceUnreachable(
        f"Permission to change {display(place.resource)} was denied: the mode or owner of {directory} forbids it.",
        hint="Nothing was changed. Give yourself the right first, or ask its owner.",
    )


def _existing(place: Place) -> os.stat_result:
    status = place.stat()
    if status is None:
        raise Misuse(f"{display(place.resource)} does not exist.", hint="Check the path.")
    return status


def _delete(change: Change, tools: Tools) -> Assessment:
    with place_of(change.resource) as place:
        status = _existing(place)
        _demand_writable(place, status)
        return _assessment((change.resource,), [survey(place, status, tools)])


def _move(change: Change, tools: Tools) -> Assessment:
    goal: str = change.args["to"]
    source, name = display(change.resource), display(goal)
    if goal == change.resource:
        with place_of(goal) as place:
            _existing(place)
        return _assessment((goal,), [], nothing=True)
    if path_of(goal).startswith(path_of(change.resource) + b"/"):
        raise Misuse(f"{source} cannot be moved into itself.", hint="Choose a place outside it.")
    with place_of(change.resource) as old, translated(goal), place_of(goal) as new:
        status = _existing(old)
        there = new.stat()
        _demand_writable(old, status)
        _demand_writable(new, there)
        if there and (there.st_dev, there.st_ino) == (status.st_dev, status.st_ino):
            raise Misuse(f"{source} and {name} are the same file.", hint="Delete one of the names instead.")
        if there and not change.args.get("replace"):
            raise Misuse(f"{name} exists already.", hint="Replace it with -f, or choose another name.")
        # A directory brings along what is open in it; a database by itself would leave its write-ahead log behind.
        _refuse_open_database(old, status)
        surveys = [survey(new, there, tools)] if there else []
        why = "a move is taken back by a move"
        if is_across(old, new):
            surveys.append(_survey_whole(old, status, tools))
            why = "it is copied to the other filesystem, and kept in the store"
        return _assessment((change.resource, goal), surveys, why=why)


def _survey_whole(place: Place, status: os.stat_result, tools: Tools) -> Survey:
    """A copy that leaves something out would lose it, so that cannot be allowed."""
    surveyed = survey(place, status, tools)
    if surveyed.lost:
        raise NoRemedy(
            f"{display(place.resource)} cannot be copied whole to another filesystem: {'; '.join(surveyed.lost)}.",
            hint="Nothing was changed. Move it within its filesystem, or without what is named.",
        )
    return surveyed


def _mkdir(change: Change, tools: Tools) -> Assessment:
    top, status = topmost_missing(change.resource, bool(change.args.get("parents")))
    if status is not None:
        if stat.S_ISDIR(status.st_mode) and change.args.get("parents"):
            return _assessment((change.resource,), [], nothing=True)
        raise Misuse(f"{display(change.resource)} exists already.", hint="Choose another name.")
    return _assessment((top,), [])


def topmost_missing(resource: str, parents: bool) -> tuple[str, os.stat_result | None]:
    """The outermost directory that has to be made, or what is already at the resource."""
    top = resource
    while True:
        try:
            with open_place(top) as place:
                return top, place.stat()
        except FileNotFoundError:
            if not parents:
                raise Misuse(
                    f"The directory of {display(resource)} does not exist.",
                    hint="Make it first, or ask for parents.",
                ) from None
            top = file_resource(path_of(top).rpartition(b"/")[0])


def _symlink(change: Change, tools: Tools) -> Assessment:
    with place_of(change.resource) as place:
        if place.stat() is not None:
            raise Misuse(
                f"{display(change.resource)} exists already.", hint="Delete it first, or choose another name."
            )
    return _assessment((change.resource,), [])


def _chmod(change: Change, tools: Tools) -> Assessment:
    with place_of(change.resource) as place:
        status = _existing(place)
        if stat.S_ISLNK(status.st_mode):
            raise Drifted(f"{display(change.resource)} is now a symbolic link.", hint="Name the path again.")
        nothing = stat.S_IMODE(status.st_mode) == change.args["mode"]
    return _assessment((change.resource,), [], nothing, why="the earlier mode is written in the journal")
