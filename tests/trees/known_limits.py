"""What is not brought over or back exactly, case by case, with the reason. Each is tried: one that works must be taken
off this list, and off docs/limits.

All are about a file with several names of which a command meets some and not all. In a layer they are different files:
the kernel copies one name up and leaves the others alone.
"""

from typing import NamedTuple


class Limit(NamedTuple):
    line: str  # run in a tree with src/one = elsewhere/two = elsewhere/three, one file
    way: str  # "sandboxed" | "in place"
    why: str


LIMITS: dict[str, Limit] = {
    "a name moved": Limit(
        "mv src/one src/renamed", "sandboxed", "under its new name it is a file of its own afterwards"
    ),
    "a name moved over another file": Limit("mv src/one other", "sandboxed", "the same"),
    "replaced by an equal file": Limit(
        "rm src/one && echo same > src/one",
        "sandboxed",
        "the others get its time and stay the same file as it",
    ),
    "written, then removed": Limit(
        "echo x >> src/one; rm src/one", "sandboxed", "the other names do not show what was written"
    ),
    "some names removed": Limit(
        "rm src/one elsewhere/two",
        "sandboxed",
        "undo brings them back as one file, but not that of the third name",
    ),
    "the other names moved": Limit(
        "mv elsewhere src/",
        "sandboxed",
        "undo brings them back as one file, but not that of the name that stayed",
    ),
}
