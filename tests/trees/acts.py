"""Carry out a list of filesystem operations and say how each ended. A program of its own: `python acts.py list.json`.

Plain os calls, no imports but these, so that it starts quickly; what fails is told by its errno and the next one is
tried, as a shell script would.
"""

import errno
import json
import os
import sys

Act = list  # ["name", argument, …]; paths are strings with surrogateescape


def create(path, content, mode):
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    os.write(handle, content.encode())
    os.close(handle)


def overwrite(path, content):
    handle = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK)
    os.write(handle, content.encode())
    os.close(handle)


def write_at(path, position, content):
    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.pwrite(handle, content.encode(), position)
    os.close(handle)


def truncate(path, size):
    if not os.path.isfile(path):  # a FIFO would wait for a reader
        raise OSError(errno.EINVAL, "not a file")
    os.truncate(path, size)


def replace_by_copy(path, other):
    """As an editor saves: a new file beside, then a rename."""
    if not os.path.isfile(path):
        raise OSError(errno.EINVAL, "not a file")
    with open(path, "rb") as file:
        content = file.read(100_000)
    handle = os.open(other, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
    os.write(handle, content + b"saved\n")
    os.close(handle)
    os.rename(other, path)


def remove_tree(path):
    if os.path.islink(path) or not os.path.isdir(path):
        os.unlink(path)
        return
    for name in sorted(os.listdir(path)):
        remove_tree(os.path.join(path, name))
    os.rmdir(path)


def exchange(one, other):
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2):
        raise OSError(ctypes.get_errno(), "exchange")


def link(one, other):
    if os.path.islink(one) or not os.path.isfile(
        one
    ):  # several names of a symbolic link or FIFO are not promised
        raise OSError(errno.EINVAL, "not a file")
    os.link(one, other, follow_symlinks=False)


def recreate(path):
    """A directory removed and made again: what was in it must not shine through."""
    remove_tree(path)
    os.mkdir(path)


def set_time(path, when):
    os.utime(path, ns=(when, when), follow_symlinks=False)


def change_owner(path, uid, gid):
    os.chown(path, uid, gid, follow_symlinks=False)


def set_attribute(path, name, value):
    os.setxattr(path, name, value.encode())


ACTS = {
    "create": create,
    "overwrite": overwrite,
    "write_at": write_at,
    "truncate": truncate,
    "replace_by_copy": replace_by_copy,
    "unlink": os.unlink,
    "mkdir": os.mkdir,
    "rmdir": os.rmdir,
    "rename": os.rename,
    "exchange": exchange,
    "link": link,
    "symlink": os.symlink,
    "mkfifo": os.mkfifo,
    "remove_tree": remove_tree,
    "recreate": recreate,
    "chmod": os.chmod,
    "chown": change_owner,
    "utime": set_time,
    "setxattr": set_attribute,
    "removexattr": os.removexattr,
    "chdir": os.chdir,
}


def carry_out(acts: list) -> None:
    os.umask(0o022)
    for name, *arguments in acts:
        try:
            ACTS[name](*arguments)
            sys.stdout.write(f"{name} ok\n")
        except OSError as error:
            sys.stdout.write(f"{name} {errno.errorcode.get(error.errno, error.errno)}\n")


if __name__ == "__main__":
    carry_out(json.loads(sys.argv[1]))
