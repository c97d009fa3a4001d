"""YAML, changed by surgery on its lines; a full round trip through ruamel.yaml is only the second choice."""

import json
import re
from typing import Any, NamedTuple, cast

from takeback.adapters.config.keys import Add, Drop, EditStep, Put, Tagged, Unhandled, line_start
from takeback.adapters.config.yaml_tree import ALIAS, PLAIN, TIMESTAMP, YamlEntry, YamlNode, read, resolved
from takeback.errors import Misuse, Refused

_PLAIN_TEXT = re.compile(r"[A-Za-z0-9_/.](?:[\w./@+=%()~^-]|:(?=\S)| (?=[^\s#:-]))*", re.ASCII)
_PROPERTIES = re.compile(r"^(?:\s*[&!][^\s,\[\]{}]*)+")
_UNPRINTABLE = re.compile(r"[\x7f-\x9f\ufeff\u2028\u2029\ud800-\udfff\ufffe\uffff]")


class YamlStyle(NamedTuple):
    newline: str
    unit: int  # columns a mapping is indented below its key
    dash: int  # columns a list is indented below its key


def parse(text: str) -> Any:
    return read(text).value


def change(text: str, step: EditStep) -> str:
    """`Unhandled` if the lines are laid out in a way this does not know."""
    root = read(text)
    style = _style(text, root)
    match step:
        case Put(path, value):
            return _put(text, root, path, value, style)
        case Add(path, key, value, after):
            node = _at(root, path)
            if node.kind == "scalar" or not node.entries:
                if node.kind == "scalar" and path:
                    raise Unhandled
                if path:
                    whole = {key: value} if node.kind == "mapping" else [value]
                    return _put(text, root, path, whole, style)
                return _appended(text, key, value, style)
            return _added(text, node, (key, value, after), style, _in_flow(root, path))
        case Drop(path):
            return _dropped(text, root, path, style)


# -- values as text


def render(value: Any, quotes: str = "", flow: bool = True) -> str:
    if isinstance(value, Tagged):
        if value.tag in (PLAIN, TIMESTAMP, "key"):
            return str(value.value)
        if value.tag == ALIAS:
            return f"*{value.value}"
        tag = value.tag if value.tag.startswith("!") else f"!!{value.tag}"
        return f"{tag} {render(value.value, quotes, flow)}"
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value).items()
        return "{" + ", ".join(f"{render(key)}: {render(held)}" for key, held in entries) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(render(held) for held in cast("list[Any]", value)) + "]"
    if isinstance(value, str):
        return _text(value, quotes, flow)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    raise Misuse(
        f"YAML has no way to write a {type(value).__name__}.", hint="Give it as text, number, list or object."
    )


def _text(value: str, quotes: str, flow: bool) -> str:
    plain = _PLAIN_TEXT.fullmatch(value) and not value.endswith(":") and not (flow and ":" in value)
    if plain and not quotes and isinstance(resolved(value), str):
        return value
    if quotes == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return _UNPRINTABLE.sub(lambda c: f"\\u{ord(c.group()):04x}", json.dumps(value, ensure_ascii=False))


def _is_block(value: Any) -> bool:
    return isinstance(value, (dict, list)) and bool(value)  # pyright: ignore[reportUnknownArgumentType]


def _is_literal(value: Any) -> bool:
    """Text of several lines that can be written as it is."""
    if not isinstance(value, str) or "\n" not in value.rstrip("\n") or value.endswith("\n\n"):
        return False
    lines = value.split("\n")
    if lines[0][:1] in ("", " "):
        return False
    return all(line.isprintable() and line == line.rstrip() for line in lines)


def _block(value: Any, indent: int, style: YamlStyle) -> list[str]:
    """Lines, the first one indented too."""
    lead = " " * indent
    lines: list[str] = []
    if isinstance(value, dict):
        for key, held in cast("dict[Any, Any]", value).items():
            label = f"{lead}{render(key, flow=False)}:"
            if _is_block(held):
                deeper = indent + (style.dash if isinstance(held, list) else style.unit)
                lines += [label, *_block(held, deeper, style)]
            else:
                lines += _behind(label, held, indent + style.unit)
    else:
        for held in cast("list[Any]", value):
            if _is_block(held):
                first, *rest = _block(held, indent + 2, style)
                lines += [f"{lead}- {first.lstrip(' ')}", *rest]
            else:
                lines += _behind(f"{lead}-", held, indent + 2)
    return lines


def _behind(label: str, value: Any, indent: int) -> list[str]:
    if not _is_literal(value):
        return [f"{label} {render(value, flow=False)}"]
    chomp = "" if value.endswith("\n") else "-"
    body = [" " * indent + line if line else "" for line in value.removesuffix("\n").split("\n")]
    return [f"{label} |{chomp}", *body]


# -- places in the text


def _style(text: str, root: YamlNode) -> YamlStyle:
    unit = dash = None
    nodes = [root]
    for node in nodes:
        for entry in node.entries:
            inner = entry.value
            nodes.append(inner)
            if node.kind != "mapping" or node.flow or inner.flow or not inner.entries:
                continue
            deeper = _column(text, inner.entries[0].start) - _column(text, entry.start)
            if inner.kind == "mapping" and unit is None and deeper > 0:
                unit = deeper
            if inner.kind == "sequence" and dash is None and deeper >= 0:
                dash = deeper
    unit = unit or 2
    return YamlStyle("\r\n" if "\r\n" in text else "\n", unit, unit if dash is None else dash)


def _at(node: YamlNode, path: tuple[Any, ...]) -> YamlNode:
    for key in path:
        node = _entry(node, key).value
    return node


def _entry(node: YamlNode, key: Any) -> YamlEntry:
    return next(entry for entry in node.entries if entry.key == key)


def _in_flow(root: YamlNode, path: tuple[Any, ...]) -> bool:
    return any(_at(root, path[:depth]).flow for depth in range(len(path) + 1))


def _line_end(text: str, position: int) -> int:
    """Before the line break."""
    end = text.find("\n", position)
    end = len(text) if end < 0 else end
    return end - 1 if end > position and text[end - 1] == "\r" else end


def _column(text: str, position: int) -> int:
    return position - line_start(text, position)


# -- the three steps


def _put(text: str, root: YamlNode, path: tuple[Any, ...], value: Any, style: YamlStyle) -> str:
    if not path:
        if _is_block(value) or root.kind == "scalar":
            raise Unhandled
        return text[: root.body] + render(value) + text[root.end :]
    parent = _at(root, path[:-1])
    entry = _entry(parent, path[-1])
    node = entry.value
    flow = _in_flow(root, path[:-1])
    is_block = node.kind != "scalar" and not node.flow
    if (_is_block(value) or _is_literal(value)) and not flow:
        try:
            return _put_block(text, parent, entry, value, style)
        except Unhandled:
            flow = True  # no room for lines of its own: on one line, in brackets or quotes
    new = render(value, node.style if node.style in ("'", '"') else "", flow)
    if not is_block:
        head = _kept_anchor(text, node)
        space = " " if text[node.start - 1 : node.start] in (":", "-") or node.start == node.end else ""
        return text[: node.start] + space + head + new + text[node.end :]
    comment = _PROPERTIES.sub("", _key_line_rest(text, entry))
    return text[: entry.gap] + " " + _kept_anchor(text, node) + new + comment.rstrip() + text[node.end :]


def _put_block(text: str, parent: YamlNode, entry: YamlEntry, value: Any, style: YamlStyle) -> str:
    node = entry.value
    anchor = f" {_kept_anchor(text, node)}".rstrip()
    column = _column(text, entry.start)
    is_item = parent.kind == "sequence"
    comment = text[node.end : _line_end(text, node.end)]
    is_block = (node.kind != "scalar" and not node.flow) or node.style in ("|", ">")
    stop = node.end if is_block else _line_end(text, node.end)
    if is_block:
        comment = _PROPERTIES.sub("", _key_line_rest(text, entry))
    is_literal = _is_literal(value)
    if (comment.strip() and (is_literal or is_item)) or (anchor and is_item and not is_literal):
        raise Unhandled
    if is_literal:
        new = anchor + style.newline.join(_behind("", value, column + (2 if is_item else style.unit)))
    elif is_item:
        new = " " + style.newline.join(_block(value, column + 2, style)).lstrip(" ")
    else:
        deeper = column + (style.dash if isinstance(value, list) else style.unit)
        new = style.newline.join((anchor + comment.rstrip(), *_block(value, deeper, style)))
    return text[: entry.gap] + new + text[stop:]


def _key_line_rest(text: str, entry: YamlEntry) -> str:
    """What stands between the colon and the end of its line, if the value begins below."""
    return text[entry.gap : min(_line_end(text, entry.gap), entry.value.body)]


def _kept_anchor(text: str, node: YamlNode) -> str:
    found = re.search(r"&[^\s,\[\]{}]+", text[node.start : node.body])
    return found.group() + " " if found else ""


def _appended(text: str, key: Any, value: Any, style: YamlStyle) -> str:
    """Into a document with nothing but comments."""
    if text and not text.endswith("\n"):
        text += style.newline
    return text + style.newline.join(_block({key: value}, 0, style)) + style.newline


def _added(text: str, node: YamlNode, entry: tuple[Any, Any, Any], style: YamlStyle, flow: bool) -> str:
    key, value, after = entry
    is_item = node.kind == "sequence"
    place = key if is_item else next((n + 1 for n, e in enumerate(node.entries) if e.key == after), 0)
    if flow:
        new = render(value) if is_item else f"{render(key)}: {render(value)}"
        if place:
            end = node.entries[place - 1].value.end
            return text[:end] + ", " + new + text[end:]
        return text[: node.entries[0].start] + new + ", " + text[node.entries[0].start :]
    column = _column(text, node.entries[0].start)
    new = style.newline.join(_block([value] if is_item else {key: value}, column, style))
    if place == 0:
        start = node.entries[0].start
        return text[:start] + new.lstrip(" ") + style.newline + " " * column + text[start:]
    end = _line_end(text, node.entries[place - 1].value.end)
    return text[:end] + style.newline + new + text[end:]


def _dropped(text: str, root: YamlNode, path: tuple[Any, ...], style: YamlStyle) -> str:
    parent = _at(root, path[:-1])
    place = next(n for n, entry in enumerate(parent.entries) if entry.key == path[-1])
    entry = parent.entries[place]
    if len(parent.entries) == 1:
        return _put(text, root, path[:-1], {} if parent.kind == "mapping" else [], style)
    following = parent.entries[place + 1] if place + 1 < len(parent.entries) else None
    if _in_flow(root, path[:-1]):
        if following:
            return text[: entry.start] + text[following.start :]
        return text[: parent.entries[place - 1].value.end] + text[entry.value.end :]
    start = line_start(text, entry.start)
    if not text[start : entry.start].strip(" "):
        behind = text.find("\n", _line_end(text, entry.value.end))
        return text[:start] + text[behind + 1 :] if behind >= 0 else text[:start]
    if following is None or "#" in text[_line_end(text, entry.value.end) : following.start]:
        raise Unhandled
    return text[: entry.start] + text[following.start :]


# YAML through ruamel.yaml and back: comments and order are kept, but lines may be wrapped in another way.


def change_by_round_trip(text: str, step: EditStep) -> str:
    import io

    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml: Any = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = 1 << 20
    if "\n  - " in text:
        yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        document: Any = yaml.load(text)
        _carry_out(document, step, lambda value: YAML(typ="rt", pure=True).load(render(value)))  # pyright: ignore
        out = io.StringIO()
        yaml.dump(document, out)
    except (YAMLError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise Refused(
            "This place in the YAML cannot be edited by key.", hint="Write the whole file instead."
        ) from error
    new = out.getvalue()
    return new.replace("\n", "\r\n") if "\r\n" in text else new


def _carry_out(document: Any, step: EditStep, built: Any) -> None:
    match step:
        case Put(path, value):
            parent = _inside(document, path[:-1])
            parent[_key(parent, path[-1])] = built(value)
        case Add(path, key, value, after):
            parent = _inside(document, path)
            if isinstance(key, int):
                parent.insert(key, built(value))
                return
            names = [str(name) for name in parent]
            place = names.index(str(after)) + 1 if after is not None and str(after) in names else 0
            parent.insert(place, built(key), built(value))
        case Drop(path):
            parent = _inside(document, path[:-1])
            del parent[_key(parent, path[-1])]


def _inside(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[_key(document, key)]
    return document


def _key(container: Any, key: Any) -> Any:
    if isinstance(key, int) or key in container:
        return key
    return next(name for name in container if str(name) == str(key))
