"""Secrets that a person types, and a process that no other of the same user can look into while they do."""

import sys

from takeback.errors import Misuse
from takeback.frontends.cli.output.screen import clean


def passphrase_for(key: str, file: str | None, *, new: bool = False) -> bytes:
    """Of a private key; empty for one that has none."""
    from takeback.api.answers import needs_passphrase

    if file:
        try:
            with open(file, "rb") as opened:
                secret = opened.read(1 << 12).rstrip(b"\n")
        except OSError as error:
            raise Misuse(f"{clean(file)} cannot be read: {error.strerror}.") from None
        if not secret:
            raise Misuse(f"{clean(file)} is empty.", hint="It holds the passphrase.")
        return secret
    if not new and not needs_passphrase(key):
        return b""
    if not sys.stdin.isatty():
        raise Misuse("There is no terminal to ask for the passphrase.", hint="Give --passphrase-file.")
    from getpass import getpass

    hide()
    secret = getpass("Passphrase: ").encode()
    if new and secret != getpass("Once more: ").encode():
        raise Misuse("The two passphrases differ.", hint="Nothing was written.")
    if new and not secret:
        raise Misuse("The passphrase is empty.", hint="--no-passphrase makes a key without one.")
    return secret


def hide() -> None:
    """From now on no process of this user can trace this one or read its memory; root can."""
    from takeback.sandbox.calls import PR_SET_DUMPABLE, kernel

    kernel().prctl(PR_SET_DUMPABLE, 0)
