"""What a person decides: accept, apply or discard held changes, pin, approve, settle a call in doubt."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from takeback.api.store import OpenStore, now
from takeback.api.undo import go_on_undoing
from takeback.api.upkeep import before_change, erase, expire_drops
from takeback.api.workflows import wake_settled
from takeback.errors import Corrupt, Failed, InDoubt, Misuse, Refused, Stuck, TakebackError
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.person import Account, Person
from takeback.model.record import Draft, Kind, canonical
from takeback.model.run import DECIDED, OnDeath, RunState
from takeback.runs.agent_above import refuse_below_agent
from takeback.runs.person import person_here
from takeback.runs.selection import name_of, names_of
from takeback.storage.owners import myself

if TYPE_CHECKING:
    from takeback.engine.approval import Proposal, Signed


def accept(
    opened: OpenStore, what: "Effect | str | Sequence[Effect | str]", *, dry_run: bool = False
) -> tuple[Effect, ...]:
    """Accept these effects: they stay if their run fails, and takeback may forget them after their time."""
    from takeback.runs.held import refuse_unmade

    effects = _meant(opened, what, dry_run)
    for effect in effects:
        refuse_unmade(effect, "accepted")
    return tuple(effects) if dry_run else _say(opened, Kind.ACCEPT, effects)


def apply(
    opened: OpenStore,
    what: "Effect | str | Sequence[Effect | str]",
    *,
    force: bool = False,
    dry_run: bool = False,
) -> tuple[Effect, ...]:
    """Apply held changes, or dropped ones that are not erased yet. With `force`, apply them even if others changed the
    targets since; undo restores that content. A change that is already in place stays held, or dropped."""
    from takeback.runs.held import built_on, make_held, refuse_unheld

    held = _meant(opened, what, dry_run)
    for effect in held:
        refuse_unheld(effect)
    if dry_run:
        earlier = built_on(held)
        for effect in held:
            if not earlier[effect.id]:
                make_held(opened.parts, effect, force, opened.leased, dry_run=True)
        return tuple(held)
    with _telling_of_the_first(opened, held, "applied", State.DONE):
        try:
            for effect in held:
                make_held(opened.parts, effect, force, opened.leased)
        except TakebackError:
            with suppress(TakebackError):  # the first error tells more
                _say(opened, Kind.ACCEPT, _now_in(opened, held, State.DONE))
            raise
    _say(opened, Kind.ACCEPT, _now_in(opened, held, State.DONE))
    return tuple(opened.effect(one.id) for one in held)


def _now_in(opened: OpenStore, effects: Sequence[Effect], *states: State) -> list[Effect]:
    return [one for one in effects if opened.effect(one.id).state in states]


@contextmanager
def _telling_of_the_first(
    opened: OpenStore, effects: Sequence[Effect], done: str, *states: State
) -> Iterator[None]:
    """`Refused` promises that nothing was changed. Of several effects, those before the refused one were."""
    try:
        yield
    except TakebackError as error:
        first: list[Effect] = []
        with suppress(TakebackError):
            first = _now_in(opened, effects, *states)
        if not first:
            raise
        names = ", ".join(short(one.id) for one in first)
        said = f"{len(first)} of {len(effects)} {'was' if len(first) == 1 else 'were'} {done} ({names})."
        if error.exit_code in (Corrupt.exit_code, InDoubt.exit_code, Stuck.exit_code):
            error.hint = f"{said} {error.way_on}"
            raise
        raise Failed(f"{said} {error}", hint=error.way_on, effect=error.effect) from error


def discard(
    opened: OpenStore,
    what: "Effect | str | Sequence[Effect | str]",
    *,
    now: bool = False,
    dry_run: bool = False,
) -> tuple[Effect, ...]:
    """Drop held changes: they are not made, and for a day `apply` can still make them. With `now` they are erased at
    once, also if they were dropped before."""
    from takeback.runs.held import discard_all, refuse_unheld

    effects = _meant(opened, what, dry_run)
    for effect in effects:
        refuse_unheld(effect, dropped=now)
    if dry_run:
        return tuple(effects)
    refuse_below_agent("tb.discard", opened.store, holding=False)
    opened.store.use_spare()
    held = [one for one in effects if one.state is not State.DROPPED]
    with _telling_of_the_first(opened, held, "discarded", State.DROPPED, State.ABORTED):
        gone = {one.id: one for one in discard_all(opened.parts, held, False, opened.leased).effects}
    if now:
        erase(opened, [gone.get(one.id, one) for one in effects])
    else:
        expire_drops(opened)
    return tuple(opened.effect(one.id) for one in effects)


def pin(
    opened: OpenStore, what: "Effect | str | Sequence[Effect | str]", *, dry_run: bool = False
) -> tuple[Effect, ...]:
    """Never delete the undo data of these effects, or of the effects that their undo needs."""
    return _pinned(opened, what, Kind.PIN, dry_run)


def unpin(
    opened: OpenStore, what: "Effect | str | Sequence[Effect | str]", *, dry_run: bool = False
) -> tuple[Effect, ...]:
    """From now on, forget these effects like any other."""
    return _pinned(opened, what, Kind.UNPIN, dry_run)


def _pinned(
    opened: OpenStore, what: "Effect | str | Sequence[Effect | str]", kind: Kind, dry_run: bool
) -> tuple[Effect, ...]:
    from takeback.runs.held import refuse_unmade

    if not dry_run:
        refuse_below_agent(f"tb.{kind.value}", opened.store, holding=False)
    effects = _meant(opened, what, dry_run)
    for effect in effects:
        refuse_unmade(effect, f"{kind.value}ned")
        if effect.forgotten:
            raise Refused(
                f"The way back of effect {short(effect.id)} was forgotten.",
                hint="It cannot be had back, so there is nothing to pin.",
                effect=effect.id,
            )
    return tuple(effects) if dry_run else _say(opened, kind, effects)


def _meant(opened: OpenStore, what: "Effect | str | Sequence[Effect | str]", dry_run: bool) -> list[Effect]:
    """As they stand after what a crash left is settled; `@` is what it was before that."""
    ids = [opened.effect(name).id for name in names_of(what)]
    if not dry_run:
        before_change(opened)
    return [opened.effect(id) for id in ids]


def _say(opened: OpenStore, kind: Kind, effects: "Sequence[Effect]") -> tuple[Effect, ...]:
    """Record it of those of which it is not said yet."""
    said: dict[Kind, Callable[[Effect], bool]] = {
        Kind.ACCEPT: lambda one: one.accepted_by == "person",
        Kind.PIN: lambda one: one.pinned,
        Kind.UNPIN: lambda one: not one.pinned,
    }
    fresh = [opened.effect(one.id) for one in effects]
    drafts = [Draft(kind, one.run, one.id) for one in fresh if not said[kind](one)]
    if drafts:
        opened.store.journal.append(None, drafts)
    return tuple(opened.effect(one.id) for one in fresh)


def pending(opened: OpenStore) -> tuple[Effect, ...]:
    """Calls that wait for an approval, oldest first."""
    from takeback.engine.approval import proposals

    found = proposals(opened.parts, now())
    return tuple(one.effect for one in found if not one.decision and not one.never)


def proposals(opened: OpenStore) -> "tuple[Proposal, ...]":
    """What needs an approval, oldest first, with all that is shown to those who decide."""
    from takeback.engine.approval import proposals

    return proposals(opened.parts, now())


def approve(opened: OpenStore, id: "Effect | str", *, by: str = "", answer: str = "") -> Effect:
    """Approve exactly the proposed call. `answer` must confirm a call that cannot be undone. The run that asked makes
    the call when it asks again; refused if that run has ended. The person is that of this process; `by` is only a
    remark. Refused in a process of an agent."""
    refuse_below_agent("tb.approve", opened.store)
    return decide_as(opened, id, True, _person(opened, id, by), answer)


def deny(opened: OpenStore, id: "Effect | str", *, by: str = "", why: str = "") -> Effect:
    """Deny this proposal. The run that asked gets the denial. If it asks again, that is a new proposal."""
    refuse_below_agent("tb.deny", opened.store)
    return decide_as(opened, id, False, _person(opened, id, by), "", why)


def _person(opened: OpenStore, id: "Effect | str", by: str) -> Person:
    """Of this process, against the account that asked."""
    gate = opened.effect(name_of(id)).phase.gate
    agent = Account(gate.machine, gate.uid, gate.role) if gate and gate.machine else None
    return person_here(opened.store, by, agent)


def decide_as(
    opened: OpenStore,
    id: "Effect | str",
    approved: bool,
    person: Person,
    answer: str = "",
    why: str = "",
    signed: "Signed | None" = None,
) -> Effect:
    """For a front end of ours that knows the person, such as a console with logins."""
    from takeback.engine.approval import decide, refuse_undecidable

    opened.store.refuse_if_suspect()
    effect = opened.effect(name_of(id))
    refuse_undecidable(opened.parts, effect, now())
    before_change(opened)
    people = opened.parts.people()
    decide(opened.parts, effect, approved, person, answer, why, now=now(), people=people, signed=signed)
    _wake(opened, effect)
    return opened.effect(effect.id)


def settle(
    opened: OpenStore, effect: "Effect | str", happened: bool, *, receipt: Any = None, by: str = ""
) -> Effect:
    """Record whether a call in doubt happened; `receipt` is the result it would have returned. If its run has ended,
    the run's policy then applies; a run that waited for the call continues. `by` is a remark: the person is that of
    this process."""
    opened.store.refuse_if_suspect()
    if not isinstance(happened, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse(f"Whether it happened is True or False, not {happened!r}.", hint="Nothing was recorded.")
    refuse_below_agent("tb.settle", opened.store)
    return settle_as(opened, effect, happened, person_here(opened.store, by), receipt)


def settle_as(
    opened: OpenStore, effect: "Effect | str", happened: bool, person: Person, receipt: Any = None
) -> Effect:
    """For a front end of ours that knows the person."""
    from takeback.engine.approval import refuse_unsettleable, settle
    from takeback.engine.recover import recover

    opened.store.refuse_if_suspect()
    found = opened.effect(name_of(effect))
    before_change(opened)
    found = opened.effect(found.id)
    refuse_unsettleable(found)
    with opened.leased(found.run) as lease:
        settle(opened.parts, lease, found, happened, receipt, person)
    recover(opened.parts, myself(), now(), opened.lease_lasts, only=found.run, tell=opened.say)
    wake_settled(opened)
    go_on_undoing(opened, found.run)
    return opened.effect(found.id)


def accept_residue(
    opened: OpenStore, effect: "Effect | str", *, why: str, by: str = "", dry_run: bool = False
) -> Effect:
    """The last resort for an effect that is stuck, or whose undo is: accept its residue, with a reason. The
    record names the person. takeback no longer tries to take the effect back."""
    from takeback.engine.ladder import accept_residue, with_residue
    from takeback.engine.recover import recover

    opened.store.refuse_if_suspect()
    if not why.strip():
        raise Misuse("A residue is accepted with a reason.", hint='For example --why "the host is gone".')
    canonical([why, by])
    refuse_below_agent("tb.accept_residue", opened.store)
    found = with_residue(opened.parts, opened.effect(name_of(effect)))
    if dry_run:
        return found
    with opened.leased(found.run) as lease:
        accept_residue(opened.parts, lease, found, person_here(opened.store, by), why)
    recover(opened.parts, myself(), now(), opened.lease_lasts, only=found.run, tell=opened.say)
    wake_settled(opened)
    go_on_undoing(opened, found.run)
    return opened.effect(found.id)


def finish_watch(
    opened: OpenStore, key: str, *, closed: str = "", about: Mapping[str, Any] | None = None
) -> Effect | None:
    """End the open watch with this key, also one that another process began, and record what was changed: its effect,
    or None if nothing was. `closed` says why it ends, if not by the end of what was watched."""
    from takeback.runs.watch_resume import open_with, settle_open

    opened.store.refuse_if_suspect()
    effect = open_with(opened.parts, key)
    if effect is None:
        raise Misuse(
            f"No watch with the key {key!r} is open.", hint="`takeback log` shows what was recorded."
        )
    more = {**(about or {}), **({"closed": closed} if closed else {})}
    core = opened.runs_here.get(effect.run)
    if core and (mine := core.watches.get(key)):
        return mine.finish(more)
    with opened.leased(effect.run) as lease:
        return settle_open(opened.parts, lease, effect, more)


def _wake(opened: OpenStore, effect: Effect) -> None:
    """The workflow that waits for the decision."""
    for info in opened.store.journal.runs((effect.run,)):
        if info.on_death is OnDeath.RESUME and info.state in (RunState.OPEN, RunState.SUSPENDED):
            body = {"name": f"{DECIDED}{effect.id}", "data": "null"}
            opened.store.journal.append(None, [Draft(Kind.SIGNAL, effect.run, "", body)])
