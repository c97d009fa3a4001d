"""What was approved is what is made: the change, its arguments, the state it was proposed on, the way back, once."""

import os
import time
from pathlib import Path

import pytest

import takeback
from takeback.api import opened_of
from takeback.engine import approvable
from takeback.model.effect import State
from takeback.model.person import KnownBy, Person
from takeback.model.record import Draft, Kind
from tests.approvals.asking import ASK, KIM, PATIENCE, asked, asks, says, writes
from tests.approvals.asking import BEA as KEYED

BEA = Person("bea", KnownBy.LOGIN, "console")


@pytest.fixture
def tb(store: str) -> takeback.Takeback:
    return takeback.open(store)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "app.conf"
    file.write_text("old")
    return file


def test_a_change_that_the_policy_asks_about_is_made_when_it_was_approved(
    tb: takeback.Takeback, path: Path
) -> None:
    with tb.run("edit") as run:
        waiting = asked(run, path, "new")
        assert path.read_text() == "old"
        (proposal,) = tb.proposals()
        assert (proposal.word, proposal.people, proposal.challenge) == ("waiting for approval", 1, "")
        assert proposal.request["rule"] == "config files" and proposal.until == waiting.until
        says(tb, waiting, BEA)
        effect = writes(run, path, "new")
        assert effect and effect.id == waiting.effect and effect.state is State.DONE
    assert path.read_text() == "new"
    tb.undo(effect)
    assert path.read_text() == "old"


def test_other_content_is_another_change(tb: takeback.Takeback, path: Path) -> None:
    with tb.run("edit") as run:
        says(tb, asked(run, path, "new"), BEA)
        with pytest.raises(takeback.KeyReused):
            writes(run, path, "other")
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    "drift",
    [
        lambda path: path.write_text("meanwhile"),
        lambda path: path.chmod(0o600),
        lambda path: path.unlink(),
    ],
    ids=["content", "mode", "removed"],
)
def test_where_the_state_drifted_it_is_asked_for_again(tb: takeback.Takeback, path: Path, drift) -> None:  # pyright: ignore
    with tb.run("edit") as run:
        first = asked(run, path, "new")
        says(tb, first, BEA)
        drift(path)
        before = os.path.lexists(path) and (os.readlink(path) if path.is_symlink() else path.read_bytes())
        again = asked(run, path, "new")
        assert again.effect != first.effect
        assert "approved before, but what it changes was modified after it was shown" in str(again)
        old = tb.effect(first.effect or "")
        assert (old.state, old.note) == (
            State.ABORTED, "It was approved, but what it changes was modified after it was shown.",
        )  # fmt: skip
        assert before == (
            os.path.lexists(path) and (os.readlink(path) if path.is_symlink() else path.read_bytes())
        )
        asked(run, path, "new")  # the approval of the first is spent
        says(tb, again, BEA)
        assert writes(run, path, "new")
    assert path.read_text() == "new"


def test_other_terms_of_the_policy_ask_again(tb: takeback.Takeback, path: Path) -> None:
    with tb.run("edit") as run:
        says(tb, asked(run, path, "new"), BEA)
        again = asked(run, path, "new", asks(2, "bea", "kim"))
        assert "the policy asks for other people now" in str(again)
        assert (again.people, again.asked) == (2, ("bea", "kim"))
        assert "waits for 2 of bea, kim" in str(again)
    assert path.read_text() == "old"


def test_an_approval_is_used_once(tb: takeback.Takeback, path: Path) -> None:
    with tb.run("edit") as run:
        waiting = asked(run, path, "new")
        says(tb, waiting, BEA)
        assert writes(run, path, "new")
        run.undo()
        path.write_text("old")
        with pytest.raises(takeback.KeyReused):
            writes(run, path, "new")
    assert path.read_text() == "old"


def test_a_decision_copied_from_another_proposal_does_not_fit(tb: takeback.Takeback, path: Path) -> None:
    """A replay: the record of an earlier approval, written once more for a new proposal."""
    with tb.run("edit") as run:
        first = asked(run, path, "new")
        says(tb, first, BEA)
        body = next(tb.store.journal.records(kinds=(Kind.DECIDE,))).body
        path.write_text("other")
        second = asked(run, path, "new")
        path.write_text("old")
        tb.store.journal.append(None, [Draft(Kind.DECIDE, run.id, second.effect or "", body)])
        with pytest.raises(takeback.Denied, match="what was approved is something else"):
            writes(run, path, "new")
    assert path.read_text() == "old"


def test_n_of_m_people_have_to_say_yes_and_each_counts_once(tb: takeback.Takeback, path: Path) -> None:
    two = asks(2, "bea", "kim", "alex")
    with tb.run("edit") as run:
        waiting = asked(run, path, "new", two)
        says(tb, waiting, BEA)
        again = asked(run, path, "new", two)
        assert again.effect == waiting.effect and "(bea said yes)" in str(again)
        (proposal,) = tb.proposals()
        assert [one.by.name for one in proposal.said_yes] == ["bea"]
        with pytest.raises(takeback.Refused, match=r"bea has approved effect .* already, and counts once"):
            says(tb, waiting, BEA)
        with pytest.raises(takeback.Denied, match="zoe is not asked"):
            says(tb, waiting, Person("zoe", KnownBy.LOGIN))
        says(tb, waiting, Person("kim", KnownBy.LOGIN))
        assert tb.proposals()[0].word == "approved"
        assert writes(run, path, "new", two)
    assert path.read_text() == "new"


def test_one_no_is_enough(tb: takeback.Takeback, path: Path) -> None:
    two = asks(2, "bea", "kim")
    with tb.run("edit") as run:
        waiting = asked(run, path, "new", two)
        says(tb, waiting, BEA)
        says(tb, waiting, Person("kim", KnownBy.LOGIN), approved=False)
        with pytest.raises(takeback.Denied, match="kim said no"):
            writes(run, path, "new", two)
    assert path.read_text() == "old"


@pytest.mark.parametrize("known_by", [KnownBy.NOTHING, KnownBy.HOST])
def test_for_several_people_a_name_is_not_enough(
    tb: takeback.Takeback, path: Path, known_by: KnownBy
) -> None:
    with tb.run("edit") as run:
        waiting = asked(run, path, "new", asks(2))
        with pytest.raises(takeback.Denied):
            says(tb, waiting, Person("bea", known_by))
        says(tb, waiting, Person("bea", known_by), approved=False)  # a no needs no proof


def test_the_prompt_of_a_host_is_enough_for_what_can_be_undone_alone(
    tb: takeback.Takeback, path: Path
) -> None:
    host = Person("bea", KnownBy.HOST, "Claude Code asked")
    with tb.run("edit") as run:
        shown = asked(run, path, "new", asks(words=True))
        with pytest.raises(takeback.Denied, match="not the word of the agent's host"):
            says(tb, shown, host)
        says(tb, shown, BEA, approved=False)
        with pytest.raises(takeback.Denied):
            writes(run, path, "new", asks(words=True))
        says(tb, asked(run, path, "new"), host)
        assert writes(run, path, "new")


def test_a_forged_record_of_a_key_is_noticed_when_it_is_used(tb: takeback.Takeback, path: Path) -> None:
    """Whoever can write the journal can write that a key was used; the signature says otherwise."""
    with tb.run("edit") as run:
        says(tb, asked(run, path, "new"), KEYED)
        with pytest.raises(takeback.Denied, match="the signature of bea does not fit"):
            writes(run, path, "new")
    assert path.read_text() == "old"


def test_too_few_people_in_forged_records_are_noticed(tb: takeback.Takeback, path: Path) -> None:
    two = asks(2)
    with tb.run("edit") as run:
        waiting = asked(run, path, "new", two)
        effect = tb.effect(waiting.effect or "")
        for name in ("bea", "kim"):
            body = {"approved": True, "by": name, "digest": approvable.digest_of(effect)}
            tb.store.journal.append(None, [Draft(Kind.DECIDE, run.id, effect.id, body)])
        with pytest.raises(takeback.Denied, match="not proven"):
            writes(run, path, "new", two)
    assert path.read_text() == "old"


def test_silence_means_no_however_the_clock_is_set(
    tb: takeback.Takeback, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, real = opened_of(tb), time.time_ns() // 1000
    clock, since = [real], [approvable.since_boot()]
    monkeypatch.setattr(approvable, "since_boot", lambda: since[0])
    monkeypatch.setattr("takeback.api.decisions.now", lambda: clock[0])
    with tb.run("edit") as run:
        waiting = asked(run, path, "new")
        # The time is over by the clock that no one can set, while the other one was set back.
        since[0] += PATIENCE + 1_000_000
        clock[0] = real - 10 * PATIENCE
        with pytest.raises(takeback.ApprovalExpired):
            says(tb, waiting, BEA)
        with pytest.raises(takeback.ApprovalExpired, match="silence means no"):
            writes(run, path, "new", at=lambda: clock[0])
        assert tb.effect(waiting.effect or "").state is State.ABORTED
        assert opened.parts.journal.newest()
    assert path.read_text() == "old"


def test_a_clock_that_went_forward_is_not_set_back_for_it(
    tb: takeback.Takeback, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine, or after a restart, only the records say how late it was."""
    monkeypatch.setattr(approvable, "boot_id", lambda: "another")
    with tb.run("edit") as run:
        waiting = asked(run, path, "new")
        monkeypatch.setattr("takeback.engine.approval.last_known", lambda books: waiting.until + 1)
        with pytest.raises(takeback.ApprovalExpired):
            says(tb, waiting, BEA)


def test_an_approval_that_is_not_used_expires(tb: takeback.Takeback, path: Path) -> None:
    with tb.run("edit") as run:
        waiting = asked(run, path, "new")
        says(tb, waiting, BEA)
        late = waiting.until + 2 * PATIENCE
        with pytest.raises(takeback.ApprovalExpired, match="not used in time"):
            writes(run, path, "new", at=lambda: late)
        assert asked(run, path, "new").effect != waiting.effect


def test_the_words_differ_with_what_is_approved(tb: takeback.Takeback, tmp_path: Path) -> None:
    found: set[str] = set()
    for name in ("a", "b"):
        (tmp_path / name).write_text("old")
        with tb.run(name) as run:
            waiting = asked(run, tmp_path / name, "new", asks(words=True))
            assert waiting.challenge.startswith("write yes ")
            found.add(waiting.challenge)
            with pytest.raises(takeback.Refused, match="does not say that"):
                tb.approve(waiting.effect or "", answer="yes")
            tb.approve(waiting.effect or "", answer=f"  {waiting.challenge.upper()} ")
    assert len(found) == 2


def test_a_proposal_without_any_rule_still_asks_for_what_cannot_be_undone(
    tb: takeback.Takeback, path: Path
) -> None:
    with tb.run("edit") as run:
        assert asked(run, path, "new", ASK).challenge == ""
        assert KIM.is_proven
