"""`status`: how things stand."""

import os
from collections.abc import Sequence

from takeback.api import now
from takeback.audit.alerts import ALONE
from takeback.audit.rows import counts_of
from takeback.audit.runs import Ending
from takeback.audit.status import Status, look, status_json
from takeback.frontends.cli.command import Asked, Command, Does
from takeback.frontends.cli.commands.stop import say_stop
from takeback.frontends.cli.output.attention import tell_attention, tell_inbox
from takeback.frontends.cli.output.errors import printable
from takeback.frontends.cli.output.log_table import done_in
from takeback.frontends.cli.output.screen import (
    Screen,
    ago,
    ahead,
    clean,
    counted,
    from_here,
    here,
    near,
    seconds_in_words,
)
from takeback.frontends.cli.session.store import (
    give,
    given_up_in_words,
    is_of_command_line,
    nothing_yet,
    opened,
    store_path,
    tell_nothing,
)
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.run import NEVER, RunInfo, RunState
from takeback.model.settings import bytes_in_words
from takeback.storage.notes import was_told
from takeback.storage.store import Store

_MOST_RUNS = 5
_BASELINES_TOLD = 50 << 20  # bytes
# What recovery does with a dead run.
SETTLING = {
    Ending.TAKEN_BACK: "takes its effects back",
    Ending.RECORDED: "records the changes of its command; they stay until you undo them",
    Ending.STAYS: "settles its open effects; the others stay",
    Ending.FINISHED: "finishes the undo",
    Ending.STUCK: "checks stuck effects again; a person decides about those that stay stuck",
    Ending.DROPPED: "saves the changes of its command as a drop; `takeback apply` can make them",
    Ending.APPLIED: "finishes the interrupted `apply`, or takes it back; then you can apply it again",
    Ending.NOTHING: "ends it; none of its effects is in force",
}


def _status(asked: Asked) -> int:
    screen = asked.screen
    if nothing_yet(asked):
        return tell_nothing(asked, {"store": printable(store_path(asked)), "exists": False})
    with opened(asked) as tb:
        status = look(tb.store, tb.size(), now())
        give(asked, tb, status_json(status))
        if not screen.json:
            _tell(screen, status)
            if status.given_up and screen.terminal and not (screen.quiet or tb.store.read_only):
                was_told(tb.store.path, [one.effect for one in status.given_up])
        if screen.terminal and not screen.quiet:
            _was_read(tb.store)
    return 0


def _was_read(store: Store) -> None:
    """A person has seen what was noticed of the hooks; an agent with a terminal is none."""
    if store.hook_note and os.path.exists(store.hook_note):
        from takeback.frontends.agents.evidence import was_read
        from takeback.runs.agent_above import agent_above

        if not agent_above(store.path):
            was_read(store.hook_note)


def _tell(screen: Screen, status: Status) -> None:
    for one in status.stops:
        say_stop(screen, one)
    if status.stops:
        screen.hint("`takeback stop --lift` ends a stop.")
    states = status.states
    cap = status.limits.store
    screen.say(
        f"Store    {near(clean(status.path), here())}: {bytes_in_words(status.size)} of {bytes_in_words(cap)}, "
        f"{counted(status.records, 'record')}"
    )
    partly = f" ({status.partly:,} partly undone)" if status.partly else ""
    back = (
        f" ({status.partly_back:,} partly undone: some of it was brought back)" if status.partly_back else ""
    )
    counts = [
        f"{states[State.DONE]:,} done{partly}",
        f"{states[State.UNDONE]:,} undone{back}",
        f"{states[State.ABORTED]:,} aborted",
    ]
    if status.open:
        pending = f" ({states[State.PROPOSED]:,} proposed)" if states[State.PROPOSED] else ""
        counts.append(screen.paint(f"{status.open:,} open{pending}", "yellow"))
    if states[State.STUCK]:
        counts.append(screen.paint(f"{states[State.STUCK]:,} stuck", "red"))
    screen.say(
        f"Effects  {', '.join(counts)}; {status.accepted:,} accepted, {status.forgotten:,} forgotten; "
        f"{counted(status.undos, 'undo')} in force"
    )
    _tell_held(screen, status)
    _tell_drops(screen, status)
    tell_inbox(screen, status)
    _tell_runs(screen, status)
    _tell_dead(screen, status)
    _tell_attention(screen, status)
    _tell_unfit(screen, status)
    _tell_retention(screen, status)
    for line in given_up_in_words(status.given_up):
        screen.say(screen.paint(f"{line[:1].upper()}{line[1:]}", "yellow"))
    _tell_troubles(screen, status)
    _tell_alerts(screen, status)


def _amount(effect: Effect) -> str:
    rows = "; ".join(f"{table}: {words}" for table, words in counts_of(effect))
    return rows or counted(len(effect.targets), "path")


def _named(screen: Screen, effect: Effect) -> str:
    return f"{screen.id(effect.id)} {from_here(effect.change.summary)}: {_amount(effect)}"


def _tell_held(screen: Screen, status: Status) -> None:
    held = [f"Held     {_named(screen, effect)}" for effect in status.held[-_MOST_RUNS:]]
    _say_some(screen, held, len(status.held))
    if status.held:
        screen.hint(
            "`takeback diff ID` shows a held change, `takeback apply ID` makes it, `takeback discard ID` drops it."
        )


def _tell_drops(screen: Screen, status: Status) -> None:
    """Drops that can still be applied; the newest is last."""
    today = now()
    dropped = [
        f"Dropped  {_named(screen, effect)}, {bytes_in_words(drop.bytes)} ({drop.reason.value}), "
        f"goes {ahead(drop.until, today)}"
        for effect in status.drops[-_MOST_RUNS:]
        if (drop := effect.dropped)
    ]
    _say_some(screen, dropped, len(status.drops))
    if status.drops:
        screen.hint("`takeback apply ID` makes what was dropped, `takeback discard ID --now` erases it.")


def _say_some(screen: Screen, lines: Sequence[str], of: int) -> None:
    for line in lines:
        screen.say(line)
    if of > _MOST_RUNS:
        screen.say(f"         and {of - _MOST_RUNS:,} more")


def _tell_runs(screen: Screen, status: Status) -> None:
    # Single commands have one for each directory, which the next command there continues: such a run is not work in
    # progress.
    listed = [one for one in status.unfinished if not is_of_command_line(one.info)]
    lasting = len(status.unfinished) - len(listed)
    beside = f", besides {counted(lasting, 'run')} of the command line" if lasting else ""
    if not listed:
        screen.say(f"Runs     none open{beside}")
        return
    suspended = sum(one.state is RunState.SUSPENDED for one in listed)
    screen.say(f"Runs     {len(listed) - suspended:,} open, {suspended:,} suspended{beside}")
    today = now()
    dead = {one.info.id for one in status.dead}
    for run in listed[-_MOST_RUNS:]:
        info = run.info
        if info.id in dead:
            continue
        agent = f" by {clean(info.agent)}" if info.agent else ""
        screen.say(
            f"           {screen.id(info.id)} {from_here(info.name)}{agent}: {info.state.value}, "
            f"began {ago(info.opened_at, today)}, {done_in(run)}{_of_workflow(info, today)}"
        )
    if len(listed) > _MOST_RUNS:
        screen.say(f"           and {len(listed) - _MOST_RUNS:,} more")


def _tell_dead(screen: Screen, status: Status) -> None:
    """Dead runs, and what `recover` would do with them."""
    today = now()
    for one in status.dead[:_MOST_RUNS]:
        info = one.info
        by = f" by {clean(info.agent)}" if info.agent else ""
        process = f"its process (pid {one.pid})" if one.pid else "its process"
        doubt = f", {len(one.in_doubt):,} in doubt" if one.in_doubt else ""
        screen.say(
            f"Dead     {screen.id(info.id)} {from_here(info.name)}{by}: {process} is gone; last heard of "
            f"{ago(one.last_at, today)}; {counted(one.in_force, 'effect')} in force{doubt}"
        )
        for effect in one.in_doubt[:_MOST_RUNS] if one.ending is Ending.APPLIED else ():
            screen.say(f"         it was applying {screen.id(effect.id)}")
        if one.command and one.ending is not Ending.DROPPED:
            screen.say(f"         its command was killed with it: {from_here(one.command)}")
    _say_some(screen, (), len(status.dead))
    for ending in dict.fromkeys(one.ending for one in status.dead):
        calls = dict.fromkeys(name for one in status.dead if one.ending is ending for name in one.functions)
        told = f" That calls functions of {clean(', '.join(calls))}." if calls else ""
        screen.hint(f"`takeback recover` {SETTLING[ending]}.{told}")
    if any(one.command and one.ending is not Ending.DROPPED for one in status.dead):
        screen.hint(f"`takeback recover` {SETTLING[Ending.DROPPED]}.")


def _of_workflow(info: RunInfo, today: int) -> str:
    if not info.workflow or not info.note:
        return ""
    due = f", due {ahead(info.due_at, today)}" if today < info.due_at < NEVER else ""
    return f"; {clean(info.note)}{due}"


def _tell_attention(screen: Screen, status: Status) -> None:
    """Of runs of workflows that would otherwise wait in silence."""
    for info in status.attention[:_MOST_RUNS]:
        tell_attention(screen, info)
    if len(status.attention) > _MOST_RUNS:
        screen.say(f"And {len(status.attention) - _MOST_RUNS:,} more runs need attention.")
    for name in sorted({clean(info.workflow) for info in status.unclaimed}):
        count = sum(clean(info.workflow) == name for info in status.unclaimed)
        are, them = ("is", "it") if count == 1 else ("are", "them")
        taken = f"{are} due, and no worker has taken {them}"
        screen.say(screen.paint(f"{counted(count, 'run')} of {name} {taken}.", "yellow"))
        screen.hint(
            f"`takeback worker {name.partition(':')[0]}` does, if that module still has the workflow."
        )


def _tell_unfit(screen: Screen, status: Status) -> None:
    lines = [
        f"Unfit    {screen.id(one.effect.id)} {from_here(one.effect.change.summary)}: "
        f"{screen.paint(from_here(one.why), 'red')} ({ago(one.at, now())})"
        for one in status.unfit[:_MOST_RUNS]
    ]
    _say_some(screen, lines, len(status.unfit))
    if status.unfit:
        screen.hint("Their way back failed in a rehearsal. `takeback rehearse ID` tries one again.")


def _tell_retention(screen: Screen, status: Status) -> None:
    settings = status.settings
    rules = [
        "a way back stays until it is accepted",
        f"then for {seconds_in_words(settings.accepted_seconds)}",
        f"while the store is under {bytes_in_words(status.limits.store)} and {bytes_in_words(status.limits.free)} of "
        "the disk are free",
    ]
    if settings.versions_per_file:
        rules.append(f"at most {counted(settings.versions_per_file, 'version')} a file")
    screen.say(f"Keeping  {', '.join(rules)}")
    if status.pinned:
        screen.say(
            f"         {counted(status.pinned, 'effect')} pinned: {bytes_in_words(status.pinned_bytes)}, beside the cap"
        )
    if status.baseline_bytes > _BASELINES_TOLD:
        screen.say(
            f"         {bytes_in_words(status.baseline_bytes)} are copies of watched directories, for the next "
            "`run --in-place`; they go after a day without one, or now: `takeback sweep --baselines`"
        )
    if status.goes_next:
        effect, at = status.goes_next
        what = from_here(effect.change.summary)
        screen.say(
            f"         next to go: {screen.id(effect.id)} {what}, "
            f"{ahead(at, now())}; earlier if there is no room. `takeback pin {short(effect.id)}` keeps it"
        )
    if status.forgettable:
        effects = max(0, status.accepted - status.forgotten)
        undos = status.forgettable - effects
        kept = [counted(effects, "accepted effect")] if effects or not undos else []
        kept += [counted(undos, "undo")] if undos else []
        screen.say(f"         {' and '.join(kept)}; `takeback forget --dry-run` shows which may go")


def _tell_troubles(screen: Screen, status: Status) -> None:
    if status.retired:
        screen.say(screen.paint(f"The store takes nothing new any more: {clean(status.retired)}.", "red"))
    if status.suspect:
        screen.say(screen.paint("The disk under the store failed earlier: new changes are refused.", "red"))
        screen.hint(
            "Run `takeback verify --read-data`; when it finds nothing wrong, the store is trusted again."
        )
    if status.full:
        told = "The disk under the store is full: looking works, changes and undo are refused."
        screen.say(screen.paint(told, "red"))
        screen.hint(
            "Free some space, or `takeback forget` and `takeback sweep` give back what the store can."
        )
    elif status.read_only:
        screen.say(
            screen.paint("The store is read-only: looking works, changes and undo are refused.", "yellow")
        )
    for one in {climb.effect: climb for climb in status.climbed}.values():
        screen.say(screen.paint(f"Stuck    {screen.id(one.effect)}, tried last: {clean(one.words)}", "red"))
    if status.states[State.STUCK] > sum(one.state is State.STUCK for one in status.in_doubt):
        screen.hint(
            "`takeback log` shows what is stuck, `takeback show ID` why; `takeback undo ID` takes it back."
        )
    if status.size - status.pinned_bytes > status.limits.store:
        screen.say(
            screen.paint(f"The store is over its cap of {bytes_in_words(status.limits.store)}.", "yellow")
        )
        screen.hint("`takeback forget`, then `takeback sweep` make room.")


def _tell_alerts(screen: Screen, status: Status) -> None:
    """Those of which nothing else here tells."""
    for alert in status.alerts:
        if alert.id.partition(":")[0] in ALONE:
            screen.say(screen.paint(f"Alert    {from_here(alert.says)}", "red"))
            screen.hint(alert.hint)


COMMAND = Command(_status, does=Does.LOOKS)
