"""Resources as URIs with percent-encoded bytes; which overlap; and the projects they belong to."""

import os
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple


def home() -> str:
    """Empty if unknown: containers often have neither HOME nor an account. An empty HOME names nothing."""
    if given := os.environ.get("HOME"):
        return given
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/@+,=:")
_QUOTED = tuple(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in range(256))
CALL = "call"  # the scheme of what is done by calling a function of someone else
SCHEME = "file://"
ESCAPED = "$'"  # a path that is shown with escapes begins so


def quote(raw: bytes) -> str:
    if raw.isascii() and _PLAIN.issuperset(raw):
        return raw.decode("ascii")
    return "".join(_QUOTED[byte] for byte in raw)


def unquote(text: str) -> bytes:
    if "%" not in text:
        return text.encode("ascii")
    first, *rest = text.split("%")
    parts = [first.encode("ascii")]
    for piece in rest:
        parts.append(bytes((int(piece[:2], 16),)))
        parts.append(piece[2:].encode("ascii"))
    return b"".join(parts)


def file_resource(path: bytes | str, fragment: str = "") -> str:
    """`file:///etc/x.toml#/tls/on`; the path must be absolute and normal."""
    resource = SCHEME + quote(os.fsencode(path))
    return f"{resource}#{fragment}" if fragment else resource


@lru_cache(maxsize=512)
def path_of(resource: str) -> bytes:
    return unquote(without_fragment(resource)[len(SCHEME) :])


def without_fragment(resource: str) -> str:
    return resource.partition("#")[0]


def display(resource: str) -> str:
    """The path, as a person would write it. One that cannot be printed, or is no UTF-8, is shown as a shell reads it:
    `$'a\\xff'`."""
    if not resource.startswith(SCHEME):
        return resource
    whole, _, fragment = resource.partition("#")
    text = os.fsdecode(path_of(whole))
    shown = text if text.isprintable() else f"{ESCAPED}{''.join(map(_escaped, text))}'"
    return f"{shown} [{fragment}]" if fragment else shown


def _escaped(character: str) -> str:
    code = ord(character)
    if character in "'\\":
        return f"\\{character}"
    if character.isprintable():
        return character
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return ascii(character)[1:-1] if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shell_word(resource: str) -> str:
    """The path, as it can be typed in a shell."""
    import shlex

    shown = display(resource)
    return shown if shown.startswith(ESCAPED) else shlex.quote(shown)


def overlaps(one: str, other: str) -> bool:
    """Same resource, or one contains the other: directory and file, file and key, key and subkey."""
    return one == other or _inside(one, other) or _inside(other, one)


def _inside(inner: str, outer: str) -> bool:
    if not inner.startswith(outer):
        return False
    rest = inner[len(outer) :]
    return rest[0] in ("#", "/") or outer.endswith("/")


def ancestors(resource: str) -> tuple[str, ...]:
    """Every resource that contains this one, innermost first."""
    whole, hash_mark, fragment = resource.partition("#")
    found: list[str] = []
    while hash_mark and "/" in fragment[1:]:
        fragment = fragment[: fragment.rindex("/")]
        found.append(f"{whole}#{fragment}")
    if hash_mark:
        found.append(whole)
    if whole.startswith(SCHEME):
        path = whole[len(SCHEME) :]
        while len(path) > 1:
            path = path[: path.rindex("/")] or "/"
            found.append(SCHEME + path)
    return tuple(found)


def function_in(resource: str) -> str:
    """The function that a call is made of; empty for a resource of another kind."""
    scheme, _, rest = resource.partition("://")
    return rest if scheme == CALL else ""


class Ground:
    def __init__(self) -> None:
        self._at: dict[str, str] = {}
        self._inside: dict[str, str] = {}

    def add(self, resources: Iterable[str], name: str) -> None:
        for resource in resources:
            if resource not in self._at:
                self._at[resource] = name
                for outer in ancestors(resource):
                    if outer in self._inside:
                        break  # what contains that one is known as well
                    self._inside[outer] = name

    def touched_by(self, resources: Iterable[str]) -> str:
        """The name of one that overlaps; empty if none does."""
        for resource in resources:
            if found := self.overlapping(resource):
                return found
        return ""

    def overlapping(self, resource: str) -> str:
        if found := self._at.get(resource) or self._inside.get(resource):
            return found
        return next((self._at[outer] for outer in ancestors(resource) if outer in self._at), "")

    def is_around(self, resource: str) -> bool:
        """Whether something that is touched lies in it."""
        return resource in self._inside


MARKERS = (".git", ".jj", ".hg", ".takeback")


class Project(NamedTuple):
    """The facts that a journal knows about a directory; every field but the first can only become true."""

    root: str
    marked: bool = False  # it held a marker when something was recorded
    began: bool = False  # a run began there
    made: bool = False  # a recorded effect made its marker


class Scope(NamedTuple):
    """Effects of these projects; with `below` also those of directories without a marker inside that one."""

    roots: tuple[str, ...]
    below: str = ""


def inside(resource: str, root: str) -> bool:
    """Whether it is that directory, or lies in it."""
    return resource == root or resource.startswith(root if root.endswith("/") else f"{root}/")


def outside(roots: tuple[str, ...], scope: Scope) -> tuple[str, ...]:
    """Those that do not lie in a project of this scope."""
    return tuple(one for one in roots if not any(inside(one, root) for root in scope.roots))


def in_scope(project: Project, scope: Scope) -> bool:
    if project.root in scope.roots:
        return True
    return bool(scope.below) and not project.marked and inside(project.root, scope.below)


def touched_projects(body: dict[str, Any]) -> tuple[Project, ...]:
    """Those that the record of an effect names beside the one its run began in."""
    if "roots" not in body and "places" not in body:
        return ()
    return (
        *(Project(one, marked=True) for one in body.get("roots", ())),
        *(Project(one) for one in body.get("places", ())),
    )


def made_markers(body: dict[str, Any]) -> tuple[Project, ...]:
    """Directories that become projects by this effect: it makes their marker. What brings one back made nothing."""
    if body.get("undoes"):
        return ()
    found: list[Project] = []
    for resource, before, _ in body.get("remedy", {}).get("targets", ()):
        directory, _, name = resource.rpartition("/")
        if name in MARKERS and resource.startswith(SCHEME) and before.get("type") == "absent":
            found.append(Project(directory if len(directory) > len(SCHEME) else f"{SCHEME}/", made=True))
    return tuple(found)
