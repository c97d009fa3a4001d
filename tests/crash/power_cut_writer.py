"""Writes until it is stopped, and says so on standard output only after each promise was given."""

import hashlib
import itertools
import os
import sys
from random import Random


def main() -> None:
    how, root = sys.argv[1:]
    random = Random(7)
    ways = {
        "takeback": with_takeback, "careless": carelessly, "some": some_taken_back, "merge": merged_out,
        "drop": dropped, "apply": applied,
    }  # fmt: skip
    write = ways[how](root)
    for number in itertools.count():
        name = f"file {number % 7}"
        # Small ones go into the journal's database, large ones into a pack.
        content = b"%d\n" % number + random.randbytes(200_000 if number % 5 == 0 else 3_000)
        if how == "merge":
            content = content[:3_000].hex("\n", 20).encode() + b"\n"
            content = b"%d\n" % number + content
        told = write(os.path.join(root, "world", name), content)
        sys.stdout.write(f"{told}\t{name}\t{number}\t{hashlib.sha256(content).hexdigest()}\n")
        sys.stdout.flush()


def with_takeback(root: str):
    import takeback

    run = takeback.open(os.path.join(root, "store")).session("writer")

    def write(path: str, content: bytes) -> str:
        effect = run.write(path, content)
        assert effect
        return effect.id

    return write


def some_taken_back(root: str):
    """Two files as one effect, of which one is taken back alone."""
    import takeback

    run = takeback.open(os.path.join(root, "store")).session("writer")

    def write(path: str, content: bytes) -> str:
        effect = run.write_all({path: content, f"{path}.beside": content})
        assert effect
        run.undo(effect, paths=[f"{path}.beside"])
        return effect.id

    return write


def merged_out(root: str):
    """Two edits of a file, of which the first is taken out by a merge: what is left is the content."""
    import takeback

    run = takeback.open(os.path.join(root, "store")).session("writer")

    def write(path: str, content: bytes) -> str:
        *lines, last = content.splitlines(keepends=True)
        run.write(path, b"".join(lines))
        edited = b"".join((*lines[:9], b"an edit that goes\n", *lines[9:]))
        effect = run.write(path, edited)
        assert effect
        later = run.write(path, edited + last)
        assert later
        run.undo(effect, on_conflict="merge")
        return later.id

    return write


def dropped(root: str):
    """By a command that fails."""
    import takeback

    tb = takeback.open(os.path.join(root, "store"))
    source = os.path.join(root, "source")

    def write(path: str, content: bytes) -> str:
        with open(source, "wb") as file:
            file.write(content)
        copy = ["/bin/sh", "-c", 'cat "$0" > "$1"; exit 3', source, path]
        with tb.run("fails") as run:
            drop = run.command(copy, cwd=os.path.join(root, "world")).dropped
        assert drop
        return drop.id

    return write


def applied(root: str):
    """A drop that is made after all."""
    import takeback

    drop, tb = dropped(root), takeback.open(os.path.join(root, "store"))

    def write(path: str, content: bytes) -> str:
        id = drop(path, content)
        tb.apply(id)
        return id

    return write


def carelessly(root: str):
    """As most programs do it. It must be caught, or this test proves nothing."""

    def write(path: str, content: bytes) -> str:
        with open(f"{path}.new", "wb") as file:
            file.write(content)
        os.rename(f"{path}.new", path)
        return "-"

    return write


main()
