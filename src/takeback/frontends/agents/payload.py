"""What a host sent, read without trust: a value of the wrong type counts as missing, and nothing here raises."""

import os
from collections.abc import Mapping
from typing import Any, cast


def text_of(payload: Mapping[str, Any], *names: str) -> str:
    """The first of these keys that holds text."""
    for name in names:
        value = payload.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def object_of(payload: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = payload.get(name)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def list_of(payload: Mapping[str, Any], name: str) -> list[Any]:
    value = payload.get(name)
    return cast("list[Any]", value) if isinstance(value, list) else []


def is_set(payload: Mapping[str, Any], name: str) -> bool:
    return payload.get(name) is True


def process_of(env: Mapping[str, str], name: str, otherwise: int) -> int:
    """The number of a process out of the environment."""
    value = env.get(name, "")
    known = value.isascii() and value.isdigit() and 1 < int(value[:10]) < 1 << 31
    return int(value) if known else otherwise


def directory_of(*candidates: str) -> str:
    """The first that is an absolute path."""
    return next((one for one in candidates if os.path.isabs(one) and is_path(one)), "")


def below(directory: str, name: str) -> str:
    """A directory that a call names, which may be relative; `directory` itself if it names none."""
    return directory_of(os.path.join(directory, name) if name else "", directory)


def paths_of(names: "tuple[str, ...] | list[str]", cwd: str) -> tuple[str, ...]:
    """Absolute, each once. Empty if one of them is no path: then no one knows what the call will touch."""
    if not names or not all(is_path(name) for name in names):
        return ()
    found = tuple(dict.fromkeys(os.path.join(cwd, name) for name in names))
    return found if all(os.path.isabs(path) for path in found) else ()


def is_path(name: str) -> bool:
    try:
        return bool(name) and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:  # half a character
        return False
