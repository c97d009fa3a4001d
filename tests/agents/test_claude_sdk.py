"""The Claude Agent SDK with takeback: its hooks called as the SDK calls them, and the real Claude Code below it."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import takeback
from takeback import Misuse
from takeback.integrations.claude import with_takeback
from tests.agents.acts import daemons
from tests.agents.drivers import DRIVERS
from tests.agents.family import Delegate, Read, Shell, Write
from tests.agents.model import Model
from tests.agents.stage import Place, differences
from tests.agents.talk import Hand, Talk, knows_authors, talking

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions

HANDS: list[Hand] = []  # to be closed
PROMPT, AFTER, FAILED = "UserPromptSubmit", "PostToolUse", "PostToolUseFailure"


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    with talking(tmp_path) as talk:
        (talk.project / "src").mkdir()
        (talk.project / "src/app.py").write_text("print(1)\n")
        (talk.project / "notes").write_text("one\n")
        yield talk
    for hand in HANDS:
        hand.close()
    HANDS.clear()


def sdk() -> Any:
    """Loaded by the tests that use it: every worker reads this file, and the package takes a second."""
    import claude_agent_sdk

    return claude_agent_sdk


class Client:
    """Calls the hooks of some options, as the SDK does."""

    def __init__(self, talk: Talk, options: "ClaudeAgentOptions", session: str = "s-1") -> None:
        self.talk, self.options, self.session = talk, options, session
        os.environ.update(options.env)
        self.agent = Hand(talk.project)
        HANDS.append(self.agent)
        self.agent.does(":")  # its environment can be read now

    def says(self, event: str, **more: Any) -> list[Any]:
        """The answer of each hook."""
        given = {"session_id": self.session, "cwd": str(self.talk.project), "hook_event_name": event, **more}
        name = more.get("tool_name", "")
        known = [one for at, found in (self.options.hooks or {}).items() for one in found if at == event]
        meant = [hook for one in known if re.search(one.matcher or "", name) for hook in one.hooks]

        async def all_at_once() -> list[Any]:
            context: Any = {"signal": None}
            said: Any = given
            return await asyncio.gather(*(hook(said, more.get("tool_use_id"), context) for hook in meant))

        return asyncio.run(all_at_once())

    def prompts(self, text: str, turn: str = "t-1") -> list[Any]:
        return self.says(PROMPT, prompt=text, prompt_id=turn)

    def before(self, name: str, given: dict[str, Any], call: str = "c-1") -> list[Any]:
        return self.says("PreToolUse", tool_name=name, tool_input=given, tool_use_id=call)

    def after(self, name: str, given: dict[str, Any], call: str = "c-1", event: str = AFTER) -> list[Any]:
        return self.says(event, tool_name=name, tool_input=given, tool_use_id=call, tool_response={})

    def shell(self, command: str, call: str = "c-1", event: str = AFTER) -> None:
        given = {"command": command}
        assert self.before("Bash", given, call) == [{}]
        self.agent.does(command)
        self.after("Bash", given, call, event)


def client(talk: Talk, **more: Any) -> Client:
    return Client(talk, with_takeback(sdk().ClaudeAgentOptions(cwd=talk.project, **more)))


@pytest.fixture
def program(talk: Talk) -> Client:
    return client(talk)


def refusal(answer: dict[str, Any]) -> str:
    told = answer.get("hookSpecificOutput", {})
    return told.get("permissionDecisionReason", "") if told.get("permissionDecision") == "deny" else ""


def cli(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "takeback", *words], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip


def test_a_prompt_is_taken_back_and_the_users_edit_stays(talk: Talk, program: Client):
    before = talk.files()
    program.prompts("tidy up")
    program.shell("rm -rf src; false", event=FAILED)
    given = {"file_path": str(talk.project / "new"), "content": "x\n"}
    program.before("Write", given, "c-2")
    (talk.project / "new").write_text("x\n")
    program.after("Write", given, "c-2")
    program.says("Stop")
    talk.user.does(f"echo mine >> {talk.project}/notes")

    undone = cli("undo", "--prompt", *([] if talk.knows else ["--", "src", "new"]), cwd=talk.project)

    assert undone.returncode == 0, undone.stderr
    assert talk.files() == {**before, "notes": "one\nmine\n"}
    assert talk.summaries()[:2] == ["Bash: rm -rf src; false", "Write: new"]


def test_it_is_a_copy_in_which_other_hooks_stay_and_run(talk: Talk):
    heard: list[str] = []

    async def own(given: Any, call: str | None, context: Any) -> Any:
        heard.append(given["tool_name"])
        return {"systemMessage": "mine"}

    mine = {
        "PreToolUse": [sdk().HookMatcher(matcher="Bash", hooks=[own])],
        "Notification": [sdk().HookMatcher(hooks=[own])],
    }
    options = sdk().ClaudeAgentOptions(cwd=talk.project, hooks=dict(mine), env={"A": "b"}, model="m")  # pyright: ignore

    made = with_takeback(with_takeback(options))

    assert options.hooks == mine and options.env == {"A": "b"}
    assert made.model == "m" and made.env["A"] == "b"
    hooks: Any = made.hooks
    assert hooks["Notification"] == mine["Notification"]
    assert hooks["PreToolUse"][0] is mine["PreToolUse"][0] and len(hooks["PreToolUse"]) == 2, "ours, once"
    assert hooks["PreToolUse"][1].on_failure == "block"
    program = Client(talk, made)
    assert program.before("Bash", {"command": "x"}) == [{"systemMessage": "mine"}, {}]
    assert heard == ["Bash"]


def test_a_call_is_denied_when_it_cannot_be_recorded(talk: Talk, tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    program = Client(talk, with_takeback(sdk().ClaudeAgentOptions(cwd=talk.project), store=tmp_path / "file"))
    (said,) = program.before("Bash", {"command": "x"})
    assert "could not record a way back" in refusal(said) and "Traceback" not in refusal(said)
    assert "`with_takeback`" in refusal(said) and "hook uninstall" not in refusal(said)
    assert program.prompts("go") == program.after("Bash", {"command": "x"}) == program.says("Stop") == [{}]


def test_a_refusal_of_the_daemon_names_the_switch_of_the_program(talk: Talk):
    with takeback.open(talk.store):
        (talk.store / "settings.json").write_text('{"max_capture_bytes": 1000}')
    (talk.project / "big").write_bytes(b"x" * 1001)
    program = client(talk)
    (said,) = program.before("Write", {"file_path": str(talk.project / "big"), "content": "x"})
    assert "big" in refusal(said) and "`with_takeback`" in refusal(said)
    assert "hook uninstall" not in refusal(said)


@pytest.mark.parametrize("python", ["/nonexistent", "/bin/false", ""])
def test_a_call_is_denied_without_a_python_to_run(
    program: Client, monkeypatch: pytest.MonkeyPatch, python: str
):
    monkeypatch.setattr(sys, "executable", python)
    (said,) = program.before("Bash", {"command": "x"})
    assert "could not record a way back" in refusal(said) and "`with_takeback`" in refusal(said)
    assert program.after("Bash", {"command": "x"}) == [{}]


@pytest.mark.parametrize("given", [{}, {"session_id": 7, "tool_input": "x"}, {"session_id": "\udc80"}])
def test_what_no_agent_says_breaks_nothing(program: Client, given: dict[str, Any]):
    for event in ("PreToolUse", AFTER, PROMPT):
        for said in program.says(event, **given):
            assert "Traceback" not in str(said)
    program.shell("echo a > a")
    assert program.talk.summaries() == ["Bash: echo a > a"]


def test_with_installed_hooks_as_well_nothing_is_recorded_twice(talk: Talk, program: Client):
    given = {"command": "echo a > a"}
    talk.environment["CLAUDE_PID"] = str(program.agent.pid)
    talk.prompts("go", "t-1")
    program.prompts("go")
    talk.before("Bash", given, "c-1")
    program.before("Bash", given)
    program.agent.does("echo a > a")
    talk.after("Bash", given, "c-1")
    program.after("Bash", given)
    assert talk.summaries() == ["Bash: echo a > a"]
    with takeback.open(talk.store) as tb:
        (session,) = takeback.sessions(tb)
        assert [one.text for one in takeback.prompts(tb, session)] == ["go"]


def _processes(talk: Talk) -> list[int]:
    """Of the calls."""
    args = [one.change.args for one in talk.effects()]
    return [one["process"]["pid"] for one in args if "call" in one]


def test_the_agent_is_known_where_only_one_can_be_meant(talk: Talk, program: Client):
    program.shell("echo a > a")
    assert _processes(talk) == [program.agent.pid]
    program.session = "s-2"  # after /clear
    program.shell("echo b > b", "c-2")
    assert _processes(talk)[-1] == program.agent.pid
    second = Client(talk, program.options, "s-3")
    second.shell("echo c > c", "c-3")
    assert _processes(talk)[-1] == second.agent.pid
    third = Client(talk, program.options, "s-4")
    Client(talk, program.options, "s-5")
    third.shell("echo d > d", "c-4")
    assert _processes(talk)[-1] == os.getpid()


def test_tools_of_this_process_are_the_agents(talk: Talk):
    server = sdk().create_sdk_mcp_server("here")
    program = client(talk, mcp_servers={"here": server, "there": {"command": "x"}})
    program.before("mcp__here__write", {})
    (talk.project / "notes").write_text("by a tool\n")
    program.after("mcp__here__write", {})
    (effect,) = talk.effects()
    assert effect.change.args["process"]["pid"] == os.getpid() and not effect.change.facts.others
    talk.undo(effect)
    assert talk.files()["notes"] == "one\n"
    program.before("mcp__there__write", {}, "c-2")
    program.agent.does("echo x > x")
    program.after("mcp__there__write", {}, "c-2")
    assert _processes(talk)[-1] == program.agent.pid


def test_the_store_is_that_of_the_program(talk: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert with_takeback().env["TAKEBACK_STORE"] == str(talk.store)
    assert with_takeback(store="~/store").env["TAKEBACK_STORE"] == f"{os.environ['HOME']}/store"
    named = sdk().ClaudeAgentOptions(env={"TAKEBACK_STORE": "/by/options"})
    assert with_takeback(named).env["TAKEBACK_STORE"] == "/by/options"
    assert with_takeback(named, store=tmp_path).env["TAKEBACK_STORE"] == str(tmp_path)
    assert with_takeback(with_takeback(store=tmp_path)).env["TAKEBACK_STORE"] == str(tmp_path)
    monkeypatch.setenv("TAKEBACK_STORE", "postgresql://localhost/x")
    with pytest.raises(Misuse, match="not in PostgreSQL"):
        with_takeback()


def test_without_the_sdk_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    with pytest.raises(Misuse, match=re.escape("takeback[claude]")) as raised:
        with_takeback()
    assert raised.value.hint.startswith("Install it: pip install '") and "[claude]" in raised.value.hint


# With the real Claude Code.


@pytest.fixture(autouse=True)
def no_daemon_stays() -> Iterator[None]:
    yield
    for process in daemons(os.environ["TAKEBACK_STORE"]):
        os.kill(process, signal.SIGKILL)


def ask(place: Place, model: Model, prompt: str, store: Path | None = None, **more: Any) -> None:
    driver = DRIVERS["claude-code"].start(place.home, model.port, prompt, again=False, rules=None)
    (place.home / "tmp").mkdir(exist_ok=True)
    options = sdk().ClaudeAgentOptions(
        cwd=place.project, cli_path=driver.words[0], env=dict(driver.environment), max_turns=10,
        permission_mode="bypassPermissions", **more,
    )  # fmt: skip

    async def listen() -> None:
        said: AsyncIterator[Any] = sdk().query(prompt=prompt, options=with_takeback(options, store=store))
        async for _ in said:
            pass

    asyncio.run(asyncio.wait_for(listen(), 100))


def turns(place: Place, *deeds: Any) -> list[list[tuple[str, Any]]]:
    return [DRIVERS["claude-code"].turn([deed], place.project) for deed in deeds]


@pytest.mark.agents
@pytest.mark.parametrize("installed", [False, True], ids=["alone", "beside installed hooks"])
def test_a_wrecked_project_is_brought_back_and_the_users_edit_stays(place: Place, installed: bool):
    if installed:
        done = cli("hook", "install", "claude-code", cwd=place.project, HOME=str(place.home))
        assert done.returncode == 0, done.stderr
    before, edited = place.look(), place.project / "docs/b.md"
    script = turns(
        place,
        Shell("rm -rf src build; echo broken > README.md; false"),
        Write("src/new.py", "NEW = True\n"),
        Read("docs/a.md"),
        Shell("cd docs && rm a.md"),
        Shell("pwd > where"),
        Delegate("part of it"),
    )
    part = turns(place, Shell("echo part > part"))

    def user_edits(prompt: str, turn: int) -> None:
        if turn == 2:
            edited.write_text("b\nof the user\n")

    with Model({"wreck it": script, "part of it": part}, user_edits) as model:
        ask(place, model, "wreck it")
        assert not model.troubles
        assert ("wreck it", len(script)) in model.asked()
    after = place.look()
    assert {"src/app.py", "docs/a.md", "docs/where", "docs/b.md", "docs/part"} <= differences(
        before, after
    ).keys()

    rest = (
        []
        if knows_authors(place.project)
        else ["--", "src", "build", "README.md", "docs/a.md", "docs/where", "docs/part"]
    )
    undone = cli("undo", "--prompt", *rest, cwd=place.project)

    assert undone.returncode == 0, undone.stdout + undone.stderr
    found = differences(before, place.look())
    assert found.keys() - {"docs"} == {"docs/b.md"}, found
    assert edited.read_text() == "b\nof the user\n"
    with takeback.open() as tb:
        (session,) = takeback.sessions(tb)
        assert [one.text for one in takeback.prompts(tb, session)] == ["wreck it"]
        said = [one.change.summary for one in tb.effects() if not one.is_undo and not one.change.facts.others]
    calls = [one for one in said if one.startswith(("Bash", "Write"))]
    assert len(calls) == len(set(calls)) == 5, calls


@pytest.mark.agents
def test_the_model_reads_why_a_call_was_denied(place: Place):
    script = turns(place, Shell("rm -rf src"))
    (place.home / "file").write_text("in the way")
    with Model({"wreck it": script}) as model:
        ask(place, model, "wreck it", store=place.home / "file")
        (result,) = model.requests[-1].results
    assert "could not record a way back" in result and "`with_takeback`" in result
    assert (place.project / "src/app.py").exists()


@pytest.mark.agents
def test_a_tool_of_the_program_is_taken_back(place: Place):
    @sdk().tool("clear", "Empties a file", {"name": str})
    async def clear(given: dict[str, Any]) -> dict[str, Any]:
        (place.project / given["name"]).write_text("")
        return {"content": [{"type": "text", "text": "done"}]}

    before = place.look()
    server = sdk().create_sdk_mcp_server("files", tools=[clear])
    with Model({"clear it": [[("mcp__files__clear", {"name": "notes.txt"})]]}) as model:
        ask(place, model, "clear it", mcp_servers={"files": server})
    assert (place.project / "notes.txt").read_text() == ""
    rest = [] if knows_authors(place.project) else ["--", "notes.txt"]
    undone = cli("undo", "--prompt", *rest, cwd=place.project)
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert not differences(before, place.look())
