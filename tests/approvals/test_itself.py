"""An agent that tries to approve what it asked for: it is refused, or what it said is recorded as not proven."""

import json
import os
import pty
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import takeback
from takeback.api import opened_of
from takeback.api.answers import answer, new_key, request_of, signed_answer
from takeback.api.answers import load_key as private_key
from takeback.engine.approvable import digest_of
from takeback.engine.approval import decisions
from takeback.model.approver import Approver, People
from takeback.model.person import Account
from takeback.model.record import Draft, Kind
from takeback.runs.person import account_here, person_here
from tests.agents.talk import until
from tests.approvals.agents import AGENT, Place, place
from tests.approvals.asking import with_people
from tests.calls import post
from tests.calls.post import send_mail

_ = place
SOURCE = str(Path(takeback.__file__).parent.parent)
CLI = f"{sys.executable} -m takeback"


class Office:
    """A store with one proposal of an agent that waits."""

    def __init__(self, store: str) -> None:
        self.tb = takeback.open(store)
        with pytest.raises(takeback.AwaitingApproval) as told, self.tb.run("write", agent="writer") as run:
            run.call(send_mail, "anna", key="mail-1")
        self.id = told.value.effect or ""
        self.effect = self.tb.effect(self.id)
        self.words = told.value.challenge
        self.environment = {**os.environ, "TAKEBACK_STORE": store, "PYTHONPATH": SOURCE}

    def says(self, command: str, **more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["sh", "-c", f"{command}; exit $?"], env={**self.environment, **more}, capture_output=True, text=True,
            check=False, timeout=60,
        )  # fmt: skip

    @property
    def approve(self) -> str:
        return f"{CLI} approve {self.id} --by bea --answer '{self.words}'"

    def is_undecided(self) -> bool:
        return [one.id for one in self.tb.pending()] == [self.id] and post.sent() == []

    def goes_on(self) -> None:
        with self.tb.resume(self.effect.run) as run:
            run.call(send_mail, "anna", key="mail-1")


@pytest.fixture
def office(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    monkeypatch.setenv("POST", str(tmp_path / "post"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return Office(store)


REFUSED: dict[str, Callable[[Office], str]] = {
    "by the command line": lambda one: f"CLAUDECODE=1 {one.approve}",
    "with the name of someone else, in another agent": lambda one: f"CODEX_CI=1 USER=bea {one.approve}",
    "with the environment cleared": lambda one: (
        'GEMINI_CLI=1 sh -c "env -i HOME=$HOME PYTHONPATH=$PYTHONPATH TAKEBACK_STORE=$TAKEBACK_STORE '
        f'{one.approve}; exit \\$?"'
    ),
    "in a session of its own": lambda one: f"CURSOR_AGENT=1 setsid -w {one.approve}",
    "by the library": lambda one: (
        f"OPENCODE=1 {sys.executable} -c \"import takeback; takeback.open().approve('{one.id}', by='bea', "
        f"answer='{one.words}')\" 2>&1 | grep 'is for a person' && exit 3"
    ),
    "through a command that is watched in place": lambda one: (
        f"cd $HOME; {CLI} run --in-place --root $HOME/work -- {one.approve}"
    ),
    "by denying": lambda one: f"CLAUDECODE=1 {CLI} deny {one.id}",
    "by settling": lambda one: f"CLAUDECODE=1 {CLI} settle {one.id} --happened",
    "by making a key": lambda one: f"CLAUDECODE=1 {CLI} approver new writer --no-passphrase",
    "by signing": lambda one: f"CLAUDECODE=1 {CLI} approver sign - --by bea --key x < /dev/null",
    "by its own name": lambda one: f"{CLI} approve {one.id} --by writer --answer '{one.words}'",
    "without the words": lambda one: f"{CLI} approve {one.id} --by bea --answer 'send_mail cannot be undone'",
}


@pytest.mark.parametrize("way", REFUSED)
@pytest.mark.sampled(4)
def test_what_shows_that_it_is_an_agent_is_refused(office: Office, tmp_path: Path, way: str) -> None:
    (tmp_path / "work").mkdir()
    done = office.says(REFUSED[way](office))
    assert done.returncode == 3, done
    assert office.is_undecided()
    assert not (tmp_path / ".config/takeback/approvers").exists()


@pytest.mark.able("overlays")
@pytest.mark.parametrize("how", ["run", "shell"])
@pytest.mark.sampled(2)
def test_a_sandboxed_command_cannot(office: Office, tmp_path: Path, how: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "go").write_text(f"{office.approve} >said 2>&1; echo $? >>said")
    command = f"{CLI} run -- sh go" if how == "run" else f"echo sh go | {CLI} shell --commit"
    done = office.says(f"cd {work}; {command}")
    assert done.returncode == 0, done
    *said, code = (work / "said").read_text().splitlines()
    assert code in ("3", "5"), said
    assert office.is_undecided()


def test_a_function_that_its_run_calls_cannot(office: Office) -> None:
    @takeback.action(undo=takeback.IRREVERSIBLE("x"), name="approves")
    def approves(id: str) -> None:
        office.tb.approve(id, answer=office.words)

    with office.tb.run("other", agent="writer") as run:
        with pytest.raises(takeback.Refused, match="'writer' is this process"):
            approves.function(office.id)
        assert run.id
    assert office.is_undecided()


CUT_OFF = """
import os, sys
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.execve(sys.executable, [sys.executable, "-m", "takeback", *sys.argv[1:]], {
    name: os.environ[name] for name in ("HOME", "PYTHONPATH", "TAKEBACK_STORE")})
"""


def _cut_off(office: Office, tmp_path: Path) -> None:
    """With nothing of an agent above it or around it, as a job of cron would be."""
    out = tmp_path / "out"
    with out.open("w") as file:
        subprocess.run(
            [sys.executable, "-c", CUT_OFF, "approve", office.id, "--by", "bea", "--answer", office.words],
            env={**office.environment, "CLAUDECODE": "1"}, stdout=file, stderr=file, check=True, timeout=60,
        )  # fmt: skip
    until(lambda: "hint" in out.read_text() or "error" in out.read_text())
    assert office.tb


def test_cut_off_from_its_agent_it_counts_and_everyone_is_told_not_proven(
    office: Office, tmp_path: Path
) -> None:
    _cut_off(office, tmp_path)
    said = (tmp_path / "out").read_text()
    assert "(not proven, gave the name bea), uid " in said
    assert "a process of the agent's user could have said the same" in said
    (one,) = decisions(opened_of(office.tb).parts, office.effect)
    assert not one.by.is_proven and one.by.name != "bea"
    status = office.says(f"{CLI} status").stdout
    assert "not proven" in status
    doctor = office.says(f"{CLI} doctor").stdout
    assert "not proven" in doctor


def test_where_proof_is_demanded_it_does_not_count(office: Office, tmp_path: Path) -> None:
    config = tmp_path / ".config/takeback/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[approvals]\nproven = true\n")
    _cut_off(office, tmp_path)
    assert "is not proven to be another user than the agent" in (tmp_path / "out").read_text()
    assert office.is_undecided()
    # A record that it writes itself does not help either.
    body = {"approved": True, "by": "bea", "digest": digest_of(office.effect)}
    office.tb.store.journal.append(None, [Draft(Kind.DECIDE, office.effect.run, office.id, body)])
    with pytest.raises(takeback.Denied, match="not proven"):
        office.goes_on()
    assert post.sent() == []


def test_a_record_that_says_a_key_was_used_needs_the_signature(office: Office) -> None:
    body = {"approved": True, "by": "bea", "known_by": "key", "digest": digest_of(office.effect)}
    office.tb.store.journal.append(None, [Draft(Kind.DECIDE, office.effect.run, office.id, body)])
    with pytest.raises(takeback.Denied, match="the signature of bea does not fit"):
        office.goes_on()
    assert post.sent() == []


def test_a_proposal_that_names_another_account_makes_nobody_another_user(office: Office) -> None:
    """The agent writes its proposals itself."""
    store = opened_of(office.tb).store
    mine = account_here(store)
    for told in (mine, mine._replace(uid=4711), Account(), None):
        assert not person_here(store, "bea", told).is_proven


def test_a_record_that_is_written_past_the_library_is_found_by_verify(office: Office, store: str) -> None:
    office.tb.deny(office.id, by="kim")
    office.tb.close()
    with sqlite3.connect(Path(store) / "journal.db") as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f'DROP TRIGGER "{name}"')
        changed = db.execute(
            "UPDATE records SET at = at + 1 WHERE seq = (SELECT max(seq) FROM records)"
        ).rowcount
    assert changed == 1
    done = office.says(f"{CLI} verify")
    assert done.returncode == 6, done


def _keyed(office: Office, tmp_path: Path, owner: int) -> tuple[Path, People]:
    """A key, and the list that names it for bea, in a file that only this user may write."""
    file = tmp_path / "key"
    public = new_key(str(file), b"")
    return file, People((Approver("bea", key=public, file="/etc/takeback/config.toml", owner=owner),))


def _signed(office: Office, key: Path, approved: bool = True) -> dict[str, object]:
    shown = request_of(opened_of(office.tb), office.effect)
    return signed_answer(shown, approved, "bea", private_key(str(key), b""), office.words)


def test_a_key_that_the_agent_put_on_the_list_itself_proves_nothing(office: Office, tmp_path: Path) -> None:
    key, people = _keyed(office, tmp_path, owner=os.getuid())
    with_people(office.tb, people)
    answer(opened_of(office.tb), _signed(office, key))
    (one,) = decisions(opened_of(office.tb).parts, office.effect)
    assert not one.by.is_proven
    assert "which the agent's user can write" in one.by.detail


def test_a_key_that_is_not_on_the_list_is_refused(office: Office, tmp_path: Path) -> None:
    key, _ = _keyed(office, tmp_path, owner=0)
    with pytest.raises(takeback.Denied, match="not one of bea here"):
        answer(opened_of(office.tb), _signed(office, key))
    assert office.is_undecided()


@pytest.mark.parametrize(
    "change",
    [
        {"signature": "AAAA"}, {"signature": "not base64"}, {"approved": False}, {"why": "more"}, {"by": "kim"},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_an_answer_that_was_changed_is_refused(
    office: Office, tmp_path: Path, change: dict[str, object]
) -> None:
    key, people = _keyed(office, tmp_path, owner=0)
    with_people(office.tb, people)
    with pytest.raises(takeback.Denied):
        answer(opened_of(office.tb), {**_signed(office, key), **change})
    assert office.is_undecided()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"nonce": "x"}, takeback.Refused), ({"digest": "0" * 64}, takeback.Refused), ({"until": 1}, takeback.Refused),
        ({"id": 7}, takeback.Misuse), ({"approved": "yes"}, takeback.Misuse), ({"key": None}, takeback.Misuse),
        ({"words": "yes"}, takeback.Refused),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)  # fmt: skip
def test_an_answer_to_something_else_is_refused(
    office: Office, tmp_path: Path, change: dict[str, object], error: type[Exception]
) -> None:
    key, people = _keyed(office, tmp_path, owner=0)
    with_people(office.tb, people)
    with pytest.raises(error):
        answer(opened_of(office.tb), {**_signed(office, key), **change})
    assert office.is_undecided()


def test_a_signed_answer_is_taken_once(office: Office, tmp_path: Path) -> None:
    key, people = _keyed(office, tmp_path, owner=AGENT + 1 if os.getuid() else 0)
    with_people(office.tb, people)
    message = _signed(office, key)
    answer(opened_of(office.tb), message)
    with pytest.raises(takeback.Refused, match="decided on already"):
        answer(opened_of(office.tb), message)
    office.goes_on()
    assert post.sent() == ["mail anna hello"]


def test_a_request_that_was_changed_on_its_way_is_not_signed(office: Office, tmp_path: Path) -> None:
    key, _ = _keyed(office, tmp_path, owner=0)
    shown = request_of(opened_of(office.tb), office.effect)
    shown["request"]["summary"] = 'call send_mail(to="someone else")'
    with pytest.raises(takeback.Refused, match="do not fit each other"):
        signed_answer(shown, True, "bea", private_key(str(key), b""))


@pytest.mark.slow
def test_the_offline_way_with_a_passphrase(office: Office, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("correct horse\n")
    key = tmp_path / "keys/bea.key"
    made = office.says(f"{CLI} approver new bea --key {key} --passphrase-file {secret} --json")
    assert made.returncode == 0, made
    assert b"ENCRYPTED" in key.read_bytes() and key.stat().st_mode & 0o777 == 0o600
    config = tmp_path / ".config/takeback/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(json.loads(made.stdout)["lines"])
    listed = office.says(f"{CLI} approver list")
    assert listed.stdout.startswith("bea") and "key" in listed.stdout
    shown = office.says(f"{CLI} approve {office.id} --show-request > {tmp_path}/request.json")
    assert shown.returncode == 0, shown
    sign = f"{CLI} approver sign {tmp_path}/request.json --by bea --key {key} --answer '{office.words}'"
    assert office.says(f"{sign} </dev/null").returncode == 2, "it needs the passphrase"
    (tmp_path / "wrong").write_text("guessed\n")
    assert office.says(f"{sign} --passphrase-file {tmp_path}/wrong").returncode == 2
    signed = office.says(f"{sign} --passphrase-file {secret} > {tmp_path}/answer.json")
    assert signed.returncode == 0, signed
    taken = office.says(f"{CLI} approve --answer-file {tmp_path}/answer.json")
    assert taken.returncode == 0 and "approved" in taken.stdout, taken
    assert "bea (not proven)" in taken.stdout and "which the agent's user can write" in taken.stdout
    office.goes_on()
    assert post.sent() == ["mail anna hello"]


# With an agent of another user.

as_root = pytest.mark.root


@as_root
def test_another_user_is_proven_and_the_agent_is_not(place: Place) -> None:
    assert place.asks().startswith("AwaitingApproval")
    (waiting,) = place.pending()
    done = place.takeback("approve", waiting["id"], "--by", "bea", "--answer", waiting["challenge"])
    assert done.returncode == 0, done.stderr
    assert "Recorded: root, known by user (uid 0)." in done.stdout
    owners = {os.stat(path).st_uid for path in (place.store, *place.store.rglob("*"))}
    assert owners == {AGENT}, "everything in the store stays the agent's user's"
    assert place.asks("resume") == "sent"
    assert place.sent() == ["mail anna hello"]


@as_root
@pytest.mark.slow
def test_no_process_of_the_agents_user_looks_into_one_that_asks_a_person(place: Place) -> None:
    place.asks()
    (waiting,) = place.pending()
    ours, its = pty.openpty()
    program = [
        "setpriv", f"--reuid={AGENT}", f"--regid={AGENT}", "--clear-groups",
        sys.executable, "-m", "takeback", "approve", waiting["id"],
    ]  # fmt: skip
    asking = subprocess.Popen(
        program,
        env=place.environment(place.directory),
        stdin=its,
        stdout=its,
        stderr=its,
        cwd=place.directory,
    )
    try:
        seen = b""
        while b"to approve it" not in seen:
            seen += os.read(ours, 1 << 12)
        looks = f"open('/proc/{asking.pid}/mem', 'rb')"
        assert "PermissionError" in place.agent(sys.executable, "-c", looks).stderr
        os.write(ours, b"no\n")
        assert asking.wait(30) == 3
    finally:
        asking.kill()
        asking.wait()
        os.close(ours)
        os.close(its)
    assert shutil.which("sh") and time.monotonic()
