"""Sessions of coding agents: `undo --prompt`, `undo --session`, and `log` by prompts."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import takeback as library
from takeback.adapters.watch.processes import MARK, identity
from takeback.runs.checkpoints import draft
from takeback.runs.prompts import mark_prompt, number_of, prompts_around
from takeback.runs.run import core_of
from tests.e2e.conftest import CommandLine, surroundings
from tests.e2e.conversations import Conversation
from tests.world import World


@pytest.fixture
def agent(store: Path, world: World) -> Conversation:
    os.mkdir(world / ".git")
    (world / "a").write_text("one\n")
    (world / "b").write_text("two\n")
    return Conversation(store, Path(world.root))


@pytest.fixture
def three(agent: Conversation) -> Conversation:
    """Three prompts, of which the second changes nothing."""
    agent.says("fix the parser\nand be quick", "t1")
    agent.shell("echo x >> a; mkdir sub; echo 1 > sub/one")
    agent.edits({"b": "edited\n"})
    agent.says("what does it do?", "t2")
    agent.says("now the tests", "t3")
    agent.shell("rm b; echo y >> a; mv sub/one sub/two")
    return agent


def test_undo_prompt_takes_back_what_was_done_since_and_redo_brings_it_back(
    takeback: CommandLine, world: World, agent: Conversation
) -> None:
    agent.says("first")
    agent.shell("echo x >> a")
    before = world.picture()
    agent.says("second")
    agent.shell("echo y >> a; rm b")
    agent.edits({"c": "new\n"})
    agent.shell("mkdir d; mv c d/c; echo z >> a")
    after = world.picture()

    said = takeback.done("undo", "--prompt")

    assert world.picture() == before
    assert said.out.startswith("» second  (claude-code 5f2c9d71, prompt 2,")
    takeback.done("redo")
    assert world.picture() == after


def test_a_second_undo_prompt_goes_to_the_last_one_that_left_something(
    takeback: CommandLine, world: World, three: Conversation
) -> None:
    takeback.done("undo", "--prompt")
    assert (world / "b").read_text() == "edited\n"

    said = takeback.done("undo", "--prompt", "--json").json

    assert said["prompt"]["number"] == 1  # the second changed nothing, the third is undone
    assert (world / "a").read_text() == "one\n" and (world / "b").read_text() == "two\n"
    nothing = takeback("undo", "--prompt")
    assert (nothing.code, "left to undo" in nothing.err) == (3, True)


@pytest.mark.parametrize("name", ["1", "id"])
def test_a_prompt_is_named_by_its_number_or_id_and_what_is_undone_is_passed_over(
    takeback: CommandLine, world: World, three: Conversation, name: str
) -> None:
    takeback.done("undo", "--prompt", "3")
    listed = json.loads(takeback.done("log", "--json").out)
    first = next(one["prompt"] for one in listed if one["prompt"]["number"] == 1)

    said = takeback.done("undo", "--prompt", "1" if name == "1" else first["id"][:8], "--json").json

    assert (said["outcome"], len(said["effects"]), said["prompt"]["text"]) == ("done", 2, "fix the parser")
    assert (world / "a").read_text() == "one\n" and not (world / "sub").exists()


def test_undo_session_takes_back_everything_also_what_came_before_a_prompt(
    takeback: CommandLine, world: World, agent: Conversation
) -> None:
    before = world.picture()
    agent.shell("echo start > z")
    agent.says("more")
    agent.shell("echo x >> a")
    after = world.picture()

    for named in ((), ("5f2c9d71-aa",), ("5f2c",), ("claude-code 5f2c9d71-aa",)):
        takeback.done("undo", "--session", *named)
        assert world.picture() == before, named
        takeback.done("redo")
        assert world.picture() == after, named


def test_what_others_did_stays(takeback: CommandLine, world: World, store: Path, agent: Conversation) -> None:
    other = Conversation(store, Path(world.root), "99887766-bb", "codex")
    agent.says("mine")
    agent.shell("echo x >> a")
    other.says("theirs")
    other.shell("echo other > o")
    takeback.write("mine", "by hand")
    agent.shell("echo x >> b")

    takeback.done("undo", "--session", "5f2c")

    assert ((world / "a").read_text(), (world / "b").read_text()) == ("one\n", "two\n")
    assert ((world / "o").read_text(), (world / "mine").read_text()) == ("other\n", "by hand")


def test_a_later_change_by_another_is_in_the_way_and_merge_keeps_it(
    takeback: CommandLine, world: World, agent: Conversation
) -> None:
    (world / "long").write_text("".join(f"line {number}\n" for number in range(20)))
    agent.says("change")
    agent.shell("sed -i 's/line 2$/LINE 2/' long; echo x > new")
    edited = (world / "long").read_text().replace("line 18", "my own line")
    (world / "long").write_text(edited)
    here = world.picture()

    refused = takeback("undo", "--prompt")
    assert (refused.code, "long" in refused.err) == (3, True)
    assert world.picture() == here
    assert "takeback undo --prompt" in refused.err and "--merge" in refused.err

    takeback.done("undo", "--prompt", "--merge")
    assert (world / "long").read_text() == edited.replace("LINE 2", "line 2")
    assert not (world / "new").exists()


def test_an_effect_of_another_session_on_the_same_file_is_in_the_way(
    takeback: CommandLine, world: World, store: Path, agent: Conversation
) -> None:
    other = Conversation(store, Path(world.root), "99887766-bb", "codex")
    agent.says("mine")
    agent.shell("echo x >> a")
    other.says("theirs")
    other.shell("echo y >> a")

    refused = takeback("undo", "--session", "5f2c")
    assert refused.code == 3 and (world / "a").read_text() == "one\nx\ny\n"
    takeback.done("undo", "--session", "5f2c", "--cascade")
    assert (world / "a").read_text() == "one\n"


def test_skip_and_force_are_those_of_undo(takeback: CommandLine, world: World, agent: Conversation) -> None:
    agent.says("change")
    agent.shell("echo x > a; echo x > b")
    (world / "a").write_text("mine\n")

    skipped = takeback("undo", "--prompt", "--skip-conflicts")
    assert (skipped.code, (world / "a").read_text(), (world / "b").read_text()) == (1, "mine\n", "two\n")
    takeback.done("redo", "--merge")
    takeback.done("undo", "--prompt", "--force")
    assert ((world / "a").read_text(), (world / "b").read_text()) == ("one\n", "two\n")


def test_a_dry_run_changes_nothing_and_shows_the_same(
    takeback: CommandLine, world: World, three: Conversation
) -> None:
    before = world.picture()
    said = takeback.done("undo", "--prompt", "1", "--dry-run", "--json").json

    assert (said["outcome"], len(said["effects"])) == ("planned", 3)
    assert world.picture() == before
    assert not any(one["undone_by"] for one in json.loads(takeback.done("log", "--json").out))


# Only some paths.


def test_some_paths_of_all_that_was_done_since(
    takeback: CommandLine, world: World, three: Conversation
) -> None:
    takeback.done("undo", "--prompt", "1", "--", "a")

    assert (world / "a").read_text() == "one\n"  # two calls changed it
    assert not (world / "b").exists() and (world / "sub" / "two").exists()
    takeback.done("redo")
    assert (world / "a").read_text() == "one\nx\ny\n"


def test_a_moved_file_comes_back_by_either_name_with_what_it_was_before(
    takeback: CommandLine, world: World, agent: Conversation
) -> None:
    agent.says("move")
    agent.shell("echo x >> a")
    agent.shell("mv a c")
    agent.shell("echo y >> c; echo z >> b")

    said = takeback.done("undo", "--session", "--", "c")

    assert (world / "a").read_text() == "one\n" and not (world / "c").exists()
    assert (world / "b").read_text() == "two\nz\n"
    assert "with it" in said.out


def test_a_path_that_none_of_them_touched_is_refused(
    takeback: CommandLine, world: World, three: Conversation
) -> None:
    before = world.picture()
    said = takeback("undo", "--prompt", "--", "nosuch")
    assert (said.code, "touched" in said.err) == (2, True)
    said = takeback("undo", "--session", "--cascade", "--", "a")
    assert said.code == 2 and world.picture() == before


# Which session, which prompt.


def test_what_does_not_fit_is_refused_by_name(
    takeback: CommandLine, world: World, three: Conversation
) -> None:
    before = world.picture()
    for words in (
        ("undo", "--prompt", "9"),
        ("undo", "--prompt", "nosuchprompt"),
        ("undo", "--prompt", ""),
        ("undo", "--session", ""),
        ("undo", "--session", "nosuch"),
        ("undo", "--prompt", "1", "--to", "x"),
        ("undo", "@", "--prompt", "1"),
        ("undo", "--session", "5f2c", "--run", "x"),
        ("undo", "--session", "--since", "1h"),
    ):
        said = takeback(*words)
        assert said.code == 2, (words, said)
    assert world.picture() == before


def test_without_any_session_it_says_so(takeback: CommandLine) -> None:
    assert takeback("undo", "--prompt").code in (2, 3)
    takeback.write("a", "1")
    for words in (("--prompt",), ("--session",), ("--prompt", "1")):
        said = takeback("undo", *words)
        assert (said.code, "No session" in said.err) == (3, True), said


def test_a_prompt_in_another_project_is_not_meant(
    takeback: CommandLine, world: World, store: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / ".git").mkdir(parents=True)
    os.mkdir(world / ".git")
    there = Conversation(store, elsewhere, "77777777-cc")
    there.says("there")
    there.shell("echo 1 > made")
    takeback.write("a", "1")

    assert takeback("undo", "--prompt").code == 3
    assert (elsewhere / "made").exists()
    takeback.done("undo", "--session", "7777")  # by its name it is
    assert not (elsewhere / "made").exists()


def test_a_session_that_was_continued_after_its_end_is_one(
    takeback: CommandLine, world: World, agent: Conversation
) -> None:
    before = world.picture()
    agent.says("one", "t1")
    agent.shell("echo x >> a")
    with agent:
        agent.run.close()
    agent.says("two", "t2")
    agent.shell("echo y >> a")

    shown = takeback.done("log").out
    assert "prompt 1," in shown and "prompt 2," in shown
    takeback.done("undo", "--prompt", "1")
    assert world.picture() == before


def test_when_nothing_of_the_last_session_is_left_another_is_named(
    takeback: CommandLine, world: World, store: Path, agent: Conversation
) -> None:
    agent.says("first")
    agent.shell("echo x >> a")
    later = Conversation(store, Path(world.root), "99887766-bb", "codex")
    later.says("second")
    later.shell("echo y >> b")
    takeback.done("undo", "--prompt")

    said = takeback("undo", "--prompt")

    assert said.code == 3 and "takeback undo --prompt --session 5f2c9d71-aa" in said.err
    takeback.done("undo", "--prompt", "--session", "5f2c9d71-aa")
    assert (world / "a").read_text() == "one\n"


def test_a_prompt_that_is_given_twice_is_one(agent: Conversation) -> None:
    agent.says("same", "t1")
    agent.says("same", "t1")
    agent.says("next", "t2")
    agent.says("same words, no id of a turn")
    agent.says("same words, no id of a turn")

    with agent:
        (session,) = library.sessions(agent.tb)
        assert [(one.number, one.turn) for one in library.prompts(agent.tb, session)] == [
            (1, "t1"), (2, "t2"), (3, ""), (4, ""),
        ]  # fmt: skip


def test_the_words_of_a_prompt_are_one_plain_line(takeback: CommandLine, agent: Conversation) -> None:
    agent.says("\n\n  \x1b[2Jwipe \u202ethe\tscreen  \nsecond line" + "x" * 500 + "\udc80")
    agent.shell("echo x >> a")
    agent.says("é" * 500)
    agent.shell("echo x >> a")

    shown = takeback.done("log").out
    assert "» [2Jwipe the screen  (" in shown
    assert f"» {'é' * 199}…" in shown


# What is not over yet.


def test_an_open_call_is_never_left_out_without_a_word(
    takeback: CommandLine, world: World, agent: Conversation
) -> None:
    agent.says("go")
    agent.shell("echo x >> a")
    with agent:
        watch = agent.run.watch(agent.project, summary="Bash: long", about={"process": identity(os.getpid())})
        watch.begin()
        (world / "b").write_text("half\n")

        refused = takeback("undo", "--prompt")
        assert (refused.code, "Bash: long" in refused.err) == (5, True), refused
        assert (world / "a").read_text() == "one\nx\n"

        watch.finish()
    takeback.done("undo", "--prompt")
    assert ((world / "a").read_text(), (world / "b").read_text()) == ("one\n", "two\n")


def test_the_watch_between_two_calls_is_no_call(
    takeback: CommandLine, world: World, agent: Conversation
) -> None:
    """The daemon holds the run, and follows what changes between calls, as long as the agent lives."""
    agent.says("go")
    agent.shell("echo x >> a; echo x >> b")
    with agent:
        about = {"process": identity(os.getpid()), "between": True}
        with agent.run.watch(agent.project, summary="between calls", about=about):
            takeback.done("undo", "--prompt", "--", "a")
            assert ((world / "a").read_text(), (world / "b").read_text()) == ("one\n", "two\nx\n")
            takeback.done("undo", "--session")
    assert ((world / "a").read_text(), (world / "b").read_text()) == ("one\n", "two\n")


def test_a_call_outside_of_the_project_is_part_of_the_session(
    takeback: CommandLine, world: World, tmp_path: Path, agent: Conversation
) -> None:
    outside = tmp_path / "bashrc"
    outside.write_text("mine\n")
    agent.says("set it up")
    with agent:
        agent.run.write(outside, "by the agent\n")

    takeback.done("undo", "--prompt")

    assert outside.read_text() == "mine\n"


def test_the_call_in_which_it_is_asked_for_is_not_waited_for(
    takeback: CommandLine, world: World, agent: Conversation
) -> None:
    agent.says("go")
    agent.shell("echo x >> a")
    with agent:
        about = {"process": identity(os.getpid(), "m4rk")}
        with agent.run.watch(agent.project, summary="Bash: takeback undo", about=about):
            takeback.done("undo", "--prompt", **{MARK: "m4rk"})
    assert (world / "a").read_text() == "one\n"


def test_a_call_of_an_agent_that_has_died_is_waited_for(
    takeback: CommandLine, world: World, agent: Conversation
) -> None:
    died = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = identity(died.pid)
    died.communicate(b"\n")
    agent.says("go")
    with agent:
        watch = agent.run.watch(agent.project, summary="Bash: cut off", about={"process": process})
        watch.begin()
        (world / "a").write_text("half\n")
        undo = subprocess.Popen(
            [sys.executable, "-m", "takeback", "undo", "--prompt"], cwd=world.root, stderr=subprocess.PIPE
        )
        # The daemon settles it as soon as it has seen that; the command must already be there.
        threading.Timer(0.5, watch.finish).start()
        _, err = undo.communicate(timeout=60)
    assert (undo.returncode, (world / "a").read_text()) == (0, "one\n"), err


@pytest.mark.parametrize("words", [("--prompt",), ("--prompt", "3"), ("--session",)])
def test_killed_and_asked_for_again_it_is_finished_and_not_the_prompt_before(
    takeback: CommandLine, world: World, three: Conversation, words: tuple[str, ...]
) -> None:
    """The first one dies before the second undo of several is recorded, or before the only one."""
    three.edits({"c": "made for the third prompt\n"})
    script = (
        "import os, signal, sys\n"
        "from takeback.storage.sqlite.journal import SqliteJournal\n"
        "append, undos = SqliteJournal.append, []\n"
        "def dying(self, lease, drafts):\n"
        "    undos.extend(one for one in drafts if one.body.get('undoes'))\n"
        "    if len(undos) > 1:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return append(self, lease, drafts)\n"
        "SqliteJournal.append = dying\n"
        "from takeback.frontends.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    died = subprocess.run(
        [sys.executable, "-c", script, "undo", *words],
        cwd=world.root, env=surroundings(), capture_output=True, check=False,
    )  # fmt: skip
    assert died.returncode == -signal.SIGKILL, died

    said = takeback.done("undo", *words)

    assert "what was interrupted is finished" in said.out
    b = "two\n" if words == ("--session",) else "edited\n"
    assert ((world / "b").read_text(), (world / "c").exists()) == (b, False)


# The list.


def test_log_groups_calls_under_their_prompt(
    takeback: CommandLine, world: World, store: Path, three: Conversation
) -> None:
    takeback.write("mine", "by hand")
    three.says("last")
    three.shell("echo z >> a", member="agent-7")

    lines = takeback.done("log").out.splitlines()

    shape = [line.split("  (")[0] if line.startswith("»") else line[: line.index("@") + 1] for line in lines]
    assert shape == [
        "» last", "  @", "@", "» now the tests", "  @", "» fix the parser", "  @", "  @",
    ]  # fmt: skip
    assert "(claude-code, prompt 4, " in lines[0] and "subagent agent-7" in lines[1]
    assert lines[1].split()[0] == "@" and lines[2].split()[0] == "@~1"


def test_log_names_each_session_where_there_are_several(
    takeback: CommandLine, world: World, store: Path, agent: Conversation
) -> None:
    other = Conversation(store, Path(world.root), "99887766-bb", "codex")
    agent.shell("echo 0 > before")
    agent.says("mine")
    other.says("theirs")
    agent.shell("echo x >> a")
    other.shell("echo other > o")
    agent.shell("echo x >> b")

    titles = [line for line in takeback.done("log").out.splitlines() if line.startswith("»")]

    assert [title.partition(", ")[0] for title in titles] == [
        "» mine  (claude-code 5f2c9d71", "» theirs  (codex 99887766", "» mine  (claude-code 5f2c9d71",
        "» before the first prompt  (claude-code 5f2c9d71)",
    ]  # fmt: skip


def test_what_others_did_beside_the_agent_is_marked_and_stays(
    takeback: CommandLine, world: World, agent: Conversation
) -> None:
    agent.says("mine")
    agent.shell("echo x >> a")
    agent.sees_others(lambda: (world / "b").write_text("by the user\n"))

    shown = takeback.done("log").out.splitlines()
    assert "not the agent" in shown[1] and shown[1].startswith("  @")
    for words in (("--prompt",), ("--session",)):
        takeback.done("undo", *words)
        assert ((world / "a").read_text(), (world / "b").read_text()) == ("one\n", "by the user\n")
        takeback.done("redo")


def test_what_others_did_to_the_same_file_is_in_the_way(
    takeback: CommandLine, world: World, agent: Conversation
) -> None:
    agent.says("mine")
    agent.shell("echo x >> a; echo x >> b")
    agent.sees_others(lambda: (world / "b").write_text("by the user\n"))

    refused = takeback("undo", "--prompt")
    assert (refused.code, (world / "a").read_text()) == (3, "one\nx\n")
    assert "--merge --skip-conflicts` merges what it can and does the rest" in refused.err
    said = takeback("undo", "--prompt", "--merge", "--skip-conflicts")
    assert (said.code, "conflict" in said.out) == (1, True)
    assert ((world / "a").read_text(), (world / "b").read_text()) == ("one\n", "by the user\n")


def test_programs_get_the_session_and_the_prompt(
    takeback: CommandLine, world: World, three: Conversation
) -> None:
    takeback.write("mine", "by hand")
    listed = json.loads(takeback.done("log", "--json").out)

    assert [(one["session"], one["prompt"] and one["prompt"]["number"]) for one in listed] == [
        (None, None), ("claude-code 5f2c9d71-aa", 3),
        ("claude-code 5f2c9d71-aa", 1), ("claude-code 5f2c9d71-aa", 1),
    ]  # fmt: skip
    lines = takeback.done("log", "--format", "json").out.splitlines()
    assert [json.loads(line)["prompt"] for line in lines] == [one["prompt"] for one in listed]
    assert takeback.done("log", "--format", "{prompt}|{state}").out.splitlines()[:2] == ["|done", "3|done"]


def test_filters_of_the_list_keep_working(takeback: CommandLine, three: Conversation) -> None:
    for words in (
        ("a",),
        ("--run", "claude-code 5f2c9d71-aa"),
        ("--agent", "claude-code"),
        ("--stat",),
        ("-p",),
    ):
        shown = takeback.done("log", *words).out
        assert "» fix the parser  (claude-code" in shown, words
    assert "»" not in takeback.done("log", "--held").out
    assert len([one for one in takeback.done("log", "-n", "1").out.splitlines() if "»" in one]) == 1


def test_prompts_are_checkpoints_but_do_not_hide_the_named_ones(
    takeback: CommandLine, three: Conversation
) -> None:
    takeback.done("checkpoint", "named")
    assert "prompt" not in takeback.done("checkpoints").out
    assert "prompt 3" in takeback.done("checkpoints", "--run", "claude-code 5f2c9d71-aa").out


# From Python.


def test_python_takes_back_a_prompt_and_a_session(world: World, three: Conversation) -> None:
    with three:
        (session,) = library.sessions(three.tb, project=world.root)
        first, second, third = library.prompts(three.tb, session)
        three.tb.undo(third)
        assert (world / "b").read_text() == "edited\n"
        with pytest.raises(library.Refused):
            three.tb.undo(second)
        three.tb.undo(first, paths=[world / "b"])
        assert (world / "b").read_text() == "two\n"
        three.tb.undo(session)
        assert (world / "a").read_text() == "one\n"


def test_thousands_of_prompts_are_found_from_the_end(world: World, agent: Conversation) -> None:
    """A list reads those around the effects that it shows, however far back the one before lies."""
    with agent:
        mark_prompt(agent.run, "the first")
        agent.run.write(world / "a", "x")
        core = core_of(agent.run)
        drafts = [draft(core.id, f"prompt {number}", path=("prompt",)) for number in range(2, 6_000)]
        core.parts.journal.append(core.lease, drafts)
        agent.run.write(world / "a", "y")
        journal = agent.tb.store.journal
        effects = agent.tb.effects(run=agent.run.id)
        runs = {info.id: info for info in journal.runs((agent.run.id,))}

        under = prompts_around(journal, effects, runs)
        only_first = prompts_around(journal, effects[:1], runs)

    numbers = [number_of(point) for one in effects if (point := under[one.id].point)]
    assert numbers == [1, 5_999] and only_first[effects[0].id] == under[effects[0].id]
