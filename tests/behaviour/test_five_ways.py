"""The five ways agents break things (MISSION A3), end to end."""

import pytest

import takeback
from takeback import checks
from tests.behaviour.conftest import Scene


def test_a_corrupted_configuration_never_reaches_its_readers(scene: Scene) -> None:
    scene.put("app.json", '{"port": 80}')
    before = scene.world.picture(directory_times=True)

    with pytest.raises(takeback.ValidationFailed), scene.tb.run("corrupt it") as run:
        run.write(scene.world / "app.json", '{"port": 80', checks=[checks.json()])

    assert scene.world.picture(directory_times=True) == before
    assert scene.tb.effects() == ()


def test_a_silent_overwrite_is_found_in_the_log_and_taken_back(scene: Scene) -> None:
    scene.put("notes.txt", "an hour of work")
    before = scene.world.picture()
    scene.write("notes.txt", "# TODO")

    (effect,) = scene.tb.effects(path=scene.world / "notes.txt")
    scene.tb.undo(effect)

    assert scene.world.picture() == before


def test_a_cascading_failure_is_taken_back_with_everything_that_stood_on_it(scene: Scene) -> None:
    scene.put("schema.sql", "v1")
    before = scene.world.picture()
    wrong = scene.write("schema.sql", "v2, wrong")
    with scene.tb.run("build on it", agent="another") as run:
        run.write(scene.world / "models.py", "from v2", needs=[wrong])
        run.write(scene.world / "unrelated.txt", "stays")

    scene.tb.undo(wrong, cascade=True)

    after = scene.world.picture()
    assert after.pop(b"unrelated.txt")["size"] == len("stays")
    assert after == before


def test_a_partial_mutation_of_many_steps_undoes_itself(scene: Scene) -> None:
    scene.put("a.conf", "a")
    scene.put("b.conf", "b")
    before = scene.world.picture()

    with pytest.raises(RuntimeError, match="step"), scene.tb.run("five steps") as run:
        run.write(scene.world / "a.conf", "new a")
        run.move(scene.world / "b.conf", scene.world / "c.conf")
        run.mkdir(scene.world / "d")
        run.symlink(scene.world / "d" / "link", "../a.conf")
        run.chmod(scene.world / "a.conf", 0o600)
        raise RuntimeError("the sixth step failed")

    assert scene.world.picture() == before


def test_a_write_that_only_works_elsewhere_is_taken_back_by_its_functional_check(scene: Scene) -> None:
    scene.put("server.conf", "listen 80")
    before = scene.world.picture()
    healthy = checks.after(lambda staged: "port 443 is not free on this machine", name="health")

    with pytest.raises(takeback.VerifyFailed, match="443"), scene.tb.run("deploy") as run:
        run.write(scene.world / "server.conf", "listen 443", checks=[healthy])

    assert scene.world.picture() == before
