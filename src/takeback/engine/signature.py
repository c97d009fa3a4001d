"""What a person with a key signs: the request, the answer to it, and who says so."""

import base64
import binascii
from typing import TYPE_CHECKING, Any

from takeback.engine.approvable import digest_of, waits_until
from takeback.errors import Misuse
from takeback.model.approver import key_bytes
from takeback.model.change import Approvable
from takeback.model.effect import Effect
from takeback.model.record import canonical

if TYPE_CHECKING:
    from takeback.engine.approval import Decision


def answer_to(effect: Effect, approved: bool, by: str, why: str = "") -> dict[str, Any]:
    """What is signed. `by`: the approver's name; a receiver that speaks for several names one of them."""
    gate = effect.phase.gate or Approvable("")
    return {
        "takeback": "answer 1",
        "id": effect.id,
        "digest": digest_of(effect),
        "nonce": gate.nonce,
        "until": waits_until(effect),
        "approved": approved,
        "by": by,
        "why": why,
    }


def is_signed(effect: Effect, decision: "Decision") -> bool:
    by = decision.by.name
    said = answer_to(effect, decision.approved, by, decision.why)
    return fits(decision.key, decision.signature, said)


def fits(key: str, signature: str, said: dict[str, Any]) -> bool:
    """Whether the holder of the key signed exactly this."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public = Ed25519PublicKey.from_public_bytes(key_bytes(key, "The key"))
        public.verify(base64.b64decode(signature, validate=True), canonical(said))
    except (InvalidSignature, binascii.Error, ValueError, Misuse):
        return False
    return True
