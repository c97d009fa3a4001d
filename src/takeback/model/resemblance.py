"""*Did you mean*: of the names that there are, the one that was most likely meant."""

from collections.abc import Iterable

_CLOSE = 0.6


def closest(word: str, known: Iterable[str], close: float = _CLOSE) -> str:
    """The one that was most likely meant; "" if none is near."""
    from difflib import get_close_matches

    names = list(known)
    begun = [name for name in names if len(word) > 1 and name.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    return next(iter(get_close_matches(word, names, 1, close)), "")


def did_you_mean(word: str, known: Iterable[str], otherwise: str, prefix: str = "") -> str:
    """A hint."""
    found = closest(word, known)
    return f"Did you mean `{prefix}{found}`?" if found else otherwise
