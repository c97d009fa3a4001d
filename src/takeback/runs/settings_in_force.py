"""Which settings count for a store: its own, and those of the files of the administrator, the user and the project.

What the administrator sets wins. Then what is set for this store alone: by itself (a table in PostgreSQL, settings.json
on disk), then by the user's file. Then the project's file that a person trusted, then the user's for all stores.
"""

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from takeback.errors import TakebackError
from takeback.runs.policies import ADMINISTRATOR, KEPT, project_files_at, user_files
from takeback.storage.store import Store

if TYPE_CHECKING:
    from takeback.policy.rules import Layer

SETTINGS, STORES, OWN = "settings", "stores", "own"


class SetValue(NamedTuple):
    """A value, and what says so."""

    value: int
    file: str = ""  # empty: the default; of the store itself: its name
    table: str = ""
    store: str = ""  # for which alone the file sets it


def read_settings(store: Store, administrator: str = ADMINISTRATOR) -> None:
    """Without a file this costs a few looks into directories. What counts of a file that cannot be understood is not
    known, so nothing is forgotten by policy; it stops changes by itself."""
    users = user_files()
    always = [one for one in (administrator, *users) if os.path.lexists(one)]
    projects = _here()
    if not always and not projects:
        return
    from takeback.runs.policy_files import PolicyFiles

    files = PolicyFiles(store, os.path.join(store.path, KEPT), administrator, users)
    layers: list[Layer] = []
    for file in always:
        try:
            layers += files.always((file,))
        except TakebackError as error:
            store.unclear = str(error)
    for file in projects:
        try:
            layers += files.of_projects((file,))
        except TakebackError:
            continue  # it decides nothing that could be lost
    found = in_force(layers, store.name, store.own_settings)
    store.settings = store.settings._replace(**{name: one.value for name, one in found.items()})


def _here() -> tuple[str, ...]:
    try:
        return project_files_at(os.getcwd())
    except OSError:
        return ()  # the current directory does not exist any more


def in_force(layers: "Iterable[Layer]", store: str, own: dict[str, int]) -> dict[str, SetValue]:
    """By name; those that are not set are left out."""
    found: dict[str, SetValue] = {}
    for one in _weakest_first(list(layers), store, own):
        found |= one
    return found


def _weakest_first(layers: "list[Layer]", store: str, own: dict[str, int]) -> Iterator[dict[str, SetValue]]:
    from takeback.policy.rules import Level

    users = [one for one in layers if one.level is Level.USER][
        ::-1
    ]  # the one that the environment names counts more
    yield from (_numbers(one, SETTINGS) for one in users)
    yield from (_numbers(one, SETTINGS) for one in layers if one.level is Level.PROJECT and one.trusted)
    yield from (_numbers(one, STORES, store) for one in users)
    yield {name: SetValue(value, store, OWN) for name, value in own.items()}
    for one in layers:
        if one.level is Level.ADMINISTRATOR:
            yield _numbers(one, SETTINGS)
            yield _numbers(one, STORES, store)


def _numbers(layer: "Layer", table: str, store: str = "") -> dict[str, SetValue]:
    from takeback.model.settings import given_settings

    given = dict(layer.settings if table == SETTINGS else dict(layer.stores).get(store, ()))
    return {
        name: SetValue(value, layer.file, table, store)
        for name, value in given_settings(given, layer.file).items()
    }
