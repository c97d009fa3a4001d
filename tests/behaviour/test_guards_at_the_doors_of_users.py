"""What can be armed from outside refuses at every door of users: a store that is suspect, and a change of the store."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from takeback.model.effect import State
from takeback.testing.door_suite import DoorScene
from tests.doors.calls import CallDoor
from tests.doors.databases import (
    CASCADE,
    SEVERAL,
    DatabaseDoor,
    Door,
    RedisDoor,
    door_of,
    program,
    reviewed,
    statement,
    transaction,
)
from tests.doors.files import PROGRAMS, VERBS, FileDoor
from tests.servers.redis import RedisDatabase
from tests.sql.redis_cases import named

SOURCES = Path(takeback.__file__).parent
_WAYS = ((statement, CASCADE), (transaction, SEVERAL), (reviewed, SEVERAL), (program, SEVERAL))


def databases(*engines: str) -> list[Door]:
    return [Door(engine, make, story) for engine in engines for make, story in _WAYS]


def around(place: Path) -> Path:
    """A directory in a store."""
    takeback.open(place).close()
    inside = place / "inside"
    inside.mkdir()
    return inside


def refused(scene: DoorScene, suspect: bool) -> None:
    """Nothing is changed, and nothing is recorded as done."""
    before = scene.world()
    with takeback.open(scene.store) as tb:
        run = tb.session("laws")
        if suspect:
            Path(scene.store, "SUSPECT").touch()
        with pytest.raises(takeback.TakebackError) as told:
            scene.make(run, "")
        kinds = (takeback.ResourceUnreachable,) if suspect else (takeback.Refused, takeback.Misuse)
        assert isinstance(told.value, kinds), told.value
        assert not tb.effects(state=State.DONE)
    Path(scene.store, "SUSPECT").unlink(missing_ok=True)
    assert scene.world() == before


class TestFiles:
    @pytest.fixture(params=(*VERBS, *PROGRAMS), ids=lambda story: story.door)
    def scene(self, request: pytest.FixtureRequest, tmp_path: Path) -> FileDoor:
        return FileDoor(tmp_path, request.param)

    def test_a_suspect_store_refuses(self, scene: FileDoor) -> None:
        refused(scene, suspect=True)


# In a sandbox a command does not see the store at all.
WATCHES = tuple(one for one in PROGRAMS if one.door.startswith("run.watch"))


class TestFilesOfTheStore:
    @pytest.fixture(params=(*VERBS, *WATCHES), ids=lambda story: story.door)
    def scene(self, request: pytest.FixtureRequest, tmp_path: Path) -> FileDoor:
        scene = FileDoor(around(tmp_path), request.param)
        scene.store = os.fspath(tmp_path)
        return scene

    def test_a_change_of_the_store_itself_is_refused(self, scene: FileDoor) -> None:
        refused(scene, suspect=False)


class TestSqlite:
    @pytest.fixture(params=databases("sqlite"), ids=str)
    def scene(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DatabaseDoor]:
        yield from door_of(request, tmp_path)

    def test_a_suspect_store_refuses(self, scene: DatabaseDoor) -> None:
        refused(scene, suspect=True)


class TestSqliteInTheStore:
    @pytest.fixture(params=databases("sqlite"), ids=str)
    def scene(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DatabaseDoor]:
        for scene in door_of(request, around(tmp_path)):
            scene.store = os.fspath(tmp_path)
            yield scene

    def test_a_change_of_the_store_itself_is_refused(self, scene: DatabaseDoor) -> None:
        refused(scene, suspect=False)


# A server and a function are never a part of the store.


@pytest.mark.sampled(4, always=("postgres, one statement: delete with cascade",))
@pytest.mark.needs("mariadbd", "mariadb-install-db")
class TestServers:
    @pytest.fixture(params=databases("postgres", "mariadb"), ids=str)
    def scene(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DatabaseDoor]:
        yield from door_of(request, tmp_path)

    def test_a_suspect_store_refuses(self, scene: DatabaseDoor) -> None:
        refused(scene, suspect=True)


def test_redis_is_refused_by_a_suspect_store(redis_database: RedisDatabase, tmp_path: Path) -> None:
    (case,) = named("SET with an expiry")
    refused(RedisDoor(tmp_path, redis_database, statement, case), suspect=True)


def test_a_call_is_refused_by_a_suspect_store(tmp_path: Path) -> None:
    refused(CallDoor(tmp_path), suspect=True)


# The doors are in the engine: what begins an effect, or carries it out, is nowhere else.

ELSEWHERE = ("adapters", "api", "audit", "frontends", "policy", "retention", "runs", "sandbox")


def walked(tree: ast.AST) -> Iterator[ast.AST]:
    """All but comparisons, and the kinds of records that a journal is asked for: they only look."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, ast.Compare) and getattr(child, "arg", "") != "kinds":
            yield from walked(child)


def begins_or_applies(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and node.attr in ("INTENT", "PROPOSE"):
        return isinstance(node.value, ast.Name) and node.value.id == "Kind"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "apply":
        return "adapter" in ast.unparse(node.func.value)
    return False


def test_no_module_outside_the_engine_begins_an_effect_or_carries_it_out() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{getattr(node, 'lineno', 0)}"
        for area in ELSEWHERE
        for path in (SOURCES / area).rglob("*.py")
        for node in walked(ast.parse(path.read_text()))
        if begins_or_applies(node)
    ]
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        "journal.append(lease, [as_draft(Kind.INTENT, effect)])",
        "draft(parts, Kind.PROPOSE, effect)",
        "adapter_of(parts, name).apply(effect)",
        "receipt = made.adapter.apply(effect)",
    ],
)
def test_the_rule_sees(line: str) -> None:
    assert any(map(begins_or_applies, ast.walk(ast.parse(line))))
