"""Where ways back are tried: a layer over the world, with the store in it, thrown away at the end."""

import json
import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from takeback.engine.parts import Parts
from takeback.errors import ResourceUnreachable
from takeback.model.mounts import inside, mount_table
from takeback.model.resource import file_resource
from takeback.runs.commands.request import Pipes
from takeback.runs.commands.scratch import room_of, workshop
from takeback.runs.rehearsals.manifest import ABSENT, difference, found_at

PLACE = "rehearsals"  # below the store; each rehearsal has a directory of its own in it
_INSIDE = "takeback.api.rehearsal_inside"
_START = "import sys; sys.path[:] = {path!r}; from {module} import main; main()"
_LAST_LINES = 3


class Copies(NamedTuple):
    """Databases are copied whole before the layer is laid: what lies below a layer must not change while it is read."""

    journal: str
    files: Mapping[str, str]  # of SQLite files that were changed: where each has its copy


class LayerAnswer(NamedTuple):
    told: tuple[dict[str, Any], ...]
    trouble: str  # why it ended early; "" if it did not
    left: tuple[tuple[str, str], ...] = ()  # resources that differ from the world at the end, and how


def no_room(parts: Parts) -> str:
    """Why nothing can be rehearsed in a layer here; "" if it can."""
    try:
        room_of(parts)
    except ResourceUnreachable as error:
        return str(error)
    return ""


def rehearse_in_layer(
    parts: Parts,
    store: str,
    request: Mapping[str, Any],
    databases: Sequence[str] = (),
    network: bool = False,
    ours: Sequence[str] = (),
) -> LayerAnswer:
    """`request` is carried out by a process that sees the world and the store through a layer. Nothing that it does
    reaches either. The end state is compared with the world, except below the directories that are
    `ours`."""
    from takeback.sandbox.protocol import Order, Stack
    from takeback.sandbox.sandbox import Sandbox

    able = room_of(parts).able
    with workshop(os.path.join(able.layers_at, PLACE)) as mine:
        copies = _copied(mine, store, databases)
        table = os.path.join(mine, "mounts")
        with open(table, "xb") as file:
            file.write(mount_table())
        asked = {
            **request,
            "store": store,
            "mounts": table,
            "journal": copies.journal,
            "databases": dict(copies.files),
        }
        code = _START.format(path=[path for path in sys.path if path], module=_INSIDE)
        rooms = os.path.join(mine, "room")
        os.mkdir(rooms, 0o700)
        with Pipes(json.dumps(asked).encode()) as printed, Sandbox(rooms) as sandbox:
            env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
            # A layer is laid over the directory of an ordinary user's store, too, because it is where we stand.
            order = Order(
                (sys.executable, "-c", code), store, env, printed.stdio, network=network,
                keep_empty=False,
            )  # fmt: skip
            layer = os.path.join(mine, "thrown-away")
            ended = sandbox.run(order, Stack(), layer, printed)
        left = tuple(_left(layer, (store, *ours))) if ended.layer else ()
    told: list[dict[str, Any]] = []
    for line in printed.stdout.splitlines():
        try:
            told.append(json.loads(line))
        except ValueError:
            break  # it was killed while it wrote
    if told and "end" in told[-1]:
        return LayerAnswer(tuple(told[:-1]), "", left)
    if ended.stopped:
        return LayerAnswer(
            tuple(told), "it took too long" if ended.stopped == "time" else "it needed too much memory"
        )
    said = printed.stderr.decode(errors="replace").strip().splitlines()[-_LAST_LINES:]
    why = "; ".join(said) or ended.unstarted or f"exit code {ended.exit_code}"
    return LayerAnswer(tuple(told), f"its process ended early ({why})")


def _left(layer: str, ours: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What the layer holds that is not in the world, or is there in another way."""
    from takeback.sandbox.differences import differences
    from takeback.sandbox.protocol import Stack

    for one in differences(layer, Stack()):
        if any(inside(one.path, os.fsencode(place)) for place in ours):
            continue
        there = found_at(one.path)
        here = found_at(one.source) if one.source else ABSENT
        if words := difference(there, here):
            yield file_resource(one.path), words


def _copied(mine: str, store: str, databases: Sequence[str]) -> Copies:
    journal = os.path.join(mine, "journal.db")
    copy_database(os.path.join(store, "journal.db"), journal)
    files: dict[str, str] = {}
    for number, path in enumerate(dict.fromkeys(databases)):
        if os.path.isfile(path):
            files[path] = os.path.join(mine, f"{number}.db")
            copy_database(path, files[path])
    return Copies(journal, files)


def copy_database(path: str, copy: str) -> None:
    """As it is at one moment, also while others write to it."""
    uri = "file:" + "".join(c if c not in "?#%" else f"%{ord(c):02x}" for c in os.path.abspath(path))
    try:
        with (
            closing(sqlite3.connect(f"{uri}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
    except sqlite3.Error as error:
        raise ResourceUnreachable(f"{path} could not be copied for the rehearsal: {error}.") from error
