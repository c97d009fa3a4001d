"""Which commands a command runs, as far as its words say: behind sudo and env, and in the script of a shell.

It is no wall: a program may do what its words do not say. What it changed is judged again when it has ended.
"""

import os
import re

_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash")
# Words that only say how the command after them runs; options of theirs that take a word.
_BEFORE: dict[str, tuple[str, ...]] = {
    "sudo": ("-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "-U"), "doas": ("-u", "-C"), "env": ("-u", "-C", "-S"),
    "nohup": (), "nice": ("-n",), "ionice": ("-c", "-n"), "time": (), "timeout": ("-s", "-k"), "command": (),
    "exec": (),
    "xargs": ("-n", "-I", "-P", "-L", "-d", "-a", "-s"), "busybox": (), "stdbuf": ("-i", "-o", "-e"), "setsid": (),
    "builtin": (), "then": (), "else": (), "do": (), "if": (), "while": (), "until": (), "!": (), "{": (), "eval": (),
}  # fmt: skip
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_WITHIN = re.compile(r"\$\(([^()]*)\)|`([^`]*)`|[<>]\(([^()]*)\)")
_DEPTH = 4


def commands_of(argv: "tuple[str, ...] | list[str]", depth: int = 0) -> tuple[tuple[str, ...], ...]:
    """The command itself, by its path and by its name, and those that it names."""
    words = tuple(argv)
    if not words:
        return ()
    found = [words]
    name = os.path.basename(words[0])
    if name != words[0]:
        found.append((name, *words[1:]))
    if depth < _DEPTH:
        script = _script(words)
        if script is not None:
            found += commands_in(script, depth + 1)
        elif rest := _behind(words):
            found += commands_of(rest, depth + 1)
            if name == "eval":
                found += commands_in(" ".join(words[1:]), depth + 1)
    return tuple(dict.fromkeys(found))


def commands_in(script: str, depth: int = 0) -> tuple[tuple[str, ...], ...]:
    """Of what a shell is given."""
    found: list[tuple[str, ...]] = []
    if depth < _DEPTH:
        for inner in _WITHIN.finditer(script):
            found += commands_in(next(one for one in inner.groups() if one is not None), depth + 1)
    for words in _split(script):
        found += commands_of(words, depth)
    return tuple(dict.fromkeys(found))


def _script(words: tuple[str, ...]) -> str | None:
    if os.path.basename(words[0]) not in _SHELLS:
        return None
    for at, word in enumerate(words[1:], 1):
        if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
            return words[at + 1] if at + 1 < len(words) else None
        if not word.startswith("-"):
            break
    return None


def _behind(words: tuple[str, ...]) -> tuple[str, ...]:
    taking = _BEFORE.get(os.path.basename(words[0]))
    if taking is None:
        at = 0
        while at < len(words) and _ASSIGNED.match(words[at]):
            at += 1
        return words[at:] if at else ()
    at = 1
    while at < len(words) and (words[at].startswith("-") or _ASSIGNED.match(words[at])):
        at += 2 if words[at] in taking else 1
    if os.path.basename(words[0]) == "timeout" and at < len(words):
        at += 1
    return words[at:]


def _split(script: str) -> list[tuple[str, ...]]:
    """Simple commands: between `;`, `&`, `|`, parentheses and ends of lines."""
    import shlex

    lexer = shlex.shlex(script.replace("\\\n", " "), posix=True, punctuation_chars=";&|()\n<>")
    lexer.whitespace, lexer.commenters = " \t\r", ""
    lexer.whitespace_split = True
    found: list[tuple[str, ...]] = []
    words: list[str] = []
    try:
        for token in lexer:
            if token and not token.strip(";&|()\n"):
                found.append(tuple(words))
                words = []
            elif token.strip("<>&"):
                words.append(token)
    except ValueError:  # a quote is not closed: the words as they are
        words = script.split()
    return [one for one in (*found, tuple(words)) if one]
