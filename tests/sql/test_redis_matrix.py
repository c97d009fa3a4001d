"""Every kind of Redis command: taken back exactly, or refused and nothing changed."""

import pytest

from takeback.errors import Conflict, Refused, StatementFailed
from takeback.model.change import OnConflict
from takeback.model.plan import Outcome
from takeback.testing.adapter_suite import Desk, undo_of
from tests.servers.redis import RedisDatabase
from tests.sql.engines import intended
from tests.sql.redis_cases import CASES, EXACT, FAILS, NOTHING, READS, REFUSED
from tests.sql.redis_world import RedisScene


@pytest.fixture(params=CASES, ids=lambda case: f"{case.expect}-{case.name}")
def scene(request: pytest.FixtureRequest, redis_database: RedisDatabase) -> RedisScene:
    return RedisScene(redis_database, request.param)


@pytest.mark.sampled(8)
def test_a_command_does_what_the_table_says(scene: RedisScene) -> None:
    before = scene.world()
    {EXACT: _exact, NOTHING: _nothing, FAILS: _fails, REFUSED: _refused, READS: _reads}[scene.case.expect](
        scene
    )
    assert scene.world() == before


def _exact(scene: RedisScene) -> None:
    before = scene.world()
    effect = scene.do()
    assert effect
    after = scene.world()
    assert after != before
    taken_back = Desk(scene.adapter()).undo(effect)
    assert scene.world() == before
    Desk(scene.adapter()).undo(taken_back)
    assert scene.world() == after
    scene.disturb()
    disturbed = scene.world()
    outcomes = scene.adapter().assess(undo_of(effect), effect).outcomes
    assert Outcome.CONFLICT in {one.outcome for one in outcomes}
    with pytest.raises(Conflict):
        Desk(scene.adapter()).undo(effect)
    assert scene.world() == disturbed
    forced = Desk(scene.adapter()).undo(effect, OnConflict.FORCE)
    assert scene.world() == before
    Desk(scene.adapter()).undo(forced)
    assert scene.world() == disturbed
    Desk(scene.adapter()).undo(effect, OnConflict.FORCE)


def _nothing(scene: RedisScene) -> None:
    session = scene.adapter().connect(scene.found)
    try:
        session.begin(intended(scene.adapter(), scene.found, scene.case.name))
        for words in scene.case.commands:
            session.execute(str(words[0]), list(words[1:]))
        assert session.commit() is None
        assert len(session.answers) == len(scene.case.commands)
    finally:
        session.close()


def _fails(scene: RedisScene) -> None:
    with pytest.raises(StatementFailed) as error:
        scene.do()
    assert error.value.hint


def _refused(scene: RedisScene) -> None:
    with pytest.raises(Refused) as error:
        scene.do()
    assert error.value.hint
    (words,) = scene.case.commands
    session = scene.adapter().connect(scene.found)
    try:
        with pytest.raises(Refused):
            session.read(str(words[0]), list(words[1:]))
    finally:
        session.close()


def _reads(scene: RedisScene) -> None:
    (words,) = scene.case.commands
    session = scene.adapter().connect(scene.found)
    try:
        rows = session.read(str(words[0]), list(words[1:]))
    finally:
        session.close()
    assert rows is not None and len(rows.rows) == 1
