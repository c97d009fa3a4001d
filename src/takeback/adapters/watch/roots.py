"""Which directories may be watched, and what in them is left out; decided before a byte is written."""

import os
import re
import stat
from collections.abc import Sequence
from typing import NamedTuple

from takeback.adapters.file.mounts import mounts_below, names_of
from takeback.adapters.watch.index import CHANGING, MOUNT, MOUNTED, REGENERABLE, STORE, Hole
from takeback.adapters.watch.scan import Rules, too_large
from takeback.errors import Misuse, NoRemedy, Refused
from takeback.model.resource import display, file_resource, home, path_of, unquote

# Whether a directory is ignored by the project it is part of: the rules of `.gitignore`, read as git reads
# them.


_LONGEST = 1 << 20  # a longer file of rules is none


class Rule(NamedTuple):
    pattern: re.Pattern[bytes]  # of the path from the directory of its file
    negated: bool


def parsed(text: bytes) -> tuple[Rule, ...]:
    """The rules that can match a directory, in order."""
    rules = (_rule(line) for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
    return tuple(rule for rule in rules if rule)


def _rule(line: bytes) -> Rule | None:
    line = line.removesuffix(b"\r")
    kept = line.rstrip(b" ")
    if len(kept) < len(line):
        escapes = len(kept) - len(kept.rstrip(b"\\"))
        line = kept + b" " if escapes % 2 else kept
    if not line or line.startswith(b"#"):
        return None
    negated = line.startswith(b"!")
    line = line[negated:].removesuffix(b"/")
    if not line:
        return None
    anchored = b"/" in line
    try:
        body = _translated(line.removeprefix(b"/"))
        return Rule(re.compile(body if anchored else rb"(?:.*/)?" + body, re.DOTALL), negated)
    except re.error:
        return None  # git takes a broken pattern for one that matches nothing


def _translated(glob: bytes) -> bytes:
    out, at = b"", 0
    while at < len(glob):
        rest = glob[at:]
        stars = len(rest) - len(rest.lstrip(b"*"))
        alone = stars > 1 and (at == 0 or glob[at - 1 : at] == b"/")
        if alone and rest[stars : stars + 1] == b"/":
            out, at = out + rb"(?:.*/)?", at + stars + 1
        elif alone and at and stars == len(rest):
            out, at = out + rb".+", at + stars
        elif stars:
            out, at = out + rb"[^/]*", at + stars
        elif rest.startswith(b"?"):
            out, at = out + rb"[^/]", at + 1
        elif rest.startswith(b"["):
            end = _end_of_class(glob, at)
            out, at = out + _class(glob[at + 1 : end]), end + 1
        elif rest.startswith(b"\\"):
            if len(rest) == 1:
                raise re.error("nothing is escaped")
            out, at = out + re.escape(rest[1:2]), at + 2
        else:
            out, at = out + re.escape(rest[:1]), at + 1
    return out


def _end_of_class(glob: bytes, start: int) -> int:
    at = start + 1 + (glob[start + 1 : start + 2] in (b"!", b"^"))
    at += glob[at : at + 1] == b"]"
    while at < len(glob) and glob[at : at + 1] != b"]":
        at += 2 if glob[at : at + 1] == b"\\" else 1
    if at >= len(glob):
        raise re.error("a class without an end")
    return at


def _class(inside: bytes) -> bytes:
    negated = inside[:1] in (b"!", b"^")
    inside = inside[negated:].replace(b"[", rb"\[")
    if inside.startswith(b"]"):
        inside = b"\\" + inside
    return rb"(?!/)[" + (b"^" if negated else b"") + inside + b"]"


class Ignoring:
    """Answers for one look at a tree; what it has read it does not read again."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._files: dict[bytes, tuple[Rule, ...]] = {}
        self._tops: dict[bytes, bytes] = {}
        self._tracked: dict[bytes, bytes | None] = {}

    def ignored(self, path: bytes) -> bool:
        """An absolute path of a directory. What git tracks is not ignored, whatever the rules say."""
        top = self._top(os.path.dirname(path))
        names = os.path.relpath(path, top).split(b"/")
        for depth in range(1, len(names) + 1):
            if self._one_ignored(top, names[:depth]):
                # Whether git's index may name something in it. In doubt it does: then it is captured.
                if top not in self._tracked:
                    self._tracked[top] = _index(top)
                index = self._tracked[top]
                return index is not None and b"/".join(names) + b"/" not in index
        return False

    def _one_ignored(self, top: bytes, names: list[bytes]) -> bool:
        """By the rules nearest to it that say anything of it; the last one in a file counts."""
        for depth in range(len(names) - 1, -1, -1):
            within = b"/".join(names[depth:])
            verdict = _said(self._rules(os.path.join(top, *names[:depth], b".gitignore")), within)
            if verdict is not None:
                return verdict
        excluded = self._rules(os.path.join(_git_directory(top), b"info", b"exclude"))
        return bool(_said(excluded, b"/".join(names)))

    def _rules(self, file: bytes) -> tuple[Rule, ...]:
        if file not in self._files:
            self._files[file] = parsed(_content(file, _LONGEST))
        return self._files[file]

    def _top(self, directory: bytes) -> bytes:
        """Of the repository it is in; without one, the watched root."""
        if directory not in self._tops:
            above: bytes = directory
            while not os.path.lexists(os.path.join(above, b".git")):
                if above in (b"/", b""):
                    above = self._root
                    break
                above = os.path.dirname(above)
            self._tops[directory] = above
        return self._tops[directory]


def _said(rules: tuple[Rule, ...], path: bytes) -> bool | None:
    return next((not rule.negated for rule in reversed(rules) if rule.pattern.fullmatch(path)), None)


def _git_directory(top: bytes) -> bytes:
    """Of a worktree or submodule it lies elsewhere, and a file says where."""
    git = os.path.join(top, b".git")
    said = _content(git, 8192) if os.path.isfile(git) else b""
    return os.path.join(top, said[8:].strip()) if said.startswith(b"gitdir: ") else git


def _index(top: bytes) -> bytes | None:
    """Its bytes, in which the paths stand as they are; None where they are shortened (version 4)."""
    file = os.path.join(_git_directory(top), b"index")
    if not os.path.lexists(file):
        return b""
    data = _content(file, 1 << 30)
    return data if data[:4] == b"DIRC" and data[4:8] in (b"\0\0\0\2", b"\0\0\0\3") else None


def _content(file: bytes, longest: int) -> bytes:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(fd, "rb") as opened:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > longest:
            return b""
        return opened.read()


# Directories that a tool makes again from what is beside them. They are left out only where the project's own ignore
# rules name them too: a `build` that is not ignored is work.
REGENERABLE_NAMES = (
    "node_modules", "bower_components", ".venv", "venv", ".tox", ".nox", "__pycache__", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".hypothesis", ".eggs", "site-packages", "target", "build", "dist", "out", ".next", ".nuxt",
    ".svelte-kit", ".turbo", ".parcel-cache", ".gradle", ".cache", "coverage", "htmlcov", "cmake-build-debug",
    "cmake-build-release", "Pods", "DerivedData", ".terraform", "elm-stuff", "_build", ".stack-work",
)  # fmt: skip

_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/var/run")  # noqa: S108 - not used, refused


class Root(NamedTuple):
    resource: str
    path: bytes
    whole: bool = False  # also what the project ignores and could make again


def root_of(path: "str | bytes | os.PathLike[str]") -> Root:
    """The real directory, links followed."""
    try:
        raw = os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        raise Misuse(f"{path!r} is no path.", hint="Name a directory to watch.") from None
    if not raw or b"\0" in raw:
        raise Misuse("An empty path, or one with a zero byte, names nothing.", hint="Give a directory.")
    real = os.path.realpath(raw)
    if not os.path.isdir(real):
        raise Misuse(f"{display(file_resource(real))} is not a directory.", hint="Name a directory to watch.")
    if not os.access(real, os.R_OK | os.X_OK):
        raise Misuse(f"{display(file_resource(real))} cannot be read.", hint="Check its mode and owner.")
    return Root(file_resource(real), real)


def roots_of(paths: "Sequence[str | bytes | os.PathLike[str]]") -> tuple[Root, ...]:
    """Each once. What lies in a watched directory is watched with it, unless another filesystem begins in between."""
    found = sorted({root_of(path) for path in paths})
    if not found:
        raise Misuse("No directory to watch was named.", hint="Name at least one.")
    kept: list[Root] = []
    for root in found:
        above = next((one for one in reversed(kept) if _contains(one.path, root.path)), None)
        points = set(mounts_below(above.resource)) - {above.path} if above else set[bytes]()
        if above is None or any(_contains(point, root.path) for point in points):
            kept.append(root)
    return tuple(kept)


def refuse_dangerous(roots: Sequence[Root], store: bytes, any_root: bool) -> None:
    """Quick, and without looking into them."""
    names = names_of(store)
    for root in roots:
        if any(_contains(name, root.path) for name in names):
            raise Misuse(
                f"{display(root.resource)} lies in takeback's own store.",
                hint="Name a directory of your own.",
            )
        if not any_root and (why := _dangerous(root.path, names)):
            raise Refused(
                f"{display(root.resource)} is not watched: {why}.",
                hint="Nothing was done. Name the project's own directory; --any-root watches it anyway.",
            )


def refuse_large(roots: Sequence[Root], most: int) -> None:
    """By counting names alone, and no further than needed; the look itself counts again, more exactly."""
    for root in roots:
        pending, count = [root.path], 0
        while pending:
            try:
                with os.scandir(pending.pop()) as found:
                    for entry in found:
                        count += 1
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
            except OSError:
                continue  # told later, by name
            if most and count > most:
                raise too_large(most)


def _dangerous(root: bytes, store: Sequence[bytes]) -> str:
    mine = os.fsencode(os.path.realpath(home() or "/"))
    if root == b"/":
        return "it is the whole filesystem"
    if root == mine:
        return "it is your home directory"
    names = (*_TEMPORARY, os.environ.get("TMPDIR") or _TEMPORARY[0])
    temporary = {os.path.realpath(os.fsencode(name)) for name in names}
    if root in temporary:
        return "it holds the temporary files of every program"
    if _contains(root, mine):
        return "your home directory lies in it"
    if any(_contains(root, one) for one in temporary):
        return "directories for temporary files lie in it"
    if any(_contains(root, name) for name in store):
        return "takeback's own store lies in it"
    return ""


def _contains(outer: bytes, inner: bytes) -> bool:
    return inner == outer or inner.startswith(outer.rstrip(b"/") + b"/")


def rules_for(root: Root, store: bytes, sticky: bool) -> Rules:
    ignoring = Ignoring(root.path)
    regenerable = set[bytes]() if root.whole else {os.fsencode(name) for name in REGENERABLE_NAMES}
    ours = {name for name in names_of(store) if _contains(root.path, name)}

    def left_out(path: str) -> tuple[str, str]:
        absolute = os.path.join(root.path, unquote(path))
        if absolute in ours:
            return "it is takeback's own store", STORE
        if os.path.basename(absolute) in regenerable and ignoring.ignored(absolute):
            return "it can be made again, and the project's rules ignore it", REGENERABLE
        return "", ""

    names = frozenset(regenerable | {os.path.basename(name) for name in ours})
    return Rules(left_out, names, sticky)


def resource_in(root: str, path: str) -> str:
    """Of a quoted path from the root."""
    return f"{root.rstrip('/')}/{path}" if path else root


def path_in(root: str, path: str) -> bytes:
    return path_of(resource_in(root, path))


# Paths that were not captured: named before anything is changed, and a reason to refuse if they could be lost.


_NAMED = 3

_WAYS_OUT = {
    MOUNTED: "Unmount it",
    MOUNT: "Name what is mounted there as a root of its own",
    CHANGING: "Wait until no process writes to it",
}

At = tuple[str, Hole]  # the root's resource, and a hole in it


def refuse_destroyable(holes: Sequence[At], roots: Sequence[str], any_root: bool) -> list[At]:
    """Those that count; a filesystem that is watched as a root of its own is no hole."""
    kept = [(root, hole) for root, hole in holes if resource_in(root, hole.path) not in roots]
    lost = [one for one in kept if _could_be_lost(*one)]
    if lost and not any_root:
        shown = lost[:_NAMED]
        named = "; ".join(f"{display(resource_in(root, hole.path))}: {hole.reason}" for root, hole in shown)
        more = f"; and {len(lost) - _NAMED:,} more" if len(lost) > _NAMED else ""
        hint = f"{_way_out(lost)}, or go ahead without it by --any-root."
        raise NoRemedy(
            f"takeback could not bring these back: {named}{more}.", hint=f"Nothing was done. {hint}"
        )
    return kept


def _way_out(lost: Sequence[At]) -> str:
    kinds = {hole.kind for _, hole in lost}
    for kind, way_out in _WAYS_OUT.items():
        if kind in kinds:
            return way_out
    if all(_is_ours(path_in(root, hole.path)) for root, hole in lost):
        return "Make it readable"
    return "Have its owner or root make it readable for you"


def _is_ours(path: bytes) -> bool:
    try:
        return os.geteuid() in (0, os.lstat(path).st_uid)
    except OSError:
        return True


def _could_be_lost(root: str, hole: Hole) -> bool:
    """Whether what runs as we do could destroy it."""
    if hole.kind in (REGENERABLE, STORE):
        return False
    path = path_in(root, hole.path)
    try:
        if hole.kind in (MOUNT, MOUNTED):
            return not os.statvfs(path).f_flag & os.ST_RDONLY
        me = os.geteuid()
        parent = os.path.dirname(path)
        if me == 0 or me in (os.lstat(path).st_uid, os.stat(parent).st_uid):
            return True
        return os.access(parent, os.W_OK) or os.access(path, os.W_OK)
    except OSError:
        return True
