"""What the kernel tells of changes below a root: a hint where to look, which must be able to say that it lost some."""

from collections.abc import Mapping
from typing import Protocol

from takeback.adapters.watch.authors import Authors

Told = Mapping[str, set[bytes]]  # by quoted path of a directory from the root: names in it


class Feed(Protocol):
    broken: bool  # it will never tell everything again
    crowded: bool  # and that was for what others do on the same filesystem, or may have been
    unsure: set[int]  # inodes of files that got or lost a name, told with none that is below the root

    def drain(self) -> Told | None:
        """What may have changed since the last time; None if something was lost, and only a full look can tell."""
        ...

    def open_book(self) -> Authors | None:
        """A book of who makes the changes that are told from now on; None if the kernel does not tell who."""
        ...

    def close_book(self, book: Authors) -> None: ...

    def close(self) -> None: ...
