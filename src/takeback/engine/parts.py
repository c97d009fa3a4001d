"""What the verbs work with; made in one place, `takeback.api`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.adapters.protocol import TRAITS, Adapter, Assessment
from takeback.errors import Corrupt, RowsHeld
from takeback.model.approver import People
from takeback.model.change import Change
from takeback.model.database import ENGINES, Database, Holder, busy
from takeback.model.effect import Effect, State, intent_body
from takeback.model.person import Account
from takeback.model.progress import SILENT, Progress
from takeback.model.record import Draft, Kind
from takeback.model.remedy import to_json
from takeback.model.stop import Stop
from takeback.storage.protocols import Blobs, Journal, Leases, Query

if TYPE_CHECKING:
    from takeback.policy.decide import InForce


def no_rules(run: str, resources: Iterable[str]) -> "InForce | None":
    """Where no policy was set up."""
    return None


class DropLimits(NamedTuple):
    """How long and how much a store holds of what was dropped."""

    seconds: int = 0
    bytes: int = 0
    refuse_without_room: Callable[[int], None] = lambda size: None  # gives up nothing else to make room
    now: Callable[[], int] = lambda: 0  # microseconds since 1970


class Parts(NamedTuple):
    journal: Journal
    blobs: Blobs
    leases: Leases
    adapters: Mapping[str, Adapter]
    refuse_if_suspect: Callable[[], None]  # raises while the store may not be trusted
    refuse_without_room: Callable[[int], None]  # raises when that many bytes more would fill the store's disk
    named: Callable[
        [str], Database
    ]  # which database an address means; the address itself is kept out of the journal
    belonging: Callable[[Effect], Effect] = lambda effect: effect  # with the projects that it touches
    off_limits: str = ""  # the store itself, as a resource: no change may touch it
    max_capture_bytes: int = 0  # a change that needs more to be captured is refused; 0: no cap
    drops: DropLimits = DropLimits()
    names: Callable[[], tuple[str, ...]] = tuple  # every path by which the store is reached now, as resources
    progress: Progress = SILENT
    tell: Callable[[str], None] = lambda words: None  # hears which functions settling something will call
    # All writes in the block as one transaction; None where that takes more time, not less.
    at_once: Callable[[], AbstractContextManager[Any]] | None = None
    stops: Callable[[], tuple[Stop, ...]] = tuple  # in force, as known a moment ago
    account: Callable[[], Account] = Account  # under which this process works
    people: Callable[[], People] = People  # who may approve, and who hears of a proposal
    proposed: Callable[[Effect], None] = lambda effect: None  # hears of each proposal that waits for people
    # The policy that counts for what a run changes there; None without one.
    rules: "Callable[[str, Iterable[str]], InForce | None]" = no_rules
    policy_files: tuple[str, ...] = ()  # as resources; to change one of them is held
    in_force: Callable[[], None] = lambda: None  # records which files count, before the first change


def adapter_of(parts: Parts, name: str) -> Adapter:
    adapter = parts.adapters.get(name)
    if adapter is None:
        raise Corrupt(
            f"No adapter named {name!r} is installed.",
            hint="The effect was made by another version or with an extra that is missing here.",
        )
    return adapter


def stage_of(parts: Parts, adapter: Adapter, doing: str) -> AbstractContextManager[None]:
    """A stage of an effect. The work of a server is not seen, and no progress is drawn over the output of a
    function."""
    if adapter.traits.calls:
        parts.progress.aside()
        return nullcontext()
    return parts.progress.stage(doing, ticks=adapter.traits.marks)


def assessed(parts: Parts, adapter: Adapter, change: Change, of: Effect | None = None) -> Assessment:
    with stage_of(parts, adapter, "Comparing"):
        return adapter.assess(change, of)


def whole(parts: Parts, effect: Effect) -> Effect:
    """With the effect it undoes, if it is an undo."""
    if not effect.undoes or effect.of:
        return effect
    return effect._replace(of=next(parts.journal.effects(Query(ids=(effect.undoes,)))))


def draft(parts: Parts, kind: Kind, effect: Effect) -> Draft:
    """The record that announces it, with the projects that it touches."""
    return as_draft(kind, parts.belonging(effect))


def as_draft(kind: Kind, effect: Effect) -> Draft:
    remedy = to_json(effect.remedy) if effect.remedy else None
    return Draft(kind, effect.run, effect.id, intent_body(effect, remedy))


def held_in(parts: Parts, resource: str) -> list[Effect]:
    """What waits for a decision in this database, newest first."""
    found = parts.journal.effects(Query(states=(State.PROPOSED,), newest=True))
    return [one for one in found if one.phase.reviewed and one.change.resource == resource]


def named(parts: Parts, resource: str, error: RowsHeld) -> RowsHeld:
    """With one writer at a time, the held transaction is the one that blocks."""
    engine = ENGINES.get(resource.partition("://")[0], "")
    if error.effect or not (engine and TRAITS[engine].one_writer):
        return error
    held = held_in(parts, resource)
    return busy(Holder(held[0].id)) if held else error


@contextmanager
def holders_named(parts: Parts, effects: Iterable[Effect]) -> Iterator[None]:
    try:
        yield
    except RowsHeld as error:
        for resource in {one.change.resource for one in effects}:
            error = named(parts, resource, error)
        raise error from None
