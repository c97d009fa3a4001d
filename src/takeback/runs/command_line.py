"""A command line as it is recorded: short enough for a list, in valid characters, and without passwords."""

import os
import re
import shlex

_SHOWN = 60
_COVERED = "xxxxx"  # needs no quoting in a shell, and is what others write
_SECRET = r"(?:pass(?:word|wd|phrase)?|secret|token|api[-_]?key)"
_IN_ADDRESS = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/:@\"']*:)[^\s/\"']+(?=@)", re.IGNORECASE)
_ASSIGNED = re.compile(
    rf"((?:--?|\b)(?:\w+[-_]|pg)?(?:{_SECRET}|mysql_pwd)=)(?![$\s])[^\s\"']+", re.IGNORECASE
)
_FOLLOWED = re.compile(rf"(--?(?:\w+[-_])?{_SECRET}[ \t]+)(?![-$\s])[^\s\"']+", re.IGNORECASE)
_BEFORE_ONE = re.compile(rf"--?(?:\w+[-_])?{_SECRET}", re.IGNORECASE)
_WITH_SHORT_OPTION = ("mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump", "mariadb-admin")


def shown(argv: tuple[str, ...]) -> str:
    """The command line, short enough for a list. What `sh -c` was given is shown as it was typed."""
    words = _covered(argv)
    line = words[2] if words[:2] == ["/bin/sh", "-c"] and len(words) == 3 else shlex.join(words)
    line = line.encode("utf-8", "replace").decode()  # a record holds no half characters
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def told(argv: tuple[str, ...]) -> list[str]:
    """For the record: bytes that are no UTF-8 are escaped."""
    return [
        word.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") for word in _covered(argv)
    ]


def _covered(argv: tuple[str, ...]) -> list[str]:
    """Passwords do not belong in the journal, which is kept for months and shown to many. What is recognised: those in
    addresses, and those given to a name or an option that says so."""
    found: list[str] = []
    short = bool(argv) and os.path.basename(argv[0]) in _WITH_SHORT_OPTION
    for number, word in enumerate(argv):
        before = argv[number - 1] if number else ""
        if _BEFORE_ONE.fullmatch(before) and word and word[0] not in "-$":
            found.append(_COVERED)
        elif short and word.startswith("-p") and len(word) > 2:
            found.append(f"-p{_COVERED}")
        else:
            for pattern in (_IN_ADDRESS, _ASSIGNED, _FOLLOWED):
                word = pattern.sub(rf"\g<1>{_COVERED}", word)
            found.append(word)
    return found
