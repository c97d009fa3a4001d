"""Names for what is not finished; each carries its effect's id, so that whoever comes after a crash knows whose it is.

`…~` is being built and is ours alone. The plain name is a finished thing about to be swapped in, or what it was
swapped against and has not been looked at yet. `…!` was looked at, is in the store, and is being removed.
"""

from typing import NamedTuple

PREFIX = ".takeback-"
_LONGEST_SUFFIX = 40


class Scratch(NamedTuple):
    building: bytes
    swapping: bytes
    going: bytes


def scratch(effect: str, index: int, name: bytes) -> Scratch:
    stem = f"{PREFIX}{effect}-{index}".encode()
    # Checks that run on the staged file often go by its suffix.
    dot = name.rfind(b".")
    suffix = name[dot:] if dot > 0 else b""
    return Scratch(stem + b"~" + (suffix if len(suffix) <= _LONGEST_SUFFIX else b""), stem, stem + b"!")
