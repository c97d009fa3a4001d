"""A name that there is not: the hint tells which one was most likely meant."""

import pytest

import takeback
from takeback.model.ids import short
from tests.behaviour.conftest import Scene


def hint(scene: Scene, name: str) -> str:
    with pytest.raises(takeback.Misuse) as error:
        scene.tb.effect(name)
    return error.value.hint


def test_an_id_with_a_wrong_letter(scene: Scene) -> None:
    effects = [scene.write(f"f{number}", "1") for number in range(5)]
    meant = short(effects[2].id)

    for place in (0, 3, 7):
        wrong = meant[:place] + "u" + meant[place + 1 :]
        assert (
            hint(scene, wrong)
            == f"Did you mean {meant} ({effects[2].change.summary})? `takeback log` lists them."
        )
    assert hint(scene, effects[2].id[:-1] + "u").startswith(f"Did you mean {meant} ")


def test_an_id_with_letters_that_no_id_has(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("takeback.engine.write.new_id", lambda: "01ab01ab01ab01ab01ab")
    scene.write("f", "1")

    assert hint(scene, "olabOiab").startswith("Did you mean 01ab01ab (write ")


def test_the_name_of_a_run(scene: Scene) -> None:
    with scene.tb.run("enable TLS"):
        pass

    for wrong in ("enable tls", "enabel TLS", "enable"):
        assert hint(scene, wrong) == "Did you mean 'enable TLS'? `takeback log` lists them."
        with pytest.raises(takeback.Misuse) as error:
            scene.tb.find_run(wrong)
        assert error.value.hint == "Did you mean 'enable TLS'? `takeback runs` lists them."


def test_the_name_of_a_checkpoint(scene: Scene) -> None:
    with scene.tb.run("migrate") as run:
        run.checkpoint("before-migrate")

    with pytest.raises(takeback.Misuse) as error:
        scene.tb.undo_to("before-migration")

    assert error.value.hint == "Did you mean 'before-migrate'? `takeback checkpoints` lists them."


def test_what_is_like_nothing_there_is_no_guess(scene: Scene) -> None:
    scene.write("f", "1")

    assert hint(scene, "quite another thing") == "`takeback log` lists them."
    with pytest.raises(takeback.Misuse) as error:
        scene.tb.undo_to("quite another thing")
    assert error.value.hint == "`takeback checkpoints` lists them."
