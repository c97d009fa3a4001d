"""Who may approve, as the user's and the administrator's files list them."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple

from takeback.errors import Misuse
from takeback.model.person import KnownBy, Person

ED25519 = "ed25519:"
_FIELDS = ("key", "user", "role", "login", "mail")


class Approver(NamedTuple):
    name: str
    key: str = ""  # public, `ed25519:` and base64
    user: str = ""  # an account of the machine
    role: str = ""  # of the database that holds the store
    login: str = ""  # at the console
    mail: str = ""
    file: str = ""  # that lists it
    owner: int = -1  # the uid that may write that file; -1: more than one may


class Webhook(NamedTuple):
    """A receiver that hears of each proposal, and may answer with a signature."""

    name: str
    url: str
    secret: str = ""  # name of the environment variable, or the path, of what our requests are signed with
    key: str = ""  # public, of the signatures of its answers
    file: str = ""
    owner: int = -1


class Mail(NamedTuple):
    server: str = ""  # host:port
    sender: str = ""
    to: tuple[str, ...] = ()


class People(NamedTuple):
    """What the files say of people; of no file at all: nothing."""

    approvers: tuple[Approver, ...] = ()
    webhooks: tuple[Webhook, ...] = ()
    mail: Mail = Mail()
    desktop: bool = False
    proven: bool = False  # every approval needs a proven person

    @property
    def tells(self) -> bool:
        """Whether a proposal is sent to someone."""
        return bool(self.webhooks or self.mail.to or self.desktop)

    def named(self, person: Person) -> Person:
        """With the one name that this person has, whichever way they were known."""
        for one in self.approvers:
            known = {
                KnownBy.KEY: one.name,
                KnownBy.LOGIN: one.login or one.name,
            }.get(person.known_by, one.role if person.role else one.user)
            if known and known == person.name:
                return person._replace(name=one.name)
        return person

    def lists(self, name: str) -> bool:
        return any(one.name == name for one in self.approvers)


NOBODY = People()


def people_from(data: Mapping[str, Any], file: str, owner: int = -1) -> People:
    """From the tables `approvers`, `approvals` and `notify` of a file. Strict: a slip could let a wrong one decide."""
    approvers = tuple(
        _approver(name, one, file, owner) for name, one in _table(data, "approvers", file).items()
    )
    approvals = _table(data, "approvals", file)
    _refuse_unknown(approvals, ("proven",), f"{file}: [approvals]")
    proven = approvals.get("proven", False)
    if not isinstance(proven, bool):
        raise Misuse(f"{file}: proven in [approvals] is true or false, not {proven!r}.")
    notify = _table(data, "notify", file)
    _refuse_unknown(notify, ("webhook", "mail", "desktop"), f"{file}: [notify]")
    hooks = tuple(_webhook(name, one, file, owner) for name, one in _table(notify, "webhook", file).items())
    desktop = notify.get("desktop", False)
    if not isinstance(desktop, bool):
        raise Misuse(f"{file}: desktop in [notify] is true or false, not {desktop!r}.")
    return People(approvers, hooks, _mail(_table(notify, "mail", file), file), desktop, proven)


def joined(parts: list[People]) -> People:
    """The administrator's first. A later file adds people and receivers, and takes nothing away; of two that have one
    name, the first counts."""
    approvers, hooks = dict[str, Approver](), dict[str, Webhook]()
    for part in parts:
        for one in part.approvers:
            approvers.setdefault(one.name, one)
        for one in part.webhooks:
            hooks.setdefault(one.name, one)
    mails = [part.mail for part in parts if part.mail.to]
    return People(
        tuple(approvers.values()),
        tuple(hooks.values()),
        mails[0] if mails else Mail(),
        any(part.desktop for part in parts),
        any(part.proven for part in parts),
    )


def _approver(name: str, data: Any, file: str, owner: int) -> Approver:
    where = f"{file}: [approvers.{name}]"
    if not isinstance(data, dict) or not name.strip():
        raise Misuse(f"{where} is not a table.", hint='For example [approvers.bea] with user = "bea".')
    given: dict[str, Any] = data  # pyright: ignore[reportUnknownVariableType]
    _refuse_unknown(given, _FIELDS, where)
    for field, value in given.items():
        if not isinstance(value, str) or not value:
            raise Misuse(f"{where}: {field} is text, not {value!r}.")
    if "key" in given:
        key_bytes(given["key"], where)
    return Approver(name, **given, file=file, owner=owner)


def _webhook(name: str, data: Any, file: str, owner: int) -> Webhook:
    where = f"{file}: [notify.webhook.{name}]"
    if not isinstance(data, dict):
        raise Misuse(f"{where} is not a table.", hint='For example url = "https://chat.example/takeback".')
    given: dict[str, Any] = data  # pyright: ignore[reportUnknownVariableType]
    _refuse_unknown(given, ("url", "secret", "key"), where)
    for field, value in given.items():
        if not isinstance(value, str) or not value:
            raise Misuse(f"{where}: {field} is text, not {value!r}.")
    if not str(given.get("url", "")).startswith(("https://", "http://")):
        raise Misuse(f"{where}: url is missing, or no https:// address.")
    if "key" in given:
        key_bytes(given["key"], where)
    return Webhook(name, **given, file=file, owner=owner)


def _mail(given: Mapping[str, Any], file: str) -> Mail:
    where = f"{file}: [notify.mail]"
    _refuse_unknown(given, ("server", "sender", "to"), where)
    if not given:
        return Mail()
    server, sender, to = given.get("server", ""), given.get("sender", ""), given.get("to", [])
    texts = [server, sender, *(to if isinstance(to, list) else [None])]  # pyright: ignore[reportUnknownVariableType]
    if not to or not all(isinstance(one, str) and one and "\n" not in one for one in texts):  # pyright: ignore[reportUnknownVariableType]
        raise Misuse(
            f"{where} needs server, sender and to.",
            hint='For example server = "localhost:25", sender = "takeback@example.com", to = ["bea@example.com"].',
        )
    return Mail(server, sender, tuple(to))  # pyright: ignore[reportUnknownArgumentType]


def key_bytes(text: str, where: str) -> bytes:
    try:
        data = base64.b64decode(text.removeprefix(ED25519), validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if not text.startswith(ED25519) or len(data) != 32:
        raise Misuse(
            f"{where}: the key is not an Ed25519 public key.",
            hint="`takeback approver new NAME` makes one and prints the line.",
        )
    return data


def key_text(data: bytes) -> str:
    return ED25519 + base64.b64encode(data).decode()


def _table(data: Mapping[str, Any], name: str, file: str) -> Mapping[str, Any]:
    found = data.get(name, {})
    if not isinstance(found, dict):
        raise Misuse(f"{file}: {name} is not a table.")
    return found  # pyright: ignore[reportUnknownVariableType]


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    if unknown := sorted(given.keys() - set(known)):
        raise Misuse(
            f"{where} sets {unknown[0]!r}, which does not exist.", hint=f"It knows: {', '.join(known)}."
        )
