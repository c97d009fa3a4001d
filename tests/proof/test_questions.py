"""The questions of auditors, each asked of a journal whose answer is known."""

import os
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback import Takeback
from takeback.audit import questions
from takeback.audit.questions import ActionFilter, story_json, story_of
from takeback.model.record import STORE, Draft, Kind
from takeback.model.resource import file_resource
from tests.approvals.words import words
from tests.calls.post import send_mail
from tests.proof.ledger import chain_again, on_disk


@pytest.fixture(autouse=True)
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POST", os.fspath(tmp_path / "post"))


@pytest.fixture
def tb(store: Path) -> Takeback:
    return takeback.open(store)


def sent(tb: Takeback) -> takeback.Effect:
    """A mail that someone approved, while its run waited."""
    with pytest.raises(takeback.AwaitingApproval) as told, tb.run("write", agent="writer") as run:
        run.call(send_mail, "anna")
    tb.approve(told.value.effect or "", by="bea", answer=words(tb, told.value.effect))
    with tb.resume(tb.runs()[0]) as run:
        run.call(send_mail, "anna")
    return tb.effect(told.value.effect or "")


def test_1_actions_on_a_resource_in_a_time_by_an_agent(tb: Takeback, tmp_path: Path) -> None:
    ids: dict[str, str] = {}
    for agent in ("ann", "ben"):
        for name in ("a.txt", "b.txt"):
            with tb.run("r", agent=agent) as run:
                made = run.write(tmp_path / name, f"{agent}\n")
                assert made
                ids[f"{agent} {name}"] = made.id

    def found(**fields: Any) -> list[str]:
        given = questions.actions(tb.store, ActionFilter(**fields))
        return [name for one in given for name, id in ids.items() if id == one.effect.id]

    a = file_resource(os.fspath(tmp_path / "a.txt"))
    assert found(resource=a) == ["ann a.txt", "ben a.txt"]
    assert found(resource=a, agent="ben") == ["ben a.txt"]
    assert found(resource=file_resource(os.fspath(tmp_path))) == list(ids)
    third = tb.effect(ids["ben a.txt"]).at
    assert found(since=third) == ["ben a.txt", "ben b.txt"]
    assert found(until=third - 1) == ["ann a.txt", "ann b.txt"]


def test_2_who_authorised_an_action_and_was_it_what_ran(tb: Takeback) -> None:
    effect = sent(tb)

    told = story_json(story_of(tb.store, effect))

    (approval,) = told["approvals"]
    assert (approval["approved"], approval["remark"], approval["fits"]) == (True, "bea", True)
    assert approval["known_by"] == "not proven"
    assert told["approval_needed"]
    assert told["missing_approval"] is None
    assert "cannot be undone" in told["shown"]
    assert told["identity"]["agent"] == "writer"
    assert [one["kind"] for one in told["records"]] == ["propose", "decide", "intent", "done"]
    assert [one.effect.id for one in questions.actions(tb.store, ActionFilter(person=approval["by"]))] == [
        effect.id
    ]


def test_3_what_ran_without_an_approval_that_it_needed(tb: Takeback, store: Path, tmp_path: Path) -> None:
    effect = sent(tb)
    found = questions.approvals(tb.store)
    assert (found.needed, found.ran, found.exceptions) == (1, 1, ())

    # The decision is made into something else, and the rest hashed again.
    ledger = on_disk(store, tmp_path)
    rows = ledger.read()
    at = next(number for number, one in enumerate(rows) if one.kind == "decide")
    rows[at] = rows[at]._replace(kind="signal", effect="", body=b'{"name":"x"}')
    ledger.write(chain_again(rows, at + 1))

    (missing,) = questions.approvals(tb.store).exceptions
    assert missing.effect.id == effect.id
    assert missing.missing_approval == "no decision was recorded before it ran"


def test_3_a_no_and_an_approval_of_something_else_are_exceptions(
    tb: Takeback, store: Path, tmp_path: Path
) -> None:
    sent(tb)
    ledger = on_disk(store, tmp_path)
    rows = ledger.read()
    at = next(number for number, one in enumerate(rows) if one.kind == "decide")

    def with_decision(old: bytes, new: bytes) -> str:
        changed = rows[at]._replace(body=rows[at].body.replace(old, new))
        assert changed.body != rows[at].body
        ledger.write(chain_again([*rows[:at], changed, *rows[at + 1 :]], at + 1))
        (missing,) = questions.approvals(tb.store).exceptions
        return missing.missing_approval

    assert with_decision(b'"approved":true', b'"approved":false').endswith("said no")
    assert with_decision(b'"digest":"', b'"digest":"0') == "what ran is not what was approved"


def test_3_one_that_waits_or_was_denied_did_not_run(tb: Takeback) -> None:
    with tb.run("write") as run:
        for name in ("anna", "ben"):
            with pytest.raises(takeback.AwaitingApproval) as told:
                run.call(send_mail, name, key=f"mail-{name}")
        tb.deny(told.value.effect or "", by="bea", why="no")
        with pytest.raises(takeback.Denied):
            run.call(send_mail, "ben", key="mail-ben")

    found = questions.approvals(tb.store)
    assert (found.needed, found.ran, found.exceptions) == (2, 0, ())


def test_4_what_was_undone_and_how_that_is_known(tb: Takeback, tmp_path: Path) -> None:
    with tb.run("r", agent="ann") as run:
        effect = run.write(tmp_path / "a.txt", "1\n")
        assert effect
    tb.undo(effect)

    (told,) = [questions.undo_json(one) for one in questions.undone(tb.store)]

    assert (told["of"], told["state"], told["forced"]) == (effect.id, "done", False)
    assert told["verified"]
    assert told["residue"] is None


def test_5_unknown_outcomes_and_their_resolution(tb: Takeback) -> None:

    with tb.run("r", agent="ann") as run:
        stuck = _stuck(tb, run.id)
    (story,) = questions.unknown(tb.store)
    assert (story.effect.id, story.resolution) == (stuck, "")


def _stuck(tb: Takeback, run: str) -> str:
    from takeback.model.ids import new_id

    id = new_id()
    body = {"adapter": "call", "kind": "call", "resource": "call://x", "summary": "call x", "key": ""}
    lease = tb.store.leases.holder(run)
    assert lease
    tb.store.journal.append(lease, [Draft(Kind.INTENT, run, id, body)])
    tb.store.journal.append(lease, [Draft(Kind.STICK, run, id, {"why": "no answer"})])
    return id


def test_7_the_policy_in_force_at_an_action(tb: Takeback, tmp_path: Path) -> None:
    tb.store.journal.append(None, [Draft(Kind.POLICY, STORE, "", {"digest": "one"})])
    with tb.run("r") as run:
        effect = run.write(tmp_path / "a.txt", "1\n")
        assert effect
    tb.store.journal.append(None, [Draft(Kind.POLICY, STORE, "", {"digest": "two"})])

    assert [one.body["digest"] for one in questions.policies(tb.store)] == ["one", "two"]
    assert [one.body["digest"] for one in questions.policies(tb.store, at=effect.order)] == ["one"]


def test_9_what_was_given_up_by_which_rule(tb: Takeback, tmp_path: Path) -> None:
    with tb.run("r") as run:
        effect = run.write(tmp_path / "a.txt", "1\n")
        assert effect
        run.accept(effect)
    tb.forget(effect)

    kept = questions.retention(tb.store)
    assert sum(kept.forgotten.values()) == 1
    assert kept.oldest == next(tb.store.journal.records()).at
    assert kept.days == 7


def test_10_a_sample_is_the_same_for_the_same_seed(tb: Takeback, tmp_path: Path) -> None:
    with tb.run("r") as run:
        for number in range(12):
            run.write(tmp_path / "a.txt", f"{number}\n")

    def chosen(seed: str) -> list[str]:
        return [one.effect.id for one in questions.sample(tb.store, 5, seed)]

    assert chosen("a") == chosen("a")
    assert len(set(chosen("a"))) == 5
    assert any(chosen(seed) != chosen("a") for seed in "bcdef")
    assert len(questions.sample(tb.store, 100, "a")) == 12


def test_12_where_a_rule_was_passed_by(tb: Takeback, tmp_path: Path) -> None:
    tb.store.journal.append(None, [Draft(Kind.LIFT, STORE, "", {"stops": [], "agent": "ann", "by": "bea"})])
    with tb.run("r") as run:
        first = run.write(tmp_path / "a.txt", "1\n")
    assert first
    (tmp_path / "a.txt").write_text("mine\n")
    tb.undo(first, on_conflict="force")

    assert [one.what for one in questions.break_glass(tb.store)] == [
        "a stop was lifted", "an undo was forced over later changes",
    ]  # fmt: skip
