"""A command in one line, for the journal and for people: its name and its first argument, which is nearly always the
key; what is written is nobody's business."""

from typing import Any

from takeback.adapters.redis.commands import Request, request
from takeback.errors import Misuse

LENGTH = 100
_CONTAINERS = ("xgroup", "object", "memory", "xinfo")


def summary_of(statement: str, parameters: Any = (), many: bool = False) -> str:
    try:
        wanted = request(statement, _first(parameters) if many else parameters)
    except Misuse:
        return statement.split(maxsplit=1)[0][:LENGTH] if statement.split() else ""
    return shown(wanted) + (f" ({len(parameters)} times)" if many else "")


def shown(wanted: Request) -> str:
    visible = 2 + (wanted.name in _CONTAINERS)
    words = [word.decode("utf-8", "backslashreplace") for word in wanted.words]
    text = " ".join([words[0].upper(), *words[1:visible]])
    text = "".join(letter if letter.isprintable() else "·" for letter in text)
    text = text if len(text) <= LENGTH else f"{text[: LENGTH - 1]}…"
    return f"{text} …" if len(words) > visible else text


def _first(parameters: Any) -> Any:
    return parameters[0] if parameters else ()
