"""`config`: the settings, what sets each of them, and how to change them."""

import os
from typing import Any, NamedTuple

from takeback.errors import Refused, TakebackError
from takeback.frontends.cli.command import DRY_RUN, Asked, Command, Does, Subcommand, flag, positional
from takeback.frontends.cli.output.screen import clean
from takeback.frontends.cli.session.store import nothing_yet, opened, store_path
from takeback.model.settings import Settings
from takeback.policy.rules import Layer, Level
from takeback.runs.policies import ADMINISTRATOR, PROJECT_FILE, project_files_at, user_files
from takeback.runs.settings_change import (
    SettingsTable,
    change,
    changed,
    holding,
    move,
    refuse_unknown,
    said_in,
    value_meant,
    waiting,
    where_to,
)
from takeback.runs.settings_in_force import OWN, SetValue, in_force
from takeback.storage.sqlite.store import SETTINGS_FILE, is_remote, usual_path

_NAME = positional("name", "NAME", "a setting, or retention, which sets several")
_PROJECT = flag("--project", "in takeback.toml of this project, not in your own file")
_PARTS = {
    "get": Subcommand("say the value of a setting and what sets it", "takeback config get audit_days", (_NAME,)),
    "set": Subcommand(
        "set it in your file, with its comments kept",
        "takeback config set audit_days 183",
        (_NAME, positional("value", "VALUE", "a whole number: seconds, days, bytes or a count"), _PROJECT, DRY_RUN),
    ),
    "unset": Subcommand(
        "remove it from your file, so that the next one counts",
        "takeback config unset audit_days",
        (_NAME, _PROJECT, DRY_RUN),
    ),
    "list": Subcommand("list all settings and what sets them", "takeback config list", ()),
}  # fmt: skip


class _Found(NamedTuple):
    settings: dict[str, SetValue]  # those that something sets
    troubles: tuple[str, ...]  # files that cannot be understood
    untrusted: tuple[Layer, ...]


def _config(asked: Asked) -> int:
    if asked.options.action == "list":
        return _list(asked)
    if asked.options.action == "get":
        return _get(asked)
    return _change(asked)


def _store_name(asked: Asked) -> str:
    path = store_path(asked)
    return path if is_remote(path) else os.path.abspath(path)


def _look(asked: Asked) -> _Found:
    """What counts in this directory for this store. A file that cannot be understood stops no look at the others."""
    from takeback.runs.policy_files import is_trusted, read_layer

    layers: list[Layer] = []
    troubles: list[str] = []
    users = user_files()
    for file in (ADMINISTRATOR, *users, *project_files_at(os.getcwd())):
        level = (
            Level.ADMINISTRATOR if file == ADMINISTRATOR else Level.USER if file in users else Level.PROJECT
        )
        if os.path.lexists(file) and file not in [one.file for one in layers]:
            try:
                layers.append(read_layer(file, level))
            except TakebackError as error:
                troubles.append(str(error))
    own: dict[str, int] = {}
    name = _store_name(asked)
    if not nothing_yet(asked):
        with opened(asked._replace(looking=True)) as tb:
            own, name = tb.store.own_settings, tb.store.name
            layers = [
                one._replace(trusted=is_trusted(tb.store, one.file, one.digest))
                if one.level is Level.PROJECT
                else one
                for one in layers
            ]
    else:
        layers = [one._replace(trusted=one.level is not Level.PROJECT) for one in layers]
    untrusted = tuple(one for one in layers if one.settings and not one.trusted)
    return _Found(in_force(layers, name, own), tuple(troubles), untrusted)


def _tell_troubles(asked: Asked, found: _Found) -> None:
    for one in found.troubles:
        asked.screen.say(f"It does not count: {clean(one)}")
    for layer in found.untrusted:
        asked.screen.say(f"The settings in {clean(layer.file)} do not count: no person trusted it as it is.")
        asked.screen.hint("`takeback policy trust` lets it count exactly as it is")


def _json(found: _Found, name: str) -> dict[str, Any]:
    one = found.settings.get(name)
    if one is None:
        return {
            "name": name,
            "value": getattr(Settings(), name),
            "set_by": "default",
            "file": None,
            "line": None,
        }
    by = {OWN: "store"}.get(one.table, "file")
    return {"name": name, "value": one.value, "set_by": by, "file": one.file, "line": _line(one, name)}


def _line(one: SetValue, name: str) -> int | None:
    if one.table == OWN:
        return None
    from takeback.policy.parse import TomlPlaces

    with open(one.file, encoding="utf-8") as file:
        places = TomlPlaces(file.read())
    path = ("settings",) if not one.store else ("stores", one.store, "settings")
    return max(places.of((*path, name)).line, places.of((*path, "retention")).line, key=lambda line: line > 1)


def _from(told: dict[str, Any]) -> str:
    if told["set_by"] == "default":
        return "default"
    if told["set_by"] == "store":
        file: str = told["file"]
        return f"the table settings of {file}" if is_remote(file) else os.path.join(file, SETTINGS_FILE)
    return f"{told['file']}, line {told['line']}"


def _in_words(told: dict[str, Any]) -> str:
    return f"{told['name']} = {told['value']}  ({clean(_from(told))})"


def _get(asked: Asked) -> int:
    name: str = asked.options.name
    refuse_unknown(name)
    found = _look(asked)
    if name == "retention":
        from takeback.model.settings import PRESETS

        told = [_json(found, one) for one in PRESETS["small"]]
        asked.screen.give({"settings": told, "troubles": list(found.troubles)})
    else:
        told = [_json(found, name)]
        asked.screen.give({**told[0], "troubles": list(found.troubles)})
    for one in told:
        asked.screen.say(_in_words(one))
    _tell_troubles(asked, found)
    return 0


def _list(asked: Asked) -> int:
    found = _look(asked)
    told = [_json(found, name) for name in Settings._fields]
    asked.screen.give({"settings": told, "troubles": list(found.troubles)})
    for one in told:
        asked.screen.say(f"{one['name']:<18} {one['value']:>14}  {clean(_from(one))}")
    _tell_troubles(asked, found)
    return 0


def _place(asked: Asked) -> SettingsTable:
    if asked.options.project:
        files = project_files_at(os.getcwd())
        return SettingsTable(files[-1] if files else os.path.join(os.getcwd(), PROJECT_FILE), of_project=True)
    store = _store_name(asked)
    return SettingsTable(user_files()[0], "" if store == usual_path() else store)


def _change(asked: Asked) -> int:
    options, place, store = asked.options, _place(asked), _store_name(asked)
    name: str = options.name
    sets: dict[str, int | str] = {}
    if options.action == "set":
        sets[name] = value_meant(name, options.value, options.project)
    moves = not (nothing_yet(asked) or options.project or is_remote(store)) and waiting(store)
    _refuse_foreign(place)
    if options.dry_run:
        return _would(asked, holding(place, name, store), sets, where_to(store, place).shown if moves else "")
    moved = move(store, place) if moves else None
    place = holding(place, name, store)
    had = name in said_in(place)
    if not sets and not had:
        refuse_unknown(name)
    if sets or had:
        change(place, sets, () if sets else (name,))
    found = _look(asked)
    counts = [_json(found, one) for one in _named(name)]
    asked.screen.give({
        "name": name, "file": place.file, "table": place.shown, "changed": bool(sets) or had,
        "moved": moved.shown if moved else None, "counts": counts, "troubles": list(found.troubles),
    })  # fmt: skip
    if moved:
        said = f"What {SETTINGS_FILE} of the store said is in {moved.file} now, in {moved.shown}."
        asked.screen.say(clean(said))
    if not sets and not had:
        asked.screen.say(f"{name} is not set in {clean(place.file)}, so it was not changed.")
    for one in counts:
        asked.screen.say(_in_words(one))
        if sets and one["file"] != place.file:
            asked.screen.say(f"What {clean(place.file)} says does not count here.")
    _tell_troubles(asked, found)
    return 0


def _would(asked: Asked, place: SettingsTable, sets: dict[str, int | str], moves: str) -> int:
    name = asked.options.name
    had = name in said_in(place)
    if not sets and not had:
        refuse_unknown(name)
    changed(place, sets, () if sets else (name,))  # refused as it would be
    does = f"set {name} to {sets[name]}" if sets else f"remove {name}"
    where = f"in {clean(place.file)}, {clean(place.shown)}"
    told = {"name": name, "file": place.file, "table": place.shown, "changed": bool(sets) or had}
    asked.would({**told, "moved": moves or None}, f"Would {does} {where}." if sets or had else
                f"{name} is not set {where}.")  # fmt: skip
    if moves:
        asked.screen.say(f"What {SETTINGS_FILE} of the store says would move to {clean(moves)} first.")
    return 0


def _named(name: str) -> tuple[str, ...]:
    from takeback.model.settings import PRESETS

    if name == "retention":
        return tuple(PRESETS["small"])
    return (name,) if name in Settings._fields else ()


def _refuse_foreign(place: SettingsTable) -> None:
    """Who may write to it could have written it: then it does not count, and saying that it was set would be untrue."""
    if place.of_project or not os.path.lexists(place.file):
        return
    from takeback.policy.parse import PolicyInvalid
    from takeback.runs.policy_files import read_layer

    try:
        read_layer(place.file, Level.USER)
    except PolicyInvalid:
        return  # what was written then says so; TOML that cannot be read is refused by the edit
    except Refused:
        raise
    except TakebackError:
        return


COMMAND = Command(_config, mixed=True, parts=_PARTS, does=Does.CHANGES)
