"""The PostgreSQL adapter keeps every law, for each way to change rows."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from takeback.adapters.postgres.adapter import PostgresAdapter
from takeback.model.change import Change
from takeback.testing.adapter_suite import AdapterSuite
from tests.sql.pg_bench import PgBench

BEGIN = (
    "drop table if exists toys, children, scraps",
    "create table children (id int primary key, name text unique, born date)",
    "create table toys (id int generated always as identity primary key, "
    "owner int references children on delete cascade on update cascade, name text)",
    "create table scraps (what text, many int)",
    "insert into children values (1, 'Ann', '2015-01-02'), (2, 'Bob', null), (3, 'Cy', '2017-03-04')",
    "insert into toys (owner, name) values (1, 'ball'), (1, 'kite'), (2, 'top')",
    "insert into scraps values ('a', 1), ('a', 1), ('b', 2)",
)


class Story(NamedTuple):
    name: str
    statements: tuple[str, ...]
    disturb: str


ZOE = "insert into children values ({}, 'Zoe', null) on conflict (id) do update set name = 'Zoe'"
STORIES = [
    Story("update", ("update children set name = name || '!', born = '2020-01-01'",),
          "update children set born = '1999-09-09'"),
    Story("insert", ("insert into children values (4, 'Di', null)",), ZOE.format(4)),
    Story("delete with cascade", ("delete from children where id = 1",), ZOE.format(1)),
    Story("several statements",
          ("update toys set name = 'x'", "delete from toys where id = 2",
           "insert into scraps values ('a', 1), ('c', 3)"),
          "update toys set name = 'mine' where id = 1"),
    Story("truncate", ("truncate children restart identity cascade",), ZOE.format(2)),
]  # fmt: skip


class PgScene:
    def __init__(self, bench: PgBench, story: Story) -> None:
        self.bench, self.story = bench, story
        self.blobs = bench.blobs
        self.reset()

    def adapter(self) -> PostgresAdapter:
        return self.bench.adapter()

    def change(self) -> Change:
        return self.bench.script(*self.story.statements)

    def world(self) -> Any:
        return self.bench.world()

    def reset(self) -> None:
        self.bench.run(*BEGIN)
        self.bench.protect()

    def disturb(self) -> None:
        self.bench.run(self.story.disturb)


@pytest.mark.sampled(8, always=("several statements",), only=("killed", "let_go_of"))
class TestPostgresAdapter(AdapterSuite):
    stride = 400

    @pytest.fixture(params=STORIES, ids=lambda story: story.name)
    def scene(self, request: pytest.FixtureRequest, pg_database: Any) -> Iterator[PgScene]:
        bench = PgBench(pg_database.url)
        yield PgScene(bench, request.param)
        bench.close()


@pytest.mark.slow
@pytest.mark.timeout(1200)
class TestPostgresAdapterAtMorePoints(TestPostgresAdapter):
    stride = 53
