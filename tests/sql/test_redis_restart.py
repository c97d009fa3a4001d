"""A server that is killed, or that comes back without what it had: mark and change are there together, or neither."""

import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import takeback
from takeback.api import opened_of
from takeback.errors import Unavailable
from takeback.model.effect import Effect
from tests.servers.fixtures import needed, running
from tests.servers.place import Place
from tests.servers.redis import Redis, of_the_system


@pytest.fixture(params=["always", "everysec", "no"])
def server(request: pytest.FixtureRequest, server_place: Place) -> Iterator[Redis]:
    program = needed(of_the_system(), "redis-tools")
    with running(
        Redis(program, server_place.own / f"redis-{request.param}", {"appendfsync": request.param})
    ) as server:
        yield server


def marked(tb: takeback.Takeback, effect: Effect) -> bool:
    return opened_of(tb).parts.adapters["redis"].verify(effect).standing == "after"


@pytest.mark.slow
def test_a_server_killed_in_the_middle_has_each_effect_whole_or_not_at_all(
    server: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_REDIS", server.url())
    chance = random.Random(7)
    with takeback.open(tmp_path / "store") as tb:
        for turn in range(4):
            _work_until_killed(tb, server, turn, chance.randrange(1, 12))
            server.start()
            tb.recover()
            with closing(server.connect()) as client:
                for effect in (one for one in tb.effects() if not one.is_undo):
                    name = effect.change.summary.split()[1]
                    if not name.startswith(f"k{turn}-"):
                        continue
                    there = client.get(name), client.hget("all", name)
                    assert there in ((b"1", b"1"), (None, None)), (turn, name)
                    done = effect.state == "done"
                    assert done == marked(tb, effect) == (there == (b"1", b"1")), (turn, name, effect.state)


def _work_until_killed(tb: takeback.Takeback, server: Redis, turn: int, after: int) -> None:
    """The run is kept, whatever becomes of it: what was answered must be there."""
    dying = -1
    try:
        with tb.run("work") as run, run.sql("env:APP_REDIS") as db:
            for number in range(20):
                name = f"k{turn}-{number}"
                if number == after:
                    dying = os.fork()
                    if dying == 0:
                        os.kill(server.pid, 9)
                        os._exit(0)
                with db.transaction(f"step {name}"):
                    db.execute("SET", [name, "1"])
                    db.execute("HSET", ["all", name, "1"])
                tb.accept(tb.effects(limit=1)[0])
    except Unavailable:
        return
    finally:
        if dying > 0:
            os.waitpid(dying, 0)
        server.kill()


def test_a_server_that_lost_everything_lost_the_effect_too(
    server_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = needed(of_the_system(), "redis-tools")
    with running(Redis(program, server_place.own / "redis-forgets", {"appendonly": "no"})) as server:
        monkeypatch.setenv("APP_REDIS", server.url())
        with takeback.open(tmp_path / "store") as tb:
            with tb.run("work") as run, run.sql("env:APP_REDIS") as db:
                made = db.execute("SET", ["k", "v"]).effect
            assert made is not None and marked(tb, made)
            server.kill()
            with pytest.raises(takeback.ResourceUnreachable):
                marked(tb, made)
            server.start()
            assert not marked(tb, made)
            assert {one.outcome.value for one in tb.undo(made).targets} == {"already"}
