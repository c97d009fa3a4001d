"""How a notice reaches its receiver: by webhook, by mail, on the desktop."""

import hashlib
import hmac
import os
from typing import NamedTuple

from takeback.errors import Misuse
from takeback.model.approver import Mail, People, Webhook

MAIL, DESKTOP = "mail", "desktop"
_SECOND = 1_000_000
_FIRST, _LONGEST = 5 * _SECOND, 900 * _SECOND  # between two tries
_PATIENCE = 5.0  # seconds that a receiver may take
_MOST = 1 << 20  # bytes of its answer


class Notice(NamedTuple):
    """One message about a proposal or an alert, sent or not."""

    effect: str
    receiver: str
    trouble: str = ""  # why it did not arrive
    answered: bool = False
    alert: str = ""


def until_next(tries: int) -> int:
    return min(_FIRST << min(tries, 16), _LONGEST)


def receivers_of(people: People) -> list[str]:
    others = [MAIL] if people.mail.to else []
    return [*(one.name for one in people.webhooks), *others, *([DESKTOP] if people.desktop else [])]


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
