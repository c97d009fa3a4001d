"""A server that is away is waited for once, not by each who has something to write down."""

from collections.abc import Callable
from typing import Any

import pytest

from takeback.errors import ServerUnreachable
from takeback.storage.postgres import database
from takeback.storage.postgres.connection import Address
from takeback.storage.postgres.database import PATIENCE, PostgresDatabase


class Clock:
    """Time passes by sleeping only."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Server:
    """It is away until it is back."""

    def __init__(self) -> None:
        self.back = False
        self.tries = 0

    def connect(self, address: Address) -> Any:
        self.tries += 1
        if self.back:
            return object()
        raise ServerUnreachable("Nobody answers.")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(database, "time", clock)
    return clock


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(database, "connect", server.connect)
    return server


def waited(clock: Clock, ask: Callable[[], object]) -> float:
    begun = clock.now
    with pytest.raises(ServerUnreachable):
        ask()
    return clock.now - begun


def ways(store: PostgresDatabase) -> list[Callable[[], object]]:
    def write() -> None:
        with store.write():
            raise AssertionError("there is no server")

    return [
        lambda: store.read("SELECT 1"),
        lambda: store.once(lambda session, again: None),
        write,
        store.another,
    ]


@pytest.mark.parametrize("first", range(4))
def test_it_is_waited_for_once_and_then_tried(clock: Clock, server: Server, first: int) -> None:
    store = PostgresDatabase(Address("postgresql://nowhere/none"))
    assert PATIENCE - 2 < waited(clock, ways(store)[first]) <= PATIENCE
    for ask in ways(store):
        tries = server.tries
        assert (waited(clock, ask), server.tries) == (0, tries + 1)


def test_it_is_waited_for_again_when_it_was_back_or_nobody_has_tried_for_long(
    clock: Clock, server: Server
) -> None:
    store = PostgresDatabase(Address("postgresql://nowhere/none"))
    ask = store.another
    waited(clock, ask)
    server.back = True
    ask()
    server.back = False
    assert waited(clock, ask) > PATIENCE - 2
    clock.sleep(PATIENCE)
    assert waited(clock, ask) > PATIENCE - 2


def test_who_does_not_wait_at_all_does_not_keep_others_from_it(clock: Clock, server: Server) -> None:
    store = PostgresDatabase(Address("postgresql://nowhere/none"))
    assert waited(clock, lambda: store.kept(clock.monotonic())) == 0
    assert waited(clock, store.another) > PATIENCE - 2
