"""How every command behaves: help, errors, exit codes, pipes, colour, start-up."""

import os
import pty
import subprocess
import sys

import pytest

from takeback import __version__
from takeback.frontends.cli.command import COMMANDS
from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.world import World

VISIBLE = [name for name, entry in COMMANDS.items() if entry.group]


@pytest.mark.parametrize("name", VISIBLE)
def test_the_help_of_each_command_shows_an_example(takeback: CommandLine, name: str) -> None:
    said = takeback.done(name, "--help")

    assert "example:\n  " in said.out
    assert "takeback " in said.out.partition("example:\n")[2]
    assert "--json" in said.out


def test_the_overview_lists_every_command(takeback: CommandLine) -> None:
    said = takeback.done("--help")

    assert all(f"\n  {name} " in said.out for name in VISIBLE)
    assert "_complete" not in said.out
    assert takeback("").code == 2
    assert takeback().code == 2
    assert takeback.done("help", "undo").out == takeback.done("undo", "--help").out


def test_the_version(takeback: CommandLine) -> None:
    assert takeback.done("--version").out == f"takeback {__version__}\n"


def test_a_mistyped_command_gets_a_suggestion(takeback: CommandLine) -> None:
    said = takeback("undi")

    assert said.code == 2
    assert said.err == "error: There is no command 'undi'.\nhint: Did you mean `takeback undo`?\n"


def test_a_usage_error_as_json(takeback: CommandLine) -> None:
    said = takeback("log", "--no-such-option", "--json")

    assert said.code == 2
    assert set(said.error) == {"type", "message", "hint", "exit_code"}
    assert (said.error["type"], said.error["exit_code"]) == ("Misuse", 2)
    assert said.err == ""


def test_quiet_prints_nothing_but_errors(takeback: CommandLine) -> None:
    assert takeback.done("write", "a", "--quiet", input="1").out == ""
    assert takeback.done("-q", "undo").out == ""
    assert takeback("undo", "--quiet").err.startswith("error: ")


def test_a_store_that_is_no_store_is_refused_in_words(takeback: CommandLine, world: World) -> None:
    (world / "file").write_text("x")
    (world / "full").mkdir()
    (world / "full" / "mine").write_text("x")

    assert takeback("write", "a", "--store", str(world / "file"), input="1").code == 2
    assert takeback("write", "a", "--store", str(world / "full"), input="1").code == 3
    assert not (world / "a").exists()


def test_settings_that_are_wrong_are_misuse(takeback: CommandLine) -> None:
    takeback.write("a", "1")
    with open(os.path.join(os.environ["TAKEBACK_STORE"], "settings.json"), "w") as file:
        file.write('{"kept_secnds": 1}')

    assert takeback("log").code == 2


def test_a_directory_removed_under_our_feet_is_told(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1")
    gone = (
        "import os, sys; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); "
        "from takeback.frontends.cli.answer import answer; sys.exit(answer(sys.argv[1:]))"
    )

    def there(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", gone, *words], cwd=world.root, env=surroundings(), capture_output=True,
            text=True, check=False,
        )  # fmt: skip

    assert there("log").returncode == 3  # which project is meant is not known
    assert there("log", "--all").returncode == 0
    assert there("doctor").returncode == 0
    said = there("log", "--path", "a")
    assert (said.returncode, "does not exist any more" in said.stderr) == (2, True)


def test_a_reader_that_has_had_enough_is_no_error_to_print(takeback: CommandLine) -> None:
    for n in range(3):
        takeback.write(f"f{n}", "1")
    reader, writer = os.pipe()
    os.close(reader)

    done = subprocess.run(
        [*COMMAND, "log"], stdout=writer, stderr=subprocess.PIPE, env=surroundings(), check=False
    )
    os.close(writer)

    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_answer_that_cannot_be_printed_is_an_error(
    takeback: CommandLine, world: World, unbuffered: str
) -> None:
    for name in "abc":
        takeback.write(name, "1")

    def into_nothing(*words: str) -> tuple[int, list[str]]:
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [*COMMAND, *words], cwd=world.root, env=surroundings() | {"PYTHONUNBUFFERED": unbuffered},
                input=b"2", stdout=full, stderr=subprocess.PIPE, check=False,
            )  # fmt: skip
        return done.returncode, done.stderr.decode().splitlines()

    unprinted = "the answer could not be printed: No space left on device."
    for words in (("log",), ("diff", "@")):
        code, (error, hint) = into_nothing(*words)
        assert (code, error) == (1, f"error: T{unprinted[1:]}")
        assert hint.startswith("hint: ")
    for words in (("write", "a"), ("write", "b", "--json")):
        code, said = into_nothing(*words)
        made = takeback.effect("@")["id"][:8]
        assert (code, said[0]) == (1, f"error: It was done ({made}), but {unprinted}")
        assert said[1] == f"hint: `takeback show {made}` shows it."
    code, said = into_nothing("rm", "a", "b", "c")
    assert (code, list(world.root.iterdir())) == (1, [])
    assert said[0].startswith("error: It was done (")
    assert into_nothing("undo", "nosuch", "--json")[0] == 2
    code, said = into_nothing("undo")
    assert (code, "It was done" in said[0], (world / "c").exists()) == (1, True, True)


def on_a_terminal(directory: object, *words: str, **environment: str) -> str:
    """What someone at a terminal sees."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [*COMMAND, *words], cwd=str(directory), env=surroundings() | {"TERM": "xterm"} | environment,
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    assert child.wait(30) == 0, seen
    return seen.decode()


def test_colour_only_on_a_terminal_and_never_against_the_users_wish(
    takeback: CommandLine, world: World
) -> None:
    takeback.write("a", "1\n")

    assert "\033[" in on_a_terminal(world.root, "log")
    assert "\033[" not in takeback.done("log").out
    assert "\033[" not in on_a_terminal(world.root, "log", "--no-color")
    assert "\033[" not in on_a_terminal(world.root, "log", NO_COLOR="1")
    assert "\033[" not in on_a_terminal(world.root, "log", "--json")


def test_nothing_in_a_file_can_paint_on_the_terminal(takeback: CommandLine, world: World) -> None:
    takeback.write("a", b"\x1b]0;owned\x07\x9b31m\r\n")

    seen = on_a_terminal(world.root, "diff", "@", "--no-color")
    raw = takeback.done("diff", "@")

    assert "\x1b" not in seen
    assert "\\x1b]0;owned\\x07\\x9b31m\\r" in seen
    assert "\x1b]0;owned\x07" in raw.out


LOADED = """
import sys
from takeback.frontends.cli.answer import answer
code = answer(sys.argv[1:])
print(*sorted(sys.modules), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.real
def test_log_loads_no_engine_no_adapter_and_nothing_heavy(takeback: CommandLine) -> None:
    takeback.write("a", "1")

    done = subprocess.run(
        [sys.executable, "-c", LOADED, "log"], env=surroundings(), capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())

    heavy = {"ctypes", "backports.zstd", "subprocess", "tempfile", "shutil", "pathlib", "dataclasses", "inspect",
             "logging", "difflib", "ruamel.yaml", "tomlkit", "takeback.storage.blobs.stored"}  # fmt: skip
    assert not loaded & heavy
    assert not [
        name
        for name in loaded
        if name.startswith(("takeback.engine", "takeback.adapters", "takeback.policy"))
        and name
        not in ("takeback.policy", "takeback.policy.secrets", "takeback.policy.secret_shapes")  # masks
    ]


def test_two_commands_at_once_take_turns(takeback: CommandLine, world: World) -> None:
    takeback.write("start", "1")
    children = [
        subprocess.Popen(
            [*COMMAND, "write", f"f{n}"], cwd=world.root, env=surroundings(), stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )
        for n in range(6)
    ]  # fmt: skip
    answers = [child.communicate(f"{n}".encode(), timeout=60) for n, child in enumerate(children)]

    assert [child.returncode for child in children] == [0] * 6, answers
    assert [(world / f"f{n}").read_text() for n in range(6)] == [str(n) for n in range(6)]
    assert len({effect["run"] for effect in takeback.done("log", "--json").json}) == 1


@pytest.mark.needs("bash")
def test_bash_completes_commands_options_ids_and_files(takeback: CommandLine, world: World) -> None:
    effect = takeback.write("a.txt", "1")
    takeback.done("checkpoint", "before-all")
    script = takeback.done("completion", "bash").out
    (world / "takeback").write_text(f'#!/bin/sh\nexec {sys.executable} -m takeback "$@"\n')
    (world / "takeback").chmod(0o755)

    def completed(*words: str) -> list[str]:
        asking = (
            f"{script}\nCOMP_WORDS=({' '.join(repr(word) for word in words)})\nCOMP_CWORD={len(words) - 1}\n"
            '_takeback\nprintf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "-c", asking], cwd=world.root, capture_output=True, text=True, check=True,
            env=surroundings() | {"PATH": f"{world.root}:{os.environ['PATH']}"},
        )  # fmt: skip
        return done.stdout.split()

    assert completed("takeback", "chec") == ["checkpoint", "checkpoints"]
    assert completed("takeback", "undo", "--ca") == ["--cascade"]
    assert completed("takeback", "show", effect["id"][:3]) == [effect["id"][:8]]
    assert completed("takeback", "undo", "--to", "bef") == ["before-all"]
    assert completed("takeback", "write", "a") == []
    assert completed("takeback", "completion", "z") == ["zsh"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.may_skip("a sound machine may have neither zsh nor fish")
def test_the_scripts_of_other_shells_are_read_by_them(takeback: CommandLine, shell: str) -> None:
    import shutil

    script = takeback.done("completion", shell).out
    assert "takeback _complete" in script or "_complete --" in script
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    subprocess.run([shell, "-n"], input=script, text=True, check=True)
