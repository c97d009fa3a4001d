"""The console on a store that several machines share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from takeback.api import Takeback
from takeback.model.effect import State
from tests.calls import post
from tests.calls.post import send_mail
from tests.console.conftest import Serve
from tests.servers.postgres import PgDatabase
from tests.world import World


@pytest.fixture
def store(pg_store_database: PgDatabase, private_surroundings: Path) -> str:
    return pg_store_database.url


@pytest.fixture
def tb(store: str) -> Iterator[Takeback]:
    with takeback.open(store) as opened:
        yield opened


def test_what_lies_on_another_machine_is_left_to_that_machine(
    store: str, world: World, serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world / "file").write_text("old\n")
    monkeypatch.setenv("TAKEBACK_MACHINE", "one")
    with takeback.open(store) as there, there.run("edit", agent="deployer") as run:
        effect = run.write(world / "file", "new\n")
    monkeypatch.setenv("TAKEBACK_MACHINE", "two")
    console = serving()
    client = console.client()

    assert f"/effect/{effect.id}" in client.get("/").text
    page = client.get(f"/effect/{effect.id}")
    assert "done on another machine, and its files are there" in page.words and "Undo…" not in page.words
    for query in (f"effect={effect.id}", f"run={effect.run}"):
        plan = client.get(f"/undo?{query}")
        assert "was done on another machine. Its files are there, not here." in plan.words
        assert f"On that machine: `takeback undo {effect.id[:8]}`" in plan.words
        assert "exactly this" not in plan.words
        name, _, value = query.partition("=")
        assert client.post("/undo", {name: value, "digest": "0" * 64}).status == 409
    assert (world / "file").read_text() == "new\n"
    assert console.tb.effect(effect.id).state is State.DONE


def test_a_request_is_approved_and_the_agent_goes_on(
    tb: Takeback, serving: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POST", str(tmp_path / "post"))
    client = serving().client()
    with tb.run("write", agent="writer") as run:
        with pytest.raises(takeback.AwaitingApproval):
            run.call(send_mail, "anna", key="mail-1")
        (effect,) = tb.pending()
        page = client.get(f"/approval/{effect.id}")
        words = page.text.partition("type <q>")[2].partition("</q>")[0]
        answer = {**page.fields, "decision": "approve", "answer": words}
        assert client.post(f"/approval/{effect.id}", answer).status == 303
        run.call(send_mail, "anna", key="mail-1")
    assert post.sent() == ["mail anna hello"]
