"""Where large blobs are is written in the store: nobody can open it otherwise."""

import os
from pathlib import Path

import pytest

import takeback
from takeback.errors import Misuse, ResourceUnreachable
from tests.servers.postgres import PgDatabase


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(tmp_path / "state"))
    (tmp_path / "world").mkdir()
    return tmp_path / "world"


def test_said_once_the_store_knows_it(world: Path, pg_database: PgDatabase, bucket: str) -> None:
    content = os.urandom(200_000)
    (world / "file").write_bytes(content)
    with takeback.open(pg_database.url, blobs=bucket) as tb, tb.run("work") as run:
        effect = run.write(world / "file", b"new")
    with pg_database.connect() as connection:
        assert connection.execute("select count(*), count(data) from takeback_store.shelf").fetchone() == (
            1,
            0,
        )
    with takeback.open(pg_database.url) as tb:
        assert tb.verify(read_data=True).sound
        tb.undo(effect)
    assert (world / "file").read_bytes() == content


def test_another_place_is_refused(world: Path, pg_database: PgDatabase, bucket: str) -> None:
    (world / "file").write_bytes(os.urandom(200_000))
    with takeback.open(pg_database.url) as tb, tb.run("work") as run:
        run.write(world / "file", b"new")
    with pytest.raises(Misuse, match="PostgreSQL itself"):
        takeback.open(pg_database.url, blobs=bucket)
    for wrong in ("s3://", "file:///tmp", "s3://user@bucket"):
        with pytest.raises(Misuse):
            takeback.open(pg_database.url, blobs=wrong)


def test_a_bucket_that_is_not_there_refuses_the_change_before_it_is_made(
    world: Path, pg_database: PgDatabase, bucket: str
) -> None:
    content = os.urandom(200_000)
    (world / "file").write_bytes(content)
    with (
        takeback.open(pg_database.url, blobs="s3://there-is-no-such-bucket") as tb,
        pytest.raises(ResourceUnreachable),
        tb.run("work") as run,
    ):
        run.write(world / "file", b"new")
    assert (world / "file").read_bytes() == content


def test_a_copy_moves_them(world: Path, pg_database: PgDatabase, bucket: str, tmp_path: Path) -> None:
    content = os.urandom(200_000)
    (world / "file").write_bytes(content)
    with takeback.open(tmp_path / "disk") as tb:
        with tb.run("work") as run:
            effect = run.write(world / "file", b"new")
        tb.copy_to(pg_database.url, blobs=bucket)
    with takeback.open(pg_database.url) as tb:
        assert tb.store.read("SELECT blobs FROM store") == [(bucket,)]
        tb.undo(effect.id)
    assert (world / "file").read_bytes() == content
