"""*Did you mean*: the words of other tools, and what they are here."""

from collections.abc import Iterable

from takeback.model.resemblance import did_you_mean

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
