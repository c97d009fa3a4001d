"""Which feed this machine and this user can have."""

import os

from takeback.adapters.watch.feed import Feed
from takeback.adapters.watch.roots import Root

# Where everything that changes a file goes through this kernel, and it tells. Not so over a network; and what is
# mounted over others (overlay) reports only part of it.
_HONEST = (b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs", b"tmpfs", b"f2fs", b"bcachefs")


def open_feed(root: Root, again: bool, crowded: bool = False) -> Feed | None:
    """None: there is none, and every look is at the whole tree. `again`: it pays to arm one that is dear to arm.
    `crowded`: what is told of the whole filesystem was too much the last time."""
    if _filesystem_of(root.path) not in _HONEST:
        return None
    if os.geteuid() == 0 and not crowded:
        from takeback.adapters.watch.fanotify import Fanotify

        try:
            return Fanotify(root.path)
        except OSError:
            pass  # a container, or a filesystem without handles
    if again:
        from takeback.adapters.watch.inotify import Inotify

        try:
            return Inotify(root.path)
        except OSError:
            return None  # more directories than a user may watch
    return None


def _filesystem_of(path: bytes) -> bytes:
    """As the kernel's list of mounts names it; the last line that fits is the one on top."""
    kind, longest = b"", -1
    try:
        with open("/proc/self/mountinfo", "rb") as table:
            for line in table:
                fields, _, rest = line.partition(b" - ")
                point = fields.split(b" ")[4].decode("unicode_escape").encode("latin-1").rstrip(b"/")
                if (path == point or path.startswith(point + b"/")) and len(point) >= longest:
                    kind, longest = rest.split(b" ")[0], len(point)
    except OSError:
        return b""
    return kind
