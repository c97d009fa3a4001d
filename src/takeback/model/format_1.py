"""How records of format 1 are read: what they say in other words than records of today. The only reader of them.

A store keeps its old records when it is brought to a newer format, so each record is judged by itself. Format 1 had the
record kind `keep`, which is read as `accept`, and the words `kept` (a run that ended well) and `keep` (`on_death`).
"""

_WORDS = {"kept": "accepted", "keep": "accept"}


def word(name: str) -> str:
    """The word of today for the state of a run, for `on_death`, and for a count."""
    return _WORDS.get(name, name)
