"""Those who decide are told, at least once, whatever becomes of the receiver; what they answer is taken once."""

import hashlib
import hmac
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.api import delivery, notices, opened_of
from takeback.api.alert_notices import TOLD
from takeback.api.answers import load_key, new_key, signed_answer
from takeback.api.delivery import Notice
from takeback.api.notices import OUTBOX, next_try, tell_people
from takeback.api.store import now
from takeback.model.approver import Approver, Mail, People, Webhook, people_from
from takeback.storage.verify_note import LastVerified, note_verified
from tests.agents.talk import until
from tests.approvals.asking import with_people
from tests.calls import post
from tests.calls.post import send_mail

SECOND = 1_000_000


class Receiver:
    """A real server on loopback, that answers as it is told."""

    def __init__(self) -> None:
        self.code, self.answers = 200, True
        self.key = ""
        self.heard: list[dict[str, Any]] = []
        self.signatures: list[str] = []
        self.release = threading.Event()
        self.release.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.heard.append(json.loads(body))
                given = hmac.new(b"shared", body, hashlib.sha256).hexdigest()
                receiver.signatures.append(
                    "fits" if self.headers.get("Takeback-Signature") == f"sha256={given}" else "none"
                )
                receiver.release.wait(30)
                said = json.dumps(receiver.answer()).encode() if receiver.key and receiver.answers else b""
                self.send_response(receiver.code)
                if receiver.code == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    def answer(self, approved: bool = True) -> dict[str, Any]:
        shown = self.heard[-1]
        return signed_answer(shown, approved, "bea", load_key(self.key, b""), shown["challenge"])

    def close(self) -> None:
        self.release.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def tb(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> takeback.Takeback:
    monkeypatch.setenv("POST", str(tmp_path / "post"))
    tb = takeback.open(store)
    with pytest.raises(takeback.AwaitingApproval), tb.run("write", agent="writer") as run:
        run.call(send_mail, "anna", key="mail-1")
    return tb


def hooked(tb: takeback.Takeback, *hooks: Webhook, approvers: tuple[Approver, ...] = (), **more: Any) -> None:
    with_people(tb, People(approvers, hooks, **more))


def told(tb: takeback.Takeback, after: int = 0) -> list[Notice]:
    return tell_people(opened_of(tb), now() + after)


def test_a_receiver_is_told_once_with_all_that_is_to_be_approved(
    tb: takeback.Takeback, receiver: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("shared\n")
    hooked(tb, Webhook("chat", receiver.url, secret=f"file:{tmp_path}/secret"))
    assert [one.trouble for one in told(tb)] == [""]
    assert told(tb, 900 * SECOND) == [] and next_try(opened_of(tb)) is None
    (heard,) = receiver.heard
    assert heard["request"]["summary"].startswith('call send_mail(to="anna"')
    assert heard["request"]["plan"] == "cannot be undone: the mail is read"
    assert heard["digest"] == tb.proposals()[0].digest
    assert receiver.signatures == ["fits"]


@pytest.mark.parametrize("code", [500, 404, 302])
def test_one_that_is_down_is_told_later(tb: takeback.Takeback, receiver: Receiver, code: int) -> None:
    hooked(tb, Webhook("chat", receiver.url))
    receiver.code = code
    assert f"answered {code}" in told(tb)[0].trouble
    assert told(tb) == [], "not before its time"
    receiver.code = 200
    assert told(tb, 6 * SECOND)[0].trouble == ""
    assert [one["try"] for one in receiver.heard] == [1, 2]


def test_one_that_cannot_be_reached_or_is_slow_holds_nobody_up(
    tb: takeback.Takeback, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_PATIENCE", 0.2)
    receiver.release.clear()
    hooked(tb, Webhook("gone", "http://127.0.0.1:9/"), Webhook("slow", receiver.url))
    assert all(one.trouble for one in told(tb))
    receiver.release.set()
    again = {one.receiver: one.trouble for one in told(tb, 6 * SECOND)}
    assert again["slow"] == "" and again["gone"] != ""


def test_its_signed_answer_decides_and_a_second_one_does_not(
    tb: takeback.Takeback, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.key = str(tmp_path / "key")
    key = new_key(receiver.key, b"")
    hooked(tb, Webhook("chat", receiver.url, key=key, file="/etc/x", owner=4711))
    (sent,) = told(tb)
    assert sent.answered and tb.pending() == ()
    from takeback.api.answers import answer

    with pytest.raises(takeback.Refused, match="decided on already"):
        answer(opened_of(tb), receiver.answer())
    assert told(tb, 900 * SECOND) == []
    with tb.resume(tb.runs()[0]) as run:
        run.call(send_mail, "anna", key="mail-1")
    assert post.sent() == ["mail anna hello"]


def test_one_that_waits_for_its_person_is_asked_again(
    tb: takeback.Takeback, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.key, receiver.code, receiver.answers = str(tmp_path / "key"), 202, False
    hooked(tb, Webhook("chat", receiver.url, key=new_key(receiver.key, b""), owner=4711))
    assert not told(tb)[0].answered
    receiver.answers = True
    assert told(tb, 6 * SECOND)[0].answered and tb.pending() == ()


def test_an_answer_of_one_without_a_key_is_no_decision(
    tb: takeback.Takeback, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.key = str(tmp_path / "key")
    new_key(receiver.key, b"")
    hooked(tb, Webhook("chat", receiver.url))
    assert "not one of bea here" in told(tb)[0].trouble
    assert len(tb.pending()) == 1


def test_a_receiver_names_only_people_on_the_list(
    tb: takeback.Takeback, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.key = str(tmp_path / "key")
    hook = Webhook("chat", receiver.url, key=new_key(receiver.key, b""), owner=4711)
    hooked(tb, hook, approvers=(Approver("kim", user="kim"),))
    assert "not one of bea here" in told(tb)[0].trouble
    assert len(tb.pending()) == 1


def test_what_was_sent_and_not_noted_is_sent_again(
    tb: takeback.Takeback, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it was killed in between."""
    hooked(tb, Webhook("chat", receiver.url))
    with monkeypatch.context() as killed:
        killed.setattr(notices, "_write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            told(tb)
    assert told(tb)[0].trouble == "" and len(receiver.heard) == 2


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"a": 1}'])
def test_an_outbox_that_is_damaged_tells_everyone_once_more(
    tb: takeback.Takeback, receiver: Receiver, damage: bytes
) -> None:
    hooked(tb, Webhook("chat", receiver.url))
    told(tb)
    (Path(tb.path) / OUTBOX).write_bytes(damage)
    assert told(tb)[0].trouble == ""


def test_nobody_is_told_of_what_was_decided(tb: takeback.Takeback, receiver: Receiver) -> None:
    hooked(tb, Webhook("chat", receiver.url))
    tb.deny(tb.pending()[0], by="bea")
    assert told(tb) == [] and receiver.heard == []


def test_of_two_that_send_at_once_one_does(tb: takeback.Takeback, receiver: Receiver) -> None:
    hooked(tb, Webhook("chat", receiver.url))
    receiver.release.clear()
    with takeback.open(tb.path) as other:
        hooked(other, Webhook("chat", receiver.url))
        first = threading.Thread(target=told, args=(tb,))
        first.start()
        until(lambda: bool(receiver.heard))
        assert told(other) == []
        receiver.release.set()
        first.join()
    assert len(receiver.heard) == 1


def test_a_mail_only_tells(tb: takeback.Takeback) -> None:
    from aiosmtpd import controller

    heard: list[bytes] = []

    class Inbox:
        async def handle_DATA(self, server: object, session: object, envelope: Any) -> str:
            heard.append(envelope.content)
            return "250 OK"

    class Anywhere(controller.Controller):  # pyright: ignore
        def _trigger_server(self) -> None:
            self.port = self.server.sockets[0].getsockname()[1]
            super()._trigger_server()

    server = Anywhere(Inbox(), hostname="127.0.0.1", port=0)
    server.start()
    try:
        hooked(tb, mail=Mail(f"127.0.0.1:{server.port}", "takeback@example.com", ("bea@example.com",)))
        assert told(tb) == [Notice(tb.pending()[0].id, "mail")]
    finally:
        server.stop()
    (mail,) = heard
    assert b"takeback approve" in mail and b"cannot be undone: the mail is read" in mail
    assert b"http" not in mail
    assert told(tb, 900 * SECOND) == []


def test_a_desktop_is_told_by_its_program(
    tb: takeback.Takeback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin/notify-send"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/shown\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    hooked(tb, desktop=True)
    assert told(tb)[0].trouble == ""
    assert "cannot be undone" in (tmp_path / "shown").read_text()


ASKS = """
import takeback
from tests.calls.post import send_mail
with takeback.open() as tb:
    try:
        with tb.run("again", agent="writer") as run:
            run.call(send_mail, "kim", key="mail-2")
    except takeback.AwaitingApproval:
        pass
"""


def test_the_one_who_asks_does_not_wait_for_the_receiver(
    tb: takeback.Takeback, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of its own sends, and goes on when the agent has ended."""
    config = tmp_path / "home/.config/takeback/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[notify.webhook.chat]\nurl = "{receiver.url}"\n')
    receiver.release.clear()
    root = str(Path(__file__).parents[2])
    given = {**os.environ, "HOME": str(tmp_path / "home"), "TAKEBACK_STORE": tb.path, "PYTHONPATH": root}
    given.pop("XDG_CONFIG_HOME", None)
    subprocess.run([sys.executable, "-c", ASKS], env=given, check=True, timeout=60)
    assert not receiver.release.is_set()
    until(lambda: len(receiver.heard) >= 1)
    receiver.release.set()
    until(lambda: len(receiver.heard) >= 2)
    sent = [sys.executable, "-m", "takeback", "pending", "--send", "--json"]
    until(lambda: json.loads(subprocess.run(sent, env=given, capture_output=True, check=False).stdout) == [])


@pytest.mark.parametrize(
    "text",
    [
        {"approvers": {"bea": {"key": "ed25519:short"}}}, {"approvers": {"bea": {"keys": "x"}}},
        {"approvers": {"bea": 7}}, {"approvals": {"proven": "yes"}}, {"notify": {"webhook": {"a": {}}}},
        {"notify": {"webhook": {"a": {"url": "ftp://x"}}}}, {"notify": {"mail": {"server": "x"}}},
        {"notify": {"desktop": 1}}, {"notify": {"pager": True}}, {"approvers": 7},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_a_slip_in_the_file_is_said(text: dict[str, Any]) -> None:
    with pytest.raises(takeback.Misuse, match=r"config\.toml"):
        people_from(text, "config.toml")


# Alerts.


def found(tb: takeback.Takeback, findings: int) -> None:
    note_verified(tb.store.verify_note, LastVerified(now(), findings, "a blob is missing"))


def test_an_alert_is_told_once_when_it_opens_and_once_when_it_is_over(
    tb: takeback.Takeback, receiver: Receiver
) -> None:
    hooked(tb, Webhook("chat", receiver.url))
    told(tb)
    receiver.heard.clear()

    sent = [one for findings in (2, 2, 0, 0) for one in (found(tb, findings), told(tb))[1]]

    assert [(one.receiver, one.alert, one.trouble) for one in sent] == [
        ("chat", "verification-failed", "")
    ] * 2
    events = [(one["takeback"], one["event"], one["severity"]) for one in receiver.heard]
    assert events == [("alert 1", "alert-opened", "critical"), ("alert 1", "alert-closed", "critical")]
    assert "a blob is missing" in receiver.heard[0]["says"]
    assert next_try(opened_of(tb)) is None


def test_an_alert_is_told_later_to_a_receiver_that_is_down(tb: takeback.Takeback, receiver: Receiver) -> None:
    hooked(tb, Webhook("chat", receiver.url))
    told(tb)
    found(tb, 1)
    receiver.code = 500
    assert "answered 500" in told(tb)[0].trouble
    assert told(tb) == [] and (next_try(opened_of(tb)) or 0) > now()
    receiver.code = 200
    assert [one.trouble for one in told(tb, 6 * SECOND)] == [""]
    assert told(tb, 60 * SECOND) == [] and next_try(opened_of(tb)) is None


def test_one_whose_failed_alert_is_over_is_not_tried_for_ever(
    tb: takeback.Takeback, receiver: Receiver
) -> None:
    hooked(tb, Webhook("chat", receiver.url))
    told(tb)
    found(tb, 1)
    receiver.code = 500
    told(tb)
    found(tb, 0)
    assert told(tb, 6 * SECOND) == [] and next_try(opened_of(tb)) is None


def test_an_idle_worker_looks_for_alerts_now_and_then_and_does_not_tell_twice(
    tb: takeback.Takeback, receiver: Receiver
) -> None:
    hooked(tb, Webhook("chat", receiver.url))
    tell_people(opened_of(tb), now(), each=30 * SECOND)
    found(tb, 1)
    later = now() + 31 * SECOND

    assert tell_people(opened_of(tb), now(), each=30 * SECOND) == []
    assert [one.alert for one in tell_people(opened_of(tb), later, each=30 * SECOND)] == [
        "verification-failed"
    ]
    assert told(tb) == []


def test_a_note_of_what_was_told_that_is_broken_tells_once_more(
    tb: takeback.Takeback, receiver: Receiver
) -> None:
    """Rather twice than never: so does a process that was killed between sending and noting."""
    hooked(tb, Webhook("chat", receiver.url))
    found(tb, 1)
    told(tb)
    for content in (b"", b"[]", b'[1, {"chat": 7}]', b'[1, {"chat": [[["x"]], 0, 0]}]'):
        Path(tb.path, TOLD).write_bytes(content)
        assert [one.alert for one in told(tb)] == ["verification-failed"]
    assert told(tb) == []
