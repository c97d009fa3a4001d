"""Stop an agent, a run or everything, and lift that again."""

from typing import TYPE_CHECKING

from takeback.api.store import OpenStore
from takeback.errors import Misuse
from takeback.model.record import canonical
from takeback.model.run import RunInfo, conversation_of
from takeback.model.stop import Stop
from takeback.runs.agent_above import refuse_below_agent
from takeback.runs.person import person_here

if TYPE_CHECKING:
    from takeback.runs.run import Run


def stop(
    opened: OpenStore,
    *,
    agent: str = "",
    run: "str | RunInfo | Run" = "",
    everything: bool = False,
    why: str = "",
    by: str = "",
    dry_run: bool = False,
) -> Stop:
    """Stop an agent, a run, or everything. When this returns, every change that it asks for is refused with `Stopped`
    within a second, in every process, until a person lifts it. Changes under way are finished or taken back. With the
    run of a coding agent's conversation the whole conversation stops. Undo is never stopped."""
    from takeback.engine.stop import stop

    wanted = _meant(opened, agent, run, everything)
    canonical([why, by])  # refuses what no journal could hold
    if dry_run:
        return wanted._replace(why=why)
    opened.store.use_spare()  # on a full disk, too
    found = stop(opened.store.journal, wanted._replace(why=why), person_here(opened.store, by))
    opened.stops.forget()
    return found


def lift(
    opened: OpenStore,
    *,
    agent: str = "",
    run: "str | RunInfo | Run" = "",
    everything: bool = False,
    why: str = "",
    by: str = "",
    dry_run: bool = False,
) -> tuple[Stop, ...]:
    """Lift the stop of an agent or a run, or all stops with `everything`; without a name the only one there is. It
    returns what was lifted. Workers then continue the runs that waited."""
    from takeback.engine.stop import chosen, lift, stops

    canonical([why, by])
    meant = _meant(opened, agent, run, everything) if agent or run else Stop()
    found = chosen(stops(opened.store.journal), meant.agent, meant.run, everything)
    if not dry_run:
        refuse_below_agent("tb.lift", opened.store)
        lift(opened.store.journal, found, person_here(opened.store, by), why)
        opened.stops.forget()
    return found


def stops(opened: OpenStore) -> tuple[Stop, ...]:
    """The stops in force, oldest first."""
    from takeback.engine.stop import stops

    return stops(opened.store.journal)


def _meant(opened: OpenStore, agent: object, run: "str | RunInfo | Run", everything: bool) -> Stop:
    if not isinstance(agent, str):
        raise Misuse("An agent is named as text.", hint='For example agent="deployer".')
    if sum(map(bool, (agent.strip(), run, everything))) != 1:
        raise Misuse(
            "Say what to stop: an agent, a run, or everything.",
            hint='For example tb.stop(agent="deployer", why="it deletes too much").',
        )
    canonical(agent)
    if not run:
        return Stop(agent)
    info = opened.find_run(run if isinstance(run, str) else run.id)
    return Stop(run=info.id, conversation=_conversation(info))


def _conversation(info: RunInfo) -> str:
    """Of a coding agent's run: it may continue in other runs, and its subagents have runs of their own."""
    from takeback.runs.prompts import is_session

    return conversation_of(info) if is_session(info) else ""
