"""Answers that were signed with a person's key: made anywhere, taken here, and used once."""

import hashlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from takeback.api.decisions import decide_as
from takeback.api.store import OpenStore
from takeback.errors import Denied, Misuse, Refused, ResourceUnreachable
from takeback.model.approver import Approver, Webhook, key_text
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.person import Account, KnownBy, Person
from takeback.model.record import canonical
from takeback.runs.agent_above import refuse_below_agent
from takeback.storage.owners import machine

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_TEXTS = ("id", "digest", "nonce", "by", "key", "signature")
_FIELDS = {**dict.fromkeys(_TEXTS, str), "until": int, "approved": bool}
_LARGEST = 1 << 20


def request_of(opened: OpenStore, effect: Effect) -> dict[str, Any]:
    """The request that a person sees elsewhere and answers."""
    from takeback.engine.approvable import challenge, digest_of, request

    return {"request": request(effect), "digest": digest_of(effect), "challenge": challenge(effect)}


def answer(opened: OpenStore, message: Mapping[str, Any]) -> Effect:
    """Take a signed answer, from a file, a webhook or the console. The same one twice is refused the second time, as
    any second decision."""
    from takeback.engine.approval import Signed
    from takeback.engine.signature import answer_to, fits

    for name, kind in _FIELDS.items():
        if type(message.get(name)) is not kind:
            raise Misuse(f"The answer has no {name!r} that is {kind.__name__}.", hint="Nothing was recorded.")
    effect = opened.effect(message["id"])
    why = message.get("why", "")
    if not isinstance(why, str):
        raise Misuse("The reason in the answer is not text.", hint="Nothing was recorded.")
    said = answer_to(effect, message["approved"], message["by"], why)
    if any(message[name] != said[name] for name in ("id", "digest", "nonce", "until")):
        raise Refused(
            f"The answer is for another proposal than effect {short(effect.id)} as it is now.",
            hint="Nothing was recorded. Show the request again, and answer that.",
            effect=effect.id,
        )
    holder = _holder(opened, message["key"], message["by"], effect)
    if not fits(message["key"], message["signature"], said):
        raise Denied(
            f"The signature of {message['by']} does not fit the answer.",
            hint="Nothing was recorded.",
            effect=effect.id,
        )
    person = _person(holder, message["by"], effect)
    if not person.is_proven:  # its key may be the agent's own
        refuse_below_agent("An answer whose key is not proven", opened.store)
    signed = Signed(message["signature"], message["key"])
    return decide_as(opened, effect, message["approved"], person, str(message.get("words", "")), why, signed)


def _holder(opened: OpenStore, key: str, by: str, effect: Effect) -> Approver | Webhook:
    people = opened.parts.people()
    for one in people.approvers:
        if one.key == key and one.name == by:
            return one
    for hook in people.webhooks:
        if hook.key == key and (not people.approvers or people.lists(by)):
            return hook
    raise Denied(
        f"The key of the answer is not one of {by or 'anyone'} here.",
        hint="Keys stand in [approvers] of /etc/takeback/config.toml; `takeback approver list` shows them.",
        effect=effect.id,
    )


def _person(holder: Approver | Webhook, by: str, effect: Effect) -> Person:
    gate = effect.phase.gate
    agent = Account(gate.machine, gate.uid, gate.role) if gate else Account()
    via = f"key {holder.key[-12:]}" + (f" of webhook {holder.name}" if isinstance(holder, Webhook) else "")
    if can_write(agent, holder):
        detail = f"{via}, listed in {holder.file}, which the agent's user can write"
        return Person(by, KnownBy.NOTHING, detail)
    return Person(by, KnownBy.KEY, via)


def can_write(agent: Account, listed: Approver | Webhook) -> bool:
    """Whether the agent could have put itself on the list: then a key proves nothing."""
    if agent.machine != machine():
        return False
    return agent.uid in (0, listed.owner) or listed.owner == -1


# Keys.


def new_key(path: str, passphrase: bytes) -> str:
    """Make a private key in that file, which must not exist; the public one."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    private = Ed25519PrivateKey.generate()
    lock = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    content = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)
    try:
        os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise Refused(f"{path} exists already.", hint="Nothing was written. Give another name.") from None
    except OSError as error:
        raise ResourceUnreachable(f"{path} cannot be written: {error.strerror}.") from error
    return key_text(private.public_key().public_bytes_raw())


def load_key(path: str, passphrase: bytes) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST)
    except OSError as error:
        raise ResourceUnreachable(f"{path} cannot be read: {error.strerror}.") from error
    try:
        found = load_pem_private_key(content, passphrase or None)
    except TypeError:
        wanted = "needs a passphrase" if not passphrase else "has no passphrase"
        raise Misuse(f"The key in {path} {wanted}.", hint="Nothing was signed.") from None
    except ValueError:
        raise Misuse(f"{path} holds no key that this passphrase opens.", hint="Nothing was signed.") from None
    if not isinstance(found, Ed25519PrivateKey):
        raise Misuse(f"The key in {path} is not an Ed25519 key.", hint="Nothing was signed.")
    return found


def needs_passphrase(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return b"ENCRYPTED" in file.read(100)
    except OSError:
        return False


def signed_answer(
    shown: Mapping[str, Any],
    approved: bool,
    by: str,
    private: "Ed25519PrivateKey",
    words: str = "",
    why: str = "",
) -> dict[str, Any]:
    """The answer to a request as `request_of` gave it. The digest is computed again from what is shown."""
    import base64

    request = shown.get("request")
    if not isinstance(request, dict):
        raise Misuse(
            "This is no request of takeback.", hint="`takeback approve ID --show-request` prints one."
        )
    digest = hashlib.sha256(canonical(request)).hexdigest()
    if digest != shown.get("digest"):
        raise Refused(
            "The request and its digest do not fit each other: someone changed one of them.",
            hint="Nothing was signed.",
        )
    said: dict[str, Any] = {
        "takeback": "answer 1", "id": request["id"], "digest": digest, "nonce": request["nonce"],
        "until": request["until"], "approved": approved, "by": by, "why": why,
    }  # fmt: skip
    signature = base64.b64encode(private.sign(canonical(said))).decode()
    public = key_text(private.public_key().public_bytes_raw())
    return {**said, "words": words, "key": public, "signature": signature}
