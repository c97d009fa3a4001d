"""Names for runs, effects and checkpoints: random, so that a short prefix is nearly always unique."""

import os

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: nothing that looks like something else
LENGTH = 20
SHORT = 8


def new_id(random: bytes | None = None) -> str:
    number = int.from_bytes(random or os.urandom(13), "big")
    return "".join([ALPHABET[(number >> (5 * place)) & 31] for place in range(LENGTH)])


def short(id: str) -> str:
    return id[:SHORT]
