"""A watch with a key, begun by one process and ended by another."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from takeback.engine.parts import Parts
from takeback.errors import Misuse
from takeback.model.effect import COMMAND, Effect, State
from takeback.model.run import Lease
from takeback.runs.core import RunCore
from takeback.runs.watch import Watch
from takeback.runs.watch_place import Manner, Paths, place_of, tree_of
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.adapters.watch.watched_root import Baseline, WatchedRoot


def open_with(parts: Parts, key: str, run: str = "") -> Effect | None:
    """The watch with this key that has not ended."""
    query = Query(key=key, run=run, states=(State.PROPOSED,))
    return next((one for one in parts.journal.effects(query) if one.waits_for == COMMAND), None)


def watch_with(
    core: RunCore,
    roots: Paths,
    any_root: bool,
    about: dict[str, Any],
    summary: str,
    manner: Manner,
) -> Watch:
    """The one that is open under this key, here or since a process that has died; else a new one."""
    if not manner.key:  # none that another process could know
        return Watch(core, roots, any_root, about, summary, manner)
    known = core.watches.get(manner.key)
    if isinstance(known, Watch):
        return known
    watch = Watch(core, roots, any_root, about, summary, manner)
    proposal = None if manner.late or manner.fresh else open_with(core.parts, manner.key, core.id)
    if proposal is not None:
        from takeback.adapters.watch.adapter import baselines_of

        found = [(_root(core, one), one) for one in baselines_of(proposal.change)]
        watch.take_up(proposal, found, proposal.watched_since)
    return watch


def _root(core: RunCore, baseline: "Baseline") -> "WatchedRoot":
    from takeback.adapters.watch.adapter import root_of_baseline

    return tree_of(core, root_of_baseline(baseline), place_of(core.parts))


def settle_open(parts: Parts, lease: Lease, effect: Effect, more: Mapping[str, Any]) -> Effect | None:
    """From what is durable alone, though those who made the changes may still live: the caller knows that the call is
    over."""
    from takeback.engine.watch import settle

    if effect.waits_for != COMMAND:
        raise Misuse("This is no open watch.", hint="`takeback show` says how it stands.")
    args = {name: value for name, value in effect.change.args.items() if name != "process"}
    return settle(parts, lease, effect._replace(change=effect.change._replace(args={**args, **more})))
