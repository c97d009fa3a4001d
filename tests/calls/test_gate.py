"""What cannot be undone, or only by hand, waits for a person who says so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import takeback
from takeback.model.effect import State
from tests.calls import post
from tests.calls.post import send_mail, send_parcel


@pytest.fixture(autouse=True)
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POST", str(tmp_path / "post"))


@pytest.fixture
def tb(store: str) -> takeback.Takeback:
    return takeback.open(store)


def asked(tb: takeback.Takeback) -> takeback.Effect:
    with tb.run("write", agent="writer") as run, pytest.raises(takeback.AwaitingApproval) as told:
        run.call(send_mail, "anna", key="mail-1")
    assert "cannot be undone: the mail is read" in str(told.value)
    assert told.value.effect
    return tb.effect(told.value.effect)


def test_nothing_is_called_before_someone_says_yes(tb: takeback.Takeback) -> None:
    effect = asked(tb)
    assert post.sent() == []
    assert [one.id for one in tb.pending()] == [effect.id]
    assert effect.remedy and effect.remedy.strategy == "irreversible"


def test_whoever_says_yes_must_say_that_it_cannot_be_undone(tb: takeback.Takeback) -> None:
    effect = asked(tb)
    with pytest.raises(takeback.Refused, match="the mail is read") as told:
        tb.approve(effect, by="bea")
    assert "cannot be undone" in told.value.hint
    assert tb.pending() == (effect,)


def test_whoever_asked_cannot_approve(tb: takeback.Takeback) -> None:
    effect = asked(tb)
    with pytest.raises(takeback.Denied):
        tb.approve(effect, by="writer", answer="cannot be undone")
    with pytest.raises(takeback.Misuse):
        tb.approve(effect, by=" ", answer="cannot be undone")


def test_it_is_called_once_by_the_run_that_asked(tb: takeback.Takeback) -> None:
    with tb.run("write", agent="writer") as run:
        with pytest.raises(takeback.AwaitingApproval) as told:
            run.call(send_mail, "anna")
        with pytest.raises(takeback.AwaitingApproval):
            run.call(send_mail, "anna")
        tb.approve(told.value.effect or "", by="bea", answer="Cannot be undone")
        assert tb.pending() == ()
        assert run.call(send_mail, "anna") == {"to": "anna", "number": 1}
    assert post.sent() == ["mail anna hello"]
    (effect,) = tb.effects()
    assert effect.state is State.DONE
    with pytest.raises(takeback.Refused):
        tb.approve(effect, by="bea", answer="cannot be undone")


@pytest.mark.parametrize("on_death", ["undo", "keep"])
def test_a_run_that_waits_for_a_person_can_be_gone_on_with(tb: takeback.Takeback, on_death: str) -> None:
    with pytest.raises(takeback.AwaitingApproval), tb.run("write", on_death=on_death) as run:
        run.call(send_mail, "anna")
    assert tb.runs()[0].state == "suspended"
    (effect,) = tb.pending()
    tb.approve(effect, by="bea", answer="cannot be undone")
    with tb.resume(tb.runs()[0]) as run:
        run.call(send_mail, "anna")
    assert post.sent() == ["mail anna hello"]


def test_what_was_approved_is_what_is_called(tb: takeback.Takeback) -> None:
    with tb.run("write", agent="writer") as run:
        with pytest.raises(takeback.AwaitingApproval) as told:
            run.call(send_mail, "anna", "pay 10", key="mail-1")
        tb.approve(told.value.effect or "", by="bea", answer="cannot be undone")
        with pytest.raises(takeback.KeyReused):
            run.call(send_mail, "anna", "pay 99999", key="mail-1")
    assert post.sent() == []


def test_no_means_no(tb: takeback.Takeback) -> None:
    with tb.run("write") as run:
        with pytest.raises(takeback.AwaitingApproval) as told:
            run.call(send_mail, "anna")
        tb.deny(told.value.effect or "", by="bea", why="She left.")
        with pytest.raises(takeback.Denied, match="She left"):
            run.call(send_mail, "anna")
    assert post.sent() == []
    assert tb.effects()[0].state is State.ABORTED


def test_silence_means_no(store: str, tmp_path: Path) -> None:
    takeback.open(store).close()
    (Path(store) / "settings.json").write_text('{"approval_seconds": 1}')
    now = [1_000_000_000_000_000]
    with takeback.open(store) as tb, tb.run("write") as run:
        run._now = lambda: now[0]  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(takeback.AwaitingApproval):
            run.call(send_mail, "anna")
        now[0] = tb.effects()[0].at + 2_000_000
        with pytest.raises(takeback.ApprovalExpired):
            run.call(send_mail, "anna")
    assert post.sent() == []


def test_keep_does_not_get_around_it(tb: takeback.Takeback) -> None:
    effect = asked(tb)
    with pytest.raises(takeback.Refused, match="approval"):
        tb.keep(effect)
    assert post.sent() == []


def test_undo_of_what_cannot_be_undone_says_why(tb: takeback.Takeback) -> None:
    with tb.run("write") as run:
        with pytest.raises(takeback.AwaitingApproval) as told:
            run.call(send_mail, "anna")
        tb.approve(told.value.effect or "", by="bea", answer="cannot be undone")
        run.call(send_mail, "anna")
    with pytest.raises(takeback.Refused, match="the mail is read"):
        tb.undo(tb.effects()[0])
    assert tb.effects()[0].state is State.DONE


def test_what_is_taken_back_by_hand_waits_until_someone_has_done_it(tb: takeback.Takeback) -> None:
    with tb.run("send") as run:
        with pytest.raises(takeback.AwaitingApproval) as told:
            run.call(send_parcel, "anna")
        tb.approve(told.value.effect or "", by="bea", answer="by hand")
        run.call(send_parcel, "anna")
    (effect,) = tb.effects()
    result = tb.undo(effect)
    assert result.outcome == "stuck"
    assert "drive there" in result.targets[0].detail
    undo = next(one for one in tb.effects() if one.is_undo)
    assert undo.state is State.STUCK
    tb.settle(undo, True, by="bea")
    assert tb.effect(effect.id).state is State.UNDONE


def test_the_command_line_does_the_same(tb: takeback.Takeback) -> None:
    effect = asked(tb)

    def told(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "takeback", *words], capture_output=True, text=True, check=False,
            env=os.environ | {"TAKEBACK_STORE": tb.path},
        )  # fmt: skip

    (one,) = json.loads(told("pending", "--json").stdout)
    assert (one["id"], one["plan"]) == (effect.id, "cannot be undone: the mail is read")
    assert "the mail is read" in told("pending").stdout
    assert told("approve", effect.id, "--by", "bea").returncode == 3
    assert (
        told("approve", effect.id, "--by", "bea", "--answer", "cannot be undone", "--dry-run").returncode == 0
    )
    assert tb.pending()
    assert told("approve", effect.id, "--by", "bea", "--answer", "cannot be undone").returncode == 0
    assert told("approve", effect.id, "--by", "bea", "--answer", "cannot be undone").returncode == 3
    assert told("deny", effect.id, "--by", "bea").returncode == 3
