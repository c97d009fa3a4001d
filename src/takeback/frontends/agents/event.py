"""What a coding agent says and what takeback answers, the same for all hosts. It loads the standard library only."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from takeback.model.effect import Effect
    from takeback.storage.protocols import Journal

_LISTED = 5  # paths or calls that a sentence names


class EventKind(StrEnum):
    SESSION_START = "session-start"
    PROMPT = "prompt"
    BEFORE_CALL = "before-call"
    AFTER_CALL = "after-call"
    TURN_END = "turn-end"
    SESSION_END = "session-end"
    SUBAGENT_START = "subagent-start"
    SUBAGENT_END = "subagent-end"
    OTHER = "other"


Kind = EventKind  # the short name in this room; a record of the journal has a Kind of its own


class Tool(StrEnum):
    SHELL = "shell"
    EDIT = "edit"  # changes the paths that it names, and nothing else
    READ = "read"  # changes nothing
    OTHER = "other"  # unknown, MCP: watched like a shell call


class Event(NamedTuple):
    kind: Kind
    host: str  # "claude-code" | "codex" | "gemini" | "opencode" | "cursor"
    session: str  # the host's id of the conversation
    project: str  # absolute; what is watched. It does not move when the agent's directory moves
    cwd: str = ""  # where the call runs
    agent: int = 0  # process of the agent
    call: str = ""  # the host's id of the call; empty where the host gives none
    name: str = ""  # the host's name of the tool: Bash, write_file…
    tool: Tool = Tool.OTHER
    paths: tuple[str, ...] = ()  # absolute, for EDIT
    command: str = ""  # for SHELL: the original text
    input: Mapping[str, Any] = {}  # the tool's input as it came
    text: str = ""  # PROMPT: what the user said
    failed: bool = False  # AFTER_CALL
    background: bool = False  # the tool keeps running after the end of the call
    apart: bool = False  # it runs in a sandbox, so what is seen of it in the project is not its own
    member: str = ""  # id of the subagent that makes the call
    role: str = ""  # what kind of subagent it is: Explore, general-purpose…
    source: str = ""  # SESSION_START: startup, resume, clear, compact, fork; SESSION_END: the reason
    turn: str = ""  # the host's id of the prompt, where it has one


class HookAnswer(NamedTuple):
    refusal: str = ""  # BEFORE_CALL, PROMPT: the call does not run, and the model reads this reason
    asks: str = ""  # BEFORE_CALL: the host asks its user, with this reason; a host that cannot refuses
    context: str = ""  # what the model reads with the event: PROMPT, SESSION_START, AFTER_CALL
    command: str = ""  # BEFORE_CALL of SHELL: what runs instead; no host uses it yet
    notice: str = ""  # what the person reads, where the host can show it
    final: bool = False  # the refusal says all: no word on how takeback is switched off


Answer = HookAnswer  # the short name in this room


def fingerprint(event: Event) -> str:
    """What pairs the start of a call with its end: the host's id, else a hash of the tool and its input."""
    if event.call:
        return event.call
    import hashlib
    import json

    said = json.dumps([event.name, event.input], sort_keys=True, separators=(",", ":"), default=repr)
    return "sha256-" + hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def digest(command: str) -> str:
    """By which two programs know that they speak of the same command, and that no journal shows."""
    import hashlib

    return hashlib.sha256(command.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def unexpected(error: BaseException) -> str:
    """An error that is none of takeback's own, for a sentence."""
    if isinstance(error, ImportError) and error.name:
        import sys

        return (
            f"the installation of takeback in {sys.prefix} is incomplete: Python finds no usable module "
            f"{error.name!r} there. Install takeback there again"
        )
    return f"{type(error).__name__}: {error}"


# What the model reads of it.


def about_call(effect: "Effect | None", outside: Sequence[str]) -> str:
    """Only what is out of the ordinary: most calls need no word. A call may have no effect but `outside`."""
    from takeback.model.ids import short

    said: list[str] = []
    if outside := (effect.change.args.get("outside", ()) if effect else ()) or outside:
        verb = "is" if len(outside) == 1 else "are"
        said.append(
            f"takeback: {_listed(outside)} {verb} outside of the project, so what this call changed there cannot be "
            "taken back."
        )
    if effect and effect.remedy and effect.remedy.residue:
        said.append(f"takeback: undo of {short(effect.id)} is not exact: {effect.remedy.residue}.")
    return "\n".join(said)


def taken_back(journal: "Journal", undos: "Sequence[Effect]", conversation: str, member: str = "") -> str:
    """Files and conversation no longer agree: which of its changes stand no more, or stand again."""
    from takeback.model.ids import short
    from takeback.model.resource import display
    from takeback.model.run import conversation_of, member_of
    from takeback.storage.protocols import Query

    ids = tuple(dict.fromkeys(one.undoes for one in undos))
    known = [one for one in journal.effects(Query(ids=ids)) if not one.is_undo] if ids else []
    runs = {one.id: one for one in journal.runs(tuple({one.run for one in known}))} if known else {}
    own = {
        id
        for id, one in runs.items()
        if conversation_of(one) == conversation and member_of(one).endswith(member)
    }
    gone = [one for one in known if one.run in own]
    if not gone:
        return ""
    paths = dict.fromkeys(display(target.resource) for one in gone for target in one.targets)
    names = "; ".join(f"{short(one.id)} ({one.change.summary})" for one in gone[:_LISTED])
    more = f" and {len(gone) - _LISTED} more" if len(gone) > _LISTED else ""
    return (
        f"takeback: some of your earlier changes do not stand any more, so files are not as you left them: {names}"
        f"{more}. Concerned: {_listed(list(paths))}. Read a file again before you edit it."
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
