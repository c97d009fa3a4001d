"""`edit`: keys of a JSON, YAML or TOML file."""

import json
import os
from typing import Any

from takeback.api import opened_of
from takeback.errors import Misuse
from takeback.frontends.cli.command import Asked, Command, option, positional, repeated
from takeback.frontends.cli.session.change import CHANGING, checks_of, one_change, refuse_open_files

_ARGUMENTS = (
    positional("path", "FILE", "a file in one of these formats"),
    repeated("--set", "/KEY=JSON", """such as /tls/on=true, /ports/0=8080, /name='"x"'""", dest="sets"),
    repeated("--delete", "/KEY", "such as /legacy/option"),
    option("--format", "F", "json, yaml or toml (else by the name of the file)", default=""),
    repeated("--check", "CMD", "run before the change, must succeed, as in `write`"),
    *CHANGING,
)


def _edit(asked: Asked) -> int:
    options = asked.options
    refuse_open_files(options.path)
    sets = _assignments(options.sets)
    checks = checks_of(asked)
    from takeback.adapters.config.adapter import edit_change

    edit_change(options.path, sets, options.delete, options.format)  # refuses odd keys before all else
    return one_change(
        asked,
        lambda tb: edit_change(options.path, sets, options.delete, options.format, opened_of(tb).parts.blobs),
        checks,
        lambda: _edited(asked, sets),
        _nothing(options.path, bool(sets), options.delete),
    )


def _nothing(path: str, sets: bool, deletes: list[str]) -> str:
    if not deletes:
        return "it is like that already"
    missing = f"{path} has no {' and no '.join(deletes)}"
    return f"what was to be set is there already, and {missing}" if sets else missing


def _edited(asked: Asked, sets: dict[str, Any]) -> bytes:
    from takeback.adapters.config.formats import edit, format_of

    options = asked.options
    with open(options.path, "rb") as file:
        data = file.read()
    return edit(format_of(os.path.realpath(options.path), options.format), data, sets, options.delete)


def _assignments(given: list[str]) -> dict[str, Any]:
    sets: dict[str, Any] = {}
    for text in given:
        pointer, value = _assignment(text)
        if pointer in sets:
            raise Misuse(f"{pointer} is set twice.", hint="Ask for each key once, or make two edits.")
        sets[pointer] = value
    return sets


def _assignment(text: str) -> tuple[str, Any]:
    pointer, equals, value = text.partition("=")
    if not equals or (pointer and not pointer.startswith("/")):
        raise Misuse(f"{text!r} does not set a key.", hint="Write --set /key/inner=VALUE, the value as JSON.")
    try:
        return pointer, json.loads(value)
    except RecursionError:
        raise Misuse(
            f"The value for {pointer} is nested too deeply.", hint="Write the whole file instead."
        ) from None
    except ValueError:
        raise Misuse(
            f"The value {value!r} for {pointer} is not JSON.",
            hint=f"Text needs quotes of its own: --set '{pointer}={json.dumps(value)}'.",
        ) from None


COMMAND = Command(_edit, _ARGUMENTS)
