"""What came of a command: for programs, in words, as a step of a workflow; what can be taken back."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.engine.drop import Final
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.plan import TargetOutcome, outcome_from
from takeback.model.remedy import Target
from takeback.model.resource import display
from takeback.runs.commands.request import CommandRequest
from takeback.runs.workflows.function import digest_of
from takeback.sandbox.ability import in_words as unmapped

if TYPE_CHECKING:
    from takeback.adapters.tree.targets import Rename
    from takeback.sandbox.ability import Ability


_LISTED_PATHS = 4
_MIXED = "Changes that other people or programs make there while it runs are recorded as part of it."


def of_sandbox(able: "Ability", network: bool) -> str:
    files = "Files: covered exactly, everywhere"
    if able.not_covered:
        paths = [path for path, _ in able.not_covered]
        listed = ", ".join(paths[:_LISTED_PATHS])
        more = f" and {len(paths) - _LISTED_PATHS} more" if len(paths) > _LISTED_PATHS else ""
        files += f" but {listed}{more}, which cannot be written there"
    return f"{files}. {_outside(network)}"


def of_roots(roots: tuple[str, ...], apart: bool, network: bool = True) -> str:
    """`apart`: the kernel tells who makes each change."""
    listed = ", ".join(roots[:_LISTED_PATHS])
    more = f" and {len(roots) - _LISTED_PATHS} more" if len(roots) > _LISTED_PATHS else ""
    mixed = "" if apart else f" {_MIXED}"
    return f"Files: covered below {listed}{more}, and nowhere else.{mixed} {_outside(network)}"


def _outside(network: bool) -> str:
    if network:
        return "Not covered: what is sent over the network, other machines, and services that already run."
    return "It has no network, and reaches no service of this machine."


_LISTED = 10


class Changed(NamedTuple):
    kind: str  # "added" | "modified" | "deleted"
    resource: str
    size: int  # of the file that it left, or removed

    @property
    def path(self) -> str:
        return display(self.resource)


class CommandOutcome(NamedTuple):
    exit_code: int  # of the command, as in a shell
    stdout: bytes = b""
    stderr: bytes = b""
    effect: Effect | None = None  # None: it changed nothing, or its changes were dropped
    changes: tuple[Changed, ...] = ()
    coverage: str = ""
    text: str = ""  # what an agent should read
    conflicts: tuple[TargetOutcome, ...] = ()  # changes by others while it ran; then its changes are held
    stopped: str = ""  # "time", "memory" or "stop": why it was ended
    leftover: int = 0  # processes that it left running; takeback ended them
    files_recorded: bool = True
    dropped: Effect | None = None  # its changes, if they can still be applied
    final: "Final | None" = None  # why they cannot, if they were dropped for good
    used_terminal: bool = False  # it read input from the terminal
    moves: "tuple[Rename, ...]" = ()  # of a dry run: what it renamed; of others their effect shows it

    @property
    def held(self) -> bool:
        return self.effect is not None and bool(self.effect.waits_for)

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


def changed(targets: Iterable[Target]) -> tuple[Changed, ...]:
    found: list[Changed] = []
    for one in targets:
        gone = one.after["type"] == "absent" and one.before["type"] != "absent"
        kind = "deleted" if gone else "added" if one.before["type"] == "absent" else "modified"
        found.append(Changed(kind, one.resource, (one.before if gone else one.after).get("size", 0)))
    return tuple(found)


def in_numbers(changes: Iterable[Changed]) -> str:
    """`2 added, 1 modified`; empty if there is nothing."""
    kinds = [one.kind for one in changes]
    counts = ((kinds.count(kind), kind) for kind in ("added", "modified", "deleted"))
    return ", ".join(f"{count:,} {kind}" for count, kind in counts if count)


def why_final(final: "Final") -> str:
    """Why a drop cannot be taken back."""
    return {
        "off": "`dropped_seconds` is 0, so nothing of it was saved",
        "large": "it is larger than `dropped_bytes` allows",
        "room": "there is no room on the disk of the store to save it",
        "unreadable": "part of it could not be saved exactly",
        "database": "the database has rolled it back",
    }[final.value]


def left_behind(count: int) -> str:
    """Of what it had started."""
    processes, were = ("process", "was") if count == 1 else ("processes", "were")
    return f"{count} {processes} that it had left in the background {were} ended with it."


def in_words(outcome: CommandOutcome) -> str:
    told = _in_words(outcome)
    return f"{told} {left_behind(outcome.leftover)}" if outcome.leftover else told


def how_it_ended(stopped: str, exit_code: int) -> str:
    if stopped == "time":
        return "The command took longer than it was given and was ended."
    if stopped == "stop":
        return "The command was stopped."
    if stopped == "memory":
        return "The command needed more memory than it was given and was ended."
    return f"The command ended with exit code {exit_code}."


def _in_words(outcome: CommandOutcome) -> str:
    ended = how_it_ended(outcome.stopped, outcome.exit_code)
    if outcome.held and outcome.effect:
        name = short(outcome.effect.id)
        why, apply = "", f"apply {name}"
        if outcome.conflicts:
            apply = f"apply --force {name}"
            paths = ", ".join(display(one.resource) for one in outcome.conflicts[:_LISTED])
            why = f" because others changed the same while it ran ({paths})"
        return (
            f"{ended} What it changed ({in_numbers(outcome.changes)}) is held{why}; it is not visible yet: "
            f"`takeback {apply}` makes it, `takeback discard {name}` drops it."
        )
    if outcome.effect:
        way_back = f"`takeback undo {short(outcome.effect.id)}` takes it back."
        return f"{ended} It changed: {in_numbers(outcome.changes)}. {way_back}"
    if outcome.changes:
        paths = ", ".join(one.path for one in outcome.changes[:_LISTED])
        more = f" and {len(outcome.changes) - _LISTED:,} more" if len(outcome.changes) > _LISTED else ""
        dropped = f"Its changes were dropped, so all files are as before: {paths}{more}."
        if outcome.dropped:
            dropped += f" `takeback apply {short(outcome.dropped.id)}` makes it after all."
        elif outcome.final:
            dropped += f" This is final: {why_final(outcome.final)}."
    else:
        dropped = "It changed no files."
    return " ".join(filter(None, (ended, dropped, unmapped(outcome.stderr) if outcome.exit_code else "")))


MOST_PRINTED = 64 * 1024  # bytes of each stream, from its end
_MOST_CHANGES = 100
DROPPED = "dropped"  # in the record of a step: the effect that has what was dropped


def asked_for(request: CommandRequest, env: Mapping[str, str] | None, stdin: bytes | None, key: str) -> str:
    """The environment counts only where it was given: that of a worker is another one each time."""
    *told, _, _ = request._replace(env=dict(env) if env is not None else {})  # whatever it is called
    given = hashlib.sha256(stdin).hexdigest() if stdin is not None else ""
    return digest_of("command", told, given, key)


def kept_outcome(outcome: CommandOutcome) -> CommandOutcome:
    """As much of it as is recorded; the first time it is answered with no more than the next time."""
    return outcome._replace(
        stdout=outcome.stdout[-MOST_PRINTED:],
        stderr=outcome.stderr[-MOST_PRINTED:],
        changes=outcome.changes[:_MOST_CHANGES],
        conflicts=outcome.conflicts[:_MOST_CHANGES],
    )


def outcome_to_json(outcome: CommandOutcome) -> dict[str, Any]:
    told = {
        "exit_code": outcome.exit_code,
        "stdout": outcome.stdout.decode("latin-1"),
        "stderr": outcome.stderr.decode("latin-1"),
        "changes": [list(one) for one in outcome.changes],
        "conflicts": [list(one) for one in outcome.conflicts],
        "coverage": outcome.coverage,
        "text": outcome.text,
        "stopped": outcome.stopped,
        "leftover": outcome.leftover,
    }
    if outcome.final:
        told["final"] = outcome.final.value
    effect = {"effect": outcome.effect.id} if outcome.effect else {}
    dropped = {DROPPED: outcome.dropped.id} if outcome.dropped else {}
    return {"outcome": json.dumps(told), **effect, **dropped}


def outcome_from_json(
    body: dict[str, Any], effect: Effect | None, dropped: Effect | None = None
) -> CommandOutcome:
    told = json.loads(body["outcome"])
    return CommandOutcome(
        exit_code=told["exit_code"],
        stdout=told["stdout"].encode("latin-1"),
        stderr=told["stderr"].encode("latin-1"),
        effect=effect,
        changes=tuple(Changed(*one) for one in told["changes"]),
        coverage=told["coverage"],
        text=told["text"],
        conflicts=tuple(outcome_from(one) for one in told["conflicts"]),
        stopped=told["stopped"],
        leftover=told["leftover"],
        dropped=dropped,
        final=Final(told["final"]) if "final" in told else None,
    )


def outcome_from_effect(effect: Effect) -> CommandOutcome:
    """Its worker was killed before it could record what the command printed: that is lost, what it changed is not."""
    args = effect.change.args
    outcome = CommandOutcome(
        args.get("exit_code", 0),
        effect=effect,
        changes=changed(effect.targets)[:_MOST_CHANGES],
        coverage=args.get("coverage", ""),
    )
    return outcome._replace(text=in_words(outcome))
