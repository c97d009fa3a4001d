"""TOML, changed through tomlkit, which keeps comments, order and spelling."""

from typing import Any, cast

from takeback.adapters.config.keys import Add, Drop, EditStep, Put, spelled_float
from takeback.errors import Misuse, Refused
from takeback.model.words import install_hint


def parse(text: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(text, parse_float=spelled_float)
    except RecursionError:
        raise Refused("The TOML is nested too deeply.", hint="Write the whole file instead.") from None
    except tomllib.TOMLDecodeError as error:
        raise Refused(
            f"This is not valid TOML: {error}.",
            hint="Put the file right first, or write the whole file instead.",
        ) from error


def change(text: str, step: EditStep, inline: bool = False) -> str:
    tomlkit = _tomlkit()
    try:
        document = tomlkit.parse(text)
        _carry_out(document, step, inline)
        new = cast("str", document.as_string())
    except (tomlkit.exceptions.TOMLKitError, ValueError, TypeError, AttributeError, LookupError) as error:
        # Tables in odd orders are more than it can handle; the file can still be written whole.
        raise Refused(
            "This place in the TOML cannot be edited by key.", hint="Write the whole file instead."
        ) from error
    if "\r\n" in text and "\n" not in text.replace("\r\n", ""):
        new = new.replace("\r\n", "\n").replace("\n", "\r\n")
    return _with_next_comment(text, new) if isinstance(step, Drop) else new


def _with_next_comment(text: str, new: str) -> str:
    """A comment between two sections is taken for the end of the first; when that goes, the comment stays."""
    old_lines, new_lines = text.splitlines(keepends=True), new.splitlines(keepends=True)
    gone = len(old_lines) - len(new_lines)
    start = next(
        (n for n, (a, b) in enumerate(zip(old_lines, new_lines, strict=False)) if a != b), len(new_lines)
    )
    if gone <= 0 or new_lines[start:] != old_lines[start + gone :]:
        return new
    end = first = start + gone
    while first > start and (not old_lines[first - 1].strip() or old_lines[first - 1].startswith("#")):
        first -= 1
    while first < end and old_lines[first].startswith("#"):  # right below the last key: about that one
        first += 1
    if not any(line.startswith("#") for line in old_lines[first:end]):
        return new
    return "".join(old_lines[:start] + old_lines[first:])


def render(value: Any) -> str:
    """On one line, as it could stand behind an equals sign."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value).items()
        inner = ", ".join(f"{_quoted(key)} = {render(held)}" for key, held in entries)
        return "{" + inner + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(render, cast("list[Any]", value))) + "]"
    if isinstance(value, (int, float)):
        return repr(value)
    import datetime

    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    raise Misuse(
        "TOML has no null." if value is None else f"TOML has no way to write a {type(value).__name__}.",
        hint="Delete the key instead." if value is None else "Give it as text, number, date, list or object.",
    )


def _tomlkit() -> Any:
    try:
        import tomlkit
    except ImportError:
        raise Refused(
            "Editing TOML needs the package tomlkit, which is not installed.",
            hint=install_hint("config"),
        ) from None
    return tomlkit


def _quoted(text: str) -> str:
    shown = [
        f"\\u{ord(c):04X}" if ord(c) < 32 or ord(c) == 127 else f"\\{c}" if c in '"\\' else c for c in text
    ]
    return '"' + "".join(shown) + '"'


def _carry_out(document: Any, step: EditStep, inline: bool) -> None:
    tomlkit = _tomlkit()
    match step:
        case Put(path, value):
            parent = _at(document, path[:-1])
            if _is_section(parent[path[-1]]) or _is_section(value):
                # A section cannot stand where a value stood, nor the other way round.
                if isinstance(parent, list):
                    parent[path[-1]] = _item(value, inline=not _is_tables(parent))
                    return
                del parent[path[-1]]
                _put(parent, path[-1], value, inline)
                return
            # Strings, dates and numbers are parsed from our own text: what is written is what will be read.
            parent[path[-1]] = tomlkit.value(render(value))
        case Add(path, key, value, _):
            parent = _at(document, path)
            if isinstance(key, int):
                parent.insert(key, _item(value, inline=not isinstance(parent, tomlkit.items.AoT)))
            else:
                _put(parent, key, value, inline)
        case Drop(path):
            del _at(document, path[:-1])[path[-1]]


def _put(parent: Any, key: str, value: Any, inline: bool) -> None:
    tomlkit = _tomlkit()
    parent[key] = _item(value, inline=inline or isinstance(parent, tomlkit.items.InlineTable))


def _item(value: Any, inline: bool) -> Any:
    tomlkit = _tomlkit()
    if inline or not _is_section(value):
        return tomlkit.value(render(value))
    if isinstance(value, list):
        tables = tomlkit.aot()
        for table in cast("list[Any]", value):
            tables.append(_item(table, inline=False))
        return tables
    section = tomlkit.table()
    entries = cast("dict[str, Any]", value).items()
    # Plain values before sections: what follows a section header belongs to it.
    for wants_section in (False, True):
        for key, held in entries:
            if _is_section(held) == wants_section:
                section.append(key, _item(held, inline=False))
    return section


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def _is_section(value: Any) -> bool:
    return isinstance(value, dict) or _is_tables(value)


def _is_tables(value: Any) -> bool:
    if type(value).__name__ == "AoT":
        return True
    if not isinstance(value, list) or type(value).__name__ == "Array":  # pyright: ignore
        return False
    items = cast("list[Any]", value)
    return bool(items) and all(isinstance(item, dict) for item in items)
