"""`doctor`: is this machine able?"""

import errno
import os
import stat
import sys
from collections.abc import Iterator
from typing import NamedTuple

import takeback.api
from takeback.errors import Failed, TakebackError
from takeback.frontends.cli.command import Asked, Command, Does
from takeback.frontends.cli.output.errors import as_field, told_trouble
from takeback.frontends.cli.output.screen import clean, counted, from_here, here
from takeback.frontends.cli.session.store import nothing_yet, own_directory, store_path
from takeback.model.ids import short
from takeback.model.words import install_hint
from takeback.storage.sqlite.store import Store, exists, is_remote, local_path, refuse_unfit

GOOD, WEAK, BAD = "good", "weak", "bad"
_OLDEST_SQLITE = (3, 37, 0)  # STRICT tables


class Finding(NamedTuple):
    name: str
    level: str  # good · weak: works, with less · bad: takeback cannot do its part
    detail: str
    hint: str = ""


def examine(path: str, here: str) -> Iterator[Finding]:
    """The machine, the filesystems of the store and of the directory one works in, and what protects the store."""
    yield Finding("python", GOOD, sys.version.split()[0])
    yield _kernel()
    yield _openat2()
    yield _sqlite()
    yield _zstd()
    yield _git()
    yield from _configuration_formats()
    from takeback.sandbox.ability import nearest

    whole = os.path.abspath(local_path(path))
    yield _store(path, whole)
    yield from _filesystem("store", nearest(whole))
    if here:
        yield from _filesystem("here", here)
    yield from _sandbox(nearest(whole))
    yield _protection()
    yield _approvals(whole)


def _approvals(store: str) -> Finding:
    """Whether a yes can be proven to be a person's: agents usually work as the owner of the store."""
    from takeback.storage.people_files import people_here

    try:
        people = people_here()
    except TakebackError as error:
        return Finding("approvals", BAD, str(error), error.hint or "Correct the file.")
    try:
        agent = os.stat(store).st_uid
    except OSError:
        agent = os.geteuid()
    keyed = [one.name for one in people.approvers if one.key and agent != 0 and one.owner not in (-1, agent)]
    if keyed:
        named = f"{', '.join(keyed)} can prove an approval with a key"
        must = "; every approval must be proven" if people.proven else ""
        return Finding("approvals", GOOD, f"{named}{must}")
    return Finding(
        "approvals",
        WEAK,
        f"not proven: an approval by uid {agent}, the user of agents, could come from an agent",
        "`takeback approver new NAME` makes a key for a person; docs/guides/approvals-for-a-team.md.",
    )


def at_work(store: Store) -> Iterator[Finding]:
    """Who holds a run now."""
    from takeback.storage.owners import alive

    for info in store.journal.runs(unfinished=True):
        lease = store.leases.holder(info.id)
        if lease and lease.owner.pid and alive(lease.owner) is not False:
            yield Finding(
                "at work", GOOD, f"process {lease.owner.pid} holds run {short(info.id)} ({info.name})"
            )


def stopped(store: Store) -> Iterator[Finding]:
    from takeback.engine.stop import in_words, stops, way_out

    for stop in stops(store.journal):
        yield Finding("stopped", WEAK, clean(in_words(stop)), way_out(stop))


def _kernel() -> Finding:
    machine = os.uname()
    if machine.sysname != "Linux":
        return Finding(
            "kernel", BAD, f"{machine.sysname} is not Linux", "takeback works on Linux only for now."
        )
    return Finding("kernel", GOOD, f"{machine.sysname} {machine.release} {machine.machine}")


def _openat2() -> Finding:
    from takeback.adapters.file.kernel import RESOLVE_NO_SYMLINKS, libc

    try:
        os.close(libc().openat2(-100, b"/", os.O_PATH | os.O_DIRECTORY, RESOLVE_NO_SYMLINKS))
    except OSError as error:
        slower = f"{os.strerror(error.errno or 0)}: paths are walked one by one, as safe and slower"
        return Finding("openat2", WEAK, slower)
    return Finding("openat2", GOOD, "paths are opened without following links, in one step")


def _sqlite() -> Finding:
    import sqlite3

    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        oldest = ".".join(map(str, _OLDEST_SQLITE))
        return Finding(
            "sqlite", BAD, f"{version} is older than {oldest}", "Use a Python with a newer SQLite."
        )
    return Finding("sqlite", GOOD, version)


def _installed(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _zstd() -> Finding:
    if sys.version_info >= (3, 14):
        return Finding("zstd", GOOD, "in the standard library")
    if not _installed("backports.zstd"):
        return Finding(
            "zstd", BAD, "backports.zstd is not installed", "Install takeback with its dependencies."
        )
    return Finding("zstd", GOOD, "backports.zstd")


def _git() -> Finding:
    from shutil import which

    found = which("git")
    if not found:
        return Finding(
            "git", WEAK, "not found: `undo --merge` will refuse, everything else works", "Install git."
        )
    return Finding("git", GOOD, f"{found}: for `undo --merge`; your repositories are never touched")


def _configuration_formats() -> Iterator[Finding]:
    for name, module in (("yaml", "ruamel.yaml"), ("toml", "tomlkit")):
        if _installed(module):
            yield Finding(name, GOOD, f"{module}: keys can be edited")
        else:
            lacks = f"{module} is not installed: no `edit` of {name.upper()}"
            yield Finding(name, WEAK, lacks, install_hint("config"))


def _store(address: str, path: str) -> Finding:
    """Of a remote one whether it answers; what only this machine has of it is looked at like a store on disk."""
    from takeback.model.database import without_password

    shown = without_password(address) if is_remote(address) else path
    try:
        if not exists(address):
            refuse_unfit(path)
            return Finding("store", GOOD, f"{shown}: not there yet, made with the first change")
    except TakebackError as error:
        return Finding("store", BAD, str(error), error.hint)
    return Finding("store", GOOD, shown) if is_remote(address) else _directory(path)


def _directory(path: str) -> Finding:
    try:
        status = os.lstat(path)
    except OSError as error:
        return Finding(
            "store", BAD, f"{path}: {os.strerror(error.errno or 0)}", "Check the path and your rights."
        )
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return Finding("store", BAD, f"{path} is a symbolic link", "Give the real path with --store.")
    if status.st_uid != os.geteuid():
        return Finding("store", BAD, f"{path} belongs to uid {status.st_uid}", "Use a store of your own.")
    if mode & 0o077:
        return Finding("store", BAD, f"{path} is open to others (mode {mode:04o})", f"chmod 700 {path}")
    if os.path.lexists(os.path.join(path, "SUSPECT")):
        return Finding("store", BAD, f"{path}: its disk failed earlier", "Run `takeback verify --read-data`.")
    if not os.access(path, os.W_OK):
        return Finding(
            "store", WEAK, f"{path} is read-only: looking works, changes are refused", "Make it writable."
        )
    return Finding("store", GOOD, f"{path}, mode {mode:04o}, yours alone")


def _filesystem(name: str, directory: str) -> Iterator[Finding]:
    space = os.statvfs(directory)
    free = space.f_bavail * space.f_frsize
    level = GOOD if free > 64 << 20 else WEAK
    told = f"{directory}: {free / (1 << 30):.1f} GB free"
    if space.f_files and space.f_favail < 1000:
        level, told = WEAK, f"{told}, only {space.f_favail} inodes left"
    yield Finding(
        f"{name}: disk", level, told, "" if level is GOOD else "Free some space; changes may be refused."
    )
    if not os.access(directory, os.W_OK | os.X_OK):
        yield Finding(
            f"{name}: rights", WEAK, f"{directory} cannot be written by you", "Nothing can be changed there."
        )
        return
    yield from _nameless_files(name, directory)
    yield _exchange(name, directory)


def _nameless_files(name: str, directory: str) -> Iterator[Finding]:
    """O_TMPFILE, and whether attributes can be kept on such a file."""
    try:
        fd = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        instead = f"{os.strerror(error.errno or 0)}: new content is staged under a scratch name instead"
        yield Finding(f"{name}: O_TMPFILE", WEAK, instead)
        return
    try:
        yield Finding(f"{name}: O_TMPFILE", GOOD, "yes: a killed write leaves nothing behind")
        try:
            os.setxattr(fd, "user.takeback", b"1")
        except OSError as error:
            lacks = f"{os.strerror(error.errno or 0)}: there are no user attributes to bring back here"
            yield Finding(f"{name}: attributes", WEAK, lacks)
        else:
            yield Finding(f"{name}: attributes", GOOD, "user attributes are brought back")
    finally:
        os.close(fd)


def _exchange(name: str, directory: str) -> Finding:
    """In a scratch directory that is gone afterwards; the directory gets its time back."""
    before = os.stat(directory)
    scratch = os.path.join(os.fsencode(directory), b".takeback-doctor-%d" % os.getpid())
    try:
        os.mkdir(scratch, 0o700)
        works = _try_exchange(scratch)
        os.utime(directory, ns=(before.st_atime_ns, before.st_mtime_ns))
    except OSError as error:
        return Finding(
            f"{name}: RENAME_EXCHANGE", WEAK, f"could not be tried: {os.strerror(error.errno or errno.EIO)}"
        )
    if works:
        return Finding(f"{name}: RENAME_EXCHANGE", GOOD, "yes: a change in the last moment is noticed")
    return Finding(f"{name}: RENAME_EXCHANGE", WEAK, "no: a change in the last microsecond is not noticed")


def _try_exchange(scratch: bytes) -> bool:
    from takeback.adapters.file.kernel import exchange

    fd = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    names = (b"one", b"other")
    try:
        for name in names:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=fd))
        return exchange(fd, names[0], fd, names[1])
    finally:
        for name in names:
            try:
                os.unlink(name, dir_fd=fd)
            except FileNotFoundError:
                continue
        os.close(fd)
        os.rmdir(scratch)


def _sandbox(place: str) -> Iterator[Finding]:
    """Whether `run` and `shell` can keep a command's doing apart from the world, tried with a real one."""
    from takeback.sandbox.ability import ability

    able = ability(place, fresh=True)
    if not able.engine:
        hint = "`takeback run` then works in place: it watches, and covers the roots only."
        yield Finding("sandbox", WEAK, f"none: {able.why}", hint)
        return
    who = "as root, over every filesystem" if able.engine == "root" else "in a user namespace"
    count = len(able.not_covered)
    covered = f"; {count} place{' is' if count == 1 else 's are'} not covered" if count else ""
    yield Finding("sandbox", GOOD, f"commands run in a layer of their own {who}{covered}")
    if able.landlock:
        told = f"version {able.landlock}: a command inside cannot write to the store or mount over it"
        yield Finding("landlock", GOOD, told)
    else:
        yield Finding("landlock", WEAK, "not in this kernel: inside, the store is covered by a mount only")
    if not able.cgroups:
        told = "no cgroups to use: a memory limit holds for each process, not for all together"
        yield Finding("limits", WEAK, told)


def _protection() -> Finding:
    told = "same user: an agent that runs as you can delete the store; other users cannot read it"
    hint = "Run agents as another user, or keep a copy of the store elsewhere."
    if os.geteuid() == 0:
        told = "you are root: whatever runs as you can change or delete the store"
        hint = "Run agents as a user of their own."
    return Finding("protection", WEAK, told, hint)


_STYLES = {GOOD: "green", WEAK: "yellow", BAD: "red"}


def _doctor(asked: Asked) -> int:
    screen = asked.screen
    findings = [*examine(store_path(asked), here().directory), *_inside(asked), *_hooks(asked)]
    bad = [one for one in findings if one.level == BAD]
    errors: list[TakebackError] = []
    if bad:
        hint = bad[0].hint or "`takeback doctor` shows what was found."
        fix = f"{counted(len(bad), 'thing')} must be fixed: {bad[0].name}: {bad[0].detail.rstrip('.')}."
        errors.append(Failed(fix, hint=hint))
    answer = {"able": not bad, "findings": [one._asdict() for one in findings]}
    screen.give(answer | as_field(screen, errors))
    width = max(len(one.name) for one in findings)
    for one in findings:
        screen.say(
            f"{screen.paint(f'{one.level:<4}', _STYLES[one.level])}  {one.name:<{width}}  {from_here(one.detail)}"
        )
        if one.hint and one.level != GOOD:
            screen.hint(clean(one.hint))
    weak = sum(1 for one in findings if one.level == WEAK)
    if not bad:
        screen.say(f"Ready, with {counted(weak, 'warning')}." if weak else "Ready.")
    return told_trouble(screen, errors)


def _inside(asked: Asked) -> list[Finding]:
    """What only the opened store can tell; nothing is recovered or made here."""
    try:
        if nothing_yet(asked):
            return []
        with takeback.api.open(store_path(asked), recover=False) as tb:
            return [*at_work(tb.store), *stopped(tb.store), *_remedies(tb)]
    except TakebackError as error:  # that it does not open is a finding, not the end of the examination
        return [Finding("store opens", BAD, str(error), error.hint)]


def _remedies(tb: takeback.api.Takeback) -> Iterator[Finding]:
    """What rehearsals found."""
    from takeback.audit.rehearsals import proven, unfit

    if found := unfit(tb.store.journal):
        first = found[0]
        yield Finding(
            "ways back",
            WEAK,
            f"{counted(len(found), 'way')} back failed when last tried; {short(first.effect.id)}: {first.why}",
            "`takeback rehearse --status` lists them.",
        )
    elif kinds := proven(tb.store.journal):
        yield Finding("ways back", GOOD, f"{counted(len(kinds), 'kind')} proven by a rehearsal")


def _hooks(asked: Asked) -> Iterator[Finding]:
    """Of the coding agents: what was proven of their hooks, and what keeps these from running. No agent is started."""
    from takeback.frontends.agents.hosts import NAMES
    from takeback.frontends.agents.install import further_hooks, settings_of
    from takeback.frontends.agents.obstacles import obstacles, version_of
    from takeback.frontends.agents.plugins import CLAUDE, plugins_in
    from takeback.frontends.cli.session.hook_proof import looked_at, standing

    project = here().directory
    for name in NAMES:
        title, installed = f"{name}: hooks", False
        places = [
            settings_of(name, user, os.environ, project) for user in ((True, False) if project else (True,))
        ]
        for settings in (*places, *further_hooks(name, os.environ, project)):
            hooks, user = looked_at(settings), settings.user
            installed = installed or bool(hooks.found)
            if hooks.found:
                now = standing(
                    own_directory(asked), hooks.settings, hooks.found, version_of(name, os.environ)
                )
                test = f"`takeback hook test {name}{'' if user else ' --project'}` proves them."
                level, said = GOOD if now.proven else WEAK, f"{hooks.settings.file}: {now.detail}"
                yield Finding(title, level, said, test if now.testable else "")
            for problem in [hooks.trouble] if hooks.trouble else hooks.problems:
                yield Finding(title, WEAK, problem, f"`takeback hook status {name}` shows more.")
        for plugin in plugins_in(os.environ, project) if name == CLAUDE else ():
            said = f"{plugin.name}, enabled in {plugin.file}: `takeback hook test` does not test a plugin"
            yield Finding(f"{name}: plugin", WEAK, said)
            installed = True
        for obstacle in obstacles(name, os.environ, project) if installed and project else ():
            yield Finding(title, WEAK, obstacle)


COMMAND = Command(_doctor, does=Does.LOOKS)
