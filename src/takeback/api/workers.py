"""Working on the workflows of an opened store; a worker that has nothing to do tells people of what waits for them."""

from functools import partial
from typing import TYPE_CHECKING

from takeback.api.store import OpenStore, now
from takeback.api.upkeep import before_change
from takeback.errors import Misuse
from takeback.storage.people_files import people_are_told

if TYPE_CHECKING:
    from takeback.runs.workflows.function import Workflow
    from takeback.runs.workflows.worker import Worker


def work(opened: OpenStore, *workflows: "Workflow", concurrency: int = 1, until_idle: bool = False) -> int:
    """Work on these workflows in this thread until interrupted; with `until_idle`, until nothing is due. Returns how
    many times it continued a run. `takeback worker MODULE` does this in its own process."""
    from takeback.runs.workflows.function import refuse_unfindable

    known = {one.name: one for one in map(refuse_unfindable, workflows)}
    hand = worker_for(opened, known, concurrency)
    try:
        hand.work(until_idle=until_idle)
    except BaseException:
        hand.stop()
        hand.work()  # until the runs at hand have come to their next step
        raise
    return hand.worked


def worker_for(opened: OpenStore, workflows: "dict[str, Workflow]", concurrency: int = 1) -> "Worker":
    from takeback.runs.workflows.worker import Worker, Workplace

    if not workflows:
        raise Misuse(
            "A worker needs at least one workflow.", hint="Give it functions with @takeback.workflow."
        )
    if type(concurrency) is not int or concurrency < 1:
        raise Misuse(f"{concurrency!r} runs at a time make no sense.", hint="Give 1 or more.")
    opened.store.refuse_if_suspect()
    before_change(opened, calls=True)
    place = Workplace(opened.parts, now, opened.lease_lasts, opened.hold_run, partial(_tell_and_wait, opened))
    return Worker(place, workflows, concurrency, opened.say)


_ALERTS_EACH = 30_000_000  # microseconds between two looks of a worker at what is wrong


def _tell_and_wait(opened: OpenStore, seconds: float) -> None:
    """A worker that has nothing to do tells people of what waits for them."""
    if people_are_told():
        from takeback.api.notices import tell_people

        tell_people(opened, each=_ALERTS_EACH)
    opened.store.wait_for_work(seconds)
