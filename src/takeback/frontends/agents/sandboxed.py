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
    from collections.abc import Sequence

    from takeback.api import Takeback
    from takeback.model.effect import Effect
    from takeback.model.run import RunInfo
    from takeback.runs.commands.outcome import CommandOutcome

_TAIL = " && pwd -P >| "  # what Claude Code ends each command with: where the next one begins
_EVAL = " && eval "
_SHORT = 100  # characters of a command in a summary
_LAST = 100  # effects of a run among which its call is looked for
_INTERRUPTED = 130
_UNSAFE = 125  # as `takeback run`: it is takeback that could not do its part


def main(words: list[str]) -> int:
    *named, line = words or [""]
    wrapped, tail, note = line.rpartition(_TAIL)
    name = note.rpartition("/")[2].rstrip("'")
    if tail and _EVAL in wrapped and name.startswith("claude-") and name.endswith("-cwd"):
        return _run(wrapped, note, *named)
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


def _run(wrapped: str, note: str, store: str | None = None) -> int:
    import site

    site.main()  # for what takeback itself needs
    sys.path.insert(0, __file__.rsplit("/", 4)[0])
    from takeback.errors import TakebackError

    try:
        return _carried_out(wrapped, note, store)
    except TakebackError as error:
        return _complain(f"{error} {error.way_on}".strip())
    except KeyboardInterrupt:
        posix.write(2, b"takeback: The command was interrupted. `takeback status` shows how it stands.\n")
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 whatever it is, the agent reads a sentence
        return _complain(f"{type(error).__name__}: {error}.")


def _carried_out(wrapped: str, note: str, store: str | None) -> int:
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
    shell = env.get("CLAUDE_CODE_SHELL") or env.get("SHELL", "")
    shell = shell if os.path.basename(shell) in ("bash", "zsh") else "/bin/bash"
    with takeback.open(store) as tb:
        name = session_name("claude-code", env.get("CLAUDE_CODE_SESSION_ID", ""))
        runs = [one for one in tb.store.journal.runs() if conversation_of(one) == name]
        noted = _noted(tb, runs, command)
        if noted is None or not noted.change.args.get("background"):
            _refuse_without_sandbox(tb.path)
            # Where the shell ends is said by a file that is open already: what it writes stays in the sandbox.
            os.dup2(os.memfd_create("directory"), 0)
            belongs = (
                {"project": runs[-1].project} if runs and runs[-1].project else opening(tb.store.journal)
            )
            request = CommandRequest(
                (shell, "-c", f"{wrapped} && pwd -P >&0"), os.getcwd(), env, says=_said(command)
            )
            # What a subagent does is its own.
            whose = next((one.name for one in runs if noted and one.id == noted.run), name)
            core = opened_of(tb).open_run(whose, "claude-code", OnDeath.LEAVE, belongs)
            with Run(core) as run:
                outcome = run_command(core, request, None, None, False, "")
                run.close()
            return _told(outcome, split(note)[0])
    os.execv(shell, [shell, "-c", f"{wrapped}{_TAIL}{note}"])


def _said(command: str) -> str:
    words = " ".join(command.split())
    return f"Bash: {words if len(words) <= _SHORT else words[: _SHORT - 1] + '…'}"


def _told(outcome: "CommandOutcome", note: str) -> int:
    """Only what is out of the ordinary: most commands need no word."""
    if outcome.held or outcome.leftover or (outcome.exit_code and outcome.changes):
        posix.write(2, f"takeback: {outcome.text}\n".encode("utf-8", "backslashreplace"))
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


def _noted(tb: "Takeback", runs: "Sequence[RunInfo]", command: str) -> "Effect | None":
    """The call, as the hook before it has noted it: which run it belongs to, and whether it is in the background. Then
    the agent does not wait for it, so what it changes is seen at once, and it is watched."""
    from takeback.frontends.agents.event import digest
    from takeback.model.effect import State
    from takeback.storage.protocols import Query

    said, ids, journal = digest(command), {one.id for one in runs}, tb.store.journal
    open_now = journal.effects(Query(states=(State.PROPOSED,), newest=True))
    # One in the background may have ended already, for the agent.
    ended = (journal.effects(Query(run=one.id, newest=True, limit=_LAST)) for one in reversed(runs))
    found = (one for some in (open_now, *ended) for one in some if one.run in ids)
    return next((one for one in found if one.change.args.get("command") == said), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
