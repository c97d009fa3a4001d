"""What cannot be undone, or only by hand, waits for a person who says so."""

import json
import os
import pwd
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import takeback
from takeback.engine import approval
from takeback.model.effect import State
from takeback.runs.run import core_of
from tests.approvals.words import words
from tests.calls import post
from tests.calls.post import send_mail, send_parcel

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture(autouse=True)
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POST", str(tmp_path / "post"))


@pytest.fixture
def tb(store: str) -> takeback.Takeback:
    return takeback.open(store)


def asked(tb: takeback.Takeback) -> takeback.Effect:
    with pytest.raises(takeback.AwaitingApproval) as told, tb.run("write", agent="writer") as run:
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
        tb.approve(effect, by="writer", answer=words(tb, effect))
    assert tb.pending() == (effect,)


def test_a_process_that_holds_the_run_of_an_agent_is_the_agent(tb: takeback.Takeback) -> None:
    with tb.run("write", agent="writer") as run:
        with pytest.raises(takeback.AwaitingApproval) as waiting:
            run.call(send_mail, "anna")
        (effect,) = tb.pending()
        for decide in (tb.approve, tb.deny):
            with pytest.raises(takeback.Refused, match="the agent 'writer' is this process"):
                decide(waiting.value.effect or "", by="bea")
        refused = told(tb, "approve", effect.id, "--answer", words(tb, effect))
        assert refused.returncode == 3
        assert "the agent 'writer' started this process" in refused.stderr
        assert tb.pending() == (effect,)


def test_it_is_called_once_by_the_run_that_asked(tb: takeback.Takeback) -> None:
    with tb.run("write") as run:
        with pytest.raises(takeback.AwaitingApproval) as told:
            run.call(send_mail, "anna")
        with pytest.raises(takeback.AwaitingApproval):
            run.call(send_mail, "anna")
        tb.approve(told.value.effect or "", by="bea", answer=told.value.challenge)
        assert tb.pending() == ()
        assert run.call(send_mail, "anna") == {"to": "anna", "number": 1}
    assert post.sent() == ["mail anna hello"]
    (effect,) = tb.effects()
    assert effect.state is State.DONE
    with pytest.raises(takeback.Refused):
        tb.approve(effect, by="bea", answer=words(tb, effect))


@pytest.mark.parametrize("on_death", ["undo", "accept"])
def test_a_run_that_waits_for_a_person_can_be_gone_on_with(tb: takeback.Takeback, on_death: str) -> None:
    with pytest.raises(takeback.AwaitingApproval), tb.run("write", on_death=on_death) as run:
        run.call(send_mail, "anna")
    assert tb.runs()[0].state == "suspended"
    (effect,) = tb.pending()
    tb.approve(effect, by="bea", answer=words(tb, effect))
    with tb.resume(tb.runs()[0]) as run:
        run.call(send_mail, "anna")
    assert post.sent() == ["mail anna hello"]


def test_what_was_approved_is_what_is_called(tb: takeback.Takeback) -> None:
    with tb.run("write") as run:
        with pytest.raises(takeback.AwaitingApproval) as told:
            run.call(send_mail, "anna", "pay 10", key="mail-1")
        tb.approve(told.value.effect or "", by="bea", answer=told.value.challenge)
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
        core_of(run).now = lambda: now[0]
        with pytest.raises(takeback.AwaitingApproval):
            run.call(send_mail, "anna")
        now[0] = tb.effects()[0].at + 2_000_000
        with pytest.raises(takeback.ApprovalExpired):
            run.call(send_mail, "anna")
    assert post.sent() == []


def test_keep_does_not_get_around_it(tb: takeback.Takeback) -> None:
    effect = asked(tb)
    with pytest.raises(takeback.Refused, match="approval"):
        tb.apply(effect)
    assert post.sent() == []


def test_undo_of_what_cannot_be_undone_says_why(tb: takeback.Takeback) -> None:
    with tb.run("write") as run:
        with pytest.raises(takeback.AwaitingApproval) as told:
            run.call(send_mail, "anna")
        tb.approve(told.value.effect or "", by="bea", answer=told.value.challenge)
        run.call(send_mail, "anna")
    with pytest.raises(takeback.Refused, match="the mail is read"):
        tb.undo(tb.effects()[0])
    assert tb.effects()[0].state is State.DONE


def test_what_is_taken_back_by_hand_waits_until_someone_has_done_it(tb: takeback.Takeback) -> None:
    with tb.run("send") as run:
        with pytest.raises(takeback.AwaitingApproval) as told:
            run.call(send_parcel, "anna")
        tb.approve(told.value.effect or "", by="bea", answer=told.value.challenge)
        run.call(send_parcel, "anna")
    (effect,) = tb.effects()
    result = tb.undo(effect)
    assert result.outcome == "stuck"
    assert "drive there" in result.targets[0].detail
    undo = next(one for one in tb.effects() if one.is_undo)
    assert undo.state is State.STUCK
    tb.settle(undo, True, by="bea")
    assert tb.effect(effect.id).state is State.UNDONE


def test_after_a_no_it_is_another_proposal(tb: takeback.Takeback) -> None:
    with tb.run("write") as run:
        with pytest.raises(takeback.AwaitingApproval) as first:
            run.call(send_mail, "anna", key="mail-1")
        tb.deny(first.value.effect or "", by="bea")
        with pytest.raises(takeback.Refused, match=r"gave the name bea[)] said no") as again:
            tb.approve(first.value.effect or "", by="kim", answer=first.value.challenge)
        assert "another proposal" in again.value.hint
        with pytest.raises(takeback.Denied):
            run.call(send_mail, "anna", key="mail-1")
        with pytest.raises(takeback.AwaitingApproval) as second:
            run.call(send_mail, "anna", key="mail-1")
        assert second.value.effect != first.value.effect
    assert post.sent() == []


def ended(tb: takeback.Takeback, how: str, decide: str = "") -> takeback.Effect:
    """Asked for by a run that has ended since."""
    with suppress(KeyError), tb.run("write", on_death="accept" if how == "kept" else "undo") as run:
        with pytest.raises(takeback.AwaitingApproval) as told:
            run.call(send_mail, "anna", key="mail-1")
        waiting = told.value.effect or ""
        if decide == "yes":
            tb.approve(waiting, by="bea", answer=words(tb, waiting))
        elif decide == "no":
            tb.deny(waiting, by="bea", why="She left.")
        if how == "failed":
            raise KeyError(how)
        if how == "undone":
            run.take_back()
    return tb.effect(waiting)


@pytest.mark.parametrize("how", ["closed", "failed", "kept", "undone"])
def test_what_a_run_asked_for_ends_with_it(tb: takeback.Takeback, how: str) -> None:
    effect = ended(tb, how)
    assert (effect.state, effect.note) == (State.ABORTED, "Its run ended before anyone decided.")
    assert tb.pending() == ()
    for decide in (tb.deny, tb.approve):
        with pytest.raises(takeback.Refused, match="ended before anyone decided"):
            decide(effect, by="bea")
    with tb.run("again") as run:
        with pytest.raises(takeback.AwaitingApproval) as told:
            run.call(send_mail, "anna", key="mail-1")
        tb.approve(told.value.effect or "", by="bea", answer=told.value.challenge)
        run.call(send_mail, "anna", key="mail-1")
    assert post.sent() == ["mail anna hello"]


@pytest.mark.parametrize(("decide", "note"), [("yes", " said yes."), ("no", " said no. She left.")])
def test_what_was_decided_and_not_asked_for_again_ends_with_it_too(
    tb: takeback.Takeback, decide: str, note: str
) -> None:
    effect = ended(tb, "closed", decide)
    assert effect.state is State.ABORTED
    who = f"{ME} (not proven, gave the name bea)"
    assert effect.note == f"{who}{note} Its run ended without asking for it again."


def test_the_end_and_what_it_gives_up_are_recorded_together(
    tb: takeback.Takeback, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts: list[list[str]] = []
    append = type(tb.store.journal).append
    monkeypatch.setattr(
        type(tb.store.journal), "append",
        lambda self, lease, given: drafts.append([one.kind for one in given]) or append(self, lease, given),
    )  # fmt: skip
    ended(tb, "closed")
    assert drafts[-1] == ["abort", "close"]


def test_there_is_nothing_to_forget_of_what_was_never_called(tb: takeback.Takeback) -> None:
    refused = told(tb, "forget", ended(tb, "closed").id)
    assert refused.returncode == 3
    assert "never happened: Its run ended before anyone decided." in refused.stderr
    assert "nothing to forget" in refused.stderr and "recover" not in refused.stderr


DIES = """
import os, takeback
from tests.calls.post import send_mail
tb = takeback.open({store!r})
run = tb.run("write", on_death={on_death!r})
try:
    run.call(send_mail, "anna", key="mail-1")
except takeback.AwaitingApproval:
    os._exit(0)
"""


def dies(tb: takeback.Takeback, on_death: str = "undo") -> takeback.Effect:
    program = DIES.format(store=tb.path, on_death=on_death)
    subprocess.run([sys.executable, "-c", program], check=True)
    (effect,) = tb.effects()
    return effect


@pytest.mark.parametrize("on_death", ["undo", "accept"])
def test_what_a_dead_run_asked_for_is_given_up_by_recovery(tb: takeback.Takeback, on_death: str) -> None:
    effect = dies(tb, on_death)
    with takeback.open(tb.path) as again:
        again.recover()
        given_up = again.effect(effect.id)
        assert (given_up.state, given_up.note) == (State.ABORTED, "Its run ended before anyone decided.")
        with again.run("again") as run, pytest.raises(takeback.AwaitingApproval):
            run.call(send_mail, "anna", key="mail-1")


def test_what_a_dead_run_asked_for_is_not_decided_on(tb: takeback.Takeback) -> None:
    effect = dies(tb)
    assert tb.pending() == ()
    with pytest.raises(takeback.Refused, match="is gone, so it will not be asked for again"):
        tb.approve(effect, by="bea", answer=words(tb, effect))
    refused = told(tb, "approve", effect.id, "--by", "bea", "--answer", words(tb, effect))
    assert (refused.returncode, "is gone" in refused.stderr) == (3, True)
    assert "not decided yet, and the process of its run" in told(tb, "status").stdout
    assert json.loads(told(tb, "status", "--json").stdout)["approvals"] == []
    assert "is gone: it is not made" in told(tb, "show", effect.id).stdout
    assert "`takeback recover` gives it up" in refused.stderr
    assert told(tb, "recover").returncode == 0
    assert tb.effect(effect.id).state is State.ABORTED


def test_another_run_is_told_who_asked_first(tb: takeback.Takeback) -> None:
    asked(tb)
    with (
        tb.run("other") as run,
        pytest.raises(takeback.Refused, match="asked for it first") as refused,
    ):
        run.call(send_mail, "anna", key="mail-1")
    assert "has to continue it" in refused.value.hint


def test_who_decides_when_it_was_given_up_just_now_is_told_so(
    tb: takeback.Takeback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run ends between the look and the record."""
    run = tb.run("write")
    with pytest.raises(takeback.AwaitingApproval) as waiting:
        run.call(send_mail, "anna")
    effect = tb.effect(waiting.value.effect or "")
    monkeypatch.setattr(approval, "says_the_words", lambda effect, answer: run.close() or True)
    with pytest.raises(takeback.Refused, match="ended before anyone decided"):
        tb.approve(effect, by="bea", answer=words(tb, effect))


def test_of_two_who_decide_at_once_the_first_has_decided(
    tb: takeback.Takeback, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = asked(tb)

    def no_first(effect: takeback.Effect, answer: str) -> bool:
        tb.deny(effect, by="kim")
        return True

    monkeypatch.setattr(approval, "says_the_words", no_first)
    with pytest.raises(takeback.Refused, match=r"gave the name kim[)] said no"):
        tb.approve(effect, by="bea", answer=words(tb, effect))


@pytest.mark.parametrize(
    ("decide", "words"),
    [
        (["approve"], "gave the name bea); its run makes it when it asks again"),
        (
            ["deny", "--why", "She left."],
            "gave the name bea) (She left.); its run learns it when it asks again",
        ),
    ],
)
def test_what_is_decided_is_not_told_as_waiting_for_a_decision(
    tb: takeback.Takeback, decide: list[str], words: str
) -> None:
    effect = asked(tb)
    assert json.loads(told(tb, "status", "--json").stdout)["approvals"] == [effect.id]
    assert "until someone approves or denies it" in told(tb, "show", effect.id).stdout

    typed = ["--answer", tb.proposals()[0].challenge] if decide == ["approve"] else []
    assert told(tb, decide[0], effect.id, *decide[1:], *typed, "--by", "bea").returncode == 0

    status = told(tb, "status").stdout
    assert words in status and "Waiting" not in status and "takeback approve" not in status
    assert words in told(tb, "show", effect.id).stdout
    as_json = json.loads(told(tb, "status", "--json").stdout)
    assert (as_json["approvals"], as_json["decided"]) == ([], [effect.id])


def told(tb: takeback.Takeback, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "takeback", *words], capture_output=True, text=True, check=False,
        env=os.environ | {"TAKEBACK_STORE": tb.path},
    )  # fmt: skip


def test_the_command_line_does_the_same(tb: takeback.Takeback) -> None:
    effect = asked(tb)
    (one,) = json.loads(told(tb, "pending", "--json").stdout)
    assert (one["id"], one["plan"]) == (effect.id, "cannot be undone: the mail is read")
    assert "the mail is read" in told(tb, "pending").stdout
    assert told(tb, "approve", effect.id, "--by", "bea").returncode == 3
    assert (
        told(tb, "approve", effect.id, "--by", "bea", "--answer", words(tb, effect), "--dry-run").returncode
        == 0
    )
    assert tb.pending()
    assert told(tb, "approve", effect.id, "--by", "bea", "--answer", words(tb, effect)).returncode == 0
    assert told(tb, "approve", effect.id, "--by", "bea", "--answer", words(tb, effect)).returncode == 3
    assert told(tb, "deny", effect.id, "--by", "bea").returncode == 3
