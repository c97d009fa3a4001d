"""*Did you mean*: one place for words that nobody knows here, and for those that other tools use."""

from collections.abc import Iterable

# What people type who come from git, jj, restic, Docker or a database.
ELSEWHERE = {
    "revert": "takeback undo",
    "restore": "takeback undo",
    "rollback": "takeback undo",
    "rewind": "takeback undo",
    "reset": "takeback undo",
    "back": "takeback undo",
    "unstash": "takeback redo",
    "history": "takeback log",
    "list": "takeback log",
    "ls": "takeback log",
    "reflog": "takeback log --all",
    "ps": "takeback runs",
    "info": "takeback show",
    "st": "takeback status",
    "gc": "takeback sweep",
    "prune": "takeback sweep",
    "clean": "takeback sweep",
    "check": "takeback verify",
    "fsck": "takeback verify",
    "init": "takeback store make",
    "clone": "takeback store copy",
    "backup": "takeback store copy --backup",
    "exec": "takeback run",
    "do": "takeback run",
    "sandbox": "takeback run",
    "bash": "takeback shell",
    "sh": "takeback shell",
    "delete": "takeback rm",
    "del": "takeback rm",
    "remove": "takeback rm",
    "move": "takeback mv",
    "rename": "takeback mv",
    "link": "takeback ln",
    "snapshot": "takeback checkpoint",
    "tag": "takeback checkpoint",
    "savepoint": "takeback checkpoint",
    "save": "takeback checkpoint",
    "continue": "takeback resume",
    "yes": "takeback approve",
    "no": "takeback deny",
    "reject": "takeback deny",
    "man": "takeback help --man",
}
# What is no command here at all: a sentence.
_ELSEWHERE_IN_WORDS = {
    "config": "Settings are in the file settings.json of the store; `takeback status` shows where that is.",
    "settings": "Settings are in the file settings.json of the store; `takeback status` shows where that is.",
    "commit": "`takeback accept` keeps what a run did; changes need no commit.",
    "login": "There is no account: `takeback status` shows the store.",
}
_CLOSE = 0.6


def closest(word: str, known: Iterable[str]) -> str:
    """The one that was most likely meant; "" if none is near."""
    from difflib import get_close_matches

    names = list(known)
    begun = [name for name in names if len(word) > 1 and name.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    return next(iter(get_close_matches(word, names, 1, _CLOSE)), "")


def did_you_mean(word: str, known: Iterable[str], otherwise: str, prefix: str = "") -> str:
    """A hint."""
    found = closest(word, known)
    return f"Did you mean `{prefix}{found}`?" if found else otherwise


def command_meant(word: str, known: Iterable[str]) -> str:
    """A hint, by meaning first: `revert` is nearer to `undo` than to `recover`, whatever its letters say."""
    lower = word.lower()
    if lower in known:
        return f"Did you mean `takeback {lower}`?"
    if lower in ELSEWHERE:
        return f"Did you mean `{ELSEWHERE[lower]}`?"
    if lower in _ELSEWHERE_IN_WORDS:
        return _ELSEWHERE_IN_WORDS[lower]
    return did_you_mean(lower, known, "`takeback help` lists them.", "takeback ")
