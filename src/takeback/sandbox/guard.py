"""What the command may not do even as root: change mounts, load modules, look into other processes, touch disks."""

import errno
import os

from takeback.sandbox import landlock
from takeback.sandbox.calls import PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, PR_CAPBSET_DROP, kernel

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
    """The capabilities that a command may have."""
    return _permitted() & KEPT


def lock_up(stdio: tuple[int, int, int], capabilities: int) -> None:
    """From here on there is no way to mount anything, for us neither."""
    landlock.restrict(stdio)
    kernel().prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    kernel().keep_capabilities(capabilities)


def _permitted() -> int:
    with open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"CapPrm:"):
                return int(line.split()[1], 16)
    return 0


def is_privileged() -> bool:
    """CAP_SYS_ADMIN, not the number of the user: a root without it cannot mount. Nor is it enough to be root in a
    user namespace, where the attributes that overlayfs needs are not to be had."""
    if os.geteuid() != 0 or not _permitted() >> 21 & 1:
        return False
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return file.read().split() == ["0", "0", "4294967295"]
