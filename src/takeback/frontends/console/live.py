"""News as server-sent events: that the journal grew, and how far a job is."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from takeback.errors import TakebackError
from takeback.frontends.console.jobs import ConsoleJob, Jobs
from takeback.model.settings import bytes_in_words

_EACH = 0.5  # seconds between two looks
_BEAT = 15.0  # seconds; a comment, so that a proxy does not close the stream
_MOST_STREAMS = 64


class News:
    """One look at the journal for all who listen."""

    def __init__(self, newest: Callable[[], int], jobs: Jobs) -> None:
        self._newest = newest
        self._jobs = jobs
        self._over = asyncio.Event()
        self._seq = 0
        self._looked = 0.0
        self._streams = 0

    def end(self) -> None:
        """The console ends: no stream may keep it."""
        self._over.set()

    async def journal(self, still_in: Callable[[], bool]) -> AsyncIterator[str]:
        """An event with the newest position, at first and whenever it has moved."""
        told, silent = -1, 0.0
        while not self._over.is_set() and still_in():
            seq = await self._look()
            if seq != told:
                told, silent = seq, 0.0
                yield _event({"seq": seq})
            elif silent >= _BEAT:
                silent = 0.0
                yield ": still here\n\n"
            await self._wait()
            silent += _EACH

    async def _look(self) -> int:
        now = asyncio.get_running_loop().time()
        if now - self._looked >= _EACH * 0.9:
            self._looked = now
            try:
                self._seq = await run_in_threadpool(self._newest)
            except TakebackError:
                return self._seq  # a server that is away for a moment
        return self._seq

    async def job(self, job: ConsoleJob, still_in: Callable[[], bool]) -> AsyncIterator[str]:
        told = None
        while not self._over.is_set() and still_in():
            over = job.over.is_set()
            reached = _reached(job)
            if reached != told or over:
                told = reached
                yield _event(reached)
            if over:
                return
            await self._wait()

    async def _wait(self) -> None:
        try:
            await asyncio.wait_for(self._over.wait(), _EACH)
        except TimeoutError:
            return

    def stream(self, events: AsyncIterator[str]) -> StreamingResponse | None:
        """None if too many are open."""
        if self._streams >= _MOST_STREAMS:
            return None
        self._streams += 1
        return StreamingResponse(
            self._counted(events), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    async def _counted(self, events: AsyncIterator[str]) -> AsyncIterator[str]:
        try:
            async for event in events:
                yield event
        finally:
            self._streams -= 1


def _reached(job: ConsoleJob) -> dict[str, Any]:
    reached = job.progress.reached
    of = f" of {reached.of_items:,}" if reached.of_items else ""
    words = f"{reached.doing}: {reached.items:,}{of} {reached.noun}s"
    if reached.bytes:
        words += f", {bytes_in_words(reached.bytes)}"
    return {
        "outcome": job.outcome,
        "percent": reached.percent,
        "words": words if not job.over.is_set() else "",
    }


def _event(data: Any) -> str:
    return f"data: {json.dumps(data)}\n\n"
