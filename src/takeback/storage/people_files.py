"""Who may approve and who hears of proposals, from the files of the administrator and of the user."""

import os
import stat
from typing import Any

from takeback.errors import Misuse
from takeback.model.approver import NOBODY, People, joined, people_from
from takeback.model.resource import home

ADMINISTRATOR = "/etc/takeback/config.toml"
_TABLES = ("approvers", "approvals", "notify")


def user_file() -> str:
    given = os.environ.get("XDG_CONFIG_HOME", "")
    place = given if os.path.isabs(given) else os.path.join(home(), ".config")
    return os.path.join(place, "takeback", "config.toml")


def files() -> tuple[str, ...]:
    return (ADMINISTRATOR, user_file())


def people_here() -> People:
    """Read each time: few commands ask, and someone may have been taken off the list."""
    found = [_read(file) for file in files()]
    parts = [one for one in found if one is not None]
    return joined(parts) if parts else NOBODY


def people_are_told() -> bool:
    """A quick no where there is no file."""
    return any(map(os.path.exists, files())) and people_here().tells


def _read(file: str) -> People | None:
    try:
        with open(file, "rb") as opened:
            content, status = opened.read(), os.fstat(opened.fileno())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Misuse(f"{file} cannot be read: {error.strerror}.") from error
    import tomllib

    try:
        data: dict[str, Any] = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"{file} is not valid TOML: {error}.", hint="Nothing was changed.") from error
    return people_from({name: data[name] for name in _TABLES if name in data}, file, _writer(file, status))


def _writer(file: str, status: os.stat_result) -> int:
    """The one user who may change what the file says, beside root; -1 if others may too."""
    writers = {status.st_uid}
    shared = stat.S_IMODE(status.st_mode) & 0o022
    place: str = os.path.dirname(os.path.realpath(file))
    while True:
        above = os.stat(place)
        # A directory in which everyone may make files, but not replace those of others.
        sticky = above.st_mode & stat.S_ISVTX
        shared |= 0 if sticky else stat.S_IMODE(above.st_mode) & 0o022
        writers.add(above.st_uid)
        if place == "/":
            break
        place = os.path.dirname(place)
    writers.discard(0)
    return -1 if shared or len(writers) > 1 else next(iter(writers), 0)
