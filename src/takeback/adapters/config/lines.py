"""Take back one change of a text while later changes of other lines stay."""

_MANY = 20_000  # lines; beyond, comparing would take longer than it is worth


def taken_back(before: str, after: str, now: str) -> str | None:
    """`now` with the lines in which `after` differs from `before` as they were; None if those lines changed since."""
    import difflib

    old, left, here = (text.splitlines(keepends=True) for text in (before, after, now))
    if max(len(old), len(left), len(here)) > _MANY:
        return None
    place: dict[int, int] = {}  # of a line of `left`, in `here`
    for block in difflib.SequenceMatcher(None, left, here, autojunk=False).get_matching_blocks():
        place |= {block.a + n: block.b + n for n in range(block.size)}
    place |= {-1: -1, len(left): len(here)}
    for kind, start, end, from_, to in reversed(
        difflib.SequenceMatcher(None, left, old, autojunk=False).get_opcodes()
    ):
        if kind == "equal":
            continue
        # The lines themselves must still be there, one after another; where there are none, a line beside the gap.
        first = place.get(start) if start < end else place.get(start - 1, (place.get(start) or 0) - 1) + 1
        if first is None or any(place.get(start + n) != first + n for n in range(end - start)):
            return None
        if start == end and start - 1 not in place and start not in place:
            return None
        here[first : first + end - start] = old[from_:to]
    return "".join(here)
