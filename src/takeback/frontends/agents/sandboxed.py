"""What Claude Code puts before a command in mode `sandbox`: `sandboxed.py [STORE] LINE`, by CLAUDE_CODE_SHELL_PREFIX.

Claude Code puts this program before each command of its Bash tool, and its rules judge the command without it. It puts
it before hooks and MCP servers too: these run as they are. A command runs in a sandbox, and what it changed is one
effect of the conversation; one that fails leaves nothing. A command in the background is watched instead.

`python -I -S`: until it is known that there is a command, only what is built in is imported.
"""

import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from takeback.api import Takeback
    from takeback.model.run import RunInfo
    from takeback.runs.commands.merge import Merge
    from takeback.runs.commands.outcome import CommandOutcome

_TAIL = " && pwd -P >| "  # what Claude Code ends each command with: where the next one begins
_EVAL = " && eval "
_SHORT = 100  # characters of a command in a summary
_ABOUT = ("session", "call", "tool", "member")
_LAST = 100  # effects among which its call is looked for
_INTERRUPTED = 130
_KEEPS_RUNNING = "A program that must keep running is started with `run_in_background`."
_BACKGROUND, _AGENT, _OTHER = "in the background", "the agent", "no call of the agent"
_UNSAFE = 125  # as `takeback run`: it is takeback that could not do its part


class InBackground(Exception):
    """A command that only the program which the agent started can become."""


def main(words: list[str]) -> int:
    *named, line = words or [""]
    wrapped, tail, note = line.rpartition(_TAIL)
    name = note.rpartition("/")[2].rstrip("'")
    if tail and _EVAL in wrapped and name.startswith("claude-") and name.endswith("-cwd"):
        return _run(words, *named)
    if b"CLAUDE_PROJECT_DIR" in posix.environ:  # a hook, or an MCP server: no command of the agent
        posix.execv("/bin/sh", ["sh", "-c", line])
    return _complain(
        "This version of Claude Code says its commands in a form that takeback does not know. The command did not run."
    )


def _complain(why: str) -> int:
    said = (
        f"takeback: {why}\n`takeback status` shows how it stands; "
        "`takeback hook mode watch claude-code` lets commands run without a sandbox.\n"
    )
    posix.write(2, said.encode("utf-8", "backslashreplace"))
    return _UNSAFE


def _run(words: list[str], named: str = "") -> int:
    sys.path.insert(0, __file__.rsplit("/", 4)[0])
    from takeback.frontends.agents.client import LOST, PREFIX, sent, store_named

    code = sent(PREFIX, words, store_named(named))
    if code == LOST:
        return _complain(
            "The process of the daemon that carried this command out has ended before it said how it went. "
            "The command may have run: look before you repeat it."
        )
    if code is not None:
        return code
    import site

    site.main()  # for what takeback itself needs
    try:
        return carried_out(words)
    except InBackground:
        import os

        shell = _shell(os.environ)
        os.execv(shell, [shell, "-c", words[-1]])


def carried_out(words: list[str], parent: int = 0) -> int:
    """`parent`: of the program that the agent started, if this is another process."""
    from takeback.errors import TakebackError

    wrapped, _, note = words[-1].rpartition(_TAIL)
    try:
        return _carried_out(wrapped, note, words[0] if len(words) > 1 else None, parent or posix.getppid())
    except TakebackError as error:
        return _complain(f"{error} {error.way_on}".strip())
    except KeyboardInterrupt:
        posix.write(2, b"takeback: The command was interrupted. `takeback status` shows how it stands.\n")
        return _INTERRUPTED
    except InBackground:
        raise
    except Exception as error:  # noqa: BLE001 whatever it is, the agent reads a sentence
        return _complain(f"{type(error).__name__}: {error}.")


def _shell(env: "Mapping[str, str]") -> str:
    shell = env.get("CLAUDE_CODE_SHELL") or env.get("SHELL", "")
    return shell if shell.rpartition("/")[2] in ("bash", "zsh") else "/bin/bash"


def _carried_out(wrapped: str, note: str, store: str | None, parent: int) -> int:
    import os
    from shlex import split

    import takeback
    from takeback.api import opened_of
    from takeback.model.run import OnDeath, conversation_of
    from takeback.runs.commands.execute import run_command
    from takeback.runs.commands.request import CommandRequest
    from takeback.runs.prompts import session_name
    from takeback.runs.run import Run
    from takeback.runs.scope import opening

    env = dict(os.environ)
    words = split(wrapped)
    command = words[words.index("eval") + 1]
    with takeback.open(store) as tb:
        name = session_name("claude-code", env.get("CLAUDE_CODE_SESSION_ID", ""))
        runs = [one for one in tb.store.journal.runs() if conversation_of(one) == name]
        caller, whose, about = _caller(tb, runs, name, command, parent)
        if caller != _BACKGROUND:
            _refuse_without_sandbox(tb.path)
            # Where the shell ends is said by a file that is open already: what it writes stays in the sandbox.
            os.dup2(os.memfd_create("directory"), 0)
            belongs = (
                {"project": runs[-1].project} if runs and runs[-1].project else opening(tb.store.journal)
            )
            shown = (_shell(env), "-c", f"{wrapped} && pwd -P >&0")
            request = CommandRequest(shown, os.getcwd(), env, says=_said(command), about=about)
            core = opened_of(tb).open_run(
                whose, "" if caller == _OTHER else "claude-code", OnDeath.LEAVE, belongs
            )
            core.forbids = lambda found: _forbidden(tb, found)
            with Run(core) as run:
                outcome = run_command(core, request, None, None, False, "")
                run.close()
            return _told(outcome, split(note)[0])
    raise InBackground


def _said(command: str) -> str:
    from takeback.policy.secrets import masked

    words = masked(" ".join(command.split()))  # as in the summaries of other calls
    return f"Bash: {words if len(words) <= _SHORT else words[: _SHORT - 1] + '…'}"


def _told(outcome: "CommandOutcome", note: str) -> int:
    """Only what is out of the ordinary: most commands need no word."""
    if outcome.held or outcome.leftover or (outcome.exit_code and outcome.changes):
        more = f" {_KEEPS_RUNNING}" if outcome.leftover else ""
        posix.write(2, f"takeback: {outcome.text}{more}\n".encode("utf-8", "backslashreplace"))
    directory = posix.pread(0, 1 << 16, 0)
    if outcome.conflicts:
        return _UNSAFE
    if directory and not outcome.exit_code:
        with open(note, "wb") as file:
            file.write(directory)
    return outcome.exit_code


def _refuse_without_sandbox(place: str) -> None:
    from takeback.errors import Refused
    from takeback.sandbox.ability import ability

    if not (able := ability(place)).engine:
        raise Refused(f"There is no sandbox here, so the command did not run: {able.why}")


def _forbidden(tb: "Takeback", found: "Merge") -> str:
    from takeback.frontends.agents.lookout import forbidden

    return forbidden(tb.store, found)


def _caller(
    tb: "Takeback", runs: "Sequence[RunInfo]", name: str, command: str, parent: int
) -> "tuple[str, str, dict[str, str]]":
    """Who wants it, the name of its run, and what the hook before the call has noted of it. A command in the background
    must be seen at once, so it is watched. What a person typed is no call of the agent. A subagent has its own run.
    """
    from takeback.frontends.agents.event import digest
    from takeback.model.effect import State
    from takeback.storage.protocols import Query

    said, is_open = digest(command), False
    for run in reversed(runs):
        for one in tb.store.journal.effects(Query(run=run.id, newest=True, limit=_LAST)):
            calls = one.state is State.PROPOSED and "command" in one.change.args
            if one.change.args.get("command") == said and (calls or one.change.args.get("background")):
                about = {name: one.change.args[name] for name in _ABOUT if name in one.change.args}
                who = _BACKGROUND if one.change.args.get("background") else _AGENT
                return who, run.name, about
            is_open |= calls
    if not is_open and _is_hooked(tb.path, parent):
        return _OTHER, _OTHER, {}
    return _AGENT, name, {}


def _is_hooked(store: str, parent: int) -> bool:
    """Whether the hooks of this agent run: then it has no call that is not noted."""
    from takeback.storage.daemon_socket import AGENTS, ask

    known = (ask(store, AGENTS) or b"").split(b"\n")
    return any(line.startswith(b"%d " % parent) for line in known)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
