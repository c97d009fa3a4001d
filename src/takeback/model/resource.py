"""What is touched, as a URI. Paths are bytes, so every byte that is not plain ASCII is percent-encoded."""

import os

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
