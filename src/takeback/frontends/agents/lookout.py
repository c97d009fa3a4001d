"""What the daemon does for its own safety: it refuses calls that name takeback itself, and says what it noticed."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from takeback.errors import TakebackError
from takeback.frontends.agents import evidence, relay
from takeback.frontends.agents.event import Answer, Event, Kind
from takeback.frontends.agents.guard import WHY, Guarded, refusal, this_process
from takeback.frontends.agents.settings import compiled_shim, prefix_path, shim_path, switches_off
from takeback.model.resource import path_of
from takeback.runs.policies import project_files_at, user_files

if TYPE_CHECKING:
    from takeback.adapters.file.states import FileState
    from takeback.runs.commands.merge import Merge
    from takeback.storage.store import Store

SHOWN = (Kind.SESSION_START, Kind.PROMPT, Kind.AFTER_CALL)  # where a model and a person read what is said


class SelfGuard:
    def __init__(self, store: "Store") -> None:
        self._store = store
        self._note = store.hook_note
        self._process = this_process()
        self._told: dict[str, set[str]] = {}  # by conversation
        self._kept = evidence.Kept()
        self._read: tuple[int, ...] = ()  # of the note: when it was read
        self._looked: dict[tuple[str, str], object] = {}
        self._unwritten = not evidence.daemon_runs(self._note)
        self.is_over = False  # the store that we have open is not the one of its name any more

    def ends(self, by_signal: str = "") -> None:
        if by_signal:
            evidence.notice(
                self._note,
                f"takeback's daemon (process {os.getpid()}) was ended by {by_signal} while an agent was at work.",
            )
        evidence.daemon_ends(self._note)

    def refusal(self, event: Event, environment: Mapping[str, str]) -> str:
        if event.kind is not Kind.BEFORE_CALL:
            return ""
        own = (*user_files(), *project_files_at(event.project or "/"))
        rules = [Guarded("the policy", path) for path in own]
        return refusal(event, [*self._guarded(), *rules], self._process, environment)

    def _guarded(self) -> Iterator[Guarded]:
        return guarded(self._store.path, self._note, self._known())

    def _known(self) -> evidence.Kept:
        """The note, read again if it changed."""
        try:
            status = os.stat(self._note)
            read = status.st_ino, status.st_mtime_ns, status.st_size
        except OSError:
            read = ()
        if read != self._read:
            self._kept, self._read = evidence.kept(self._note), read
        return self._kept

    def news(self, event: Event, environment: Mapping[str, str]) -> Answer:
        """What was noticed and not yet said in this conversation."""
        if event.kind not in SHOWN:
            return Answer()
        found = [*self._of_store(), *self._of_settings(event, environment), *self._noticed()]
        if event.kind is Kind.SESSION_START or f"{event.host} {event.project}" not in self._known().seen:
            self._unwritten = not evidence.seen_now(self._note, event.host, environment, event.project)
        if self._unwritten:
            found.append(_UNWRITTEN.format(os.path.dirname(self._note)))
        told = self._told.setdefault(event.session, set())
        fresh = [one for one in dict.fromkeys(found) if one not in told]
        if not fresh:
            return Answer()
        told.update(fresh)
        evidence.notice(self._note, *fresh)
        said = "\n".join(f"takeback: {one}" for one in fresh)
        return Answer(context=said, notice=said)

    def _of_store(self) -> Iterator[str]:
        altered = list(self._store.altered())
        yield from altered
        try:
            if lost := self._store.lost():
                yield lost
        except TakebackError as error:
            yield str(error)
        self.is_over = self._store.is_replaced

    def _of_settings(self, event: Event, environment: Mapping[str, str]) -> list[str]:
        """Read only when a file changed: it is asked after each call."""
        place = event.host, event.project
        known = self._known()
        now = evidence.signature(event.host, environment, event.project, known), self._read
        if self._looked.get(place) == now:
            return []
        self._looked[place] = now
        return list(evidence.settings_troubles(known, event.project, environment))

    def _noticed(self) -> list[str]:
        """What the daemon before this one, or this one, noticed, until a person has read it."""
        return [one.words for one in self._known().noticed]

    def remember(self) -> None:
        """After a call: how far the journal has come."""
        self._unwritten = not self._store.remember() or self._unwritten

    def forget(self, session: str) -> None:
        self._told.pop(session, None)


def guarded(store: str, note: str, known: evidence.Kept) -> Iterator[Guarded]:
    yield Guarded("takeback's store", store, is_tree=True)
    yield Guarded("the notes about takeback's store", os.path.dirname(note), is_tree=True)
    for program in filter(None, (shim_path(), relay.__file__, prefix_path(), compiled_shim())):
        yield Guarded("takeback's hook program", program)
    yield from (Guarded("the settings with takeback's hooks", path) for path in known.settings)
    for root, told in known.plugins.items():
        yield Guarded("takeback's plugin", root, is_tree=True)
        if told.get("data"):
            yield Guarded("the notes of takeback's plugin", told["data"], is_tree=True)
        if told.get("file"):
            yield Guarded("the settings that enable takeback's plugin", told["file"])


def forbidden(store: "Store", found: "Merge") -> str:
    """Why what a command in a sandbox has changed is not made: it would change takeback itself, or switch it off."""
    places = list(guarded(store.path, store.hook_note, evidence.kept(store.hook_note)))
    for resource, after in found.after.items():
        path = os.fsdecode(path_of(resource))
        for one in places:
            if any(_takes(path.split("/"), ["", *form], after, one.is_tree) for form in one.forms()):
                return f"The command would change {one.what} ({one.path}), so nothing of it was made. {WHY}"
        if os.path.basename(path) in _SWITCHES and after["type"] == "file" and _switches_off(store, after):
            return (
                f"{path} would switch takeback's hooks or its sandbox off, so nothing of it was made. {WHY}"
            )
    return ""


def _takes(path: list[str], place: list[str], after: "FileState", is_tree: bool) -> bool:
    """Whether a change at a path is one of that place. What is above it may change, but not go away."""
    if len(path) < len(place):
        return place[: len(path)] == path and (
            after["type"] != "dir" or after.get("mode", 0o700) & 0o700 != 0o700
        )
    return path[: len(place)] == place and (len(path) == len(place) or is_tree)


def _switches_off(store: "Store", state: "FileState") -> bool:
    if state.get("size", 0) > _LARGEST:
        return False  # no settings
    try:
        return switches_off(json.loads(b"".join(store.blobs.read(state["digest"]))))
    except (ValueError, KeyError, RecursionError):
        return False


_SWITCHES = ("settings.json", "settings.local.json", "managed-settings.json")
_LARGEST = 1 << 20
_UNWRITTEN = "The notes in {} cannot be written, so it would not be noticed if the store were rolled back."
