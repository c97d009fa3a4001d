"""The console with 200,000 effects in the store: how soon its pages are there, asked over HTTP."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import takeback
from takeback.frontends.console.serve import Served, ServingWishes, serve
from tests.bench.measure import Line, Subject, Table, Wishes, in_turns, seconds_of
from tests.bench.scale import FEW, Scene, scene_of
from tests.console.conftest import Client

MANY = 200_000
BOUND = 0.3  # seconds for the first page


def measure(wishes: Wishes) -> Table:
    many = 2_000 if wishes.quick else MANY
    scenes = {
        "few": scene_of(os.path.join(wishes.directory, "few"), FEW),
        "many": scene_of(os.path.join(wishes.directory, "many"), many),
    }
    pages = {
        "the first page": "/",
        "the newest of one agent": "/?agent=agent+3",
        "what touched one path": "/?path=",
        "an old effect": "/effect/",
        "its plan": "/undo?effect=",
        "a search that finds nothing": "/?q=nothing-has-this-name",
        "runs": "/runs",
    }
    subjects: dict[str, Subject] = {}
    with served(scenes["few"]) as few, served(scenes["many"]) as client:
        for name, page in pages.items():
            for size, asks, scene in (("few", few, scenes["few"]), ("many", client, scenes["many"])):
                end = scene.old if page.endswith(("/effect/", "effect=")) else ""
                subjects[f"{name} {size}"] = _asking(asks, f"{page}{end}")
        taken = in_turns(subjects, wishes.rounds)
    lines = [
        Line(name, taken[f"{name} many"], "s", f"{FEW} effects", taken[f"{name} few"], None, "cost")
        for name in pages
    ]
    notes = (
        f"over loopback, from the request to the last byte; the bound of the first page is {BOUND * 1000:.0f} ms",
    )
    return Table(f"Pages of the console with {many:,} effects", tuple(lines), notes)


def _asking(client: Client, path: str) -> Subject:
    def act() -> None:
        got = client.get(path)
        if got.status != 200:
            raise SystemExit(f"{path} was answered with {got.status}: {got.words[:300]}")

    return lambda: seconds_of(act, 3)


@contextmanager
def served(scene: Scene) -> Iterator[Client]:
    """Someone who is signed in at a console of this store."""
    told: list[Served] = []
    there = threading.Event()

    def tell(one: Served) -> None:
        told.append(one)
        there.set()

    with takeback.open(scene.store, recover=False) as tb:
        thread = threading.Thread(target=serve, args=(tb, ServingWishes(), tell))
        thread.start()
        there.wait(60)
        client = Client(told[0].address)
        client.enter(told[0].link)
        try:
            yield client
        finally:
            told[0].end()
            thread.join()
