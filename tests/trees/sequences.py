"""Random sequences of filesystem operations over a few names, so that they meet one another often."""

from collections.abc import Callable
from random import Random
from typing import Any

Act = list[Any]

NAMES = ("a", "b", "c", "src", "data", "x y", "caf\udce9", "notes.txt", "deep", "lib")
KNOWN = (
    "src", "src/lib", "src/lib/deep", "data", "data/empty", "a", "src/a", "src/b", "src/lib/c", "src/lib/deep/a",
    "data/notes.txt", "data/caf\udce9", "notes.txt", "data/b", "src/lib/deep/c", "lib", "data/x y", "data/c",
)  # fmt: skip
MODES = (0o644, 0o600, 0o755, 0o000, 0o400, 0o4755, 0o666)
DIRECTORY_MODES = (0o755, 0o700, 0o1777, 0o2755, 0o000)
TIMES = (0, 1, 1_000_000_000_123_456_789, 1_600_000_000_000_000_001)
ATTRIBUTES = ("user.a", "user.b")

# How often each comes, beside the others.
WEIGHTS = {
    "create": 10, "overwrite": 6, "write_at": 5, "truncate": 4, "replace_by_copy": 4, "unlink": 7, "mkdir": 8,
    "rmdir": 3, "rename": 14, "exchange": 2, "link": 7, "symlink": 4, "mkfifo": 2, "remove_tree": 5, "recreate": 4,
    "chmod": 5, "chown": 3, "utime": 4, "setxattr": 4, "removexattr": 2,
}  # fmt: skip


def a_sequence(seed: int, *, root: bool = True, links: bool = True) -> list[Act]:
    """The same for the same number, for ever: a failure is repeated by its seed. `links`: also files that get and lose
    further names."""
    chance = Random(seed)
    names = [name for name in WEIGHTS if (root or name != "chown") and (links or name != "link")]
    weights = [WEIGHTS[name] for name in names]
    length = chance.randrange(3, 40)
    return [_an_act(chance.choices(names, weights)[0], chance) for _ in range(length)]


def _path(chance: Random) -> str:
    """Half of them there at the beginning, or made by others of the sequence."""
    if chance.random() < 0.4:
        return chance.choice(KNOWN)
    depth = chance.choice((1, 1, 1, 2, 2, 3))
    return "/".join(chance.choice(NAMES) for _ in range(depth))


def _content(chance: Random) -> str:
    return chance.choice(("", "x", "some text\n", "much\n" * chance.randrange(3000)))


# What each takes besides a path.
_REST: dict[str, Callable[[Random], Act]] = {
    "create": lambda chance: [_content(chance), chance.choice(MODES)],
    "overwrite": lambda chance: [_content(chance)],
    "write_at": lambda chance: [chance.choice((0, 3, 5000, 200_000)), _content(chance)],
    "truncate": lambda chance: [chance.choice((0, 1, 4096, 10_000, 300_000))],
    "mkdir": lambda chance: [chance.choice(DIRECTORY_MODES)],
    "rename": lambda chance: [_path(chance)],
    "exchange": lambda chance: [_path(chance)],
    "link": lambda chance: [_path(chance)],
    "replace_by_copy": lambda chance: [_path(chance)],
    "mkfifo": lambda chance: [chance.choice(MODES)],
    "chmod": lambda chance: [chance.choice(MODES + DIRECTORY_MODES)],
    "chown": lambda chance: [chance.choice((0, 1234)), chance.choice((0, 4321))],
    "utime": lambda chance: [chance.choice(TIMES)],
    "setxattr": lambda chance: [chance.choice(ATTRIBUTES), chance.choice(("", "v", "long" * 60))],
    "removexattr": lambda chance: [chance.choice(ATTRIBUTES)],
}


def _an_act(name: str, chance: Random) -> Act:
    path = _path(chance)
    if name == "symlink":
        # Never to a place outside the tree: later operations go through it.
        return [name, chance.choice(("a", "./b", "src", "lib", "nowhere", "/nonexistent/place")), path]
    return [name, path, *_REST.get(name, lambda chance: [])(chance)]


def starting_tree(*, links: bool = True) -> list[Act]:
    """What every sequence finds: names of the pool, with something in them."""
    further = [["link", "src/a", "data/b"], ["link", "src/lib/c", "src/lib/deep/c"]]
    alone = [["create", "data/b", "data b\n", 0o644], ["create", "src/lib/deep/c", "deep c\n", 0o644]]
    return [
        ["mkdir", "src", 0o755],
        ["mkdir", "src/lib", 0o750],
        ["mkdir", "src/lib/deep", 0o755],
        ["mkdir", "data", 0o2775],
        ["mkdir", "data/empty", 0o755],
        ["create", "a", "the file a\n", 0o644],
        ["create", "src/a", "src a\n" * 900, 0o640],
        ["create", "src/b", "src b\n", 0o755],
        ["create", "src/lib/c", "c\n", 0o600],
        ["create", "src/lib/deep/a", "deep a\n", 0o644],
        ["create", "data/notes.txt", "notes\n" * 50, 0o644],
        ["create", "data/caf\udce9", "not UTF-8\n", 0o644],
        ["create", "notes.txt", "more notes\n" * 2000, 0o644],
        *(further if links else alone),
        ["symlink", "src/lib", "lib"],
        ["symlink", "nowhere", "data/x y"],
        ["mkfifo", "data/c", 0o644],
        ["setxattr", "a", "user.a", "1"],
        ["setxattr", "src", "user.b", "2"],
        ["truncate", "data/notes.txt", 200_000],
        ["utime", "a", 1_400_000_000_000_000_003],
        ["utime", "notes.txt", 1_400_000_000_000_000_007],
    ]
