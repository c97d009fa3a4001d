"""Programs that delete, change or end what their words name, and how to read these words."""

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple


class Value(NamedTuple):
    """A word as the program gets it."""

    text: str
    pattern: str = ""  # if the shell would replace it by the names of files

    @property
    def is_pattern(self) -> bool:
        return bool(self.pattern)

    @property
    def as_pattern(self) -> str:
        return self.pattern or glob.escape(self.text)

    @classmethod
    def unquoted(cls, text: str) -> "Value":
        return cls(text, text if glob.has_magic(text) else "")

    @classmethod
    def joined(cls, values: "Sequence[Value | None]") -> "Value":
        known = [value for value in values if value]
        pattern = "".join(value.as_pattern for value in known) if any(v.pattern for v in known) else ""
        return cls("".join(value.text for value in known), pattern)

    def below(self, directory: str) -> "Value":
        text = os.path.join(directory, self.text)
        return Value(text, os.path.join(glob.escape(directory), self.pattern) if self.pattern else "")

    def with_name(self, name: str) -> "Value":
        pattern = os.path.join(self.pattern, glob.escape(name)) if self.pattern else ""
        return Value(os.path.join(self.text, name), pattern)


class Touch(NamedTuple):
    """A path that a command would delete or change."""

    path: Value
    deep: bool = False  # also everything below it
    follows: bool = False  # if the path is a link: what the link leads to
    deletes: bool = False
    names: tuple[str, ...] = ()  # only what has such a name, below the path
    deepest: int = 0  # of `names`: how far below the path; 0 for any


class ProcessEnd(NamedTuple):
    """Processes that a command would end."""

    pids: tuple[int, ...] = ()  # negative: a group; -1: all
    pattern: str = ""  # of the name, or of the whole command line
    whole: bool = False  # the pattern is for the command line
    exactly: bool = False
    users: tuple[str, ...] = ()


Named = Touch | ProcessEnd
Words = Sequence["Value | None"]


class Wrapper(NamedTuple):
    """A program that starts another one."""

    takes: frozenset[str] = frozenset()  # options with a word of their own
    skips: int = 0  # words before the program
    assigns: bool = False


WRAPPERS: Mapping[str, Wrapper] = {
    "sudo": Wrapper(frozenset(("-u", "-g", "-h", "-p", "-C", "-r", "-t", "-D")), assigns=True),
    "doas": Wrapper(frozenset(("-u", "-C"))),
    "env": Wrapper(frozenset(("-u", "-C")), assigns=True),
    "nice": Wrapper(frozenset(("-n",))),
    "ionice": Wrapper(frozenset(("-c", "-n"))),
    "timeout": Wrapper(frozenset(("-s", "-k")), skips=1),
    "stdbuf": Wrapper(frozenset(("-i", "-o", "-e"))),
    "xargs": Wrapper(frozenset(("-n", "-I", "-P", "-d", "-L", "-a", "-s", "-E"))),
    "time": Wrapper(frozenset(("-f", "-o"))),
    "exec": Wrapper(frozenset(("-a",))),
    "flock": Wrapper(frozenset(("-w", "-E")), skips=1),
    **dict.fromkeys(("nohup", "builtin", "setsid", "busybox", "unbuffer", "command"), Wrapper()),
}


def operands(words: Words, takes: str = "") -> "list[Value | None]":
    """Words that are no options. `takes`: letters of options that have a word of their own."""
    found: list[Value | None] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word is None or not word.text.startswith("-") or word.text == "-":
            found.append(word)
        elif word.text == "--":
            return found + waiting
        elif len(word.text) == 2 and word.text[1] in takes and waiting:
            waiting.pop(0)
    return found


def has(words: Words, letters: str, *names: str) -> bool:
    """Whether one of these options was given."""
    for word in words:
        if word is None or not word.text.startswith("-"):
            continue
        if word.text == "--":
            return False
        if word.text.startswith("--"):
            if word.text.partition("=")[0] in names:
                return True
        elif any(letter in word.text[1:] for letter in letters):
            return True
    return False


def _known(words: "Sequence[Value | None]") -> list[Value]:
    return [word for word in words if word]


def touched(name: str, words: Words, piped: tuple[str, ...] = ()) -> Iterator[Named]:
    """What a program of this name would touch."""
    if name in _PROGRAMS:
        yield from _PROGRAMS[name](words)
    elif name in _REWRITES:
        takes = _REWRITES[name]
        deep = has(words, "R", "--recursive")
        yield from (Touch(path, deep, follows=True) for path in _known(operands(words, takes)))


# Programs whose words are all paths that they change, with the letters of their options that take a word.
_REWRITES: Mapping[str, str] = {
    "truncate": "sr", "tee": "", "sponge": "", "chmod": "", "chown": "", "chgrp": "", "chattr": "pv", "setfacl": "mx",
    "ed": "", "ex": "c", "vi": "c", "vim": "c", "nano": "", "emacs": "", "fuser": "n", "setfattr": "nvx",
}  # fmt: skip


def _rm(words: Words) -> Iterator[Named]:
    deep = has(words, "rR", "--recursive")
    return (Touch(path, deep, deletes=True) for path in _known(operands(words)))


def _unlink(words: Words) -> Iterator[Named]:
    return (Touch(path, deletes=True) for path in _known(operands(words, "ns")))


def _mv(words: Words) -> Iterator[Named]:
    sources, target = _sources(words)
    yield from (Touch(path, deep=True, deletes=True) for path in sources)
    yield from _copies(sources, target)


def _cp(words: Words) -> Iterator[Named]:
    return _copies(*_sources(words))


def _copies(sources: list[Value], target: Value | None, follows: bool = True) -> Iterator[Named]:
    """A file of the same name in the target, if that is a directory; else the target itself."""
    if target is None:
        return
    yield Touch(target, follows=follows)
    names = [os.path.basename(path.text.rstrip("/")) for path in sources]
    yield from (Touch(target.with_name(name), follows=follows) for name in names if name)


def _sources(words: Words, takes: str = "tSmog") -> "tuple[list[Value], Value | None]":
    """What is copied or moved, and where to."""
    target: Value | None = None
    for at, word in enumerate(words):
        if word and word.text.startswith("--target-directory="):
            target = Value(word.text.partition("=")[2])
        elif word and word.text in ("-t", "--target-directory") and at + 1 < len(words):
            target = words[at + 1]
    named = [word for word in operands(words, takes) if word is None or word is not target]
    if target is None and len(named) > 1:
        target = named.pop()
    return _known(named), target


def _ln(words: Words) -> Iterator[Named]:
    if has(words, "f", "--force"):
        sources, target = _sources(words)
        yield from _copies(sources, target, follows=False)


def _dd(words: Words) -> Iterator[Named]:
    for word in _known(words):
        if word.text.startswith("of="):
            yield Touch(Value(word.text[3:]), follows=True)


def _sed(words: Words) -> Iterator[Named]:
    """Also Perl: they change a file in place only if asked to."""
    in_place = any(
        word and word.text.startswith("-") and ("i" in word.text[1:3] or word.text.startswith("--in-place"))
        for word in words
    )
    if in_place:
        yield from (Touch(path, follows=True) for path in _known(operands(words, "efl")))


def _find(words: Words) -> Iterator[Named]:
    """With `-delete`, or with a program that deletes or changes what was found."""
    roots: list[Value] = []
    rest = list(words)
    while rest and (rest[0] is None or not rest[0].text.startswith(("-", "(", "!", ")"))):
        word = rest.pop(0)
        roots += [word] if word else []
    texts = [word.text if word else "" for word in rest]
    after = dict(zip(texts, [*texts[1:], ""], strict=True))
    names = tuple(text for option, text in pairwise(texts) if option in ("-name", "-iname"))
    if "-empty" in texts or after.get("-type", "f") not in ("f", "d", "f,d"):
        return
    deepest = int(after["-maxdepth"]) if after.get("-maxdepth", "").isdigit() else 0
    touch = Touch(Value("."), deep=True, deletes=True, names=names or ("*",), deepest=deepest)
    runs = next((after[one] for one in ("-exec", "-execdir", "-ok", "-okdir") if one in after), "")
    sample = (Value("-i"), Value("one"), Value("other"))
    if "-delete" in texts or any(touched(os.path.basename(runs), sample)):
        yield from (touch._replace(path=root) for root in roots or [Value(".")])


def _git(words: Words) -> Iterator[Named]:
    rest, start = list(words), Value(".")
    while rest and (word := rest[0]) and word.text.startswith("-"):
        if word.text in ("-C", "-c") and len(rest) > 1:
            start = (rest[1] or start) if word.text == "-C" else start
            rest.pop(0)
        rest.pop(0)
    if not rest or rest[0] is None:
        return
    action, rest = rest[0].text, rest[1:]
    paths = [Value(os.path.join(start.text, path.text)) for path in _known(operands(rest, "es"))]
    if action == "clean" and has(rest, "f", "--force") and not has(rest, "n", "--dry-run"):
        yield from (Touch(path, deep=True, deletes=True) for path in paths or [start])
    elif action == "rm":
        yield from (Touch(path, has(rest, "r"), deletes=True) for path in paths)
    elif action == "mv":
        yield from (Touch(path, deep=True, deletes=True) for path in paths)
    elif action in ("restore", "checkout"):
        yield from (Touch(path, follows=True) for path in paths)


def _rsync(words: Words) -> Iterator[Named]:
    sources, target = _sources(words, "efT")
    if target is not None and ":" not in target.text:
        deletes = any(word and word.text.startswith("--del") for word in words)
        yield Touch(target, deep=deletes, deletes=deletes)
        yield from _copies(sources, target)


def _sqlite(words: Words) -> Iterator[Named]:
    if not any(word and word.text == "-readonly" for word in words):
        yield from (Touch(path, follows=True) for path in _known(operands(words))[:1])


def _mount(words: Words) -> Iterator[Named]:
    paths = _known(operands(words, "tobO"))
    if len(paths) > 1:
        yield Touch(paths[-1], deep=True)


def _takeback(words: Words) -> Iterator[Named]:
    """takeback's own commands refuse the store, not the settings of an agent."""
    rest = list(words)
    if not rest or rest[0] is None:
        return
    action, rest = rest[0].text, rest[1:]
    if action in ("rm", "mv"):
        yield from _mv(rest) if action == "mv" else _rm([Value("-r"), *rest])
    elif action in ("write", "edit", "chmod"):
        yield from (Touch(path, follows=True) for path in _known(operands(rest))[:2])
    elif action == "run" and any(word and word.text == "--in-place" for word in rest):
        inner = [word.text if word else "" for word in rest]
        at = inner.index("--") + 1 if "--" in inner else len(inner)
        if at < len(inner):
            yield from touched(os.path.basename(inner[at]), rest[at + 1 :])


# Processes.


def _kill(words: Words) -> Iterator[Named]:
    texts = [word.text if word else "" for word in words]
    if texts[:1] in (["-0"], ["-l"], ["-L"]) or texts[:2] == ["-s", "0"]:
        return
    named = texts[2:] if texts[:1] in (["-s"], ["-n"]) else texts
    if named and named[0].startswith("-") and named[0] != "--" and len(named) > 1:
        named = named[1:]
    pids = tuple(int(text) for text in named if text.lstrip("-").isdigit())
    if pids:
        yield ProcessEnd(pids)


def _pkill(words: Words) -> Iterator[Named]:
    words = [word for word in words if not (word and _SIGNAL.fullmatch(word.text))]
    if has(words, "0") or has(words, "Pgst", "--parent"):
        return  # only some of the processes, and the daemon has no parent and no terminal
    users = tuple(_after(words, "-u", "-U", "--euid", "--uid"))
    patterns = [word for word in _known(operands(words, "uUGFn")) if word.text]
    whole, exactly = has(words, "f", "--full"), has(words, "x", "--exact")
    if users and not patterns:
        yield ProcessEnd(pattern=".", users=users)
    yield from (ProcessEnd((), one.text, whole, exactly, users) for one in patterns)


def _killall(words: Words) -> Iterator[Named]:
    users = tuple(_after(words, "-u", "--user"))
    exactly = not has(words, "r", "--regexp")
    names = _known(operands(words, "usnoyZ"))
    if users and not names:
        yield ProcessEnd(pattern=".", users=users)
    yield from (ProcessEnd((), one.text, exactly=exactly, users=users) for one in names)


_SIGNAL = re.compile(r"-(?:[A-Z][A-Z0-9+-]+|[1-9]\d*)")


def _after(words: Words, *options: str) -> Iterator[str]:
    for word, value in pairwise(words):
        if word and value and word.text in options:
            yield from value.text.split(",")


_PROGRAMS: Mapping[str, Callable[[Words], Iterator[Named]]] = {
    "rm": _rm, "trash": _rm, "trash-put": _rm, "srm": _rm,
    "unlink": _unlink, "shred": _unlink, "rmdir": _unlink,
    "mv": _mv, "cp": _cp, "install": _cp, "rsync": _rsync, "ln": _ln, "dd": _dd,
    "sed": _sed, "perl": _sed, "find": _find, "git": _git, "mount": _mount,
    "sqlite3": _sqlite, "takeback": _takeback,
    "kill": _kill, "pkill": _pkill, "killall": _killall, "skill": _pkill,
}  # fmt: skip
