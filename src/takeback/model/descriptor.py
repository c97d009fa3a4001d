"""An open file as its number: closed with the block that uses it, read and written in one go."""

import os


class Descriptor(int):
    """`with Descriptor(os.open(…)) as fd:`"""

    __slots__ = ()

    def __enter__(self) -> int:
        return self

    def __exit__(self, *raised: object) -> None:
        os.close(self)


def write_once(path: str, text: str) -> None:
    """By one call, as the files of the kernel want it."""
    with Descriptor(os.open(path, os.O_WRONLY | os.O_CLOEXEC)) as fd:
        os.write(fd, text.encode())


def read_exactly(fd: int, length: int, offset: int) -> bytes:
    """Up to `length` bytes from `offset`; fewer only where the file ends. Plain OSError."""
    parts: list[bytes] = []
    while length > 0:
        part = os.pread(fd, length, offset)
        if not part:
            break
        parts.append(part)
        length -= len(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
