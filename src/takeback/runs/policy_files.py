"""Files of rules: read, refused where someone else may have written them, kept compiled, recorded when they count."""

import hashlib
import json
import os
import stat
from typing import Any, NamedTuple, cast

from takeback.errors import Misuse, Refused, TakebackError
from takeback.model.person import Person, recorded
from takeback.model.record import STORE, Draft, Kind
from takeback.model.resource import home
from takeback.policy.rules import Budget, Case, Layer, Level, Policy, PolicyRule
from takeback.storage import disk
from takeback.storage.store import Store

_FIX = "Nothing was changed. `takeback policy check` looks at the file again."
_Identity = tuple[int, int, int, int]


class _Read(NamedTuple):
    identity: _Identity
    layer: Layer


class PolicyFiles:
    def __init__(self, store: Store, kept: str, administrator: str, users: tuple[str, ...]) -> None:
        self._store = store
        self._kept = kept
        self._administrator = administrator
        self._users = users
        self._read: dict[str, _Read] = {}
        self._counted: dict[str, Layer] = {}  # those that a change was judged by, not recorded yet
        self._known: dict[str, tuple[str, bool]] | None = None  # by file: as the journal has it

    def policy(self, always: tuple[str, ...], projects: tuple[str, ...]) -> Policy:
        found = {one.file: one for one in (*self.always(always), *self.of_projects(projects))}
        self._counted |= found
        for file, (digest, _) in self._known_files().items():
            if digest and file not in found and not os.path.lexists(file):
                self._counted[file] = Layer(Level.PROJECT, file, "")
        return Policy(tuple(found.values()))

    def always(self, files: tuple[str, ...]) -> list[Layer]:
        """Of the administrator and of the user."""
        levels = {self._administrator: Level.ADMINISTRATOR}
        layers = [self.layer(one, levels.get(one, Level.USER)) for one in files]
        return [one for one in layers if one is not None]

    def of_projects(self, files: tuple[str, ...]) -> list[Layer]:
        layers = [self.layer(one, Level.PROJECT) for one in files]
        return [self._as_trusted(one) for one in layers if one is not None]

    def layer(self, file: str, level: Level) -> Layer | None:
        """None if it was removed in this moment. Raises where it must not count, and where it cannot be understood."""
        try:
            handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return self._dangling(file)
        except OSError as error:
            raise Refused(f"The policy file {file} cannot be read: {error.strerror}.", hint=_FIX) from None
        try:
            status = os.fstat(handle)
            _refuse_foreign(file, status, level)
            identity = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
            known = self._read.get(file)
            if known and known.identity == identity:
                return known.layer
            content = _content(file, handle, status)
        finally:
            os.close(handle)
        layer = self._compiled(file, level, content)
        self._read[file] = _Read(identity, layer)
        return layer

    def _dangling(self, file: str) -> None:
        if os.path.islink(file):
            raise Refused(f"The policy file {file} is a link that leads nowhere.", hint=_FIX)

    def _compiled(self, file: str, level: Level, content: bytes) -> Layer:
        """From the copy in the store, if it was made of exactly this."""
        digest = hashlib.sha256(content).hexdigest()
        about = json.dumps([int(level), file, home()])
        place = os.path.join(self._kept, f"{hashlib.sha256(about.encode()).hexdigest()[:32]}.json")
        try:
            with open(place, "rb") as copy:
                data: Any = json.loads(copy.read())
            if data.get("digest") == digest and (layer := layer_from_json(data)) is not None:
                return layer
        except (OSError, ValueError, TypeError, AttributeError, KeyError, IndexError):
            pass
        layer = layer_of(file, level, content)
        self._keep(place, {"digest": digest} | layer_to_json(layer))
        return layer

    def _keep(self, place: str, data: dict[str, Any]) -> None:
        if self._store.read_only:
            return
        try:
            os.makedirs(self._kept, mode=0o700, exist_ok=True)
            disk.write_file(place, json.dumps(data, separators=(",", ":")).encode())
        except (OSError, TakebackError):
            return  # it is parsed again the next time

    # Trust.

    def _as_trusted(self, layer: Layer) -> Layer:
        if not layer.loosens:
            return layer
        return layer._replace(trusted=is_trusted(self._store, layer.file, layer.digest))

    # What counted.

    def _known_files(self) -> dict[str, tuple[str, bool]]:
        if self._known is None:
            records = self._store.journal.records(run=STORE, kinds=(Kind.POLICY,))
            self._known = {
                one.body["file"]: (one.body["digest"], one.body.get("trusted", True)) for one in records
            }
        return self._known

    def record(self) -> None:
        counted, self._counted = self._counted, {}
        for layer in counted.values():
            now = (layer.digest, layer.trusted)
            if self._known_files().get(layer.file, ("", True)) == now:
                continue
            body = {
                "file": layer.file, "level": layer.level.name.lower(), "digest": layer.digest, "trusted": layer.trusted
            }  # fmt: skip
            self._store.journal.append(None, [Draft(Kind.POLICY, STORE, "", body)])
            self._known_files()[layer.file] = now


def is_trusted(store: Store, file: str, digest: str) -> bool:
    """Whether a person let exactly this count."""
    records = store.journal.records(run=STORE, kinds=(Kind.TRUST,))
    said = [one.body for one in records if one.body.get("file") == file]
    return bool(said) and said[-1].get("digest") == digest


def read_layer(file: str, level: Level) -> Layer:
    """For `policy check`: as it is now, without a store."""
    try:
        with open(file, "rb") as opened:
            _refuse_foreign(file, os.fstat(opened.fileno()), level)
            return layer_of(file, level, opened.read())
    except OSError as error:
        raise Refused(f"The policy file {file} cannot be read: {error.strerror}.") from None


def layer_of(file: str, level: Level, content: bytes) -> Layer:
    import tomllib

    from takeback.model.settings import given_settings, project_settings
    from takeback.policy.parse import PolicyInvalid, layer_from

    text = ""
    try:
        text = content.decode()
        data = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise PolicyInvalid(f"{file}, line {line}, column {column}: it is not UTF-8.", hint=_FIX) from None
    except tomllib.TOMLDecodeError as error:
        raise PolicyInvalid(f"{file}{_at(str(error), text)}", hint=_FIX) from None
    except RecursionError:
        raise PolicyInvalid(f"{file}, line 1, column 1: it is nested too deeply.", hint=_FIX) from None
    return layer_from(
        data, text, level=level, file=file, digest=hashlib.sha256(content).hexdigest(),
        root=os.path.dirname(file) if level is Level.PROJECT else "", home=home(),
        check_settings=project_settings if level is Level.PROJECT else given_settings,
    )  # fmt: skip


def _at(said: str, text: str) -> str:
    """`Expected '=' (at line 3, column 5)` in our order."""
    words, _, place = said.partition(" (at ")
    if not place or place.startswith("end"):
        line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
        return f", line {line}, column {column}: {words} at the end of the file."
    return f", {place.rstrip(')')}: {words}."


def _content(file: str, handle: int, status: os.stat_result) -> bytes:
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"The policy file {file} is not a file.", hint=_FIX)
    with os.fdopen(os.dup(handle), "rb") as opened:
        return opened.read()


def _refuse_foreign(file: str, status: os.stat_result, level: Level) -> None:
    """Rules count only where no one below has written them."""
    if level is Level.PROJECT:
        return  # it can only tighten until a person trusts it
    owner = {0} if level is Level.ADMINISTRATOR else {0, os.geteuid()}
    who = "root" if level is Level.ADMINISTRATOR else "you"
    where = [(file, status)]
    try:
        where.append((os.path.dirname(file), os.stat(os.path.dirname(file))))
    except OSError as error:
        raise Refused(f"The policy file {file} cannot be judged: {error.strerror}.", hint=_FIX) from None
    for name, found in where:
        if found.st_uid not in owner:
            raise Refused(
                f"The policy file {file} does not count: {name} belongs to user {found.st_uid}, not to {who}.",
                hint=f"Nothing was changed. Give it to {who}, or remove it: chown root {name}"
                if level is Level.ADMINISTRATOR
                else "Nothing was changed. Make it yours, or remove it.",
            )
        writable = 0o022 if level is Level.ADMINISTRATOR else 0o002
        if found.st_mode & writable:
            raise Refused(
                f"The policy file {file} does not count: others may write to {name} "
                f"(mode {found.st_mode & 0o7777:04o}).",
                hint=f"Nothing was changed. chmod go-w {name}",
            )


def refuse_untrustable(layer: Layer) -> None:
    if layer.level is not Level.PROJECT:
        raise Misuse(
            f"{layer.file} is no file of a project.",
            hint="Files of the user and the administrator count as they are.",
        )


def trust(store: Store, layer: Layer, person: Person) -> None:
    """From now on the file counts whole, as long as it is exactly this."""
    refuse_untrustable(layer)
    body = {"file": layer.file, "digest": layer.digest, **recorded(person)}
    store.journal.append(None, [Draft(Kind.TRUST, STORE, "", body)])


# The copy in the store, so that a file need not be parsed again for every command.

VERSION = 2  # of what is below; another one is parsed again


def layer_to_json(layer: Layer) -> dict[str, Any]:
    """NamedTuples are written as lists."""
    return {"version": VERSION, "layer": list(layer._replace(trusted=True))}


def layer_from_json(data: Any) -> Layer | None:
    """None for one that another version has written. Patterns, limits and hours of a rule stay lists: converting
    hundreds of them would take longer than a decision."""
    if not isinstance(data, dict) or data.get("version") != VERSION:  # pyright: ignore[reportUnknownMemberType]
        return None
    listed = cast("list[Any]", data["layer"])
    level, file, digest, rules, budgets, *more, cases, trusted = listed
    return Layer(
        Level(level), file, digest, tuple(map(PolicyRule._make, rules)),
        tuple(Budget(PolicyRule._make(rule), most, seconds) for rule, most, seconds in budgets), *more,
        cases=tuple(map(Case._make, cases)), trusted=trusted,
    )  # fmt: skip
