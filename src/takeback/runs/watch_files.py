"""Watch files by their names, also such that are not there yet: nothing else is looked at, however large the disk."""

import os
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from takeback.engine.write import Terms
from takeback.errors import Misuse, TakebackError
from takeback.model.change import Change
from takeback.model.effect import Effect, State
from takeback.model.resource import display, overlaps
from takeback.runs.change import next_key, took_hold
from takeback.runs.core import RunCore
from takeback.runs.watch_place import ADAPTER
from takeback.storage.protocols import Query


class FileWatch:
    """From right before a change of these files to right after it."""

    def __init__(
        self,
        core: RunCore,
        paths: "Sequence[str | bytes | os.PathLike[str]]",
        about: dict[str, Any],
        summary: str,
        key: str = "",
    ) -> None:
        if not paths:
            raise Misuse("No file was named.", hint="Name at least one.")
        self._core = core
        self._paths = paths
        self._about = about
        self._summary = summary
        self._key = key
        self._proposal: Effect | None = None
        self.effect: Effect | None = None
        self.outside: tuple[str, ...] = ()

    def __enter__(self) -> "FileWatch":
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.finish()
        except TakebackError as trouble:
            if error is None:
                raise
            error.add_note(f"takeback: what was changed could not be recorded: {trouble}")

    def begin(self) -> None:
        """When this returns, these files can be brought back. One with a key may be begun again."""
        from takeback.adapters.tree.targets import WATCH
        from takeback.adapters.watch.files import FILES, bytes_at, recorded, resources_of, states_of
        from takeback.engine.watch import begin
        from takeback.runs.watch_resume import open_with

        core, parts = self._core, self._core.parts
        if self._proposal is not None:
            return
        if self._key and (known := open_with(parts, self._key, core.id)):
            self._take(known)
            return
        parts.refuse_if_suspect()
        resources = resources_of(self._paths)
        for one in resources:
            if any(overlaps(store, one) for store in (parts.off_limits, *parts.names())):
                raise Misuse(
                    f"{display(one)} is in the store of takeback itself.", hint="Choose another path."
                )
        parts.refuse_without_room(bytes_at(resources))
        states = states_of(resources, parts.blobs, core.settings.max_capture_bytes)
        args = {**self._about, "roots": resources, FILES: recorded(states), "began": time.time_ns()}
        change = Change(ADAPTER, WATCH, resources[0], self._summary or f"edit {display(resources[-1])}", args)
        terms = Terms(self._key or next_key(core, change), agent=core.agent, judged=core.asked_first)
        self._take(begin(parts, core.lease, change, terms))

    def _take(self, proposal: Effect) -> None:
        self._proposal = proposal
        if self._key:
            self._core.watches[self._key] = self

    def finish(self, more: Mapping[str, Any] | None = None) -> Effect | None:
        """Record what became of them; `more` is recorded with it."""
        from takeback.adapters.watch.adapter import files_change
        from takeback.engine.watch import finish

        proposal, core = self._proposal, self._core
        if proposal is None or self.effect:
            return self.effect
        change = proposal.change._replace(args={**proposal.change.args, **(more or {})})
        proposal = proposal._replace(change=change)
        limit = core.settings.max_capture_bytes
        since = Query(told_after=proposal.seq, states=(State.DONE, State.UNDONE))
        with core.uninterrupted():
            self.effect = finish(
                core.parts,
                core.lease,
                proposal,
                lambda: files_change(
                    change, core.parts.blobs, limit, tuple(core.parts.journal.effects(since))
                ),
            )
            core.watches.pop(self._key, None)
            self._proposal = None
            if self.effect:
                took_hold(core, self.effect)
        return self.effect
