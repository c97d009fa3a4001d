"""In a store on a server, the server says who decides."""

import os
from contextlib import closing
from pathlib import Path

import pytest

import takeback
from takeback.api import opened_of
from takeback.engine.approval import decisions
from takeback.model.person import KnownBy
from tests.approvals.words import words
from tests.calls.post import send_mail
from tests.servers.postgres import PgDatabase
from tests.sql.pg_roles import guest_of, owner_of


@pytest.mark.parametrize("other", [True, False])
def test_another_role_than_the_agents_is_proven(
    pg_store_database: PgDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: bool
) -> None:
    monkeypatch.setenv("POST", str(tmp_path / "post"))
    agent, person = guest_of(pg_store_database), owner_of(pg_store_database)
    with closing(pg_store_database.connect()) as admin:
        for role in ("tiers_owner", "tiers_guest"):
            admin.execute(f"grant usage on schema takeback_store to {role}")  # pyright: ignore
            admin.execute(f"grant all on all tables in schema takeback_store to {role}")  # pyright: ignore
            admin.execute(f"grant all on all sequences in schema takeback_store to {role}")  # pyright: ignore
    with (
        takeback.open(agent) as tb,
        pytest.raises(takeback.AwaitingApproval) as waiting,
        tb.run("write", agent="writer") as run,
    ):
        run.call(send_mail, "anna", key="mail-1")
    with takeback.open(person if other else agent) as tb:
        effect = tb.effect(waiting.value.effect or "")
        assert effect.phase.gate and effect.phase.gate.role == "tiers_guest"
        tb.approve(effect, by="someone else", answer=words(tb, effect))
        (one,) = decisions(opened_of(tb).parts, effect)
    assert one.by.name == ("tiers_owner" if other else "tiers_guest")
    assert one.by.known_by is (KnownBy.USER if other else KnownBy.NOTHING)
    assert os.getuid() == effect.phase.gate.uid
