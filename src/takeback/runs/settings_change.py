"""Settings in a file of the user or of a project, changed with its comments kept; settings.json moves there."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from takeback.errors import Misuse, TakebackError
from takeback.model.descriptor import Descriptor
from takeback.model.settings import PRESETS, Settings, given_settings, project_settings
from takeback.runs.settings_in_force import SETTINGS, STORES
from takeback.storage import disk
from takeback.storage.sqlite.store import SETTINGS_FILE, said_settings

NAMES = ("retention", *Settings._fields)
MOVED = f"{SETTINGS_FILE}.moved"
_PROJECTS_MODE = 0o644


class SettingsTable(NamedTuple):
    """A table of settings in a file."""

    file: str
    store: str = ""  # only for this store
    of_project: bool = False

    @property
    def table(self) -> tuple[str, ...]:
        return (STORES, self.store, SETTINGS) if self.store else (SETTINGS,)

    @property
    def shown(self) -> str:
        return f'[{STORES}."{self.store}".{SETTINGS}]' if self.store else f"[{SETTINGS}]"


def value_meant(name: str, text: str, of_project: bool = False) -> int | str:
    """What was typed, as it stands in the file. As strict as the file is."""
    refuse_unknown(name)
    if name == "retention":
        if text not in PRESETS:
            raise Misuse(f"There is no retention {text!r}.", hint=f"It is one of: {', '.join(PRESETS)}.")
        value: int | str = text
    else:
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 30 else text
    (project_settings if of_project else given_settings)({name: value}, "The command")
    return value


def refuse_unknown(name: str) -> None:
    if name not in NAMES:
        from takeback.model.words import did_you_mean

        raise Misuse(
            f"There is no setting {name!r}.",
            hint=did_you_mean(name, NAMES, f"There are: {', '.join(NAMES)}."),
        )


def holding(place: SettingsTable, name: str, store: str) -> SettingsTable:
    """Where it is set already, if that counts more than this place."""
    nearer = place._replace(store=store)
    return nearer if not place.of_project and name in said_in(nearer) else place


def said_in(place: SettingsTable) -> dict[str, Any]:
    """The table, as it is written; empty where there is none."""
    return _table_of(_read(place.file), place)


def change(place: SettingsTable, sets: Mapping[str, int | str], drops: Iterable[str] = ()) -> None:
    """Whole or not at all; two at once wait for each other."""
    file = os.path.realpath(place.file)  # a link stays one
    disk.make_private_directory(os.path.dirname(file))
    with Descriptor(os.open(os.path.dirname(file), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as alone:
        disk.lock(alone)
        disk.write_file(file, changed(place, sets, drops), _mode(file, place))


def changed(place: SettingsTable, sets: Mapping[str, int | str], drops: Iterable[str] = ()) -> bytes:
    """The file as it would be."""
    from takeback.adapters.config.formats import edit
    from takeback.adapters.config.keys import pointer_of

    content = _read(place.file)
    there = _table_of(content, place)
    going = [name for name in drops if name in there]
    return edit(
        "toml", content, {pointer_of((*place.table, name)): value for name, value in sets.items()},
        [pointer_of((*place.table, name)) for name in going],
    )  # fmt: skip


def _mode(file: str, place: SettingsTable) -> int:
    if not place.of_project:
        return disk.FILE_MODE
    try:
        return os.stat(file).st_mode & 0o777
    except OSError:
        return _PROJECTS_MODE


def _read(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise disk.unreachable(file, "read", error) from error


def _table_of(content: bytes, place: SettingsTable) -> dict[str, Any]:
    from takeback.adapters.config.formats import read
    from takeback.policy.rules import Level
    from takeback.runs.policy_files import layer_of

    try:
        found: Any = read("toml", content)
    except TakebackError:
        layer_of(place.file, Level.USER, content)  # refuses it with line and column
        raise
    for name in place.table:
        found = found.get(name, {}) if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]


# settings.json of a store on disk.


def waiting(store: str) -> bool:
    """Whether the store still has a file of its own."""
    return os.path.lexists(os.path.join(store, SETTINGS_FILE))


def where_to(store: str, user: SettingsTable) -> SettingsTable:
    """Of what settings.json says: where `user` sets things; but what counts for other stores too is not overwritten."""
    said, there = said_settings(store), said_in(user)
    same = all(there.get(name, value) == value for name, value in said.items())
    return user if same else user._replace(store=store)


def move(store: str, user: SettingsTable) -> SettingsTable:
    """First the values, then the name: killed in between, the same values count twice."""
    given_settings(said_settings(store), os.path.join(store, SETTINGS_FILE))
    place = where_to(store, user)
    if said := said_settings(store):
        change(place, said)
    disk.rename(os.path.join(store, SETTINGS_FILE), os.path.join(store, MOVED))
    return place
