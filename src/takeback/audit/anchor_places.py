"""Where anchors are copied to: a file, a git repository, another store, syslog; and which are set up."""

import json
import os
import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from takeback.audit.keys import changes, public_of, usual_path
from takeback.audit.verifier import MARK, Anchor, Listed, anchor_from, anchor_json, listed
from takeback.errors import Failed, Misuse, ResourceUnreachable, TakebackError
from takeback.model.record import STORE, Draft, Kind
from takeback.storage.people_files import files
from takeback.storage.protocols import Journal

BRANCH = "refs/heads/takeback-anchors"
_MOST = 256 << 20


class PlaceKind(StrEnum):
    FILE = "file"
    GIT = "git"
    STORE = "store"
    SYSLOG = "syslog"
    STAMP = "tsa"


class AnchorPlace(NamedTuple):
    kind: PlaceKind
    where: str

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.where}"


def place_named(text: str) -> AnchorPlace:
    kind, colon, where = text.partition(":")
    if not colon or kind not in tuple(PlaceKind):
        kind, where = "file", text
    if not where:
        raise Misuse(
            f"{text!r} names no place for anchors.",
            hint="For example file:/var/log/takeback/anchors, git:/srv/anchors.git, store:postgresql://host/audit, "
            "syslog:/dev/log, syslog://host or tsa:http://host/path.",
        )
    local = kind in ("file", "git") or (kind == "syslog" and not where.startswith("//"))
    if local or (kind == "store" and "://" not in where):
        where = os.path.abspath(os.path.expanduser(where))
    return AnchorPlace(PlaceKind(kind), where)


# What is set up.


class AuditSettings(NamedTuple):
    """The table [audit] of config.toml."""

    key: str = ""  # the file of the private key; "" none
    places: tuple[AnchorPlace, ...] = ()
    trusted: tuple[str, ...] = ()  # public keys, in hex
    authority: str = ""  # the certificate of the time-stamp service


_NAMES = {"key": str, "anchors": list, "trusted": list, "tsa_ca": str}


def settings_here() -> AuditSettings:
    """Of this machine and this user; never of a project, which agents write."""
    system, user = (_table(path) for path in files())
    key = system.get("key") or user.get("key") or ""
    if not key and os.path.exists(usual_path()):
        key = usual_path()
    named = [*system.get("anchors", ()), *user.get("anchors", ())]
    trusted = [public_of(one) for one in (*system.get("trusted", ()), *user.get("trusted", ()))]
    if key and not trusted:
        try:
            trusted = [public_of(key)]
        except Misuse:
            trusted = []
    places = tuple(dict.fromkeys(place_named(one) for one in named))
    return AuditSettings(
        os.path.expanduser(key), places, tuple(trusted), system.get("tsa_ca") or user.get("tsa_ca") or ""
    )


def _table(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {error.strerror}.", hint="Make it readable.") from None
    import tomllib

    try:
        table: Any = tomllib.loads(data.decode()).get("audit", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"{path} is no TOML: {error}.", hint="Correct it.") from None
    for name, value in table.items() if isinstance(table, dict) else (("", table),):  # pyright: ignore[reportUnknownVariableType]
        if name not in _NAMES or not isinstance(value, _NAMES[name]):
            raise Misuse(
                f"{path}: [audit] has a wrong {name or 'value'}.", hint=f"It takes {', '.join(_NAMES)}."
            )
    return dict(table)  # pyright: ignore[reportUnknownArgumentType]


# Writing and reading.


def line_of(anchor: Anchor) -> str:
    return json.dumps(anchor_json(anchor), sort_keys=True, separators=(",", ":"))


def written(place: AnchorPlace, anchor: Anchor, now: Callable[[], int]) -> None:
    """One copy, durable when this returns; raises if it could not be made."""
    if place.kind is PlaceKind.FILE:
        _append(place.where, line_of(anchor))
    elif place.kind is PlaceKind.GIT:
        _commit(place.where, anchor)
    elif place.kind is PlaceKind.SYSLOG:
        _log(place.where, anchor)
    elif place.kind is PlaceKind.STORE:
        _keep(place.where, anchor, now)


def found(place: AnchorPlace, now: Callable[[], int]) -> Listed:
    """What is in it. `ResourceUnreachable` if it cannot be looked at; an empty list where nothing is."""
    if place.kind is PlaceKind.FILE:
        return _read(place)
    if place.kind is PlaceKind.GIT:
        if not os.path.exists(place.where):
            return Listed(str(place), ())
        text = _git(place.where, "cat-file", "blob", f"{BRANCH}:anchors", missing="")
        return listed(str(place), text)
    if place.kind is PlaceKind.STORE:
        return _kept(place, now)
    return Listed(str(place), ())  # cannot be read back from here


def can_be_read(place: AnchorPlace) -> bool:
    return place.kind in (PlaceKind.FILE, PlaceKind.GIT, PlaceKind.STORE)


def agent_changes(place: AnchorPlace, uid: int) -> bool:
    """Whether the user that agents run as can change or remove what is kept there, as far as this machine shows."""
    if place.kind in (PlaceKind.FILE, PlaceKind.GIT):
        return changes(place.where, uid)
    # Another host keeps what it was sent. A time stamp lies beside its anchor, and goes with it.
    return not (place.kind is PlaceKind.SYSLOG and place.where.startswith("//"))


def _unreachable(place: str, error: OSError) -> ResourceUnreachable:
    return ResourceUnreachable(
        f"The anchors in {place} cannot be reached: {error.strerror}.", hint="Check the place and its rights."
    )


def _append(path: str, line: str) -> None:
    import fcntl

    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise _unreachable(path, error) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        torn = size and os.pread(handle, 1, size - 1) != b"\n"  # a writer was killed in the middle
        data = memoryview((("\n" if torn else "") + line + "\n").encode())
        while data:
            data = data[os.write(handle, data) :]
        os.fsync(handle)
        directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise _unreachable(path, error) from None
    finally:
        os.close(handle)


def _read(place: AnchorPlace) -> Listed:
    try:
        with open(place.where, encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST)
    except FileNotFoundError:
        return Listed(str(place), ())
    except OSError as error:
        raise _unreachable(place.where, error) from None
    # A log has lines of others too; in a list of ours each line is an anchor, but for a torn last one.
    is_log = MARK in text
    if not is_log and text and not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
    return listed(str(place), text, every_line=not is_log)


_QUIET = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "commit.gpgSign=false",
    "core.fsync=all",
    "gc.auto=0",
)


def _git(place: str, *words: str, given: str = "", missing: str | None = None, index: str = "") -> str:
    """git, without any settings, hooks or helpers of anybody."""
    import shutil
    import subprocess

    program = shutil.which("git")
    if program is None:
        raise Misuse("There is no git here.", hint="Install git, or keep anchors in a file.")
    who = {
        f"GIT_{role}_{part}": told
        for role in ("AUTHOR", "COMMITTER")
        for part, told in (("NAME", "takeback"), ("EMAIL", ""))
    }
    surroundings = {
        "PATH": os.environ.get("PATH", os.defpath), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0", "HOME": "/nonexistent", "LC_ALL": "C", **who,
        **({"GIT_INDEX_FILE": index} if index else {}),
    }  # fmt: skip
    settings = [word for one in _QUIET for word in ("-c", one)]
    done = subprocess.run(
        [program, *settings, "-C", place, *words], input=given, env=surroundings, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    if done.returncode == 0:
        return done.stdout
    said = (done.stderr.strip().splitlines() or ["it failed"])[-1]
    if missing is not None and re.search(
        r"invalid object name|does not exist|Not a valid object|unknown revision", said
    ):
        return missing
    raise ResourceUnreachable(
        f"git in {place}: {said}", hint="Check that it is a git repository of this user."
    )


def _commit(place: str, anchor: Anchor) -> None:
    """On a branch of its own, past the index and the working tree of the people who work there."""
    if not os.path.isdir(place):
        raise ResourceUnreachable(f"There is no git repository at {place}.", hint=f"git init --bare {place}")
    old = _git(place, "rev-parse", "--verify", "--quiet", BRANCH, missing="") if _has_branch(place) else ""
    before = _git(place, "cat-file", "blob", f"{BRANCH}:anchors", missing="") if old else ""
    blob = _git(place, "hash-object", "-w", "--stdin", given=before + line_of(anchor) + "\n").strip()
    tree = _git(place, "mktree", given=f"100644 blob {blob}\tanchors\n").strip()
    parents = ("-p", old.strip()) if old else ()
    words = f"anchor {anchor.number}: {anchor.seq} records"
    commit = _git(place, "commit-tree", tree, *parents, "-m", words).strip()
    _git(place, "update-ref", BRANCH, commit, old.strip() or "0" * 40)


def _has_branch(place: str) -> bool:
    return bool(_git(place, "for-each-ref", BRANCH).strip())


def _log(where: str, anchor: Anchor) -> None:
    """To the system log (facility authpriv): without the time stamps, which can be longer than a line may be."""
    import socket

    line = f"<86>takeback: {MARK}{line_of(anchor._replace(stamps=()))}".encode()
    host, _, port = where.removeprefix("//").partition(":")
    kind, address = (
        (socket.AF_INET, (host, int(port or 514))) if where.startswith("//") else (socket.AF_UNIX, where)
    )
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as speaker:
            speaker.sendto(line, address)
    except OSError as error:
        raise _unreachable(f"syslog:{where}", error) from None


def _keep(where: str, anchor: Anchor, now: Callable[[], int]) -> None:
    from takeback.storage.sqlite.store import exists, open_store

    if not exists(where):
        raise ResourceUnreachable(
            f"There is no store at {where}.", hint=f"`takeback store make --store {where}`"
        )
    store = open_store(where, now)
    try:
        store.refuse_if_suspect()
        body = {"anchor": anchor_json(anchor), "kept_for": anchor.name}
        store.journal.append(None, [Draft(Kind.ANCHOR, STORE, "", body)])
    finally:
        store.close()


def _kept(place: AnchorPlace, now: Callable[[], int]) -> Listed:
    from takeback.storage.sqlite.store import exists, open_store

    if not exists(place.where):
        return Listed(str(place), ())
    store = open_store(place.where, now)
    try:
        bodies = [one.body for one in anchor_records(store.journal) if "kept_for" in one.body]
    finally:
        store.close()
    return _from_bodies(str(place), bodies)


def anchor_records(journal: Journal) -> Any:
    return journal.records(run=STORE, kinds=(Kind.ANCHOR,))


def _from_bodies(place: str, bodies: Sequence[dict[str, Any]]) -> Listed:
    anchors: list[Anchor] = []
    wrong: list[str] = []
    for body in bodies:
        try:
            anchors.append(anchor_from(body.get("anchor")))
        except ValueError as error:
            wrong.append(f"An anchor in {place} cannot be read: {error}.")
    return Listed(place, tuple(anchors), tuple(wrong))


def of_journal(journal: Journal) -> tuple[Listed, dict[str, list[int]]]:
    """The anchors that the journal itself lists, and by place the numbers of those that were copied there."""
    bodies = [one.body for one in anchor_records(journal) if "kept_for" not in one.body]
    copied: dict[str, list[int]] = {}
    for body in bodies:
        for place in body.get("places", ()):
            copied.setdefault(place, []).append(body.get("anchor", {}).get("number", 0))
    return _from_bodies("the journal itself", bodies), copied


def trouble(error: TakebackError) -> str:
    return (
        str(error)
        if isinstance(error, (Failed, ResourceUnreachable, Misuse))
        else f"{type(error).__name__}: {error}"
    )
