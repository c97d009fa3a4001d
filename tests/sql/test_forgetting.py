"""What is forgotten is let go of in the database too, also when it could not be reached at first."""

import os
import sqlite3
from pathlib import Path

import pytest

import takeback
from takeback.api import Takeback
from tests.sql.conftest import SET_UP


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    for statement in SET_UP:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


def images(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT count(*) FROM takeback_image").fetchone()[0]
    finally:
        connection.close()


def test_the_images_go_with_the_power_to_undo(tb: Takeback, shop: Path) -> None:
    with tb.run("agent") as run:
        effect = run.sql(f"sqlite:///{shop}").execute("DELETE FROM users").effect
    assert effect and images(shop) > 0
    tb.forget(effect)
    assert images(shop) == 0
    with pytest.raises(takeback.Refused, match="undo data was deleted"):
        tb.undo(effect)
    for one in (effect, tb.effect(effect.id)):
        with pytest.raises(
            takeback.Refused, match="forgotten: the rows that it changed are no longer kept"
        ) as told:
            tb.rows(one)
        assert "takeback show" in told.value.hint


def test_a_database_that_is_away_is_asked_again_by_the_next_sweep(
    tmp_path: Path, tb: Takeback, shop: Path
) -> None:
    with tb.run("agent") as run:
        effect = run.sql(f"sqlite:///{shop}").execute("DELETE FROM users").effect
    assert effect
    away = tmp_path / "away.db"
    os.rename(shop, away)
    tb.forget(effect)
    tb.sweep()
    os.rename(away, shop)
    assert images(shop) > 0
    tb.sweep()
    assert images(shop) == 0
    assert os.listdir(os.path.join(tb.path, "held")) == []
