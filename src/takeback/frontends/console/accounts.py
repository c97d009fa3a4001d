"""Accounts of the console: names, roles and passwords (scrypt), in a file that only its user can read."""

import base64
import hashlib
import hmac
import json
import os
import secrets
import stat
from typing import Any

from takeback.errors import Corrupt, Misuse, Refused
from takeback.frontends.console.visitor import Role

_COST, _BLOCK, _LANES = 1 << 15, 8, 1
_MEMORY = 64 << 20
_SHORTEST = 12
_NO_PASSWORD = ""  # the proxy says who it is


def default_place() -> str:
    from takeback.model.resource import home

    configured = os.environ.get("XDG_CONFIG_HOME", "")
    root = configured if os.path.isabs(configured) else os.path.join(home(), ".config")
    return os.path.join(root, "takeback", "console.json")


class Accounts:
    """Read again whenever the file changed, so that an account that was taken away is gone at once."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._read_at: tuple[int, int, int] | None = None
        self._found: dict[str, dict[str, Any]] = {}

    def roles(self) -> dict[str, Role]:
        return {name: Role(one["role"]) for name, one in self._accounts().items()}

    def role_of(self, name: str, password: str) -> Role | None:
        """None if the name or the password is wrong; both take equally long."""
        one = self._accounts().get(name, {})
        kept: str = one.get("scrypt", _NO_PASSWORD)
        salt, _, known = kept.partition("$")
        found = _hashed(password, base64.b64decode(salt) if kept else bytes(16))
        right = bool(kept) and hmac.compare_digest(found, known)
        return Role(one["role"]) if right else None

    def role_without_password(self, name: str) -> Role:
        one = self._accounts().get(name)
        return Role(one["role"]) if one else Role.VIEWER

    def put(self, name: str, role: Role, password: str | None) -> None:
        """`password`: None for someone of whom a proxy says who it is."""
        if not name or not name.isprintable() or len(name) > 100 or name != name.strip():
            raise Misuse(f"{name!r} is no name of an account.", hint="For example bea, or bea@example.org.")
        if password is not None and len(password) < _SHORTEST:
            raise Misuse(
                f"The password has {len(password)} characters; it needs at least {_SHORTEST}.",
                hint="No account was changed.",
            )
        salt = secrets.token_bytes(16)
        kept = (
            f"{base64.b64encode(salt).decode()}${_hashed(password, salt)}"
            if password is not None
            else _NO_PASSWORD
        )
        accounts = dict(self._accounts() if os.path.lexists(self.place) else {})
        accounts[name] = {"role": role.value, "scrypt": kept}
        self._write(accounts)

    def remove(self, name: str) -> None:
        accounts = dict(self._accounts())
        if accounts.pop(name, None) is None:
            raise Misuse(f"There is no account {name!r}.", hint=f"The accounts are in {self.place}.")
        self._write(accounts)

    def _write(self, accounts: dict[str, dict[str, Any]]) -> None:
        from takeback.storage import disk

        directory = os.path.dirname(self.place)
        os.makedirs(directory, 0o700, exist_ok=True)
        text = json.dumps({"accounts": accounts}, indent=2, sort_keys=True) + "\n"
        disk.write_file(self.place, text.encode())
        self._read_at = None

    def _accounts(self) -> dict[str, dict[str, Any]]:
        try:
            status = os.stat(self.place)
        except FileNotFoundError:
            raise Misuse(
                f"There are no accounts: {self.place} does not exist.",
                hint="`takeback console --account NAME --role operator` makes the first one.",
            ) from None
        seen = (status.st_mtime_ns, status.st_ino, status.st_size)
        if seen != self._read_at:
            self._found, self._read_at = self._read(status), seen
        return self._found

    def _read(self, status: os.stat_result) -> dict[str, dict[str, Any]]:
        if stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid not in (os.getuid(), 0):
            raise Refused(
                f"Other users can read or change the accounts in {self.place}.",
                hint=f"chmod 600 {self.place}, and let it belong to the user that runs the console.",
            )
        try:
            with open(self.place, encoding="utf-8") as file:
                data = json.load(file)
            found: dict[str, dict[str, Any]] = {
                str(name): dict(one) for name, one in data["accounts"].items()
            }
            for one in found.values():
                Role(one["role"])
                if not isinstance(one["scrypt"], str):
                    raise TypeError
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corrupt(
                f"The accounts in {self.place} cannot be read.",
                hint="Restore the file from a backup, or remove it and make the accounts again.",
            ) from error
        return found


def _hashed(password: str, salt: bytes) -> str:
    words = password.encode("utf-8", "surrogatepass")
    made = hashlib.scrypt(words, salt=salt, n=_COST, r=_BLOCK, p=_LANES, maxmem=_MEMORY, dklen=32)
    return base64.b64encode(made).decode()
