"""What someone at a terminal meets: colour, pager, questions, and the same words where there is no terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from takeback.frontends.cli.command import COMMANDS, command_named, parser_of
from takeback.frontends.cli.help import ELSEWHERE, names, page
from takeback.runs.commands.request import TerminalUse
from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.world import World


def seen(
    directory: object,
    *words: str,
    typed: bytes = b"",
    size: tuple[int, int] = (24, 80),
    program: tuple[str, ...] = COMMAND,
    **environment: str,
) -> tuple[int, str]:
    """The exit code and what a terminal of this size shows; what is typed waits there from the beginning."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("=HHHH", *size, 0, 0))
    child = subprocess.Popen(
        [*program, *words], cwd=str(directory), env=surroundings() | {"TERM": "xterm"} | environment,
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, typed)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    return child.wait(60), shown.decode().replace("\r\n", "\n")


@pytest.fixture
def long_log(takeback: CommandLine, world: World) -> World:
    for number in range(4):
        takeback.write(f"f{number}", "1")
    return world


PAGER = "sed 's/^/paged: /'"


def test_a_pager_only_for_what_is_longer_than_the_screen(long_log: World) -> None:
    assert "paged: " not in seen(long_log.root, "log", TAKEBACK_PAGER=PAGER)[1]
    assert "paged: " in seen(long_log.root, "log", size=(3, 80), TAKEBACK_PAGER=PAGER)[1]
    assert "paged: " in seen(long_log.root, "log", size=(3, 80), PAGER=PAGER)[1]


def test_no_pager_where_nobody_wants_one(takeback: CommandLine, long_log: World) -> None:
    small = (3, 80)
    for words, environment in (
        (("log", "--no-pager"), {"TAKEBACK_PAGER": PAGER}),
        (("log", "--json"), {"TAKEBACK_PAGER": PAGER}),
        (("log",), {"TAKEBACK_PAGER": "", "PAGER": PAGER}),
        (("log",), {"TAKEBACK_PAGER": "cat"}),
        (("log",), {"TAKEBACK_PAGER": PAGER, "TERM": "dumb"}),
    ):
        code, shown = seen(long_log.root, *words, size=small, **environment)
        assert (code, "paged: " in shown) == (0, False), (words, environment)
    assert "paged: " not in takeback.done("log", TAKEBACK_PAGER=PAGER).out


def test_a_reader_who_leaves_the_pager_is_no_error(long_log: World) -> None:
    code, shown = seen(long_log.root, "log", size=(3, 80), TAKEBACK_PAGER="head -1")

    assert (code, "rror" in shown) == (0, False)


def test_second_eyes_15_without_its_pager_the_answer_is_printed(long_log: World) -> None:
    code, shown = seen(long_log.root, "log", size=(3, 80), TAKEBACK_PAGER="no-such-pager-at-all")

    assert (code, shown) == seen(long_log.root, "log", "--no-pager", size=(3, 80))
    assert "write f0" in shown


def test_a_closed_standard_output_is_told_as_such(takeback: CommandLine) -> None:
    takeback.write("a", "1")
    words = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "log"]

    done = subprocess.run(
        words, cwd=takeback.directory, env=surroundings(), stderr=subprocess.PIPE, check=False
    )

    assert (done.returncode, b"bug" in done.stderr) == (1, False), done.stderr


def test_colour_can_be_forced_and_forbidden(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1\n")

    for forced in ({"FORCE_COLOR": "1"}, {"CLICOLOR_FORCE": "1"}):
        assert "\033[" in takeback.done("log", **forced).out
    assert "\033[" in takeback.done("log", "--color", "always").out
    assert "\033[" in takeback.done("log", "--color=always", NO_COLOR="1").out
    for plain in ({"FORCE_COLOR": "0"}, {"FORCE_COLOR": "1", "NO_COLOR": "1"}):
        assert "\033[" not in takeback.done("log", **plain).out
    assert "\033[" not in seen(world.root, "log", "--color=never", FORCE_COLOR="1")[1]
    assert "\033[" not in seen(world.root, "log", TERM="dumb")[1]
    assert "\033[" not in takeback.done("log", "--json", "--color=always").out
    said = takeback("log", "--color", "sometimes")
    assert (said.code, "--color" in said.err) == (2, True)


def test_error_and_hint_look_the_same_everywhere(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "1")
    takeback.done("undo")
    error, hint = "\033[31merror:\033[0m ", "\033[36mhint:\033[0m "

    for words in (("undo",), ("nosuch",), ("log", "--nosuch"), ("show", "nosuch")):
        shown = seen(world.root, *words)[1]
        assert error in shown and hint in shown, words
    takeback.done("redo")
    assert hint in seen(world.root, "undo")[1]


@pytest.mark.parametrize(
    ("typed", "there"),
    [(b"y\n", True), (b"a\n", True), (b"n\n", False), (b"d\n", False), (b"what\ns\nyes\n", True)],
)
def test_first_day_7n_a_question_takes_y_and_n(world: World, typed: bytes, there: bool) -> None:
    code, shown = seen(world.root, "run", "--ask", "--", "touch", "made", typed=typed)

    assert (code, (world / "made").exists()) == (0, there)
    assert "Enter: leave it held" in shown
    assert ("Please answer y (apply), n (discard) or s (diff)." in shown) == (b"what" in typed)


def test_enter_leaves_it_held(takeback: CommandLine, world: World) -> None:
    code, shown = seen(world.root, "run", "--ask", "--", "touch", "made", typed=b"\n")

    assert (code, (world / "made").exists(), "held " in shown) == (0, False, True)


def test_first_day_7h_a_command_that_failed_is_told_as_failed(takeback: CommandLine) -> None:
    assert takeback("run", "--", "sh", "-c", "touch x; exit 44").code == 44
    takeback.done("run", "--", "touch", "y")

    good, bad = takeback.done("runs").out.splitlines()

    assert " failed " in bad and bad.endswith("(exit code 44)")
    assert " accepted " in good


def test_first_day_7i_calls_are_counted_first(takeback: CommandLine, world: World) -> None:
    (world / "acts.py").write_text(
        "import takeback\n@takeback.action\ndef deploy(n, key): return {'n': n}\n"
        "@deploy.undo\ndef back(receipt, n): pass\n"
    )
    program = (
        "import acts, takeback\nwith takeback.open() as tb, tb.run('both') as run:\n"
        "    run.write('a', '1')\n    run.call(acts.deploy, n=1)\n"
    )
    paths = os.pathsep.join((str(world.root), surroundings()["PYTHONPATH"]))
    environment = surroundings() | {"PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", program], cwd=world.root, env=environment, check=True)

    said = takeback.done("undo", "--run", "both", PYTHONPATH=paths)

    assert said.out.startswith("Took back 1 call (deploy), 1 file in ")


def test_a_command_that_changes_nothing_says_so(takeback: CommandLine) -> None:
    assert takeback.done("run", "--", "true").err == "takeback: No changes.\n"
    assert takeback.done("-q", "run", "--", "true").err == ""


def test_the_log_is_as_wide_as_the_terminal(takeback: CommandLine, world: World) -> None:
    takeback.done(
        "run", "--", "sh", "-c", "touch " + " ".join(f"some-rather-long-name-{n}" for n in range(9))
    )
    takeback.write("a", "1")

    for columns in (60, 80, 120):
        shown = seen(world.root, "log", "--no-color", size=(24, columns))[1]
        assert max(len(line) for line in shown.splitlines()) <= columns
        assert "…" in shown and "9 added" in shown


def test_undos_are_folded_into_what_they_took_back(takeback: CommandLine) -> None:
    first, second = takeback.write("a", "1")["id"][:8], takeback.write("b", "1")["id"][:8]
    takeback.done("undo")

    lines = takeback.done("log").out.splitlines()

    assert [line.split()[:2] for line in lines] == [["@", second], ["@~1", first]]
    assert "(undone)" in lines[0] and "undone" not in lines[1]
    assert len(takeback.done("log", "--json").json) == 2
    assert len(takeback.done("log", "--all", "--json").json) == 3
    takeback.done("redo")
    assert "undone" not in takeback.done("log").out
    assert len(takeback.done("log", "-n", "2").out.splitlines()) == 2


def test_the_numbers_of_the_log_are_those_that_undo_understands(takeback: CommandLine, world: World) -> None:
    for name in "abc":
        takeback.write(name, "1")
    takeback.done("undo", "@~1")

    for line in takeback.done("log").out.splitlines():
        ref, id = line.split()[:2]
        assert takeback.effect(ref)["id"].startswith(id)
    assert not takeback.done("log", "--path", "b").out.startswith("@")


def test_paths_are_told_from_where_the_reader_stands(takeback: CommandLine, world: World) -> None:
    (world / "home" / "deep").mkdir(parents=True)
    takeback.write("home/deep/x", "1")

    assert " write home/deep/x (1 byte)" in takeback.done("log").out
    takeback.directory = str(world / "home" / "deep")
    assert " write x (1 byte)" in takeback.done("log").out
    takeback.directory = "/"
    assert " write ~/deep/x (1 byte)" in takeback.done("log", "--all", HOME=str(world / "home")).out


def test_log_with_paths_with_differences_and_in_a_form_of_its_own(takeback: CommandLine) -> None:
    takeback.done("run", "--", "sh", "-c", "mkdir d && cd d && touch $(seq 20) && echo new > ../z")
    id = takeback.effect("@")["id"]

    assert takeback.done("log", "--stat").out.splitlines()[1:] == ["  d/ (21 paths)", "  z"]
    assert "+new" in takeback.done("log", "-p").out
    assert takeback.done("log", "--format", "{ref} {id}: {what}").out == f"@ {id[:8]}: 22 added\n"
    import json

    assert [json.loads(line)["id"] for line in takeback.done("log", "--format", "json").out.splitlines()] == [
        id
    ]
    said = takeback("log", "--format", "{sumary}")
    assert (said.code, said.err.splitlines()[1]) == (2, "hint: Did you mean `summary`?")
    assert takeback("log", "--format", "{id").code == takeback("log", "--format", "plain").code == 2


def test_words_of_other_tools_are_understood(takeback: CommandLine) -> None:
    for word, meant in {
        "revert": "takeback undo", "restore": "takeback undo", "rollback": "takeback undo",
        "history": "takeback log", "gc": "takeback sweep", "prune": "takeback sweep", "init": "takeback store make",
    }.items():  # fmt: skip
        said = takeback(word)
        assert (said.code, said.err.splitlines()[1]) == (2, f"hint: Did you mean `{meant}`?")
    assert "`takeback config list`" in takeback("settings").err
    assert "`takeback undo`" in takeback("UNDO").err
    assert takeback("zzzzzz").err.splitlines()[1] == "hint: `takeback help` lists them."


def test_every_word_of_other_tools_leads_to_something_that_is_there() -> None:
    for word, meant in ELSEWHERE.items():
        assert word not in COMMANDS
        name, *rest = meant.split()[1:]
        if name == "help":
            continue
        assert COMMANDS[name].group
        command = command_named(name)
        if command.parts:
            name, rest = f"{name} {rest[0]}", rest[1:]
        options = parser_of(name, command)._option_string_actions  # pyright: ignore[reportPrivateUsage]
        assert set(rest) <= set(options), meant


def test_mistyped_options_and_subcommands_get_a_suggestion(takeback: CommandLine) -> None:
    assert takeback("undo", "--cascde").err == (
        "error: There is no option --cascde.\nhint: Did you mean `--cascade`?\n"
    )
    assert (
        takeback("sql", "protct", "sqlite:///x").err.splitlines()[1]
        == "hint: Did you mean `takeback sql protect`?"
    )
    assert takeback("store", "frob").err.splitlines()[1] == "hint: There are make, copy, reopen, trust."
    assert takeback("sql").code == 2
    assert takeback("runs", "one-too-many").code == 2


def test_the_version_by_every_usual_name(takeback: CommandLine) -> None:
    told = takeback.done("--version").out

    assert told == takeback.done("-V").out == takeback.done("version").out


def test_without_a_word_the_help_is_short(takeback: CommandLine) -> None:
    said = takeback()

    assert (said.code, said.out) == (2, "")
    assert "Start here:" in said.err and len(said.err.splitlines()) < 15
    assert "Start here:" in takeback.done("help").out


@pytest.mark.parametrize("name", [name for name in names() if " " in name])
def test_a_subcommand_has_help_of_its_own(takeback: CommandLine, name: str) -> None:
    said = takeback.done(*name.split(), "--help")

    assert f"example:\n  takeback {name}" in said.out
    assert takeback.done("help", *name.split()).out == said.out
    first = name.split(maxsplit=1)[0]
    assert f"  {name.split()[1]} " in takeback.done(first, "--help").out


def test_the_manual_says_what_the_help_says(takeback: CommandLine) -> None:
    def plain(text: str) -> str:
        return text.replace("\\-", "-").replace("\\(aq", "'").replace("\\(ga", "`").replace("\\e", "\\")

    pages = {name: plain(page(name)) for name in names()}
    assert len(pages) > len(COMMANDS)
    for name, text in pages.items():
        if not name:
            continue
        parser = parser_of(name, command_named(name.split()[0]))
        for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
            assert all(option in text for option in action.option_strings)
            assert (action.help or "") in text
        assert f"takeback-{name.split()[0]}(1)" in pages[""].replace("\\fB", "").replace("\\fR", "")
    assert takeback.done("help", "--man", "sql", "exec").out == page("sql exec")
    assert takeback.done("help", "--man").out == page("")
    assert takeback("help", "--man", "nosuch").code == 2


@pytest.mark.needs("groff")
def test_man_reads_the_pages_without_a_warning(tmp_path: Path) -> None:
    for name in names():
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-Kutf8"],
            input=page(name),
            text=True,
            capture_output=True,
            check=True,
        )
        assert done.stderr == "", name


def test_first_day_7e_a_wrong_store_is_no_quiet_day(takeback: CommandLine, world: World) -> None:
    (world / "file").write_text("x")
    (world / "full").mkdir()
    (world / "full" / "mine").write_text("x")

    for name in ("file", "full", "/", "/dev/null"):
        for words in (("log",), ("status",), ("runs",), ("checkpoints",), ("pending",)):
            assert takeback(*words, "--store", name).code == 2, (words, name)
    assert takeback("log", TAKEBACK_STORE=str(world / "file")).code == 2
    for words in (("log", "--json"), ("status",), ("runs",)):
        assert takeback(*words, TAKEBACK_STORE=str(world / "nowhere")).code == 3
    said = takeback("log", "--store", "nowhere")
    assert (said.code, "--store" in said.err) == (3, True)
    quiet = takeback.done("log", TAKEBACK_STORE="", XDG_STATE_HOME=str(world / "state"))
    assert quiet.out.startswith("Nothing recorded yet")
    assert not (world / "nowhere").exists() and not (world / "state").exists()


@pytest.mark.needs("bash")
def test_completion_of_subcommands_values_and_options(takeback: CommandLine) -> None:
    def offered(*words: str) -> list[str]:
        out = takeback.done("_complete", "--", str(len(words)), "takeback", *words).out
        return [line.split("\t")[0] for line in out.splitlines()]

    assert offered("sql", "p") == ["protect"]
    assert offered("store", "") == ["make", "copy", "reopen", "trust"]
    assert "hold" in offered("run", "--on-failure", "")
    assert offered("log", "--color", "al") == ["always"]
    assert "--cascade" in offered("undo", "--")
    assert "--hold" in offered("sql", "exec", "--")
    assert "--hold" not in offered("sql", "doctor", "--")
    assert offered("run", "--", "git", "--") == []


@pytest.mark.needs("bash")
def test_after_run_bash_completes_what_the_command_would(takeback: CommandLine) -> None:
    script = takeback.done("completion", "bash").out
    asking = (
        f'{script}\n_command_offset() {{ COMPREPLY=("from $1"); }}\n'
        'COMP_WORDS=(takeback run --name x -- git ch)\nCOMP_CWORD=6\n_takeback\necho "${COMPREPLY[@]}"'
    )

    done = subprocess.run(
        ["bash", "-c", asking], capture_output=True, text=True, check=True, env=surroundings()
    )

    assert done.stdout == "from 5\n"


READS = "read x; echo $x > a; exit 1"


def held_or_dropped(takeback: CommandLine) -> list[str]:
    found = takeback.done("log", "--held", "--json").json
    return ["held" if one["state"] == "proposed" else one["state"] for one in found]


@pytest.mark.parametrize("where", [(), ("--in-place",)], ids=["sandboxed", "in place"])
def test_a_failing_command_that_read_from_the_terminal_waits_for_a_decision(
    takeback: CommandLine, world: World, where: tuple[str, ...]
) -> None:
    code, shown = seen(world.root, "run", *where, "--", "sh", "-c", READS, typed=b"typed\n")
    assert code == 1
    assert "it read from the terminal, so what it did" in shown.replace("It read", "it read")
    assert not (world / "a").exists()
    assert held_or_dropped(takeback) == ["held"]
    takeback.done("apply", shown.split("takeback apply ")[1].split("`")[0])
    assert (world / "a").read_text() == "typed\n"


@pytest.mark.parametrize("where", [(), ("--in-place",)], ids=["sandboxed", "in place"])
def test_a_failing_command_on_a_terminal_that_did_not_read_is_dropped(
    takeback: CommandLine, world: World, where: tuple[str, ...]
) -> None:
    code, shown = seen(
        world.root, "run", *where, "--", "sh", "-c", "echo x > a; exit 1", typed=b"for another\n"
    )
    assert code == 1
    assert "takeback apply " in shown and "read from the terminal" not in shown
    assert held_or_dropped(takeback) == ["dropped"]


def test_a_read_in_the_same_seconds_as_another_is_noticed_and_the_time_is_put_back() -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"first\n")
        os.read(theirs, 100)
        before = os.fstat(theirs).st_atime_ns
        with TerminalUse((theirs,)) as unused:
            pass
        assert (unused.happened, os.fstat(theirs).st_atime_ns) == (False, before)
        with TerminalUse((theirs,)) as use:
            os.write(ours, b"second\n")
            os.read(theirs, 100)
        assert use.happened
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_discarded_transaction_is_said_to_be_dropped_for_good(takeback: CommandLine, world: World) -> None:
    import sqlite3

    database = sqlite3.connect(world / "app.db")
    database.execute("CREATE TABLE t (a INTEGER PRIMARY KEY)")
    database.commit()
    database.close()
    takeback.done("sql", "protect", f"sqlite:///{world / 'app.db'}")
    words = ("sql", "exec", f"sqlite:///{world / 'app.db'}", "--ask", "INSERT INTO t VALUES (1)")
    _, shown = seen(world.root, *words, typed=b"n\n")
    assert "This drop is final: the database has rolled it back." in shown
    assert held_or_dropped(takeback) == []


def in_a_shell(directory: object, line: bytes, answer: bytes) -> str:
    """What a session in a box shows. The command of the line says `ready`; the answer is typed after that."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [*COMMAND, "shell"], cwd=str(directory), env=surroundings() | {"TERM": "dumb"}, stdin=theirs, stdout=theirs,
        stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, b"echo re''ady; " + line + b"\n")
    shown, answered = b"", False
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not answered and b"ready" in shown:
            os.write(ours, answer)
            answered = True
    os.close(ours)
    assert child.wait(60) == 0
    return shown.decode().replace("\r\n", "\n")


def test_a_failing_command_in_a_box_that_read_from_the_terminal_is_held(
    takeback: CommandLine, world: World
) -> None:
    shown = in_a_shell(world.root, f"({READS})".encode(), b"typed\nexit 0\n")
    assert "It had read from the terminal, so it is held: `takeback apply " in shown
    assert held_or_dropped(takeback) == ["held"]
    name = shown.split("takeback apply ")[1].split("`", maxsplit=1)[0]
    assert f"`takeback discard {name}` drops it" in shown
    takeback.done("apply", name)
    assert held_or_dropped(takeback) == []
    box = takeback.done("shell", "--list", "--json").json[0]["box"]
    assert takeback.done("shell", "--box", box, "-c", "cat a").out.startswith("typed\n")
    assert not (world / "a").exists()


def test_a_held_step_of_a_box_that_is_discarded_is_a_drop(takeback: CommandLine, world: World) -> None:
    shown = in_a_shell(world.root, f"({READS})".encode(), b"typed\nexit 0\n")
    name = shown.split("takeback apply ")[1].split("`", maxsplit=1)[0]
    takeback.done("discard", name)
    assert held_or_dropped(takeback) == ["dropped"]
    takeback.done("apply", name)
    assert held_or_dropped(takeback) == []


def test_a_failing_command_in_a_box_that_did_not_read_is_dropped(takeback: CommandLine, world: World) -> None:
    shown = in_a_shell(world.root, b"echo x > a; false", b"exit 0\n")
    assert "takeback apply " in shown and "read from the terminal" not in shown
    assert held_or_dropped(takeback) == ["dropped"]
