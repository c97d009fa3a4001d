"""Telling people of what waits for them: an outbox in the store, sent at least once, tried again until decided."""

import hashlib
import hmac
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.api.answers import answer, request_of
from takeback.api.store import OpenStore, now
from takeback.errors import Misuse, TakebackError
from takeback.model.approver import Mail, People, Webhook
from takeback.model.descriptor import Descriptor
from takeback.model.ids import short
from takeback.storage import disk

if TYPE_CHECKING:
    from takeback.engine.approval import Proposal
    from takeback.model.effect import Effect

OUTBOX = "outbox.json"  # in the store's directory on this machine: which receiver heard of which proposal
MAIL, DESKTOP = "mail", "desktop"
_SECOND = 1_000_000
_FIRST, _LONGEST = 5 * _SECOND, 900 * _SECOND  # between two tries
_PATIENCE = 5.0  # seconds that a receiver may take
_MOST = 1 << 20  # bytes of its answer
_RECEIVED_LATER = 202  # it has it, and may have an answer when it is asked again


class Told(NamedTuple):
    tries: int = 0
    next: int = 0  # microseconds since 1970
    done: bool = False


class Notice(NamedTuple):
    """One message about a proposal or an alert, sent or not."""

    effect: str
    receiver: str
    trouble: str = ""  # why it did not arrive
    answered: bool = False
    alert: str = ""


def tell_people(opened: OpenStore, at: int = 0, each: int = 0) -> list[Notice]:
    """Send what is due, once each; another process that sends just now is left to it. What could not be sent stays.
    `each`: alerts are looked for only after so many microseconds."""
    people = opened.parts.people()
    if not people.tells:
        return []
    with _alone(opened.store.path) as mine:
        if not mine:
            return []
        from takeback.api.alert_notices import tell_alerts

        return [*_told(opened, people, at or now()), *tell_alerts(opened, people, at or now(), each)]


def next_try(opened: OpenStore) -> int | None:
    """When something is to be sent next; None if nothing is left to be sent."""
    people = opened.parts.people()
    box = _read(opened.store.path)
    waiting = _waiting(opened)
    due = [box.get(f"{one.effect.id} {name}", Told()) for one in waiting for name in receivers_of(people)]
    from takeback.api.alert_notices import next_of_alerts

    again = next_of_alerts(opened, receivers_of(people))
    return min((*(one.next for one in due if not one.done), *again), default=None)


def _told(opened: OpenStore, people: People, at: int) -> Iterator[Notice]:
    waiting = _waiting(opened)
    names = {one.effect.id for one in waiting}
    box = {key: told for key, told in _read(opened.store.path).items() if key.partition(" ")[0] in names}
    for proposal in waiting:
        for receiver in receivers_of(people):
            key = f"{proposal.effect.id} {receiver}"
            told = box.get(key, Told())
            if told.done or told.next > at:
                continue
            sent, again = _send(opened, people, receiver, proposal, told.tries)
            box[key] = Told(told.tries + 1, at + until_next(told.tries), not again)
            # Noted after it was sent: killed in between, it is sent once more.
            _write(opened.store.path, box)
            yield sent
            if sent.answered:
                break


def until_next(tries: int) -> int:
    return min(_FIRST << min(tries, 16), _LONGEST)


def _waiting(opened: OpenStore) -> "list[Proposal]":
    from takeback.engine.approval import proposals

    return [one for one in proposals(opened.parts, now()) if not one.decision and not one.never]


def receivers_of(people: People) -> list[str]:
    others = [MAIL] if people.mail.to else []
    return [*(one.name for one in people.webhooks), *others, *([DESKTOP] if people.desktop else [])]


def _send(
    opened: OpenStore, people: People, receiver: str, proposal: "Proposal", tries: int
) -> tuple[Notice, bool]:
    """And whether to send it again."""
    effect = proposal.effect
    try:
        if receiver == MAIL:
            send_mail(people.mail, _in_words(proposal), f"takeback: {effect.change.summary}")
        elif receiver == DESKTOP:
            show_on_desktop(effect.change.summary, _in_words(proposal))
        else:
            hook = next(one for one in people.webhooks if one.name == receiver)
            return _posted(opened, hook, proposal, tries)
    except (OSError, TakebackError, ValueError) as error:
        return Notice(effect.id, receiver, str(error) or type(error).__name__), True
    return Notice(effect.id, receiver), False


def _posted(opened: OpenStore, hook: Webhook, proposal: "Proposal", tries: int) -> tuple[Notice, bool]:
    effect = proposal.effect
    message = {
        "takeback": "proposal 1",
        **request_of(opened, effect),
        "try": tries + 1,
        "said_yes": [one.by.name for one in proposal.said_yes],
    }
    code, said = post(hook, json.dumps(message).encode())
    if not 200 <= code < 300:
        return Notice(effect.id, hook.name, f"{hook.url} answered {code}"), True
    with suppress(ValueError):
        given = json.loads(said) if said.strip() else None
        if isinstance(given, dict) and given.get("takeback") == "answer 1":  # pyright: ignore[reportUnknownMemberType]
            found: dict[str, Any] = given  # pyright: ignore[reportUnknownVariableType]
            answer(opened, found)
            return Notice(effect.id, hook.name, answered=True), False
    return Notice(effect.id, hook.name), code == _RECEIVED_LATER


def post(hook: Webhook, body: bytes) -> tuple[int, bytes]:
    """The status and the answer. It follows no redirect: the address in the file is the receiver."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection
    from urllib.parse import urlsplit

    url = urlsplit(hook.url)
    headers = {"Content-Type": "application/json", "User-Agent": "takeback"}
    if secret := _secret(hook):
        headers["Takeback-Signature"] = "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
    kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=_PATIENCE)
    try:
        connection.request("POST", f"{url.path or '/'}{f'?{url.query}' if url.query else ''}", body, headers)
        said = connection.getresponse()
        return said.status, said.read(_MOST)
    except HTTPException as error:
        raise OSError(f"{hook.url} does not speak HTTP: {type(error).__name__}") from error
    finally:
        connection.close()


def _secret(hook: Webhook) -> bytes:
    kind, _, name = hook.secret.partition(":")
    if not hook.secret:
        return b""
    if kind == "env" and name in os.environ:
        return os.environb[os.fsencode(name)]
    if kind == "file":
        with open(name, "rb") as file:
            return file.read(_MOST).strip()
    raise Misuse(
        f"{hook.file}: the secret of webhook {hook.name} is not there.", hint='Say "env:NAME" or "file:PATH".'
    )


def _in_words(proposal: "Proposal") -> str:
    """For channels that only tell. There is no link in it that decides."""
    effect = proposal.effect
    name = short(effect.id)
    lines = [
        f"{effect.agent or 'A program'} asks for: {effect.change.summary}",
        f"Way back: {effect.plan}",
        f"Asked: {proposal.asked}",
        f"Look: takeback show {name}",
        f"Decide: takeback approve {name}   or   takeback deny {name}",
    ]
    return "".join(f"{as_line(line)}\n" for line in lines)


def as_line(text: str) -> str:
    """One line, without secrets: mail and desktop are read by more than those who decide."""
    from takeback.policy.secrets import masked

    return "".join(c if c.isprintable() else " " for c in masked(text))


def send_mail(mail: Mail, text: str, subject: str) -> None:
    import smtplib
    from email.message import EmailMessage

    message = EmailMessage()
    message["From"], message["To"] = mail.sender, ", ".join(mail.to)
    message["Subject"] = as_line(subject)[:200]
    message.set_content(text)
    host, _, port = mail.server.partition(":")
    with smtplib.SMTP(host, int(port or 25), timeout=_PATIENCE) as server:
        server.send_message(message)


def show_on_desktop(title: str, text: str) -> None:
    import subprocess

    shown = subprocess.run(
        ["notify-send", "--app-name=takeback", "--", as_line(title)[:100], text],
        check=False, timeout=_PATIENCE, capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if shown.returncode:
        raise OSError(f"notify-send failed: {os.fsdecode(shown.stderr).strip()}")


# The outbox.


@contextmanager
def _alone(store: str) -> Iterator[bool]:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with Descriptor(os.open(os.path.join(store, f"{OUTBOX}.lock"), flags, 0o600)) as handle:
        yield disk.try_lock(handle)


def _read(store: str) -> dict[str, Told]:
    """One that cannot be read is as none: then each receiver hears of it once more."""
    try:
        with open(os.path.join(store, OUTBOX), encoding="utf-8") as file:
            return {key: Told(*told) for key, told in json.load(file).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _write(store: str, box: Mapping[str, Told]) -> None:
    disk.write_file(os.path.join(store, OUTBOX), json.dumps(box).encode())


def tell_later(opened: OpenStore, effect: "Effect") -> None:
    """A proposal was made: a process of its own sends, so that the agent waits for no receiver."""
    import subprocess

    with suppress(TakebackError, OSError):  # the proposal stands, and the next that sends finds it
        if not opened.parts.people().tells:
            return
        subprocess.Popen(
            [sys.executable, "-m", "takeback", "--store", opened.store.name, "pending", "--send", "--wait", "900"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            close_fds=True,
        )  # fmt: skip
