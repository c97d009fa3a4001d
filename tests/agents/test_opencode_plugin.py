"""The plugin of opencode, run by Node with a session tree and a shim that says what the test wants."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from takeback.frontends.agents.hosts import host
from takeback.frontends.agents.settings import plugin_commands, plugin_text, shim_path

pytestmark = pytest.mark.needs("node")

DRIVER = """
import { Takeback } from "./plugin.mjs"
const parents = { child: "root", root: undefined }
const client = { session: { get: async ({ path }) => ({ data: { parentID: parents[path.id] } }) } }
const hooks = await Takeback({ client, directory: "/p", worktree: process.argv[2] })
const said = []
for (const [name, input, output] of JSON.parse(process.argv[3])) {
  try {
    await hooks[name](input, output)
    said.push(output ?? null)
  } catch (error) {
    said.push({ thrown: error.message })
  }
}
console.log(JSON.stringify(said))
"""
SHIM = """
import json, sys
payload = json.loads(sys.stdin.read())
open({log!r}, "a").write(json.dumps([sys.argv[1:], payload]) + "\\n")
{says}
"""
BEFORE = [
    "tool.execute.before",
    {"tool": "bash", "sessionID": "root", "callID": "c"},
    {"args": {"command": "ls"}},
]
AFTER = [
    "tool.execute.after",
    {"tool": "bash", "sessionID": "child", "callID": "c", "args": {"command": "ls"}},
    {"title": "", "output": "a", "metadata": {"exit": 1}},
]
PROMPT = [
    "chat.message",
    {"sessionID": "root"},
    {
        "message": {"id": "m"},
        "parts": [{"type": "text", "text": "go"}, {"type": "text", "text": "x", "synthetic": True}],
    },
]


class Plugin:
    def __init__(self, place: Path) -> None:
        self.place = place

    def does(self, calls: list[Any], says: str = "", gone: bool = False, worktree: str = "/p") -> list[Any]:
        shim = self.place / "takeback" / "frontends" / "agents" / "shim.py"
        shim.parent.mkdir(parents=True, exist_ok=True)
        shim.write_text(SHIM.format(log=os.fspath(self.place / "log"), says=says))
        if gone:
            shim.unlink()
        text = plugin_text(host("opencode")).decode().replace(shim_path(), os.fspath(shim))
        (self.place / "plugin.mjs").write_text(text)
        (self.place / "driver.mjs").write_text(DRIVER)
        done = subprocess.run(
            ["node", self.place / "driver.mjs", worktree, json.dumps(calls)],
            capture_output=True, check=True, text=True, timeout=120,
        )  # fmt: skip
        return json.loads(done.stdout)

    def heard(self) -> list[Any]:
        return [json.loads(line) for line in (self.place / "log").read_text().splitlines()]


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


def test_the_shim_hears_each_event(plugin: Plugin) -> None:
    created = {"type": "session.created", "properties": {"info": {"id": "root"}}}
    idle = {"type": "session.idle", "properties": {"sessionID": "root"}}
    plugin.does([["event", {"event": created}], PROMPT, BEFORE, AFTER, ["event", {"event": idle}]])

    heard = plugin.heard()
    assert [words[1] for words, _ in heard] == [
        "session.start",
        "chat.message",
        "tool.execute.before",
        "tool.execute.after",
        "session.idle",
    ]
    assert all(words[0] == "opencode" for words, _ in heard)
    assert heard[1][1]["prompt"] == "go"
    assert heard[2][1]["tool_input"] == {"command": "ls"}
    assert (heard[3][1]["session_id"], heard[3][1]["member"]) == ("root", "child")
    assert heard[3][1]["failed"] is True
    assert all(payload["project"] == "/p" for _, payload in heard)


def test_a_refusal_is_thrown_and_names_the_switch(plugin: Plugin) -> None:
    off = "`takeback hook uninstall opencode` switches takeback off."
    says = f"sys.stderr.write('No.\\n{off}\\n'); sys.exit(2)".replace("\n", "\\n")
    assert plugin.does([BEFORE, PROMPT], says) == [{"thrown": f"No.\n{off}"}] * 2


@pytest.mark.parametrize("says", ["sys.exit(1)", "import os; os.abort()"])
def test_a_shim_that_fails_denies_the_call_and_nothing_else(plugin: Plugin, says: str) -> None:
    denied, after, prompt = plugin.does([BEFORE, AFTER, PROMPT], says)
    assert "takeback hook uninstall opencode" in denied["thrown"]
    assert after["output"] == "a"
    assert prompt["parts"][0]["text"] == "go"


def test_a_shim_that_is_gone_denies_the_call_and_nothing_else(plugin: Plugin) -> None:
    denied, after, prompt = plugin.does([BEFORE, AFTER, PROMPT], gone=True)
    assert "takeback hook uninstall opencode" in denied["thrown"]
    assert after["output"] == "a"
    assert prompt["parts"][0]["text"] == "go"


def test_the_model_reads_what_takeback_says(plugin: Plugin) -> None:
    after, prompt = plugin.does([AFTER, PROMPT], "print(json.dumps({'context': 'two files'}))")
    assert after["output"] == "a\n\ntwo files"
    assert "two files" in prompt["parts"][-1]["text"]


def test_tools_that_only_read_start_nothing(plugin: Plugin) -> None:
    read = ["tool.execute.before", {"tool": "read", "sessionID": "root", "callID": "c"}, {"args": {}}]
    assert plugin.does([read], "sys.exit(2)") == [{"args": {}}]
    assert not (plugin.place / "log").exists()


def test_outside_a_repository_the_directory_is_the_project(plugin: Plugin) -> None:
    plugin.does([BEFORE], worktree="/")
    assert plugin.heard()[0][1]["project"] == "/p"


def test_the_plugin_is_known_again() -> None:
    (found,) = plugin_commands(plugin_text(host("opencode"), "/a store"))
    assert (found.python, found.shim, found.store) == (sys.executable, shim_path(), "/a store")
    assert plugin_commands(b"export const Mine = async () => ({})") == ()
