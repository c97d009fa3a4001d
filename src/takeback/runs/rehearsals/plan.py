"""A plan of changes that were not made yet, as a file: TOML, or the same as JSON."""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from takeback.errors import Misuse

_MOST = 16 << 20  # bytes
_EXAMPLE = 'For example [[step]] with run = "make install", or with write = "app.conf" and content = "…".'


class PlannedStep(NamedTuple):
    """`kind` is the key that says what it does; `args` are all keys."""

    kind: str
    args: dict[str, Any]
    summary: str


class StepPlan(NamedTuple):
    steps: tuple[PlannedStep, ...]
    network: bool = False  # whether its commands may use the network: what they do there stays


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value


def _words(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(cast("list[Any]", value))
        and all(map(_text, cast("list[Any]", value)))
    )


def _command(value: Any) -> bool:
    return _text(value) or _words(value)


def _pair(value: Any) -> bool:
    return _words(value) and len(value) == 2


def _mode(value: Any) -> bool:
    return (
        isinstance(value, str) and bool(value) and len(value) <= 5 and all(one in "01234567" for one in value)
    )


Fits = Callable[[Any], bool]
# By kind: what its own key takes, in words, and its further keys.
_KINDS: dict[str, tuple[Fits, str, dict[str, Fits]]] = {
    "run": (_command, "a command line, or a list of words", {"roots": _words, "cwd": _text}),
    "write": (
        _text,
        "a path",
        {"content": lambda value: isinstance(value, str), "from": _text, "mode": _mode},
    ),
    "delete": (_text, "a path", {}),
    "move": (_pair, "a list of two paths", {}),
    "mkdir": (_text, "a path", {"mode": _mode}),
    "link": (_pair, "a list of two paths: the link, and where it leads", {}),
    "chmod": (_text, "a path", {"mode": _mode}),
    "sql": (_text, "the address of a database", {"statements": _words}),
}
_NEEDED = {"chmod": "mode", "sql": "statements"}


def read_plan(path: "str | os.PathLike[str]") -> StepPlan:
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            raw = file.read(_MOST + 1)
    except OSError as error:
        raise Misuse(
            f"The plan {name} cannot be read: {os.strerror(error.errno or 0)}.", hint="Give a file."
        ) from None
    if len(raw) > _MOST:
        raise Misuse(f"The plan {name} is larger than 16 MB.", hint="Divide it.")
    return plan_from(_parsed(name, raw), name)


def _parsed(name: str, raw: bytes) -> Any:
    import tomllib

    try:
        text = raw.decode()
        return json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misuse(f"The plan {name} is neither TOML nor JSON: {error}.", hint=_EXAMPLE) from None


def plan_from(data: Any, where: str) -> StepPlan:
    plan = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    steps: Any = plan.get("step")
    if not isinstance(steps, list) or not steps:
        raise Misuse(f"The plan {where} has no steps.", hint=_EXAMPLE)
    if unknown := plan.keys() - {"step", "network"}:
        raise Misuse(
            f"The plan {where} sets {sorted(unknown)[0]!r}, which does not exist.",
            hint="It knows: step, network.",
        )
    network = plan.get("network", False)
    if not isinstance(network, bool):
        raise Misuse(f"The plan {where}: network is {network!r}.", hint="Say true or false.")
    found = cast("list[Any]", steps)
    return StepPlan(tuple(_step(one, f"Step {at} of {where}") for at, one in enumerate(found, 1)), network)


def _step(data: Any, where: str) -> PlannedStep:
    args = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    kinds = [kind for kind in _KINDS if kind in args]
    if len(kinds) != 1:
        how = "says nothing to do" if not kinds else f"does two things: {kinds[0]} and {kinds[1]}"
        raise Misuse(f"{where} {how}.", hint=f"Give each step one of: {', '.join(_KINDS)}.")
    (kind,) = kinds
    fits, words, more = _KINDS[kind]
    for name, value in args.items():
        check = fits if name == kind else more.get(name)
        if check is None:
            raise Misuse(
                f"{where} sets {name!r}, which {kind!r} does not know.",
                hint=f"It knows: {', '.join((kind, *more))}.",
            )
        if not check(value):
            what = words if name == kind else _WORDS.get(name, "text")
            raise Misuse(f"{where}: {name} is {value!r}.", hint=f"It takes {what}.")
    if _NEEDED.get(kind, kind) not in args:
        raise Misuse(f"{where} needs {_NEEDED[kind]!r}.", hint=f"{kind} = …, {_NEEDED[kind]} = …")
    if kind == "write" and ("content" in args) == ("from" in args):
        raise Misuse(f"{where} needs `content` or `from`, one of them.", hint=_EXAMPLE)
    if kind == "sql" and not str(args["sql"]).startswith("sqlite:"):
        raise Misuse(
            f"{where} is about a server, which no layer can hold back.",
            hint="Plans take SQLite files. Rehearse an effect on a server by its id, after it was made.",
        )
    return PlannedStep(kind, args, _summary(kind, args))


_WORDS = {
    "mode": 'a mode in octal, such as "0644"',
    "roots": "a list of directories",
    "statements": "a list of text",
}


def _summary(kind: str, args: Mapping[str, Any]) -> str:
    value: Any = args[kind]
    shown = " ".join(cast("list[str]", value)) if isinstance(value, list) else str(value)
    return f"{kind} {shown if len(shown) <= 100 else shown[:99] + '…'}"
