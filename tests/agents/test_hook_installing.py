"""`takeback hook install|uninstall|status`, as a user types it: what stands in the settings before and after."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import takeback as library
from takeback.errors import Drifted
from takeback.frontends.agents.hosts import NAMES, host
from takeback.frontends.agents.install import written
from takeback.frontends.agents.settings import shim_path
from tests.e2e.conftest import CommandLine
from tests.e2e.test_terminal import seen
from tests.world import World, picture

FILES = {
    "claude-code": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "gemini": ".gemini/settings.json",
    "opencode": ".config/opencode/plugin/takeback.js",
    "cursor": ".cursor/hooks.json",
}
OURS = {"claude-code": ".claude/settings.local.json", "opencode": ".opencode/plugin/takeback.js"}
JSON = tuple(name for name in NAMES if name != "opencode")
THEIRS = {
    "claude-code": {
        "model": "opus",
        "hooks": {
            "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./mine.sh"}]}],
            "Notification": [{"hooks": [{"type": "command", "command": "bell"}]}],
        },
        "permissions": {"allow": ["Bash(ls:*)"]},
    },
    "codex": {
        "hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "./mine.sh"}]}], "Stop": []}
    },
    "gemini": {
        "ui": {"theme": "x"},
        "hooks": {"BeforeTool": [{"hooks": [{"type": "command", "command": "m"}]}]},
    },
    "cursor": {"version": 1, "hooks": {"preToolUse": [{"command": "./mine.sh", "matcher": "Shell"}]}},
}


def entries(document: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for event, groups in document["hooks"].items():
        for group in groups:
            for one in group.get("hooks", [group]):
                yield event, one


def ours(document: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(event, one) for event, one in entries(document) if "shim.py" in one["command"]]


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize(
    "written",
    [
        lambda data: json.dumps(data, indent=2) + "\n",
        lambda data: json.dumps(data, indent=4),
        lambda data: json.dumps(data, indent="\t").replace("\n", "\r\n"),
        json.dumps,
        lambda data: json.dumps(data, separators=(",", ":")),
        lambda data: "\ufeff" + json.dumps(data, indent=1) + "\n\n",
    ],
    ids=["two", "four", "crlf", "line", "tight", "bom"],
)
@pytest.mark.parametrize("theirs", ["full", "empty", "no hooks", "empty hooks"])
@pytest.mark.sampled(6)
def test_uninstall_restores_the_bytes(
    takeback: CommandLine, home: Path, name: str, written: Any, theirs: str
) -> None:
    data = {"full": THEIRS[name], "empty": {}, "no hooks": {"a": [1, 2]}, "empty hooks": {"hooks": {}}}[
        theirs
    ]
    file = home / FILES[name]
    file.parent.mkdir(parents=True)
    before = written(data).encode()
    file.write_bytes(before)
    file.chmod(0o640)

    takeback.done("hook", "install", name)
    installed = file.read_bytes()
    document = json.loads(installed.decode("utf-8-sig"))
    assert {event for event, _ in ours(document)} == {point.name for point in host(name).EVENTS}
    for event, groups in data.get("hooks", {}).items():
        assert document["hooks"][event][: len(groups)] == groups, "other hooks keep their places"
    assert file.stat().st_mode & 0o777 == 0o640
    takeback.done("hook", "install", name)
    assert file.read_bytes() == installed, "a second time changes nothing"

    takeback.done("hook", "uninstall", name)
    assert file.read_bytes() == before
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", ["--user", "--project"])
def test_settings_that_are_no_file_are_refused_and_no_one_waits(
    takeback: CommandLine, world: World, home: Path, name: str, level: str
) -> None:
    file = home / FILES[name] if level == "--user" else world.root / OURS.get(name, FILES[name])
    for make, why in ((os.mkfifo, "not a regular file"), (os.mkdir, "Is a directory")):
        file.parent.mkdir(parents=True, exist_ok=True)
        make(file)
        for words in (("install", name), ("uninstall", name), ("test", name)):
            said = takeback("hook", *words, level)
            assert (said.code, "Traceback" in said.err) == (3, False)
            assert why in said.err or name == "cursor"
        assert why in takeback.done("hook", "status", name, level).out
        assert why in takeback.done("doctor").out
        file.unlink() if why.startswith("not") else file.rmdir()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", ["--user", "--project"])
def test_uninstall_leaves_nothing_where_nothing_was(
    takeback: CommandLine, world: World, home: Path, name: str, level: str
) -> None:
    root = home if level == "--user" else world.root
    before = picture(os.fsencode(root)).keys()
    files = FILES | OURS if level == "--project" else FILES

    told = takeback.done("hook", "install", name, level, "--json").json
    assert told["hooks"][0]["file"] == os.fspath(root / files[name])
    assert (root / files[name]).exists()

    takeback.done("hook", "uninstall", name, level)
    assert not (root / files[name]).exists()
    gone = {path for path in picture(os.fsencode(root)).keys() - before if b".local" not in path}
    assert gone <= {b".config"}, gone


@pytest.mark.parametrize("name", JSON)
def test_what_others_wrote_since_stays(takeback: CommandLine, home: Path, name: str) -> None:
    file = home / FILES[name]
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(THEIRS[name], indent=2))
    takeback.done("hook", "install", name)
    document = json.loads(file.read_text())
    first = next(iter(host(name).EVENTS)).name
    document["hooks"].setdefault(first, []).append({"hooks": [{"type": "command", "command": "later"}]})
    file.write_text(json.dumps({**document, "added": True}, indent=2))

    takeback.done("hook", "uninstall", name)

    left = json.loads(file.read_text())
    assert left["added"] is True
    assert not ours({"hooks": {event: g for event, g in left["hooks"].items() if event != first}})
    assert "shim.py" not in file.read_text()
    assert "later" in file.read_text()
    assert {k: v for k, v in left.items() if k not in ("hooks", "added")} == {
        k: v for k, v in THEIRS[name].items() if k != "hooks"
    }


def test_comments_stay_where_the_host_reads_them(takeback: CommandLine, home: Path) -> None:
    file = home / FILES["gemini"]
    file.parent.mkdir()
    before = '{\n  // my theme\n  "ui": {"theme": "x"}, /* and */\n  "hooks": {\n    // none yet\n  }\n}\n'
    file.write_text(before)

    takeback.done("hook", "install", "gemini")
    assert "// my theme" in file.read_text()
    assert "/* and */" in file.read_text()
    assert "// none yet" in file.read_text()
    takeback.done("hook", "uninstall", "gemini")
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("claude-code", '{\n  "a": 1,\n  "b" 2\n}', "line 3, column 7"),
        ("claude-code", '{\n  // comment\n  "a": 1\n}', "line 2, column 3"),
        ("codex", '{"a": [1,]}', "line 1, column"),
        ("gemini", '{\n  // comment\n  "a": }', "line 3, column 8"),
        ("gemini", '{"a": 1, // comment\n}', "line 2, column 1"),
        ("cursor", "{", "line 1, column 2"),
        ("claude-code", "[]", "holds no JSON object"),
        ("claude-code", '{"hooks": []}', "`hooks` is not an object"),
        ("claude-code", '{"hooks": {"Stop": {}}}', "`hooks.Stop` is not a list"),
        ("claude-code", b'{"a": "\xff"}', "not UTF-8"),
        ("claude-code", "[" * 100_000, "nested too deeply"),
    ],
)
def test_a_broken_file_is_refused_with_the_place_and_kept(
    takeback: CommandLine, home: Path, name: str, content: str | bytes, place: str
) -> None:
    file = home / FILES[name]
    file.parent.mkdir()
    file.write_bytes(before := content.encode() if isinstance(content, str) else content)

    for words in (("install", name), ("install", name, "--dry-run")):
        said = takeback("hook", *words)
        assert said.code == 3, said
        assert place in said.err
        assert "Nothing was changed" in said.err
    assert file.read_bytes() == before
    assert place in takeback.done("hook", "status", name).out or "list" in place or "object" in place


def test_claude_is_said_to_read_no_comments(takeback: CommandLine, home: Path) -> None:
    (home / ".claude").mkdir()
    (home / FILES["claude-code"]).write_text('{\n  "a": 1, // one\n}\n')

    assert "reads no comments" in takeback("hook", "install", "claude-code").err


def test_a_link_is_followed_and_stays_a_link(takeback: CommandLine, home: Path, world: World) -> None:
    real = world / "dotfiles.json"
    real.write_text('{"model": "opus"}\n')
    (home / ".claude").mkdir()
    link = home / FILES["claude-code"]
    link.symlink_to(real)

    takeback.done("hook", "install", "claude-code")
    assert link.is_symlink()
    assert ours(json.loads(real.read_text()))
    takeback.done("hook", "uninstall", "claude-code")
    assert link.is_symlink()
    assert real.read_text() == '{"model": "opus"}\n'


def test_an_installation_of_another_place_is_replaced_at_its_place(takeback: CommandLine, home: Path) -> None:
    takeback.done("hook", "install", "codex")
    file = home / FILES["codex"]
    here = file.read_text()
    moved = here.replace(shim_path(), "/opt/old/takeback/frontends/agents/shim.py")
    document = json.loads(moved)
    document["hooks"]["PreToolUse"].append({"hooks": [{"type": "command", "command": "last"}]})
    file.write_text(json.dumps(document, indent=2) + "\n")
    assert "another installation" in takeback.done("hook", "status", "codex").out

    takeback.done("hook", "install", "codex")

    after = json.loads(file.read_text())
    assert "shim.py" in after["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    assert after["hooks"]["PreToolUse"][1]["hooks"][0]["command"] == "last"
    assert "/opt/old" not in file.read_text()
    assert len(ours(after)) == len(host("codex").EVENTS)


def test_the_installation_is_an_effect(takeback: CommandLine, home: Path) -> None:
    told = takeback.done("hook", "install", "claude-code", "--json").json
    effect = told["hooks"][0]["effects"][-1]
    assert effect["state"] == "done"
    assert effect["resource"].endswith("/.claude/settings.json")

    takeback.done("undo", effect["id"], "--yes")
    assert not (home / FILES["claude-code"]).exists()
    takeback.done("redo", "--all")
    assert ours(json.loads((home / FILES["claude-code"]).read_text()))


def test_two_installations_at_once_leave_each_hook_once(world: World, home: Path) -> None:
    line = [sys.executable, "-m", "takeback", "hook", "install", "claude-code"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    both = [subprocess.Popen(line, cwd=world.root, env=env) for _ in range(2)]
    assert {one.wait(timeout=120) for one in both} <= {0, 3, 5}
    assert 0 in {one.returncode for one in both}

    found = ours(json.loads((home / FILES["claude-code"]).read_text()))
    assert len(found) == len({event for event, _ in found}) == len(host("claude-code").EVENTS)


def test_a_dry_run_changes_nothing(takeback: CommandLine, home: Path) -> None:
    said = takeback.done("hook", "install", "claude-code", "--dry-run")
    assert "Would install" in said.out
    assert not (home / ".claude").exists()
    assert not Path(os.environ["TAKEBACK_STORE"]).exists()
    takeback.done("hook", "install", "claude-code")
    assert "has them already" in takeback.done("hook", "install", "claude-code", "--dry-run").out
    assert "Would remove" in takeback.done("hook", "uninstall", "--dry-run").out
    assert (home / FILES["claude-code"]).exists()


def test_without_an_agent_the_ones_of_this_machine_are_named(takeback: CommandLine, home: Path) -> None:
    nowhere = {"PATH": "/usr/bin:/bin"}
    said = takeback("hook", "install", **nowhere)
    assert said.code == 2
    (home / ".codex").mkdir()
    said = takeback("hook", "install", **nowhere)
    assert said.code == 2
    assert "codex" in said.err
    assert not (home / FILES["codex"]).exists()


def test_at_a_terminal_each_agent_is_asked_about(world: World, home: Path) -> None:
    for directory in (".codex", ".cursor"):
        (home / directory).mkdir()
    asked = seen(world.root, "hook", "install", typed=b"n\ny\n", PATH="/usr/bin:/bin")
    assert asked[0] == 0, asked
    assert "Install takeback's hooks for Codex? [y/N]" in asked[1]
    assert not (home / FILES["codex"]).exists()
    assert ours(json.loads((home / FILES["cursor"]).read_text()))
    assert seen(world.root, "hook", "install", typed=b"\n\n", PATH="/usr/bin:/bin")[0] == 2


def test_uninstall_without_an_agent_removes_all(takeback: CommandLine, home: Path) -> None:
    for name in NAMES:
        takeback.done("hook", "install", name)
    told = takeback.done("hook", "uninstall", "--json").json
    assert [one["agent"] for one in told["hooks"]] == list(NAMES)
    assert not any((home / file).exists() for file in FILES.values())
    assert takeback.done("hook", "uninstall", "--json").json["changed"] is False


def test_a_foreign_plugin_is_not_overwritten(takeback: CommandLine, home: Path) -> None:
    file = home / FILES["opencode"]
    file.parent.mkdir(parents=True)
    file.write_text("export const Mine = async () => ({})\n")

    assert takeback("hook", "install", "opencode").code == 3
    takeback.done("hook", "uninstall", "opencode")
    assert file.read_text() == "export const Mine = async () => ({})\n"


def test_a_store_that_is_named_goes_into_the_hooks(takeback: CommandLine, home: Path, world: World) -> None:
    for name in ("claude-code", "opencode"):
        takeback.done("--store", world / "a store", "hook", "install", name)
    (_, first), *_ = ours(json.loads((home / FILES["claude-code"]).read_text()))
    words = shlex.split(shlex.split(first["command"])[2])
    assert words[0] == f"TAKEBACK_STORE={world / 'a store'}"
    told = takeback.done("hook", "status", "--json").json["agents"]
    stores = {one["agent"]: one["files"][0]["store"] for one in told}
    assert stores["claude-code"] == stores["opencode"] == os.fspath(world / "a store")


def test_a_store_on_a_server_cannot_have_hooks(takeback: CommandLine, home: Path) -> None:
    said = takeback("--store", "postgresql://nowhere/x", "hook", "install", "claude-code")
    assert said.code == 2
    assert "directory of this machine" in said.err
    assert not (home / FILES["claude-code"]).exists()


def test_options_that_exclude_each_other(takeback: CommandLine) -> None:
    assert takeback("hook", "install", "claude-code", "--user", "--project").code == 2
    assert takeback("hook", "install", "nosuch").code == 2
    assert takeback("hook").code == 2


@pytest.mark.parametrize("late", [b'{"model": "sonnet"}', None])
def test_a_file_that_was_modified_since_it_was_read_is_refused(
    tmp_path: Path, late: bytes | None, store: Path
) -> None:
    file = tmp_path / "settings.json"
    file.write_bytes(before := b'{"model": "opus"}')
    with library.open(store) as tb, tb.run("install") as run:
        file.write_bytes(late) if late else file.unlink()
        with pytest.raises(Drifted, match="was modified while takeback edited it"):
            tuple(written(run, os.fspath(file), before, b"{}"))
    assert file.exists() == (late is not None)
    assert late is None or file.read_bytes() == late
