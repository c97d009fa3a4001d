"""Privileges: the user namespace, the capabilities that are given up, and Landlock as a second wall."""

import errno
import os
import signal
import stat
import struct
from contextlib import suppress
from functools import cache

from takeback.model.descriptor import Descriptor, write_once
from takeback.sandbox.calls import (
    LANDLOCK_ADD,
    LANDLOCK_CREATE,
    LANDLOCK_RESTRICT,
    NEWUSER,
    PR_CAP_AMBIENT,
    PR_CAP_AMBIENT_CLEAR_ALL,
    PR_CAPBSET_DROP,
    kernel,
)

_ENOUGH = 2  # before that, renames between directories were always refused
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
# remove and make anything, and move it to another directory
_CHANGES = sum(1 << bit for bit in range(4, 14))


@cache
def version() -> int:
    """0 where the kernel has none or it is switched off."""
    try:
        return kernel().call(LANDLOCK_CREATE, None, 0, 1)
    except OSError:
        return 0


def restrict(stdio: tuple[int, int, int]) -> bool:
    abi = version()
    if abi < _ENOUGH:
        return False
    rights = _WRITE_FILE | _CHANGES | (_TRUNCATE if abi >= 3 else 0)
    made = struct.pack("=Q", rights)
    with Descriptor(kernel().call(LANDLOCK_CREATE, made, len(made), 0)) as ruleset:
        with Descriptor(os.open("/", os.O_PATH | os.O_CLOEXEC)) as root:
            _allow(ruleset, root, rights)
        for fd in stdio:
            kind = os.fstat(fd).st_mode
            # `echo > /dev/stderr` opens again what the caller gave us.
            if stat.S_ISREG(kind) or stat.S_ISCHR(kind):
                _allow_file(ruleset, fd, rights & (_WRITE_FILE | _TRUNCATE))
        kernel().call(LANDLOCK_RESTRICT, ruleset, 0)
    return True


def _allow_file(ruleset: int, fd: int, rights: int) -> None:
    try:
        _allow(ruleset, fd, rights)
    except OSError as error:
        if error.errno != errno.EBADFD:
            raise
        # A file without a name (memfd): there is no rule for it, and it needs none.


def _allow(ruleset: int, fd: int, rights: int) -> None:
    rule = struct.pack("=Qi", rights, fd)
    kernel().call(LANDLOCK_ADD, ruleset, 1, rule, 0)


# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod,
# audit_write, setfcap: what containers usually have. Devices made with mknod cannot be opened: overlays are nodev.
KEPT = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31))
_HIGHEST = 63


def give_up_for_children() -> None:
    """No program that is started from here on can get what is not kept, whatever its owner and mode; we keep it."""
    for number in range(_HIGHEST + 1):
        if not KEPT >> number & 1:
            try:
                kernel().prctl(PR_CAPBSET_DROP, number)
            except OSError as error:
                if error.errno == errno.EINVAL:
                    break  # the kernel knows no more of them
                raise


def allowed() -> int:
    return _permitted() & KEPT


def lock_up(stdio: tuple[int, int, int], capabilities: int) -> None:
    """From here on there is no way to mount anything, for us neither."""
    restrict(stdio)
    kernel().prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    kernel().keep_capabilities(capabilities)


def of_status(name: bytes) -> bytes:
    """A field of /proc/self/status; empty if it is missing."""
    with open("/proc/self/status", "rb") as status:
        return next((line.split()[1] for line in status if line.startswith(name)), b"")


def _permitted() -> int:
    return int(of_status(b"CapPrm:") or b"0", 16)


def is_privileged() -> bool:
    """CAP_SYS_ADMIN, not the number of the user: a root without it cannot mount. Nor is it enough to be root in a
    user namespace, where the attributes that overlayfs needs are not to be had."""
    if os.geteuid() != 0 or not _permitted() >> 21 & 1:
        return False
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return file.read().split() == ["0", "0", "4294967295"]


def enter_as_oneself() -> None:
    """Inside, the caller keeps its own id, and all other ids are unmapped."""
    uid, gid = os.geteuid(), os.getegid()
    kernel().unshare(NEWUSER)
    _map_one(uid, uid, gid, gid)


def enter_as_root() -> None:
    """For a root filesystem of one's own: its root is oneself, its other users come from /etc/subuid if it has any."""
    uid, gid = os.geteuid(), os.getegid()
    ranges = _range("/etc/subuid", uid), _range("/etc/subgid", uid)
    if all(ranges) and _enter_with_ranges(uid, gid, ranges):
        return
    with open("/proc/self/uid_map", encoding="ascii") as file:
        inside_already = not file.read()  # no process has a map yet
    if not inside_already:
        kernel().unshare(NEWUSER)
    _map_one(0, uid, 0, gid)


def _map_one(uid: int, outer_uid: int, gid: int, outer_gid: int) -> None:
    write_once("/proc/self/setgroups", "deny")
    write_once("/proc/self/uid_map", f"{uid} {outer_uid} 1")
    write_once("/proc/self/gid_map", f"{gid} {outer_gid} 1")


def _range(path: str, uid: int) -> tuple[int, int]:
    """First number and how many; (0, 0) none."""
    import pwd

    try:
        names = {str(uid), pwd.getpwuid(uid).pw_name}
    except KeyError:
        names = {str(uid)}
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            fields = line.strip().split(":")
            if len(fields) == 3 and fields[0] in names and fields[1].isdigit() and fields[2].isdigit():
                return int(fields[1]), int(fields[2])
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
