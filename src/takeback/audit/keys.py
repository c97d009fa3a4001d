"""The Ed25519 key that signs anchors: made, used, and who can read it."""

import os
import stat
from collections.abc import Callable
from typing import Any, NamedTuple

from takeback.audit.verifier import Anchor, fingerprint, public_key, signed_bytes
from takeback.audit.verifier import signature_fits as slow_signature_fits
from takeback.errors import Misuse, Refused
from takeback.model.words import install_hint
from takeback.storage import disk
from takeback.storage.people_files import user_file
from takeback.storage.projects import holds_marker, upwards

PUBLIC = ".pub"


def usual_path() -> str:
    return os.path.join(os.path.dirname(user_file()), "audit.key")


def _cryptography() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise Misuse(
            "Signing needs the package cryptography, which is not installed.", hint=install_hint("crypt")
        ) from None
    return ed25519


class Signer(NamedTuple):
    key: str  # the public key, in hex
    sign: Callable[[bytes], bytes]
    path: str


def make(path: str, store: str) -> str:
    """A new key; the public half lies beside it. Returns that half in hex."""
    from cryptography.hazmat.primitives import serialization as form

    refuse_near(path, store)
    key = _cryptography().Ed25519PrivateKey.generate()
    secret = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    public = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    for file, data, mode in ((path, secret, 0o600), (path + PUBLIC, public, 0o644)):
        _write_new(file, data, mode)
    return public_key(public.decode())


def _write_new(path: str, data: bytes, mode: int) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise Refused(
            f"There is a file {path} already; a key is never overwritten.",
            hint="Choose another name with --out. Anchors that the old key signed need its public half for ever.",
        ) from None
    except OSError as error:
        raise Refused(
            f"{path} cannot be written: {error.strerror}.", hint="Choose another place with --out."
        ) from None
    try:
        os.fchmod(handle, mode)
        disk.write_fully(handle, data, path)
        disk.sync_file(handle, path)
    finally:
        os.close(handle)


def refuse_near(path: str, store: str) -> None:
    """Not in the store, and not in a project: an agent works there, and it would be captured."""
    real = os.path.realpath(path)
    inside = os.path.realpath(store) + os.sep
    if real.startswith(inside):
        raise Refused(
            f"{path} lies in the store, and a program that rewrites the journal would find it there.",
            hint="Choose a place outside with --out; best one that the agent's user cannot read.",
        )
    for directory in upwards(os.fsencode(os.path.dirname(real))):
        if holds_marker(directory):
            raise Refused(
                f"{path} lies in the project {os.fsdecode(directory)}, where agents work.",
                hint="Choose a place outside with --out; best one that the agent's user cannot read.",
            )


def signer(path: str) -> Signer:
    from cryptography.hazmat.primitives import serialization as form

    ed25519 = _cryptography()
    try:
        with open(path, "rb") as file:
            status, data = os.fstat(file.fileno()), file.read(16 << 10)
    except FileNotFoundError:
        raise Misuse(f"There is no key {path}.", hint="`takeback audit key new` makes one.") from None
    except OSError as error:
        raise Refused(
            f"The key {path} cannot be read: {error.strerror}.",
            hint="If that is so on purpose, sign as the user who can: see `takeback audit key sign --help`.",
        ) from None
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise Refused(
            f"The key {path} is open to others (mode {stat.S_IMODE(status.st_mode):o}).",
            hint=f"chmod 600 {path}",
        )
    try:
        key = form.load_pem_private_key(data, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise Misuse(
            f"{path} holds no Ed25519 key without a passphrase.", hint="`takeback audit key new` makes one."
        )
    private: Any = key
    public = private.public_key().public_bytes(form.Encoding.Raw, form.PublicFormat.Raw)
    return Signer(public.hex(), private.sign, path)


def public_of(text: str) -> str:
    """Of a file with a public key, of a private key with its public half beside it, or of the 64 digits themselves."""
    try:
        return public_key(text)
    except ValueError:
        pass
    for path in (text + PUBLIC, text):
        try:
            with open(path, encoding="ascii") as file:
                return public_key(file.read(16 << 10))
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            break
    raise Misuse(
        f"{text} is no Ed25519 public key.", hint=f"Give the file that ends in {PUBLIC}, or its 64 digits."
    )


def signature_fits(anchor: Anchor) -> bool:
    """As the verifier asks it, a hundred times faster where the package cryptography is."""
    try:
        ed25519 = _cryptography()
    except Misuse:
        return slow_signature_fits(anchor)
    from cryptography.exceptions import InvalidSignature

    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(anchor.key))
        key.verify(bytes.fromhex(anchor.signature), signed_bytes(anchor))
    except (ValueError, InvalidSignature):
        return False
    return True


class KeyReach(NamedTuple):
    """Who can read the key that signs."""

    path: str
    key: str  # the public half, in hex; "" unknown
    there: bool  # on this machine, as far as this user can see
    agent_reads: bool  # whether the user that agents run as can

    @property
    def words(self) -> str:
        known = f"key {fingerprint(self.key)}" if self.key else "key"
        if not self.there:
            return (
                f"{known}: this user cannot see the private half at {self.path}"
                if self.path
                else f"{known}: no private half is known here"
            )
        if self.agent_reads:
            return f"{known} ({self.path}): the agent's user can read it, so an agent could sign too"
        return f"{known} ({self.path}): the agent's user cannot read it"


def reach(path: str, uid: int) -> KeyReach:
    try:
        key = public_of(path)
    except Misuse:
        key = ""
    try:
        status = os.stat(path)
    except OSError:
        return KeyReach(path, key, False, False)
    return KeyReach(path, key, True, reads(status, uid))


def reads(status: os.stat_result, uid: int) -> bool:
    """By owner, group and mode; lists of access rights are not looked at."""
    if uid in (0, status.st_uid):
        return True  # an owner can always give it to itself
    return bool(status.st_mode & 0o004) or (bool(status.st_mode & 0o040) and status.st_gid in groups_of(uid))


def groups_of(uid: int) -> set[int]:
    import grp
    import pwd

    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return set()
    return {user.pw_gid} | {one.gr_gid for one in grp.getgrall() if user.pw_name in one.gr_mem}


def changes(path: str, uid: int) -> bool:
    """Whether this user can change the file, or put another in its place."""
    if uid == 0:
        return True
    groups = groups_of(uid)
    place, is_file = os.path.realpath(path), True
    while True:
        try:
            status = os.stat(place)
        except OSError:
            return True  # nothing protects what is not there
        mine = status.st_uid == uid
        writable = mine or status.st_mode & 0o002 or (status.st_mode & 0o020 and status.st_gid in groups)
        # In a directory with the sticky bit only the owner of an entry can remove it.
        if writable and (is_file or mine or not status.st_mode & stat.S_ISVTX):
            return True
        if place == os.sep:
            return False
        place, is_file = os.path.dirname(place), False
