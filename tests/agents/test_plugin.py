"""The plugin of Claude Code: it does what `hook install` does, finds takeback, and denies a call without it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import takeback as package
from takeback.frontends.agents.hosts import host
from takeback.frontends.agents.relay import PLUGIN_SWITCH
from takeback.frontends.agents.settings import shim_path
from takeback.frontends.cli.command import COMMANDS, command_named
from tests.agents.family import Shell, Write, binary, surroundings
from tests.agents.play import Prompt, Scene, play
from tests.agents.stage import Place, differences
from tests.agents.talk import talking
from tests.e2e.conftest import CommandLine
from tests.world import World

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugins/claude-code"
SCRIPT = PLUGIN / "hooks/takeback.sh"
CLAUDE = "node_modules/@anthropic-ai/claude-code-linux-{cpu}/claude"
LONG = b'{"x": "' + b"y" * (1 << 20) + b'"}'  # more than a pipe holds


def described(path: str) -> Any:
    return json.loads((ROOT / path).read_text())


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which this takeback is."""
    program = tmp_path / "bin/takeback"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}/src exec {sys.executable} -m takeback "$@"\n')
    program.chmod(0o755)
    return f"{program.parent}:/usr/bin:/bin"


# Its files.


def test_its_hooks_are_those_that_an_installation_writes() -> None:
    one = host("claude-code")
    found = described("plugins/claude-code/hooks/hooks.json")["hooks"]
    wanted = {}
    for point in one.EVENTS:
        call = f'/bin/sh "${{CLAUDE_PLUGIN_ROOT}}/hooks/takeback.sh" {point.name}'
        wanted[point.name] = [one.entry(point, f"{call} || exit {2 if point.before else 0}")]
    assert found == wanted


def test_its_versions_and_names_agree() -> None:
    about = described("plugins/claude-code/.claude-plugin/plugin.json")
    market = described(".claude-plugin/marketplace.json")
    (listed,) = market["plugins"]
    assert about["version"] == package.__version__
    assert (ROOT / listed["source"]).resolve() == PLUGIN
    assert (market["name"], listed["name"], about["name"]) == ("takeback",) * 3
    assert listed["description"] == about["description"]


PAGES = sorted(path.relative_to(PLUGIN) for path in PLUGIN.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_what_it_says_about_takeback_exists(page: Path) -> None:
    text = (PLUGIN / page).read_text()
    said = re.findall(r"`!?(?:takeback) ([a-z]+)((?: [^`]*)?)`", text) + re.findall(
        r"!`takeback ([a-z]+)([^`]*)`", text
    )
    assert said or page == Path("README.md")
    for name, rest in said:
        assert name in COMMANDS
        known = {word for one in command_named(name).arguments for word in one.names}
        assert set(re.findall(r"--[a-z][a-z-]*", rest)) <= known | {"--json"}


def test_the_words_that_only_the_user_may_say_are_forbidden_to_the_agent() -> None:
    rules = (PLUGIN / "skills/history/SKILL.md").read_text()
    allowed = rules.split("---")[1]
    for name in ("forget", "sweep", "discard", "approve", "pin", "hook"):
        assert f"`{name}`" in rules or f"takeback {name}`" in rules
        assert name not in allowed


# Its script, as Claude Code runs it.


def ran(event: str, path: str, payload: bytes = b"{}", **more: str) -> "subprocess.CompletedProcess[bytes]":
    environment = {"HOME": os.environ["HOME"], "PATH": path, "CLAUDE_PLUGIN_ROOT": str(PLUGIN), **more}
    for group in described("plugins/claude-code/hooks/hooks.json")["hooks"][event]:
        (one,) = group["hooks"]
        words = ["/bin/sh", "-c", one["command"]]
        return subprocess.run(
            words, input=payload, env=environment, capture_output=True, check=False, timeout=60
        )
    raise AssertionError(event)


EVENTS = [(point.name, point.before) for point in host("claude-code").EVENTS]


@pytest.mark.parametrize(("event", "before"), EVENTS)
def test_without_takeback_a_call_is_denied_and_nothing_else_is_stopped(event: str, before: bool) -> None:
    done = ran(event, "/usr/bin:/bin", LONG)

    assert done.returncode == (2 if before else 0)
    assert (b"claude plugin disable takeback@takeback" in done.stderr) is before


def test_a_plugin_that_lost_its_script_denies_as_well(tmp_path: Path, path: str) -> None:
    gone = str(tmp_path / "gone")
    assert ran("PreToolUse", path, CLAUDE_PLUGIN_ROOT=gone).returncode == 2
    assert ran("PostToolUse", path, CLAUDE_PLUGIN_ROOT=gone).returncode == 0


@pytest.mark.parametrize(
    "fault", ["exit 1", "kill -9 $$", "echo /gone/python; echo /gone/shim.py", "echo", "exit 0"]
)
def test_a_takeback_that_is_broken_denies(tmp_path: Path, fault: str) -> None:
    (tmp_path / "takeback").write_text(f"#!/bin/sh\n{fault}\n")
    (tmp_path / "takeback").chmod(0o755)

    done = ran("PreToolUse", f"{tmp_path}:/usr/bin:/bin", LONG, CLAUDE_PLUGIN_DATA=str(tmp_path / "data"))

    assert done.returncode == 2
    assert b"takeback is not installed, or it is broken" in done.stderr
    assert not (tmp_path / "data").exists()


def test_it_notes_where_takeback_is_and_looks_again_when_that_is_gone(tmp_path: Path, path: str) -> None:
    data = tmp_path / "data of a plugin"
    note = data / "shim"
    assert ran("SessionStart", path, CLAUDE_PLUGIN_DATA=str(data)).returncode == 0
    assert note.read_text().splitlines() == [sys.executable, shim_path()]
    note.write_text("/gone/python\n/gone/shim.py\n")
    ran("PreToolUse", path, CLAUDE_PLUGIN_DATA=str(data), TAKEBACK_STORE="/dev/null/store")
    assert note.read_text().splitlines() == [sys.executable, shim_path()]
    note.write_text(f"{sys.executable}\n/gone/shim.py")
    assert ran("PreToolUse", "/usr/bin:/bin", CLAUDE_PLUGIN_DATA=str(data)).returncode == 2


def test_a_refusal_names_the_command_that_switches_the_plugin_off(path: str) -> None:
    done = ran("PreToolUse", path, TAKEBACK_STORE="/dev/null/store")
    assert (done.returncode, PLUGIN_SWITCH in done.stderr.decode()) == (2, True)
    assert b"hook uninstall" not in done.stderr


@pytest.mark.parametrize("end", ["raise SystemExit(1)", "import os; os.abort()", "("])
def test_a_shim_that_breaks_denies(tmp_path: Path, end: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "shim.py").write_text(end)
    (data / "shim").write_text(f"{sys.executable}\n{data}/shim.py\n")

    assert ran("PreToolUse", "/usr/bin:/bin", LONG, CLAUDE_PLUGIN_DATA=str(data)).returncode == 2
    assert ran("PostToolUse", "/usr/bin:/bin", LONG, CLAUDE_PLUGIN_DATA=str(data)).returncode == 0


def test_the_payload_gets_through_and_so_do_the_answer_and_a_refusal(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "shim").write_text(f"{sys.executable}\n{data}/shim.py\n")
    (data / "shim.py").write_text("import sys; print(sys.argv[1:], len(sys.stdin.read()))")
    done = ran("PreToolUse", "/usr/bin:/bin", LONG, CLAUDE_PLUGIN_DATA=str(data))
    assert (done.returncode, done.stdout) == (0, f"['claude-code', 'PreToolUse'] {len(LONG)}\n".encode())

    (data / "shim.py").write_text("import sys; sys.stdin.read(); sys.stderr.write('No.\\n'); sys.exit(2)")
    done = ran("PreToolUse", "/usr/bin:/bin", LONG, CLAUDE_PLUGIN_DATA=str(data))
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"No.\n")


@pytest.mark.parametrize("answers", [True, False])
def test_a_compiled_shim_beside_it_is_used(tmp_path: Path, answers: bool) -> None:
    data, place = tmp_path / "data", tmp_path / "a place"
    data.mkdir()
    place.mkdir()
    (data / "shim").write_text(f"{sys.executable}\n{place}/shim.py\n")
    (place / "shim.py").write_text("import sys; print(sys.argv[1:], len(sys.stdin.read()))")
    rest = "echo compiled; cat >/dev/null" if answers else 'exec "$@"'
    (place / "shim").write_text(f"#!/bin/sh\n{rest}\n")

    for mode, is_used in ((0o755, answers), (0o644, False)):
        (place / "shim").chmod(mode)
        done = ran("PreToolUse", "/usr/bin:/bin", LONG, CLAUDE_PLUGIN_DATA=str(data))
        wanted = "compiled\n" if is_used else f"['claude-code', 'PreToolUse'] {len(LONG)}\n"
        assert (done.returncode, done.stdout.decode()) == (0, wanted)


# Beside hooks in the settings.


def test_what_both_report_is_recorded_once(tmp_path: Path) -> None:
    with talking(tmp_path) as talk:
        for _ in range(2):
            talk.starts()
        for _ in range(2):
            talk.prompts("go", turn="t-1")
        for tool, given in (
            ("Bash", {"command": "echo a > a.txt"}),
            ("Write", {"file_path": str(talk.project / "b.txt"), "content": "b\n"}),
        ):
            for _ in range(2):
                said, call = talk.before(tool, given, call=f"call-{tool}")
                assert not said.refusal
            talk.agent.does("echo a > a.txt" if tool == "Bash" else "echo b > b.txt")
            for _ in range(2):
                talk.after(tool, given, call)

        assert sorted(talk.summaries()) == ["Bash: echo a > a.txt", "Write: b.txt"]
        with package.open(talk.store) as tb:
            (session,) = package.sessions(tb)
            assert len(package.prompts(tb, session)) == 1


def test_an_agent_does_not_get_at_it(tmp_path: Path) -> None:
    """Refused where words say it, noticed where they do not; by the hooks of the plugin alone."""
    root, data = tmp_path / "cache/takeback/0.1.0", tmp_path / "data"
    shutil.copytree(PLUGIN, root)
    data.mkdir()
    settings = Path(os.environ["HOME"], ".claude/settings.json")
    settings.parent.mkdir(parents=True)
    enable(settings)
    with talking(tmp_path) as talk:
        talk.environment |= {"CLAUDE_PLUGIN_ROOT": str(root), "CLAUDE_PLUGIN_DATA": str(data)}
        talk.starts()
        for command, what in (
            (f"rm -rf {root}", "would delete takeback's plugin"),
            (f"echo x > {root}/hooks/takeback.sh", "would change takeback's plugin"),
            (f"echo /gone > {data}/shim", "would change the notes of takeback's plugin"),
            (f"sed -i s/true/false/ {settings}", "would change the settings that enable takeback's plugin"),
        ):
            refusal = talk.before("Bash", {"command": command})[0].refusal
            assert what in refusal and refusal.endswith(PLUGIN_SWITCH)
        given = {"file_path": str(root / "hooks/hooks.json"), "content": "{}"}
        assert "would change takeback's plugin" in talk.before("Write", given)[0].refusal
        assert not talk.before("Write", {"file_path": str(tmp_path / "other"), "content": ""})[0].refusal

        said = talk.shell(f"python3 -c \"open('{root}/hooks/hooks.json', 'a').write(' ')\"")
        assert f"takeback's plugin in {root} was modified" in said.context
        assert f"takeback's plugin in {root} was modified" in talk.takeback("log").stderr
        talk.says("SessionEnd", reason="other")
        talk.starts()  # the next conversation begins with what is there now
        assert "was modified" in talk.takeback("status").stderr, "a person has not read it yet"

        enable(settings, value=False)
        said = talk.prompts("go on")
        assert f"{settings} does not enable takeback's plugin any more" in said.context
        assert "does not enable takeback's plugin" in talk.takeback("log").stderr
        talk.takeback("hook", "uninstall", "claude-code")
        assert "does not enable" not in talk.takeback("hook", "status").stderr


def enable(place: Path, value: Any = True, name: str = "takeback@takeback") -> None:
    found = json.loads(place.read_text()) if place.exists() else {}
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps({**found, "enabledPlugins": {name: value, "other@market": True}}))


def test_status_names_it_and_says_when_the_hooks_are_there_twice(takeback: CommandLine, world: World) -> None:
    settings = Path(os.environ["HOME"], ".claude/settings.json")
    enable(settings)

    (told,) = takeback.done("hook", "status", "claude-code", "--json").json["agents"]
    assert told["plugins"] == [{"name": "takeback@takeback", "file": str(settings)}]
    assert (told["installed"], told["obstacles"]) == (True, [])
    assert (
        "plugin   takeback@takeback, enabled in ~/.claude/settings.json"
        in takeback.done("hook", "status").out
    )
    assert "does not test a plugin" in takeback.done("doctor").out
    assert told["why"] == "the only one with the plugin"
    said = takeback("hook", "test", "claude-code", "--program", "true")
    assert (said.code, "the hooks of a plugin (takeback@takeback) cannot be tested" in said.err) == (3, True)

    takeback.done("hook", "install", "claude-code")
    (told,) = takeback.done("hook", "status", "claude-code", "--json").json["agents"]
    assert told["obstacles"][0].startswith("Its hooks are in the settings and in the plugin")
    assert "claude plugin disable takeback@takeback" in takeback.done("hook", "uninstall", "claude-code").out

    enable(world / ".claude/settings.local.json", False)
    (told,) = takeback.done("hook", "status", "claude-code", "--json").json["agents"]
    assert (told["installed"], told["plugins"]) == (False, [])
    for broken in ("", "[]", '{"enabledPlugins": []}', "{", "[" * 100_000):
        settings.write_text(broken)
        (told,) = takeback.done("hook", "status", "claude-code", "--json").json["agents"]
        assert told["plugins"] == []


# In the real Claude Code.


def claude(home: Path, *words: str) -> str:
    done = subprocess.run(
        [binary(CLAUDE), *words],
        env=surroundings(home),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.agents
@pytest.mark.each_share
@pytest.mark.parametrize("place", [".", "plugins/claude-code"])
def test_claude_code_finds_nothing_wrong_with_it(place: str, tmp_path: Path) -> None:
    report = json.loads(claude(tmp_path, "plugin", "validate", str(ROOT / place), "--strict", "--json"))
    assert report["success"] is True


@pytest.mark.agents
@pytest.mark.each_share
def test_installed_from_the_checkout_it_records_and_its_commands_work(
    place: Place, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{path.partition(':')[0]}:{os.environ['PATH']}")
    claude(place.home, "plugin", "marketplace", "add", str(ROOT))
    claude(place.home, "plugin", "install", "takeback@takeback")
    before = place.look()
    turns = (
        (Shell("rm -r docs; echo made > made.txt"),),
        # As the skill says: the newest is the call that asks.
        (Shell("takeback undo $(takeback log --format '{id}' -n 2 | tail -n 1)"),),
        (Shell("rm notes.txt"),),
        (Write("new.md", "new\n"),),
    )

    play("claude-code", Scene("wreck", (Prompt("wreck it", turns),), {}), place.home, place.project)
    wrecked = differences(before, place.look(), times=False)
    slash = Scene("slash", (Prompt("/takeback:log"), Prompt("/takeback:undo")), {})
    played = play("claude-code", slash, place.home, place.project)

    assert set(wrecked) == {"new.md", "notes.txt", "twin.txt"}  # a second name of the same file
    assert "Write: new.md" in json.dumps([request.body for request in played.requests])
    assert differences(before, place.look()) == {}


@pytest.mark.agents
@pytest.mark.each_share
def test_installed_without_takeback_it_lets_no_call_through(place: Place) -> None:
    claude(place.home, "plugin", "marketplace", "add", str(ROOT))
    claude(place.home, "plugin", "install", "takeback@takeback")
    before = place.look()
    wreck = Prompt("wreck it", ((Shell("rm -r docs"),), (Write("new.md", "new\n"),)))
    os_path = os.environ["PATH"]
    without = ":".join(one for one in os_path.split(":") if not Path(one, "takeback").exists())

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", without)
        played = play("claude-code", Scene("wreck", (wreck,), {}), place.home, place.project)

    assert differences(before, place.look()) == {}
    assert all("takeback is not installed" in one for one in played.results)
