"""A user namespace for those who are not root: the rights to mount, and to nothing of anybody else's."""

import os
import signal

from takeback.sandbox.calls import NEWUSER, kernel


def enter_as_oneself() -> None:
    """Everyone else is nobody; oneself is who one was."""
    uid, gid = os.geteuid(), os.getegid()
    kernel().unshare(NEWUSER)
    _map_one(uid, uid, gid, gid)


def enter_as_root() -> None:
    """For a root filesystem of one's own: its root is oneself, its other users come from /etc/subuid if it has any."""
    uid, gid = os.geteuid(), os.getegid()
    ranges = _range("/etc/subuid", uid), _range("/etc/subgid", uid)
    if all(ranges) and _enter_with_ranges(uid, gid, ranges):
        return
    if not _inside_already():
        kernel().unshare(NEWUSER)
    _map_one(0, uid, 0, gid)


def _map_one(uid: int, outer_uid: int, gid: int, outer_gid: int) -> None:
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {outer_uid} 1")
    _write("/proc/self/gid_map", f"{gid} {outer_gid} 1")


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _inside_already() -> bool:
    """Nobody has a map yet."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return not file.read()


def _range(path: str, uid: int) -> tuple[int, int]:
    """First number and how many; (0, 0) none."""
    import pwd

    try:
        names = {str(uid), pwd.getpwuid(uid).pw_name}
    except KeyError:
        names = {str(uid)}
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                fields = line.strip().split(":")
                if len(fields) == 3 and fields[0] in names and fields[1].isdigit() and fields[2].isdigit():
                    return int(fields[1]), int(fields[2])
    except OSError:
        pass
    return 0, 0


def _enter_with_ranges(uid: int, gid: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    """newuidmap must be called from outside: by a child that stays there."""
    programs = [_program(name) for name in ("newuidmap", "newgidmap")]
    if not all(programs):
        return False
    ready, go = os.pipe2(os.O_CLOEXEC)
    done, tell = os.pipe2(os.O_CLOEXEC)
    me = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(ready, 1)
        maps = zip(programs, (uid, gid), ranges, strict=True)
        worked = all(
            _call([program, str(me), "0", str(own), "1", "1", str(first), str(count)])
            for program, own, (first, count) in maps
        )
        os.write(tell, b"y" if worked else b"n")
        os._exit(0)
    os.close(ready)
    os.close(tell)
    try:
        kernel().unshare(NEWUSER)
        os.close(go)
        worked = os.read(done, 1) == b"y"
    finally:
        os.close(done)
        os.waitpid(child, 0)
    if worked:
        # From here on we are the root of this namespace, and what we make is ours outside.
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    return worked


def _program(name: str) -> str:
    for place in ("/usr/bin", "/bin", "/usr/local/bin"):
        if os.access(f"{place}/{name}", os.X_OK):
            return f"{place}/{name}"
    return ""


def _call(argv: list[str]) -> bool:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    pid = os.posix_spawn(argv[0], argv, {})
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
